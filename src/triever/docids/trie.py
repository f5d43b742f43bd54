"""The set of valid docids as plain arrays: what may follow a prefix, and which documents lie below it.

Knows nothing about models or text: symbols are numbers, and so are documents. A trie never changes; adding and
deleting give new tries that share the old arrays, and any sequence of them equals a rebuild.

An entry is one (docid, document) pair; a document may have several docids, and a docid may have several documents.
Entries lie in the order of their docids, so that the entries below a node are one slice. There is a node for a prefix
only while at least two entries share it; the remaining symbols of an entry that is alone are its tail. No docid may be
a prefix of another: schemes whose docids vary in length end each of them with a stop symbol, which is then scored like
any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from triever.arrays import places, starts_of
from triever.changes import Changes
from triever.errors import UsageError
from triever.memory_parts import Product, Products, Stored, Thing, scaled, width_of
from triever.validation import INDICES, require, require_array, require_starts, require_within

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer


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

    def take(self, entries: np.ndarray) -> Paths:
        """These entries, in the given order."""
        length = np.diff(self.start)[entries]
        start = starts_of(length)
        return Paths(self.flat[places(self.start[:-1][entries], length)], start, self.document[entries])

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
    width = int(paths.flat.max(initial=0)) + 1
    order = np.argsort(paths.document, kind="stable")  # the entry in each slot
    depth_of = np.zeros(len(paths), np.int64)  # of each slot: how many symbols are in nodes
    slot = np.arange(len(paths))  # slots of entries that still share their prefix
    above = np.zeros(len(paths), np.int64)  # of each such slot: its node so far
    nodes = _Nodes(len(paths))
    depth = 0
    while len(slot):
        entry = order[slot]
        key = above * width + paths.flat[paths.start[entry] + depth]
        by = np.argsort(key, kind="stable")
        order[slot], key = entry[by], key[by]
        depth += 1
        edge = np.flatnonzero(np.diff(key, prepend=-1))
        size = np.diff(edge, append=len(slot))
        made = nodes.add(key[edge] // width, key[edge] % width, slot[edge], size)
        ended = np.add.reduceat((length[order[slot]] == depth).astype(np.int64), edge)
        if ((ended > 0) & (ended < size)).any():
            raise UsageError("a docid is the beginning of another docid", "end every docid with a stop symbol")
        goes_on = np.repeat((size > 1) & (ended == 0), size)
        depth_of[slot[~goes_on]] = depth
        slot, above = slot[goes_on], np.repeat(made, size)[goes_on]
    return nodes.arrays(paths, order, depth_of)


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
            token=_small(token),
            child=_indices(np.searchsorted(parent, np.arange(self._made + 1))),
            first=_indices(first),
            count=_indices(count),
            tail=_small(paths.flat[where]),
            tail_start=_indices(starts_of(tails)),
            document=_indices(paths.document[order]),
        )


def _small(symbols: np.ndarray) -> np.ndarray:
    return symbols.astype(np.uint16 if symbols.max(initial=0) < 2**16 else np.int32)


def _indices(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int32 if values.max(initial=0) < 2**31 else np.int64)


@dataclass(frozen=True)
class TrieShape:
    """The counts that determine a trie's memory: `TrieShape(10**9, nodes=1111, tails=0, width=10, symbols=10**10)`."""

    entries: int
    nodes: int
    tails: int  # symbols in tails
    width: int  # of the vocabulary of docids
    symbols: int  # of all docids

    @classmethod
    def of_random(cls, entries: int, width: int, length: int) -> TrieShape:
        """The expected shape for docids of random symbols."""
        alone = [0.0, *(_alone(entries, float(width) ** depth) for depth in range(1, length + 1))]
        # Entries that were alone one symbol before have no further nodes.
        nodes = (_filled(entries, float(width) ** depth) - alone[depth - 1] for depth in range(1, length + 1))
        tails = ((alone[depth] - alone[depth - 1]) * (length - depth) for depth in range(1, length + 1))
        return cls(entries, 1 + round(sum(nodes)), round(sum(tails)), width, entries * length)

    def among(self, now: int, then: int, *, fixed: bool = False) -> TrieShape:
        """The shape scaled from `now` documents to `then`; with `fixed`, new documents get docids that exist."""
        entries, symbols = (scaled(count, now, then) for count in (self.entries, self.symbols))
        if fixed:
            return TrieShape(entries, self.nodes, self.tails, self.width, symbols)
        nodes = 1 + scaled(self.nodes - 1, now, then)  # there is one root
        return TrieShape(entries, nodes, scaled(self.tails, now, then), self.width, symbols)

    def products(self) -> Products:
        """The sizes of the arrays of a trie."""
        symbol, of_nodes, of_entries, of_tails = self._sizes
        return [
            Product(self.nodes, "nodes", symbol + of_nodes + 2 * of_entries, "symbol, children, first entry, entries"),
            Product(self.entries, "entries", of_tails + of_entries, "tail, document"),
            Product(self.tails, "symbols in tails", symbol),
            Product(1, "end of both", of_nodes + of_tails),
        ]

    def walk_products(self) -> Products:
        """The sizes of the tensors of a Walk, whose symbols have four bytes."""
        _, of_nodes, of_entries, of_tails = self._sizes
        each = 4 + of_nodes + 2 * of_entries + 4
        return [
            Product(self.nodes, "nodes", each, "symbol, children, first entry, entries, whether it ends"),
            Product(self.entries, "entries", of_tails, "tail"),
            Product(self.tails, "symbols in tails", 4),
            Product(1, "end of both", of_nodes + of_tails),
        ]

    def path_products(self, *, ordered: bool = True) -> Products:
        """The sizes of all docids end to end, of the order of their documents, and of the parents of nodes."""
        each = (24, "beginning, document, order") if ordered else (16, "beginning, document")
        return [
            Product(self.symbols, "symbols", 8),
            Product(self.entries, "entries", *each),
            Product(self.nodes, "nodes", 8, "parent"),
            Product(1, "end", 8),
        ]

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        """The bytes of a symbol, and of the number of a node, of an entry and of a position in the tails."""
        return 2 if self.width <= 2**16 else 4, width_of(self.nodes), width_of(self.entries), width_of(self.tails)


