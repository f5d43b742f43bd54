"""Resampling against plain loops and exact enumeration."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.errors import UsageError
from triever.evaluation import significance
from triever.evaluation.significance import bootstrap, holm, intervals, p_values, randomisation_test

VALUES = np.random.default_rng(7).random(40)
DIFFERENCES = st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=1, max_size=9)


# --- slow and obvious ---------------------------------------------------------------------------------------


def slow_bootstrap(values: list[float], samples: int, seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    means = []
    for _ in range(samples):
        drawn = [values[rng.integers(len(values))] for _ in values]
        means.append(sum(drawn) / len(drawn))
    return sorted(means)


def percentile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def slow_exact(differences: list[float]) -> float:
    observed = abs(sum(differences))
    flips = list(product([1, -1], repeat=len(differences)))
    far = sum(abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= observed - 1e-9 for signs in flips)
    return far / len(flips)


def slow_sampled(differences: list[float], samples: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    far = 0
    for _ in range(samples):
        words = [int(rng.integers(2**32, dtype=np.uint32)) for _ in range(math.ceil(len(differences) / 32))]
        bits = "".join(f"{byte:08b}" for word in words for byte in word.to_bytes(4, "little"))
        total = sum(d if bit == "1" else -d for d, bit in zip(differences, bits, strict=False))
        far += abs(total) >= abs(sum(differences)) - 1e-9
    return (1 + far) / (1 + samples)


# --- intervals ----------------------------------------------------------------------------------------------


def test_bootstrap_equals_the_slow_loop() -> None:
    means = slow_bootstrap(VALUES.tolist(), samples=300, seed=3)
    low, high = bootstrap(VALUES, level=0.9, samples=300, seed=3)
    assert low == pytest.approx(percentile(means, 0.05))
    assert high == pytest.approx(percentile(means, 0.95))


def test_bootstrap_of_two_values_is_near_its_exact_distribution() -> None:
    """Means of two draws from {0, 1} are 0, 1/2, 1 with weights 1/4, 1/2, 1/4."""
    assert bootstrap(np.array([0.0, 1.0]), level=0.4) == (0.5, 0.5)  # between the quantiles .3 and .7
    assert bootstrap(np.array([0.0, 1.0]), level=0.6) == (0.0, 1.0)  # .2 and .8


def test_bootstrap_is_about_as_wide_as_the_normal_interval() -> None:
    low, high = bootstrap(VALUES)
    half = 1.96 * VALUES.std() / math.sqrt(len(VALUES))
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)
    assert low < VALUES.mean() < high


@pytest.mark.parametrize("values", [[0.3], [0.1] * 3, [0.7] * 10])
def test_where_nothing_varies_the_interval_is_the_mean(values: list[float]) -> None:
    assert bootstrap(np.array(values)) == (values[0], values[0])


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.random.default_rng(0).normal(size=(50, 3))
    before = intervals(matrix, samples=100), p_values(matrix, samples=100)
    monkeypatch.setattr(significance, "CHUNK", 120)  # two rows at a time
    after = intervals(matrix, samples=100), p_values(matrix, samples=100)
    assert np.allclose(before[0], after[0])
    assert np.array_equal(before[1], after[1])


def test_columns_together_are_columns_alone() -> None:
    matrix = np.random.default_rng(1).normal(0.1, size=(30, 4))
    low, high = intervals(matrix, samples=200)
    p = p_values(matrix, samples=200)
    for column in range(4):
        alone = matrix[:, column]
        assert (low[column], high[column]) == pytest.approx(bootstrap(alone, samples=200))
        assert p[column] == randomisation_test(alone, np.zeros(30), samples=200)


def test_the_seed_decides() -> None:
    assert bootstrap(VALUES, seed=1) == bootstrap(VALUES, seed=1) != bootstrap(VALUES, seed=2)


# --- tests --------------------------------------------------------------------------------------------------


@given(DIFFERENCES)
def test_few_differences_are_enumerated(differences: list[float]) -> None:
    a = np.array(differences)
    assert randomisation_test(a, np.zeros(len(a))) == pytest.approx(slow_exact(differences))


def test_enumeration_by_hand() -> None:
    # |1+2+3| = 6 is reached by +++ and --- only
    assert randomisation_test(np.array([1.0, 2.0, 3.0]), np.zeros(3)) == 2 / 8
    # |2+2-1| = 3: ++-, --+ have 3, +++ and --- have 5
    assert randomisation_test(np.array([2.0, 2.0, 0.0]), np.array([0.0, 0.0, 1.0])) == 4 / 8


def test_many_differences_are_sampled_as_the_slow_loop_does() -> None:
    differences = (np.arange(45) % 7 - 2.6).tolist()
    expected = slow_sampled(differences, samples=500, seed=5)
    assert 0.01 < expected < 0.99
    assert randomisation_test(np.array(differences), np.zeros(45), samples=500, seed=5) == pytest.approx(expected)


def test_sampling_is_near_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.array([0.3, 0.1, -0.2, 0.5, 0.4, -0.1, 0.2, 0.6, -0.3, 0.15])
    exact = randomisation_test(a, np.zeros(10))
    monkeypatch.setattr(significance, "EXACT", 0)
    assert randomisation_test(a, np.zeros(10)) == pytest.approx(exact, abs=0.02)


def test_queries_that_do_not_differ_do_not_matter_to_enumeration() -> None:
    a = np.array([1.0, 2.0, 3.0, *[0.5] * 1000])
    b = np.array([0.0, 0.0, 0.0, *[0.5] * 1000])
    assert randomisation_test(a, b) == 2 / 8


@given(DIFFERENCES)
def test_two_sides(values: list[float]) -> None:
    a, b = np.array(values), np.zeros(len(values))
    assert randomisation_test(a, b) == randomisation_test(b, a)
    assert randomisation_test(a, a) == 1.0
    assert 0 < randomisation_test(a, b) <= 1


def test_p_is_never_zero() -> None:
    assert randomisation_test(np.ones(100), np.zeros(100), samples=999) == 1 / 1000


def test_where_nothing_is_to_be_found_p_is_uniform() -> None:
    """Under the null hypothesis p < .1 happens in about one of ten cases."""
    noise = np.random.default_rng(11).normal(size=(30, 400))
    assert np.mean(p_values(noise, samples=500) < 0.1) == pytest.approx(0.1, abs=0.04)


# --- several tests ------------------------------------------------------------------------------------------


def test_holm_by_hand() -> None:
    # sorted .01 .02 .03 .5, times 4 3 2 1: .04 .06 .06 .5, and never falling
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.04, 0.03]) == pytest.approx([0.06, 0.06])  # .06 .04 may not fall
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_keeps_the_order_and_only_raises(p: list[float]) -> None:
    corrected = holm(p)
    assert all(before <= after <= 1 for before, after in zip(p, corrected, strict=True))
    assert all(after <= len(p) * max(p) for after in corrected)
    ranks = sorted(range(len(p)), key=lambda place: p[place])
    assert [corrected[place] for place in ranks] == sorted(corrected)


# --- refusals -----------------------------------------------------------------------------------------------


def test_what_cannot_be_tested_is_refused() -> None:
    with pytest.raises(UsageError, match="no values"):
        bootstrap(np.array([]))
    with pytest.raises(UsageError, match="not a finite number"):
        bootstrap(np.array([math.nan]))
    with pytest.raises(UsageError, match="level 95"):
        bootstrap(VALUES, level=95)
    with pytest.raises(UsageError, match="different queries"):
        randomisation_test(np.zeros(3), np.zeros(4))
