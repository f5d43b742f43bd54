"""The documents that a retriever holds, in columns: compact, ordered, looked up by id.

A store never changes; adding and deleting give a new one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

import numpy as np
import pyarrow as pa

from triever.data.dataset import Digest
from triever.data.records import Document
from triever.errors import DataError, UsageError, nearest
from triever.memory_parts import Product, Products, Stored, number_products, python_bytes, scaled, text_products
from triever.validation import Json, require

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("title", pa.string()),
        ("text", pa.large_string()),
        ("expansions", pa.list_(pa.string())),
        ("metadata", pa.string()),  # JSON: every document may have other keys
    ]
)
BATCH = 4096
OFFSETS = 4 + 4 + 8 + 4 + 4
"""Bytes of the offsets of one document in the five columns."""


class Missing:
    """What a document has under a key of metadata that it does not have."""


MISSING = Missing()


class DocumentStore:
    """Documents by row and by id."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.cast(SCHEMA)
        self._metadata: dict[str, list[Json | Missing]] = {}  # by key, what was asked for

    @classmethod
    def of(cls, documents: Iterable[Document]) -> DocumentStore:
        """A store of these documents; two documents with the same id are an error."""
        stream = iter(documents)
        batches = []
        while batch := list(islice(stream, BATCH)):
            try:
                batches.append(pa.RecordBatch.from_pylist([_row(document) for document in batch], SCHEMA))
            except UnicodeEncodeError:
                raise _no_text(batch) from None
        store = cls(pa.Table.from_batches(batches, SCHEMA))
        store._refuse_duplicates()
        return store

    @classmethod
    def opened(cls, table: pa.Table, count: int) -> DocumentStore:
        """A store of the table of a file; a ValueError if it is not a table of `count` documents."""
        require(table.num_rows == count, f"it has {table.num_rows} documents, and its manifest says {count}")
        lists = [chunk.flatten() for chunk in table.column("expansions").chunks]
        missing = sum(column.null_count for column in (*table.columns, *lists))
        require(not missing, f"{missing} ids, titles, texts or expansions are missing")
        store = cls(table)
        require(len(store._rows) == count, "two documents have one id")
        return store

    def __len__(self) -> int:
        return self.table.num_rows

    def __iter__(self) -> Iterator[Document]:
        for batch in self.table.to_batches(max_chunksize=BATCH):
            yield from map(_document, batch.to_pylist())

    def __contains__(self, document_id: object) -> bool:
        return document_id in self._rows

    @cached_property
    def ids(self) -> list[str]:
        """The ids, in row order."""
        return self.table.column("id").to_pylist()

    def document(self, document_id: str) -> Document:
        """The document with this id."""
        return _document(self.table.slice(self.row(document_id), 1).to_pylist()[0])

    def slice(self, first: int, last: int) -> list[Document]:
        """The documents from one row to before another."""
        return [_document(row) for row in self.table.slice(first, last - first).to_pylist()]

    def row(self, document_id: str) -> int:
        """The row of the document with this id."""
        try:
            return self._rows[document_id]
        except KeyError:
            hint = nearest(document_id, self.ids, listed=0) if len(self) <= 10_000 else "check the id"
            raise UsageError(f"there is no document with id {document_id!r}", hint) from None

    def titles(self, rows: Sequence[int]) -> list[str]:
        """The titles of the documents in these rows."""
        return self.table.column("title").take(pa.array(rows, pa.int64())).to_pylist()

    def metadata(self, key: str) -> list[Json | Missing]:
        """What each document has under a key of its metadata; `author.name` looks inside a table."""
        if key not in self._metadata:
            self._metadata[key] = [_value_at(metadata, key) for metadata in self._tables()]
        return self._metadata[key]

    def metadata_keys(self) -> set[str]:
        """All keys of metadata that a document has."""
        return {key for metadata in self._tables() for key in metadata}

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns of all documents."""
        return self.table.select(names)

    def _tables(self) -> Iterator[dict[str, Json]]:
        """The metadata of each document."""
        for batch in self.columns(["id", "metadata"]).to_batches(max_chunksize=BATCH):
            yield from (_metadata(row) if row["metadata"] else {} for row in batch.to_pylist())

    def with_added(self, documents: Iterable[Document]) -> DocumentStore:
        """A store with these documents after its own."""
        added = DocumentStore.of(documents)
        for document_id in added.ids:
            if document_id in self:
                problem = f"a document with id {document_id!r} already exists"
                raise UsageError(problem, "delete it first, or replace it")
        return DocumentStore(pa.concat_tables([self.table, added.table]))

    def without(self, ids: Iterable[str]) -> DocumentStore:
        """All documents but these."""
        return self.where(self.kept(ids))

    def where(self, keep: np.ndarray) -> DocumentStore:
        """The documents whose rows are kept (shape: documents, bool)."""
        return DocumentStore(self.table.filter(keep))

    def kept(self, ids: Iterable[str]) -> np.ndarray:
        """(documents,) bool, which rows stay when the documents with these ids are deleted."""
        keep = np.ones(len(self), bool)
        keep[[self.row(document_id) for document_id in ids]] = False
        return keep

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of ids, titles and texts, the same as of a dataset."""
        digest = Digest()
        for document in self:
            digest.add(document)
        return digest.hex()

    @property
    def expanded(self) -> int:
        """The number of documents with expansions."""
        return sum(
            int(np.count_nonzero(chunk.value_lengths())) for chunk in self.columns(["expansions"]).column(0).chunks
        )

    def stored(self) -> Stored:
        """The sizes of the parts in memory."""
        rows = python_bytes(self.ids, self._rows) - python_bytes(self.ids)  # its keys are the ids themselves
        return {"texts": [self.table.nbytes], "ids": [python_bytes(self.ids)], "rows by id": [rows]}

    def products(self, documents: int) -> dict[str, Products]:
        """The sizes of the parts, computed for `documents` documents of the same kind."""
        columns = {name: scaled(self._letters(name), len(self), documents) for name in SCHEMA.names}
        listed = sum(len(chunk.flatten()) for chunk in self.table.column("expansions").chunks)
        return {
            "texts": [
                Product(sum(columns.values()), "letters", 1, "in UTF-8"),
                Product(documents, "documents", OFFSETS, "where its columns begin"),
                Product(scaled(listed, len(self), documents), "expansions", 4, "where each begins"),
            ],
            "ids": text_products(documents, "ids", columns["id"]),
            "rows by id": number_products(documents),
        }

    def _letters(self, name: str) -> int:
        """The bytes of all texts of a column, in UTF-8."""
        from pyarrow.compute import call_function  # only here: it takes longer than Arrow itself

        column = self.table.column(name)
        texts = call_function("list_flatten", [column]) if pa.types.is_list(column.type) else column
        return call_function("sum", [call_function("binary_length", [texts])]).as_py() or 0

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {document_id: row for row, document_id in enumerate(self.ids)}

    def _refuse_duplicates(self) -> None:
        if len(self._rows) < len(self):
            twice = next(document_id for row, document_id in enumerate(self.ids) if self._rows[document_id] != row)
            raise DataError(f"two documents have the id {twice!r}", "give every document its own id")


