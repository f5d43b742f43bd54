"""Whether a system is right as often as it says: its claim is the probability of the top hit.

Knows only systems whose hits carry `logprob`; nothing here guesses a probability from a score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from triever.data.records import Hit, Qrels, Run, ranked
from triever.errors import UsageError

ROUNDING = 1e-3  # a log-probability that far above 0 is rounding in half precision, more is not a probability


@dataclass(frozen=True, slots=True)
class Bin:
    """The claims between `low` and `high`: how many, how sure on average, how often right."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def claim(query: str, hits: Sequence[Hit], grades: Mapping[str, int]) -> tuple[float, float]:
    """The probability that a query's best hit claims, and 1 or 0 for whether that hit is relevant."""
    return min(math.exp(logprob_of(query, hits[0])), 1.0), float(grades.get(hits[0].id, 0) > 0)


def logprob_of(query: str, hit: Hit) -> float:
    """The log-probability of a query's hit; an error if it has none, or one that is none."""
    if hit.logprob is None:
        raise UsageError(
            f"query {query!r}: its hits have no probabilities",
            "calibration needs a system that gives log-probabilities, such as a generative one",
        )
    if not hit.logprob <= ROUNDING:
        raise UsageError(
            f"query {query!r}: {hit.logprob} is not a log-probability", "give log-probabilities, which are 0 or less"
        )
    return hit.logprob


def claims(run: Run, qrels: Qrels) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities that a run claims, and 1 or 0 for what is true; (judged queries with hits,) each."""
    pairs = [claim(query, ranked(run[query]), qrels[query]) for query in qrels if run.get(query)]
    both = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def brier(claimed: np.ndarray, right: np.ndarray) -> float:
    """The mean squared distance between what was claimed and what was true; 0 is best."""
    check_claims(claimed, right)
    return float(np.mean((claimed - right) ** 2))


def reliability(claimed: np.ndarray, right: np.ndarray, bins: int = 10) -> list[Bin]:
    """Claims in bins of equal width, without the empty ones: a calibrated system has accuracy = confidence."""
    check_claims(claimed, right)
    if bins < 1:
        raise UsageError(f"bins = {bins} should be above zero", "for example: bins=10")
    bin_of = np.minimum((claimed * bins).astype(np.int64), bins - 1)  # the last bin holds 1.0 too
    return [_bin(index, bins, claimed[bin_of == index], right[bin_of == index]) for index in np.unique(bin_of)]


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """The mean distance between accuracy and confidence over bins, weighted by their claims; 0 is best."""
    total = sum(claims.count for claims in bins)
    return sum(claims.count * abs(claims.accuracy - claims.confidence) for claims in bins) / total


def _bin(index: int, bins: int, claimed: np.ndarray, right: np.ndarray) -> Bin:
    low, high = index / bins, (index + 1) / bins
    return Bin(float(low), float(high), len(claimed), float(claimed.mean()), float(right.mean()))


def check_claims(claimed: np.ndarray, right: np.ndarray) -> None:
    """Refuse what are no claims with an outcome for each."""
    if len(claimed) != len(right) or not len(claimed):
        raise UsageError(
            f"there are {len(claimed)} claims and {len(right)} outcomes", "give one outcome for each claim"
        )
    if not np.all((claimed >= 0) & (claimed <= 1)):
        raise UsageError("a claim is not between 0 and 1", "give probabilities, not log-probabilities")
