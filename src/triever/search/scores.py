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
from triever.models.generator import Generator

Normalisation: TypeAlias = Literal["trie", "vocabulary"]


def child_scores(
    generator: Generator, hidden: Tensor, children: Children, normalisation: Normalisation, temperature: float = 1.0
) -> Tensor:
    """(n, C) the log-probability of each child after the prefixes of these states (n, d); -inf where there is none."""
    if normalisation == "trie":
        found = generator.logits(hidden, children.token).float() / temperature
        found = found.masked_fill(~children.exists, -torch.inf).log_softmax(1)
    else:
        logits = generator.logits(hidden).float() / temperature
        found = logits.gather(1, children.token) - logits.logsumexp(1, keepdim=True)
    return torch.where(children.exists, found, -torch.inf)  # where nothing exists, a softmax is not a number
