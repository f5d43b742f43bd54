"""Generative retrieval: a model reads the query and writes the docid of a document (DSI).

A scheme gives docids, views teach them, and a search over the trie of those that exist finds the best. What writes is
a row for each node of the trie, or a decoder with a row for each symbol: `decoder.rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from triever import artifact
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.docids.schemes import Title
from triever.engines.docids import DocidEngine
from triever.engines.node_docids import is_numbered
from triever.engines.nodes import NodeEngine
from triever.errors import UsageError
from triever.learning.docids import DocidTeaching, likelihood
from triever.learning.nodes import NodeRetriever
from triever.models.adapters import AdapterOptions
from triever.models.decoders import DecoderOptions, brings_decoder
from triever.models.docid_model import laid_out
from triever.models.prompts import Prompts


@dataclass(eq=False)
class Generative(NodeRetriever[DocidEngine | NodeEngine]):
    """Generative retrieval: `Generative(docids=Semantic(), training=DocidTuning(steps=4000)).fit(data)`."""

    kind: ClassVar[str] = "generative"

    prompt: str = option(
        "",
        "with titles in the backbone's own tokens: what stands around a query, question (the default), paper, or a "
        "template with {query} in it",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.writes_tokens:
            self._check_tokens()
        elif self.prompt:
            problem = "a prompt is for titles that a language model writes in its own tokens"
            raise UsageError(problem, "set docids=title and docids.tokenizer=backbone, or leave prompt out")

    def _check_tokens(self) -> None:
        """Refuse what a language model that writes its own tokens cannot be combined with."""
        Prompts.of(self.prompt)  # which checks the template
        hint = "leave it out, or leave docids.tokenizer out"
        if self.asks_for_nodes:
            raise UsageError("rows of nodes score no tokens of titles, but docids.tokenizer = backbone", hint)
        if self.vectors is not None:
            raise UsageError("vectors = dense has no effect on titles in the tokens of a backbone", hint)
        if self.decoder.rows == "random" or self.decoder.shards > 1:
            problem = "decoder.rows and decoder.shards are about rows of symbols, but docids.tokenizer = backbone"
            raise UsageError(problem, hint)
        if self.training.steps and self.training.reader == 0:
            problem = "training.reader = 0 leaves nothing to learn, because the backbone writes titles itself"
            raise UsageError(problem, "set training.steps=0, or raise training.reader")
        if self.training.steps and self.adapter.freezes and self.adapter.kind == "none":
            problem = "adapter.freeze = true leaves nothing to train, because the backbone writes titles itself"
            raise UsageError(problem, "set training.steps=0, or adapter.kind")

    @property
    def writes_tokens(self) -> bool:
        """Whether titles are written in the tokens of the backbone."""
        return isinstance(self.docids, Title) and self.docids.in_tokens

    def _uses_nodes(self) -> bool:
        """Whether nodes have rows: where they are asked for, and by default where vectors are worth beginning with."""
        if self.asks_for_nodes or not self._leaves_room_for_nodes or self.begins_anew:
            return self.asks_for_nodes
        if self.given:
            return False
        backbone = self._teaching.known_backbone()
        return self.dense is not None or not (backbone and (backbone.causal or brings_decoder(backbone)))

    @property
    def _leaves_room_for_nodes(self) -> bool:
        """Whether nothing that is set has a meaning for rows of symbols only."""
        search, training = self.search_options, self.training
        searched = search.writes_freely or search.normalisation == "vocabulary"
        trained = training.add_steps > 0 or training.normalisation == "trie"
        plain = (self.decoder, self.adapter) == (DecoderOptions(), AdapterOptions())
        plain = plain and not is_numbered(self.docids) and not self.writes_tokens
        return plain and not searched and not trained

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> DocidEngine | NodeEngine:
        """Give every document a docid, and teach a model to write them."""
        if self._uses_nodes():
            return self.node_teaching(dataset).learn(dataset, store, work)
        self._teaching.check(dataset, store)
        docids, targets, _ = self._teaching.begun(dataset, store, work)
        engine = DocidEngine(docids, replace(self.search_options, think=0))  # a training is without thoughts
        trained = self._teaching.train(engine, targets, dataset, store, work)
        laid_out(docids.model)
        return DocidEngine(replace(docids, trained=trained), self.search_options)

    def tuned(
        self, engine: DocidEngine | NodeEngine, documents: Sequence[Document], store: DocumentStore
    ) -> DocidEngine | NodeEngine:
        """The engine after a short training on new documents, if `training.add_steps` asks for it."""
        return self._teaching.tuned(engine, documents, store) if isinstance(engine, DocidEngine) else engine

    def configured(self, engine: DocidEngine | NodeEngine) -> DocidEngine | NodeEngine:
        """The engine, searched as `search_options` says."""
        if isinstance(engine, NodeEngine):
            self.check_nodes()
        else:
            self.check_symbols()
            engine.docids.check_thought(self.search_options.think)
        return replace(engine, options=self.search_options)

    def read(self, snapshot: artifact.Snapshot) -> DocidEngine | NodeEngine:
        """The model and the docids of an artifact."""
        if by_nodes := self.read_nodes(snapshot):
            return by_nodes
        return DocidEngine(self._teaching.read(snapshot), self.search_options)

    def compared(self, queries: Sequence[str], k: int = 10) -> float | None:
        """How many rows are read for a query, as a share of documents; none where symbols have rows."""
        engine = self.engine
        return engine.compared(queries, k) if isinstance(engine, NodeEngine) else super().compared(queries, k)

    @property
    def _teaching(self) -> DocidTeaching[DocidEngine]:
        return DocidTeaching(self, likelihood, prompts=Prompts.of(self.prompt) if self.writes_tokens else None)
