"""Generative retrieval: a model reads the query and writes the docid of a document (DSI).

A scheme gives docids, views teach them, and a search over the trie of those that exist finds the best. What writes is
a decoder with a row for each symbol, or, with `decoder.rows = nodes`, a row for each node of the trie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from triever import artifact
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.engines.docids import DocidEngine
from triever.engines.nodes import NodeEngine, is_numbered
from triever.errors import UsageError
from triever.learning.docids import DocidTeaching, likelihood
from triever.learning.nodes import NodeRetriever
from triever.models.docid_model import laid_out


@dataclass(eq=False)
class Generative(NodeRetriever[DocidEngine | NodeEngine]):
    """Generative retrieval: `Generative(docids=Semantic(), training=DocidTuning(steps=4000)).fit(data)`."""

    kind: ClassVar[str] = "generative"

    def check_nodes(self) -> None:
        """Refuse docids that several documents share too: what it writes names one document."""
        super().check_nodes()
        if is_numbered(self.docids):
            problem = (
                f"decoder.rows = nodes needs a docid of its own for every vector, and {self.docids.kind} gives none"
            )
            raise UsageError(problem, "use atomic, semantic or codebook docids, or the system gdr")

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> DocidEngine | NodeEngine:
        """Give every document a docid, and teach a model to write them."""
        if self.by_nodes:
            return self.node_teaching.learn(dataset, store, work)
        self._teaching.check(dataset, store)
        docids, targets, _ = self._teaching.begun(dataset, store, work)
        engine = DocidEngine(docids, self.search_options)
        trained = self._teaching.train(engine, targets, dataset, store, work)
        laid_out(docids.model)
        return replace(engine, docids=replace(docids, trained=trained))

    def tuned(
        self, engine: DocidEngine | NodeEngine, documents: Sequence[Document], store: DocumentStore
    ) -> DocidEngine | NodeEngine:
        """The engine after a short training on new documents, if `training.add_steps` asks for it."""
        return self._teaching.tuned(engine, documents, store) if isinstance(engine, DocidEngine) else engine

    def configured(self, engine: DocidEngine | NodeEngine) -> DocidEngine | NodeEngine:
        """The engine, searched as `search_options` says."""
        return replace(engine, options=self.search_options)

    def read(self, snapshot: artifact.Snapshot) -> DocidEngine | NodeEngine:
        """The model and the docids of an artifact."""
        if self.by_nodes:
            return self.read_nodes(snapshot)
        return DocidEngine(self._teaching.read(snapshot), self.search_options)

    def compared(self, queries: Sequence[str], k: int = 10) -> float | None:
        """How many rows are read for a query, as a share of documents; none where symbols have rows."""
        engine = self.engine
        return engine.compared(queries, k) if isinstance(engine, NodeEngine) else super().compared(queries, k)

    @property
    def _teaching(self) -> DocidTeaching[DocidEngine]:
        return DocidTeaching(self, likelihood)
