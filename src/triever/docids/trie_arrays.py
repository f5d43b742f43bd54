"""The arrays of a trie, and how they are built from docids in memory: see `docids.trie` for what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from triever.arrays import places, starts_of
from triever.errors import UsageError


@dataclass(frozen=True)
class Paths:
    """Docids laid end to end: that of entry i is flat[start[i]:start[i + 1]]."""

    flat: np.ndarray  # (symbols,)
    start: np.ndarray  # (entries + 1,)
    document: np.ndarray  # (entries,)

    @classmethod
    def of(cls, pairs: Iterable[tuple[Sequence[int], int]]) -> Paths:
        """From (docid, document) pairs."""
        listed = list(pairs)
        start = np.zeros(len(listed) + 1, np.int64)
        np.cumsum([len(docid) for docid, _ in listed], out=start[1:])
        flat = np.fromiter((symbol for docid, _ in listed for symbol in docid), np.int64, count=int(start[-1]))
        return cls(flat, start, np.array([document for _, document in listed], np.int64))

    def __len__(self) -> int:
        return len(self.document)

    @cached_property
    def width(self) -> int:
        """One more than the largest symbol."""
        return int(self.flat.max(initial=0)) + 1

    def take(self, entries: np.ndarray) -> Paths:
        """These entries, in the given order."""
        length = np.diff(self.start)
        if len(length) and (length == length[0]).all():  # as those of codebooks are
            flat = self.flat.reshape(len(self), -1)[entries].reshape(-1)
            return Paths(flat, length[0] * np.arange(len(entries) + 1), self.document[entries])
        length = length[entries]
        start = starts_of(length)
        return Paths(self.flat[places(self.start[:-1][entries], length)], start, self.document[entries])

    def at(self, entries: np.ndarray) -> list[tuple[int, ...]]:
        """The docids of these entries.

        >>> Paths.of([((3, 1), 0), ((2,), 1)]).at(np.array([1, 0]))
        [(2,), (3, 1)]
        """
        begins, ends = self.start[entries].tolist(), self.start[entries + 1].tolist()
        return [tuple(self.flat[begin:end].tolist()) for begin, end in zip(begins, ends, strict=True)]

    def joined(self, other: Paths) -> Paths:
        """These entries and then those of `other`."""
        start = np.concatenate([self.start, self.start[-1] + other.start[1:]])
        both = [(self.flat, other.flat), (self.document, other.document)]
        flat, document = (np.concatenate(pair) for pair in both)
        return Paths(flat, start, document)


@dataclass(frozen=True)
class Arrays:
    """One part of a trie. Nodes are numbered level by level from the root, 0; siblings by their symbols."""

    token: np.ndarray  # (nodes,) the symbol that leads to the node; 0 for the root
    child: np.ndarray  # (nodes + 1,) the children of node v are child[v] .. child[v + 1]
    first: np.ndarray  # (nodes,) the first entry below
    count: np.ndarray  # (nodes,) how many entries are below
    tail: np.ndarray  # (tail symbols,)
    tail_start: np.ndarray  # (entries + 1,) the tail of entry e is tail[tail_start[e]:tail_start[e + 1]]
    document: np.ndarray  # (entries,)

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.token)

    @property
    def entries(self) -> int:
        """The number of (docid, document) pairs."""
        return len(self.document)

    @property
    def bytes(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays())

    def arrays(self) -> list[np.ndarray]:
        """The stored arrays; all others follow from them."""
        return [getattr(self, field.name) for field in fields(self)]

    @cached_property
    def levels(self) -> list[int]:
        """The first node of each level, and last the number of nodes."""
        starts = [0, 1]
        while starts[-1] < self.nodes:
            starts.append(int(self.child[starts[-1]]))
        return starts if starts[-1] == self.nodes else [*starts, self.nodes]

    @cached_property
    def widest(self) -> list[int]:
        """The largest number of children at each level; below the last level, tails have one."""
        degree = np.diff(self.child)
        bounds = zip(self.levels, self.levels[1:], strict=False)
        return [max(1, int(degree[low:high].max(initial=0))) for low, high in bounds]

    @cached_property
    def leaf(self) -> np.ndarray:
        """(nodes,) bool, whether nothing branches below."""
        return np.diff(self.child) == 0

    @cached_property
    def end(self) -> np.ndarray:
        """(nodes,) bool, whether a docid ends there: a leaf without a tail."""
        end = self.leaf.copy()
        entry = np.asarray(self.first)[end]
        inside = entry < self.entries  # the root of an empty trie has no entry
        end[end] = inside & (self.tail_start[np.minimum(entry + 1, self.entries)] == self.tail_start[entry])
        return end

    @cached_property
    def parent(self) -> np.ndarray:
        """(nodes,) the parent of each node, -1 for the root."""
        return np.concatenate([[-1], np.repeat(np.arange(self.nodes), np.diff(self.child))])

    @cached_property
    def longest(self) -> int:
        """The length of the longest docid."""
        depth = np.searchsorted(self.levels, self.leaf_of_entry(), side="right") - 1
        return int((depth + np.diff(self.tail_start)).max(initial=0))

    def paths(self) -> Paths:
        """The docids, in order."""
        node = self.leaf_of_entry()
        depth = (np.searchsorted(self.levels, np.arange(self.nodes), side="right") - 1)[node]
        tails = np.diff(self.tail_start)
        start = starts_of(depth + tails)
        flat = np.empty(start[-1], np.int64)
        flat[places(start[:-1] + depth, tails)] = self.tail
        position = start[:-1] + depth
        while (above := node > 0).any():
            position[above] -= 1
            flat[position[above]] = self.token[node[above]]
            node = np.where(above, self.parent[node], 0)
        return Paths(flat, start, np.asarray(self.document, np.int64))

    def entries_of(self, node: int) -> slice:
        """The entries below a node."""
        return slice(int(self.first[node]), int(self.first[node]) + int(self.count[node]))

    def leaf_of_entry(self) -> np.ndarray:
        """(entries,) the node that each entry lies at."""
        leaves = np.flatnonzero(np.diff(self.child) == 0)
        node = np.zeros(self.entries, np.int64)
        node[places(self.first[leaves], self.count[leaves])] = np.repeat(leaves, self.count[leaves])
        return node


def build(paths: Paths) -> Arrays:
    """The arrays of a set of docids, made level by level; entries that are alone leave after their level."""
    length = np.diff(paths.start)
    if len(paths) and length.min() < 1:
        raise UsageError("a docid is empty", "give every document at least one symbol")
    width = paths.width
    paths = _in_order(paths, length, width)
    length = np.diff(paths.start)
    order = np.arange(len(paths))  # the entry in each slot
    depth_of = np.zeros(len(paths), np.int64)  # of each slot: how many symbols are in nodes
    slot = np.arange(len(paths))  # slots of entries that still share their prefix
    above = np.zeros(len(paths), np.int64)  # of each such slot: its node so far
    nodes = _Nodes(len(paths))
    depth = 0
    while len(slot):
        entry = order[slot]
        key = above * width + paths.flat[paths.start[entry] + depth]
        if not (key[1:] >= key[:-1]).all():
            by, key = _sorted(key)
            entry = entry[by]
            order[slot] = entry
        depth += 1
        edge = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        size = np.diff(edge, append=len(slot))
        made = nodes.add(key[edge] // width, key[edge] % width, slot[edge], size)
        ended = np.add.reduceat(length[entry] == depth, edge, dtype=np.int64)
        if ((ended > 0) & (ended < size)).any():
            raise UsageError("a docid is the beginning of another docid", "end every docid with a stop symbol")
        goes_on = np.repeat((size > 1) & (ended == 0), size)
        depth_of[slot[~goes_on]] = depth
        slot, above = slot[goes_on], np.repeat(made, size)[goes_on]
    return nodes.arrays(paths, order, depth_of)


def _in_order(paths: Paths, length: np.ndarray, width: int) -> Paths:
    """The entries by as many of their first symbols as fit into one number, and those that agree by document.

    What follows reads them from one end to the other, which takes a third of the time.
    """
    if not len(paths):
        return paths
    document = paths.document
    if not (document[1:] >= document[:-1]).all():
        paths = paths.take(np.argsort(document, kind="stable"))
        length = np.diff(paths.start)
    room = 63 - (len(paths) - 1).bit_length()
    symbols = min(int(length.max()), room // max(1, width.bit_length()))  # one more than a symbol stands for an end
    key = np.zeros(len(paths), np.int64)
    for at in range(symbols):
        there = length > at
        key *= width + 1
        if there.all():
            key += paths.flat[paths.start[:-1] + at] + np.int64(1)
        else:
            key[there] += paths.flat[paths.start[:-1][there] + at] + np.int64(1)
    return paths if (key[1:] >= key[:-1]).all() else paths.take(_sorted(key)[0])


def _sorted(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order in which keys (n,) rise, equal ones as they were, and the keys in this order.

    Where key and position fit into one number, sorting these numbers takes a tenth of the time of a stable argsort.
    """
    bits = (len(key) - 1).bit_length()
    if int(key.max()) >= 2 ** (63 - bits):
        by = np.argsort(key, kind="stable")
        return by, key[by]
    packed = np.sort(key << bits | np.arange(len(key)))
    return packed & (2**bits - 1), packed >> bits


