"""How sure a mean over queries is, and whether two systems differ: resampling only, no assumed shape.

All columns of a matrix are resampled together, so a whole report costs about as much as one number. A seed
fixes every result, and memory stays bounded however many queries there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from triever.errors import UsageError

CHUNK = 2**21  # drawn numbers held at once: 16 MB as doubles
EXACT = 12  # up to so many differences all 2^n sign patterns are tried
SLACK = 1e-12  # sums in another order differ in their last bits; that must not decide whether they tie


def bootstrap(values: np.ndarray, *, level: float = 0.95, samples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """The percentile interval of the mean of `values` over queries."""
    low, high = intervals(np.asarray(values, dtype=np.float64)[:, None], level=level, samples=samples, seed=seed)
    return float(low[0]), float(high[0])


def intervals(
    values: np.ndarray, *, level: float = 0.95, samples: int = 2000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """`bootstrap` for every column of (queries, columns): lower and upper bounds, (columns,) each."""
    _check(values, level)
    means = column_means(values)
    # Distances from the mean are resampled, so that rounding cannot give a constant column a width.
    drawn = _resampled(values - means, samples, seed)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return means + low, means + high


def column_means(values: np.ndarray) -> np.ndarray:
    """Means with exact sums, which no order of the queries can change: (queries, columns) -> (columns,)."""
    return np.array([math.fsum(column) / len(column) for column in values.T])


def randomisation_test(a: np.ndarray, b: np.ndarray, *, samples: int = 10_000, seed: int = 0) -> float:
    """Two-sided p value of the paired sign-flip test: how often chance alone tells two systems so far apart."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise UsageError("the systems were measured on different queries", "measure both on the same queries")
    return float(p_values((first - second)[:, None], samples=samples, seed=seed)[0])


def p_values(differences: np.ndarray, *, samples: int = 10_000, seed: int = 0) -> np.ndarray:
    """`randomisation_test` for every column of (queries, columns): (columns,)."""
    _check(differences)
    few = np.count_nonzero(differences, axis=0) <= EXACT
    values = np.empty(differences.shape[1])
    values[few] = [_exact(column[column != 0]) for column in differences.T[few]]
    if not few.all():
        values[~few] = _sampled(differences[:, ~few], samples, seed)
    return values


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction for several tests, in the order they were given."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected, floor = [0.0] * len(p_values), 0.0
    for step, index in enumerate(order):
        floor = max(floor, min(1.0, (len(p_values) - step) * p_values[index]))
        corrected[index] = floor
    return corrected


def _resampled(values: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """Means of resampled queries, (samples, columns)."""
    n = len(values)
    rng = np.random.default_rng(seed)
    parts = []
    for rows in _chunks(samples, n):
        drawn = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        parts.append(counts.astype(np.float64) @ values / n)
    return np.concatenate(parts)


def _exact(differences: np.ndarray) -> float:
    patterns = (np.arange(2 ** len(differences))[:, None] >> np.arange(len(differences))) & 1
    sums = (2 * patterns - 1) @ differences
    return float(np.mean(_as_far(sums, differences)))


def _sampled(differences: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """The observed signs count as one of the samples, so p is never zero."""
    n = len(differences)
    rng = np.random.default_rng(seed)
    far = np.zeros(differences.shape[1], dtype=np.int64)
    for rows in _chunks(samples, n):
        words = rng.integers(2**32, size=(rows, -(-n // 32)), dtype=np.uint32)  # bytes would waste what is left over
        bits = np.unpackbits(words.astype("<u4").view(np.uint8), axis=1, count=n)
        sums = (2.0 * bits - 1.0) @ differences
        far += np.count_nonzero(_as_far(sums, differences), axis=0)
    return (1 + far) / (1 + samples)


def _as_far(sums: np.ndarray, differences: np.ndarray) -> np.ndarray:
    """Which sums are at least as far from zero as the observed one."""
    observed, size = np.abs(differences.sum(axis=0)), np.abs(differences).sum(axis=0)
    return np.abs(sums) >= observed - SLACK * size


def _chunks(samples: int, width: int) -> Iterator[int]:
    """Numbers of rows that add up to `samples`, each with at most CHUNK entries."""
    rows = max(1, CHUNK // width)
    edges = [*range(0, samples, rows), samples]
    return (after - before for before, after in pairwise(edges))


def _check(values: np.ndarray, level: float = 0.5) -> None:
    if not len(values):
        raise UsageError("there are no values to test", "measure at least one query")
    if not np.isfinite(values).all():
        raise UsageError("a value to test is not a finite number", "leave such queries out")
    if not 0 < level < 1:
        raise UsageError(f"level {level} is not between 0 and 1", "give 0.95, for example")
