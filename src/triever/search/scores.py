"""From a generator's scores to log-probabilities of what may follow a prefix, in one of two ways.

`vocabulary`: a softmax over all symbols, as the papers' code does; what is lost on symbols that lead
nowhere is lost. `trie`: a softmax over the symbols that exist there, so that the probabilities of all
documents sum to one.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from triever.docids.walk import Children

Normalisation: TypeAlias = Literal["trie", "vocabulary"]


def log_probabilities(logits: Tensor, children: Children, normalisation: Normalisation) -> Tensor:
    """(n, C) of each child, -inf where there is none, from logits (n, width)."""
    found = logits.float().gather(1, children.token)
    masked = found.masked_fill(~children.exists, -torch.inf)
    over = masked if normalisation == "trie" else logits.float()
    total = over.logsumexp(1, keepdim=True)
    return torch.where(children.exists, masked - total, -torch.inf)
