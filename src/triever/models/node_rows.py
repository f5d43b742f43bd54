"""A row for every node of a trie: a docid has a row of its own, and a prefix the mean of the rows below it.

A docid weighs mass * exp(scale * query . row), and its probability is its share of what all docids weigh. So a prefix
weighs as much as all docids below it together. That sum is estimated from their number, their masses, their mean and
how far they lie from it, without looking at them: a search reads the rows of the nodes that it passes, and no others.
Nothing is learned for prefixes, so that adding and deleting docids needs no training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from triever.docids.trie import Arrays
from triever.docids.walk import Walk
from triever.memory_parts import Thing
from triever.models.row_model import log_sums


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
    shared: Tensor  # (shared entries, d) the rows of entries whose docids others have too, docid by docid
    shared_mass: Tensor  # (shared entries,)
    shared_start: Tensor  # (nodes,) int32, where in these the entries of a docid begin that several have

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
        several = torch.from_numpy(arrays.leaf).to(count.device) & (count > 1)
        among = (several[leaf] & (living > 0)).nonzero()[:, 0]
        among = among[leaf[among].argsort(stable=True)]
        lengths = torch.where(several, count, 0).long()
        starts = lengths.cumsum(0) - lengths
        return cls(total, squares, count, mass_below, rows[among], mass[among], starts.to(torch.int32))

    def at(self, node: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The sums of the rows (..., d) and squares, the number and the mass (...) at and below nodes.

        For -1 the last three are zero, and the first is anything.
        """
        here, node = node >= 0, node.clamp(min=0)
        squares, count, mass = (torch.where(here, each[node], 0.0) for each in (self.squares, self.count, self.mass))
        return self.total[node], squares, count, mass

    @cached_property
    def spread(self) -> Tensor:
        """(nodes,) how far the rows below each node lie from their mean."""
        mean = self.total / self.count.clamp(min=1)[:, None]
        return spread_of(self.squares, self.count, mean)

    def summaries(self, node: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The mean (..., d), spread, number and mass (...) of the rows at and below nodes (...)."""
        return summarised(self.total[node], self.squares[node], self.count[node], self.mass[node])

    def entries_at(self, node: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The entries of docids that end at nodes (m,), none for -1: which node each is at, its row and its mass."""
        there = (node >= 0).nonzero()[:, 0]
        count = torch.zeros_like(node).index_put_((there,), self.count[node[there]].long())
        lone, several = (count == 1).nonzero()[:, 0], (count > 1).nonzero()[:, 0]
        lengths = count[several]
        ends = lengths.cumsum(0)
        begin = self.shared_start[node[several]].long() - (ends - lengths)
        entry = begin.repeat_interleave(lengths) + torch.arange(int(lengths.sum()), device=node.device)
        which = torch.cat([lone, several.repeat_interleave(lengths)])
        rows = torch.cat([self.total[node[lone]], self.shared[entry]])
        return which, rows, torch.cat([self.mass[node[lone]], self.shared_mass[entry]])

    def stored(self) -> list[Thing]:
        """What takes memory."""
        of_nodes = [self.total, self.squares, self.count, self.mass, self.spread, self.shared_start]
        return [*of_nodes, self.shared, self.shared_mass]


def summarised(total: Tensor, squares: Tensor, count: Tensor, mass: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The mean (..., d), spread, number and mass (...) of rows, from their sums (..., d) and those of their squares."""
    mean = total / count.clamp(min=1)[..., None]
    return mean, spread_of(squares, count, mean), count, mass


def spread_of(squares: Tensor, count: Tensor, mean: Tensor) -> Tensor:
    """(...) how far rows lie from their mean (..., d), in each direction, from the sum of their squared lengths."""
    return (squares / count.clamp(min=1) - mean.square().sum(-1)).clamp(min=0) / mean.shape[-1]


def node_weights(
    nearness: Tensor, spread: Tensor, count: Tensor, mass: Tensor, scale: float | Tensor, steering: Steering
) -> Tensor:
    """The log of what nodes weigh: of a docid what it weighs, of a prefix an estimate of all below it."""
    sharp = scale * steering.sharpness
    estimate = sharp * nearness + steering.spread * sharp**2 / 2 * spread
    return torch.where(count <= 1, scale * nearness, estimate) + mass.log()


@dataclass
class NodeGenerator:
    """Leads a search by the weights of nodes; it writes no symbols. A state is the vector of a query."""

    read: Callable[[Sequence[str]], Tensor]  # from queries to their vectors (queries, d)
    walk: Walk
    sums: Sequence[NodeSums]  # for each part of the trie
    scale: float
    steering: Steering
    width: int
    temperature: float = 1.0  # by which a search divides what docids weigh
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
        total, spread, count, mass = self._summaries(state[:1] if same else state)
        if self.counted is not None and state.shape[1] > 1:  # a single state was read before, as a child
            self.counted.append(int((count > 0).sum()) * (len(state) if same else 1))
        products = hidden @ total[0].T if same else torch.einsum("nd,ncd->nc", hidden, total)
        weights = node_weights(products / count.clamp(min=1), spread, count, mass, self.scale, self.steering)
        self._add_up_shared(weights, hidden, state, count)
        return weights.masked_fill(count == 0, -torch.inf)

    def _add_up_shared(self, weights: Tensor, hidden: Tensor, state: Tensor, count: Tensor) -> None:
        """Replace the estimates of docids that several entries share by their sums."""
        if len(self.sums) == 1 and not len(self.sums[0].shared):
            return
        prefix, child = (self.walk.ended(state) & (count > 1)).nonzero().T
        nodes = (part.node_of(state[..., at])[prefix, child] for at, part in enumerate(self.walk.parts))
        entries = [sums.entries_at(node) for sums, node in zip(self.sums, nodes, strict=True)]
        which, rows, mass = (torch.cat(parts) for parts in zip(*entries, strict=True))
        weight = self.scale * torch.einsum("ed,ed->e", rows, hidden[prefix[which]]) + mass.log()
        each = weight / self.temperature  # each entry by itself, as if it had a docid of its own
        weights[prefix, child] = self.temperature * log_sums(each[None], which, len(prefix))[0]

    def _summaries(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The sum (n, C, d), spread (n, C), number and mass (n, C) of the rows at and below nodes (n, C, parts)."""
        nodes = [part.node_of(state[..., at]) for at, part in enumerate(self.walk.parts)]
        each = [sums.at(node) for sums, node in zip(self.sums, nodes, strict=True)]
        if len(each) == 1:  # whose spread is known
            [(total, _, count, mass)], [sums], [node] = each, self.sums, nodes
            return total, sums.spread[node.clamp(min=0)], count, mass
        total = torch.stack([torch.where((sums[2] > 0)[..., None], sums[0], 0.0) for sums in each]).sum(0)
        squares, count, mass = (torch.stack(columns).sum(0) for columns in [*zip(*each, strict=True)][1:])
        return total, summarised(total, squares, count, mass)[1], count, mass
