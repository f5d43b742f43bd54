"""Vectors of documents in the order of a trie: those of all documents below a node are one slice, mapped from disk.

Every entry of the trie has the vector of its document, so a document with several docids has it several times. A
value, as the trie is: a change gives a new one, in which the parts of the trie that stayed keep their arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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
BLOCK = 2**16
"""Vectors of one slice that are compared at once: a slice may be the whole corpus, and larger than memory."""
LINES = 2**22
"""So many lines of queries are held at once, unless one alone has more; where few of them are kept, CHUNK products."""

Spans = Sequence[tuple[int, slice]]
"""Entries of the trie: in which part, and which."""


@dataclass(frozen=True)
class PrefixEntries:
    """What lies below the prefixes of one query: a line for each entry of the trie below each of them."""

    numbers: np.ndarray  # (lines,) of the documents
    products: np.ndarray  # (lines,) of their vectors with the query's
    places: np.ndarray  # (lines,) which of the query's prefixes
    entries: np.ndarray  # (lines,) of the trie, all its parts end to end
    last: np.ndarray  # (lines,) bool: others were left out behind it, none of which has a greater product


_NOTHING = PrefixEntries(*(np.empty(0, dtype) for dtype in (np.int64, np.float32, np.int64, np.int64, bool)))


@dataclass(frozen=True, eq=False)
class TrieVectors:
    """`TrieVectors.of(trie, numbers, vectors)`: document numbers[i] has vectors[i], and numbers rise."""

    trie: Trie
    parts: tuple[Vectors, ...]  # for each part of the trie one vector for each entry

    @classmethod
    def of(
        cls, trie: Trie, numbers: np.ndarray, vectors: np.ndarray, device: str | torch.device = "cpu"
    ) -> TrieVectors:
        """Lay vectors (documents, d) out."""
        array, place = checked(vectors, vectors.dtype.name), torch.device(device)
        rows = (np.searchsorted(numbers, part.document) for part in trie.parts)
        return cls(trie, tuple(Vectors(array[some], place) for some in rows))

    @property
    def bytes(self) -> int:
        """Of all vectors."""
        return sum(part.array.nbytes for part in self.parts)

    def stored(self) -> Stored:
        """What takes memory: the vectors of the main part, and of what was added since."""
        return {"cluster vectors": [self.parts[0].array], "changes": [part.array for part in self.parts[1:]]}

    def products(self, entries: int) -> Products:
        """The same computed, for so many entries of the trie."""
        width, number = self.parts[0].array.shape[1], {"float32": 4, "float16": 2}[self.dtype]
        return [Product(entries, "entries", number * width, f"{width} numbers of {number}")]

    @property
    def dtype(self) -> str:
        """How they are stored."""
        return self.parts[0].array.dtype.name

    def moved(self, trie: Trie, new: tuple[np.ndarray, np.ndarray] | None = None) -> TrieVectors:
        """The same in the order of another trie, whose documents are some of these and new ones: numbers, vectors."""
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
        """The vectors of documents (n, d) by their numbers."""
        return self._known.take(numbers)

    @cached_property
    def _known(self) -> _Known:
        return _Known(self._documents(), tuple(part.array for part in self.parts))

    def _documents(self) -> np.ndarray:
        """(entries of all parts,) of what is alive: the number of a document that was deleted may be another's now."""
        documents = [
            np.asarray(part.document, np.int64) if alive is None else np.where(alive, part.document, -1)
            for part, alive in zip(self.trie.parts, self.trie.alive, strict=True)
        ]
        return np.concatenate(documents)

    def below(
        self,
        walk: Walk,
        queries: Tensor,
        states: Sequence[Sequence[Sequence[int]]],
        most: int | None = None,
        always: np.ndarray | None = None,
    ) -> Iterator[PrefixEntries]:
        """For each query (q, d) in turn what lies below its prefixes, which are states of a walk over the trie.

        With `most`, of each slice of entries only so many with the greatest products, besides those that are wanted
        always (entries,) bool. Queries that look below the same node are compared with its slice together, as many of
        them as may be held at once.
        """
        unlike = {tuple(state) for prefixes in states for state in prefixes}
        spans = {state: [*_blocks(walk.spans(state))] for state in unlike}
        wanted = _Wanted(most, always)
        held = {state: wanted.held(of) for state, of in spans.items()}
        sizes = [_together_held(held[tuple(state)] for state in prefixes) for prefixes in states]
        for group in _groups(sizes, LINES if wanted.few is None else CHUNK):
            some = slice(group.start, group.stop)
            yield from self._together(queries[some], states[some], spans, wanted)

    def _together(
        self,
        queries: Tensor,
        states: Sequence[Sequence[Sequence[int]]],
        spans: Mapping[tuple[int, ...], Spans],
        wanted: _Wanted,
    ) -> list[PrefixEntries]:
        looking: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        for query, prefixes in enumerate(states):
            for place, state in enumerate(prefixes):
                looking[tuple(state)].append((query, place))
        found: list[_Some] = []
        for state, pairs in looking.items():
            who = np.array(pairs)
            asked = queries[torch.from_numpy(who[:, 0]).to(queries.device)]
            for at, span in spans[state]:
                found += [_Some(who, *some) for some in self._slice(at, span, asked, wanted)]
        return self._by_query(found, len(states))

    def _slice(self, at: int, span: slice, queries: Tensor, wanted: _Wanted) -> Iterator[tuple[Tensor, Tensor, bool]]:
        """For queries (q, d) what is wanted of a slice, in parts: entries and inner products (q, n), and if more are.

        Where more are, the least product stands last.
        """
        held, alive = self.parts[at], self.trie.alive[at]
        vectors = held.tensor[span].to(held.device, torch.float32)
        products = queries.to(held.device, torch.float32) @ vectors.T
        entries = torch.arange(span.start, span.stop, device=held.device) + int(self._first[at])
        if alive is not None:
            entries, products = _chosen(alive[span], entries, products)
        if wanted.most is None or len(entries) <= wanted.most:
            yield entries.expand_as(products), products, False
            return
        if wanted.always is not None:
            always = wanted.always[entries.cpu().numpy()]
            kept, theirs = _chosen(always, entries, products)
            yield kept.expand_as(theirs), theirs, False
            entries, products = _chosen(~always, entries, products)
        most = min(wanted.most, len(entries))
        greatest, places = products.topk(most, dim=1)
        yield entries[places], greatest, most < len(entries)

    def _by_query(self, found: Sequence[_Some], queries: int) -> list[PrefixEntries]:
        """What was found slice by slice, for each query; made for all at once, since slices are many and small."""
        if not found:
            return [_NOTHING] * queries
        lookers, width = np.array([some.products.shape for some in found]).T
        who = np.concatenate([some.who for some in found])
        each = np.repeat(width, lookers)  # lines of each query in each slice
        more = np.repeat([some.more for some in found], lookers)
        last = np.zeros(each.sum(), bool)
        last[each.cumsum()[more & (each > 0)] - 1] = True
        entries = torch.cat([some.entries.flatten() for some in found]).cpu().numpy()
        products = torch.cat([some.products.flatten() for some in found]).cpu().numpy()
        query, places = np.repeat(who, each, axis=0).T
        order = query.argsort(kind="stable")
        columns = (self._documents_of(entries), products, places, entries, last)
        ends = np.bincount(query, minlength=queries).cumsum()[:-1]
        return [
            PrefixEntries(*some) for some in zip(*(np.split(column[order], ends) for column in columns), strict=True)
        ]

    def _documents_of(self, entries: np.ndarray) -> np.ndarray:
        """(n,) the numbers of the documents of entries of all parts (n,)."""
        numbers = np.empty(len(entries), np.int64)
        for part, first, end in zip(self.trie.parts, self._first, self._first[1:], strict=False):
            inside = (entries >= first) & (entries < end)
            numbers[inside] = part.document[entries[inside] - first]
        return numbers

    @cached_property
    def several(self) -> np.ndarray:
        """(entries of all parts,) bool: whether the document has other docids too."""
        _, number, counts = np.unique(self._documents(), return_inverse=True, return_counts=True)
        return (counts > 1)[number]

    @cached_property
    def _first(self) -> np.ndarray:
        """(parts + 1,) where the entries of each part begin."""
        return starts_of([part.entries for part in self.trie.parts])

    def write(self, writer: Writer) -> None:
        """Put the vectors into an artifact, in the order in which the trie is written."""
        writer.array(NAME, self.moved(self.trie.compact()).parts[0].array)

    @classmethod
    def read(cls, snapshot: Snapshot, trie: Trie, device: str | torch.device = "cpu") -> TrieVectors:
        """Take them out again, mapped."""
        array = snapshot.array(NAME)
        require_finite(require_array(array, NAME, FLOATS, (trie.parts[0].entries, None)), NAME)
        return cls(trie, (Vectors(array, torch.device(device)),))