def _filled(entries: int, places: float) -> float:
    """The expected number of occupied places, if each entry takes a random one."""
    return float(-places * np.expm1(entries * np.log1p(-1 / places))) if places > 1 else float(entries > 0)


def _alone(entries: int, places: float) -> float:
    """The expected number of entries that are alone in their place."""
    return float(entries * np.exp((entries - 1) * np.log1p(-1 / places))) if places > 1 else float(entries == 1)


class Trie:
    """Docids that exist: `Trie.of([((3, 1), 0), ((3, 2), 1)])`, each with the number of its document."""

    def __init__(self, parts: tuple[Arrays, ...], changes: Changes) -> None:
        self.parts = parts  # the main part, and perhaps an annex of what was added since
        self.changes = changes  # its slots are the entries of both parts

    @classmethod
    def of(cls, pairs: Iterable[tuple[Sequence[int], int]] | Paths) -> Trie:
        """From (docid, document) pairs."""
        return cls._whole(build(pairs if isinstance(pairs, Paths) else Paths.of(pairs)))

    @classmethod
    def _whole(cls, arrays: Arrays) -> Trie:
        return cls((arrays,), Changes(arrays.entries))

    def __len__(self) -> int:
        return len(self.changes)

    @property
    def alive(self) -> tuple[np.ndarray | None, ...]:
        """For each part: (entries,) bool, or None while none of it is deleted."""
        return self.changes.masks[: len(self.parts)]

    @property
    def bytes(self) -> int:
        """The bytes of all arrays."""
        return sum(mask.nbytes for mask in self.changes.arrays()) + sum(part.bytes for part in self.parts)

    def stored(self) -> Stored:
        """What takes memory: the main part, and the changes since it was built."""
        changes: list[Thing] = [*self.changes.arrays(), *(array for part in self.parts[1:] for array in part.arrays())]
        return {"trie": [*self.parts[0].arrays()], "changes": changes}

    def shape(self, width: int) -> TrieShape:
        """The numbers that determine the memory of the main part; its symbols are below `width`."""
        main = self.parts[0]
        depth = np.searchsorted(main.levels, np.arange(main.nodes), side="right") - 1  # of each node
        symbols = int((main.count[main.leaf] * depth[main.leaf]).sum(dtype=np.int64)) + len(main.tail)
        return TrieShape(main.entries, main.nodes, len(main.tail), width, symbols)

    def items(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """The (docid, document) pairs, in the order of the docids."""
        paths = self.paths()
        listed = (tuple(docid.tolist()) for docid in np.split(paths.flat, paths.start[1:-1]))
        yield from zip(listed, paths.document.tolist(), strict=False)

    def paths(self) -> Paths:
        """The living entries, as a rebuild would take them."""
        living = [_alive_paths(part, alive) for part, alive in zip(self.parts, self.alive, strict=True)]
        return living[0] if len(living) == 1 else build(living[0].joined(living[1])).paths()

    def with_added(self, pairs: Iterable[tuple[Sequence[int], int]]) -> Trie:
        """A trie with these pairs too. The main part stays unchanged until the annex has grown."""
        new = Paths.of(pairs)
        if not len(new):
            return self
        beside = _alive_paths(self.parts[1], self.alive[1]).joined(new) if len(self.parts) > 1 else new
        main, alive = self.parts[0], self.alive[0]
        changes = Changes(main.entries, alive=alive).added(len(beside))
        if changes.due:
            return Trie.of(_alive_paths(main, alive).joined(beside))
        trie = Trie((main, build(beside)), changes)
        trie.refuse_prefixes()
        return trie

    def without(self, documents: Iterable[int]) -> Trie:
        """A trie without these documents. It is rebuilt when less than half of the entries are left."""
        gone = np.fromiter(set(documents), np.int64)
        stays = np.concatenate([~np.isin(part.document, gone) for part in self.parts])
        trie = Trie(self.parts, self.changes.kept(self.changes.living(stays)))
        return Trie.of(trie.paths()) if trie.changes.due else trie

    def refuse_prefixes(self) -> None:
        """Raise an error if a docid of one part is a prefix of a docid of the other."""
        if len(self.parts) > 1:
            main, annex = self.parts
            for docid in np.split(*_split_at(annex.paths())):
                _refuse_if_inside(main, docid)

    def symbols(self) -> np.ndarray:
        """All symbols of the docids, sorted."""
        return np.unique(np.concatenate([array for part in self.parts for array in (part.token[1:], part.tail)]))

    def ends_with(self, stop: int) -> bool:
        """Whether every docid has this symbol at its end, and nowhere else."""
        return all(_ends_with(part, stop) for part in self.parts)

    def info(self) -> dict[str, float | list[int]]:
        """Counts of docids, documents, nodes and bytes, and measures of depth and branching."""
        paths = self.paths()
        length = np.diff(paths.start)
        main = self.parts[0]
        degree = np.diff(main.child)
        inner = degree[degree > 0]
        docids = len({docid for docid, _ in self.items()})
        return {
            "docids": docids,
            "documents": len(np.unique(paths.document)),
            "shared docids": len(paths) - docids,
            "shortest": int(length.min()) if len(length) else 0,
            "longest": int(length.max(initial=0)),
            "mean length": round(float(length.mean()), 2) if len(length) else 0.0,
            "nodes": sum(part.nodes for part in self.parts),
            "mean branching": round(float(inner.mean()), 2) if len(inner) else 0.0,
            "widest": main.widest,
            "bytes": self.bytes,
        }

    def compact(self) -> Trie:
        """The same trie as one part, without deleted entries."""
        return self if self.changes.none else Trie.of(self.paths())

    def write(self, writer: Writer) -> None:
        """Write the arrays into an artifact, as one part, without deleted entries."""
        main = self.compact().parts[0]
        for field in fields(Arrays):
            writer.array(f"trie_{field.name}", getattr(main, field.name))

    @classmethod
    def read(cls, snapshot: Snapshot, width: int, documents: np.ndarray) -> Trie:
        """Read the arrays from an artifact, memory-mapped; a ValueError if they are no trie.

        Its symbols must be below `width`, and its documents must be exactly these numbers, which are sorted.
        """
        arrays = Arrays(**{field.name: snapshot.array(f"trie_{field.name}") for field in fields(Arrays)})
        _require_tree(arrays, width)
        _require_entries(arrays, documents)
        return cls._whole(arrays)


def _require_tree(arrays: Arrays, width: int) -> None:
    """Raise a ValueError unless the nodes form one tree, level by level, with sorted symbols of siblings."""
    symbols = "uint16", "int32"
    for array, name in ((arrays.token, "trie_token"), (arrays.tail, "trie_tail")):
        require_within(require_array(array, name, symbols, (None,)), name, 0, width)
    nodes, child = arrays.nodes, arrays.child
    require(nodes > 0, "the trie has no root")
    require_array(child, "trie_child", INDICES, (nodes + 1,))
    # Children lie behind their parents, and each node but the root is the child of one: there is no circle.
    whole = child[0] == 1 and child[-1] == nodes and (child[1:] >= child[:-1]).all()
    require(whole and (child[:-1] > np.arange(nodes)).all(), "the nodes of the trie are no tree")
    eldest = np.zeros(nodes + 1, bool)
    eldest[child] = True  # the first child of each node, and what follows the last
    rises = arrays.token[1:-1] < arrays.token[2:]
    require((rises | eldest[2:-1]).all(), "the symbols of a node's children do not rise")


def _require_entries(arrays: Arrays, documents: np.ndarray) -> None:
    """Raise a ValueError unless every node has the entries of its children, and every document an entry."""
    nodes, entries, child = arrays.nodes, arrays.entries, arrays.child
    document = require_array(arrays.document, "trie_document", INDICES, (None,))
    first, count = (
        require_array(array, name, INDICES, (nodes,))
        for array, name in ((arrays.first, "trie_first"), (arrays.count, "trie_count"))
    )
    require_starts(arrays.tail_start, "trie_tail_start", entries, len(arrays.tail))
    minimum = min(1, entries)  # only the root of an empty trie has nothing below it
    require_within(first, "trie_first", 0, entries + 1)
    require_within(count, "trie_count", minimum, entries + 1)
    end = first.astype(np.int64) + count
    inner = np.flatnonzero(child[1:] > child[:-1])
    meets = (first[child[inner]] == first[inner]).all() and (end[child[inner + 1] - 1] == end[inner]).all()
    eldest = np.zeros(nodes + 1, bool)
    eldest[child] = True
    follows = (first[2:] == end[1:-1]) | eldest[2:-1]
    require(first[0] == 0 and end[0] == entries and meets and follows.all(), "the entries of the trie are not in order")
    _require_leaves(arrays, np.flatnonzero(child[1:] == child[:-1]))
    rows = np.searchsorted(documents, document)
    inside = rows < len(documents)
    require(inside.all() and (documents[rows] == document).all(), "the trie has a document that is not there")
    in_trie = np.zeros(len(documents), bool)
    in_trie[rows] = True
    require(in_trie.all(), "a document is not in the trie")


def _require_leaves(arrays: Arrays, leaves: np.ndarray) -> None:
    """Raise a ValueError unless the entries of one leaf end there, and their documents are sorted."""
    several = leaves[arrays.count[leaves] > 1]
    entry = places(arrays.first[several].astype(np.int64), arrays.count[several].astype(np.int64))
    tails = arrays.tail_start[entry + 1] - arrays.tail_start[entry]
    require(not tails.any(), "a docid of the trie is the beginning of another")
    last = np.cumsum(arrays.count[several], dtype=np.int64) - 1
    rises = arrays.document[entry][:-1] < arrays.document[entry][1:]
    rises[last[:-1]] = True
    require(rises.all(), "a document is twice under one docid")


def _ends_with(part: Arrays, stop: int) -> bool:
    stops = np.flatnonzero(part.tail == stop)
    last = part.tail_start[1:][np.diff(part.tail_start) > 0] - 1
    return np.array_equal(stops, last) and np.array_equal(part.token[1:] == stop, part.end[1:])


def _alive_paths(part: Arrays, alive: np.ndarray | None) -> Paths:
    return part.paths() if alive is None else part.paths().take(np.flatnonzero(alive))


def _split_at(paths: Paths) -> tuple[np.ndarray, np.ndarray]:
    return paths.flat, paths.start[1:-1]


def _refuse_if_inside(part: Arrays, docid: np.ndarray) -> None:
    """Raise an error if a docid is a prefix of a docid in the part, or the other way round."""
    node = 0
    for depth, symbol in enumerate(docid):
        low, high = part.child[node], part.child[node + 1]
        if low == high:
            return _refuse_tail(part, node, docid[depth:])
        at = low + np.searchsorted(part.token[low:high], symbol)
        if at == high or part.token[at] != symbol:
            return None
        node = at
    return _refuse_tail(part, node, docid[len(docid) :]) if part.child[node] == part.child[node + 1] else _prefix()


def _refuse_tail(part: Arrays, node: int, rest: np.ndarray) -> None:
    entry = part.first[node]
    tail = part.tail[part.tail_start[entry] : part.tail_start[entry + 1]]
    common = min(len(tail), len(rest))
    if len(tail) != len(rest) and (tail[:common] == rest[:common]).all():
        _prefix()


def _prefix() -> None:
    raise UsageError("a docid is the beginning of another docid", "end every docid with a stop symbol")
