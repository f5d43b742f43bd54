"""How far the mean of K draws of exp(score) may be from its expectation: bounds on both tails, and what is measured.

Let X be exp(score) of a drawn document, and M the mean of K independent draws. Bounds are on log M - log E[X]. What
they need of X is its variance divided by the square of its mean, its relative variance, and for the upper tail also how
large X can be. A lower tail means that Z_K is small, so that the gap log Z - log Z_K is above log(N / K) - delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from triever.errors import UsageError

AT_ONCE = 2**22
"""Numbers that are drawn at once."""


@dataclass(frozen=True)
class Tails:
    """How often log M was at least epsilon below, and above, log E[X]."""

    lower: float
    upper: float


def printed_bound(k: int, epsilon: float, relative_variance: float) -> float:
    """The bound on the lower tail as equation 15 of the paper has it. It does not always hold, see `lower_bound`.

    >>> round(printed_bound(20, 0.99, 1.0), 5)  # 20 throws of a coin; 3 heads or fewer have a probability of .00129
    0.00063
    """
    return _bernstein(k, epsilon, relative_variance, 1.0)


def lower_bound(k: int, epsilon: float, relative_variance: float) -> float:
    """A bound on P[log M <= log E[X] - epsilon] that holds for every X that is never negative.

    M is then short of its mean by the share 1 - exp(-epsilon), which is less than the epsilon that the paper takes.
    Bernstein's inequality needs nothing else here: X cannot be further below its mean than the mean is.

    >>> round(lower_bound(20, 0.99, 1.0), 3)
    0.038
    """
    return _bernstein(k, -math.expm1(-epsilon), relative_variance, 1.0)


def upper_bound(k: int, epsilon: float, relative_variance: float, largest: float = math.inf) -> float:
    """A bound on P[log M >= log E[X] + epsilon]; `largest` is the greatest X divided by the mean.

    This is the tail that makes the gap small. Bernstein's inequality needs the largest X there; without one, Markov's
    inequality still gives exp(-epsilon), however many are drawn.

    >>> round(upper_bound(64, 1.0, 1.7), 3), upper_bound(64, 1.0, 1.7, largest=20.0) < 0.01
    (0.368, True)
    """
    markov = math.exp(-epsilon)
    if math.isinf(largest):
        return markov
    return min(markov, _bernstein(k, math.expm1(epsilon), relative_variance, max(largest - 1.0, 0.0)))


def _bernstein(k: int, share: float, relative_variance: float, furthest: float) -> float:
    """Bernstein's bound on a mean of k being off by a share of the expectation, in one direction.

    `furthest` is how far a single one may be off in that direction, as a share of the expectation too.
    """
    if k < 1 or share < 0 or relative_variance < 0:
        given = f"k = {k}, relative_variance = {relative_variance:g} and a distance of {share:g}"
        raise UsageError(f"there is no bound for {given}", "k is 1 or more, and nothing is below 0")
    spread = relative_variance + furthest * share / 3
    return math.exp(-k * share**2 / (2 * spread)) if spread > 0 else float(share == 0)


def relative_variance(values: np.ndarray, probabilities: np.ndarray | None = None) -> float:
    """The variance of X divided by the square of its mean, for values (n,) that are as likely as is said, or all alike.

    >>> relative_variance(np.array([0.0, 2.0])), relative_variance(np.array([0.0, 2.0]), np.array([0.2, 0.8]))
    (1.0, 0.25)
    """
    values, likely = _distribution(values, probabilities)
    mean = float(likely @ values)
    return round(float(likely @ (values - mean) ** 2) / mean**2, 12)


def measured_tails(
    values: np.ndarray,
    k: int,
    epsilon: float,
    *,
    probabilities: np.ndarray | None = None,
    draws: int = 10_000,
    seed: int = 0,
) -> Tails:
    """Both tails by drawing K values again and again.

    >>> measured_tails(np.ones(3), 8, 0.1, draws=10)
    Tails(lower=0.0, upper=0.0)
    """
    values, likely = _distribution(values, probabilities)
    mean, chance = float(likely @ values), np.random.default_rng(seed)
    off, step = [], max(1, AT_ONCE // k)
    for low in range(0, draws, step):
        drawn = chance.choice(len(values), (min(step, draws - low), k), p=likely)
        off.append(values[drawn].mean(1) / mean)
    ratio = np.concatenate(off)
    return Tails(float((ratio <= math.exp(-epsilon)).mean()), float((ratio >= math.exp(epsilon)).mean()))


def _distribution(values: np.ndarray, probabilities: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    values = np.asarray(values, np.float64)
    likely = np.ones(len(values)) / max(1, len(values)) if probabilities is None else np.asarray(probabilities, float)
    if not len(values) or (values < 0).any() or not values.any():
        raise UsageError("X = exp(score) needs values of zero or more, and one above zero", "give exp(scores)")
    if likely.shape != values.shape or (likely < 0).any() or not math.isclose(likely.sum(), 1.0, abs_tol=1e-6):
        raise UsageError("the probabilities do not fit the values", "give one for each value, one in all")
    return values, likely / likely.sum()
