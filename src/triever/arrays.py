"""Rows of different lengths that lie end to end in one flat array, as tokens and docids do."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def places(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The positions of rows in a flat array, end to end: start, start + 1, ... for each row.

    >>> places(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)


def kth_greatest(values: np.ndarray, k: int) -> float:
    """The k-th greatest of values (n,), which those that tie with it reach too; -inf if there are no more than k.

    >>> kth_greatest(np.array([3.0, 1.0, 2.0]), 2)
    2.0
    """
    return float(np.partition(values, len(values) - k)[len(values) - k]) if len(values) > k else -np.inf


def best_rows(scores: np.ndarray, k: int) -> np.ndarray:
    """The rows of the k best scores (n,) above zero, and of all that tie with the last of them: ids decide among those.

    >>> best_rows(np.array([1.0, 0.0, 2.0, 1.0, 0.5]), 2).tolist()
    [0, 2, 3]
    """
    rows = np.flatnonzero(scores > 0)
    return rows[scores[rows] >= kth_greatest(scores[rows], k)]


def starts_of(lengths: ArrayLike) -> np.ndarray:
    """Where each row begins, and at the end the length of the flat array.

    >>> starts_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
