"""A temperature that makes a system's claims as sure as it is right, fitted on questions that are not measured.

A claim is read from a whole distribution over documents: the hits with their probabilities, and what is left of 1,
which is spread evenly over the documents that were not found. At temperature T every probability p becomes p^(1/T),
and all are divided by their sum. That needs nothing but the hits, so it is the same for a model that writes docids and
for a softmax over vectors; at T = 1 nothing changes, and a very high T makes all documents equally likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from triever.data.records import Hit, Qrels, Run, ranked
from triever.errors import UsageError
from triever.evaluation.calibration import check_claims, claims, logprob_of

LOWEST, HIGHEST = 0.01, 100.0
"""The range of temperatures: beyond it claims are 0 or 1, or all the same."""
TRIED = 41
"""Temperatures that are compared at once."""
ROUNDS = 4
"""How often the best and its neighbours are looked at again, each time more finely."""
CERTAIN = 1e-12
"""How near to 0 or 1 a claim counts in the likelihood: one wrong claim of 1 would outweigh all others."""


@dataclass(frozen=True)
class Distributions:
    """What a system says about some questions: the logs of probabilities, the best hit first, and who else there is."""

    logprobs: np.ndarray  # (questions, hits) float64, -inf behind the last hit
    others: np.ndarray  # (questions,) how many documents share what is left of 1, at least one

    def claimed(self, temperature: float = 1.0) -> np.ndarray:
        """(questions,) the probability of the best hit at a temperature."""
        if not temperature > 0:
            raise UsageError(f"temperature = {temperature} should be above zero", "1 leaves claims as they are")
        hits = np.logaddexp.reduce(self.logprobs / temperature, axis=1)
        with np.errstate(divide="ignore"):  # the log of nothing left is -inf, which adds nothing
            left, count = np.log(self._left), np.log(self.others)
        rest = count + (left - count) / temperature
        return np.exp(np.minimum(self.logprobs[:, 0] / temperature - np.logaddexp(hits, rest), 0.0))

    @property
    def _left(self) -> np.ndarray:
        """(questions,) the probability that the hits leave to others."""
        return np.maximum(1.0 - np.exp(self.logprobs).sum(1), 0.0)


def distributions(run: Run, qrels: Qrels, documents: int) -> tuple[Distributions, np.ndarray]:
    """What a run says about judged questions that have hits, among so many documents, and 1 or 0 for what is true."""
    _, right = claims(run, qrels)  # which refuses what has no probabilities
    lists = [_logprobs(query, ranked(run[query])) for query in qrels if run.get(query)]
    logprobs = np.full((len(lists), max(map(len, lists), default=0)), -np.inf)
    for row, found in zip(logprobs, lists, strict=True):
        row[: len(found)] = found
    others = np.array([max(1, documents - len(found)) for found in lists], np.float64)
    return Distributions(logprobs, others), right


def fitted_temperature(said: Distributions, right: np.ndarray) -> float:
    """The temperature at which it is likeliest that the best hits are right and wrong as they are.

    The likelihood may have more than one peak, so temperatures are compared over the whole range first.
    """
    check_claims(said.claimed(), right)
    tried = np.geomspace(LOWEST, HIGHEST, TRIED)
    for _ in range(ROUNDS):
        best = int(np.argmin([surprise(said.claimed(temperature), right) for temperature in tried]))
        chosen = float(tried[best])
        tried = np.geomspace(tried[max(best - 1, 0)], tried[min(best + 1, TRIED - 1)], TRIED)
    return chosen


def surprise(claimed: np.ndarray, right: np.ndarray) -> float:
    """The mean negative log-likelihood of what is true by what was claimed; 0 is best."""
    check_claims(claimed, right)
    sure = np.clip(claimed, CERTAIN, 1 - CERTAIN)
    return float(-np.mean(right * np.log(sure) + (1 - right) * np.log1p(-sure)))


def _logprobs(query: str, hits: Sequence[Hit]) -> list[float]:
    return [min(logprob_of(query, hit), 0.0) for hit in hits]
