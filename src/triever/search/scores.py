"""From a generator's scores to log-probabilities of the symbols that may follow a prefix, in one of three ways.

`vocabulary`: a softmax over all symbols, as in the papers' code; symbols that lead nowhere take a part of the
probability. `trie`: a softmax over the symbols that exist there, so that the probabilities of all documents sum to one.
`documents`, where every node has a row of its own: a softmax over the rows of all docids; the rows of prefixes only
lead the search to them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from triever.docids.walk import Children
from triever.models.generator import Generator, Hidden, Weighing
from triever.models.kernels import log_sum_exp

Normalisation: TypeAlias = Literal["trie", "vocabulary", "documents"]
SCORES = 2**24
"""The most scores of symbols that are computed at once for the rest of docids."""


def child_scores(
    generator: Generator,
    hidden: Hidden,
    children: Children,
    normalisation: Normalisation,
    temperature: float = 1.0,
    *,
    above: Tensor | None = None,
) -> Tensor:
    """(n, C) the log-probability of each child after prefixes with these states (n, d); -inf in empty slots.

    A generator that weighs nodes is also told which nodes the prefixes lead to: `above` (n, parts).
    """
    if isinstance(generator, Weighing):
        assert above is not None  # only searches that know the nodes are given such a generator
        logprobs = _weighed(generator, hidden, children, normalisation, temperature, above)
    elif normalisation == "trie":
        logits = generator.logits(hidden, children.token).float() / temperature
        logprobs = logits.masked_fill(~children.exists, -torch.inf).log_softmax(1)
    else:
        logits = generator.logits(hidden)
        logprobs = logits.gather(1, children.token).float() / temperature
        logprobs = logprobs - log_sum_exp(logits, temperature)[:, None]
    return torch.where(children.exists, logprobs, -torch.inf)  # where nothing exists, a softmax is not a number


def tail_scores(
    generator: Generator, states: Hidden, symbols: Tensor, lengths: Tensor, temperature: float = 1.0
) -> Tensor:
    """(n, t) the log-probabilities over all symbols of those (n, t) that follow states (n, t, d), 0 behind the ends.

    Of each row the first `lengths` (n,) symbols count.
    """
    counts = torch.arange(symbols.shape[1], device=symbols.device) < lengths[:, None]
    # Not for places behind the ends of docids, and some at a time: a vocabulary may be wide.
    each, places = torch.zeros(counts.shape, device=symbols.device), counts.nonzero()
    for piece in places.split(max(1, SCORES // generator.width)):
        at = tuple(piece.T)
        logits = generator.logits(states[at]).float() / temperature
        each[at] = logits.gather(1, symbols[at][:, None])[:, 0] - logits.logsumexp(1)
    return each


def _weighed(
    generator: Weighing,
    hidden: Hidden,
    children: Children,
    normalisation: Normalisation,
    temperature: float,
    above: Tensor,
) -> Tensor:
    """The same by the weights of nodes.

    Under `documents` the scores along a path add up to the weight of its last node less that of the root, whatever the
    nodes between them were estimated to weigh.
    """
    weights = generator.weights(hidden, children.state).masked_fill(~children.exists, -torch.inf) / temperature
    if normalisation == "documents":
        return weights - generator.weights(hidden, above[:, None]) / temperature
    return weights.log_softmax(1)
