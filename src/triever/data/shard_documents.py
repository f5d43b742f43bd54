"""Documents in shards: what a shard has of them, and a store that looks them up in shards elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from triever.artifact import Snapshot
from triever.data.records import Document
from triever.data.store import BATCH, SCHEMA, DocumentStore, Ids
from triever.memory_parts import Stored
from triever.shards import Part, Shards
from triever.validation import require

if TYPE_CHECKING:
    from triever.artifact import Writer

DOCUMENTS = Part("documents", (), "documents")
IDS = "ids"
"""The ids of all documents, which whoever asks shards has whole."""
ID_SCHEMA = pa.schema([SCHEMA.field("id")])


@dataclass(frozen=True)
class ShardDocuments:
    """The documents of one shard."""

    store: DocumentStore

    @classmethod
    def read(cls, snapshot: Snapshot, count: int) -> ShardDocuments:
        """Those of an artifact, which should be so many."""
        return cls(DocumentStore.read(snapshot, count))

    def rows(self, rows: np.ndarray) -> pa.Table:
        """The documents in these rows."""
        return self.store.table.take(pa.array(rows))

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns of all documents."""
        return self.store.columns(names)


def write(store: DocumentStore, writer: Writer) -> None:
    """Put documents into the shards of an artifact."""
    assert writer.bounds is not None
    writer.table(IDS, store.columns(ID_SCHEMA.names))
    for shard, rows in zip(writer.in_shards(), writer.bounds.document_slices(), strict=True):
        store.part(rows.start, rows.stop).write(shard)


def read(snapshot: Snapshot, shards: Shards) -> DocumentStore:
    """The documents of an artifact in shards: in memory, or looked up where the shards are."""
    if shards.elsewhere:
        store = ShardedStore(snapshot.table(IDS, ID_SCHEMA).column("id"), shards)
        require(store.are_different and len(store) == snapshot.documents, "it has other ids than documents")
        return store
    parts = [part.store for part in shards.held(DOCUMENTS)]
    arrays = [array for part in parts for array in part.arrays]
    return DocumentStore.opened(pa.concat_tables([part.table for part in parts]), snapshot.documents, arrays)


class ShardedStore(DocumentStore):
    """Documents whose ids are here, and whose texts are looked up in shards elsewhere."""

    def __init__(self, ids: pa.ChunkedArray, shards: Shards, numbers: np.ndarray | None = None) -> None:
        self._ids = ids
        self._shards = shards
        self.arrays = ()
        self._numbers = np.arange(len(ids)) if numbers is None else numbers  # (documents,) through all shards, rising
        self._metadata = {}

    @property
    def ids(self) -> Ids:
        """The ids, in row order."""
        return Ids(self._ids)

    @cached_property
    def table(self) -> pa.Table:
        """All of them, fetched at once."""
        return self.columns(SCHEMA.names)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Document]:
        for first in range(0, len(self), BATCH):
            yield from self.slice(first, first + BATCH)

    def document(self, document_id: str) -> Document:
        """The document with this id."""
        return self._fetched(np.array([self.row(document_id)]))[0]

    def slice(self, first: int, last: int) -> list[Document]:
        """The documents from one row to before another."""
        return self._fetched(np.arange(first, min(last, len(self))))

    def titles(self, rows: Sequence[int]) -> list[str]:
        """The titles of the documents in these rows."""
        return [document.title for document in self._fetched(np.asarray(rows, np.int64))]

    def where(self, keep: np.ndarray) -> DocumentStore:
        """The documents whose rows are kept (shape: documents, bool)."""
        return ShardedStore(self._ids.filter(pa.array(keep)), self._shards, self._numbers[keep])

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns of all documents, fetched at once."""
        count = len(self._shards.bounds)
        each = self._shards.ask(DOCUMENTS, "columns", [(names,)] * count, [None] * count)
        return pa.concat_tables(each).take(pa.array(self._numbers))

    def stored(self) -> Stored:
        """The sizes of the parts in memory: texts are elsewhere."""
        return {"texts": [], "ids": [self._ids.nbytes], "rows by id": [*self._rows.arrays()]}

    def _fetched(self, rows: np.ndarray) -> list[Document]:
        """The documents in these rows."""
        numbers, firsts = self._numbers[rows], np.array(self._shards.bounds.documents)
        owner = firsts.searchsorted(numbers, side="right") - 1
        places = [np.flatnonzero(owner == number) for number in range(len(firsts) - 1)]
        asked = [(numbers[own] - first,) if len(own) else None for own, first in zip(places, firsts, strict=False)]
        answers = self._shards.ask(DOCUMENTS, "rows", asked, [None] * len(asked))
        documents: list[Any] = [None] * len(rows)
        for own, table in zip(places, answers, strict=True):
            for place, document in zip(own.tolist(), DocumentStore(table) if len(own) else (), strict=True):
                documents[place] = document
        return documents
