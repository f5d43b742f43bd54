"""Temperatures of claims, against distributions that are written out document by document."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triever.data.records import Hit, Result
from triever.errors import UsageError
from triever.evaluation.calibration import expected_calibration_error, reliability
from triever.evaluation.temperature import Distributions, distributions, fitted_temperature, surprise

NOTHING = -math.inf


def written_out(hits: list[float], others: int, temperature: float) -> float:
    """The probability of the first hit where every document has its own, also those that were not found."""
    every = [*hits, *[(1 - sum(hits)) / others] * others]
    raised = [probability ** (1 / temperature) for probability in every]
    return raised[0] / sum(raised)


def said_of(lists: list[list[float]], others: int) -> Distributions:
    longest = max(map(len, lists))
    logs = [[*map(math.log, hits), *[NOTHING] * (longest - len(hits))] for hits in lists]
    return Distributions(np.array(logs), np.full(len(lists), float(others)))


hit_lists = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6).map(
    lambda weights: [weight / (sum(weights) + 0.5) for weight in sorted(weights, reverse=True)]
)


@given(st.lists(hit_lists, min_size=1, max_size=4), st.integers(1, 50), st.floats(0.1, 20))
def test_claims_at_a_temperature_are_those_of_the_whole_distribution(
    lists: list[list[float]], others: int, temperature: float
) -> None:
    wanted = [written_out(hits, others, temperature) for hits in lists]
    assert said_of(lists, others).claimed(temperature) == pytest.approx(wanted)


def test_extremes_of_temperature() -> None:
    said = said_of([[0.5, 0.2]], others=8)
    assert said.claimed() == pytest.approx([0.5])
    assert said.claimed(1e9) == pytest.approx([1 / 10])
    assert said.claimed(0.01) == pytest.approx([1.0])
    assert said_of([[0.75, 0.25]], others=1).claimed(2) == pytest.approx([3**0.5 / (3**0.5 + 1)]), "nothing is left"
    with pytest.raises(UsageError, match="temperature = 0 should be above zero"):
        said.claimed(0)


def test_what_a_run_says() -> None:
    some = Result((Hit("a", 2.0, logprob=math.log(0.5)), Hit("b", 1.0, logprob=math.log(0.25))))
    one = Result((Hit("c", 1.0, logprob=1e-5),))  # rounding in half precision
    judged = {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}}
    said, right = distributions({"q1": some, "q2": one, "q3": Result()}, judged, documents=4)
    assert np.exp(said.logprobs) == pytest.approx(np.array([[0.5, 0.25], [1.0, 0.0]]))
    assert (said.others.tolist(), right.tolist()) == ([2, 3], [1, 0])
    with pytest.raises(UsageError, match="query 'q1': its hits have no probabilities"):
        distributions({"q1": Result((some[0], Hit("b", 1.0)))}, judged, documents=4)


@settings(max_examples=20)
@given(st.lists(st.tuples(hit_lists, st.booleans()), min_size=1, max_size=12), st.integers(1, 50))
def test_no_other_temperature_is_likelier(questions: list[tuple[list[float], bool]], others: int) -> None:
    said = said_of([hits for hits, _ in questions], others)
    right = np.array([float(is_right) for _, is_right in questions])
    fitted = surprise(said.claimed(fitted_temperature(said, right)), right)
    assert all(fitted <= surprise(said.claimed(other), right) + 1e-6 for other in np.geomspace(0.01, 100, 500))


def test_surprise_by_hand() -> None:
    assert surprise(np.array([0.8, 0.4]), np.array([1.0, 0.0])) == pytest.approx(-(math.log(0.8) + math.log(0.6)) / 2)
    assert surprise(np.array([1.0]), np.array([0.0])) == pytest.approx(-math.log(1e-12), rel=1e-3), "not infinite"


def test_a_known_temperature_is_found_again() -> None:
    """Outcomes are drawn at a temperature of 3, so that what was claimed is far too sure."""
    chance = np.random.default_rng(0)
    true = chance.dirichlet(np.full(10, 0.7), 4000)
    sharp = -np.sort(-(true**3), axis=1)
    sharp /= sharp.sum(1, keepdims=True)
    said = Distributions(np.log(sharp), np.ones(len(sharp)))
    right = (chance.random(len(true)) < true.max(1)).astype(float)
    temperature = fitted_temperature(said, right)
    assert temperature == pytest.approx(3, rel=0.1)
    before, after = (expected_calibration_error(reliability(said.claimed(at), right)) for at in (1.0, temperature))
    assert before > 0.1
    assert after < 0.03
