"""Late interaction: a vector for each token, and for each token of a query the best of a document's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from triever import artifact
from triever.config import option
from triever.data.records import Document, Result
from triever.data.store import DocumentStore
from triever.errors import UsageError
from triever.index.token_vectors import TokenIndex, TokenOptions, token_products
from triever.models.backbones import Backbone
from triever.models.encoder import Encoder, EncoderShape, encode_tokens
from triever.models.tokens import Tokens
from triever.retrievers.base import Parts
from triever.retrievers.encoding import Encoded, Encoding, most, named
from triever.storage import Products, scaled
from triever.training.loop import gathered
from triever.training.losses import late_scores

QUERIES = 64
"""Queries that are scored at once; each may look at tens of thousands of token vectors."""


@dataclass(eq=False)
class MultiVector(Encoding):
    """Late interaction: `MultiVector(size=128, index=TokenOptions(bits=2)).fit(data)`."""

    kind: ClassVar[str] = "multivector"

    size: int = option(128, "width of the token vectors by a linear projection; 0 is that of the backbone")
    augment: bool = option(False, "fill queries up with mask tokens, which learn to stand for words not said")
    punctuation: bool = option(False, "keep vectors of punctuation in documents")
    index: TokenOptions = option(TokenOptions(), "how token vectors are kept and searched")

    def _shape(self, backbone: Backbone) -> EncoderShape:
        return EncoderShape("mean", self.size, "linear" if self.size else "none", unit=True)

    def _encoder(self, store: DocumentStore) -> Encoder:
        encoder = super()._encoder(store)
        if isinstance(encoder.projection, nn.Linear):
            # Orthogonal: before any training the projection keeps angles as well as so many numbers can.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.training.seed)
                nn.init.orthogonal_(encoder.projection.weight)
        return encoder

    def _query_tokens(self, encoder: Encoder, queries: Sequence[str]) -> Tokens:
        tokens = super()._query_tokens(encoder, queries)
        if not self.augment:
            return tokens
        mask = encoder.tokenizer.number("[MASK]")
        if mask is None:
            raise UsageError(f"{self.backbone} has no [MASK] token", "set augment=false")
        length = most(encoder, self.query_length)
        filled = [[*row.tolist(), *[mask] * (length - len(row))] for row in (tokens[at] for at in range(len(tokens)))]
        return Tokens.from_lists(filled, encoder.tokenizer.size)

    def _pair_scores(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        assert isinstance(model, Encoder)
        documents = gathered(model.token_vectors(batch["document_ids"], batch["document_mask"]))
        mask = gathered(batch["document_mask"].bool() & self._kept(model, batch["document_ids"]))
        queries = model.token_vectors(batch["query_ids"], batch["query_mask"])
        # A mean, so that one temperature suits queries of any length.
        return late_scores(queries, batch["query_mask"], documents, mask, mean=True)

    def _kept(self, encoder: Encoder, ids: Tensor) -> Tensor:
        """Whether each token of a document has a vector, in training as in the index."""
        kept = torch.ones(encoder.tokenizer.size, dtype=torch.bool)
        if not self.punctuation:
            kept[encoder.tokenizer.punctuation()] = False
        return kept.to(ids.device)[ids]

    def _scored(self, query_tokens: int, document_tokens: int) -> int:
        return query_tokens * document_tokens

    def _rank(
        self, encoder: Encoder, queries: Tokens, documents: Tokens, k: int, work: Path | None = None
    ) -> np.ndarray:
        exact = replace(self._options(encoder), bits=16, candidates=0, centroids=0)
        index = TokenIndex.of(*self._document_vectors(encoder, documents, work), exact)
        return self._find(Encoded(encoder, index), encode_tokens(encoder, queries, folder=work), k)[1]

    def _options(self, encoder: Encoder) -> TokenOptions:
        """The index is where the encoder is."""
        return replace(self.index, device=str(encoder.device))

    def _document_vectors(
        self, encoder: Encoder, documents: Tokens, work: Path | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        keep = None if self.punctuation else documents.keep(encoder.tokenizer.punctuation())
        return encode_tokens(encoder, documents, keep=keep, folder=work)

    def _read_queries(self, engine: Encoded, queries: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return encode_tokens(engine.encoder, self._query_tokens(engine.encoder, queries))

    def _find(self, engine: Encoded, read: tuple[np.ndarray, np.ndarray], k: int) -> tuple[np.ndarray, np.ndarray]:
        flat, starts = read
        found = []
        for low in range(0, max(1, len(starts) - 1), QUERIES):  # some at a time: they are padded to the longest
            vectors, mask = _side_by_side(flat, starts[low : low + QUERIES + 1])
            found.append(engine.index.search(vectors, mask, k))
        return np.concatenate([one[0] for one in found]), np.concatenate([one[1] for one in found])

    def _engine(self, encoder: Encoder, documents: Tokens, work: Path | None = None) -> Encoded:
        vectors = self._document_vectors(encoder, documents, work)
        return Encoded(encoder, TokenIndex.of(*vectors, self._options(encoder)))

    def _with_added(self, engine: Encoded, documents: Sequence[Document], store: DocumentStore) -> Encoded:
        tokens = self._document_tokens(engine.encoder, documents)
        return replace(engine, index=engine.index.with_added(*self._document_vectors(engine.encoder, tokens)))

    def _explain(self, engine: Encoded, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """For each token of the query, how well the best token of the document matches it."""
        tokens = self._query_tokens(engine.encoder, [query])
        flat, _ = encode_tokens(engine.encoder, tokens)
        pieces = engine.encoder.tokenizer.pieces(tokens[0].tolist())
        count = len(pieces) if self.index.score == "avgmax" else 1
        scores = [engine.index.matches(flat, store.row(hit.id))[1] for hit in result]
        return tuple(named(pieces, (np.asarray(one) / count).tolist()) for one in scores)

    def _index_products(self, engine: Encoded, now: int, then: int) -> dict[str, Products]:
        part, index = engine.index.main.part, engine.index
        documents, tokens = (scaled(count, now, then) for count in (len(part), len(part.numbers)))
        return token_products(documents, tokens, index.width, index.options)

    def reindexed(self, **options: Any) -> MultiVector:
        """The same documents and encoder with another index: `late.reindexed(bits=2)`."""
        held = self._checked()
        other = replace(self, index=replace(self.index, **options))
        index = held.engine.index.rebuilt(other._options(held.engine.encoder))
        other._held = replace(held, engine=replace(held.engine, index=index))
        return other

    def _read(self, snapshot: artifact.Snapshot) -> Encoded:
        encoder = self._read_encoder(snapshot)
        return self._opened(snapshot, encoder, TokenIndex.read(snapshot, device=str(encoder.device)))


def _side_by_side(flat: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors laid end to end as (texts, longest, size), with a mask (texts, longest)."""
    lengths = np.diff(starts)
    mask = np.arange(max(int(lengths.max(initial=0)), 1)) < lengths[:, None]
    out = np.zeros((*mask.shape, flat.shape[1]), np.float32)
    out[mask] = flat[starts[0] : starts[-1]]
    return out, mask
