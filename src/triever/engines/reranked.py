"""Candidates of any engine, ordered anew by a cross-encoder that reads each together with the query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from triever.arrays import places, starts_of
from triever.artifact import Snapshot, Writer
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.engines import document_tokens
from triever.engines.base import Engine, Parts, among, docid_tree_of
from triever.engines.panels import Panel, first_panels
from triever.memory_parts import Products, Stored, inside, weight_products, weights_in
from triever.models import encoder as encoders
from triever.models.encoder import Encoder, encode, source_of
from triever.models.precision import device_of
from triever.models.tokens import TextTokenizer, Tokens
from triever.training.pairs import text_numbers
from triever.validation import require_table

if TYPE_CHECKING:
    from triever.engines.docid_tree import DocidTree

QUERIES = 1024
"""Queries whose candidates are laid side by side at once."""
FIRST = "first"
"""What the engine of the candidates is called in an artifact, and where memory is told."""


@dataclass(frozen=True)
class Reranker:
    """A cross-encoder and the tokens of the documents that it reads."""

    encoder: Encoder  # its vectors have one number: the score
    documents: Tokens
    query_length: int
    document_length: int
    trained: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def same(self) -> np.ndarray:
        """(documents,) the numbers of their texts: a copy of what is relevant is not wrong."""
        return text_numbers(self.documents)

    def scores(self, queries: Tokens, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(pairs,) the score of each pair of a query and a document, by their numbers."""
        pairs = joined(queries, query, self.documents, rows, self.encoder.tokenizer, self.encoder.longest)
        return encode(self.encoder, pairs, label="reranking")[:, 0]

    def scores_of(self, documents: Sequence[Document], queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """(queries,) the score of each query with one of these documents, by its number; they need not be its own."""
        other = replace(self, documents=self.document_tokens(documents))
        return other.scores(self.query_tokens(queries), np.arange(len(queries)), rows)

    def document_tokens(self, documents: Iterable[Document]) -> Tokens:
        """The tokens of documents."""
        length = self.encoder.at_most(self.document_length)
        return Tokens.of((document.full_text for document in documents), self.encoder.tokenizer, length)

    def query_tokens(self, queries: Sequence[str]) -> Tokens:
        """The tokens of queries; a document needs room behind them."""
        longest = self.encoder.longest // 2 if self.encoder.longest else self.query_length
        return Tokens.of(queries, self.encoder.tokenizer, min(self.query_length, longest))


@dataclass(frozen=True)
class RerankedEngine:
    """What finds candidates, and what orders them."""

    first: Engine
    reranker: Reranker
    depth: int  # candidates that are read again

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The candidates in their new order."""
        parts = [queries[low : low + QUERIES] for low in range(0, len(queries), QUERIES)]
        return [result for part in parts for result in self._search(store, part, k)]

    def _search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        results = self.first.search(store, queries, min(max(self.depth, k), len(store)))
        rows = [np.array([store.row(hit.id) for hit in result[: self.depth]], np.int64) for result in results]
        query = np.repeat(np.arange(len(queries)), [len(row) for row in rows])
        tokens = self.reranker.query_tokens(queries)
        scores = self.reranker.scores(tokens, query, np.concatenate([np.empty(0, np.int64), *rows]))
        split = np.split(scores, np.cumsum([len(row) for row in rows])[:-1])
        return [
            _reordered(result, result_scores.tolist(), k) for result, result_scores in zip(results, split, strict=True)
        ]

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """Who gave each score."""
        names = ("cross-encoder" if position < self.depth else "first stage's order" for position in range(len(result)))
        return tuple(((name, hit.score),) for name, hit in zip(names, result, strict=True))

    def panels(self, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
        """What there is to see of how the first stage found these hits."""
        depth = min(max(self.depth, k), len(store))
        [candidates] = self.first.search(store, [query], depth)
        return first_panels(self.first, FIRST, store, query, candidates, result, depth)

    def docid_tree(self) -> DocidTree | None:
        """The docids of the first stage, if it has some."""
        return docid_tree_of(self.first)

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With more documents in both stages."""
        more = self.reranker.documents.joined(self.reranker.document_tokens(documents))
        first = self.first.with_added(documents, store)
        return replace(self, first=first, reranker=replace(self.reranker, documents=more))

    def without(self, keep: np.ndarray) -> Self:
        """Without some rows of both."""
        return self._with(self.first.without(keep), keep)

    def among(self, keep: np.ndarray) -> Self:
        """With some rows of both, for searches alone."""
        return self._with(among(self.first, keep), keep)

    def _with(self, first: Engine, keep: np.ndarray) -> Self:
        left = self.reranker.documents.take(np.flatnonzero(keep))
        return replace(self, first=first, reranker=replace(self.reranker, documents=left))

    def stored(self) -> Stored:
        """Weights, tokens, and what the first stage holds."""
        tokens = document_tokens.stored(self.reranker.documents)
        parts: Stored = {"weights": [*weights_in(self.reranker.encoder)], "tokens": tokens}
        return {**parts, **inside(FIRST, self.first.stored())}

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed."""
        encoder = self.reranker.encoder
        tokens = document_tokens.products(self.reranker.documents, encoder.tokenizer.size, now, then)
        parts = {"weights": weight_products(weights_in(encoder)), "tokens": tokens}
        return {**parts, **inside(FIRST, self.first.products(now, then))}

    def made_from(self) -> dict[str, Any]:
        """The backbones of both stages, and how the training of the second went."""
        first = self.first.made_from()
        both = [first["weights"]] if "weights" in first else []
        return {"weights": "; ".join([*both, source_of(self.reranker.encoder)]), **self.reranker.trained}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put both stages into an artifact."""
        encoders.write(self.reranker.encoder, writer)
        document_tokens.write(self.reranker.documents, writer)
        return {FIRST: self.first.write(writer.inside(FIRST)), "trained": dict(self.reranker.trained)}


def read_reranker(snapshot: Snapshot, device: str, query_length: int, document_length: int) -> Reranker:
    """The cross-encoder of an artifact, with the tokens of its documents."""
    encoder = encoders.read(snapshot).to(device_of(device, opening=True))
    documents = document_tokens.read(snapshot, encoder.tokenizer.size)
    return Reranker(encoder, documents, query_length, document_length, require_table(snapshot.state, "trained"))


def _reordered(result: Result, scores: Sequence[float], k: int) -> Result:
    """The candidates that were read in their new order, and behind them the others as they stood."""
    read, unread = result[: len(scores)], result[len(scores) :]
    lowest = min(scores, default=0.0)
    tail = [Hit(hit.id, lowest - position) for position, hit in enumerate(unread, 1)]
    new = ranked(Hit(hit.id, score) for hit, score in zip(read, scores, strict=True))
    return Result((*new, *tail)[:k], note=result.note)


def joined(
    queries: Tokens,
    query: np.ndarray,
    documents: Tokens,
    rows: np.ndarray,
    tokenizer: TextTokenizer,
    longest: int | None,
) -> Tokens:
    """Each query with its document behind it, as one text; what is too long is cut but ends as texts do."""
    left, right = queries.take(query), documents.take(rows)
    begin = len(tokenizer.before)  # what stands before a text stands before the query alone
    room = (longest or 2**31) - left.lengths
    length = np.clip(right.lengths - begin, 0, np.maximum(room, 0))
    starts = starts_of(left.lengths + length)
    flat = np.empty(starts[-1], np.promote_types(left.flat.dtype, right.flat.dtype))
    flat[places(starts[:-1], left.lengths)] = left.flat
    flat[places(starts[:-1] + left.lengths, length)] = right.flat[places(right.starts[:-1] + begin, length)]
    for back, symbol in enumerate(reversed(tokenizer.after), 1):
        cut = (length < right.lengths - begin) & (length >= back)
        flat[starts[1:][cut] - back] = symbol
    return Tokens(flat, starts)
