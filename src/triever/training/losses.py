"""Losses as plain functions of scores; each is its textbook formula and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

UNKNOWN = -1e9
"""The score of what is not compared: no probability, and no infinity of which a difference could be taken."""


def contrastive(
    scores: Tensor, positive: Tensor, excluded: Tensor | None = None, weights: Tensor | None = None
) -> Tensor:
    """The mean over queries of minus the log-probability of the query's positive among all documents of the batch.

    scores (queries, documents); positive (queries,) the column of each query's positive; excluded
    (queries, documents) bool, documents that are no negatives of a query because they are relevant to it;
    weights (queries, documents) the weight of each negative: 2 counts it as if the batch held it twice.
    """
    is_positive = functional.one_hot(positive, scores.shape[1]).bool()
    if weights is not None:
        scores = scores.float() + weights.float().log().masked_fill(is_positive, 0.0)
    if excluded is not None:
        scores = scores.masked_fill(excluded & ~is_positive, -torch.inf)
    return functional.cross_entropy(scores.float(), positive)


def divergence(scores: Tensor, taught: Tensor) -> Tensor:
    """The mean over queries of the KL divergence of the scores' softmax from a teacher's, over the same candidates.

    scores (queries, candidates); taught (queries, candidates) the logs of a teacher's probabilities, up to a constant
    for each query. Where these are -inf the teacher does not know a candidate, and it is left out of both softmaxes.
    """
    known = taught.isfinite()
    ours, theirs = (each.float().masked_fill(~known, UNKNOWN).log_softmax(1) for each in (scores, taught))
    return torch.where(known, theirs.exp() * (theirs - ours), 0.0).sum(1).mean()


def distillation(scores: Tensor, target: Tensor, compared: Tensor) -> Tensor:
    """The mean over queries of the KL divergence of the scores' softmax from a target distribution.

    scores, target and compared (queries, documents). A document whose target is zero still competes in the softmax;
    one that is not compared does not. No gradient flows into the target. A query without a target counts as zero.
    """
    ours, target = scores.masked_fill(~compared, UNKNOWN).log_softmax(1), target.detach()
    return torch.where(target > 0, target * (target.log() - ours), 0.0).sum(1).mean()


def listwise(scores: Tensor) -> Tensor:
    """The mean over rows (queries, candidates) of minus the log-probability of the first candidate."""
    return contrastive(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))


# Token-level losses: scores (rows, ids) of all ids of a vocabulary, and title_ids (rows, longest), the ids of the title
# of each row, negative behind its end. A row whose title has no ids does not count.


def matrix_multiple(scores: Tensor, title_ids: Tensor) -> Tensor:
    """The ids of a title together, against all ids of the vocabulary."""
    inside = _inside(scores, title_ids)
    there = inside.any(1)
    each = scores.logsumexp(1) - scores.masked_fill(~inside, -torch.inf).logsumexp(1)
    return torch.where(there, each, 0.0).sum() / there.sum().clamp(min=1)


def matrix_single(scores: Tensor, title_ids: Tensor) -> Tensor:
    """Each id of a title by itself, against all ids of the vocabulary, also the other ids of the title."""
    inside = _inside(scores, title_ids)
    return _mean(scores.logsumexp(1, keepdim=True) - scores, inside)


def batch_single(scores: Tensor, title_ids: Tensor) -> Tensor:
    """Each id of a title by itself, against the ids of the batch's other titles that are not in this title."""
    inside = _inside(scores, title_ids)
    negatives = inside.any(0) & ~inside
    wrong = scores.masked_fill(~negatives, -torch.inf).logsumexp(1, keepdim=True)
    return _mean(torch.logaddexp(scores, wrong) - scores, inside)


CONTRASTS = {"batch+single": batch_single, "matrix+single": matrix_single, "matrix+multiple": matrix_multiple}
"""The token-level losses by name: the ids that compete, and whether a title's ids count one by one or together."""


def _inside(scores: Tensor, title_ids: Tensor) -> Tensor:
    """(rows, ids) whether an id is in the title of the row."""
    padded = torch.zeros(len(scores), scores.shape[1] + 1, dtype=torch.bool, device=scores.device)
    last = scores.shape[1]  # a column for the negative ids, which is cut off
    return padded.scatter(1, torch.where(title_ids >= 0, title_ids, last), True)[:, :last]


def _mean(losses: Tensor, inside: Tensor) -> Tensor:
    """The mean over rows of the mean over the ids of the row's title."""
    each = losses.masked_fill(~inside, 0.0).sum(1) / inside.sum(1).clamp(min=1)
    return each.sum() / inside.any(1).sum().clamp(min=1)
