"""Tokens of documents end to end, with a list of tokens for each centroid: stored, and searched.

TokenLists are arrays, in memory or mapped; SearchedTokens are the same on the device of a search. Documents are
numbered within them. Knows nothing about later additions and deletions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from triever.arrays import starts_of
from triever.index.codec import Codec
from triever.index.top import CHUNK, Running, resident, shared
from triever.validation import require, require_finite

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer


@dataclass(frozen=True, eq=False)
class TokenLists:
    """Tokens of documents end to end, and for each centroid the tokens that are nearest to it."""

    starts: np.ndarray  # (documents + 1,) int64, document i has the tokens starts[i]:starts[i + 1]
    numbers: np.ndarray  # (tokens,) uint16, the centroid of each
    packed: np.ndarray  # (tokens, bytes) uint8, or (tokens, d) float16: the residual of each
    list_starts: np.ndarray  # (centroids + 1,) int64, where each list begins
    listed: np.ndarray  # (tokens,) int32, or int64 if they are too many: tokens, sorted within a list

    @classmethod
    def of(cls, starts: np.ndarray, numbers: np.ndarray, packed: np.ndarray, centroids: int) -> TokenLists:
        """The arrays with the lists, which follow from the others."""
        listed = np.argsort(numbers, kind="stable")  # takes linear time for two-byte numbers
        if len(numbers) <= np.iinfo(np.int32).max:
            listed = listed.astype(np.int32)
        return cls(starts, numbers, packed, starts_of(np.bincount(numbers, minlength=centroids)), listed)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def bytes(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays())

    def arrays(self) -> list[np.ndarray]:
        """All arrays."""
        return [getattr(self, field.name) for field in fields(self)]

    @property
    def centroids(self) -> int:
        """The number of lists."""
        return len(self.list_starts) - 1

    def empty(self) -> TokenLists:
        """The same without documents."""
        return TokenLists.of(np.zeros(1, np.int64), self.numbers[:0], self.packed[:0], self.centroids)

    def joined(self, behind: TokenLists, alive: np.ndarray) -> TokenLists:
        """The living documents of this part and the one behind it, as one part; alive (documents of both,) bool."""
        ours, theirs = np.split(alive, [len(self)])
        both = zip(self._kept(ours), behind._kept(theirs), strict=True)
        lengths, numbers, packed = (np.concatenate(pair) for pair in both)
        return TokenLists.of(starts_of(lengths), numbers, packed, self.centroids)

    def _kept(self, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lengths, numbers and residuals of the documents that are kept (documents,) bool."""
        lengths = np.diff(self.starts)
        tokens = np.repeat(keep, lengths)
        return lengths[keep], self.numbers[tokens], self.packed[tokens]

    def write(self, writer: Writer, name: str) -> None:
        """Write the arrays into an artifact, in files whose names begin with `name`."""
        for field in fields(self):
            writer.array(f"{name}_{field.name}", getattr(self, field.name))

    @classmethod
    def read(cls, snapshot: Snapshot, name: str, codec: Codec, documents: int, tokens: int) -> TokenLists:
        """Read the arrays from an artifact, memory-mapped; a ValueError says what does not fit."""
        if snapshot.has(f"{name}_members"):  # the oldest indexes listed documents: make lists of tokens
            starts, numbers, packed = (snapshot.array(f"{name}_{role}") for role in ("starts", "numbers", "packed"))
            part = cls.of(starts, numbers, packed, len(codec.centroids))
        else:
            part = cls(**{field.name: snapshot.array(f"{name}_{field.name}") for field in fields(cls)})
        part._check(codec, documents, tokens)
        return part

    def _check(self, codec: Codec, documents: int, tokens: int) -> None:
        """Raise a ValueError unless the arrays fit each other, and all numbers in them are in range."""
        dtype = np.float16 if codec.bits == 16 else np.uint8
        require(self.starts.shape == (documents + 1,) and self.numbers.shape == (tokens,), "has other documents")
        require(self.packed.shape == (tokens, codec.packed_width) and self.packed.dtype == dtype, "has other vectors")
        kinds = self.numbers.dtype == np.uint16 and self.listed.dtype in (np.int32, np.int64)
        require(kinds, "has numbers of another type")
        if codec.bits == 16:
            require_finite(self.packed, "packed")
        require(not tokens or self.numbers.max() < len(codec.centroids), "has a token without a centroid")
        lists = self.list_starts.shape == (len(codec.centroids) + 1,) and self.listed.shape == (tokens,)
        require(lists, "has other lists")
        for rising in (self.starts, self.list_starts):
            require(rising.dtype == np.int64 and rising[0] == 0 and rising[-1] == tokens, "has other borders")
            require((np.diff(rising) >= 0).all(), "has other borders")
        require(not tokens or 0 <= self.listed.min() <= self.listed.max() < tokens, "lists a token that is not there")


