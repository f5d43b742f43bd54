"""Any retriever with a model behind it that reads what was found and answers: a pipeline of two."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from triever import artifact
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.engines import causal_answers
from triever.engines.answers import AnswererEngine, AnswerReader, read_reader
from triever.engines.base import Engine
from triever.engines.causal_answers import CausalReader
from triever.engines.encoded import DenseEngine
from triever.engines.hits import found_by
from triever.engines.readers import Reader
from triever.engines.reranked import FIRST
from triever.errors import UsageError
from triever.learning.answer_tasks import AskedAnswers
from triever.learning.answering import AnsweringRetriever, AnswerTuning, ReadingCourse
from triever.learning.causal_answering import CausalCourse
from triever.learning.marginal import MarginalCourse
from triever.models.backbones import Backbone
from triever.models.decoders import brings_decoder
from triever.retriever import Retriever
from triever.retrievers.bm25 import BM25
from triever.retrievers.dense import Dense
from triever.training.continuations import AnswerLoss
from triever.training.loop import Trained
from triever.training.rag_loss import RagLoss
from triever.training.reatt_loss import ReAttLoss
from triever.training.tuning import summary

NOTHING_LEARNED = (
    "this reader has learned nothing and answers at random: set training.steps, name a trained reatt or answerer "
    "to start from (start), or take a model that can write (backbone)"
)
OTHER_READING = (
    "the model of %s learned with %s, and here it reads with %s: set what it learned with, or train it for long enough"
)
_log = logging.getLogger("triever")


@dataclass(frozen=True)
class ReaderTuning(AnswerTuning):
    """How a reader behind another retriever learns: `ReaderTuning(steps=2000, marginal=True, query_rate=0.1)`."""

    marginal: bool = option(
        False,
        "read documents one by one, and weigh the answers by how probable dense retrieval finds each document (RAG)",
    )
    temperature: float = option(0.05, "what scores of dense retrieval are divided by, with marginal")
    query_rate: float = option(
        0.0, "with marginal, the share of the learning rate with which dense retrieval learns to read queries"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature <= 0 or not 0 <= self.query_rate <= 1:
            problem = f"a value is out of range: temperature = {self.temperature}, query_rate = {self.query_rate}"
            raise UsageError(problem, "set temperature above 0, and query_rate from 0 to 1")
        if self.query_rate and not self.marginal:
            raise UsageError("query_rate has no effect without marginal", "set training.marginal=true, or leave it out")

    @property
    def prior(self) -> float:
        """What scores of dense retrieval are divided by, or 0 where documents are read together."""
        return self.temperature if self.marginal else 0.0


@dataclass(eq=False)
class Answerer(AnsweringRetriever[AnswererEngine]):
    """A reader behind any retriever: `Answerer(first=BM25(), backbone="smollm2").fit(data).ask("who wrote it")`."""

    kind: ClassVar[str] = "answerer"
    search_only: ClassVar[tuple[str, ...]] = ("read_documents", "word_for_word", "known_from")

    first: Retriever[Any] = option(BM25(), "what finds documents: a system's name, or a table with its kind")
    training: ReaderTuning = option(ReaderTuning(), "how it learns to answer, from queries with answers")

    def __post_init__(self) -> None:
        if self.first is type(self).first:  # one object for all, and a retriever holds documents
            self.first = BM25()
        super().__post_init__()

    @property
    def members(self) -> tuple[Retriever[Any], ...]:
        """What finds documents, and what it starts from."""
        return (self.first, *self.started_from)

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> AnswererEngine:
        """Learn to find, then to answer from what is found."""
        reader = self.new_reader(store, self.training.seed)
        self._check(reader)
        first = self.first.engine_for(dataset, store, work / FIRST if work else None)
        training, folder = self.training, work / "training" if work else None
        if not training.steps:
            return AnswererEngine(first, reader)
        lesson = self.lesson(dataset, store)
        first, trained = self._taught(reader, first, lesson, store, folder)
        engine = AnswererEngine(first, replace(reader, trained=summary(trained)))
        return self.with_threshold(engine, lesson[1], store)

    def new_reader(self, store: DocumentStore, seed: int) -> Reader[Any]:
        """A model that has learned nothing yet, and the tokens of documents."""
        reader = super().new_reader(store, seed)
        prior = self.training.prior
        return replace(reader, temperature=prior) if prior and isinstance(reader, AnswerReader) else reader

    def going_on(self, reader: Reader[Any], begun: AnsweringRetriever[AnswererEngine]) -> Reader[Any]:
        """A reader with the model of a retriever that it starts from, and with what that knows besides."""
        reader, before = super().going_on(reader, begun), begun.engine.reader
        if not isinstance(reader, AnswerReader) or not isinstance(before, AnswerReader):
            return reader
        if before.temperature and not self.training.marginal and not self.training.steps:
            return replace(reader, temperature=before.temperature)
        if before.temperature != self.training.prior:
            words = map(_marginal, (before.temperature, self.training.prior))
            _log.warning(OTHER_READING, self.start_name, *words)
        return reader

    def tell_of_nothing_learned(self, backbone: Backbone) -> None:
        """Say that nothing but a training teaches a new decoder to write."""
        writes = backbone.causal or brings_decoder(backbone)
        if backbone.folder is None or not writes:
            _log.warning(NOTHING_LEARNED)

    def _check(self, reader: Reader[Any]) -> None:
        """Refuse what a model cannot do behind `first`, before that is trained."""
        if not isinstance(reader, CausalReader):
            self._check_weighing(reader)
            return
        if self.training.marginal:
            problem = "training.marginal is not there for a causal backbone, which reads all documents as one text"
            raise UsageError(problem, "leave training.marginal out, or set backbone=minilm")
        if problem := reader.texts.lacking(self.training.answer_length):
            raise UsageError(problem, "lower training.answer_length or shape.query_length")

    def _check_weighing(self, reader: Reader[Any]) -> None:
        """Refuse to weigh documents by what gives no vectors."""
        if isinstance(reader, AnswerReader) and reader.temperature and not isinstance(self.first, Dense):
            what = "training.marginal" if self.training.marginal else f"the model of {self.start_name}"
            problem = f"{what} weighs documents by dense retrieval, and first is {self.first.kind}"
            raise UsageError(problem, "set first=dense")

    def _taught(
        self,
        reader: Reader[Any],
        first: Engine,
        lesson: tuple[AskedAnswers, AskedAnswers],
        store: DocumentStore,
        folder: Path | None,
    ) -> tuple[Engine, Trained]:
        """Teach a reader, in place; returned is what finds documents, since that may have learned too."""
        close = found_by(first, store)
        training, given = self.training, (*lesson, self.training, close)
        self.tell_of_answers(reader, lesson[0], close, store)
        if isinstance(reader, CausalReader):
            causal = CausalCourse(reader, *given, device=self.device)
            return first, causal.run(AnswerLoss(training.at_once), folder)
        assert isinstance(reader, AnswerReader)
        course = ReadingCourse(reader, *given, device=self.device)
        if not training.marginal:
            return first, course.run(ReAttLoss(0.0, at_once=training.at_once), folder)
        assert isinstance(first, DenseEngine)
        marginal = MarginalCourse.of(course, first, training.temperature)
        loss = RagLoss(training.temperature, training.at_once)
        trained = marginal.run(loss, folder, share=marginal.share(training.query_rate))
        return replace(first, asking=marginal.asking.eval()) if training.query_rate else first, trained

    def read(self, snapshot: artifact.Snapshot) -> AnswererEngine:
        """Both of an artifact."""
        read = causal_answers.read if causal_answers.is_in(snapshot) else read_reader
        reader = read(snapshot, self.device, self.shape.query_length, self.document_length)
        return AnswererEngine(self.first.read(snapshot.inside(FIRST)), reader)

    def tuned(self, engine: AnswererEngine, documents: Sequence[Document], store: DocumentStore) -> AnswererEngine:
        """With the first stage tuned on new documents, where it wants that."""
        return replace(engine, first=self.first.tuned(engine.first, documents, store))


def _marginal(temperature: float) -> str:
    """How documents are read, as options say it."""
    return f"training.marginal=true and training.temperature={temperature:g}" if temperature else "no training.marginal"
