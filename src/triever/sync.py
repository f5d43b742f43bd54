"""Bringing a retriever to the state of a collection: what is new is added, what differs replaced, the rest deleted.

Documents are compared by what they say: title, text and metadata. Those that are the same are not touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from triever.data.formats.text_files import files_below
from triever.data.records import Document

if TYPE_CHECKING:
    from triever.data.store import DocumentStore
    from triever.retriever import Retriever

MOST = 0.5
"""The share of documents that may be deleted unasked: a folder that is not mounted must not empty a retriever."""


@dataclass(frozen=True)
class Plan:
    """What has to be done: `Plan.of(retriever.documents, documents).carry_out(retriever)`."""

    added: tuple[Document, ...]
    replaced: tuple[Document, ...]
    deleted: tuple[str, ...]  # ids
    unchanged: int

    @classmethod
    def of(cls, store: DocumentStore, documents: Iterable[Document], *, deletes: bool = True) -> Plan:
        """What makes a store hold these documents; without `deletes`, its other documents stay."""
        known = {document.id: content(document) for document in store}
        added, replaced, met, unchanged = [], [], set(), 0
        for document in documents:
            met.add(document.id)
            if document.id not in known:
                added.append(document)
            elif known[document.id] != content(document):
                replaced.append(document)
            else:
                unchanged += 1
        gone = tuple(name for name in known if name not in met) if deletes else ()
        return cls(tuple(added), tuple(replaced), gone, unchanged)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.added or self.replaced or self.deleted)

    @property
    def deletes_much(self) -> bool:
        """Whether it deletes so many documents that a person should say so."""
        there = len(self.deleted) + len(self.replaced) + self.unchanged
        return len(self.deleted) > MOST * there

    def carry_out(self, retriever: Retriever) -> None:
        """Change a retriever; nothing is changed where there is nothing to do."""
        if gone := [*self.deleted, *(document.id for document in self.replaced)]:
            retriever.delete(gone)
        if new := [*self.replaced, *self.added]:
            retriever.add(new)

    def __str__(self) -> str:
        counts = {"added": self.added, "replaced": self.replaced, "deleted": self.deleted}
        done = ", ".join(f"{name} {len(part):,}" for name, part in counts.items() if part)
        return f"{done or 'nothing to do'}; {self.unchanged:,} unchanged"

    def to_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        names = {"added": self.added, "replaced": self.replaced}
        listed = {name: [document.id for document in part] for name, part in names.items()}
        return {**listed, "deleted": list(self.deleted), "unchanged": self.unchanged}


def content(document: Document) -> bytes:
    """A digest of what a document says; expansions are not its own."""
    parts = [document.title, document.text, json.dumps(dict(document.metadata), sort_keys=True)]
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def file_marks(path: Path) -> dict[str, tuple[int, int]]:
    """The size and the time of the last change of every file in a folder, or of one file: what a look can see."""
    files = files_below(path) if path.is_dir() else [path]
    marks = {}
    for file in files:
        with contextlib.suppress(OSError):  # it went away meanwhile
            state = file.stat()
            marks[str(file)] = state.st_size, state.st_mtime_ns
    return marks
