"""The hits of a run that some other system has written: found by the text of a question, and by nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np

from triever.artifact import Snapshot, Writer
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.engines.base import Parts
from triever.errors import UsageError
from triever.memory_parts import Product, Products, Stored, python_bytes
from triever.validation import require, require_array, require_finite, require_list, require_starts, require_within

Lacking = Literal["refuse", "nothing"]
"""What a question that a run lacks gets: an error, or no hits."""


@dataclass(frozen=True, eq=False)
class RunEngine:
    """Hits by question: those of question i are from starts[i] on, best first."""

    name: str
    texts: tuple[str, ...]
    starts: np.ndarray  # (questions + 1,)
    rows: np.ndarray  # (hits,) int64
    scores: np.ndarray  # (hits,) float64
    lacking: Lacking

    @classmethod
    def of(cls, name: str, hits: Mapping[str, Sequence[Hit]], store: DocumentStore, lacking: Lacking) -> RunEngine:
        """The hits of questions by their texts; all documents are in the store."""
        lengths = [len(each) for each in hits.values()]
        rows = np.array([store.row(hit.id) for each in hits.values() for hit in each], np.int64)
        scores = np.array([hit.score for each in hits.values() for hit in each], np.float64)
        starts = np.cumsum([0, *lengths]).astype(np.int64)
        return cls(name, tuple(hits), starts, rows, scores, lacking)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {text: number for number, text in enumerate(self.texts)}

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The first hits of each question that are still there."""
        return [self._result(store, query, k) for query in queries]

    def _result(self, store: DocumentStore, query: str, k: int) -> Result:
        number = self._number.get(query)
        if number is None:
            if self.lacking == "nothing":
                return Result(note=f"the run {self.name} lacks this question")
            problem = f"the run {self.name} has no hits for the question {query[:80]!r}"
            raise UsageError(problem, f"ask one of its {len(self.texts):,} questions, or set lacking=nothing")
        inside = slice(int(self.starts[number]), int(self.starts[number + 1]))
        pairs = zip(self.rows[inside].tolist(), self.scores[inside].tolist(), strict=True)
        return Result(ranked(Hit(store.ids[row], score) for row, score in pairs)[:k])

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """The score as the run has it."""
        return tuple(((self.name, hit.score),) for hit in result)

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With more documents, which the run does not have."""
        return self

    def without(self, keep: np.ndarray) -> Self:
        """Without some of its rows."""
        left = keep[self.rows]
        questions = np.repeat(np.arange(len(self.texts)), np.diff(self.starts))[left]
        starts = np.cumsum([0, *np.bincount(questions, minlength=len(self.texts))]).astype(np.int64)
        rows = (np.cumsum(keep) - 1)[self.rows[left]]
        return replace(self, starts=starts, rows=rows, scores=self.scores[left])

    def stored(self) -> Stored:
        """Hits and questions."""
        return {"questions": [self.starts, self.rows, self.scores, python_bytes(list(self.texts))]}

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed: more documents are in no more hits."""
        parts = [
            Product(len(self.rows), "hits", 16, "row and score, 8 each"),
            Product(len(self.texts) + 1, "beginnings", 8),
            Product(1, "texts of questions", python_bytes(list(self.texts))),
        ]
        return {"questions": parts}

    def made_from(self) -> dict[str, Any]:
        """Which run it is, and of how many questions."""
        return {"run": self.name, "questions of the run": len(self.texts)}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact."""
        for role, array in (("starts", self.starts), ("rows", self.rows), ("scores", self.scores)):
            writer.array(f"run_{role}", array)
        return {"run": self.name, "questions": [*self.texts]}


def read(snapshot: Snapshot, lacking: Lacking) -> RunEngine:
    """The engine of an artifact."""
    texts = require_list(snapshot.state, "questions")
    require(all(isinstance(text, str) for text in texts), "its questions are no texts")
    require(len(set(texts)) == len(texts), "one of its questions is there twice")
    name = snapshot.state.get("run")
    require(isinstance(name, str), "its run has no name")
    rows = require_array(snapshot.array("run_rows"), "run_rows", ("int64",), (None,))
    require_within(rows, "run_rows", 0, snapshot.rows)
    scores = require_array(snapshot.array("run_scores"), "run_scores", ("float64",), (len(rows),))
    require_finite(scores, "run_scores")
    starts = require_starts(snapshot.array("run_starts"), "run_starts", len(texts), len(rows))
    return RunEngine(str(name), tuple(texts), starts, rows, scores, lacking)
