"""Vectors of documents in the order of a trie: the vectors of all documents below a node are one slice.

Every entry of the trie has the vector of its document, so that a document with several docids has several copies.
Arrays may be mapped from disk. TrieVectors never change: a change gives new ones, which share the arrays of the
unchanged parts of the trie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from triever.arrays import starts_of
from triever.artifact import Snapshot, Writer
from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.index.top import CHUNK
from triever.index.vectors import Vectors, checked
from triever.memory_parts import Product, Products, Stored
from triever.validation import FLOATS, require_array, require_finite

NAME = "trie_vectors"
ENTRIES, DOCUMENTS = "trie_entries", "trie_documents"
"""What a shard has besides vectors: which entry of the trie each belongs to, and which row of all."""
BLOCK = 2**16
"""How many vectors of a slice are compared at once: a slice may be the whole corpus, and larger than memory."""
LINES = 2**22
"""How many lines of queries are held at once, unless one query has more; if few of them are kept, CHUNK products."""

Spans = Sequence[tuple[int, slice]]
"""Entries of the trie: the part, and a slice of it."""


@dataclass(frozen=True)
class PrefixEntries:
    """The entries below the prefixes of one query: a line for each entry of the trie below each prefix."""

    numbers: np.ndarray  # (lines,) of the documents
    products: np.ndarray  # (lines,) inner products of their vectors with the query
    places: np.ndarray  # (lines,) the numbers of the prefixes of the query
    entries: np.ndarray  # (lines,) of the trie, all its parts end to end
    last: np.ndarray  # (lines,) bool: entries after it were left out, none with a greater product


_NOTHING = PrefixEntries(*(np.empty(0, dtype) for dtype in (np.int64, np.float32, np.int64, np.int64, bool)))


class Slices(Protocol):
    """The vectors of the entries of one part of a trie, read slice by slice."""

    @property
    def device(self) -> torch.device:
        """Where they are compared."""
        ...

    def read(self, span: slice) -> Tensor:
        """(n, d) the vectors of a slice of the entries, on the device."""
        ...


@dataclass(frozen=True, eq=False)
class LookedUp:
    """Vectors that lie in another order: entry i of a part of a trie has vectors[rows[i]]."""

    vectors: Vectors
    rows: np.ndarray  # (entries,)

    @property
    def device(self) -> torch.device:
        """Where they are compared."""
        return self.vectors.device

    def read(self, span: slice) -> Tensor:
        """(n, d) the vectors of a slice of the entries, on the device."""
        held = self.vectors.tensor
        rows = torch.from_numpy(self.rows[span]).to(held.device)
        return held[rows].to(self.device, torch.float32)


@dataclass(frozen=True, eq=False)
class EntryVectors:
    """What queries are compared with below prefixes: for each part of a trie one vector for each entry."""

    trie: Trie
    parts: tuple[Slices, ...]

    def below(
        self,
        walk: Walk,
        queries: Tensor,
        states: Sequence[Sequence[Sequence[int]]],
        limit: int | None = None,
        always: np.ndarray | None = None,
    ) -> Iterator[PrefixEntries]:
        """The entries below the prefixes of each query (q, d); prefixes are states of a walk over the trie.

        With `limit`, only this many entries of each slice are kept, those with the greatest products, in addition to
        those that are `always` kept (entries,) bool. Queries with a prefix in common are compared with its slice
        together, as many of them as can be held at once.
        """
        unlike = {tuple(state) for prefixes in states for state in prefixes}
        spans = {state: [*_blocks(walk.spans(state))] for state in unlike}
        wanted = Wanted(limit, always)
        held = {state: wanted.held(of) for state, of in spans.items()}
        sizes = [_together_held(held[tuple(state)] for state in prefixes) for prefixes in states]
        for group in _groups(sizes, LINES if wanted.few is None else CHUNK):
            part = slice(group.start, group.stop)
            yield from self._together(queries[part], states[part], spans, wanted)

    def _together(
        self,
        queries: Tensor,
        states: Sequence[Sequence[Sequence[int]]],
        spans: Mapping[tuple[int, ...], Spans],
        wanted: Wanted,
    ) -> list[PrefixEntries]:
        looking: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        for query, prefixes in enumerate(states):
            for prefix, state in enumerate(prefixes):
                looking[tuple(state)].append((query, prefix))
        lookers = {state: np.array(pairs) for state, pairs in looking.items()}
        looks = [Look(lookers[state], at, span) for state in looking for at, span in spans[state]]
        return self._by_query(self.looked(queries, looks, wanted), len(states))

    def looked(self, queries: Tensor, looks: Sequence[Look], wanted: Wanted) -> list[Selected]:
        """What queries (q, d) find that look into slices."""
        selected = []
        for look in looks:
            asked = queries[torch.from_numpy(look.who[:, 0]).to(queries.device)]
            selected += [Selected(look.who, *own) for own in self._slice(look.at, look.span, asked, wanted)]
        return selected

    def _slice(self, at: int, span: slice, queries: Tensor, wanted: Wanted) -> Iterator[tuple[Tensor, Tensor, bool]]:
        """The wanted entries of a slice for queries (q, d), in parts: entries, products (q, n), and whether more exist.

        If more exist, the smallest product is the last.
        """
        held, alive = self.parts[at], self.trie.alive[at]
        products = queries.to(held.device, torch.float32) @ held.read(span).T
        entries = torch.arange(span.start, span.stop, device=held.device) + int(self._first[at])
        if alive is not None:
            entries, products = _chosen(alive[span], entries, products)
        always = None if wanted.always is None else wanted.always[entries.cpu().numpy()]
        yield from best_entries(entries, products, wanted.limit, always)

    def _by_query(self, slices: Sequence[Selected], queries: int) -> list[PrefixEntries]:
        """The lines of all slices by query, made for all queries at once, since slices are many and small."""
        if not slices:
            return [_NOTHING] * queries
        lookers, width = np.array([part.products.shape for part in slices]).T
        who = np.concatenate([part.who for part in slices])
        each = np.repeat(width, lookers)  # lines of each query in each slice
        more = np.repeat([part.more for part in slices], lookers)
        last = np.zeros(each.sum(), bool)
        last[each.cumsum()[more & (each > 0)] - 1] = True
        entries = torch.cat([part.entries.flatten() for part in slices]).cpu().numpy()
        products = torch.cat([part.products.flatten() for part in slices]).cpu().numpy()
        query, places = np.repeat(who, each, axis=0).T
        order = query.argsort(kind="stable")
        columns = (self._documents_of(entries), products, places, entries, last)
        ends = np.bincount(query, minlength=queries).cumsum()[:-1]
        return [
            PrefixEntries(*part) for part in zip(*(np.split(column[order], ends) for column in columns), strict=True)
        ]

    def _documents_of(self, entries: np.ndarray) -> np.ndarray:
        """(n,) the documents of entries (n,), which are counted through all parts."""
        numbers = np.empty(len(entries), np.int64)
        for part, first, end in zip(self.trie.parts, self._first, self._first[1:], strict=False):
            inside = (entries >= first) & (entries < end)
            numbers[inside] = part.document[entries[inside] - first]
        return numbers

    @cached_property
    def several(self) -> np.ndarray:
        """(entries of all parts,) bool: whether the document has several docids."""
        _, number, counts = np.unique(self._documents(), return_inverse=True, return_counts=True)
        return (counts > 1)[number]

    @cached_property
    def _first(self) -> np.ndarray:
        """(parts + 1,) the first entry of each part."""
        return starts_of([part.entries for part in self.trie.parts])

    def _documents(self) -> np.ndarray:
        """(entries of all parts,) the document of each living entry, else -1: numbers of deleted ones are reused."""
        documents = [
            np.asarray(part.document, np.int64) if alive is None else np.where(alive, part.document, -1)
            for part, alive in zip(self.trie.parts, self.trie.alive, strict=True)
        ]
        return np.concatenate(documents)


@dataclass(frozen=True, eq=False)
class TrieVectors(EntryVectors):
    """`TrieVectors.of(trie, numbers, vectors)`: document numbers[i] has vectors[i], and numbers rise."""

    parts: tuple[Vectors, ...]  # for each part of the trie one vector for each entry

    @classmethod
    def of(
        cls, trie: Trie, numbers: np.ndarray, vectors: np.ndarray, device: str | torch.device = "cpu"
    ) -> TrieVectors:
        """The vectors (documents, d) in the order of a trie."""
        array, where = checked(vectors, vectors.dtype.name), torch.device(device)
        rows = (np.searchsorted(numbers, part.document) for part in trie.parts)
        return cls(trie, tuple(Vectors(array[part_rows], where) for part_rows in rows))

    @property
    def bytes(self) -> int:
        """The bytes of all vectors."""
        return sum(part.array.nbytes for part in self.parts)

    def stored(self) -> Stored:
        """What takes memory: the vectors of the main part, and those added later."""
        return {"cluster vectors": [self.parts[0].array], "changes": [part.array for part in self.parts[1:]]}

    def products(self, entries: int) -> Products:
        """The sizes in memory, computed for `entries` entries of the trie."""
        width, number = self.parts[0].array.shape[1], {"float32": 4, "float16": 2}[self.dtype]
        return [Product(entries, "entries", number * width, f"{width} numbers of {number}")]

    @property
    def dtype(self) -> str:
        """The type of the stored numbers."""
        return self.parts[0].array.dtype.name

    def moved(self, trie: Trie, new: tuple[np.ndarray, np.ndarray] | None = None) -> TrieVectors:
        """The vectors in the order of another trie, whose documents are from these and `new`: (numbers, vectors)."""
        stayed = {id(part): held for part, held in zip(self.trie.parts, self.parts, strict=True)}
        if all(id(part) in stayed for part in trie.parts):
            return TrieVectors(trie, tuple(stayed[id(part)] for part in trie.parts))
        known = self._known.joined(new[0], checked(new[1], self.dtype)) if new else self._known
        device = self.parts[0].device
        parts = (
            stayed[id(part)] if id(part) in stayed else Vectors(known.take(part.document), device)
            for part in trie.parts
        )
        return TrieVectors(trie, tuple(parts))

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """The vectors (n, d) of documents by their numbers (n,)."""
        return self._known.take(numbers)

    @cached_property
    def _known(self) -> _Known:
        return _Known(self._documents(), tuple(part.array for part in self.parts))

    def write(self, writer: Writer) -> None:
        """Write the vectors into an artifact, in the order of the written trie.

        A shard has those of its documents, and which entries of the trie they are; the trie itself stays whole.
        """
        written = self.moved(self.trie.compact())
        array, [part] = written.parts[0].array, written.trie.parts
        if not writer.bounds:
            writer.array(NAME, array)
            return
        row = np.unique(part.document, return_inverse=True)[1]  # numbers of documents rise with their rows
        for shard, rows in zip(writer.in_shards(), writer.bounds.row_slices(), strict=True):
            entries = np.flatnonzero((row >= rows.start) & (row < rows.stop))
            shard.array(NAME, array[entries])
            shard.array(ENTRIES, entries)
            shard.array(DOCUMENTS, row[entries].astype(np.int64))

    @classmethod
    def read(cls, snapshot: Snapshot, trie: Trie, device: str | torch.device = "cpu") -> TrieVectors:
        """Read the vectors from an artifact, memory-mapped."""
        array = snapshot.array(NAME)
        require_finite(require_array(array, NAME, FLOATS, (trie.parts[0].entries, None)), NAME)
        return cls(trie, (Vectors(array, torch.device(device)),))


@dataclass(frozen=True)
class Wanted:
    """The largest number of entries of a slice, None for all; and those always kept (entries of all parts,) bool."""

    limit: int | None
    always: np.ndarray | None

    @property
    def few(self) -> int | None:
        """The largest number of lines that are kept of a slice, if it is known."""
        return self.limit if self.always is None else None

    def held(self, spans: Spans) -> tuple[int, int]:
        """The numbers of products that one query holds while the best are chosen, and of lines that it keeps."""
        sizes, few = [span.stop - span.start for _, span in spans], self.few
        return (0, sum(sizes)) if few is None else (max(sizes, default=0), sum(min(size, few) for size in sizes))


@dataclass(frozen=True)
class Look:
    """A slice of a part of the trie, and the queries that look into it."""

    who: np.ndarray  # (q, 2) the query, and the number of its prefix
    at: int
    span: slice


@dataclass(frozen=True)
class Selected:
    """Entries below one node, for the queries that have it as a prefix."""

    who: np.ndarray  # (q, 2) the query, and the number of its prefix
    entries: Tensor  # (q, n) of the trie, all its parts end to end
    products: Tensor  # (q, n) the smallest last, if there are more
    more: bool  # whether entries were left out


@dataclass(frozen=True, eq=False)
class _Known:
    """Vectors by the numbers of documents; entries are counted through all arrays."""

    documents: np.ndarray  # (entries of all arrays,)
    arrays: tuple[np.ndarray, ...]

    def joined(self, documents: np.ndarray, array: np.ndarray) -> _Known:
        return _Known(np.concatenate([self.documents, documents]), (*self.arrays, array))

    @cached_property
    def _order(self) -> np.ndarray:
        return self.documents.argsort(kind="stable")

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """The vectors (n, d) of documents by their numbers (n,); no others are read."""
        places = self._order[np.searchsorted(self.documents, numbers, sorter=self._order)]
        taken = np.empty((len(places), self.arrays[0].shape[1]), self.arrays[0].dtype)
        first = 0
        for array in self.arrays:
            inside = (places >= first) & (places < first + len(array))
            taken[inside] = array[places[inside] - first]
            first += len(array)
        return taken


def best_entries(
    entries: Tensor, products: Tensor, limit: int | None, always: np.ndarray | None
) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """Of entries (n,) with products (q, n) those that are `always` kept (n,) bool, and at most `limit` others.

    They come in parts: entries, products (q, m), and whether others were left out; then the smallest product is last.
    """
    if limit is None or len(entries) <= limit:
        yield entries.expand_as(products), products, False
        return
    if always is not None:
        kept, theirs = _chosen(always, entries, products)
        yield kept.expand_as(theirs), theirs, False
        entries, products = _chosen(~always, entries, products)
    limit = min(limit, len(entries))
    greatest, places = products.topk(limit, dim=1)
    yield entries[places], greatest, limit < len(entries)


def _chosen(which: np.ndarray, entries: Tensor, products: Tensor) -> tuple[Tensor, Tensor]:
    """The entries that `which` (n,) marks, with their columns of products (q, n)."""
    chosen = torch.from_numpy(np.flatnonzero(which)).to(entries.device)
    return entries[chosen], products[:, chosen]


def _together_held(held: Iterable[tuple[int, int]]) -> int:
    """How many numbers one query holds at once: the products of its largest slice, and all lines that are kept."""
    products, lines = zip((0, 0), *held, strict=True)
    return max(products) + sum(lines)


def _blocks(spans: Spans) -> Iterator[tuple[int, slice]]:
    """The same entries in slices of at most BLOCK.

    >>> [*_blocks([(0, slice(5, 8)), (1, slice(0, BLOCK + 1))])] == [
    ...     (0, slice(5, 8)), (1, slice(0, BLOCK)), (1, slice(BLOCK, BLOCK + 1))]
    True
    """
    for part, span in spans:
        for start in range(span.start, span.stop, BLOCK):
            yield part, slice(start, min(start + BLOCK, span.stop))


def _groups(sizes: Sequence[int], limit: int) -> Iterator[range]:
    """Ranges of neighbours whose sizes add up to at most `limit`, or of one that is larger.

    >>> [*_groups([2, 3, 1, 9, 1], 5)]
    [range(0, 2), range(2, 3), range(3, 4), range(4, 5)]
    """
    begin = total = 0
    for at, size in enumerate(sizes):
        if at > begin and total + size > limit:
            yield range(begin, at)
            begin, total = at, 0
        total += size
    if sizes:
        yield range(begin, len(sizes))
