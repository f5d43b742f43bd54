"""Late interaction: for each token of a query the best of a document's tokens, added up or averaged."""

from __future__ import annotations

import torch
from torch import Tensor


def late_scores(
    queries: Tensor, query_mask: Tensor, documents: Tensor, document_mask: Tensor, *, mean: bool = False
) -> Tensor:
    """(queries, documents): the best score of each query token with a document token, summed, or averaged with `mean`.

    queries (q, length, d) with mask (q, length), documents (n, length, d) with mask (n, length).
    """
    each = torch.einsum("qld,nmd->qnlm", queries, documents)
    best = each.masked_fill(~document_mask.bool()[None, :, None], -torch.inf).amax(3)
    counts = query_mask.bool()[:, None]
    total = torch.where(counts, best, 0.0).sum(2)
    return total / counts.sum(2).clamp(min=1) if mean else total