@dataclass(frozen=True)
class _Wanted:
    """How many entries of a slice at most, if not all, and which always (entries of all parts,) bool."""

    most: int | None
    always: np.ndarray | None

    @property
    def few(self) -> int | None:
        """How many lines of a slice are kept at most, if it can be said."""
        return self.most if self.always is None else None

    def held(self, spans: Spans) -> tuple[int, int]:
        """For a query that looks there: products that are held until the best are chosen, and lines that are kept."""
        sizes, few = [span.stop - span.start for _, span in spans], self.few
        return (0, sum(sizes)) if few is None else (max(sizes, default=0), sum(min(one, few) for one in sizes))


@dataclass(frozen=True)
class _Some:
    """Some entries below one node, for those queries that look there."""

    who: np.ndarray  # (q, 2) their numbers, and which of their prefixes it is
    entries: Tensor  # (q, n) of the trie, all its parts end to end
    products: Tensor  # (q, n) the least last, if there are
    more: bool  # that were left out


@dataclass(frozen=True, eq=False)
class _Known:
    """Vectors by the numbers of documents, in arrays that are counted as if they lay end to end."""

    documents: np.ndarray  # (entries of all arrays,)
    arrays: tuple[np.ndarray, ...]

    def joined(self, documents: np.ndarray, array: np.ndarray) -> _Known:
        return _Known(np.concatenate([self.documents, documents]), (*self.arrays, array))

    @cached_property
    def _order(self) -> np.ndarray:
        return self.documents.argsort(kind="stable")

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """(n, d) the vectors of some documents; nothing else is read."""
        places = self._order[np.searchsorted(self.documents, numbers, sorter=self._order)]
        found = np.empty((len(places), self.arrays[0].shape[1]), self.arrays[0].dtype)
        first = 0
        for array in self.arrays:
            inside = (places >= first) & (places < first + len(array))
            found[inside] = array[places[inside] - first]
            first += len(array)
        return found


