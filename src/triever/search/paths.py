"""The probabilities of one docid, symbol by symbol."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from triever.docids.walk import Walk
from triever.models.generator import Cache, Generator, Hidden
from triever.search.scores import Normalisation, child_scores


def path_scores(
    generator: Generator,
    cache: Cache,
    hidden: Hidden,
    walk: Walk,
    docid: Sequence[int],
    normalisation: Normalisation = "trie",
    temperature: float = 1.0,
) -> tuple[list[float], int]:
    """The log-probability of each symbol of a docid after the ones before it, and the number of its documents."""
    state, scores = walk.root(1), []
    for depth, symbol in enumerate(docid):
        children = walk.children(state, depth)
        each = child_scores(generator, hidden, children, normalisation, temperature, above=state)[0]
        at = int(((children.token[0] == symbol) & children.exists[0]).int().argmax())
        scores.append(float(each[at]))
        state = children.state[:, at]
        if depth + 1 < len(docid):
            token = torch.tensor([[symbol]], device=walk.device)
            cache, states = generator.extend(cache, torch.zeros(1, dtype=torch.long, device=walk.device), token)
            hidden = states[:, -1]
    return scores, len(walk.documents(state[0].tolist()))
