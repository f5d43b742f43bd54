"""Documents found by the attention of a model that also reads them: the keys of one head, for every token."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from triever.artifact import Snapshot, Writer
from triever.data.records import Document, Result
from triever.data.store import DocumentStore
from triever.disk_arrays import room
from triever.engines.base import Parts
from triever.engines.encoded import named, nearest_documents, token_matches
from triever.engines.hits import results
from triever.engines.panels import Panel
from triever.errors import UsageError
from triever.index.sharded import ShardedTokens
from triever.index.token_vectors import TokenIndex, token_products
from triever.memory_parts import Products, Stored, scaled
from triever.models.encoder import BATCH_TOKENS
from triever.models.precision import computing_fast
from triever.models.reatt import ReAttModel
from triever.models.tokens import Tokens, by_length
from triever.progress import track
from triever.validation import require

Matches: TypeAlias = tuple[tuple[str, str, float], ...]
"""Tokens of a query, the token of a document that each attends to most, and how much."""
AT_ONCE = {**BATCH_TOKENS, "cuda": 131_072}
"""Tokens that are read at once."""
LARGEST = float(np.finfo(np.float16).max)
"""Keys are kept in two bytes, which hold no larger number."""
DIVERGED = "lower training.learning_rate, remove the work folder, and fit again"
SHORTER = "document_length = %s, but only %s tokens of a document are read: the backbone %s has no place for more"
_log = logging.getLogger("triever")


@dataclass(frozen=True)
class ReadTexts:
    """How much of questions and documents a model reads: `ReadTexts(model, 64, 256)`."""

    model: ReAttModel
    query_length: int
    document_length: int

    @property
    def most_of_document(self) -> int:
        """How many tokens of a document are read at most: the backbone may have places for fewer than wanted."""
        longest = self.model.encoder.longest_document
        return min(self.document_length, longest or self.document_length)

    def read_part(self, text: str) -> str:
        """What is read of the text of a document: its beginning, or all of it."""
        tokenizer = self.model.tokenizer
        return tokenizer.cut([text], self.most_of_document - len(tokenizer.before) - len(tokenizer.after))[0]

    def documents(self, documents: Iterable[Document]) -> Tokens:
        """The tokens of documents."""
        most = self.most_of_document
        if most < self.document_length:
            _log.warning(SHORTER, self.document_length, most, self.model.backbone.name)
        texts = (document.full_text for document in documents)
        return Tokens.of(texts, self.model.tokenizer, most)

    def questions(self, questions: Iterable[str]) -> Tokens:
        """The tokens of questions."""
        return Tokens.of(questions, self.model.tokenizer, self.query_length)

    def keys(self, documents: Tokens, folder: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
        """What documents' tokens are found by, (all tokens, head_size) float16, and where each document begins."""
        return self._vectors(documents, self.model.document_keys, "reading documents", folder)

    def asking(self, questions: Tokens) -> tuple[np.ndarray, np.ndarray]:
        """What questions' tokens search with, and where each question begins."""
        return self._vectors(questions, self.model.query_vectors, "reading questions")

    @torch.inference_mode()
    def _vectors(
        self, tokens: Tokens, read: Callable[[Tensor, Tensor], Tensor], label: str, folder: Path | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        model, device = self.model, self.model.device
        out = room((len(tokens.flat), model.encoder.head_size), np.float16, folder)
        batches = by_length(tokens.lengths, tokens=AT_ONCE.get(device.type, AT_ONCE["cpu"]))
        was_training = model.training
        model.eval()
        with computing_fast(device):
            for rows in track(batches, label, len(tokens), unit="texts", size=len):
                ids, mask = tokens.padded(rows, model.tokenizer.pad)
                vectors = read(ids.to(device), mask.to(device)).float().cpu().numpy()
                is_there = mask.numpy().astype(bool)
                if not (np.abs(vectors[is_there]) < LARGEST).all():  # not so for nan either
                    raise UsageError(f"{label} gave numbers that are too large, so the model has diverged", DIVERGED)
                places = tokens.starts[rows][:, None] + np.arange(is_there.shape[1])
                out[places[is_there]] = vectors[is_there]
        model.train(was_training)
        return out, tokens.starts


@dataclass(frozen=True)
class AttentionEngine:
    """A model, and an index of the keys of its retrieval head; what holds it holds the model too, and writes that."""

    texts: ReadTexts
    index: TokenIndex | ShardedTokens

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The documents whose tokens the question attends to most: for each of its tokens the best, averaged."""
        return results(*nearest_documents(self.index, *self.vectors(queries), k), store.ids)

    def vectors(self, queries: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """What the tokens of queries search with, end to end, and where each query begins."""
        return self.texts.asking(self.texts.questions(queries))

    def read_ahead(self, queries: Sequence[str]) -> Callable[[int], object]:
        """Read queries; what is returned finds so many documents for each."""
        vectors = self.vectors(queries)
        return lambda k: nearest_documents(self.index, *vectors, k)

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """For each token of the query, how much attention the best token of the document gets."""
        pieces = self.pieces(query)
        flat, _ = self.vectors([query])
        scores = [self.index.matches(flat, store.row(hit.id))[1] for hit in result]
        return tuple(named(pieces, (np.asarray(of_tokens) / len(pieces)).tolist()) for of_tokens in scores)

    def panels(self, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
        """For each token of the query the token of each document that it attends to most."""
        flat, _ = self.vectors([query])
        return (token_matches(self.index, self.pieces(query), flat, store, result, self._words),)

    def _words(self, document: Document) -> list[str]:
        """The tokens of a document as they are written."""
        return self.texts.model.tokenizer.shown(self.texts.documents([document])[0].tolist())

    def pieces(self, query: str) -> list[str]:
        """The tokens of a query as they are written."""
        return self.texts.model.tokenizer.shown(self.texts.questions([query])[0].tolist())

    def attended(self, query: str, documents: Sequence[tuple[int, np.ndarray]]) -> list[Matches]:
        """For each token of a query the token that it attends to most in each document, given by row and tokens."""
        asked, (flat, _) = self.pieces(query), self.vectors([query])
        matches = []
        for row, tokens in documents:
            places, scores = self.index.matches(flat, row)
            pieces = self.texts.model.tokenizer.shown(tokens.tolist())
            found = [pieces[place] if place >= 0 else "" for place in places.tolist()]
            matches.append(tuple(zip(asked, found, scores.tolist(), strict=True)))
        return matches

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With the keys of more documents."""
        return replace(self, index=self.index.with_added(*self.texts.keys(self.texts.documents(documents))))

    def without(self, keep: np.ndarray) -> Self:
        """Without some of its rows."""
        return replace(self, index=self.index.without(keep))

    def among(self, keep: np.ndarray) -> Self:
        """With some of its rows, for searches alone."""
        return replace(self, index=self.index.among(keep))

    def stored(self) -> Stored:
        """The keys; the model is counted by what reads."""
        return self.index.stored()

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed."""
        documents, tokens = (scaled(count, now, then) for count in self.index.built_from)
        return token_products(documents, tokens, self.index.width, self.index.options)

    def made_from(self) -> dict[str, Any]:
        """How many layers read apart, and which head behind them finds documents."""
        model, encoder = self.texts.model, self.texts.model.encoder
        split = {"layers apart": f"{encoder.apart} of {len(encoder.layers)}"}
        return {**split, "retrieval head": f"{model.retrieval_head} of {encoder.heads}"}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put the keys into an artifact."""
        self.index.write(writer)
        return {}


def read(snapshot: Snapshot, texts: ReadTexts) -> AttentionEngine:
    """The keys of an artifact, beside their model."""
    opened = ShardedTokens.opened if snapshot.shards else TokenIndex.read
    index = opened(snapshot, device=str(texts.model.device))
    require(len(index) == snapshot.rows, f"its index has {len(index)} documents")
    size = texts.model.encoder.head_size
    require(index.width == size, f"its keys have {index.width} numbers, not {size}")
    return AttentionEngine(texts, index)
