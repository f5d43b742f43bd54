"""Naive docids: the corpus's own ids, character by character."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from triever.data.records import Document, normalise
from triever.docids.quantize import Device
from triever.docids.schemes.base import Docid, Scheme
from triever.errors import UsageError
from triever.validation import Json, require, require_list

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer


@dataclass(eq=False)
class Naive(Scheme):
    """The corpus's own id, character by character, and a stop symbol."""

    kind: ClassVar[str] = "naive"
    _letters: list[str] = field(default_factory=list, init=False, repr=False)

    @property
    def width(self) -> int:
        return len(self._letters) + 1

    @property
    def stop(self) -> int:
        return len(self._letters)

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None, device: Device = None) -> list[Docid]:
        self._letters = sorted({letter for document in documents for letter in document.id})
        return [self.place(document) for document in documents]

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        return self._placed(document.id)

    def _placed(self, key: str) -> Docid:
        number = {letter: at for at, letter in enumerate(self._letters)}
        for letter in key:
            if letter not in number:
                problem = (
                    f"the id {key!r} has the character {letter!r}, which no document had when the docids were fitted"
                )
                raise UsageError(problem, "give the document another id, or fit again")
        return (*(number[letter] for letter in key), self.stop)

    def readable(self, docid: Docid) -> str:
        return "".join(self._letters[symbol] for symbol in docid[:-1])

    def symbol(self, symbol: int) -> str:
        return self._letters[symbol] if symbol < len(self._letters) else "end"

    def parse(self, text: str) -> Docid:
        return self._placed(normalise(text))

    def write(self, writer: Writer) -> dict[str, Json]:
        return {"letters": [*self._letters]}

    def read(self, snapshot: Snapshot, state: dict[str, Json]) -> None:
        self._letters = require_list(state, "letters")
        single = all(isinstance(letter, str) and len(letter) == 1 for letter in self._letters)
        require(single and len(set(self._letters)) == len(self._letters), "its letters are no list of letters")
