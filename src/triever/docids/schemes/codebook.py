"""Codebook docids: residual quantization."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from triever import config
from triever.config import option
from triever.data.records import Document
from triever.docids.quantize import Device, residual_codebooks, residual_codes
from triever.docids.schemes.base import Docid, Numbering, Scheme
from triever.errors import UsageError
from triever.memory_parts import Product, Products, Thing, python_bytes
from triever.validation import Json

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer


@dataclass(eq=False)
class Codebook(Scheme):
    """Residual quantization: a symbol from each codebook, then a number that distinguishes equal codes."""

    kind: ClassVar[str] = "codebook"
    needs_vectors: ClassVar[bool] = True

    levels: int = option(6, "number of codebooks")
    bits: int = option(8, "bits of a symbol: a codebook has 2 ** bits vectors")
    positions: bool = option(True, "give each codebook its own symbols, which then stand for its vectors")
    seed: int = option(0, "seed of the codebooks")
    balanced: bool = option(True, "learn codebooks from equal shares of the vectors, so that all symbols are used")

    _books: Tensor | None = field(default=None, init=False, repr=False)
    _held: Numbering = field(default_factory=Numbering, init=False, repr=False)

    def __post_init__(self) -> None:
        config.validate(self)
        if not (1 <= self.levels <= 32 and 1 <= self.bits <= 16):
            problem = f"a value is out of range: levels = {self.levels}, bits = {self.bits}"
            raise UsageError(problem, "set levels from 1 to 32, and bits from 1 to 16")

    @property
    def _size(self) -> int:
        return 2**self.bits

    @property
    def width(self) -> int:
        return self._size * (self.levels + 1) if self.positions else self._size

    @property
    def names_vectors(self) -> bool:
        return self.positions

    def rows(self) -> Tensor | None:
        return self._books.flatten(0, 1) if self._books is not None and self.positions else None

    @property
    def collision_rate(self) -> float:
        """The fraction of documents that share their code with another one."""
        total = sum(self._held.values())
        return sum(count for count in self._held.values() if count > 1) / total if total else 0.0

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None, device: Device = None) -> list[Docid]:
        checked = self._vectors(vectors, len(documents))
        books = residual_codebooks(
            checked, self.levels, self._size, seed=self.seed, device=device, balanced=self.balanced
        )
        self._books, self._held = books.cpu(), Numbering()
        return self._numbered(residual_codes(checked, books).tolist())

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        row = self._vector(vector, self._books)
        assert self._books is not None  # `_vector` has checked it
        return self._numbered(residual_codes(row, self._books).tolist())[0]

    def _numbered(self, codes: Iterable[Sequence[int]]) -> list[Docid]:
        docids: list[Docid] = [(*code, self._held.next(code, self._size)) for code in map(tuple, codes)]
        if not self.positions:
            return docids
        return [tuple(level * self._size + symbol for level, symbol in enumerate(docid)) for docid in docids]

    def stored(self) -> list[Thing]:
        return [*([] if self._books is None else [self._books]), python_bytes(self._held)]

    def products(self, now: int, then: int) -> Products:
        width = 0 if self._books is None else self._books.shape[2]
        books = Product(self.levels, "codebooks", 4 * self._size * width, f"{self._size} vectors")
        return [books, *self._held.products(now, then)]

    def write(self, writer: Writer) -> dict[str, Json]:
        if self._books is not None:
            writer.array("docid_codebooks", self._books.cpu().numpy())
        return {"held": self._held.to_lists()}

    def read(self, snapshot: Snapshot, state: dict[str, Json]) -> None:
        self._held = Numbering.of_lists(state["held"])
        self._books = self._read_vectors(snapshot, "docid_codebooks", self.levels, self._size, None)
