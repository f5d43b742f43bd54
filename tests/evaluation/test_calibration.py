"""Calibration with the sums written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.data.records import Hit, Result
from triever.errors import UsageError
from triever.evaluation.calibration import Bin, brier, claims, expected_calibration_error, reliability

CLAIMED = np.array([0.95, 1.0, 0.15, 0.11])
RIGHT = np.array([1.0, 0.0, 0.0, 1.0])


def test_claims_are_the_top_hits_of_judged_queries() -> None:
    best = Hit("a", 2.0, logprob=math.log(0.75))
    run = {
        "q1": Result((Hit("b", 1.0, logprob=-9.0), best)),
        "q2": Result((Hit("x", 1.0, logprob=0.0),)),
        "q3": Result(),
    }
    claimed, right = claims(run, {"q1": {"a": 1}, "q2": {"a": 1, "x": -1}, "q3": {"a": 1}, "q4": {"a": 1}})
    assert claimed == pytest.approx([0.75, 1.0])
    assert right.tolist() == [1.0, 0.0]


def test_brier_by_hand() -> None:
    total = (0.95 - 1) ** 2 + (1.0 - 0) ** 2 + (0.15 - 0) ** 2 + (0.11 - 1) ** 2
    assert brier(CLAIMED, RIGHT) == pytest.approx(total / 4)


def test_reliability_bins_by_hand() -> None:
    assert reliability(CLAIMED, RIGHT, bins=10) == [
        Bin(0.1, 0.2, 2, pytest.approx((0.15 + 0.11) / 2), 1 / 2),
        Bin(0.9, 1.0, 2, pytest.approx((0.95 + 1.0) / 2), 1 / 2),
    ]


def test_calibration_error_by_hand() -> None:
    low, high = abs(1 / 2 - (0.15 + 0.11) / 2), abs(1 / 2 - (0.95 + 1.0) / 2)
    assert expected_calibration_error(reliability(CLAIMED, RIGHT)) == pytest.approx((2 * low + 2 * high) / 4)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1), st.integers(1, 20))
def test_every_claim_is_in_one_bin(pairs: list[tuple[float, bool]], bins: int) -> None:
    claimed, right = np.array([p for p, _ in pairs]), np.array([float(y) for _, y in pairs])
    found = reliability(claimed, right, bins)
    assert sum(one.count for one in found) == len(pairs)
    assert all(one.low - 1e-12 <= one.confidence <= one.high + 1e-12 for one in found)
    assert sum(one.count * one.accuracy for one in found) == pytest.approx(right.sum())
    assert 0 <= expected_calibration_error(found) <= 1


def test_what_is_no_probability_is_refused() -> None:
    with pytest.raises(UsageError, match="a claim is not between 0 and 1"):
        brier(np.array([-0.5]), np.array([1.0]))
    with pytest.raises(UsageError, match="0 claims and 0 outcomes"):
        reliability(np.array([]), np.array([]))
    with pytest.raises(UsageError, match="bins = 0"):
        reliability(CLAIMED, RIGHT, bins=0)
    with pytest.raises(UsageError, match="nan is not a log-probability"):
        claims({"q": Result((Hit("a", 1.0, logprob=math.nan),))}, {"q": {"a": 1}})
