"""What was measured over seeds and questions, and what can be told of two such measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

import numpy as np

from triever.evaluation.report import ScoreRecord
from triever.evaluation.seen import ENOUGH
from triever.evaluation.significance import bootstrap
from triever.printable import mean_text

HOLDS, FAILS, OPEN, MISSING = "holds", "does not hold", "cannot be told", "not measured"
FEWEST = ENOUGH
"""With fewer questions nothing can be told: an interval over questions is then too narrow, and over one it is empty."""


@dataclass(frozen=True)
class EachQuestion:
    """The value of each question, (questions,), and a digest of which questions these are."""

    questions: str
    values: np.ndarray

    def minus(self, other: EachQuestion) -> EachQuestion | None:
        """The differences; None where the questions differ."""
        same = self.questions == other.questions
        return EachQuestion(self.questions, self.values - other.values) if same else None


@dataclass(frozen=True)
class Measured:
    """A mean over queries and its interval, for each seed; where files say it, also the mean of each question."""

    means: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    each: EachQuestion | None = field(default=None, compare=False, repr=False)
    questions: int | None = field(default=None, compare=False, repr=False)  # how many; None where it is not known

    @classmethod
    def of(
        cls, scores: Sequence[ScoreRecord], each: EachQuestion | None = None, questions: int | None = None
    ) -> Measured:
        """One from the scores of the seeds, as files hold them."""
        means, lows, highs = zip(*((score["mean"], score["low"], score["high"]) for score in scores), strict=True)
        return cls(means, lows, highs, each, questions)

    @property
    def mean(self) -> float:
        return fmean(self.means)

    def minus(self, other: Measured) -> Measured:
        """How much more it is than another one: for each seed if both have the same number of them, else of the means.

        The interval is as wide as both together, as if nothing were known of how they vary with each other.
        """
        first, second = self, other
        if len(self.means) != len(other.means):
            first, second = (Measured((one.mean,), (fmean(one.lows),), (fmean(one.highs),)) for one in (self, other))
        return Measured(
            tuple(one - two for one, two in zip(first.means, second.means, strict=True)),
            tuple(low - high for low, high in zip(first.lows, second.highs, strict=True)),
            tuple(high - low for high, low in zip(first.highs, second.lows, strict=True)),
            self.each.minus(other.each) if self.each and other.each else None,
            fewest_questions(self, other),
        )

    def gain_over(self, other: Measured) -> tuple[float, float]:
        """The 95% interval over questions of how much more it is than another one, as a mean of the seeds.

        Where the values of each question are not known, it is as wide as if the two had been asked different ones.
        """
        if self.each and other.each and (gains := self.each.minus(other.each)):
            return bootstrap(gains.values)
        gain = self.mean - other.mean
        width = math.hypot(*((high - low) / 2 for low, high in (self.span(False), other.span(False))))
        return gain - width, gain + width

    def span(self, by_seeds: bool) -> tuple[float, float]:
        """The lowest and the highest mean of the seeds, or else the mean interval."""
        return (min(self.means), max(self.means)) if by_seeds else (fmean(self.lows), fmean(self.highs))

    def __str__(self) -> str:
        """The mean with the standard deviation over seeds, or with the interval of the only one."""
        if len(self.means) > 1:
            return f"{mean_text(self.mean)} ± {mean_text(stdev(self.means))}"
        return f"{mean_text(self.mean)} [{mean_text(self.lows[0])}, {mean_text(self.highs[0])}]"


def verdict(less: Measured, more: Measured, *, strict: bool, one_model: bool = False) -> str:
    """Whether one is below the other; this cannot be told where seeds or questions leave it open.

    If both have several seeds, the ranges of these and the difference over questions have to say the same; otherwise
    the intervals over questions decide. Two searches of one model differ in nothing else: they go seed by seed.
    Fewer than `FEWEST` questions tell nothing.
    """
    if too_few(less, more):
        return OPEN
    by_seeds = len(less.means) > 1 and len(more.means) > 1
    if by_seeds and one_model:
        gains = [other - one for one, other in zip(less.means, more.means, strict=True)]
        told = _told(min(gains), max(gains), strict)
    else:
        (low, high), (other_low, other_high) = less.span(by_seeds), more.span(by_seeds)
        told = _told(other_low - high, other_high - low, strict)
    agreed = not by_seeds or told == OPEN or told == _told(*more.gain_over(less), strict)  # resampling takes time
    return told if agreed else OPEN


def fewest_questions(*sides: Measured) -> int | None:
    """How many questions the side with the fewest was asked; None where no side says it."""
    return min((side.questions for side in sides if side.questions is not None), default=None)


def too_few(*sides: Measured) -> bool:
    """Whether there were too few questions for a verdict."""
    fewest = fewest_questions(*sides)
    return fewest is not None and fewest < FEWEST


def _told(lowest: float, highest: float, strict: bool) -> str:
    """Whether what should be below is, if the other has more by something between these two."""
    if lowest > 0 or (lowest == 0 and not strict):
        return HOLDS
    return FAILS if highest < 0 or (highest == 0 and strict) else OPEN


def together(verdicts: Sequence[str]) -> str:
    """One verdict for several: the worst of them."""
    return next((worst for worst in (FAILS, MISSING, OPEN) if worst in verdicts), HOLDS)
