"""Atomic docids: one symbol for each document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from triever import config
from triever.config import option
from triever.data.records import Document
from triever.docids.quantize import Device, nearest_few
from triever.docids.schemes.base import Docid, Scheme, is_docid
from triever.errors import UsageError
from triever.memory_parts import Product, Products, Thing, scaled
from triever.validation import Json, require, require_count, require_list

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer


UNTRAINED = "the new docids are not those of documents with neighbours"


@dataclass(eq=False)
class Atomic(Scheme):
    """One symbol for each document. A new document gets a new symbol, which a model has yet to learn.

    `untrained` has the new symbols, each with the symbols of the nearest fitted documents: a model may start from their
    rows (`widened` of a T5). Without vectors, it has no such neighbours.
    """

    kind: ClassVar[str] = "atomic"

    neighbours: int = option(5, "number of nearest documents whose rows are averaged for a new document")

    untrained: dict[int, list[int]] = field(default_factory=dict, init=False, repr=False)
    _count: int = field(default=0, init=False, repr=False)
    _known: Tensor | None = field(default=None, init=False, repr=False)  # (documents fitted, d)

    def __post_init__(self) -> None:
        config.validate(self)
        if self.neighbours < 1:
            raise UsageError(f"neighbours = {self.neighbours} should be above zero", "the default is 5")

    @property
    def width(self) -> int:
        return self._count

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None, device: Device = None) -> list[Docid]:
        # A copy: these are used long after the fit, when the caller may have changed its vectors.
        given = None if vectors is None or not documents else self._vectors(vectors, len(documents))
        self._known = None if given is None else given.to(torch.float32, copy=True)
        self._count = len(documents)
        self.untrained = {}
        return [(number,) for number in range(self._count)]

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        symbol, near = self._count, self._nearest(vector)
        self._count += 1
        self.untrained[symbol] = near
        return (symbol,)

    def _nearest(self, vector: Tensor | None) -> list[int]:
        """The symbols of the nearest fitted documents; later ones have no trained rows to average."""
        if vector is None or self._known is None:
            return []
        return nearest_few(self._vector(vector, self._known)[0], self._known, self.neighbours).tolist()

    @property
    def single(self) -> bool:
        return True

    @property
    def names_vectors(self) -> bool:
        return True

    def rows(self) -> Tensor | None:
        return self._known

    def stored(self) -> list[Thing]:
        return [] if self._known is None else [self._known]

    def products(self, now: int, then: int) -> Products:
        if self._known is None:
            return []
        count, width = self._known.shape
        return [Product(scaled(count, now, then), "documents", 4 * width, f"vectors of {width} numbers of 4")]

    def apart(self, symbols: Sequence[int], vectors: Tensor) -> Tensor:
        """(symbols, d) the difference of the vectors of untrained symbols from the mean of their neighbours."""
        assert self._known is not None  # else they have no neighbours
        means = torch.stack([self._known[self.untrained[symbol]].mean(0) for symbol in symbols])
        return vectors.to(means) - means

    def write(self, writer: Writer) -> dict[str, Json]:
        if self._known is not None:
            writer.array("docid_vectors", self._known.cpu().numpy())
        untrained: list[Json] = [[symbol, [*near]] for symbol, near in self.untrained.items()]
        return {"count": self._count, "untrained": untrained}

    def read(self, snapshot: Snapshot, state: dict[str, Json]) -> None:
        self._count = require_count(state, "count")
        if snapshot.has("docid_vectors"):
            self._known = self._read_vectors(snapshot, "docid_vectors", None, None)
            require(len(self._known) <= self._count, "there are more vectors than docids")
        known = 0 if self._known is None else len(self._known)
        listed = require_list(state, "untrained")
        require(all(isinstance(pair, list) and len(pair) == 2 for pair in listed), UNTRAINED)
        require(all(is_docid([symbol]) and is_docid(near) for symbol, near in listed), UNTRAINED)
        self.untrained = {symbol: list(near) for symbol, near in listed}
        require(all(symbol < known for near in self.untrained.values() for symbol in near), UNTRAINED)
