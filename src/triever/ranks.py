"""The reciprocal rank of a ranking: how early it has a right item."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def reciprocal_rank(is_right: ArrayLike) -> float:
    """One over the rank of the first right item; 0 if none is right. `is_right` (n,) is in the order of the ranking.

    >>> reciprocal_rank([False, True, True]), reciprocal_rank([])
    (0.5, 0.0)
    """
    right = np.flatnonzero(is_right)
    return 1 / (1 + int(right[0])) if len(right) else 0.0


def reciprocal_rank_by(scores: np.ndarray, is_right: np.ndarray, cutoff: int | None = None) -> float:
    """The same for scores (n,) in any order; wrong items that tie with the best right one come before it.

    >>> reciprocal_rank_by(np.array([0.5, 0.5, 0.1]), np.array([True, False, False]))
    0.5
    """
    if not is_right.any():
        return 0.0
    rank = 1 + int((scores[~is_right] >= scores[is_right].max()).sum())
    return 1 / rank if cutoff is None or rank <= cutoff else 0.0
