"""Any retriever with a model behind it that reads what was found and answers: a pipeline of two."""

from __future__ import annotations

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
from triever.retriever import Retriever
from triever.retrievers.bm25 import BM25
from triever.training.continuations import AnswerLoss
from triever.training.loop import Trained
from triever.training.reatt_loss import ReAttLoss
from triever.training.tuning import summary


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
        if training.marginal and not isinstance(first, DenseEngine):
            problem = f"training.marginal weighs documents by dense retrieval, and first is {self.first.kind}"
            raise UsageError(problem, "set first=dense")
        if not training.steps:
            return AnswererEngine(first, reader)
        lesson = self.lesson(dataset, store)
        first, trained = self._taught(reader, first, lesson, store, folder)
        engine = AnswererEngine(first, replace(reader, trained=summary(trained)))
        return self.with_threshold(engine, lesson[1], store)

    def new_reader(self, store: DocumentStore, seed: int) -> Reader[Any]:
        """A model that has learned nothing yet, and the tokens of documents."""
        reader = super().new_reader(store, seed)
        marginal = self.training.marginal and isinstance(reader, AnswerReader)
        return replace(reader, temperature=self.training.temperature) if marginal else reader

    def _check(self, reader: Reader[Any]) -> None:
        """Refuse what a causal model cannot do."""
        if not isinstance(reader, CausalReader):
            return
        if self.training.marginal:
            problem = "training.marginal is not there for a causal backbone, which reads all documents as one text"
            raise UsageError(problem, "leave training.marginal out, or set backbone=minilm")
        if problem := reader.texts.lacking(self.training.answer_length):
            raise UsageError(problem, "lower training.answer_length or shape.query_length")

    def _taught(
        self,
        reader: Reader[Any],
        first: Engine,
        lesson: tuple[AskedAnswers, AskedAnswers],
        store: DocumentStore,
        folder: Path | None,
    ) -> tuple[Engine, Trained]:
        """Teach a reader, in place; returned is what finds documents, since that may have learned too."""
        training, given = self.training, (*lesson, self.training, found_by(first, store))
        if isinstance(reader, CausalReader):
            causal = CausalCourse(reader, *given, device=self.device)
            return first, causal.run(AnswerLoss(training.at_once), folder)
        assert isinstance(reader, AnswerReader)
        course = ReadingCourse(reader, *given, device=self.device)
        if not training.marginal:
            return first, course.run(ReAttLoss(0.0, at_once=training.at_once), folder)
        assert isinstance(first, DenseEngine)
        marginal = MarginalCourse.of(course, first, training.temperature)
        trained = marginal.run(marginal.judging, folder, share=marginal.share(training.query_rate))
        return replace(first, asking=marginal.asking.eval()) if training.query_rate else first, trained

    def read(self, snapshot: artifact.Snapshot) -> AnswererEngine:
        """Both of an artifact."""
        read = causal_answers.read if causal_answers.is_in(snapshot) else read_reader
        reader = read(snapshot, self.device, self.shape.query_length, self.document_length)
        return AnswererEngine(self.first.read(snapshot.inside(FIRST)), reader)

    def tuned(self, engine: AnswererEngine, documents: Sequence[Document], store: DocumentStore) -> AnswererEngine:
        """With the first stage tuned on new documents, where it wants that."""
        return replace(engine, first=self.first.tuned(engine.first, documents, store))
