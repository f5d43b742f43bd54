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
from triever.retrievers.base import Parts, Retriever
from triever.storage import Products, Stored


@dataclass(eq=False)
class Told(Retriever):
    """`Told({"a query": {"a document": 0.5}})`; a query that it was not told of finds nothing."""

    kind: ClassVar[str] = "told"

    answers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def _learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> None:
        return None

    def _search(self, engine: None, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        assert queries, "some retrievers cannot search for nothing"
        found = [self.answers.get(query, {}) for query in queries]
        return [Result(ranked(Hit(document, score) for document, score in one.items())[:k]) for one in found]

    def _with_added(self, engine: None, documents: Sequence[Document], store: DocumentStore) -> None:
        raise NotImplementedError

    def _without(self, engine: None, keep: np.ndarray) -> None:
        raise NotImplementedError

    def _explain(self, engine: None, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        raise NotImplementedError

    def _stored(self, engine: None) -> Stored:
        return {}

    def _computed(self, engine: None, now: int, then: int) -> dict[str, Products]:
        return {}

    def _write(self, engine: None, writer: artifact.Writer) -> dict[str, Any]:
        raise NotImplementedError

    def _read(self, snapshot: artifact.Snapshot) -> None:
        raise NotImplementedError
