"""A row for every node of a trie: a docid has a row of its own, and a prefix the mean of the rows below it.

A docid weighs exp(scale * query . row), and its probability is its share of what all docids weigh. So a prefix weighs
as much as all docids below it together. That sum is estimated from their number, their mean and how far they lie from
it, without looking at them: a search reads the rows of the nodes that it passes, and no others. Nothing is learned for
prefixes, so that adding and deleting docids needs no training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from triever.docids.trie import Arrays
from triever.docids.walk import Walk
from triever.memory_parts import Thing


@dataclass(frozen=True)
class Steering:
    """How the weight of a prefix is estimated; docids always weigh what they weigh.

    With both at 1 the estimate is the sum itself, if the rows below a prefix are spread evenly in all directions. A
    search wants the prefix with the nearest docid rather than the heaviest, and rows are spread most where questions
    differ: higher values lead it better.
    """

    sharpness: float = 1.6  # the scale is so many times higher for prefixes
    spread: float = 3.0  # how much the distance of rows from their mean counts


@dataclass(frozen=True)
class NodeSums:
    """For each node of one part of a trie, what its weight is computed from; deleted entries do not count."""

    total: Tensor  # (nodes, d) the sum of the rows below
    squares: Tensor  # (nodes,) the sum of their squared lengths
    count: Tensor  # (nodes,)
    shared: Mapping[int, Tensor]  # the rows of docids that several entries share, by their nodes

    @classmethod
    def of(cls, arrays: Arrays, rows: Tensor, alive: np.ndarray | None) -> NodeSums:
        """From the rows (entries, d) of the entries of a part, in its order, of which some may be deleted."""
        living = torch.ones(len(rows), device=rows.device)
        if alive is not None:
            living = torch.from_numpy(np.asarray(alive)).to(living)
        leaf = torch.from_numpy(arrays.leaf_of_entry()).to(rows.device)
        columns = torch.cat([rows, rows.square().sum(1, keepdim=True), torch.ones_like(rows[:, :1])], 1)
        sums = torch.zeros(arrays.nodes, columns.shape[1], device=rows.device)
        sums.index_add_(0, leaf, columns * living[:, None])
        parent = torch.from_numpy(arrays.parent).to(rows.device)
        levels = list(zip(arrays.levels[1:], arrays.levels[2:], strict=False))
        for low, high in reversed(levels):  # from the bottom: a node is the sum of its children
            sums.index_add_(0, parent[low:high], sums[low:high].clone())
        total, squares, count = sums[:, :-2].contiguous(), sums[:, -2].contiguous(), sums[:, -1].contiguous()
        several = (torch.from_numpy(arrays.leaf).to(count.device) & (count > 1)).nonzero()[:, 0].tolist()
        shared = {node: rows[arrays.entries_of(node)][living[arrays.entries_of(node)] > 0] for node in several}
        return cls(total, squares, count, shared)

    def entry_rows(self, node: int) -> Tensor:
        """(entries, d) the rows of the docid that ends at a node; none for -1."""
        if node < 0 or self.count[node] == 0:
            return self.total[:0]
        return self.shared[node] if node in self.shared else self.total[node][None]

    def stored(self) -> list[Thing]:
        """What takes memory."""
        return [self.total, self.squares, self.count, *self.shared.values()]


@dataclass
class NodeGenerator:
    """Leads a search by the weights of nodes; it writes no symbols. A state is the vector of a query."""

    read: Callable[[Sequence[str]], Tensor]  # from queries to their vectors (queries, d)
    walk: Walk
    sums: Sequence[NodeSums]  # for each part of the trie
    scale: float
    steering: Steering
    width: int
    counted: list[int] | None = None  # how many rows were read, where that is asked for

    def __post_init__(self) -> None:
        self.device = self.walk.device

    def prefill(self, prompts: list[str]) -> tuple[Tensor, Tensor]:
        """The vectors of queries, twice: a prefix changes nothing in what was read."""
        vectors = self.read(prompts)
        return vectors, vectors

    def extend(self, cache: Tensor, parents: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors of the queries of these prefixes."""
        vectors = cache[parents]
        return vectors, vectors[:, None].expand(-1, tokens.shape[1], -1)

    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Symbols have no scores: the same symbol stands for another node in every place."""
        raise NotImplementedError("a generator that weighs nodes has no scores for symbols")

    def weights(self, hidden: Tensor, state: Tensor) -> Tensor:
        """(n, C) the log of the weight of nodes (n, C, parts), for queries (n, d)."""
        same = len(state) > 1 and bool((state == state[:1]).all())  # as at the root: rows are read once for all
        mean, spread, count = self._summaries(state[:1] if same else state)
        if self.counted is not None and state.shape[1] > 1:  # a single state was read before, as a child
            self.counted.append(int((count > 0).sum()) * (len(state) if same else 1))
        nearness = hidden @ mean[0].T if same else torch.einsum("nd,ncd->nc", hidden, mean)
        sharp = self.scale * self.steering.sharpness
        estimate = sharp * nearness + count.clamp(min=1).log() + self.steering.spread * sharp**2 / 2 * spread
        weights = torch.where(count <= 1, self.scale * nearness, estimate)
        self._add_up_shared(weights, hidden, state, count)
        return weights.masked_fill(count == 0, -torch.inf)

    def _add_up_shared(self, weights: Tensor, hidden: Tensor, state: Tensor, count: Tensor) -> None:
        """Replace the estimates of docids that several entries share, which are few, by their sums."""
        if len(self.sums) == 1 and not self.sums[0].shared:
            return
        nodes = [part.node_of(state[..., at]) for at, part in enumerate(self.walk.parts)]
        for prefix, child in (self.walk.ended(state) & (count > 1)).nonzero().tolist():
            each = zip(nodes, self.sums, strict=True)
            rows = torch.cat([sums.entry_rows(int(node[prefix, child])) for node, sums in each])
            weights[prefix, child] = (self.scale * rows @ hidden[prefix]).logsumexp(0)

    def _summaries(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The mean (n, C, d), spread (n, C) and number (n, C) of the rows at and below nodes (n, C, parts)."""
        shape, size = state.shape[:2], self.sums[0].total.shape[1]
        total = torch.zeros(*shape, size, device=state.device)
        squares, count = (torch.zeros(shape, device=state.device) for _ in range(2))
        for at, (sums, part) in enumerate(zip(self.sums, self.walk.parts, strict=True)):
            node = part.node_of(state[..., at])
            here, node = node >= 0, node.clamp(min=0)
            total += torch.where(here[..., None], sums.total[node], 0.0)
            squares += torch.where(here, sums.squares[node], 0.0)
            count += torch.where(here, sums.count[node], 0.0)
        mean = total.div_(count.clamp(min=1)[..., None])
        spread = (squares / count.clamp(min=1) - mean.square().sum(-1)).clamp(min=0) / size
        return mean, spread, count
