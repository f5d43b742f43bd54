"""Dense retrieval: one vector for each document and each query, and their inner product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from triever import artifact
from triever.config import option
from triever.data.records import Document, Result
from triever.data.store import DocumentStore
from triever.index.vectors import IndexOptions, VectorIndex, vector_products
from triever.models.backbones import Backbone
from triever.models.encoder import Encoder, EncoderShape, encode
from triever.models.precision import device_of
from triever.models.tokens import Tokens
from triever.retrievers.base import Parts
from triever.retrievers.encoding import Encoded, Encoding, named
from triever.storage import Products, scaled
from triever.training.loop import gathered


@dataclass(eq=False)
class Dense(Encoding):
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
        exact = VectorIndex.of(encode(encoder, documents), IndexOptions(device=str(encoder.device)))
        return exact.search(encode(encoder, queries), k)[1]

    def _engine(self, encoder: Encoder, documents: Tokens, work: Path | None = None) -> Encoded:
        return Encoded(encoder, VectorIndex.of(encode(encoder, documents), self.index))

    def _with_added(self, engine: Encoded, documents: Sequence[Document], store: DocumentStore) -> Encoded:
        vectors = encode(engine.encoder, self._document_tokens(engine.encoder, documents))
        return replace(engine, index=engine.index.with_added(vectors))

    def _read_queries(self, engine: Encoded, queries: Sequence[str]) -> np.ndarray:
        return encode(engine.encoder, self._query_tokens(engine.encoder, queries))

    def _find(self, engine: Encoded, read: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return engine.index.search(read, k)

    @torch.inference_mode()
    def _explain(self, engine: Encoded, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """What each token of the query adds, where a vector is a mean of its tokens; else the score as one part."""
        encoder = engine.encoder
        if encoder.shape.pooling != "mean" or encoder.shape.projection != "none":
            return tuple((("similarity", hit.score),) for hit in result)
        tokens = self._query_tokens(encoder, [query])
        ids, mask = (one.to(encoder.device) for one in tokens.padded([0], encoder.tokenizer.pad))
        states = encoder.states(ids, mask)[0].float()
        mean = states.mean(0)
        share = states / (len(states) * (mean.norm() if encoder.shape.unit else 1))
        pieces = encoder.tokenizer.pieces(ids[0].tolist())
        stored = engine.index.take(np.array([store.row(hit.id) for hit in result], np.int64))
        rows = torch.from_numpy(stored.astype(np.float32)).to(share.device)
        return tuple(named(pieces, (share @ row).tolist()) for row in rows)

    def _index_products(self, engine: Encoded, now: int, then: int) -> dict[str, Products]:
        stored = scaled(len(engine.index.main), now, then)  # the index keeps what was deleted until it is built anew
        return vector_products(stored, engine.index.width, engine.index.options)

    def reindexed(self, **options: Any) -> Dense:
        """The same documents and encoder with another index: `dense.reindexed(kind="hnsw")`."""
        held = self._checked()
        index = replace(self.index, **options)
        other = replace(self, index=index)
        other._held = replace(held, engine=replace(held.engine, index=held.engine.index.rebuilt(index)))
        return other

    def _read(self, snapshot: artifact.Snapshot) -> Encoded:
        index = VectorIndex.read(snapshot, device=self.index.device)
        return self._opened(snapshot, self._read_encoder(snapshot), index)
