"""What a system gains by silence: it answers only where its claim reaches a threshold, and abstains elsewhere.

Coverage is the share of questions that are answered, and risk the share of answers that are wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triever.errors import UsageError
from triever.evaluation.calibration import check_claims


@dataclass(frozen=True, slots=True)
class Point:
    """A threshold: claims that reach it are answers. How many questions these are, and how many of them are wrong."""

    threshold: float
    coverage: float
    risk: float  # 0 where nothing is answered: nothing is wrong then


def abstaining(claimed: np.ndarray, right: np.ndarray, threshold: float) -> Point:
    """What a threshold does to these claims, which may be others than it was chosen on."""
    check_claims(claimed, right)
    answered = claimed >= threshold
    wrong = 1.0 - right[answered]
    return Point(float(threshold), float(answered.mean()), float(wrong.mean()) if len(wrong) else 0.0)


def risk_coverage(claimed: np.ndarray, right: np.ndarray) -> list[Point]:
    """A point for every claim that can be a threshold, the surest first; equal claims are answered together."""
    check_claims(claimed, right)
    order = np.argsort(-claimed, kind="stable")
    sure, wrong = claimed[order], np.cumsum(1.0 - right[order])
    last = np.flatnonzero(np.append(sure[1:] != sure[:-1], True))  # the last of equal claims
    return [Point(float(sure[at]), float(at + 1) / len(sure), float(wrong[at]) / (at + 1)) for at in last.tolist()]


def area(curve: list[Point]) -> float:
    """The mean risk over all coverages, each question with the risk at its own claim as threshold; 0 is best."""
    coverages = np.array([0.0, *(point.coverage for point in curve)])
    return float(np.diff(coverages) @ [point.risk for point in curve])


def point_of_risk(curve: list[Point], risk: float) -> Point | None:
    """The point that answers most questions with at most this risk; None where even the surest claims are riskier."""
    _share("risk", risk)
    return max((point for point in curve if point.risk <= risk), key=lambda point: point.coverage, default=None)


def point_of_coverage(curve: list[Point], coverage: float) -> Point:
    """The point with the highest threshold that answers at least this share of questions."""
    _share("coverage", coverage)
    return next((point for point in curve if point.coverage >= coverage), curve[-1])


def _share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise UsageError(f"{name} = {value} should be from 0 to 1", f"for example: {name}=0.5")
