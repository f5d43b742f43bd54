"""What every adapter takes, and hits as the frameworks want them: with the text and metadata of their documents."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from triever.arguments import brief
from triever.data.records import Document, Hit, Result
from triever.errors import UsageError
from triever.remote import Remote, Searcher, connect, is_address
from triever.retriever import Retriever, load
from triever.serve.answers import hit_values

Source: TypeAlias = Searcher | str | os.PathLike[str]
"""A saved folder, the address of a server's retriever, or a retriever that is here or behind a server."""


def opened(source: Source) -> Searcher:
    """The retriever of a source: a folder is loaded, an address is connected to."""
    if isinstance(source, str) and is_address(source):
        return connect(source)
    if isinstance(source, str | os.PathLike):
        return load(os.fspath(source))
    if not isinstance(source, Retriever | Remote):
        hint = "give a retriever, a saved folder, or the address of a server"
        raise UsageError(f"{brief(source)} cannot be searched", hint)
    if isinstance(source, Retriever) and not source.is_fitted:
        raise UsageError(f"this {type(source).__name__} has no documents yet", "call fit, or load a saved one")
    return source


@dataclass(frozen=True)
class Passage:
    """A hit with what it says: the passage that matched best, or the whole text where no passages are searched."""

    hit: Hit
    document: Document

    @property
    def text(self) -> str:
        """What it says."""
        start, end = self.hit.span or (0, None)
        return self.document.text[start:end]

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the document, and beside it its title and what the search says of the hit.

        Where a document has metadata of the same names (title, id, score, docid, logprob, span), the search's count.
        """
        return {**self.document.metadata, "title": self.document.title, **hit_values(self.hit, "ids")}


def passages(searcher: Searcher, query: str, k: int, where: Mapping[str, object] | None = None) -> list[Passage]:
    """The k best passages for a query, best first."""
    return with_documents(searcher, searcher.search(query, k, where=where))


def with_documents(searcher: Searcher, result: Result) -> list[Passage]:
    """Hits with their documents, which a server is asked for all at once."""
    if isinstance(searcher, Remote):
        searcher.documents.look_up(hit.id for hit in result)
    return [Passage(hit, hit.document) for hit in result]
