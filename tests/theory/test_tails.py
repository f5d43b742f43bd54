"""Bounds on the tails of a mean, against exact sums of binomial probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever import UsageError
from triever.theory.tails import (
    lower_bound,
    measured_tails,
    printed_bound,
    relative_variance,
    upper_bound,
)


def coin_tails(k: int, epsilon: float, p: float) -> tuple[float, float]:
    """Both tails of the mean of k throws that are 1 with probability p and else 0, exactly."""
    chance = [math.comb(k, ones) * p**ones * (1 - p) ** (k - ones) for ones in range(k + 1)]
    low = sum(chance[ones] for ones in range(k + 1) if ones <= k * p * math.exp(-epsilon))
    high = sum(chance[ones] for ones in range(k + 1) if ones >= k * p * math.exp(epsilon))
    return low, high


@given(st.integers(1, 60), st.floats(0.01, 0.999), st.floats(0.02, 0.98))
def test_the_bounds_hold_for_every_coin(k: int, epsilon: float, p: float) -> None:
    low, high = coin_tails(k, epsilon, p)
    variance = (1 - p) / p
    assert low <= lower_bound(k, epsilon, variance) + 1e-12
    assert high <= upper_bound(k, epsilon, variance, largest=1 / p) + 1e-12
    assert high <= upper_bound(k, epsilon, variance) + 1e-12


def test_the_bound_as_printed_does_not_hold() -> None:
    """Three heads or fewer in 20 throws of a coin; X may be exp(0) and exp(-40), as scores are bounded."""
    low, _ = coin_tails(20, 0.99, 0.5)
    assert low == pytest.approx(1351 / 2**20)
    assert printed_bound(20, 0.99, 1.0) < low / 2 < low < lower_bound(20, 0.99, 1.0)
    low, _ = coin_tails(200, 0.9, 0.5)
    assert printed_bound(200, 0.9, 1.0) < low * 1e-6
    assert relative_variance(np.exp([0.0, -40.0])) == pytest.approx(1.0)


def test_what_is_drawn_has_the_exact_tails() -> None:
    for p, epsilon in ((0.5, 0.5), (0.2, 0.3), (0.9, 0.05)):
        found = measured_tails(np.array([0.0, 1.0]), 10, epsilon, probabilities=np.array([1 - p, p]), draws=40_000)
        assert (found.lower, found.upper) == pytest.approx(coin_tails(10, epsilon, p), abs=0.01)


def test_many_draws_are_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triever.theory.tails.AT_ONCE", 40)
    found = measured_tails(np.array([0.0, 1.0]), 10, 0.5, draws=5_001)
    assert (found.lower, found.upper) == pytest.approx(coin_tails(10, 0.5, 0.5), abs=0.03)


def test_a_mean_of_one_value_is_never_off() -> None:
    assert relative_variance(np.array([3.0])) == 0.0
    assert upper_bound(1, 0.5, 0.0, largest=1.0) == 0.0
    assert 0 < lower_bound(1, 0.5, 0.0) < 1


@pytest.mark.parametrize("values", [[], [-1.0, 2.0], [0.0]])
def test_what_is_no_distribution_is_refused(values: list[float]) -> None:
    with pytest.raises(UsageError, match="give exp"):
        relative_variance(np.array(values))
    with pytest.raises(UsageError, match="one for each value"):
        relative_variance(np.array([1.0, 2.0]), np.array([1.0]))


@pytest.mark.parametrize(("k", "epsilon", "variance"), [(0, 1.0, 1.0), (20, -1.0, 1.0), (20, 1.0, -1.0)])
def test_what_cannot_be_has_no_bound(k: int, epsilon: float, variance: float) -> None:
    for bound in (printed_bound, lower_bound, lambda *given: upper_bound(*given, largest=20.0)):
        with pytest.raises(UsageError, match=f"there is no bound for k = {k}"):
            bound(k, epsilon, variance)
