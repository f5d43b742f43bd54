"""A retriever for LlamaIndex: `TrieverRetriever("models/handbook", k=4).retrieve("who approves travel?")`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from triever.errors import needed_for
from triever.integrations.sources import Passage, Source, opened, passages

with needed_for("the adapter for LlamaIndex", "pip install 'triever[llamaindex]'"):
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

NOT_READ = ["id", "score", "docid", "logprob", "span"]
"""Metadata that says how a document was found, which is not put before a language model."""


class TrieverRetriever(BaseRetriever):
    """Nodes that a retriever of Triever finds. `source` is a saved folder, a server's address, or a retriever."""

    def __init__(
        self, source: Source, k: int = 10, *, where: Mapping[str, object] | None = None, verbose: bool = False
    ) -> None:
        super().__init__(verbose=verbose)
        self._searcher, self._k, self._where = opened(source), k, where

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(one) for one in passages(self._searcher, query_bundle.query_str, self._k, self._where)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)  # the loop goes on during a search


def _node(passage: Passage) -> NodeWithScore:
    node = TextNode(
        id_=passage.hit.id,
        text=passage.text,
        metadata=passage.metadata,
        excluded_llm_metadata_keys=NOT_READ,
        excluded_embed_metadata_keys=NOT_READ,
    )
    return NodeWithScore(node=node, score=passage.hit.score)
