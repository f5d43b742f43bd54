"""Title docids: titles as word pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import Tensor

from triever import config
from triever.config import option
from triever.data.records import Document
from triever.docids.quantize import Device
from triever.docids.schemes.base import Docid, Scheme
from triever.docids.schemes.pieces import learn_pieces, load_pieces
from triever.errors import UsageError
from triever.validation import Json, opened_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from triever.artifact import Snapshot, Writer


@dataclass(eq=False)
class Title(Scheme):
    """The title as word pieces, and a stop symbol. Equal titles share a docid, and a title may be a prefix of another.

    With a backbone's tokenizer, symbol i is the backbone's token i, and the stop symbol comes after the last.
    """

    kind: ClassVar[str] = "title"
    if_tied: ClassVar[str] = "set docids=semantic, or give every document a title of its own"

    vocabulary: int = option(8000, "largest number of word pieces, which are learned from the titles")
    tokenizer: str = option("", "a folder or tokenizer.json whose pieces to use; empty learns them from the titles")
    most: int = option(64, "largest number of pieces in a docid; titles that agree in all of these share a docid")

    _given: Any = field(
        default=None, init=False, repr=False
    )  # a Tokenizer, which options cannot name: it is imported late
    _pieces: tuple[Any, int] | None = field(default=None, init=False, repr=False)  # tokenizer, stop symbol

    def __post_init__(self) -> None:
        config.validate(self)
        if not 100 <= self.vocabulary <= 10**7:
            problem = f"vocabulary = {self.vocabulary} should be from 100 to 10,000,000"
            raise UsageError(problem, "the default is 8000")
        if self.most < 1:
            raise UsageError(f"most = {self.most} should be above zero", "the default is 64")

    @classmethod
    def by(cls, tokenizer: Tokenizer, most: int = 64) -> Title:
        """A scheme with the pieces of a given tokenizer."""
        made = cls(most=most)
        made._given = tokenizer
        return made

    @property
    def width(self) -> int:
        return self.stop + 1

    @property
    def stop(self) -> int:
        return self._fitted[1]

    @property
    def _fitted(self) -> tuple[Tokenizer, int]:
        if self._pieces is None:
            raise UsageError("the word pieces are not learned yet", "call fit first")
        return self._pieces

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None, device: Device = None) -> list[Docid]:
        names = [_name(document) for document in documents]
        self._pieces = _with_stop(self._given or self._new_tokenizer(names))
        tokenizer, stop = self._pieces
        encoded = tokenizer.encode_batch(names, add_special_tokens=False)
        return [(*encoding.ids[: self.most], stop) for encoding in encoded]

    def _new_tokenizer(self, names: Sequence[str]) -> Tokenizer:
        return load_pieces(self.tokenizer) if self.tokenizer else learn_pieces(names, self.vocabulary)

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        tokenizer, stop = self._fitted
        return (*tokenizer.encode(_name(document), add_special_tokens=False).ids[: self.most], stop)

    def readable(self, docid: Docid) -> str:
        tokenizer, _ = self._fitted
        return " ".join(_escaped(tokenizer.id_to_token(symbol) or "") for symbol in docid[:-1])

    def symbol(self, symbol: int) -> str:
        tokenizer, stop = self._fitted
        return "end" if symbol == stop else tokenizer.id_to_token(symbol) or ""

    def has_symbols(self, symbols: np.ndarray) -> bool:
        tokenizer, stop = self._fitted
        return {*tokenizer.get_vocab().values(), stop}.issuperset(symbols.tolist())

    def parse(self, text: str) -> Docid:
        tokenizer, stop = self._fitted
        pieces = [_unescaped(piece) for piece in text.split(" ")] if text else []
        symbols: list[int] = []
        for piece in pieces:
            symbol = tokenizer.token_to_id(piece)
            if symbol is None:
                raise UsageError(f"{piece!r} is not one of the word pieces", "write the docid as Triever shows it")
            symbols.append(symbol)
        return (*symbols, stop)

    def write(self, writer: Writer) -> dict[str, Json]:
        # It gets its own file: a backbone's tokenizer has megabytes, and every change rewrites the manifest.
        writer.json("docid_pieces", json.loads(self._fitted[0].to_str()))
        return {}

    def read(self, snapshot: Snapshot, state: dict[str, Json]) -> None:
        self._pieces = _with_stop(opened_tokenizer(snapshot.json("docid_pieces")))


def _with_stop(tokenizer: Tokenizer) -> tuple[Tokenizer, int]:
    """The tokenizer and the stop symbol, which follows the last piece; some tokenizers have gaps in their ids."""
    return tokenizer, 1 + max(tokenizer.get_vocab().values(), default=-1)


def _escaped(piece: str) -> str:
    r"""A piece with its spaces escaped, because spaces separate pieces in a readable docid.

    >>> _escaped("a b"), _unescaped(r"a\_b")
    ('a\\_b', 'a b')
    """
    return piece.replace("\\", r"\\").replace(" ", r"\_")


def _unescaped(piece: str) -> str:
    return re.sub(r"\\(.)", lambda hit: " " if hit[1] == "_" else hit[1], piece)


def _name(document: Document) -> str:
    return document.title or document.id
