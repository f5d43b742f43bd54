"""Answers written from the documents that any engine finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from triever.artifact import Snapshot, Writer
from triever.data.records import Document, Result
from triever.data.store import DocumentStore
from triever.engines import document_tokens
from triever.engines.attention import ReadTexts
from triever.engines.base import Engine, Parts, among, docid_tree_of
from triever.engines.panels import Panel, panels_of
from triever.engines.readers import AT_ONCE, NOTHING, Reader, Written
from triever.engines.reranked import FIRST
from triever.memory_parts import Products, Stored, inside
from triever.models import reatt_files
from triever.models.encoder import source_of
from triever.models.precision import computing_fast, device_of
from triever.models.reatt import Answers, PairStates
from triever.models.tokens import Tokens
from triever.progress import track
from triever.training.tuning import is_about_training
from triever.validation import require, require_numbers, require_table

if TYPE_CHECKING:
    from triever.engines.docid_tree import DocidTree

NUMBERS = ("known_from", "temperature")
"""What an artifact has of a reader besides its model."""


@dataclass(frozen=True)
class AnswerReader(Reader[ReadTexts]):
    """An encoder and decoder that answer, and the tokens of the documents that they read."""

    temperature: float = 0.0  # above 0 documents are read one by one, and weighted by their scores divided by this

    @property
    def shared(self) -> str:
        """What documents have a share of: where each is read alone, the weight that their answers are summed with."""
        return "weight" if self.temperature else super().shared

    def answers(
        self,
        questions: Sequence[str],
        rows: Sequence[Sequence[int]],
        scores: Sequence[Sequence[float]],
        word_for_word: bool | None = None,
    ) -> list[Written]:
        """For each question the answer that is written from the documents in its rows, which have these scores.

        With `word_for_word` it stands in one of them; not set, that is so where the model copies.
        """
        literal = self.texts.model.copying is not None if word_for_word is None else word_for_word
        written = [NOTHING for _ in questions]
        with_rows = [number for number in range(len(questions)) if len(rows[number])]
        if not with_rows:
            return written
        asked = self.texts.questions(questions)
        batches = [*self._batches(with_rows, rows)]
        for numbers in track(batches, "answering", len(with_rows), unit="questions", size=len):
            for number, answer in zip(numbers, self._read(asked, numbers, rows, scores, literal), strict=True):
                written[number] = answer
        return written

    def _batches(self, numbers: Sequence[int], rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Questions by how many documents they have, so that few places are left empty, some at a time."""
        batch: list[int] = []
        for number in sorted(numbers, key=lambda number: len(rows[number])):
            if batch and (len(batch) + 1) * len(rows[number]) * self._length > self._limit:
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch

    @torch.inference_mode()
    def _read(
        self,
        asked: Tokens,
        numbers: Sequence[int],
        rows: Sequence[Sequence[int]],
        scores: Sequence[Sequence[float]],
        word_for_word: bool,
    ) -> list[Written]:
        model, device = self.texts.model, self.texts.model.device
        most = max(len(rows[number]) for number in numbers)
        chosen = np.array([[*rows[number], *[-1] * (most - len(rows[number]))] for number in numbers], np.int64)
        ids, mask = (part.to(device) for part in asked.padded(numbers, model.tokenizer.pad))
        with computing_fast(device):
            pairs = self._pairs(ids, mask, chosen)
            if self.temperature:
                apart = model.generate(model.read(pairs.apart()), word_for_word=word_for_word)
                return [*self._weighed(apart, numbers, scores, most)]
            read = model.read(pairs)
            shares = model.document_attention(read, most).cpu().tolist()
            answers = model.generate(read, word_for_word=word_for_word)
        return [
            Written(tokens, logprob, tuple(share[: len(rows[number])]))
            for number, tokens, logprob, share in zip(
                numbers, answers.tokens, answers.logprobs.tolist(), shares, strict=True
            )
        ]

    def _pairs(self, ids: torch.Tensor, mask: torch.Tensor, chosen: np.ndarray) -> PairStates:
        """Questions, each read together with its chosen documents (questions, documents), as many as fit at once."""
        model, questions = self.texts.model, self.texts.model.query_states(ids, mask)
        most = max(1, self._limit // (len(chosen) * self._length))
        pieces = []
        for start in range(0, chosen.shape[1], most):
            piece = chosen[:, start : start + most]
            pair = self.documents.padded(np.maximum(piece, 0).ravel(), model.tokenizer.pad)
            document_ids, document_mask = (part.to(model.device) for part in pair)
            document_mask = document_mask * torch.from_numpy(piece.ravel() >= 0).to(model.device)[:, None]
            states = model.document_states(document_ids, document_mask)
            held, there, tokens = (part.unflatten(0, piece.shape) for part in (states, document_mask, document_ids))
            pieces.append(model.encode_pairs(questions, mask, held, there, (ids, tokens)))
        return PairStates.joined(pieces)

    @property
    def _limit(self) -> int:
        """How many tokens are read at once."""
        return AT_ONCE.get(self.texts.model.device.type, AT_ONCE["cpu"])

    @property
    def _length(self) -> int:
        """How many tokens a question and a document have at most."""
        return self.texts.query_length + self.texts.most_of_document

    def _weighed(
        self, answers: Answers, numbers: Sequence[int], scores: Sequence[Sequence[float]], most: int
    ) -> Iterator[Written]:
        """For each question the answer that is likeliest over all documents, each of which was read alone."""
        logprobs = answers.logprobs.double().cpu().numpy()
        for place, number in enumerate(numbers):
            prior = np.asarray(scores[number]) / self.temperature
            prior = prior - np.logaddexp.reduce(prior)
            first = place * most
            total: dict[tuple[int, ...], float] = {}
            for at, weight in enumerate(prior.tolist()):
                tokens = tuple(answers.tokens[first + at])
                total[tokens] = float(np.logaddexp(total.get(tokens, -np.inf), weight + logprobs[first + at]))
            best = max(total, key=lambda tokens: total[tokens])
            yield Written([*best], min(total[best], 0.0), tuple(np.exp(prior).tolist()))

    def write_model(self, writer: Writer) -> None:
        """Put the model into an artifact."""
        reatt_files.write(self.texts.model, writer)

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact, and give back the state that is not a file."""
        return {**super().write(writer), "temperature": self.temperature}


@dataclass(frozen=True)
class AnswererEngine:
    """What finds documents, and what answers from them."""

    first: Engine
    reader: Reader[Any]

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """What the first stage finds."""
        return self.first.search(store, queries, k)

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """What the first stage says of its scores."""
        return self.first.explain(store, query, result)

    def panels(self, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
        """What there is to see of the first stage's search."""
        return panels_of(self.first, store, query, result, k)

    def docid_tree(self) -> DocidTree | None:
        """The docids of the first stage, if it has some."""
        return docid_tree_of(self.first)

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With more documents in both."""
        first = self.first.with_added(documents, store)
        return replace(self, first=first, reader=self.reader.with_added(documents))

    def without(self, keep: np.ndarray) -> Self:
        """Without some rows of both."""
        return replace(self, first=self.first.without(keep), reader=self.reader.keeping(keep))

    def among(self, keep: np.ndarray) -> Self:
        """With some rows of both, for searches alone."""
        return replace(self, first=among(self.first, keep), reader=self.reader.keeping(keep))

    def stored(self) -> Stored:
        """Weights, tokens, and what the first stage holds."""
        return {**self.reader.stored(), **inside(FIRST, self.first.stored())}

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed."""
        return {**self.reader.products(now, then), **inside(FIRST, self.first.products(now, then))}

    def made_from(self) -> dict[str, Any]:
        """The backbones of both, and how the training of the second went."""
        first = {name: value for name, value in self.first.made_from().items() if not is_about_training(name)}
        own = source_of(self.reader.texts.model)
        weights = [first.pop("weights"), own] if "weights" in first else [own]
        known = {"answers known from": self.reader.known}
        return {"weights": "; ".join(dict.fromkeys(weights)), **first, **self.reader.trained, **known}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put both into an artifact."""
        own = self.reader.write(writer)
        return {FIRST: self.first.write(writer.inside(FIRST)), **own}


def read_reader(snapshot: Snapshot, device: str, query_length: int, document_length: int) -> AnswerReader:
    """The model of an artifact that answers, with the tokens of its documents."""
    model = reatt_files.read(snapshot).to(device_of(device, opening=True))
    texts = ReadTexts(model, query_length, document_length)
    known_from, temperature = require_numbers(
        [snapshot.state.get(name, 0.0) for name in NUMBERS], "state", len(NUMBERS)
    )
    require(temperature >= 0, "its temperature is negative")
    documents = document_tokens.read(snapshot, model.tokenizer.size)
    trained = require_table(snapshot.state, "trained")
    return AnswerReader(texts, documents, known_from, trained, temperature)
