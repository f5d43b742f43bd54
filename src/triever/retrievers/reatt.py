"""Retrieval as attention: one transformer finds documents by its own attention, reads them, and answers.

All of it is learned from questions and answers; nobody says which documents are relevant.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from triever import artifact
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.engines import attention
from triever.engines.answers import AnswererEngine, AnswerReader, read_reader
from triever.engines.attention import AttentionEngine
from triever.engines.encoded import exact_options
from triever.engines.hits import found_by
from triever.engines.readers import Reader
from triever.engines.reranked import FIRST
from triever.errors import UsageError
from triever.index.token_vectors import TokenIndex, TokenOptions
from triever.learning.answering import AnsweringRetriever, AnswerTuning, ReadingCourse
from triever.models.backbones import Backbone
from triever.models.language_model import LanguageModel
from triever.models.reatt import ReAttModel
from triever.retriever import Retriever
from triever.retrievers.bm25 import BM25
from triever.training.reatt_loss import ReAttLoss
from triever.training.tuning import summary

NOT_FOUND_BY = "is a causal model, whose attention cannot find documents"
INSTEAD = "put it behind another retriever: triever fit answerer"
NOTHING_LEARNED = (
    "this model has learned nothing, and finds and answers at random: set training.steps, or name a trained reatt to "
    "start from (start)"
)
NOT_LEARNED_TO_FIND = (
    "the attention of %s has not learned to find documents, because it is an %s: set training.steps, or put it behind "
    "another retriever: triever fit answerer"
)
_log = logging.getLogger("triever")


@dataclass(frozen=True)
class ReAttTuning(AnswerTuning):
    """How a model learns to answer and to find: `ReAttTuning(answer_steps=1000, steps=3000, rounds=3)`."""

    answer_steps: int = option(1000, "steps before the others that learn from answers alone")
    steps: int = option(1500, "optimizer steps; 0 leaves the model as it comes")
    rounds: int = option(3, "rounds that the steps are split into; close documents are found anew before each but one")
    alpha: float = option(8.0, "how much finding counts beside answering; 0 learns from answers alone")
    in_batch: bool = option(True, "whether close documents of other questions are learned not to be found")
    renew: bool = option(True, "find close documents by the model itself, before every round but the first")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least("answer_steps", 0)
        if self.alpha < 0:
            raise UsageError(f"alpha = {self.alpha} should not be negative", "the paper has 8")


@dataclass(eq=False)
class ReAtt(AnsweringRetriever[AnswererEngine]):
    """Retrieval as attention: `ReAtt(training=ReAttTuning(steps=3000)).fit(data).ask("who wrote it")`."""

    kind: ClassVar[str] = "reatt"
    gives_probabilities: ClassVar[bool] = False
    search_only: ClassVar[tuple[str, ...]] = ("read_documents", "word_for_word", "known_from")

    index: TokenOptions = option(TokenOptions(score="avgmax"), "how keys are kept and searched")
    close_by: Retriever[Any] = option(BM25(), "what finds the close documents of the first round")
    training: ReAttTuning = option(ReAttTuning(), "how it learns, from queries with answers")

    def __post_init__(self) -> None:
        if self.close_by is type(self).close_by:  # one object for all, and a retriever holds documents
            self.close_by = BM25()
        super().__post_init__()
        if self.index.score != "avgmax":
            raise UsageError(f"index.score = {self.index.score!r}, but attention is averaged", "leave it out")

    @property
    def members(self) -> tuple[Retriever[Any], ...]:
        """What finds the close documents of the first round, where it is trained, and what it starts from."""
        close_by = (self.close_by,) if self.training.steps or self.training.answer_steps else ()
        return (*close_by, *self.started_from)

    @property
    def tuning(self) -> ReAttTuning | None:
        """How it is trained, if it is."""
        return self.training if self.training.steps or self.training.answer_steps else None

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> AnswererEngine:
        """Learn to answer, then to answer and to find, and keep the keys of all documents."""
        reader = self.new_reader(store, self.training.seed)
        if self.tuning is None:
            return self._indexed(reader, work)
        learned, judged = self.lesson(dataset, store)
        close = found_by(self.close_by.engine_for(dataset, store, work / FIRST if work else None), store)
        self.tell_of_answers(reader, learned, close, store)
        exact = exact_options(self.index)

        def renewed(texts: Sequence[str], depth: int) -> list[list[int]]:
            return found_by(self._attending(reader, exact, work), store)(texts, depth)

        course = ReadingCourse(reader, learned, judged, self.training, close, device=self.device)
        told: dict[str, float] = {}
        if steps := self.training.answer_steps:
            first = replace(course, options=replace(self.training, steps=steps, rounds=1))
            trained = first.run(
                ReAttLoss(0.0, at_once=self.training.at_once), work / "answers" if work else None, "learning to answer"
            )
            told = {f"answers alone: {name}": value for name, value in summary(trained).items()}
        if self.training.steps:
            training = self.training
            loss = ReAttLoss(training.alpha, training.in_batch, training.at_once)
            second = replace(course, renewed=renewed if training.renew else None, stage=1)
            told |= summary(second.run(loss, work / "training" if work else None))
        return self.with_threshold(self._indexed(replace(reader, trained=told), work), judged, store)

    def new_model(self, backbone: Backbone, seed: int) -> ReAttModel | LanguageModel:
        """A model that starts from a backbone, which may not be causal."""
        if backbone.causal:
            raise UsageError(f"{backbone.name} {NOT_FOUND_BY}", INSTEAD)
        return super().new_model(backbone, seed)

    def new_reader(self, store: DocumentStore, seed: int) -> AnswerReader:
        """A model that has learned nothing yet, and the tokens of documents."""
        reader = super().new_reader(store, seed)
        assert isinstance(reader, AnswerReader)
        return reader

    def going_on(self, reader: Reader[Any], begun: AnsweringRetriever[AnswererEngine]) -> Reader[Any]:
        """A reader with the model of a retriever that it starts from, and with what that knows besides."""
        if not isinstance(reader, AnswerReader):
            raise UsageError(f"the model of {self.start_name} {NOT_FOUND_BY}", INSTEAD)
        if self.tuning is None and not isinstance(begun, ReAtt):
            _log.warning(NOT_LEARNED_TO_FIND, self.start_name, begun.kind)
        return super().going_on(reader, begun)

    def tell_of_nothing_learned(self, backbone: Backbone) -> None:
        """Say that nothing but a training teaches attention to find."""
        _log.warning(NOTHING_LEARNED)

    def _indexed(self, reader: AnswerReader, work: Path | None) -> AnswererEngine:
        return AnswererEngine(self._attending(reader, self.index, work), reader)

    def _attending(self, reader: AnswerReader, options: TokenOptions, work: Path | None) -> AttentionEngine:
        """What finds documents by the model as it is now."""
        placed = replace(options, device=str(reader.texts.model.device))
        return AttentionEngine(reader.texts, TokenIndex.of(*reader.texts.keys(reader.documents, work), placed))

    def reindexed(self, **options: Any) -> ReAtt:
        """The same documents and model with another index: `reatt.reindexed(bits=2)`."""
        held = self._checked()
        other = replace(self, index=replace(self.index, **options))
        first = held.engine.first
        assert isinstance(first, AttentionEngine)
        index = first.index.rebuilt(replace(other.index, device=str(first.texts.model.device)))
        return other.holding(replace(held, engine=replace(held.engine, first=replace(first, index=index))))

    def read(self, snapshot: artifact.Snapshot) -> AnswererEngine:
        """The model, the tokens and the keys of an artifact."""
        reader = read_reader(snapshot, self.device, self.shape.query_length, self.document_length)
        return AnswererEngine(attention.read(snapshot.inside(FIRST), reader.texts), reader)
