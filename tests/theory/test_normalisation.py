"""The gap between global and local normalisation, against sums over all that can be drawn."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever import UsageError
from triever.theory.normalisation import (
    gap_bound,
    gap_bound_with_positive,
    log_sum,
    most_with_positive,
    proposal_bias,
    sampled_gaps,
    uniform,
)

SCORES = st.lists(st.floats(-8, 8), min_size=2, max_size=5).map(np.array)


def expected_gap(scores: np.ndarray, k: int, proposal: np.ndarray, fixed: int | None = None) -> float:
    """The exact mean of log Z - log Z_K over all sequences that can be drawn."""
    whole = math.log(sum(math.exp(score) for score in scores))
    mean = 0.0
    drawn = k if fixed is None else k - 1
    for rows in itertools.product(range(len(scores)), repeat=drawn):
        chance = math.prod(proposal[row] for row in rows)
        kept = [*rows] if fixed is None else [fixed, *rows]
        mean += chance * (whole - math.log(sum(math.exp(scores[row]) for row in kept))) if chance else 0.0
    return mean


def test_what_cannot_be_drawn_has_no_bound() -> None:
    scores = np.zeros(4)
    for call in (lambda: gap_bound(scores, 0), lambda: gap_bound(scores[:0], 3), lambda: sampled_gaps(scores, 0)):
        with pytest.raises(UsageError, match="documents cannot be drawn"):
            call()
    for row in (4, -1):
        for call in (
            lambda row=row: gap_bound_with_positive(scores, row, 2),
            lambda row=row: most_with_positive(scores, row),
            lambda row=row: sampled_gaps(scores, 2, positive=row),
        ):
            with pytest.raises(UsageError, match=f"positive = {row} is no row of 4 scores"):
                call()


@given(SCORES, st.integers(1, 4), st.randoms(use_true_random=False))
def test_with_independent_draws_the_bound_holds_for_every_proposal(scores: np.ndarray, k: int, random) -> None:
    weights = np.array([random.random() + 1e-3 for _ in scores])
    proposal = weights / weights.sum()
    assert expected_gap(scores, k, proposal) >= gap_bound(scores, k, proposal) - 1e-9
    assert expected_gap(scores, k, uniform(len(scores))) >= math.log(len(scores) / k) - 1e-9


@given(SCORES, st.integers(1, 4), st.integers(0, 1))
def test_with_the_positive_inside_another_bound_holds(scores: np.ndarray, k: int, positive: int) -> None:
    exact = expected_gap(scores, k, uniform(len(scores), without=positive), positive)
    bound = gap_bound_with_positive(scores, positive, k)
    assert bound - 1e-9 <= exact <= most_with_positive(scores, positive) + 1e-9
    p = math.exp(-most_with_positive(scores, positive))
    assert bound == pytest.approx(-math.log(p + (1 - p) * (k - 1) / (len(scores) - 1)), abs=1e-9)


def test_what_is_drawn_has_the_expected_gap() -> None:
    scores = np.array([2.0, -1.0, 0.5, 0.0])
    proposal = np.array([0.1, 0.2, 0.3, 0.4])
    for given_, exact in (
        ({}, expected_gap(scores, 3, uniform(4))),
        ({"proposal": proposal}, expected_gap(scores, 3, proposal)),
        ({"positive": 0}, expected_gap(scores, 3, uniform(4, without=0), 0)),
        ({"positive": 2, "proposal": proposal}, expected_gap(scores, 3, proposal, 2)),
    ):
        gaps = sampled_gaps(scores, 3, draws=20_000, **given_)
        assert gaps.mean() == pytest.approx(exact, abs=5 * gaps.std() / math.sqrt(20_000))


@pytest.mark.parametrize(("positive", "measured"), [(0.0, 3.46), (6.0, 1.99), (12.0, 0.019), (17.25, 0.0001)])
def test_2000_documents_and_64_candidates(positive: float, measured: float) -> None:
    """The bound is 3.44. With the positive among the candidates it is kept at 0, and broken from 6 on."""
    scores = np.random.default_rng(0).normal(size=2000)
    scores[0] = positive
    assert gap_bound(scores, 64) == pytest.approx(3.442, abs=1e-3)
    assert sampled_gaps(scores, 64, positive=0).mean() == pytest.approx(measured, rel=0.02, abs=1e-5)
    assert sampled_gaps(scores, 64).mean() >= 3.44  # with independent draws it is kept, whatever the positive scores


def test_the_theorem_as_printed_has_its_sign_reversed() -> None:
    """It says that log P over all less log P over candidates is log(N / K) at least; it is below zero."""
    scores = np.random.default_rng(1).normal(size=500)
    log_over_all, log_over_candidates = scores[0] - log_sum(scores), scores[0] - (log_sum(scores) - 2.0)
    assert log_over_all - log_over_candidates == pytest.approx(-2.0)
    assert (-sampled_gaps(scores, 16)).mean() < 0 < math.log(500 / 16)


def test_harder_candidates_have_a_lower_bound_and_a_lower_gap() -> None:
    scores = np.random.default_rng(2).normal(size=300)
    hard = np.exp(scores) / np.exp(scores).sum()
    by_hand = math.log(hard @ np.exp(scores)) - math.log(np.exp(scores).mean())
    assert proposal_bias(scores, hard) == pytest.approx(by_hand)
    assert by_hand > 0 == proposal_bias(scores)
    assert sampled_gaps(scores, 32, proposal=hard).mean() < sampled_gaps(scores, 32).mean()
    assert gap_bound(scores, 32, hard) == pytest.approx(math.log(300 / 32) - by_hand)


@given(st.lists(st.floats(-2000, 2000), max_size=6))
def test_sums_of_very_large_and_very_small_numbers(logs: list[float]) -> None:
    wanted = -math.inf
    for log in logs:
        wanted = float(np.logaddexp(wanted, log))
    assert float(log_sum(np.array(logs))) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("proposal", [[0.5, 0.4], [1.5, -0.5], [1.0]])
def test_what_is_no_proposal_is_refused(proposal: list[float]) -> None:
    with pytest.raises(UsageError, match="give a probability for each document"):
        gap_bound(np.zeros(2), 1, np.array(proposal))


def test_nothing_cannot_be_drawn() -> None:
    for scores, k, positive in ((np.zeros(0), 1, None), (np.zeros(3), 0, None), (np.zeros(1), 2, 0)):
        with pytest.raises(UsageError, match="cannot be drawn"):
            sampled_gaps(scores, k, positive=positive)
    assert sampled_gaps(np.zeros(1), 1, positive=0, draws=2).tolist() == [0.0, 0.0]