def _no_text(documents: Iterable[Document]) -> DataError:
    """The error for the first document whose text cannot be stored."""
    for document in documents:
        try:
            "".join((document.id, document.title, document.text, *document.expansions)).encode()
        except UnicodeEncodeError as error:
            problem = f"document {document.id!r} holds {error.object[error.start]!r}, half of a surrogate pair"
            return DataError(problem, "decode its text again, or remove that character")
    return DataError("the metadata of a document holds half of a surrogate pair", "remove it")


def _row(document: Document) -> dict[str, object]:
    return {
        "id": document.id,
        "title": document.title,
        "text": document.text,
        "expansions": list(document.expansions),
        "metadata": json.dumps(dict(document.metadata), ensure_ascii=False) if document.metadata else "",
    }


def _value_at(metadata: Json, key: str) -> Json | Missing:
    """What stands under a key, which may have dots itself or lead through tables."""
    if not isinstance(metadata, dict):
        return MISSING
    if key in metadata:
        return metadata[key]
    first, _, rest = key.partition(".")
    return _value_at(metadata[first], rest) if rest and first in metadata else MISSING


def _document(row: dict[str, str]) -> Document:
    metadata = _metadata(row) if row["metadata"] else {}
    return Document.stored(row["id"], row["text"], row["title"], tuple(row["expansions"]), metadata)


def _metadata(row: dict[str, str]) -> dict[str, Json]:
    try:
        metadata = json.loads(row["metadata"])
    except (ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise DataError(f"the metadata of document {row['id']!r} is not a JSON object", "delete it, and add it again")
    return metadata