class _Nodes:
    """Nodes as they are made, level by level, as columns."""

    def __init__(self, entries: int) -> None:
        self._columns: list[list[np.ndarray]] = [[], [], [], []]  # parent, token, first, count
        self._made = 0
        self.add(np.array([-1]), np.array([0]), np.array([0]), np.array([entries]))

    def add(self, *columns: np.ndarray) -> np.ndarray:
        """The numbers of the new nodes."""
        for column, values in zip(self._columns, columns, strict=True):
            column.append(values)
        self._made += len(columns[0])
        return np.arange(self._made - len(columns[0]), self._made)

    def arrays(self, paths: Paths, order: np.ndarray, depth_of: np.ndarray) -> Arrays:
        parent, token, first, count = (np.concatenate(column) for column in self._columns)
        tails = np.diff(paths.start)[order] - depth_of
        where = places(paths.start[:-1][order] + depth_of, tails)
        return Arrays(
            token=token.astype(symbol_type(paths.width)),
            child=_indices(np.searchsorted(parent, np.arange(self._made + 1))),
            first=_indices(first),
            count=_indices(count),
            tail=paths.flat[where].astype(symbol_type(paths.width)),
            tail_start=_indices(starts_of(tails)),
            document=_indices(paths.document[order]),
        )


def symbol_type(width: int) -> type[np.integer]:
    """The type of symbols below `width`: one, two or four bytes."""
    return np.uint8 if width <= 2**8 else np.uint16 if width <= 2**16 else np.int32


def index_type(largest: int) -> type[np.integer]:
    """The type of numbers up to `largest`: four bytes, or eight."""
    return np.int32 if largest < 2**31 else np.int64


def _indices(values: np.ndarray) -> np.ndarray:
    return values.astype(index_type(int(values.max(initial=0))))
