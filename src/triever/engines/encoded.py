"""Documents as vectors of an encoder, one for each text or one for each token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from triever.artifact import Snapshot, Writer
from triever.data.records import Document, Result
from triever.data.store import DocumentStore
from triever.engines.base import Parts
from triever.engines.hits import results
from triever.engines.panels import HitMatches, Matches, Panel, matched
from triever.errors import UsageError
from triever.index.sharded import ShardedTokens, ShardedVectors
from triever.index.token_vectors import TokenIndex, TokenOptions, token_products
from triever.index.vectors import VectorIndex, vector_products
from triever.memory_parts import Products, Stored, scaled, weight_products, weights_in
from triever.models import encoder as encoders
from triever.models.encoder import Encoder, adapter_facts, encode, encode_tokens, source_of
from triever.models.precision import device_of
from triever.models.tokens import Tokens
from triever.validation import require, require_table

Index = TypeVar("Index", bound=VectorIndex | ShardedVectors | TokenIndex | ShardedTokens)
ASKING = "asking"
"""What an encoder of queries is called in an artifact, where another one reads documents."""
MEAN = (
    "A vector is the mean of what its tokens were read as in their context, so that a score is a sum over all pairs of "
    "tokens. Each token of the query is linked with the token of the document that it adds most with."
)
"""What matches of one vector for each text are."""
BEST = "Each token of the query is linked with the token of the document that fits it best; these add up to the score."
"""What matches of one vector for each token are."""
QUERIES = 64
"""Queries that are scored at once; each may look at tens of thousands of token vectors."""


@dataclass(frozen=True)
class TextReading:
    """How much of texts is read, and what stands before them: `TextReading(64, 256)`."""

    query_length: int
    document_length: int
    query_prefix: str = ""
    document_prefix: str = ""
    augment: bool = False  # fill queries up with mask tokens
    punctuation: bool = True  # whether punctuation of documents has vectors

    def documents(self, encoder: Encoder, documents: Iterable[Document], folder: Path | None = None) -> Tokens:
        """The tokens of documents."""
        texts = (self.document_prefix + document.full_text for document in documents)
        return Tokens.of(texts, encoder.tokenizer, encoder.at_most(self.document_length), folder)

    def queries(self, encoder: Encoder, queries: Sequence[str]) -> Tokens:
        """The tokens of queries."""
        texts = (self.query_prefix + query for query in queries)
        length = encoder.at_most(self.query_length)
        tokens = Tokens.of(texts, encoder.tokenizer, length)
        return self._filled_up(tokens, encoder, length) if self.augment else tokens

    def _filled_up(self, tokens: Tokens, encoder: Encoder, length: int) -> Tokens:
        mask = encoder.tokenizer.number("[MASK]")
        if mask is None:
            raise UsageError(f"{encoder.backbone.name} has no [MASK] token", "set augment=false")
        filled = [[*row.tolist(), *[mask] * (length - len(row))] for row in (tokens[at] for at in range(len(tokens)))]
        return Tokens.from_lists(filled, encoder.tokenizer.size)

    def token_vectors(
        self, encoder: Encoder, documents: Tokens, folder: Path | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The vectors of documents' tokens, end to end, and where each document begins."""
        keep = None if self.punctuation else documents.keep(encoder.tokenizer.punctuation())
        return encode_tokens(encoder, documents, keep=keep, folder=folder)