@dataclass(frozen=True, eq=False)
class SearchedTokens:
    """TokenLists on the device of a search."""

    part: TokenLists
    codec: Codec

    def __len__(self) -> int:
        return len(self.part)

    @cached_property
    def _packed(self) -> Tensor:
        return resident(self.part.packed, self.codec.device)

    @cached_property
    def _numbers(self) -> Tensor:
        return resident(self.part.numbers.view(np.int16), self.codec.device)

    @cached_property
    def _starts(self) -> Tensor:
        return shared(self.part.starts).to(self.codec.device)

    @cached_property
    def _lists(self) -> tuple[Tensor, Tensor]:
        device = self.codec.device
        return shared(self.part.list_starts).to(device), resident(self.part.listed, device)

    def vectors(self, tokens: Tensor) -> Tensor:
        """The vectors of tokens (n, d) float32."""
        numbers, packed = (held.index_select(0, tokens.to(held.device)) for held in (self._numbers, self._packed))
        return self.codec.decode(numbers, packed)

    def tokens(self, document: int) -> Tensor:
        """The vectors of one document (tokens, d)."""
        return self.vectors(torch.arange(int(self.part.starts[document]), int(self.part.starts[document + 1])))

    def maxima(self, documents: Tensor, query: Tensor) -> Tensor:
        """(m, length) the largest inner product of each query token (length, d) with the tokens of each document (m,).

        It is -inf if a document has no tokens.
        """
        maxima = torch.full((len(documents), len(query)), -torch.inf, device=self.codec.device)
        starts = self._starts[documents]
        lengths = self._starts[documents + 1] - starts
        for block in blocks(lengths, CHUNK // max(len(query), self.codec.width)):
            tokens, owner = spread(starts[block], lengths[block])
            if maxima.is_cuda:  # where a scatter is slow: many threads wait to write the same numbers
                products = self.vectors(tokens) @ query.T
                maxima[block] = torch.ops.aten.segment_reduce(products, "max", lengths=lengths[block], axis=0)
            else:
                self._take_in(maxima[block], owner, tokens, query)
        return maxima

    def of_nearest(self, query: Tensor, count: int, alive: Tensor | None) -> Tensor:
        """The documents (m,), sorted, with one of the `count` nearest tokens of a token of the query (length, d)."""
        running = Running(len(query), count, self.codec.device)
        step = max(1, CHUNK // max(len(query), self.codec.width))
        for begin in range(0, len(self.part.numbers), step):
            tokens = torch.arange(begin, min(begin + step, len(self.part.numbers)), device=self.codec.device)
            products = query @ self.vectors(tokens).T
            if alive is not None:
                owner = torch.bucketize(tokens, self._starts, right=True) - 1
                products = products.masked_fill(~alive[owner], -torch.inf)
            running.add(products, begin)
        found = running.places[running.values > -torch.inf].unique()
        return (torch.bucketize(found, self._starts, right=True) - 1).unique()

    def listed(self, near: Tensor, query: Tensor, floor: Tensor, alive: Tensor | None) -> tuple[Tensor, Tensor]:
        """The documents (m,) with tokens in the lists of centroids `near` (c,), sorted, and a rough score of each (m,).

        The score is that of these tokens alone for the query (length, d); each query token counts at least `floor`
        (length,).
        """
        tokens = self._in_lists(near)
        owner = torch.bucketize(tokens, self._starts, right=True) - 1
        if alive is not None:
            living = alive[owner]
            tokens, owner = tokens[living], owner[living]
        documents, owner = owner.unique_consecutive(return_inverse=True)
        fits = floor.repeat(len(documents), 1)
        step = max(1, CHUNK // max(len(query), self.codec.width))
        for part, row in zip(tokens.split(step), owner.split(step), strict=True):
            self._take_in(fits, row, part, query)
        return documents, fits.sum(1)

    def _take_in(self, fits: Tensor, row: Tensor, tokens: Tensor, query: Tensor) -> None:
        """Raise the rows (n,) of `fits` to the inner products of tokens (n,), where these are larger."""
        fits.scatter_reduce_(0, row[:, None].expand(-1, len(query)), self.vectors(tokens) @ query.T, "amax")

    def _in_lists(self, near: Tensor) -> Tensor:
        """All tokens in the lists of centroids `near` (c,), sorted, so that those of a document are neighbours."""
        list_starts, listed = self._lists
        begin = list_starts[near]
        at, _ = spread(begin, list_starts[near + 1] - begin)
        return listed.index_select(0, at.to(listed.device)).to(self.codec.device).sort().values.long()


def spread(starts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The positions start to start + length for each start, end to end, and the number of the start of each.

    >>> [part.tolist() for part in spread(torch.tensor([7, 3]), torch.tensor([1, 2]))]
    [[7, 3, 4], [0, 1, 1]]
    """
    owner = torch.repeat_interleave(torch.arange(len(starts), device=starts.device), lengths)
    before = lengths.cumsum(0) - lengths
    return torch.arange(len(owner), device=starts.device) + (starts - before)[owner], owner


def blocks(lengths: Tensor, limit: int) -> Iterator[slice]:
    """Slices of consecutive documents with at most `limit` tokens together, or of one document that has more."""
    ends = lengths.cumsum(0).cpu().numpy()
    first, before = 0, 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield slice(first, last)
        first, before = last, int(ends[last - 1])
