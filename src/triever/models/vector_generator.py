"""A generator whose reading of a text is also the text's vector: what the decoder attends to, pooled."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from triever.models.cross_decoder import Seq2SeqCache, Seq2SeqGenerator


@dataclass(frozen=True)
class VectorCache(Seq2SeqCache):
    """What was read and written, and the vector of each text."""

    vectors: Tensor  # (texts, d)


class VectorGenerator(Seq2SeqGenerator):
    """`VectorGenerator(model, tokenise)`: every text is read once, for the decoder and for its vector."""

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[VectorCache, Tensor]:
        """Read the texts; what is read also gives their vectors."""
        ids, mask = (tensor.to(self.device) for tensor in self.tokenise(prompts))
        states = self.model.encode(ids, mask)
        cache, hidden = self._begun(self.model.looked_up(states, mask))
        vectors = self.model.encoder.vectors(states, mask)
        return VectorCache(cache.read, cache.past, cache.text, vectors), hidden
