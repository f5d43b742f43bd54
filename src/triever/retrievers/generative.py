"""Generative retrieval: a model reads the query and writes the docid of a document (DSI).

A scheme gives docids, views teach them, and a search over the trie of those that exist finds the best. What writes is
a row for each node of the trie, or a decoder with a row for each symbol: `decoder.rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from triever import artifact, config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.docids.schemes import Atomic, Scheme
from triever.engines import nodes
from triever.engines.base import Engine
from triever.engines.docids import DocidEngine
from triever.engines.nodes import NodeEngine
from triever.errors import UsageError
from triever.learning.docids import DocidRetriever, DocidTeaching, likelihood
from triever.learning.nodes import NodeTeaching
from triever.models.decoders import DecoderOptions, brings_decoder
from triever.models.docid_model import laid_out
from triever.models.precision import device_of
from triever.retriever import Retriever
from triever.retrievers.dense import Dense
from triever.training import fit_fingerprints
from triever.training.tuning import Tuning


@dataclass(eq=False)
class Generative(DocidRetriever[DocidEngine | NodeEngine]):
    """Generative retrieval: `Generative(docids=Semantic(), training=DocidTuning(steps=4000)).fit(data)`."""

    kind: ClassVar[str] = "generative"

    passages: int = option(
        7, "with rows of nodes: docids for at most so many passages of a document, besides one for its whole text"
    )
    teacher: Retriever[Any] | None = option(
        None, "with rows of nodes: a retriever, or its folder, whose order of documents the training follows too"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passages < 0:
            raise UsageError(f"passages = {self.passages} should not be negative", "0 reads whole texts alone")
        if self._asks_for_nodes:
            self._check_nodes()
        elif self.teacher is not None:
            raise UsageError("a teacher is followed only by rows of nodes", "set decoder.rows=nodes, or leave it out")
        else:
            self._check_symbols()

    def _check_nodes(self) -> None:
        """Refuse what rows of nodes cannot be combined with."""
        if not _has_own_docids(self.docids):
            problem = (
                f"decoder.rows = nodes needs a docid of its own for every vector, and {self.docids.kind} gives none"
            )
            raise UsageError(problem, "use atomic, semantic or codebook docids")
        if self.search_options.method == "free" or self.search_options.normalisation == "vocabulary":
            problem = (
                "rows of nodes score no symbols, so a free search or a vocabulary normalisation has nothing to score"
            )
            raise UsageError(problem, "leave search_options.method and search_options.normalisation out")
        if self.training.add_steps:
            problem = "training.add_steps has nothing to train where nodes have rows: new documents bring theirs"
            raise UsageError(problem, "leave training.add_steps out")

    def _check_symbols(self) -> None:
        """Refuse what rows of symbols cannot be combined with."""
        if self.search_options.normalisation == "documents":
            problem = "search_options.normalisation = documents needs a row for every node"
            raise UsageError(problem, "set decoder.rows=nodes, or leave search_options.normalisation out")

    @property
    def _asks_for_nodes(self) -> bool:
        """Whether something that is set has a meaning for rows of nodes only."""
        implied = self.teacher is not None or self.search_options.normalisation == "documents"
        return self.decoder.rows == "nodes" or (self.decoder.rows == "auto" and implied)

    @property
    def _leaves_room_for_nodes(self) -> bool:
        """Whether nothing that is set has a meaning for rows of symbols only."""
        search = self.search_options
        by_symbols = search.method == "free" or search.normalisation == "vocabulary" or self.training.add_steps > 0
        return self.decoder == DecoderOptions() and _has_own_docids(self.docids) and not by_symbols

    def _uses_nodes(self) -> bool:
        """Whether nodes have rows: where they are asked for, and by default where vectors are worth beginning with."""
        if self._asks_for_nodes or not self._leaves_room_for_nodes or self.begins_anew:
            return self._asks_for_nodes
        backbone = self._teaching.known_backbone()
        return self.vectors is not None or not (backbone and (backbone.causal or brings_decoder(backbone)))

    @property
    def members(self) -> tuple[Retriever[Any], ...]:
        """The retriever whose vectors docids are made from, and the teacher, where they are named."""
        return (*super().members, *((self.teacher,) if self.teacher is not None else ()))

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> DocidEngine | NodeEngine:
        """Give every document a docid, and teach a model to write them."""
        if self._uses_nodes():
            return self._node_teaching(dataset).learn(dataset, store, work)
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
        if isinstance(engine, NodeEngine):
            self._check_nodes()
        else:
            self._check_symbols()
        return replace(engine, options=self.search_options)

    def read(self, snapshot: artifact.Snapshot) -> DocidEngine | NodeEngine:
        """The model and the docids of an artifact."""
        if "nodes" in snapshot.state or self.decoder.rows == "nodes":
            device = device_of(self.device, opening=True)
            return nodes.read(snapshot, self.docids, self.search_options, device, self.read_length)
        return DocidEngine(self._teaching.read(snapshot), self.search_options)

    def compared(self, queries: Sequence[str], k: int = 10) -> float | None:
        """How many rows are read for a query, as a share of documents; none where symbols have rows."""
        engine = self.engine
        return engine.compared(queries, k) if isinstance(engine, NodeEngine) else super().compared(queries, k)

    @property
    def _teaching(self) -> DocidTeaching[DocidEngine]:
        return DocidTeaching(self, likelihood)

    def _node_teaching(self, dataset: Dataset) -> NodeTeaching:
        teacher = self._teacher_engine if self.teacher else None
        return NodeTeaching(self, self.dense or self._own_dense(dataset), teacher, self.passages)

    def _own_dense(self, dataset: Dataset) -> Dense:
        """Dense retrieval with the same backbone, trained first where there are judged queries, to begin rows with."""
        training = self.training
        steps = training.encoder_steps if self.learns_queries(dataset) else 0
        return Dense(
            backbone=self.backbone,
            fetch=self.fetch,
            query_length=self.query_length,
            document_length=min(self.document_length, 256),
            training=Tuning(steps=steps, split=training.split, holdout=training.holdout, seed=training.seed),
            device=self.device,
        )

    def _teacher_engine(self, dataset: Dataset, store: DocumentStore, work: Path | None) -> tuple[Engine, str]:
        assert self.teacher is not None  # it is asked for only where there is one
        made = self.teacher.fingerprint_for(store) or self.teacher.lessons(dataset, store)
        mark = fit_fingerprints.fingerprint([self.teacher.kind, config.to_dict(self.teacher), made])
        return self.teacher.engine_for(dataset, store, work), mark


def _has_own_docids(scheme: Scheme) -> bool:
    """Whether a scheme gives every vector a docid of its own."""
    return not scheme.shared and (scheme.needs_vectors or isinstance(scheme, Atomic))
