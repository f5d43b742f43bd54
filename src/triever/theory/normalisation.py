"""The gap between normalising scores over all N documents and over K that were drawn.

A softmax over all documents divides by Z, the sum of exp(score) over all of them. A contrastive loss divides by Z_K,
the same sum over K candidates. The gap is log Z - log Z_K: the loss of a relevant document over all documents, less its
loss over the candidates. Scores are divided by their temperature before they come here.
"""

from __future__ import annotations

import math

import numpy as np

from triever.errors import UsageError


def log_sum(logs: np.ndarray) -> np.ndarray:
    """The log of the sums of numbers (..., n) that are given by their logs.

    >>> round(float(log_sum(np.log([1.0, 2.0, 5.0]))), 4) == round(math.log(8.0), 4)
    True
    """
    logs = np.asarray(logs, np.float64)
    top = logs.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):  # the log of an empty sum is -inf
        return np.log(np.exp(logs - top).sum(-1)) + top[..., 0]


def proposal_bias(scores: np.ndarray, proposal: np.ndarray | None = None) -> float:
    """The paper's delta: how much higher log E[exp(score)] is for a drawn candidate than for any document.

    A proposal (documents,) has the probability that a candidate is each document; without one all are as likely. It is
    above zero where candidates are hard.

    >>> round(proposal_bias(np.log([1.0, 3.0]), np.array([0.0, 1.0])), 4) == round(math.log(3 / 2), 4)
    True
    """
    scores = np.asarray(scores, np.float64)
    if proposal is None:
        return 0.0
    return _log_mean(scores, _checked(proposal, len(scores))) - _log_mean(scores)


def gap_bound(scores: np.ndarray, k: int, proposal: np.ndarray | None = None) -> float:
    """The least expected gap with K independent draws from a proposal: log(N / K) - delta.

    It follows from Jensen's inequality, E[log Z_K] <= log E[Z_K] = log K + log E[exp(score of a draw)].

    >>> round(gap_bound(np.zeros(2000), 64), 2)
    3.44
    """
    scores = _drawn_from(scores, k)
    return math.log(len(scores) / k) - proposal_bias(scores, proposal)


def gap_bound_with_positive(scores: np.ndarray, positive: int, k: int, proposal: np.ndarray | None = None) -> float:
    """The least expected gap where one of the K candidates is always the relevant document, and K - 1 are drawn.

    By the same inequality it is log Z - log(exp(score of the relevant one) + (K - 1) E[exp(score of a draw)]). Without
    a proposal all other documents are as likely. Then, with the probability p of the relevant document over all N, it
    is -log(p + (1 - p) (K - 1) / (N - 1)), which goes to zero as p goes to one.

    >>> scores = np.zeros(2000)
    >>> round(gap_bound_with_positive(scores, 0, 64), 2)
    3.44
    >>> scores[0] = 50.0
    >>> round(gap_bound_with_positive(scores, 0, 64), 2)
    0.0
    """
    scores = _drawn_from(scores, k, positive)
    proposal = uniform(len(scores), without=positive) if proposal is None else _checked(proposal, len(scores))
    drawn = math.log(k - 1) + _log_mean(scores, proposal) if k > 1 else -math.inf
    return float(log_sum(scores) - np.logaddexp(scores[positive], drawn))


def most_with_positive(scores: np.ndarray, positive: int) -> float:
    """The largest gap that any candidates can leave if the relevant document is one: its own loss over all documents.

    >>> round(most_with_positive(np.zeros(8), 0), 4) == round(math.log(8), 4)
    True
    """
    scores = _drawn_from(scores, 1, positive)
    return float(log_sum(scores) - scores[positive])


def sampled_gaps(
    scores: np.ndarray,
    k: int,
    *,
    positive: int | None = None,
    proposal: np.ndarray | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> np.ndarray:
    """(draws,) the gap log Z - log Z_K for candidates that are drawn again and again, each with replacement.

    A positive is one of the K candidates; the others are drawn from all other documents, or by the proposal.

    >>> gaps = sampled_gaps(np.zeros(2000), 64, draws=3)
    >>> [round(float(gap), 2) for gap in gaps]
    [3.44, 3.44, 3.44]
    """
    scores, chance = _drawn_from(scores, k, positive, proposal), np.random.default_rng(seed)
    drawn = _drawn(len(scores), (draws, k - (positive is not None)), positive, proposal, chance)
    candidates = scores[drawn]
    if positive is not None:
        candidates = np.concatenate([np.full((draws, 1), scores[positive]), candidates], 1)
    return float(log_sum(scores)) - log_sum(candidates)


def uniform(documents: int, without: int | None = None) -> np.ndarray:
    """(documents,) the same probability for each, but none for one that is left out.

    >>> uniform(3, without=0).tolist()
    [0.0, 0.5, 0.5]
    """
    likely = np.ones(documents)
    if without is not None:
        likely[without] = 0.0
    return likely / max(1.0, likely.sum())


def _drawn_from(
    scores: np.ndarray, k: int, positive: int | None = None, proposal: np.ndarray | None = None
) -> np.ndarray:
    """The scores of documents, of which k can be drawn, of which one is the positive if there is one."""
    scores = np.asarray(scores, np.float64)
    others = len(scores) - (positive is not None and proposal is None)
    if k < 1 or not len(scores) or (k > 1 and others < 1):
        raise UsageError(
            f"{k} of {len(scores)} documents cannot be drawn", "give at least one, and two with a positive"
        )
    if positive is not None and not 0 <= positive < len(scores):
        raise UsageError(f"positive = {positive} is no row of {len(scores)} scores", "rows are counted from 0")
    return scores


def _drawn(
    documents: int,
    shape: tuple[int, int],
    positive: int | None,
    proposal: np.ndarray | None,
    chance: np.random.Generator,
) -> np.ndarray:
    """The rows of drawn documents; whole numbers are drawn much faster than by probabilities."""
    if proposal is not None:
        return chance.choice(documents, shape, p=_checked(proposal, documents))
    if positive is None:
        return chance.integers(0, documents, shape)
    others = chance.integers(0, max(1, documents - 1), shape)
    return others + (others >= positive)


def _log_mean(scores: np.ndarray, proposal: np.ndarray | None = None) -> float:
    """The log of the mean of exp(score), over all documents or by a proposal."""
    if proposal is None:
        return float(log_sum(scores)) - math.log(len(scores))
    likely = proposal > 0
    return float(log_sum(scores[likely] + np.log(proposal[likely])))


def _checked(proposal: np.ndarray, documents: int) -> np.ndarray:
    proposal = np.asarray(proposal, np.float64)
    if proposal.shape != (documents,) or (proposal < 0).any() or not math.isclose(proposal.sum(), 1.0, abs_tol=1e-6):
        raise UsageError(
            f"a proposal for {documents} documents has shape {proposal.shape} and the sum {proposal.sum():g}",
            "give a probability for each document, one in all",
        )
    return proposal / proposal.sum()
