"""Mines hard negatives for the queries of views, both judged and generated ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from triever.data.store import DocumentStore
from triever.models.tokens import Tokens
from triever.training.pairs import Negatives, Pairs, hard_negatives, written_pairs
from triever.training.views import Generated, Labelled, View

TOGETHER = 8192
"""Queries that are searched together; there may be millions, each with many hits."""


@dataclass(frozen=True)
class JudgedQueries:
    """Queries with their relevant documents, and the tokens of the queries."""

    pairs: Pairs
    tokens: Tokens

    def __len__(self) -> int:
        return len(self.pairs)

    def take(self, queries: np.ndarray) -> JudgedQueries:
        """A part of the queries, by their numbers."""
        return JudgedQueries(self.pairs.take(queries), self.tokens.take(queries))


Find = Callable[[JudgedQueries], Sequence[Sequence[int]]]
"""From queries to the rows of the first hits of each."""


def asked_in(
    views: Mapping[str, View], store: DocumentStore, *, generated: bool, questions: int = 0
) -> dict[str, JudgedQueries]:
    """The queries of each view: judged ones, and generated ones if `generated`.

    `questions` is the maximum of generated queries for each document, 0 for all.
    """
    queries = {
        name: JudgedQueries(view.pairs, view.tokens) for name, view in views.items() if isinstance(view, Labelled)
    }
    if generated:
        written = {name: view for name, view in views.items() if isinstance(view, Generated)}
        queries |= {name: JudgedQueries(written_pairs(store, questions), view.tokens) for name, view in written.items()}
    return queries


def mined(
    asked: Mapping[str, JudgedQueries], find: Find, negatives: Negatives, same: np.ndarray
) -> dict[str, np.ndarray]:
    """For each view the (queries, depth) rows of hits that are not relevant, -1 behind the last."""
    return {name: _mined(queries, find, negatives, same) for name, queries in asked.items()}


def _mined(asked: JudgedQueries, find: Find, negatives: Negatives, same: np.ndarray) -> np.ndarray:
    numbers = np.split(np.arange(len(asked)), range(TOGETHER, len(asked), TOGETHER))
    parts = [asked.take(part) for part in numbers]
    negative_rows = (hard_negatives(find(part), part.pairs, negatives, same) for part in parts)
    return np.concatenate([rows.astype(np.int32) for rows in negative_rows])