@dataclass(frozen=True)
class _EncoderEngine(Generic[Index]):
    """What both engines share: an encoder, and an index of what it makes of documents."""

    encoder: Encoder
    index: Index
    reading: TextReading
    trained: Mapping[str, Any] = field(default_factory=dict)

    def without(self, keep: np.ndarray) -> Self:
        """Without some of its rows."""
        return replace(self, index=self.index.without(keep))

    def among(self, keep: np.ndarray) -> Self:
        """With some of its rows, for searches alone."""
        return replace(self, index=self.index.among(keep))

    def stored(self) -> Stored:
        """Weights and vectors."""
        return {"weights": [*weights_in(self.encoder)], **self.index.stored()}

    def made_from(self) -> dict[str, Any]:
        """The backbone, and how the training went."""
        return {"weights": source_of(self.encoder), **adapter_facts(self.encoder), **self.trained}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact."""
        encoders.write(self.encoder, writer)
        self.index.write(writer)
        return {"trained": dict(self.trained)}


@dataclass(frozen=True)
class DenseEngine(_EncoderEngine[VectorIndex | ShardedVectors]):
    """An encoder, and an index of one vector for each document; `asking` reads queries, where that is another one."""

    asking: Encoder | None = None

    @property
    def query_encoder(self) -> Encoder:
        """What reads queries."""
        return self.asking or self.encoder

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The documents with the nearest vectors."""
        return results(*self.index.search(self.vectors(queries), k), store.ids)

    def vectors(self, queries: Sequence[str]) -> np.ndarray:
        """(queries, d) the vectors of queries."""
        return encode(self.query_encoder, self.reading.queries(self.query_encoder, queries))

    def softmax_over_all(self, queries: Sequence[str], temperature: float) -> tuple[np.ndarray, np.ndarray]:
        """(queries,) each: a score divided by the first, less the second, is a log-probability over all documents."""
        return np.full(len(queries), temperature), self.index.log_sum_exp(self.vectors(queries), temperature)

    def stored(self) -> Stored:
        """Weights and vectors."""
        return {**super().stored(), "weights": [*weights_in(self.encoder, self.asking)]}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact."""
        if self.asking is not None:
            encoders.write(self.asking, writer, ASKING)
        return super().write(writer)

    def read_ahead(self, queries: Sequence[str]) -> Callable[[int], object]:
        """Read queries; what is returned finds so many documents for each."""
        vectors = self.vectors(queries)
        return lambda k: self.index.search(vectors, k)

    @torch.inference_mode()
    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """What each token of the query adds, where a vector is a mean of its tokens; else the score as one part."""
        encoder = self.query_encoder
        if not adds_up(encoder):
            return tuple((("similarity", hit.score),) for hit in result)
        pieces, shares = token_shares(encoder, self.reading.queries(encoder, [query]))
        return tuple(named(pieces, (shares @ row).tolist()) for row in self._stored(store, result).to(shares.device))

    def _stored(self, store: DocumentStore, result: Result) -> Tensor:
        """(hits, d) the vectors of hits as the index has them."""
        rows = np.array([store.row(hit.id) for hit in result], np.int64)
        return torch.from_numpy(self.index.take(rows).astype(np.float32))

    @torch.inference_mode()
    def panels(self, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
        """What tokens add to scores, where the vectors of queries and documents are means of their tokens."""
        asking, encoder = self.query_encoder, self.encoder
        if not (adds_up(asking) and adds_up(encoder)):
            return ()
        pieces, shares = token_shares(asking, self.reading.queries(asking, [query]))
        by_query = (shares @ self._stored(store, result).to(shares.device).T).T.tolist()
        hits = []
        for hit, weights in zip(result, by_query, strict=True):
            tokens = self.reading.documents(encoder, [store.document(hit.id)])
            words, inside = token_shares(encoder, tokens)
            products = shares @ inside.to(shares.device).T  # (tokens of the query, tokens of the document)
            most, at = products.max(1)
            links = zip(range(len(pieces)), at.tolist(), most.tolist(), strict=True)
            added = products.sum(0).tolist()
            rest = hit.score - sum(added)
            hits.append(HitMatches(hit.id, tuple(weights), tuple(words), tuple(added), tuple(links), rest))
        return (Matches(MEAN, "", tuple(pieces), tuple(hits)),)

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With the vectors of more documents."""
        vectors = encode(self.encoder, self.reading.documents(self.encoder, documents))
        return replace(self, index=self.index.with_added(vectors))

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed."""
        stored = scaled(self.index.built_from, now, then)  # the index keeps what was deleted until it is built anew
        vectors = vector_products(stored, self.index.width, self.index.options)
        return {"weights": weight_products(weights_in(self.encoder, self.asking)), **vectors}


@dataclass(frozen=True)
class LateEngine(_EncoderEngine[TokenIndex | ShardedTokens]):
    """An encoder, and an index of one vector for each token of each document."""

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The documents whose tokens fit those of the query best."""
        return results(*nearest_documents(self.index, *self.vectors(queries), k), store.ids)

    def vectors(self, queries: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The vectors of queries' tokens, end to end, and where each query begins."""
        return encode_tokens(self.encoder, self.reading.queries(self.encoder, queries))

    def softmax_over_all(self, queries: Sequence[str], temperature: float) -> tuple[np.ndarray, np.ndarray]:
        """(queries,) each: a score divided by the first, less the second, is a log-probability over all documents.

        A training divides the mean over a query's tokens by its temperature; the score of an index may be their sum.
        """
        flat, starts = self.vectors(queries)
        tokens = np.diff(starts) if self.index.options.score == "maxsim" else np.ones(len(queries))
        temperatures, totals = temperature * tokens, []
        for low in range(0, len(queries), QUERIES):
            vectors, mask = _side_by_side(flat, starts[low : low + QUERIES + 1])
            totals.append(self.index.log_sum_exp(vectors, mask, temperatures[low : low + QUERIES]))
        return temperatures, np.concatenate([np.empty(0), *totals])

    def read_ahead(self, queries: Sequence[str]) -> Callable[[int], object]:
        """Read queries; what is returned finds so many documents for each."""
        vectors = self.vectors(queries)
        return lambda k: nearest_documents(self.index, *vectors, k)

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """For each token of the query, how well the best token of the document matches it."""
        tokens = self.reading.queries(self.encoder, [query])
        flat, _ = encode_tokens(self.encoder, tokens)
        pieces = self.encoder.tokenizer.shown(tokens[0].tolist())
        count = len(pieces) if self.index.options.score == "avgmax" else 1
        scores = [self.index.matches(flat, store.row(hit.id))[1] for hit in result]
        return tuple(named(pieces, (np.asarray(token_scores) / count).tolist()) for token_scores in scores)

    def panels(self, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
        """For each token of the query the token of each document that fits it best."""
        tokens = self.reading.queries(self.encoder, [query])
        flat, _ = encode_tokens(self.encoder, tokens)
        pieces = self.encoder.tokenizer.shown(tokens[0].tolist())
        return (token_matches(self.index, pieces, flat, store, result, self._words),)

    def _words(self, document: Document) -> list[str]:
        """The tokens of a document that have vectors."""
        tokens, tokenizer = self.reading.documents(self.encoder, [document]), self.encoder.tokenizer
        flat = tokens[0] if self.reading.punctuation else tokens.flat[tokens.keep(tokenizer.punctuation())]
        return tokenizer.shown(flat.tolist())

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With the vectors of more documents."""
        tokens = self.reading.documents(self.encoder, documents)
        return replace(self, index=self.index.with_added(*self.reading.token_vectors(self.encoder, tokens)))

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed."""
        documents, tokens = (scaled(count, now, then) for count in self.index.built_from)
        vectors = token_products(documents, tokens, self.index.width, self.index.options)
        return {"weights": weight_products(weights_in(self.encoder)), **vectors}


def read_dense(snapshot: Snapshot, reading: TextReading, device: str, index_device: str) -> DenseEngine:
    """The engine of an artifact, on its devices as far as they are here."""
    opened = ShardedVectors.opened if snapshot.shards else VectorIndex.read
    index = opened(snapshot, device=index_device)
    encoder = encoders.read(snapshot).to(device_of(device, opening=True))
    asking = encoders.read(snapshot, ASKING).to(encoder.device) if snapshot.has(ASKING) else None
    require(asking is None or asking.size == encoder.size, "its two encoders have vectors of different sizes")
    return DenseEngine(encoder, index, reading, _checked_training(snapshot, encoder, index), asking)


def read_late(snapshot: Snapshot, reading: TextReading, device: str) -> LateEngine:
    """The same for token vectors, which are where the encoder is."""
    encoder = encoders.read(snapshot).to(device_of(device, opening=True))
    opened = ShardedTokens.opened if snapshot.shards else TokenIndex.read
    index = opened(snapshot, device=str(encoder.device))
    return LateEngine(encoder, index, reading, _checked_training(snapshot, encoder, index))


def _checked_training(snapshot: Snapshot, encoder: Encoder, index: Index) -> dict[str, Any]:
    """How the training went; a ValueError if the index is not one of this encoder and these documents."""
    require(len(index) == snapshot.rows, f"its index has {len(index)} documents")
    require(index.width == encoder.size, f"its vectors have {index.width} numbers, not {encoder.size}")
    return require_table(snapshot.state, "trained")


def nearest_documents(
    index: TokenIndex | ShardedTokens, flat: np.ndarray, starts: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and rows (queries, k) of the best documents for queries' tokens that lie end to end."""
    batches = []
    for low in range(0, max(1, len(starts) - 1), QUERIES):  # some at a time: they are padded to the longest
        vectors, mask = _side_by_side(flat, starts[low : low + QUERIES + 1])
        batches.append(index.search(vectors, mask, k))
    return np.concatenate([batch[0] for batch in batches]), np.concatenate([batch[1] for batch in batches])


def exact_options(options: TokenOptions) -> TokenOptions:
    """The same without anything that an approximate search leaves out."""
    return replace(options, bits=16, candidates=0, centroids=0, tokens=0)


def _side_by_side(flat: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors laid end to end as (texts, longest, size), with a mask (texts, longest)."""
    lengths = np.diff(starts)
    mask = np.arange(max(int(lengths.max(initial=0)), 1)) < lengths[:, None]
    out = np.zeros((*mask.shape, flat.shape[1]), np.float32)
    out[mask] = flat[starts[0] : starts[-1]]
    return out, mask


def adds_up(encoder: Encoder) -> bool:
    """Whether the vector of a text is a sum over its tokens, but for its length."""
    return encoder.shape.pooling == "mean" and encoder.shape.projection != "two-layer"


def token_shares(encoder: Encoder, tokens: Tokens) -> tuple[list[str], Tensor]:
    """The tokens of one text as they are written, and the shares (tokens, d) that add up to its vector."""
    ids, mask = (tensor.to(encoder.device) for tensor in tokens.padded([0], encoder.tokenizer.pad))
    states = encoder.projection(encoder.states(ids, mask)[0]).float()
    length = states.mean(0).norm() if encoder.shape.unit else 1
    return encoder.tokenizer.shown(ids[0].tolist()), states / (len(states) * length)


def token_matches(
    index: TokenIndex | ShardedTokens,
    pieces: Sequence[str],
    flat: np.ndarray,
    store: DocumentStore,
    result: Result,
    words: Callable[[Document], Sequence[str]],
) -> Matches:
    """The best matches of the tokens of a query, whose vectors (tokens, d) are given, with those of each hit.

    `words` has the tokens of a document that have vectors.
    """
    count = len(pieces) if index.options.score == "avgmax" else 1
    hits = []
    for hit in result:
        positions, scores = index.matches(flat, store.row(hit.id))
        added = (scores.astype(np.float64) / count).tolist()
        hits.append(matched(hit.id, positions.tolist(), added, words(store.document(hit.id))))
    return Matches(BEST, "", tuple(pieces), tuple(hits))


def named(pieces: Sequence[str], weights: Sequence[float]) -> Parts:
    """Parts of a score by their names, the heaviest first; a name that comes again is numbered."""
    seen: Counter[str] = Counter()
    parts = []
    for piece, weight in zip(pieces, weights, strict=True):
        seen[piece] += 1
        parts.append((f"{piece} ({seen[piece]})" if seen[piece] > 1 else piece, float(weight)))
    return tuple(sorted(parts, key=lambda part: -abs(part[1])))
