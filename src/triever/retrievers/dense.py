"""Dense retrieval: one vector for each document and each query, and their inner product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from triever import artifact
from triever.config import option
from triever.data.store import DocumentStore
from triever.engines.encoded import DenseEngine, read_dense
from triever.index.vectors import IndexOptions, VectorIndex
from triever.learning.encoders import EncoderRetriever
from triever.models.backbones import Backbone
from triever.models.encoder import Encoder, EncoderShape, encode
from triever.models.precision import device_of
from triever.models.tokens import Tokens
from triever.training.loop import gathered


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
