"""Abstaining, against counting the answers above each threshold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.errors import UsageError
from triever.evaluation.abstaining import Point, abstaining, area, point_of_coverage, point_of_risk, risk_coverage

CLAIMED = np.array([0.9, 0.2, 0.6, 0.6])
RIGHT = np.array([1.0, 0.0, 1.0, 0.0])
CURVE = [Point(0.9, 1 / 4, 0.0), Point(0.6, 3 / 4, 1 / 3), Point(0.2, 1.0, 1 / 2)]
questions = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 1.0]), st.booleans()), min_size=1)


def arrays(pairs: list[tuple[float, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([claim for claim, _ in pairs]), np.array([float(is_right) for _, is_right in pairs])


def counted(pairs: list[tuple[float, bool]], threshold: float) -> tuple[float, float]:
    """Coverage and risk, question by question."""
    answers = [is_right for claim, is_right in pairs if claim >= threshold]
    return len(answers) / len(pairs), answers.count(False) / len(answers) if answers else 0.0


def test_the_curve_by_hand() -> None:
    assert risk_coverage(CLAIMED, RIGHT) == CURVE, "equal claims are answered together"
    assert area(CURVE) == pytest.approx(1 / 4 * 0 + 2 / 4 * 1 / 3 + 1 / 4 * 1 / 2)


def test_thresholds_by_hand() -> None:
    assert point_of_risk(CURVE, 0.4) == CURVE[1]
    assert point_of_risk(CURVE, 0.0) == CURVE[0]
    assert point_of_risk(CURVE[1:], 0.3) is None
    assert point_of_coverage(CURVE, 0.5) == CURVE[1]
    assert point_of_coverage(CURVE, 0.0) == CURVE[0]
    assert point_of_coverage(CURVE, 1.0) == CURVE[2]


@given(questions)
def test_every_point_is_what_counting_finds(pairs: list[tuple[float, bool]]) -> None:
    curve = risk_coverage(*arrays(pairs))
    assert [point.threshold for point in curve] == sorted({claim for claim, _ in pairs}, reverse=True)
    for point in curve:
        assert (point.coverage, point.risk) == pytest.approx(counted(pairs, point.threshold))
    assert area(curve) == pytest.approx(np.mean([counted(pairs, claim)[1] for claim, _ in pairs]))


@given(questions, questions, st.floats(0, 1))
def test_a_threshold_of_one_split_on_another(
    dev: list[tuple[float, bool]], test: list[tuple[float, bool]], wanted: float
) -> None:
    curve = risk_coverage(*arrays(dev))
    allowed = [claim for claim, _ in dev if counted(dev, claim)[1] <= wanted]
    chosen = point_of_risk(curve, wanted)
    assert (chosen.threshold if chosen else None) == min(allowed, default=None)
    reaching = point_of_coverage(curve, wanted)
    assert reaching.threshold == max(claim for claim, _ in dev if counted(dev, claim)[0] >= wanted)
    there = abstaining(*arrays(test), reaching.threshold)
    assert (there.coverage, there.risk) == pytest.approx(counted(test, reaching.threshold))


def test_wrong_shares_are_refused() -> None:
    with pytest.raises(UsageError, match=r"risk = 1.5 should be from 0 to 1"):
        point_of_risk(CURVE, 1.5)
    with pytest.raises(UsageError, match=r"coverage = -1 should be from 0 to 1"):
        point_of_coverage(CURVE, -1)
    with pytest.raises(UsageError, match="0 claims and 0 outcomes"):
        risk_coverage(np.array([]), np.array([]))
