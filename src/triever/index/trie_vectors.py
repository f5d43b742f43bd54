"""Vectors of documents in the order of a trie: those of all documents below a node are one slice, mapped from disk.

Every entry of the trie has the vector of its document, so a document with several docids has it several times. A
value, as the trie is: a change gives a new one, in which the parts of the trie that stayed keep their arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from triever.artifact import RESAVE, Snapshot, Writer
from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.errors import ArtifactError
from triever.index.vectors import Vectors, checked
from triever.storage import Product, Products, Stored

NAME = "trie_vectors"


@dataclass(frozen=True)
class Below:
    """What lies below the prefixes of one query: a line for each document below each of them."""

    numbers: np.ndarray  # (lines,) of the documents
    products: np.ndarray  # (lines,) of their vectors with the query's
    places: np.ndarray  # (lines,) which of the query's prefixes


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
        """Of what is alive: the number of a document that was deleted may be another's now."""
        documents = [
            np.asarray(part.document, np.int64) if alive is None else np.where(alive, part.document, -1)
            for part, alive in zip(self.trie.parts, self.trie.alive, strict=True)
        ]
        return _Known(np.concatenate(documents), tuple(part.array for part in self.parts))

    def below(self, walk: Walk, queries: Tensor, states: Sequence[Sequence[Sequence[int]]]) -> list[Below]:
        """For each query (q, d) what lies below its prefixes, which are states of a walk over the trie.

        Queries that look below the same node are compared with its slice together.
        """
        looking: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        for query, prefixes in enumerate(states):
            for place, state in enumerate(prefixes):
                looking[tuple(state)].append((query, place))
        lines: list[list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = [[] for _ in states]
        for state, who in looking.items():
            asked = queries[[query for query, _ in who]]
            for at, span in walk.spans(state):
                numbers, products = self._slice(at, span, asked)
                for (query, place), row in zip(who, products, strict=True):
                    lines[query].append((numbers, row, np.full(len(numbers), place)))
        return [_joined(some) for some in lines]

    def _slice(self, at: int, span: slice, queries: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The living documents of a slice (n,), and their inner products with queries (q, n)."""
        held, alive = self.parts[at], self.trie.alive[at]
        vectors = held.tensor[span].to(held.device, torch.float32)
        products = (queries.to(held.device, torch.float32) @ vectors.T).cpu().numpy()
        numbers = np.asarray(self.trie.parts[at].document[span], np.int64)
        return (numbers, products) if alive is None else (numbers[alive[span]], products[:, alive[span]])

    def write(self, writer: Writer) -> None:
        """Put the vectors into an artifact, in the order in which the trie is written."""
        writer.array(NAME, self.moved(self.trie.compact()).parts[0].array)

    @classmethod
    def read(cls, snapshot: Snapshot, trie: Trie, device: str | torch.device = "cpu") -> TrieVectors:
        """Take them out again, mapped."""
        array = snapshot.array(NAME)
        if array.ndim != 2 or len(array) != trie.parts[0].entries or array.dtype.kind != "f":
            raise ArtifactError(f"{snapshot.path}: the vectors are not those of its {trie.parts[0].entries}", RESAVE)
        return cls(trie, (Vectors(array, torch.device(device)),))


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


def _joined(lines: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Below:
    empty = (np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.int64))
    return Below(*(np.concatenate(column) for column in zip(empty, *lines, strict=True)))
