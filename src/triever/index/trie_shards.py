"""Vectors in the order of a trie, in shards. The trie is whole where queries are read; shards have the vectors.

A document has all its entries in one shard. A slice of the trie is in parts in the shards, each of which keeps its best
entries, as the blocks of a large slice do in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from triever.artifact import Snapshot, Writer
from triever.docids.trie import Trie
from triever.index.trie_vectors import (
    DOCUMENTS,
    ENTRIES,
    NAME,
    EntryVectors,
    Look,
    Selected,
    TrieVectors,
    Wanted,
    best_entries,
)
from triever.index.vectors import Vectors
from triever.memory_parts import Product, Products, Stored
from triever.shards import Part, Shards, in_shards
from triever.validation import FLOATS, require, require_array, require_finite

Question = tuple[np.ndarray, int, int]
"""The numbers of queries, and the first entry that they look into, and the end."""
Answer = tuple[int, np.ndarray, np.ndarray, bool]
"""The number of a question, entries and products (q, n), and whether others were left out."""


@dataclass(frozen=True, eq=False)
class TrieShard:
    """The vectors of one shard: vector i is that of an entry of the trie, and entries rise."""

    vectors: Vectors
    entries: np.ndarray  # (n,) of the trie
    documents: np.ndarray  # (n,) the row of each, through all shards

    @classmethod
    def read(cls, snapshot: Snapshot, device: str | None) -> TrieShard:
        """The vectors of an artifact, memory-mapped; a ValueError if they are not what they should be."""
        entries = require_array(snapshot.array(ENTRIES), ENTRIES, ("int64",), (None,))
        require((np.diff(entries) > 0).all() and (entries[:1] >= 0).all(), "the entries of a shard do not rise")
        documents = require_array(snapshot.array(DOCUMENTS), DOCUMENTS, ("int64",), entries.shape)
        array = require_array(snapshot.array(NAME), NAME, FLOATS, (len(entries), None))
        require_finite(array, NAME)
        return cls(Vectors(array, torch.device(device or "cpu")), np.asarray(entries), np.asarray(documents))

    @cached_property
    def several(self) -> np.ndarray:
        """(n,) bool: whether the document has several docids; all of them are here."""
        _, number, counts = np.unique(self.documents, return_inverse=True, return_counts=True)
        return (counts > 1)[number]

    def about(self) -> dict[str, Any]:
        """What has to be known of it as a shard."""
        dtype = self.vectors.array.dtype.name
        return {"entries": self.entries, "width": self.vectors.array.shape[1], "dtype": dtype}

    def below(
        self,
        queries: np.ndarray,
        questions: Sequence[Question],
        limit: int | None,
        keeps_several: bool,
        alive: np.ndarray | None,
    ) -> list[Answer]:
        """What queries (q, d) find in slices of the trie, of the entries that are alive (n,) bool."""
        device, answers = self.vectors.device, []
        asked = torch.from_numpy(np.array(queries)).to(device, torch.float32)
        for number, (who, first, end) in enumerate(questions):
            low, high = self.entries.searchsorted([first, end]).tolist()
            inside = np.arange(low, high) if alive is None else low + np.flatnonzero(alive[low:high])
            products = asked[torch.from_numpy(who).to(device)] @ self.vectors.read(slice(low, high)).T
            if alive is not None:
                products = products[:, torch.from_numpy(inside - low).to(device)]
            entries = torch.from_numpy(self.entries[inside]).to(device)
            always = self.several[inside] if keeps_several else None
            for kept, theirs, more in best_entries(entries, products, limit, always):
                answers.append((number, kept.cpu().numpy(), theirs.cpu().numpy(), more))
        return answers

    def everything(self) -> tuple[np.ndarray, np.ndarray]:
        """All entries, and their vectors."""
        return self.entries, np.asarray(self.vectors.array)

    def stored(self) -> Stored:
        """What takes memory."""
        return {"cluster vectors": [self.vectors.array, self.entries, self.documents]}


@dataclass(frozen=True, eq=False)
class ShardedTrieVectors(EntryVectors):
    """The vectors of all shards, below the nodes of one trie."""

    shards: Shards
    part: Part
    owner: np.ndarray  # (entries,) the shard of each entry
    width: int
    dtype: str
    device: torch.device

    @classmethod
    def opened(cls, snapshot: Snapshot, trie: Trie, device: torch.device) -> ShardedTrieVectors:
        """Those of an artifact; a ValueError unless each entry of the trie is in one shard."""
        shards, part = snapshot.shards, Part("trie_vectors", snapshot.place, NAME, str(device))
        assert shards is not None  # who calls this knows that there are shards
        count = len(shards.bounds)
        told = shards.ask(part, "about", [()] * count, [None] * count)
        entries = np.concatenate([own["entries"] for own in told])
        require(np.array_equal(np.sort(entries), np.arange(trie.parts[0].entries)), "its shards have other entries")
        require(len({(own["width"], own["dtype"]) for own in told}) == 1, "its shards have vectors of two kinds")
        owner = np.empty(len(entries), np.int16)
        owner[entries] = np.repeat(np.arange(count), [len(own["entries"]) for own in told])
        return cls(trie, (), shards, part, owner, told[0]["width"], told[0]["dtype"], device)

    def looked(self, queries: Tensor, looks: Sequence[Look], wanted: Wanted) -> list[Selected]:
        """What queries (q, d) find that look into slices, by all shards."""
        questions = [(look.who[:, 0], look.span.start, look.span.stop) for look in looks]
        asked = (queries.float().cpu().numpy(), questions, wanted.limit, wanted.always is not None)
        [alive] = self.trie.alive
        count = len(self.shards.bounds)
        each = [(*asked, None if alive is None else alive[self.owner == shard]) for shard in range(count)]
        answers = self.shards.ask(self.part, "below", each, [None] * count)
        return [
            Selected(looks[number].who, torch.from_numpy(entries.copy()), torch.from_numpy(products.copy()), more)
            for own in answers
            for number, entries, products, more in own
        ]

    def moved(self, trie: Trie, new: tuple[np.ndarray, np.ndarray] | None = None) -> EntryVectors:
        """The vectors in the order of another trie, which has fewer of the documents.

        A trie that a filter has left little of is built anew. Then its vectors are fetched.
        """
        if new is not None:
            raise in_shards()
        if [id(part) for part in trie.parts] == [id(part) for part in self.trie.parts]:
            own = self.shards, self.part, self.owner, self.width, self.dtype, self.device
            return ShardedTrieVectors(trie, (), *own)
        return self._whole().moved(trie)

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """The vectors (n, d) of documents by their numbers (n,)."""
        return self._whole().take(numbers)

    def _whole(self) -> TrieVectors:
        """All vectors, fetched from the shards."""
        array, count = np.empty((len(self.owner), self.width), self.dtype), len(self.shards.bounds)
        for entries, vectors in self.shards.ask(self.part, "everything", [()] * count, [None] * count):
            array[entries] = vectors
        return TrieVectors(self.trie, (Vectors(array, self.device),))

    @property
    def bytes(self) -> int:
        """The bytes of all vectors, wherever they are."""
        return len(self.owner) * self.width * np.dtype(self.dtype).itemsize

    def stored(self) -> Stored:
        """What takes memory in this process."""
        held = [thing for part in self.shards.held(self.part) for thing in part.stored()["cluster vectors"]]
        return {"cluster vectors": [self.owner, *held], "changes": []}

    def products(self, entries: int) -> Products:
        """The sizes in memory, computed for `entries` entries of the trie."""
        number = np.dtype(self.dtype).itemsize
        return [Product(entries, "entries", number * self.width, f"{self.width} numbers of {number}")]

    def write(self, writer: Writer) -> NoReturn:
        """Refused: shards are written from what is whole."""
        raise in_shards()