def _chosen(which: np.ndarray, entries: Tensor, products: Tensor) -> tuple[Tensor, Tensor]:
    """Some of the entries (n,) bool, with their columns of products (q, n)."""
    chosen = torch.from_numpy(np.flatnonzero(which)).to(entries.device)
    return entries[chosen], products[:, chosen]


def _together_held(held: Iterable[tuple[int, int]]) -> int:
    """Numbers that a query holds at once which looks into all of these: one slice after the other, and what is kept."""
    products, lines = zip((0, 0), *held, strict=True)
    return max(products) + sum(lines)


def _blocks(spans: Spans) -> Iterator[tuple[int, slice]]:
    """The same entries in slices that are not too large.

    >>> [*_blocks([(0, slice(5, 8)), (1, slice(0, BLOCK + 1))])] == [
    ...     (0, slice(5, 8)), (1, slice(0, BLOCK)), (1, slice(BLOCK, BLOCK + 1))]
    True
    """
    for part, span in spans:
        for start in range(span.start, span.stop, BLOCK):
            yield part, slice(start, min(start + BLOCK, span.stop))


def _groups(sizes: Sequence[int], most: int) -> Iterator[range]:
    """Neighbours whose sizes add up to no more than that; what is larger alone is a group of its own.

    >>> [*_groups([2, 3, 1, 9, 1], 5)]
    [range(0, 2), range(2, 3), range(3, 4), range(4, 5)]
    """
    begin = total = 0
    for at, size in enumerate(sizes):
        if at > begin and total + size > most:
            yield range(begin, at)
            begin, total = at, 0
        total += size
    if sizes:
        yield range(begin, len(sizes))
