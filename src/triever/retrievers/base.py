"""The contract that every retriever keeps, and the part of it that all of them share.

A retriever is a dataclass: its fields are its options, for Python, recipes and the command line
alike. `fit` reads a dataset; after that it searches, explains, takes and drops documents, and saves
itself as an artifact that `load` opens again.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from triever import artifact, config
from triever.data.datasets import Dataset
from triever.data.records import Document, Hit, Query, Result, normalise, ranked
from triever.data.store import DocumentStore
from triever.errors import ArtifactError, UsageError, nearest
from triever.version import __version__

KINDS = {"bm25": "triever.retrievers.bm25:BM25"}
"""Every retriever by its name on the command line; imported only when it is asked for."""


@dataclass(frozen=True)
class Explanation:
    """Why these hits came: for each of them, named parts whose weights add up to its score."""

    query: str
    result: Result
    parts: tuple[tuple[tuple[str, float], ...], ...]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        hits = [
            {"id": hit.id, "score": hit.score, "parts": dict(parts)}
            for hit, parts in zip(self.result, self.parts, strict=True)
        ]
        return {"query": self.query, "note": self.note, "hits": hits}

    def __str__(self) -> str:
        lines = [self.note] if self.note else []
        for hit, parts in zip(self.result, self.parts, strict=True):
            inside = " + ".join(f"{weight:.3f} {name}" for name, weight in parts)
            lines.append(f"{hit.id}  {hit.score:.3f} = {inside}")
        return "\n".join(lines)


@dataclass(eq=False)
class Retriever(ABC):
    """What every system is: BM25, dense, generative."""

    kind: ClassVar[str]
    _store: DocumentStore | None = field(default=None, init=False, repr=False)
    _origin: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    # What a system has to bring.

    @abstractmethod
    def _learn(self, dataset: Dataset, store: DocumentStore) -> None:
        """Make ready to search these documents."""

    @abstractmethod
    def _search(self, queries: Sequence[str], k: int) -> list[Result]:
        """The hits of every query; `k` is at most the number of documents and above zero."""

    @abstractmethod
    def _explain(self, query: str, result: Result) -> tuple[tuple[tuple[str, float], ...], ...]:
        """For each hit, what its score is made of."""

    @abstractmethod
    def _add(self, documents: Sequence[Document]) -> None:
        """Take these documents in; the store gets them after this."""

    @abstractmethod
    def _delete(self, keep: Any) -> None:
        """Drop the rows of the old store that are not kept; the store drops them after this."""

    @abstractmethod
    def _write(self, writer: artifact.Writer) -> dict[str, Any]:
        """Put own files into an artifact, and give back the state that is not a file."""

    @abstractmethod
    def _read(self, snapshot: artifact.Snapshot) -> None:
        """Take own files out of an artifact."""

    # What a person uses.

    def fit(self, dataset: Dataset) -> Self:
        """Learn a dataset: its documents, and where the system trains, its training queries."""
        store = DocumentStore.of(dataset.documents())
        if not len(store):
            raise UsageError(f"{dataset.name} has no documents", "check it with: triever data info")
        self._learn(dataset, store)
        self._store = store
        self._origin = {"data": dataset.name, "fingerprint": dataset.fingerprint, "documents": len(store)}
        return self

    def search(self, query: str | Query, k: int = 10) -> Result:
        """The k best documents for a query, best first; fewer where fewer match."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str | Query], k: int = 10) -> list[Result]:
        """The same for many queries at once, in their order."""
        if isinstance(queries, str):
            raise UsageError("search_many takes a list of queries", "for one query use search")
        if not isinstance(k, int) or k < 1:
            raise UsageError(f"k = {k!r} should be a whole number above zero", "for example: k=10")
        texts = [normalise(query.text if isinstance(query, Query) else query) for query in queries]
        return self._search(texts, min(k, len(self.documents))) if texts and len(self) else [Result() for _ in texts]

    def explain(self, query: str | Query, k: int = 10) -> Explanation:
        """The same search, with what each score is made of."""
        text = normalise(query.text if isinstance(query, Query) else query)
        result = self.search(text, k)
        return Explanation(text, result, self._explain(text, result))

    def add(self, documents: Iterable[Document]) -> None:
        """Take new documents in. An id that is there already is refused, and then nothing is added."""
        new = list(documents)
        store = self.documents.with_added(new)
        self._add(new)
        self._store = store

    def delete(self, ids: Iterable[str]) -> None:
        """Drop documents by id. An id that is not there is refused, and then nothing is dropped."""
        if isinstance(ids, str):
            raise UsageError("delete takes a list of ids", f"for one document: delete([{ids!r}])")
        keep = self.documents.kept([normalise(document_id) for document_id in ids])
        self._delete(keep)
        self._store = DocumentStore(self.documents.table.filter(keep))

    def save(self, path: str | Path) -> None:
        """Write an artifact: whole, or not at all."""
        with artifact.writing(path) as writer:
            self._save(writer)

    @property
    def documents(self) -> DocumentStore:
        """The documents it holds."""
        if self._store is None:
            raise UsageError(f"this {type(self).__name__} has no documents yet", "call fit, or load a saved one")
        return self._store

    def __len__(self) -> int:
        return len(self.documents)

    def __bool__(self) -> bool:
        return True  # a retriever without documents is still a retriever

    @property
    def card(self) -> str:
        """What it is and what it was made from, for whoever receives the folder."""
        rows = {"kind": self.kind, **config.to_dict(self), **self._origin, "documents now": len(self)}
        table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
        licence = "Weights: none. The documents are inside; their licence is that of the corpus."
        title = f"# A Triever {type(self).__name__} retriever"
        return f"{title}\n\n| what | value |\n| --- | --- |\n{table}\n\n{licence}\n"

    def _save(self, writer: artifact.Writer) -> None:
        writer.table("documents", self.documents.table)
        writer.text("card", self.card)
        state = self._write(writer)
        writer.commit(self.kind, config.to_dict(self), {**state, "origin": self._origin}, f"triever {__version__}")


