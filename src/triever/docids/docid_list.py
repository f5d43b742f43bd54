"""The docids of many documents end to end in arrays: a sequence of tuples that are made when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import overload

import numpy as np

from triever.disk_arrays import GrowingArray
from triever.docids.trie_arrays import Paths

BLOCK = 2**14
"""How many docids are looked at together."""


class DocidList(Sequence[tuple[int, ...]]):
    """Docids by row: that of document i is flat[start[i]:start[i + 1]]."""

    def __init__(self, flat: np.ndarray, start: np.ndarray) -> None:
        self.flat = flat  # (symbols,) int32
        self.start = start  # (documents + 1,) int64

    @classmethod
    def of(cls, blocks: Iterable[Sequence[Sequence[int]]]) -> DocidList:
        """From blocks of docids, each of which is written down before the next is asked for."""
        flat, start = GrowingArray(np.int32), GrowingArray(np.int64)
        start.append(np.zeros(1))
        for block in blocks:
            start.append(len(flat) + np.cumsum([len(docid) for docid in block]))
            flat.append(np.fromiter(chain.from_iterable(block), np.int32))
        return cls(flat.array(), start.array())

    def __len__(self) -> int:
        return len(self.start) - 1

    @overload
    def __getitem__(self, index: int) -> tuple[int, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[int, ...]]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, ...] | list[tuple[int, ...]]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        return tuple(self.flat[self.start[row] : self.start[row + 1]].tolist())

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        for paths in self.blocks():
            symbols, start = paths.flat.tolist(), paths.start.tolist()
            yield from (tuple(symbols[low:high]) for low, high in pairwise(start))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None

    def blocks(self) -> Iterator[Paths]:
        """Some of them at a time, each with the row of its document."""
        for first in range(0, len(self), BLOCK):
            start = np.asarray(self.start[first : first + BLOCK + 1])
            symbols = np.asarray(self.flat[start[0] : start[-1]])
            yield Paths(symbols, start - start[0], np.arange(first, first + len(start) - 1))
