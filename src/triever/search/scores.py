"""From a generator's scores to log-probabilities of the symbols that may follow a prefix, in one of two ways.

`vocabulary`: a softmax over all symbols, as in the papers' code; symbols that lead nowhere take a part of the
probability. `trie`: a softmax over the symbols that exist there, so that the probabilities of all documents sum to one.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from triever.docids.walk import Children
from triever.models.generator import Generator, Hidden

Normalisation: TypeAlias = Literal["trie", "vocabulary"]


def child_scores(
    generator: Generator, hidden: Hidden, children: Children, normalisation: Normalisation, temperature: float = 1.0
) -> Tensor:
    """(n, C) the log-probability of each child after prefixes with these states (n, d); -inf in empty slots."""
    if normalisation == "trie":
        logits = generator.logits(hidden, children.token).float() / temperature
        logprobs = logits.masked_fill(~children.exists, -torch.inf).log_softmax(1)
    else:
        logits = generator.logits(hidden).float() / temperature
        logprobs = logits.gather(1, children.token) - logits.logsumexp(1, keepdim=True)
    return torch.where(children.exists, logprobs, -torch.inf)  # where nothing exists, a softmax is not a number
