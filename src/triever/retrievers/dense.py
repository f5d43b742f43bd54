"""Dense retrieval: one vector for each document and each query, and their inner product."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from triever import artifact
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.engines.encoded import DenseEngine, read_dense
from triever.errors import UsageError
from triever.index.vector_files import IdVectors, VectorFile, index_of
from triever.index.vectors import IndexOptions, VectorIndex
from triever.learning.encoders import EncoderRetriever
from triever.models.backbones import Backbone
from triever.models.encoder import Encoder, EncoderShape, encode
from triever.models.precision import device_of
from triever.models.tokens import Tokens
from triever.training import fit_fingerprints
from triever.training.loop import gathered

COMPARED = 8
"""Documents that are read to see whether vectors of a file are those of the backbone."""
ALIKE = 0.95
"""How near, as a cosine, the two vectors of a document are if one model made both; rounding takes less than that."""

_log = logging.getLogger("triever")


@dataclass(eq=False)
class Dense(EncoderRetriever[DenseEngine]):
    """Dense retrieval: `Dense(training=Tuning(steps=700, batch=256)).fit(data)`."""

    kind: ClassVar[str] = "dense"

    pooling: Literal["auto", "mean", "first", "last"] = option(
        "auto", "which states become the text's; auto is mean, and last for causal models"
    )
    size: int = option(0, "width of the vectors by a two-layer projection; 0 is that of the backbone")
    unit: bool = option(True, "vectors have length one, so that scores are cosines")
    index: IndexOptions = option(IndexOptions(), "how vectors are kept and searched")
    given: VectorFile = option(
        VectorFile(), "vectors of the documents that exist already, made by this backbone; queries are read by it"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.given and self.training.steps:
            problem = f"training.steps = {self.training.steps} would change the encoder, and the given vectors with it"
            raise UsageError(problem, "set training.steps=0, or leave given.file out")

    def _shape(self, backbone: Backbone) -> EncoderShape:
        pooling = self.pooling if self.pooling != "auto" else "last" if backbone.causal else "mean"
        return EncoderShape(pooling, self.size, "two-layer" if self.size else "none", self.unit)

    def _encoder(self, store: DocumentStore) -> Encoder:
        device_of(self.index.device)  # a device that is not here is better known before a training than after it
        return super()._encoder(store)

    def _pair_scores(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        queries = model(batch["query_ids"], batch["query_mask"])
        return queries @ gathered(model(batch["document_ids"], batch["document_mask"])).T

    def _rank(
        self, encoder: Encoder, queries: Tokens, documents: Tokens, k: int, work: Path | None = None
    ) -> np.ndarray:
        exact = VectorIndex.of(encode(encoder, documents, folder=work), IndexOptions(device=str(encoder.device)))
        return exact.search(encode(encoder, queries), k)[1]

    def _indexed(
        self, encoder: Encoder, documents: Tokens, trained: Mapping[str, Any], work: Path | None = None
    ) -> DenseEngine:
        vectors = encode(encoder, documents, folder=work)
        return DenseEngine(encoder, VectorIndex.of(vectors, self.index), self.reading, trained)

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> DenseEngine:
        """Train the encoder, if that is wanted, and make vectors of all documents, or take those that are given."""
        if not self.given:
            return super().learn(dataset, store, work)
        file = self.given.read()  # first: a mistake in it is known before a backbone is loaded
        vectors, encoder = file.of(store.ids), self._encoder(store)
        self._check_width(file, encoder)
        index = index_of(vectors, self.index, unit=self.unit)
        self._warn_of_others(file, encoder, index, store)
        return DenseEngine(encoder, index, self.reading, {"vectors from": file.path.name})

    def _check_width(self, file: IdVectors, encoder: Encoder) -> None:
        if file.width != encoder.size:
            problem = f"{file.path} has vectors of {file.width} numbers, and {self.backbone} makes {encoder.size}"
            hint = "name the backbone that made them, or use the system given, whose queries anything may encode"
            raise UsageError(problem, hint)

    def _warn_of_others(self, file: IdVectors, encoder: Encoder, index: VectorIndex, store: DocumentStore) -> None:
        """Say so if the vectors are not those that the backbone makes of some of the documents."""
        rows = np.unique(np.linspace(0, len(store) - 1, COMPARED).astype(np.int64))
        documents = [store.document(store.ids[row]) for row in rows.tolist()]
        made = encode(encoder, self.reading.documents(encoder, documents)).astype(np.float32)
        given = index.take(rows).astype(np.float32)
        lengths = np.maximum(np.linalg.norm(made, axis=1) * np.linalg.norm(given, axis=1), 1e-12)
        near = float(np.median((made * given).sum(1) / lengths))
        if near < ALIKE:
            message = (
                "the vectors of %s are not those that %s makes: the cosine of both is %.2f in the middle; queries "
            )
            message += "may find little. Set backbone, pooling, document_length and document_prefix as they were made"
            _log.warning(message, file.path, self.backbone, near)

    def lessons(self, dataset: Dataset, store: DocumentStore) -> dict[str, Any]:
        """What is learned from besides documents, as fingerprints: also vectors that are given."""
        given = {"given": fit_fingerprints.of_files(self.given.paths)} if self.given else {}
        return {**super().lessons(dataset, store), **given}

    def reindexed(self, **options: Any) -> Dense:
        """The same documents and encoder with another index: `dense.reindexed(kind="hnsw")`."""
        held = self._checked()
        index = replace(self.index, **options)
        other = replace(self, index=index)
        engine = replace(held.engine, index=held.engine.index.rebuilt(index))
        return other.holding(replace(held, engine=engine))

    def read(self, snapshot: artifact.Snapshot) -> DenseEngine:
        """The encoder and the vectors of an artifact."""
        return read_dense(snapshot, self.reading, self.device, self.index.device)
