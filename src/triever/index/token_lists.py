"""Tokens of documents end to end, with a list of tokens for each centroid: how they are kept, and looked into.

A part is arrays, in memory or mapped; a shelf is a part where it is searched. Documents are numbered within it.
Knows nothing about what was added or deleted later.
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
from triever.index.top import CHUNK, resident, shared
from triever.validation import require, require_finite

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer


@dataclass(frozen=True, eq=False)
class TokenLists:
    """Tokens of documents end to end, and for each centroid the tokens that are nearest to it."""

    starts: np.ndarray  # (documents + 1,) int64, document i has the tokens starts[i]:starts[i + 1]
    numbers: np.ndarray  # (tokens,) uint16, the centroid of each
    packed: np.ndarray  # (tokens, bytes) uint8, or (tokens, d) float16: the rest of each
    list_starts: np.ndarray  # (centroids + 1,) int64, where each list begins
    listed: np.ndarray  # (tokens,) int32, or int64 where they are too many: places of tokens, rising within a list

    @classmethod
    def of(cls, starts: np.ndarray, numbers: np.ndarray, packed: np.ndarray, centroids: int) -> TokenLists:
        """With the lists, which follow from the rest."""
        listed = np.argsort(numbers, kind="stable")  # of two-byte numbers in linear time
        if len(numbers) <= np.iinfo(np.int32).max:
            listed = listed.astype(np.int32)
        return cls(starts, numbers, packed, starts_of(np.bincount(numbers, minlength=centroids)), listed)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def bytes(self) -> int:
        """Of all arrays together."""
        return sum(array.nbytes for array in self.arrays())

    def arrays(self) -> list[np.ndarray]:
        """All of them."""
        return [getattr(self, field.name) for field in fields(self)]

    @property
    def centroids(self) -> int:
        """How many lists there are."""
        return len(self.list_starts) - 1

    def empty(self) -> TokenLists:
        """One of the same kind, without documents."""
        return TokenLists.of(np.zeros(1, np.int64), self.numbers[:0], self.packed[:0], self.centroids)

    def joined(self, behind: TokenLists, alive: np.ndarray) -> TokenLists:
        """The living documents of this part and of one that comes behind it, as one part; alive (both,) bool."""
        ours, theirs = np.split(alive, [len(self)])
        both = zip(self._kept(ours), behind._kept(theirs), strict=True)
        lengths, numbers, packed = (np.concatenate(pair) for pair in both)
        return TokenLists.of(starts_of(lengths), numbers, packed, self.centroids)

    def _kept(self, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lengths, numbers and packed of some of the documents (documents,) bool."""
        lengths = np.diff(self.starts)
        tokens = np.repeat(keep, lengths)
        return lengths[keep], self.numbers[tokens], self.packed[tokens]

    def write(self, writer: Writer, name: str) -> None:
        """Put the arrays into an artifact, in files whose names begin with `name`."""
        for field in fields(self):
            writer.array(f"{name}_{field.name}", getattr(self, field.name))

    @classmethod
    def read(cls, snapshot: Snapshot, name: str, codec: Codec, documents: int, tokens: int) -> TokenLists:
        """Take it out of an artifact, memory-mapped; a ValueError says what does not fit."""
        if snapshot.has(f"{name}_members"):  # the first indexes listed documents, and get lists of tokens
            starts, numbers, packed = (snapshot.array(f"{name}_{role}") for role in ("starts", "numbers", "packed"))
            part = cls.of(starts, numbers, packed, len(codec.centroids))
        else:
            part = cls(**{field.name: snapshot.array(f"{name}_{field.name}") for field in fields(cls)})
        part._check(codec, documents, tokens)
        return part

    def _check(self, codec: Codec, documents: int, tokens: int) -> None:
        """An error unless every number in the arrays points inside the others."""
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
    """A part where it is searched."""

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

    def vectors(self, places: Tensor) -> Tensor:
        """The vectors of tokens (n, d) float32."""
        numbers, packed = (held.index_select(0, places.to(held.device)) for held in (self._numbers, self._packed))
        return self.codec.decode(numbers, packed)

    def tokens(self, document: int) -> Tensor:
        """The vectors of one document (tokens, d)."""
        return self.vectors(torch.arange(int(self.part.starts[document]), int(self.part.starts[document + 1])))

    def maxima(self, documents: Tensor, query: Tensor) -> Tensor:
        """How well the best token of each document (m,) fits each query token (length, d): (m, length).

        -inf where a document has no tokens.
        """
        found = torch.full((len(documents), len(query)), -torch.inf, device=self.codec.device)
        starts = self._starts[documents]
        lengths = self._starts[documents + 1] - starts
        for block in blocks(lengths, CHUNK // max(len(query), self.codec.width)):
            places, owner = spread(starts[block], lengths[block])
            self._take_in(found[block], owner, places, query)
        return found

    def listed(self, near: Tensor, query: Tensor, floor: Tensor, alive: Tensor | None) -> tuple[Tensor, Tensor]:
        """The documents (m,) with tokens in the lists of some centroids (c,), rising, and a rough score of each (m,).

        It is that of these tokens alone for the query (length, d); for no query token less than `floor` (length,).
        """
        places = self._in_lists(near)
        owner = torch.bucketize(places, self._starts, right=True) - 1
        if alive is not None:
            living = alive[owner]
            places, owner = places[living], owner[living]
        documents, owner = owner.unique_consecutive(return_inverse=True)
        found = floor.repeat(len(documents), 1)
        step = max(1, CHUNK // max(len(query), self.codec.width))
        for some, row in zip(places.split(step), owner.split(step), strict=True):
            self._take_in(found, row, some, query)
        return documents, found.sum(1)

    def _take_in(self, found: Tensor, row: Tensor, places: Tensor, query: Tensor) -> None:
        """Raise the best fits in some rows (n,) to those of tokens (n,), where these are better."""
        found.scatter_reduce_(0, row[:, None].expand(-1, len(query)), self.vectors(places) @ query.T, "amax")

    def _in_lists(self, near: Tensor) -> Tensor:
        """The places of all tokens in the lists of some centroids (c,), rising: those of a document side by side."""
        list_starts, listed = self._lists
        begin = list_starts[near]
        at, _ = spread(begin, list_starts[near + 1] - begin)
        return listed.index_select(0, at.to(listed.device)).to(self.codec.device).sort().values.long()


def spread(starts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The places from each start on, end to end, and which start each belongs to.

    >>> [part.tolist() for part in spread(torch.tensor([7, 3]), torch.tensor([1, 2]))]
    [[7, 3, 4], [0, 1, 1]]
    """
    owner = torch.repeat_interleave(torch.arange(len(starts), device=starts.device), lengths)
    before = lengths.cumsum(0) - lengths
    return torch.arange(len(owner), device=starts.device) + (starts - before)[owner], owner


def blocks(lengths: Tensor, most: int) -> Iterator[slice]:
    """Slices of consecutive documents with at most so many tokens together, or of one that has more."""
    ends = lengths.cumsum(0).cpu().numpy()
    first, before = 0, 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, last)
        first, before = last, int(ends[last - 1])
