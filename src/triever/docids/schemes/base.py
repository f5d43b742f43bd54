"""What every docid scheme can do, and how documents of one beginning are numbered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor

from triever import config, plugins
from triever.data.records import Document
from triever.docids.quantize import Device, all_finite
from triever.errors import UnknownKind, UsageError
from triever.errors import nearest as closest
from triever.memory_parts import ENTRY, PLACE, TUPLE, Product, Products, Thing, dict_size, scaled
from triever.validation import FLOATS, require, require_array, require_finite

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer

Docid: TypeAlias = tuple[int, ...]


def is_docid(value: Any) -> bool:
    """Whether a JSON value is a docid, or the beginning of one."""
    return isinstance(value, list) and all(type(symbol) is int and symbol >= 0 for symbol in value)


class Numbering(Counter[Docid]):
    """How many documents have each beginning of a docid, so that the next one there gets the next number."""

    def next(self, beginning: Docid, most: int) -> int:
        """The number of one more document; after so many it begins again, so that documents share docids."""
        self[beginning] += 1
        return (self[beginning] - 1) % most

    def to_lists(self) -> list[list[Any]]:
        """All of it as plain values; `of_lists` takes them back."""
        return [[list(beginning), count] for beginning, count in self.items()]

    @classmethod
    def of_lists(cls, lists: Iterable[Sequence[Any]]) -> Numbering:
        """What `to_lists` gave; a ValueError if it is something else."""
        require(isinstance(lists, list), "the numbers of docids are no list")
        for one in lists:
            pair = isinstance(one, list) and len(one) == 2 and type(one[1]) is int and one[1] > 0
            require(pair and is_docid(one[0]), "the numbers of docids are not those of beginnings")
        return cls({tuple(beginning): count for beginning, count in lists})

    def products(self, now: int, then: int) -> Products:
        """What it takes with `then` documents in place of `now`."""
        beginnings, symbols = scaled(len(self), now, then), scaled(sum(map(len, self)), now, then)
        return [
            Product(beginnings, "beginnings", TUPLE),
            Product(symbols, "symbols of them", PLACE),
            Product(1, "table of them", dict_size(beginnings, ENTRY)),
        ]


@dataclass(eq=False)
class Scheme(ABC):
    """What every scheme can do."""

    kind: ClassVar[str]
    needs_vectors: ClassVar[bool] = False
    shared: ClassVar[bool] = False
    """Whether new documents have docids that are there already, so that a larger corpus has no more of them."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many symbols there are."""

    @property
    def stop(self) -> int | None:
        """The symbol that ends every docid, where a scheme has one."""
        return None

    @abstractmethod
    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None, device: Device = None) -> list[Docid]:
        """A docid for each document.

        Vectors are (documents, d), of any type, and may be mapped from a file. Clusters are made on the device, or
        without one where the vectors are.
        """

    @abstractmethod
    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        """A docid for a new document, without changing any other."""

    def others(self, vectors: Tensor | None, docids: Sequence[Docid] | None = None) -> list[list[Docid]]:
        """For documents (documents, d) that have their docids, docids that they may have besides; [] where none may.

        The docids are those that `fit` gave to all documents; without them, the documents are new ones.
        """
        return []

    def readable(self, docid: Docid) -> str:
        """The docid for a person."""
        return "-".join(map(str, docid))

    def parse(self, text: str) -> Docid:
        """The docid that `readable` wrote."""
        return tuple(int(part) for part in text.split("-"))

    def symbol(self, symbol: int) -> str:
        """One symbol for a person."""
        return str(symbol)

    @property
    def single(self) -> bool:
        """Whether every docid is one symbol."""
        return False

    @property
    def names_vectors(self) -> bool:
        """Whether its symbols stand for vectors, where it is fitted with any."""
        return False

    def rows(self) -> Tensor | None:
        """(symbols, d) the vectors that the first symbols stand for, where they stand for any."""
        return None

    def stored(self) -> list[Thing]:
        """What takes memory of all that places new documents; a tokenizer's is not known."""
        return []

    def products(self, now: int, then: int) -> Products:
        """The same computed, for `then` documents in place of `now`."""
        return []

    @classmethod
    def of_options(cls, value: Any, where: str) -> Scheme:
        """A scheme that is an option: itself, its name, or a table with its kind."""
        if isinstance(value, Scheme):
            return value
        values = {"kind": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else {}
        kind = values.pop("kind", None)
        if not isinstance(kind, str) or not kind:
            raise UsageError(f"{where} = {value!r} names no docid scheme", f"for example: {where}.kind=semantic")
        return config.build(scheme_class(kind, f"{where} = {value!r} names no docid scheme"), values, where=f"{where}.")

    def has_symbols(self, symbols: np.ndarray) -> bool:
        """Whether all these symbols, which are below its width, are its own."""
        return True

    @abstractmethod
    def write(self, writer: Writer) -> dict[str, Any]:
        """Put what was learned into an artifact; what is not a file is given back."""

    @abstractmethod
    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        """Take it out again."""

    def _read_vectors(self, snapshot: Snapshot, name: str, *shape: int | None) -> Tensor:
        """Vectors of an artifact, in memory; a ValueError unless they have this shape and are finite."""
        array = require_array(snapshot.array(name), name, FLOATS, shape)
        return torch.tensor(require_finite(array, name))

    def _vectors(self, vectors: Tensor | None, count: int) -> Tensor:
        if vectors is None or len(vectors) != count:
            have = "none" if vectors is None else len(vectors)
            raise UsageError(f"{self.kind} docids need a vector for each of {count} documents, and have {have}")
        if not count:
            raise UsageError(f"{self.kind} docids need documents to be fitted on, and there are none")
        if not all_finite(vectors):
            problem = f"{self.kind} docids are made from vectors, and some hold numbers that are not finite"
            raise UsageError(problem, "correct the vectors of those documents")
        return vectors

    def _vector(self, vector: Tensor | None, like: Tensor | None) -> Tensor:
        """The vector of one new document, as (1, d), of the size of those (..., d) that were fitted."""
        if like is None:
            raise UsageError(f"the {self.kind} docids are not fitted", "call fit first")
        found = self._vectors(None if vector is None else vector[None], 1).to(like)
        if found.shape[1] != like.shape[-1]:
            problem = f"the new vector has {found.shape[1]} numbers, and the fitted ones {like.shape[-1]}"
            raise UsageError(problem, "use the encoder that the docids were fitted with")
        return found


SCHEMES: dict[str, type[Scheme]] = {}
"""Every scheme of Triever by its kind; the package fills it."""


def scheme_class(kind: str, problem: str = "") -> type[Scheme]:
    """The scheme class of a kind, ours or one that an installed package brings; `problem` says what lacks without."""
    found = SCHEMES.get(kind) or plugins.find_class(plugins.SCHEMES, kind, Scheme)
    if found is None:
        hint = closest(kind, [*SCHEMES, *plugins.names(plugins.SCHEMES, SCHEMES)])
        raise UnknownKind(kind, problem or f"there is no docid scheme {kind!r}", hint)
    return found
