"""A retriever for LangChain: `TrieverRetriever(source="models/handbook", k=4).invoke("who approves travel?")`."""

from __future__ import annotations

import asyncio
from typing import Any

from triever.errors import needed_for
from triever.integrations.sources import Passage, opened, passages

with needed_for("the adapter for LangChain", "pip install 'triever[langchain]'"):
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import PrivateAttr


class TrieverRetriever(BaseRetriever):
    """Documents that a retriever of Triever finds. `source` is a saved folder, a server's address, or a retriever.

    `k` says how many, and `where` filters by metadata as in a search; both can be given to `invoke` too.
    """

    source: Any
    k: int = 10
    where: dict[str, Any] | None = None
    _searcher: Any = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Open the source."""
        super().model_post_init(context)
        self._searcher = opened(self.source)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        where: dict[str, Any] | None = None,
    ) -> list[Document]:
        return self._documents(query, k, where)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        where: dict[str, Any] | None = None,
    ) -> list[Document]:
        return await asyncio.to_thread(self._documents, query, k, where)

    def _documents(self, query: str, k: int | None, where: dict[str, Any] | None) -> list[Document]:
        wanted = self.k if k is None else k
        return [_document(one) for one in passages(self._searcher, query, wanted, where or self.where)]


def _document(passage: Passage) -> Document:
    return Document(id=passage.hit.id, page_content=passage.text, metadata=passage.metadata)
