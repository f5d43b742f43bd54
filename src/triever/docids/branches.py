"""The symbols that may follow each prefix of docids, for a loss over those that exist instead of over all symbols."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from triever.docids.trie import Trie


class Branches:
    """`Branches(trie, device)`: a trie as a loss needs it. It knows no documents, and tails have no branches."""

    def __init__(self, trie: Trie, device: str | torch.device = "cpu") -> None:
        main = trie.compact().parts[0]
        token, child = (torch.from_numpy(np.asarray(array, np.int64)) for array in (main.token, main.child))
        parent, self._width = torch.from_numpy(np.asarray(main.parent, np.int64)), int(token.max()) + 1
        # Nodes lie level by level, siblings by their symbols, so these numbers rise: a child is found by bisection.
        self._key = (parent * self._width + token).to(device)
        self._token, self._child = token.to(device), child.to(device)
        degree = child.diff()
        self._slots = int(degree[0]), int(degree[1:].max()) if len(degree) > 1 else 0  # of the root, and below it

    def nodes(self, docids: Tensor) -> Tensor:
        """(rows, length) the node before each symbol of docids (rows, length), or -1 where there is no choice.

        That is so where only one symbol may follow, and behind the end of a docid, where negative numbers stand.
        """
        node, before = torch.zeros_like(docids[:, 0]), []
        for symbol in docids.unbind(1):
            before.append(torch.where(self._degree(node) > 1, node, -1))
            key = node * self._width + symbol
            at = torch.searchsorted(self._key, key).clamp(max=len(self._key) - 1)
            inside = (node >= 0) & (symbol >= 0) & (symbol < self._width) & (self._key[at] == key)
            node = torch.where(inside, at, -1)
        return torch.stack(before, 1)

    def cross_entropy(self, scores: Tensor, symbols: Tensor, nodes: Tensor) -> Tensor:
        """Minus the log-probabilities of symbols (n,) among those that may follow nodes (n,), added up.

        Scores are (n, width), those of all symbols. The root, which may have far more branches, is taken by itself.
        """
        masses = [
            self._masses(scores[group], nodes[group], slots).sum()
            for group, slots in zip((nodes == 0, nodes > 0), self._slots, strict=True)
        ]
        return masses[0] + masses[1] - scores.gather(1, symbols[:, None]).sum()

    def _masses(self, scores: Tensor, nodes: Tensor, slots: int) -> Tensor:
        """(n,) the logs of the sums of exp(score) over the symbols that may follow nodes (n,), at most so many each."""
        slot = torch.arange(slots, device=nodes.device)
        there = slot < self._degree(nodes)[:, None]
        child = torch.where(there, self._child[nodes][:, None] + slot, 0)
        return scores.gather(1, self._token[child]).masked_fill(~there, -torch.inf).logsumexp(1)

    def _degree(self, nodes: Tensor) -> Tensor:
        """How many symbols may follow each node; none after -1."""
        inside = nodes.clamp(min=0)
        return torch.where(nodes < 0, 0, self._child[inside + 1] - self._child[inside])
