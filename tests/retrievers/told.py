"""A retriever that answers what it is told to, for tests of those that are made of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from triever import artifact
from triever.data.datasets import Dataset
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.engines.base import Parts
from triever.memory_parts import Products, Stored
from triever.retriever import Retriever

Answers = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class ToldEngine:
    """Answers as it is told."""

    answers: Answers

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        assert queries, "some retrievers cannot search for nothing"
        found = [self.answers.get(query, {}) for query in queries]
        return [Result(ranked(Hit(document, score) for document, score in one.items())[:k]) for one in found]

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        raise NotImplementedError

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> ToldEngine:
        raise NotImplementedError

    def without(self, keep: np.ndarray) -> ToldEngine:
        raise NotImplementedError

    def stored(self) -> Stored:
        return {}

    def products(self, now: int, then: int) -> dict[str, Products]:
        return {}

    def made_from(self) -> dict[str, Any]:
        return {}

    def write(self, writer: artifact.Writer) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(eq=False)
class Told(Retriever[ToldEngine]):
    """`Told({"a query": {"a document": 0.5}})`; a query that it was not told of finds nothing."""

    kind: ClassVar[str] = "told"

    answers: Answers = field(default_factory=dict)

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> ToldEngine:
        return ToldEngine(self.answers)

    def read(self, snapshot: artifact.Snapshot) -> ToldEngine:
        raise NotImplementedError
