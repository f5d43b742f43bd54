"""Hard negatives of the queries of views: judged ones, and those that were written for documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from triever.data.store import DocumentStore
from triever.models.tokens import Tokens
from triever.training.pairs import Negatives, Pairs, hard_negatives, written_pairs
from triever.training.views import Generated, Labelled, View

TOGETHER = 8192
"""Queries that are searched together: there may be millions, and each has many hits."""


@dataclass(frozen=True)
class JudgedQueries:
    """Queries with what is relevant to them, as texts and as tokens."""

    pairs: Pairs
    tokens: Tokens

    def __len__(self) -> int:
        return len(self.pairs)

    def take(self, queries: np.ndarray) -> JudgedQueries:
        """Some of them."""
        return JudgedQueries(self.pairs.take(queries), self.tokens.take(queries))


Find = Callable[[JudgedQueries], Sequence[Sequence[int]]]
"""From queries to the rows of the documents that are found first."""


def asked_in(
    views: Mapping[str, View], store: DocumentStore, *, generated: bool, questions: int = 0
) -> dict[str, JudgedQueries]:
    """The queries of each view that has any: those that are judged, and where wanted those that were written.

    `questions` is how many of each document's written ones a view has at most, 0 for all.
    """
    found = {name: JudgedQueries(view.pairs, view.tokens) for name, view in views.items() if isinstance(view, Labelled)}
    if generated:
        written = {name: view for name, view in views.items() if isinstance(view, Generated)}
        found |= {name: JudgedQueries(written_pairs(store, questions), view.tokens) for name, view in written.items()}
    return found


def mined(
    asked: Mapping[str, JudgedQueries], find: Find, negatives: Negatives, same: np.ndarray
) -> dict[str, np.ndarray]:
    """For each view (queries, depth) rows of hits that are not relevant, -1 where there are no more."""
    return {name: _mined(queries, find, negatives, same) for name, queries in asked.items()}


def _mined(asked: JudgedQueries, find: Find, negatives: Negatives, same: np.ndarray) -> np.ndarray:
    parts = [asked.take(some) for some in np.split(np.arange(len(asked)), range(TOGETHER, len(asked), TOGETHER))]
    found = (hard_negatives(find(part), part.pairs, negatives, same) for part in parts)
    return np.concatenate([rows.astype(np.int32) for rows in found])
