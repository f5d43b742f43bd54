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
from triever.engines.answers import AnswererEngine, read_reader
from triever.engines.encoded import DenseEngine
from triever.engines.hits import found_by
from triever.engines.reranked import FIRST
from triever.errors import UsageError
from triever.learning.answering import AnsweringRetriever, AnswerTuning, ReadingCourse
from triever.learning.marginal import MarginalCourse
from triever.retriever import Retriever
from triever.retrievers.bm25 import BM25
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
    """A reader behind any retriever: `Answerer(first=BM25(), training=ReaderTuning(steps=2000)).fit(data)`."""

    kind: ClassVar[str] = "answerer"
    search_only: ClassVar[tuple[str, ...]] = ("read_documents", "word_for_word")

    first: Retriever[Any] = option(BM25(), "what finds documents: a system's name, or a table with its kind")
    training: ReaderTuning = option(ReaderTuning(), "how it learns to answer, from queries with answers")

    def __post_init__(self) -> None:
        if self.first is type(self).first:  # one object for all, and a retriever holds documents
            self.first = BM25()
        super().__post_init__()

    @property
    def members(self) -> tuple[Retriever[Any], ...]:
        """What finds documents."""
        return (self.first,)

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> AnswererEngine:
        """Learn to find, then to answer from what is found."""
        reader = self.new_reader(store, self.training.seed)
        first = self.first.engine_for(dataset, store, work / FIRST if work else None)
        training, folder = self.training, work / "training" if work else None
        if training.marginal and not isinstance(first, DenseEngine):
            problem = f"training.marginal weighs documents by dense retrieval, and first is {self.first.kind}"
            raise UsageError(problem, "set first=dense")
        if training.marginal:
            reader = replace(reader, temperature=training.temperature)
        if not training.steps:
            return AnswererEngine(first, reader)
        learned, judged = self.lesson(dataset, store)
        course = ReadingCourse(reader, learned, judged, training, found_by(first, store), device=self.device)
        if training.marginal and isinstance(first, DenseEngine):
            marginal = MarginalCourse.of(course, first, training.temperature)
            trained = marginal.run(marginal.judging, folder, share=marginal.share(training.query_rate))
            first = replace(first, asking=marginal.asking.eval()) if training.query_rate else first
        else:
            trained = course.run(ReAttLoss(0.0, at_once=training.at_once), folder)
        engine = AnswererEngine(first, replace(reader, trained=summary(trained)))
        return self.with_threshold(engine, judged, store)

    def read(self, snapshot: artifact.Snapshot) -> AnswererEngine:
        """Both of an artifact."""
        reader = read_reader(snapshot, self.device, self.shape.query_length, self.document_length)
        return AnswererEngine(self.first.read(snapshot.inside(FIRST)), reader)

    def tuned(self, engine: AnswererEngine, documents: Sequence[Document], store: DocumentStore) -> AnswererEngine:
        """With the first stage tuned on new documents, where it wants that."""
        return replace(engine, first=self.first.tuned(engine.first, documents, store))
