"""Hits from scores by row, in the one order that all results have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np

from triever.arrays import best_rows
from triever.data.records import Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.engines.base import Engine

X = TypeVar("X")


def together(numbers: Sequence[np.ndarray], look_up: Callable[[np.ndarray], Sequence[X]]) -> list[list[X]]:
    """What is looked up for the numbers of each query, all at once: one by one takes longer than a search on a GPU.

    >>> together([np.array([2, 0]), np.array([1])], lambda places: np.array(["a", "b", "c"])[places].tolist())
    [['c', 'a'], ['b']]
    """
    values = iter(look_up(np.concatenate([np.empty(0, np.int64), *numbers])))
    return [[*islice(values, len(own))] for own in numbers]


def top_hits(scores: np.ndarray, ids: Sequence[str], k: int) -> tuple[Hit, ...]:
    """The k best of a score for every document (shape: documents) that are above zero, in the one order.

    Engines of other packages use it (docs/extending.md).
    """
    return ranked(Hit(ids[row], float(scores[row])) for row in best_rows(scores, k))[:k]


def results(scores: np.ndarray, rows: np.ndarray, ids: Sequence[str]) -> list[Result]:
    """Scores and rows (queries, k) as results; a row of -1 is no hit."""
    return [
        Result(ranked(Hit(ids[row], float(score)) for score, row in zip(*scores_and_rows, strict=True) if row >= 0))
        for scores_and_rows in zip(scores.tolist(), rows.tolist(), strict=True)
    ]


def found_by(engine: Engine, store: DocumentStore) -> Callable[[Sequence[str], int], list[list[int]]]:
    """What gives the rows of the documents that an engine finds: so many for each text."""

    def find(texts: Sequence[str], depth: int) -> list[list[int]]:
        return [[store.row(hit.id) for hit in result] for result in engine.search(store, texts, depth)]

    return find
