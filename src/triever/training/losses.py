"""Losses as plain functions of scores; each is its textbook formula and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def contrastive(scores: Tensor, positive: Tensor, excluded: Tensor | None = None) -> Tensor:
    """Minus the log-probability of each query's positive among all documents of the batch, on average.

    scores (queries, documents); positive (queries,) the place of each one's positive; excluded
    (queries, documents) bool, documents that are no negatives of a query because they are relevant to it.
    """
    if excluded is not None:
        own = functional.one_hot(positive, scores.shape[1]).bool()
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