def top_hits(scores: np.ndarray, ids: Sequence[str], k: int) -> tuple[Hit, ...]:
    """The k best of a score for every document (shape: documents) that are above zero, in the one order."""
    candidates = np.flatnonzero(scores > 0)
    if len(candidates) > k:
        # Every document tied with the k-th stays in, so that which of them go is decided by their ids.
        least = np.partition(scores[candidates], len(candidates) - k)[len(candidates) - k]
        candidates = candidates[scores[candidates] >= least]
    return ranked(Hit(ids[row], float(scores[row])) for row in candidates)[:k]


def system(name: str) -> type[Retriever]:
    """The retriever class of a name."""
    if name not in KINDS:
        raise UsageError(f"there is no system named {name!r}", nearest(name, KINDS))
    module, _, attribute = KINDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def load(path: str | Path) -> Retriever:
    """Open a saved retriever."""
    with artifact.read(path) as snapshot:
        manifest = snapshot.manifest
        if manifest.kind not in KINDS:
            problem = f"{path} holds a {manifest.kind!r}, which this Triever does not know"
            raise ArtifactError(problem, "run: pip install --upgrade triever")
        retriever = config.build(system(manifest.kind), manifest.options)
        retriever._store = DocumentStore(snapshot.table("documents"))
        retriever._origin = dict(manifest.state["origin"])
        retriever._read(snapshot)
    return retriever


@contextmanager
def edit(path: str | Path) -> Generator[Retriever]:
    """A saved retriever to change: saved again at the end of the block, untouched after an error.

    Holds the right to write from load to save, so that two editors cannot lose each other's work.
    """
    with artifact.read(path):  # a path with a mistake in it must not make a folder
        pass
    with artifact.writing(path) as writer:
        retriever = load(path)
        yield retriever
        retriever._save(writer)
