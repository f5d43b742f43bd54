"""The documents that a retriever holds, in columns: compact, ordered, looked up by id.

A store never changes; adding and deleting give a new one. Texts are letters end to end and where each begins; those of
an artifact are mapped, so that opening it takes memory for nothing but the lookup by id. Those of many new documents
lie in files without a name until they are saved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, overload

import numpy as np
import pyarrow as pa

from triever.data.cutting import Cut
from triever.data.dataset import Digest
from triever.data.records import Document, normalise
from triever.disk_arrays import GrowingArray
from triever.errors import DataError, UsageError, nearest
from triever.memory_parts import Product, Products, Stored, Thing, counted, scaled
from triever.validation import Json, require, require_array, require_starts, require_within

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer

SCHEMA = pa.schema(
    [
        ("id", pa.large_string()),
        ("title", pa.large_string()),
        ("text", pa.large_string()),
        ("metadata", pa.large_string()),  # JSON: every document may have other keys
        ("expansions", pa.large_list(pa.large_string())),
    ]
)
BATCH = 4096
LEARNED = 500_000
"""A tokenizer is learned from at most so many texts: more of them hardly change what is common."""
LETTERS, STARTS, EXPANSION_STARTS = "documents_letters", "documents_starts", "documents_expansions"
"""The files of documents: the letters of each column after the other in UTF-8, where those of each document begin, the
last row being where its expansions do, and where each expansion begins among the letters."""
OFFSET = 8
"""Bytes of where something begins."""
LOOKUP = 8 + 8
"""Bytes by which a document is looked up in memory: the hash of its id, and its row."""


class Missing:
    """What a document has under a key of metadata that it does not have."""


MISSING = Missing()


class DocumentStore:
    """Documents by row and by id."""

    def __init__(self, table: pa.Table, arrays: Sequence[np.ndarray] = ()) -> None:
        self.table = table.cast(SCHEMA)
        self.arrays = tuple(arrays)  # those that the table, or a part of it, lies in
        self.cut: Cut | None = None  # how longer documents were cut, where these are their passages
        self._metadata: dict[str, list[Json | Missing]] = {}  # by key, what was asked for

    @classmethod
    def of(cls, documents: Iterable[Document]) -> DocumentStore:
        """A store of these documents; two documents with the same id are an error."""
        columns, stream = _GrowingColumns(), iter(documents)
        while batch := list(islice(stream, BATCH)):
            try:
                columns.append(batch)
            except UnicodeEncodeError:
                raise _no_text(batch) from None
        store = columns.store()
        if (twice := store._rows.repeated) is not None:
            raise DataError(f"two documents have the id {twice!r}", "give every document its own id")
        return store

    @classmethod
    def read(cls, snapshot: Snapshot, count: int) -> DocumentStore:
        """The documents of an artifact, memory-mapped; a ValueError if they are none, or not so many."""
        if not snapshot.has(LETTERS):  # version 1 has a table, which is read into memory
            return cls.opened(snapshot.table("documents", SCHEMA), count)
        letters = require_array(snapshot.array(LETTERS), LETTERS, ("uint8",), (None,))
        whole = require_array(snapshot.array(STARTS), STARTS, ("int64",), (len(SCHEMA), count + 1))
        inner = require_array(snapshot.array(EXPANSION_STARTS), EXPANSION_STARTS, ("int64",), (None,))
        starts = [*whole]  # of each column
        require(len(inner) > 0, f"{EXPANSION_STARTS} is empty")
        require_starts(starts[-1], STARTS, count, len(inner) - 1)
        for begins in (*starts[:-1], inner):
            require_within(begins, STARTS, 0, len(letters) + 1)
            require((begins[1:] >= begins[:-1]).all(), f"{STARTS} does not rise")
        texts = [_text_array(begins, letters) for begins in starts[:-1]]
        table = _table_of(texts, starts[-1], _text_array(inner, letters))
        table.validate(full=True)  # texts are UTF-8
        return cls.opened(table, count, (letters, *starts, inner))

    @classmethod
    def opened(cls, table: pa.Table, count: int, arrays: Sequence[np.ndarray] = ()) -> DocumentStore:
        """A store of the table of a file; a ValueError if it is not a table of `count` documents."""
        require(table.num_rows == count, f"it has {table.num_rows} documents, and its manifest says {count}")
        lists = [chunk.flatten() for chunk in table.column("expansions").chunks]
        missing = sum(column.null_count for column in (*table.columns, *lists))
        require(not missing, f"{missing} ids, titles, texts or expansions are missing")
        store = cls(table, arrays)
        require(store.are_different, "two documents have one id")
        return store

    def part(self, first: int, last: int) -> DocumentStore:
        """A store of the documents from one row to before another."""
        return DocumentStore(self.table.slice(first, last - first), self.arrays)

    def write(self, writer: Writer) -> None:
        """Put the documents into an artifact, from which they can be mapped."""
        texts = [self._chunks(name) for name in SCHEMA.names]
        count = sum(int(starts[-1] - starts[0]) for column in texts for starts, _ in column)
        letters = (letters[starts[0] : starts[-1]] for column in texts for starts, letters in column)
        writer.blocks(LETTERS, np.uint8, (count,), letters)
        writer.blocks(STARTS, np.int64, (len(SCHEMA), len(self) + 1), self._all_starts(texts[:-1]))
        first = sum(int(starts[-1] - starts[0]) for column in texts[:-1] for starts, _ in column)
        inner = [starts for starts, _ in texts[-1]]
        shape = (1 + sum(len(starts) - 1 for starts in inner),)
        writer.blocks(EXPANSION_STARTS, np.int64, shape, _continued(inner, first))

    def _all_starts(self, texts: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]]) -> Iterator[np.ndarray]:
        """Where each document begins in each of these columns, one behind the other, and where its expansions do."""
        base = 0
        for column in texts:
            yield from _continued([starts for starts, _ in column], base)
            base += sum(int(starts[-1] - starts[0]) for starts, _ in column)
        yield from _continued(map(_starts_in, self.table.column("expansions").chunks), 0)

    def _chunks(self, name: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each chunk of a column where its texts begin, and the letters that this counts in."""
        column = self.table.column(name).chunks
        texts = [chunk.flatten() for chunk in column] if name == "expansions" else column
        return [(_starts_in(chunk), _letters_of(chunk)) for chunk in texts]

    def __len__(self) -> int:
        return self.table.num_rows

    def __iter__(self) -> Iterator[Document]:
        for batch in self.table.to_batches(max_chunksize=BATCH):
            yield from map(_document, batch.to_pylist())

    def __contains__(self, document_id: object) -> bool:
        return isinstance(document_id, str) and self._rows.find(normalise(document_id)) is not None

    @property
    def ids(self) -> Ids:
        """The ids, in row order."""
        return Ids(self.table.column("id"))

    def document(self, document_id: str) -> Document:
        """The document with this id."""
        return _document(self.table.slice(self.row(document_id), 1).to_pylist()[0])

    def slice(self, first: int, last: int) -> list[Document]:
        """The documents from one row to before another."""
        return [_document(row) for row in self.table.slice(first, last - first).to_pylist()]

    def sample(self, most: int) -> DocumentStore:
        """All of them, or of more than `most` documents fewer than that, evenly spaced."""
        step = -(-len(self) // most)
        return self if step <= 1 else DocumentStore(self.table.take(pa.array(range(0, len(self), step), pa.int64())))

    def sample_texts(self) -> Iterator[str]:
        """The texts that a tokenizer is learned from: all, or of very many documents a sample."""
        return (document.full_text for document in self.sample(LEARNED))

    def in_order(self) -> StoredDocuments:
        """All documents as a sequence."""
        return StoredDocuments(self)

    def row(self, document_id: str) -> int:
        """The row of the document with this id."""
        row = self._rows.find(normalise(document_id))
        if row is None:
            hint = nearest(document_id, [*self.ids], listed=0) if len(self) <= 10_000 else "check the id"
            raise UsageError(f"there is no document with id {document_id!r}", hint)
        return row

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
        return DocumentStore(pa.concat_tables([self.table, added.table]), (*self.arrays, *added.arrays))

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
        letters = sum(map(self._letters, SCHEMA.names))
        starts = len(SCHEMA) * (len(self) + 1) + self._expansions + 1
        elsewhere = letters + OFFSET * starts - counted(self.arrays).bytes  # than in the arrays
        texts: list[Thing] = [*self.arrays, max(0, elsewhere)]
        return {"texts": texts, "rows by id": [*self._rows.arrays()]}

    def products(self, documents: int) -> dict[str, Products]:
        """The sizes of the parts, computed for `documents` documents of the same kind."""
        letters = sum(scaled(self._letters(name), len(self), documents) for name in SCHEMA.names)
        each = OFFSET * len(SCHEMA)
        return {
            "texts": [
                Product(letters, "letters", 1, "in UTF-8"),
                Product(documents, "documents", each, "where its columns begin"),
                Product(scaled(self._expansions, len(self), documents), "expansions", OFFSET, "where each begins"),
                Product(1, "end of all", each + OFFSET),
            ],
            "rows by id": [Product(documents, "documents", LOOKUP, "hash of its id, row")],
        }

    @property
    def _expansions(self) -> int:
        """The number of expansions of all documents."""
        return sum(len(chunk.flatten()) for chunk in self.table.column("expansions").chunks)

    def _letters(self, name: str) -> int:
        """The bytes of all texts of a column, in UTF-8."""
        return sum(int(starts[-1] - starts[0]) for starts, _ in self._chunks(name))

    @property
    def are_different(self) -> bool:
        """Whether no two documents have one id."""
        return self._rows.repeated is None

    @cached_property
    def _rows(self) -> _RowsById:
        return _RowsById(self.ids)


class StoredDocuments(Sequence[Document]):
    """The documents of a store in their order, which are made whenever they are asked for."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    def __len__(self) -> int:
        return len(self._store)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        rows = range(len(self))[index]
        if isinstance(rows, range):
            return [*DocumentStore(self._store.table.take(pa.array(rows, pa.int64())))]
        return self._store.slice(rows, rows + 1)[0]

    def __iter__(self) -> Iterator[Document]:
        return iter(self._store)


class Ids(Sequence[str]):
    """The ids of documents in their order, which are looked up in the store whenever they are asked for."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._column[index].to_pylist() if isinstance(index, slice) else self._column[int(index)].as_py()

    def __iter__(self) -> Iterator[str]:
        for block in self.blocks():
            yield from block

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None

    def of(self, rows: np.ndarray) -> list[str]:
        """The ids in these rows, looked up together."""
        if self._column.num_chunks > 1:  # to take from several, Arrow joins all of them first
            return [self[row] for row in rows.tolist()]
        return self._column.take(pa.array(rows, pa.int64())).to_pylist()

    def blocks(self) -> Iterator[list[str]]:
        """Some ids at a time."""
        for chunk in self._column.chunks:
            for first in range(0, len(chunk), BATCH):
                yield chunk.slice(first, BATCH).to_pylist()


class _RowsById:
    """The rows of documents by their ids: hashes in order, and whose they are, 16 bytes for each document.

    A dict would take eight times as much. Python salts its hashes, so nobody can choose ids that collide.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        hashes = np.empty(len(ids), np.int64)
        first = 0
        for block in ids.blocks():
            hashes[first : first + len(block)] = [hash(document_id) for document_id in block]
            first += len(block)
        self._row = np.argsort(hashes, kind="stable")
        self._hash = hashes[self._row]

    def find(self, document_id: str) -> int | None:
        """The row of an id, or None."""
        wanted = hash(document_id)
        at = int(np.searchsorted(self._hash, wanted))
        while at < len(self._hash) and self._hash[at] == wanted:
            row = int(self._row[at])
            if self._ids[row] == document_id:
                return row
            at += 1
        return None

    @property
    def repeated(self) -> str | None:
        """The first id that two documents have, or None."""
        same = np.flatnonzero(self._hash[1:] == self._hash[:-1])
        seen: set[str] = set()
        for row in np.unique(self._row[np.concatenate([same, same + 1])]).tolist():
            if (document_id := self._ids[row]) in seen:
                return document_id
            seen.add(document_id)
        return None

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """What takes memory."""
        return self._hash, self._row


class _GrowingColumns:
    """Columns of documents that are written down as they come."""

    def __init__(self) -> None:
        names = SCHEMA.names
        self._letters = {name: GrowingArray(np.uint8) for name in names}
        self._starts = {name: GrowingArray(np.int64) for name in (*names, EXPANSION_STARTS)}
        for starts in self._starts.values():
            starts.append(np.zeros(1, np.int64))

    def append(self, documents: Sequence[Document]) -> None:
        """Put documents behind those that are there."""
        for name, value in _VALUES.items():
            self._texts(name, name, [value(document) for document in documents])
        extra = [document.expansions for document in documents]
        before = len(self._starts[EXPANSION_STARTS]) - 1
        self._starts["expansions"].append(before + np.cumsum([len(texts) for texts in extra]))
        self._texts("expansions", EXPANSION_STARTS, [text for texts in extra for text in texts])

    def _texts(self, name: str, begins: str, texts: Sequence[str]) -> None:
        array = pa.array(texts, pa.large_string())
        starts = _starts_in(array)
        self._starts[begins].append(len(self._letters[name]) + starts[1:])
        self._letters[name].append(_letters_of(array)[: int(starts[-1])])

    def store(self) -> DocumentStore:
        """All of them."""
        letters = {name: grown.array() for name, grown in self._letters.items()}
        starts = {name: grown.array() for name, grown in self._starts.items()}
        texts = [_text_array(starts[name], letters[name]) for name in _VALUES]
        expansions = _text_array(starts[EXPANSION_STARTS], letters["expansions"])
        table = _table_of(texts, starts["expansions"], expansions)
        return DocumentStore(table, (*letters.values(), *starts.values()))


def _metadata_text(document: Document) -> str:
    return json.dumps(dict(document.metadata), ensure_ascii=False) if document.metadata else ""


_VALUES: dict[str, Callable[[Document], str]] = {
    "id": lambda document: document.id,
    "title": lambda document: document.title,
    "text": lambda document: document.text,
    "metadata": _metadata_text,
}
"""The columns with one text for each document."""


def written_bytes(document: Document) -> int:
    """The bytes that a document without its expansions takes in an artifact: its texts, and where they begin."""
    return sum(len(value(document).encode(errors="surrogatepass")) for value in _VALUES.values()) + OFFSET * len(SCHEMA)


def _text_array(starts: np.ndarray, letters: np.ndarray) -> pa.LargeStringArray:
    """Texts that lie in an array of letters, without a copy."""
    return pa.LargeStringArray.from_buffers(len(starts) - 1, pa.py_buffer(starts), pa.py_buffer(letters))


def _table_of(texts: Sequence[pa.Array], starts: np.ndarray, expansions: pa.Array) -> pa.Table:
    """The table of four columns of texts, and of expansions of which those of each document begin at `starts`."""
    buffers = [None, pa.py_buffer(starts)]
    kind = SCHEMA.field("expansions").type
    lists = pa.Array.from_buffers(kind, len(starts) - 1, buffers, null_count=0, children=[expansions])
    return pa.Table.from_arrays([*texts, lists], schema=SCHEMA)


def _starts_in(array: pa.Array) -> np.ndarray:
    """Where each text or list of an array begins, and where the last one ends."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(1, np.int64)
    return np.frombuffer(buffer, np.int64, len(array) + 1, OFFSET * array.offset)


def _letters_of(texts: pa.Array) -> np.ndarray:
    """The letters that the starts of texts count in."""
    buffer = texts.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.empty(0, np.uint8)


def _continued(chunks: Iterable[np.ndarray], base: int) -> Iterator[np.ndarray]:
    """The starts of chunks as those of one array that begins at `base`."""
    yield np.array([base])
    for starts in chunks:
        yield starts[1:] - starts[0] + base
        base += int(starts[-1] - starts[0])


def _no_text(documents: Iterable[Document]) -> DataError:
    """The error for the first document whose text cannot be stored."""
    for document in documents:
        try:
            "".join((document.id, document.title, document.text, *document.expansions)).encode()
        except UnicodeEncodeError as error:
            problem = f"document {document.id!r} holds {error.object[error.start]!r}, half of a surrogate pair"
            return DataError(problem, "decode its text again, or remove that character")
    return DataError("the metadata of a document holds half of a surrogate pair", "remove it")


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
