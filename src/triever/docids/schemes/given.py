"""Docids of one's own: a file says which symbols each document has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from triever import config
from triever.arguments import as_path
from triever.config import option
from triever.data.formats.fields import clean_id, shorten
from triever.data.formats.json_text import parse_object
from triever.data.formats.lines import read_lines
from triever.data.formats.problems import Problems
from triever.data.records import Document, normalise
from triever.docids.quantize import Device
from triever.docids.schemes.base import Docid, Scheme, is_docid
from triever.errors import BadRecord, DataError, Flaw, UsageError
from triever.memory_parts import Product, Products, Thing, python_bytes, scaled
from triever.validation import Json, require, require_list, require_table

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer

IDS = ("_id", "id", "document_id", "doc_id", "docno")
"""What the id of a document may be called in a line of JSON."""
SYMBOLS = ("symbols", "docid", "code", "semantic_id")
"""What its symbols may be called."""
FORM = 'write {"id": "tea", "symbols": [4, 1, 7]}, or an id, a tab, and symbols with spaces between them'
ENDS = "end"
"""How the symbol that ends every docid is shown."""


@dataclass(eq=False)
class GivenDocids(Scheme):
    """Docids of a file: `GivenDocids("docids.tsv")`. Those of documents that are not there yet wait for them."""

    kind: ClassVar[str] = "given"

    file: str = option("", "lines of JSON with id and symbols, or of an id, a tab, and symbols with spaces between")
    ending: bool = option(False, "end every docid with one more symbol, so that one may be the beginning of another")
    ties: bool = option(False, "let several documents have one docid, as documents of one cluster")

    _names: list[str] = field(default_factory=list, init=False, repr=False)  # of symbols
    _docids: dict[str, Docid] = field(default_factory=dict, init=False, repr=False)  # by the ids of documents

    def __post_init__(self) -> None:
        config.validate(self)

    @property
    def files(self) -> tuple[Path, ...]:
        return (as_path(self.file),) if self.file else ()

    @property
    def width(self) -> int:
        return len(self._names) + self.ending

    @property
    def stop(self) -> int | None:
        return len(self._names) if self.ending else None

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None, device: Device = None) -> list[Docid]:
        if not self.file:
            raise UsageError("given docids are those of a file, but none is named", "name it: docids.file=docids.tsv")
        path = as_path(self.file)
        symbols = _read(path)
        missing = [document.id for document in documents if document.id not in symbols]
        if missing:
            more = f" and {len(missing) - 1:,} more documents" if len(missing) > 1 else ""
            whole = missing[0].rpartition("#")[0] in symbols
            hint = "set cut.which=none: the file has whole documents" if whole else "give every document a docid"
            raise DataError(f"{path} has no docid of {shorten(missing[0])!r}{more}", hint)
        self._names = _in_order({name for docid in symbols.values() for name in docid})
        number = {name: at for at, name in enumerate(self._names)}
        last = () if self.stop is None else (self.stop,)
        self._docids = {key: (*(number[name] for name in docid), *last) for key, docid in symbols.items()}
        self._check(path)
        return [self._docids[document.id] for document in documents]

    def _check(self, path: Path) -> None:
        """Refuse docids that several documents have, and those with which another one begins."""
        in_order = sorted((docid, key) for key, docid in self._docids.items())
        for (first, one), (second, other) in pairwise(in_order):
            if first == second and not self.ties:
                problem = f"{path}: {shorten(one)!r} and {shorten(other)!r} have one docid, {self.readable(first)!r}"
                raise DataError(problem, "give each its own, or set docids.ties=true if that is meant")
            if first != second and second[: len(first)] == first:
                problem = f"{path}: the docid of {shorten(other)!r}, {self.readable(second)!r}, begins with that of "
                problem += f"{shorten(one)!r}, {self.readable(first)!r}"
                raise DataError(problem, "set docids.ending=true, which ends every docid with a symbol of its own")

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        if document.id not in self._docids:
            problem = f"the file of docids had none for the new document {shorten(document.id)!r}"
            raise UsageError(problem, "give it one there, and fit again")
        return self._docids[document.id]

    def readable(self, docid: Docid) -> str:
        return " ".join(self._names[symbol] for symbol in docid if symbol != self.stop)

    def symbol(self, symbol: int) -> str:
        return ENDS if symbol == self.stop else self._names[symbol]

    def parse(self, text: str) -> Docid:
        names = normalise(text).split()
        unknown = [name for name in names if name not in self._names]
        if unknown or not names:
            raise UsageError(f"{text!r} is no docid: it has an unknown symbol", "write it as it was shown")
        return (*map(self._names.index, names), *(() if self.stop is None else (self.stop,)))

    def stored(self) -> list[Thing]:
        return [python_bytes(self._docids), python_bytes(self._names)]

    def products(self, now: int, then: int) -> Products:
        docids = scaled(python_bytes(self._docids), now, then)
        return [Product(1, "docids by document", docids), Product(1, "names of symbols", python_bytes(self._names))]

    def write(self, writer: Writer) -> dict[str, Json]:
        return {"names": [*self._names], "given": {key: [*docid] for key, docid in self._docids.items()}}

    def read(self, snapshot: Snapshot, state: dict[str, Json]) -> None:
        self._names = require_list(state, "names")
        texts = all(isinstance(name, str) for name in self._names)
        require(texts and len(set(self._names)) == len(self._names), "its symbols are no list of different names")
        given = require_table(state, "given")
        require(all(docid and is_docid(docid) for docid in given.values()), "its docids are no lists of symbols")
        require(all(max(docid) < self.width for docid in given.values()), "a docid has a symbol without a name")
        self._docids = {key: tuple(docid) for key, docid in given.items()}


def _in_order(names: set[str]) -> list[str]:
    """Symbols in the order of numbers, where all are numbers, else in that of texts."""
    if all(name.isascii() and name.isdecimal() and len(name) < 19 for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def _read(path: Path) -> dict[str, tuple[str, ...]]:
    """The symbols of each document in a file."""
    symbols: dict[str, tuple[str, ...]] = {}
    for line, key, names in _lines(path):
        if key in symbols:
            raise BadRecord(path, line, f"{shorten(key)!r} has a docid already", "keep one of the two lines")
        symbols[key] = names
    return symbols


def _lines(path: Path) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    split = None
    for number, line in read_lines(path, Problems()):
        split = split or (_of_json if line.lstrip().startswith("{") else _of_columns)
        try:
            key, names = split(line)
        except (Flaw, UsageError) as flaw:
            raise BadRecord(path, number, flaw.problem, flaw.hint) from None
        yield number, normalise(key), names


def _of_columns(line: str) -> tuple[str, tuple[str, ...]]:
    key, tab, rest = line.partition("\t")
    if not tab:
        raise Flaw("the line has no tab between an id and symbols", FORM)
    return clean_id(key), _names(rest.split())


def _of_json(line: str) -> tuple[str, tuple[str, ...]]:
    item = parse_object(line)
    key = next((item[name] for name in IDS if name in item), None)
    symbols = next((item[name] for name in SYMBOLS if name in item), None)
    return clean_id(key), _names(symbols.split() if isinstance(symbols, str) else symbols)


def _names(values: object) -> tuple[str, ...]:
    """Symbols as texts; they have no spaces, so that a docid can be read as it is shown."""
    if not isinstance(values, list) or not values:
        raise Flaw("there are no symbols", FORM)
    if not all(type(value) is int or (isinstance(value, str) and value) for value in values):
        raise Flaw("a symbol is neither text nor a whole number", FORM)
    names = tuple(normalise(str(value)) for value in values)
    if any(len(name.split()) != 1 or name != name.strip() for name in names):
        raise Flaw("a symbol has a space inside", "write another sign in its place")
    return names
