"""The base class of docid schemes, and the numbering of documents whose docids have the same prefix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor

from triever import config, plugins
from triever.data.records import Document
from triever.docids.quantize import Device, all_finite
from triever.errors import UnknownKind, UsageError
from triever.errors import nearest as closest
from triever.memory_parts import ENTRY, PLACE, TUPLE, Product, Products, Thing, dict_size, scaled
from triever.validation import FLOATS, Json, require, require_array, require_finite

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer

Docid: TypeAlias = tuple[int, ...]


ALIKE = "their vectors are nearly alike: leave copies out, or take vectors of a tuned dense retriever"
"""What to do if documents cannot be told apart although their scheme does what it can."""


def is_docid(value: object) -> bool:
    """Whether a JSON value is a docid or a prefix."""
    return isinstance(value, list) and all(type(symbol) is int and symbol >= 0 for symbol in value)


class Numbering(Counter[Docid]):
    """The number of documents with each prefix; the next document there gets the next number as its last symbol."""

    def next(self, beginning: Docid, limit: int) -> int:
        """The number of the next document; after `limit` numbers it begins again, so that documents share docids."""
        self[beginning] += 1
        return (self[beginning] - 1) % limit

    def to_lists(self) -> list[Json]:
        """All counts as a JSON value; `of_lists` reads it."""
        return [[list(beginning), count] for beginning, count in self.items()]

    @classmethod
    def of_lists(cls, lists: object) -> Numbering:
        """The numbering from the result of `to_lists`; a ValueError for any other value."""
        if not isinstance(lists, list):
            raise ValueError("the numbers of docids are no list")
        for item in lists:
            is_pair = isinstance(item, list) and len(item) == 2 and type(item[1]) is int and item[1] > 0
            require(is_pair and is_docid(item[0]), "the numbers of docids are not those of beginnings")
        return cls({tuple(beginning): count for beginning, count in lists})

    def products(self, now: int, then: int) -> Products:
        """The sizes in memory, scaled from `now` documents to `then`."""
        beginnings, symbols = scaled(len(self), now, then), scaled(sum(map(len, self)), now, then)
        return [
            Product(beginnings, "beginnings", TUPLE),
            Product(symbols, "symbols of them", PLACE),
            Product(1, "table of them", dict_size(beginnings, ENTRY)),
        ]


@dataclass(frozen=True)
class Coding:
    """How docids code vectors, for a look at how much their symbols say; see `triever.docids.code_use`."""

    choices: int  # symbols that may stand at one position
    if_crowded: str  # what to do if most documents have the same symbol at a position
    numbered: bool = False  # the last symbol is a number, which tells documents with the same code apart
    distinct: bool = False  # each document should have a code of its own
    if_shared: str = ""  # what to do if many have not


@dataclass(eq=False)
class Scheme(ABC):
    """The base class of docid schemes."""

    kind: ClassVar[str]
    needs_vectors: ClassVar[bool] = False
    shared: ClassVar[bool] = False
    """Whether new documents get docids that exist, so that a larger corpus does not have more docids."""
    if_tied: ClassVar[str] = ""
    """What to do if many documents share a whole docid; "" where that is meant, or cannot be."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of symbols."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that docids are read from."""
        return ()

    @property
    def stop(self) -> int | None:
        """The symbol that ends every docid, where a scheme has one."""
        return None

    @abstractmethod
    def fit(
        self, documents: Sequence[Document], vectors: Tensor | None = None, device: Device = None
    ) -> Sequence[Docid]:
        """A docid for each document.

        Vectors are (documents, d), of any type, and may be mapped from a file. Clusters are made on the device, or
        else on that of the vectors.
        """

    @abstractmethod
    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        """A docid for a new document, without changing any other."""

    def others(self, vectors: Tensor | None, docids: Sequence[Docid] | None = None) -> list[list[Docid]]:
        """Additional docids for each document (documents, d), besides its first; [] if the scheme has none.

        `docids` are those that `fit` gave to all documents; without them, the documents are new ones.
        """
        return []

    def tied_hint(self, length: int) -> str:
        """What to do if many documents share docids of so many symbols; "" where that is meant, or cannot be."""
        return self.if_tied

    def readable(self, docid: Docid) -> str:
        """The docid as text."""
        return "-".join(map(str, docid))

    def parse(self, text: str) -> Docid:
        """The docid from the text of `readable`."""
        return tuple(int(part) for part in text.split("-"))

    def symbol(self, symbol: int) -> str:
        """One symbol as text."""
        return str(symbol)

    @property
    def single(self) -> bool:
        """Whether every docid is one symbol."""
        return False

    @property
    def names_vectors(self) -> bool:
        """Whether its symbols stand for vectors, if it is fitted with vectors."""
        return False

    @property
    def coding(self) -> Coding | None:
        """How docids code vectors, or None where they do not."""
        return None

    def rows(self) -> Tensor | None:
        """(symbols, d) the vectors that the first symbols stand for, or None."""
        return None

    def stored(self) -> list[Thing]:
        """What takes memory, except a tokenizer, whose size is unknown."""
        return []

    def products(self, now: int, then: int) -> Products:
        """The sizes in memory, scaled from `now` documents to `then`."""
        return []

    @classmethod
    def of_options(cls, value: object, where: str) -> Scheme:
        """The scheme of an option: a scheme, the name of one, or a table with its kind."""
        if isinstance(value, Scheme):
            return value
        values = {"kind": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else {}
        kind = values.pop("kind", None)
        if not isinstance(kind, str) or not kind:
            raise UsageError(f"{where} = {value!r} names no docid scheme", f"for example: {where}.kind=semantic")
        return config.build(scheme_class(kind, f"{where} = {value!r} names no docid scheme"), values, where=f"{where}.")

    def has_symbols(self, symbols: np.ndarray) -> bool:
        """Whether all these symbols, which are below its width, exist in the scheme."""
        return True

    @abstractmethod
    def write(self, writer: Writer) -> dict[str, Json]:
        """Write what was learned into the files of an artifact; returns the rest, for its manifest."""

    @abstractmethod
    def read(self, snapshot: Snapshot, state: dict[str, Json]) -> None:
        """Read what `write` wrote into files, and what it returned."""

    def _read_vectors(self, snapshot: Snapshot, name: str, *shape: int | None) -> Tensor:
        """Vectors of an artifact, in memory; a ValueError unless they have this shape and are finite."""
        array = require_array(snapshot.array(name), name, FLOATS, shape)
        return torch.tensor(require_finite(array, name))

    def _vectors(self, vectors: Tensor | None, count: int) -> Tensor:
        if vectors is None or len(vectors) != count:
            have = "none" if vectors is None else len(vectors)
            problem = f"{self.kind} docids need a vector for each of {count} documents, but there are {have}"
            raise UsageError(problem, "give one vector for each document")
        if not count:
            raise UsageError(f"{self.kind} docids cannot be fitted without documents", "give at least one document")
        if not all_finite(vectors):
            problem = f"{self.kind} docids are made from vectors, but some vectors hold numbers that are not finite"
            raise UsageError(problem, "correct the vectors of those documents")
        return vectors

    def _vector(self, vector: Tensor | None, like: Tensor | None) -> Tensor:
        """The vector of one new document as (1, d); an error unless it has the size of the fitted ones (..., d)."""
        if like is None:
            raise UsageError(f"the {self.kind} docids are not fitted", "call fit first")
        row = self._vectors(None if vector is None else vector[None], 1).to(like)
        if row.shape[1] != like.shape[-1]:
            problem = f"the new vector has {row.shape[1]} numbers, but the fitted ones have {like.shape[-1]}"
            raise UsageError(problem, "use the encoder that the docids were fitted with")
        return row


SCHEMES: dict[str, type[Scheme]] = {}
"""Every scheme of Triever by its kind; the package fills it."""


def scheme_class(kind: str, problem: str = "") -> type[Scheme]:
    """The scheme class of a kind, ours or one that an installed package brings; `problem` says what lacks without."""
    scheme = SCHEMES.get(kind) or plugins.find_class(plugins.SCHEMES, kind, Scheme)
    if scheme is None:
        hint = closest(kind, [*SCHEMES, *plugins.names(plugins.SCHEMES, SCHEMES)])
        raise UnknownKind(kind, problem or f"there is no docid scheme {kind!r}", hint)
    return scheme
