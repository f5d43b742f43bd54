"""Late interaction: a vector for each token, and for each token of a query the best of a document's tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from triever import artifact
from triever.config import option
from triever.data.store import DocumentStore
from triever.engines.encoded import LateEngine, TextReading, exact_options, nearest_documents, read_late
from triever.index.token_vectors import TokenIndex, TokenOptions
from triever.learning.encoders import EncoderRetriever
from triever.models.backbones import Backbone
from triever.models.encoder import Encoder, EncoderShape, encode_tokens
from triever.models.late_interaction import late_scores
from triever.models.seeds import seeded
from triever.models.tokens import Tokens
from triever.training.loop import gathered


@dataclass(eq=False)
class MultiVector(EncoderRetriever[LateEngine]):
    """Late interaction: `MultiVector(size=128, index=TokenOptions(bits=2)).fit(data)`."""

    kind: ClassVar[str] = "multivector"

    size: int = option(128, "width of the token vectors by a projection; 0 is that of the backbone")
    projection: Literal["linear", "two-layer"] = option(
        "linear", "what changes the width: linear, orthogonal at first; or two-layer, as dense retrieval has it"
    )
    augment: bool = option(False, "fill queries up with mask tokens, which learn to stand for words not said")
    punctuation: bool = option(False, "keep vectors of punctuation in documents")
    index: TokenOptions = option(TokenOptions(), "how token vectors are kept and searched")

    def _shape(self, backbone: Backbone) -> EncoderShape:
        return EncoderShape("mean", self.size, self.projection if self.size else "none", unit=True)

    def _encoder(self, store: DocumentStore) -> Encoder:
        encoder = super()._encoder(store)
        if isinstance(encoder.projection, nn.Linear):
            # Orthogonal: before any training the projection keeps angles as well as so many numbers can.
            with seeded(self.training.seed):
                nn.init.orthogonal_(encoder.projection.weight)
        return encoder

    @property
    def reading(self) -> TextReading:
        """How texts are read, and which of their tokens have vectors."""
        return replace(super().reading, augment=self.augment, punctuation=self.punctuation)

    def _pair_scores(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        assert isinstance(model, Encoder)
        documents = gathered(model.token_vectors(batch["document_ids"], batch["document_mask"]))
        mask = gathered(batch["document_mask"].bool() & self._kept(model, batch["document_ids"]))
        queries = model.token_vectors(batch["query_ids"], batch["query_mask"])
        # A mean, so that one temperature suits queries of any length.
        return late_scores(queries, batch["query_mask"], documents, mask, mean=True)

    def _kept(self, encoder: Encoder, ids: Tensor) -> Tensor:
        """Whether each token of a document has a vector, in training as in the index."""
        kept = torch.ones(encoder.tokenizer.size, dtype=torch.bool)
        if not self.punctuation:
            kept[encoder.tokenizer.punctuation()] = False
        return kept.to(ids.device)[ids]

    def _scored(self, query_tokens: int, document_tokens: int) -> int:
        return query_tokens * document_tokens

    def _rank(
        self, encoder: Encoder, queries: Tokens, documents: Tokens, k: int, work: Path | None = None
    ) -> np.ndarray:
        vectors = self.reading.token_vectors(encoder, documents, work)
        index = TokenIndex.of(*vectors, exact_options(self._options(encoder)))
        return nearest_documents(index, *encode_tokens(encoder, queries, folder=work), k)[1]

    def _options(self, encoder: Encoder) -> TokenOptions:
        """The index is where the encoder is."""
        return replace(self.index, device=str(encoder.device))

    def _indexed(
        self, encoder: Encoder, documents: Tokens, trained: Mapping[str, Any], work: Path | None = None
    ) -> LateEngine:
        vectors = self.reading.token_vectors(encoder, documents, work)
        return LateEngine(encoder, TokenIndex.of(*vectors, self._options(encoder)), self.reading, trained)

    def reindexed(self, **options: Any) -> MultiVector:
        """The same documents and encoder with another index: `late.reindexed(bits=2)`."""
        held = self._checked()
        other = replace(self, index=replace(self.index, **options))
        index = held.engine.index.rebuilt(other._options(held.engine.encoder))
        return other.holding(replace(held, engine=replace(held.engine, index=index)))

    def read(self, snapshot: artifact.Snapshot) -> LateEngine:
        """The encoder and the token vectors of an artifact."""
        return read_late(snapshot, self.reading, self.device)
