"""Generative retrieval: a model reads the query and writes the docid of a document (DSI).

A scheme gives docids, views teach them, and a search over the trie of those that exist finds the best.
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
from triever.learning.docids import DocidRetriever, DocidTeaching, likelihood
from triever.models.docid_model import laid_out


@dataclass(eq=False)
class Generative(DocidRetriever[DocidEngine]):
    """Generative retrieval: `Generative(docids=Semantic(), training=DocidTuning(steps=4000)).fit(data)`."""

    kind: ClassVar[str] = "generative"

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> DocidEngine:
        """Give every document a docid, and teach a model to write them."""
        self._teaching.check(dataset, store)
        docids, targets, _ = self._teaching.begun(dataset, store, work)
        engine = DocidEngine(docids, self.search_options)
        trained = self._teaching.train(engine, targets, dataset, store, work)
        laid_out(docids.model)
        return replace(engine, docids=replace(docids, trained=trained))

    def tuned(self, engine: DocidEngine, documents: Sequence[Document], store: DocumentStore) -> DocidEngine:
        """The engine after a short training on new documents, if `training.add_steps` asks for it."""
        if not self.training.add_steps or not documents:
            return engine
        model = self._teaching.retrained(engine.docids, documents, store)
        return replace(engine, docids=replace(engine.docids, model=model))

    def configured(self, engine: DocidEngine) -> DocidEngine:
        """The engine, searched as `search_options` says."""
        return replace(engine, options=self.search_options)

    def read(self, snapshot: artifact.Snapshot) -> DocidEngine:
        """The model and the docids of an artifact."""
        return DocidEngine(self._teaching.read(snapshot), self.search_options)

    @property
    def _teaching(self) -> DocidTeaching[DocidEngine]:
        return DocidTeaching(self, likelihood, lambda _backbone: self.decoder)
