"""Losses as plain functions of scores; each is its textbook formula and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def contrastive(
    scores: Tensor, positive: Tensor, excluded: Tensor | None = None, weights: Tensor | None = None
) -> Tensor:
    """Minus the log-probability of each query's positive among all documents of the batch, on average.

    scores (queries, documents); positive (queries,) the place of each one's positive; excluded
    (queries, documents) bool, documents that are no negatives of a query because they are relevant to it;
    weights (queries, documents) how often each negative counts, as if it were in the batch so many times.
    """
    own = functional.one_hot(positive, scores.shape[1]).bool()
    if weights is not None:
        scores = scores.float() + weights.float().log().masked_fill(own, 0.0)
    if excluded is not None:
        scores = scores.masked_fill(excluded & ~own, -torch.inf)
    return functional.cross_entropy(scores.float(), positive)


def listwise(scores: Tensor) -> Tensor:
    """Minus the log-probability of the first candidate of each row (queries, candidates), on average."""
    return contrastive(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))


def late_scores(
    queries: Tensor, query_mask: Tensor, documents: Tensor, document_mask: Tensor, *, mean: bool = False
) -> Tensor:
    """(queries, documents): for each query token the best token of the document, summed, or with `mean` averaged.

    queries (q, length, d) with mask (q, length), documents (n, length, d) with mask (n, length).
    """
    each = torch.einsum("qld,nmd->qnlm", queries, documents)
    best = each.masked_fill(~document_mask.bool()[None, :, None], -torch.inf).amax(3)
    counts = query_mask.bool()[:, None]
    total = torch.where(counts, best, 0.0).sum(2)
    return total / counts.sum(2).clamp(min=1) if mean else total


# Token-level losses: scores (rows, ids) of all ids of a vocabulary, and the ids of each row's own title (rows, most),
# negative where there are no more. Rows without any count nothing.


def matrix_multiple(scores: Tensor, own: Tensor) -> Tensor:
    """All ids of a title together against all ids of the vocabulary."""
    inside = _inside(scores, own)
    there = inside.any(1)
    each = scores.logsumexp(1) - scores.masked_fill(~inside, -torch.inf).logsumexp(1)
    return torch.where(there, each, 0.0).sum() / there.sum().clamp(min=1)


def matrix_single(scores: Tensor, own: Tensor) -> Tensor:
    """Each id of a title by itself against all ids of the vocabulary, its own others included."""
    inside = _inside(scores, own)
    return _mean(scores.logsumexp(1, keepdim=True) - scores, inside)


def batch_single(scores: Tensor, own: Tensor) -> Tensor:
    """Each id of a title by itself against the ids of the other titles of the batch that the title has not."""
    inside = _inside(scores, own)
    others = inside.any(0) & ~inside
    wrong = scores.masked_fill(~others, -torch.inf).logsumexp(1, keepdim=True)
    return _mean(torch.logaddexp(scores, wrong) - scores, inside)


CONTRASTS = {"batch+single": batch_single, "matrix+single": matrix_single, "matrix+multiple": matrix_multiple}
"""The token-level losses by name: what is against, and how many are for."""


def _inside(scores: Tensor, own: Tensor) -> Tensor:
    """(rows, ids) whether an id is one of the row's own."""
    padded = torch.zeros(len(scores), scores.shape[1] + 1, dtype=torch.bool, device=scores.device)
    last = scores.shape[1]  # a place for those that are none
    return padded.scatter(1, torch.where(own >= 0, own, last), True)[:, :last]


def _mean(losses: Tensor, inside: Tensor) -> Tensor:
    """The mean over rows of the mean over a row's own ids."""
    each = losses.masked_fill(~inside, 0.0).sum(1) / inside.sum(1).clamp(min=1)
    return each.sum() / inside.any(1).sum().clamp(min=1)
