"""What every engine can do.

An engine is a value: changes make a new one, so that a search which is under way is not disturbed, and a change
that fails has changed nothing. It knows documents by their rows; a store says what their ids and texts are. Each
kind has a function `read` beside it, which takes it out of an artifact again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import numpy as np

from triever.artifact import Writer
from triever.data.records import Document, Result
from triever.data.store import DocumentStore
from triever.memory_parts import Products, Stored

if TYPE_CHECKING:
    from triever.engines.docid_tree import DocidTree

E = TypeVar("E", bound="Engine")
Parts: TypeAlias = tuple[tuple[str, float], ...]
"""Named parts whose weights add up to a score."""


class Engine(Protocol):
    """Searches the documents of a store, whose rows it knows; a subclass without weights needs no `made_from`."""

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The hits of every query; `k` is at most the number of documents and above zero."""
        ...

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """For each hit of a result, what its score is made of."""
        ...

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """The engine with more documents, behind the old ones; the store has all of them."""
        ...

    def without(self, keep: np.ndarray) -> Self:
        """The engine with only the rows that are kept (shape: documents, bool)."""
        ...

    def stored(self) -> Stored:
        """What takes memory once it has searched, by the parts that `memory_parts.PARTS` names."""
        ...

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed from numbers alone, for `then` documents in place of the `now` that there are."""
        ...

    def made_from(self) -> dict[str, Any]:
        """For the card: `weights`, whose they are and under which licence, and how a training went."""
        return {}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact, and give back the state that is not a file."""
        ...


@runtime_checkable
class SearchesAmong(Protocol):
    """An engine that has a better way to search among some of its rows than to delete the others."""

    def among(self, keep: np.ndarray) -> Self:
        """The engine with only the rows that are kept (shape: documents, bool), for searches alone.

        Scores are those of all documents, where they depend on others, and nothing is built anew that takes long.
        """
        ...


def among(engine: E, keep: np.ndarray) -> E:
    """An engine that finds only rows that are kept (shape: documents, bool); they are numbered as if alone."""
    return engine.among(keep) if isinstance(engine, SearchesAmong) else engine.without(keep)


@runtime_checkable
class ReadsAhead(Protocol):
    """An engine that reads queries before it looks for documents, so that both can be timed."""

    def read_ahead(self, queries: Sequence[str]) -> Callable[[int], object]:
        """Read queries; what is returned finds so many documents for each."""
        ...


@runtime_checkable
class HasDocids(Protocol):
    """An engine whose documents have docids, which can be browsed."""

    def docid_tree(self) -> DocidTree | None:
        """Its docids; None for a composite of which no part has some."""
        ...


def docid_tree_of(engine: object) -> DocidTree | None:
    """The docids of an engine, if it has some."""
    return engine.docid_tree() if isinstance(engine, HasDocids) else None
