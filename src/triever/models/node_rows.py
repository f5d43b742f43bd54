"""A row for every node of a trie: a docid has a row of its own, and a prefix the mean of the rows below it.

A docid weighs mass * exp(scale * query . row), and its probability is its share of what all docids weigh. So a prefix
weighs as much as all docids below it together. That sum is estimated from their number, their masses, their mean and
how far they lie from it, without looking at them: a search reads the rows of the nodes that it passes, and no others.
Nothing is learned for prefixes, so that adding and deleting docids needs no training.
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
    mass: Tensor  # (nodes,) the sum of their masses
    shared: Mapping[int, tuple[Tensor, Tensor]]  # rows and masses of docids that several entries share, by their nodes

    @classmethod
    def of(cls, arrays: Arrays, rows: Tensor, mass: Tensor, alive: np.ndarray | None) -> NodeSums:
        """From the rows (entries, d) and masses (entries,) of a part's entries, of which some may be deleted."""
        living = torch.ones(len(rows), device=rows.device)
        if alive is not None:
            living = torch.from_numpy(np.asarray(alive)).to(living)
        leaf = torch.from_numpy(arrays.leaf_of_entry()).to(rows.device)
        numbers = torch.stack([rows.square().sum(1), torch.ones_like(mass), mass], 1)
        columns = torch.cat([rows, numbers], 1)
        sums = torch.zeros(arrays.nodes, columns.shape[1], device=rows.device)
        sums.index_add_(0, leaf, columns * living[:, None])
        parent = torch.from_numpy(arrays.parent).to(rows.device)
        levels = list(zip(arrays.levels[1:], arrays.levels[2:], strict=False))
        for low, high in reversed(levels):  # from the bottom: a node is the sum of its children
            sums.index_add_(0, parent[low:high], sums[low:high].clone())
        total, (squares, count, mass_below) = sums[:, :-3].contiguous(), sums[:, -3:].T.contiguous()
        several = (torch.from_numpy(arrays.leaf).to(count.device) & (count > 1)).nonzero()[:, 0].tolist()
        entries = ((node, arrays.entries_of(node)) for node in several)
        kept = ((node, rows[at], mass[at], living[at] > 0) for node, at in entries)
        shared = {node: (each[alive_there], masses[alive_there]) for node, each, masses, alive_there in kept}
        return cls(total, squares, count, mass_below, shared)

    def entries_at(self, node: int) -> tuple[Tensor, Tensor]:
        """The rows (entries, d) and masses (entries,) of the docid that ends at a node; none for -1."""
        if node < 0 or self.count[node] == 0:
            return self.total[:0], self.mass[:0]
        return self.shared[node] if node in self.shared else (self.total[node][None], self.mass[node][None])

    def stored(self) -> list[Thing]:
        """What takes memory."""
        shared = (tensor for pair in self.shared.values() for tensor in pair)
        return [self.total, self.squares, self.count, self.mass, *shared]


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
        mean, spread, count, mass = self._summaries(state[:1] if same else state)
        if self.counted is not None and state.shape[1] > 1:  # a single state was read before, as a child
            self.counted.append(int((count > 0).sum()) * (len(state) if same else 1))
        nearness = hidden @ mean[0].T if same else torch.einsum("nd,ncd->nc", hidden, mean)
        sharp = self.scale * self.steering.sharpness
        estimate = sharp * nearness + self.steering.spread * sharp**2 / 2 * spread
        weights = torch.where(count <= 1, self.scale * nearness, estimate) + mass.log()
        self._add_up_shared(weights, hidden, state, count)
        return weights.masked_fill(count == 0, -torch.inf)

    def _add_up_shared(self, weights: Tensor, hidden: Tensor, state: Tensor, count: Tensor) -> None:
        """Replace the estimates of docids that several entries share, which are few, by their sums."""
        if len(self.sums) == 1 and not self.sums[0].shared:
            return
        nodes = [part.node_of(state[..., at]) for at, part in enumerate(self.walk.parts)]
        for prefix, child in (self.walk.ended(state) & (count > 1)).nonzero().tolist():
            each = zip(nodes, self.sums, strict=True)
            entries = [sums.entries_at(int(node[prefix, child])) for node, sums in each]
            rows, mass = (torch.cat(parts) for parts in zip(*entries, strict=True))
            weights[prefix, child] = (self.scale * rows @ hidden[prefix] + mass.log()).logsumexp(0)

    def _summaries(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The mean (n, C, d), spread (n, C), number and mass (n, C) of the rows at and below nodes (n, C, parts)."""
        shape, size = state.shape[:2], self.sums[0].total.shape[1]
        total = torch.zeros(*shape, size, device=state.device)
        squares, count, mass = (torch.zeros(shape, device=state.device) for _ in range(3))
        for at, (sums, part) in enumerate(zip(self.sums, self.walk.parts, strict=True)):
            node = part.node_of(state[..., at])
            here, node = node >= 0, node.clamp(min=0)
            total += torch.where(here[..., None], sums.total[node], 0.0)
            squares += torch.where(here, sums.squares[node], 0.0)
            count += torch.where(here, sums.count[node], 0.0)
            mass += torch.where(here, sums.mass[node], 0.0)
        mean = total.div_(count.clamp(min=1)[..., None])
        spread = (squares / count.clamp(min=1) - mean.square().sum(-1)).clamp(min=0) / size
        return mean, spread, count, mass
