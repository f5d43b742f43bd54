"""A component for Haystack: `TrieverRetriever("models/handbook", top_k=4)` in a pipeline, with `run(query=...)`.

Haystack reports how it is used to its makers. Whoever imports this module sends nothing, unless the environment
variable HAYSTACK_TELEMETRY_ENABLED says that it is wanted.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

REPORTS = "HAYSTACK_TELEMETRY_ENABLED"
if REPORTS not in os.environ:
    os.environ[REPORTS] = "False"
    if loaded := sys.modules.get("haystack.telemetry._telemetry"):  # imported before us, when it was not switched off
        vars(loaded)["telemetry"] = None

from triever.errors import UsageError, needed_for  # noqa: E402
from triever.integrations.sources import Passage, Source, opened, passages  # noqa: E402
from triever.printable import an  # noqa: E402
from triever.remote import Remote, Searcher  # noqa: E402

with needed_for("the adapter for Haystack", "pip install 'triever[haystack]'"):
    from haystack import Document, component, default_from_dict, default_to_dict


@component
class TrieverRetriever:
    """Documents that a retriever of Triever finds. `source` is a saved folder, a server's address, or a retriever.

    `where` filters by metadata as in a search. A pipeline with a folder or an address can be saved.
    """

    def __init__(self, source: Source, top_k: int = 10, where: dict[str, Any] | None = None) -> None:
        self.source, self.top_k, self.where = source, top_k, where
        self._searcher: Searcher | None = None

    def warm_up(self) -> None:
        """Open the source, once."""
        self._searcher = self._searcher or opened(self.source)

    def to_dict(self) -> dict[str, Any]:
        """The component as plain values."""
        return default_to_dict(self, source=_word(self.source), top_k=self.top_k, where=self.where)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """The component of such values."""
        return default_from_dict(cls, data)

    @component.output_types(documents=list[Document])
    def run(self, query: str, top_k: int | None = None, where: dict[str, Any] | None = None) -> dict[str, Any]:
        """The best documents for a query, best first."""
        self.warm_up()
        assert self._searcher is not None
        k = self.top_k if top_k is None else top_k
        return {"documents": [_document(one) for one in passages(self._searcher, query, k, where or self.where)]}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, top_k: int | None = None, where: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The same; the event loop goes on during the search."""
        return await asyncio.to_thread(self.run, query, top_k, where)


def _word(source: Source) -> str:
    """A source as a text from which it can be opened again."""
    if isinstance(source, Remote):
        return source.url
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    problem = f"{an(source.kind)} retriever that is in memory alone cannot be saved with a pipeline"
    raise UsageError(problem, "save it, and give the component its folder")


def _document(passage: Passage) -> Document:
    return Document(id=passage.hit.id, content=passage.text, meta=passage.metadata, score=passage.hit.score)
