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
from triever.engines.base import Engine
from triever.engines.reranked import FIRST
from triever.learning.answering import AnsweringRetriever, AnswerTuning, Close, ReadingCourse
from triever.retriever import Retriever
from triever.retrievers.bm25 import BM25
from triever.training.reatt_loss import ReAttLoss
from triever.training.tuning import summary


@dataclass(eq=False)
class Answerer(AnsweringRetriever[AnswererEngine]):
    """A reader behind any retriever: `Answerer(first=BM25(), training=AnswerTuning(steps=2000)).fit(data)`."""

    kind: ClassVar[str] = "answerer"
    search_only: ClassVar[tuple[str, ...]] = ("read_documents",)

    first: Retriever[Any] = option(BM25(), "what finds documents: a system's name, or a table with its kind")
    training: AnswerTuning = option(AnswerTuning(), "how it learns to answer, from queries with answers")

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
        if not self.training.steps:
            return AnswererEngine(first, reader)
        learned, judged = self.lesson(dataset, store)
        course = ReadingCourse(reader, learned, judged, self.training, found_by(first, store), device=self.device)
        trained = course.run(ReAttLoss(0.0, at_once=self.training.at_once), work / "training" if work else None)
        engine = AnswererEngine(first, replace(reader, trained=summary(trained)))
        return self.with_threshold(engine, judged, store)

    def read(self, snapshot: artifact.Snapshot) -> AnswererEngine:
        """Both of an artifact."""
        reader = read_reader(snapshot, self.device, self.shape.query_length, self.document_length)
        return AnswererEngine(self.first.read(snapshot.inside(FIRST)), reader)

    def tuned(self, engine: AnswererEngine, documents: Sequence[Document], store: DocumentStore) -> AnswererEngine:
        """With the first stage tuned on new documents, where it wants that."""
        return replace(engine, first=self.first.tuned(engine.first, documents, store))


def found_by(engine: Engine, store: DocumentStore) -> Close:
    """What gives the rows of documents that an engine finds."""

    def find(texts: Sequence[str], depth: int) -> list[list[int]]:
        return [[store.row(hit.id) for hit in result] for result in engine.search(store, texts, depth)]

    return find
