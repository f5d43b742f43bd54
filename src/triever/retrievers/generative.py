"""Generative retrieval: a model reads the query and writes the docid of a document (DSI).

A scheme gives docids, views teach them, and a search over the trie of those that exist finds the best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from torch import Tensor, nn

from triever import artifact
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.engines.docids import DocidEngine
from triever.models.t5 import laid_out
from triever.retrievers.docid_learning import DocidRetriever, likelihood


@dataclass(eq=False)
class Generative(DocidRetriever[DocidEngine]):
    """Generative retrieval: `Generative(docids=Semantic(), training=DocidTuning(steps=4000)).fit(data)`."""

    kind: ClassVar[str] = "generative"

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> DocidEngine:
        """Give every document a docid, and teach a model to write them."""
        docids, targets, _ = self._begun(dataset, store, work)
        engine = DocidEngine(docids, self.search_options)
        trained = self._train(engine, targets, dataset, store, work)
        laid_out(docids.model)
        return replace(engine, docids=replace(docids, trained=trained))

    def _loss_of_batch(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return likelihood(model, batch)

    def tuned(self, engine: DocidEngine, documents: Sequence[Document], store: DocumentStore) -> DocidEngine:
        """The engine after a short training on new documents, if `training.add_steps` asks for it."""
        if not self.training.add_steps or not documents:
            return engine
        return replace(engine, docids=replace(engine.docids, model=self._retrained(engine, documents, store)))

    def configured(self, engine: DocidEngine) -> DocidEngine:
        """The engine, searched as `search_options` says."""
        return replace(engine, options=self.search_options)

    def read(self, snapshot: artifact.Snapshot) -> DocidEngine:
        """The model and the docids of an artifact."""
        return DocidEngine(self._read_docids(snapshot), self.search_options)
