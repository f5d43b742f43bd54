"""A trie of more docids than fit into memory, built in pieces.

Docids are written to files as they come. Those that begin with the same few symbols make a piece, which is built in
memory; then the levels of all pieces are laid behind each other, as the levels of one trie are. The result is the same,
byte for byte, as that of building all of it at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from triever.arrays import starts_of
from triever.disk_arrays import GrowingArray
from triever.docids.trie_arrays import Arrays, Paths, build, index_type, symbol_type
from triever.errors import UsageError

BLOCK = 2**19
"""How many docids are looked at together while they are laid apart."""
PIECE = 2**21
"""How many docids a piece has at most, if they do not all begin with the same symbol."""
SHARE = 2**20
"""The bytes that stay in memory of each of the many arrays of pieces and levels."""


class GrowingPaths:
    """Docids as they come: `grown.append(paths)`, and at last `grown.trie()`."""

    def __init__(self, folder: Path | None = None, dtype: DTypeLike = np.int32) -> None:
        self._folder = folder
        self._columns = _Columns(folder, dtype)
        self._beginning = np.zeros(0, np.int64)  # how many docids begin with each symbol
        self._width = 1
        self._longest = 0

    def append(self, paths: Paths) -> None:
        """Put docids behind those that are there."""
        if not len(paths):
            return
        length = np.diff(paths.start)
        if length.min() < 1:
            raise UsageError("a docid is empty", "give every document at least one symbol")
        self._width = max(self._width, paths.width)
        self._longest = max(self._longest, int(length.max()))
        beginning = np.bincount(paths.flat[paths.start[:-1]], minlength=len(self._beginning))
        beginning[: len(self._beginning)] += self._beginning
        self._beginning = beginning
        self._columns.append(paths)

    def __len__(self) -> int:
        return self._columns.entries

    def trie(self) -> Arrays:
        """The arrays of all of them; nothing can be appended any more."""
        if len(self) <= PIECE:
            return build(self._columns.paths())
        levels = _Levels(symbol_type(self._width), len(self), self._longest, self._folder)
        for piece in self._pieces():
            levels.append(build(piece.paths()))
        return levels.arrays()

    def _pieces(self) -> Iterator[_Columns]:
        """Docids that begin with the same symbols, in the order of these, each piece with at most PIECE of them."""
        edges = _edges(self._beginning, PIECE)
        dtype = symbol_type(self._width)
        pieces = [_Columns(self._folder, dtype, SHARE) for _ in edges[1:]]
        piece_of = np.repeat(np.arange(len(pieces), dtype=np.uint16), np.diff(edges))  # by first symbol
        for block in self._columns.blocks():
            piece = piece_of[block.flat[block.start[:-1]]]
            parted = block.take(np.argsort(piece, kind="stable"))
            bounds = starts_of(np.bincount(piece, minlength=len(pieces)))
            for at in np.flatnonzero(np.diff(bounds)).tolist():
                pieces[at].append(_cut(parted, int(bounds[at]), int(bounds[at + 1])))
        while pieces:
            yield pieces.pop(0)  # each is dropped once it is built


def _edges(counts: np.ndarray, most: int) -> list[int]:
    """Ranges of symbols with at most so many docids each; a symbol that begins more of them is a range of its own."""
    edges, filled = [0], 0
    for symbol, count in enumerate(counts.tolist()):
        if filled and filled + count > most:
            edges.append(symbol)
            filled = 0
        filled += count
    return [*edges, len(counts)]


def _cut(paths: Paths, first: int, last: int) -> Paths:
    """The entries from one to before another."""
    start = paths.start[first : last + 1]
    return Paths(paths.flat[start[0] : start[-1]], start - start[0], paths.document[first:last])


class _Columns:
    """Docids end to end, in arrays that grow."""

    def __init__(self, folder: Path | None, dtype: DTypeLike, limit: int | None = None) -> None:
        self._flat = GrowingArray(dtype, folder, limit)
        self._length = GrowingArray(np.int32, folder, limit)
        self._document = GrowingArray(np.int64, folder, limit)

    @property
    def entries(self) -> int:
        return len(self._document)

    def append(self, paths: Paths) -> None:
        self._flat.append(paths.flat)
        self._length.append(np.diff(paths.start))
        self._document.append(paths.document)

    def paths(self) -> Paths:
        """All of them, in memory but for what is mapped."""
        return Paths(self._flat.array(), starts_of(self._length.array()), self._document.array())

    def blocks(self) -> Iterator[Paths]:
        """Some of them at a time."""
        flat, length, document = self._flat.array(), self._length.array(), self._document.array()
        at = 0
        for first in range(0, len(document), BLOCK):
            start = starts_of(length[first : first + BLOCK])
            symbols = np.asarray(flat[at : at + start[-1]])
            yield Paths(symbols, start, np.asarray(document[first : first + BLOCK]))
            at += int(start[-1])


class _Levels:
    """The levels of a trie, of which each grows with every piece."""

    def __init__(self, symbols: type[np.integer], entries: int, longest: int, folder: Path | None) -> None:
        self._symbols = symbols
        self._entries = entries
        self._most = index_type(entries * (longest + 1))  # of nodes, entries and symbols in tails, whatever comes
        self._folder = folder
        self._token: list[GrowingArray] = []
        self._degree: list[GrowingArray] = []
        self._first: list[GrowingArray] = []
        self._count: list[GrowingArray] = []
        self._tail = GrowingArray(symbols, folder)
        self._tails = GrowingArray(np.int32, folder)  # the length of each
        self._document = GrowingArray(np.int64, folder)

    def append(self, piece: Arrays) -> None:
        """Put a piece behind the others: its nodes behind those of their level, its entries behind all."""
        before = len(self._document)
        degree = np.diff(piece.child)
        for depth, (low, high) in enumerate(pairwise(piece.levels[1:])):
            if depth == len(self._token):
                self._begin_level()
            self._token[depth].append(piece.token[low:high])
            self._degree[depth].append(degree[low:high])
            self._first[depth].append(before + piece.first[low:high].astype(np.int64))
            self._count[depth].append(piece.count[low:high])
        self._tail.append(piece.tail)
        self._tails.append(np.diff(piece.tail_start))
        self._document.append(piece.document)

    def _begin_level(self) -> None:
        for levels, dtype in (
            (self._token, self._symbols),
            (self._degree, np.int32),
            (self._first, self._most),
            (self._count, self._most),
        ):
            levels.append(GrowingArray(dtype, self._folder, SHARE))

    def arrays(self) -> Arrays:
        """All of them as one trie."""
        nodes = 1 + sum(map(len, self._token))
        of_entries = index_type(self._entries)
        root_degree = np.array([len(self._token[0])])
        return Arrays(
            token=self._joined(np.zeros(1), self._token, self._symbols),
            child=self._summed(1, [root_degree, *self._drained(self._degree)], index_type(nodes)),
            first=self._joined(np.zeros(1), self._first, of_entries),
            count=self._joined(np.array([self._entries]), self._count, of_entries),
            tail=self._tail.array(),
            tail_start=self._summed(0, [self._tails.array()], index_type(len(self._tail))),
            document=self._narrowed(self._document.array()),
        )

    def _joined(self, root: np.ndarray, levels: list[GrowingArray], dtype: DTypeLike) -> np.ndarray:
        joined = GrowingArray(dtype, self._folder)
        joined.append(root)
        for level in self._drained(levels):
            for block in _blocks(level):
                joined.append(block)
        return joined.array()

    def _drained(self, levels: list[GrowingArray]) -> Iterator[np.ndarray]:
        """The arrays of levels, each of which is dropped behind the next."""
        while levels:
            yield levels.pop(0).array()

    def _summed(self, base: int, parts: list[np.ndarray], dtype: DTypeLike) -> np.ndarray:
        """`base`, and behind it what it comes to with each further number."""
        summed = GrowingArray(dtype, self._folder)
        summed.append(np.array([base]))
        for block in (block for part in parts for block in _blocks(part)):
            summed.append(base + np.cumsum(block, dtype=np.int64))
            base += int(block.sum(dtype=np.int64))
        return summed.array()

    def _narrowed(self, document: np.ndarray) -> np.ndarray:
        narrow = GrowingArray(index_type(int(document.max())), self._folder)
        for block in _blocks(document):
            narrow.append(block)
        return narrow.array()


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    return (array[first : first + BLOCK] for first in range(0, len(array), BLOCK))
