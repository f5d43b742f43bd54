"""A decoder of BERT's form, which can begin as a copy of the layers of the BERT that reads for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from triever.models.cross_decoder import CrossDecoder, CrossShape, as_layers
from triever.models.docid_model import length_of, words_of
from triever.models.layers import BertDecoderLayer, BertInput, CrossLayer
from triever.models.t5 import reset

SMALL = 0.02
"""The spread of new weights beside those that were copied."""


@dataclass(frozen=True)
class BertShape(CrossShape):
    """The sizes of a decoder of BERT's form."""

    positions: int = 512  # places that it knows

    @classmethod
    def of(cls, config: Any, width: int, **symbols: Any) -> BertShape:
        """That of a transformers BERT config, over `width` docid symbols."""
        return cls(
            width=width,
            start=width,
            d_model=config.hidden_size,
            d_kv=config.hidden_size // config.num_attention_heads,
            heads=config.num_attention_heads,
            d_ff=config.intermediate_size,
            decoder_layers=config.num_hidden_layers,
            epsilon=config.layer_norm_eps,
            positions=config.max_position_embeddings,
            **symbols,
        )


class BertDecoder(CrossDecoder[BertShape]):
    """BERT's layers with attention to the text in between, over docid symbols."""

    def add_layers(self) -> None:
        """Add what BERT does to symbols before its layers, and the layers."""
        shape = self.shape
        self.entry = BertInput(shape, shape.positions)
        self.layers = nn.ModuleList(BertDecoderLayer(shape) for _ in range(shape.decoder_layers))
        self.dropout = nn.Dropout(shape.dropout)

    def reset(self) -> None:
        """Initial weights for what is not copied."""
        reset(self, self.shape, reads_itself=False)

    def cross_layers(self) -> Iterable[CrossLayer]:
        """Its layers."""
        return as_layers(self.layers)

    def entered(self, rows: Tensor, before: int) -> Tensor:
        """Rows with their places, normed."""
        return self.dropout(self.entry(rows, before))

    def position_bias(self, query: Tensor, key: Tensor, like: Tensor) -> Tensor:
        """Nothing: places were added to the rows."""
        return like.new_zeros(1, 1, len(query), len(key))

    def left(self, hidden: Tensor) -> Tensor:
        """The states as they are: each layer norms its own."""
        return self.dropout(hidden)

    def entering_for(self, rows: Tensor) -> float:
        """BERT adds places to what it reads, and they have to be felt beside rows as they are beside words."""
        return length_of(words_of(self.encoder)) / length_of(rows)


# Names of transformers' BERT on the left, ours on the right.
COPIED = {
    "attention.self.query": "own.q",
    "attention.self.key": "own.k",
    "attention.self.value": "own.v",
    "attention.output.dense": "own.o",
    "attention.output.LayerNorm": "own_norm",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "feed_norm",
}


@torch.no_grad()
def copy_layers(model: BertDecoder, theirs: Mapping[str, Tensor]) -> None:
    """Take the layers of a BERT, whose weights these are by transformers' names.

    Attention to the text is new, and small at first, so that the layers begin as they were.
    """
    weights = {
        f"layers.{layer}.{ours}.{part}": theirs[f"encoder.layer.{layer}.{name}.{part}"]
        for layer in range(model.shape.decoder_layers)
        for name, ours in COPIED.items()
        for part in ("weight", "bias")
    }
    kind = theirs["embeddings.token_type_embeddings.weight"][0]
    weights["entry.places.weight"] = theirs["embeddings.position_embeddings.weight"] + kind
    weights |= {f"entry.norm.{part}": theirs[f"embeddings.LayerNorm.{part}"] for part in ("weight", "bias")}
    for layer in model.cross_layers():
        for linear in (layer.cross.q, layer.cross.k, layer.cross.v, layer.cross.o):
            nn.init.normal_(linear.weight, std=SMALL)
            nn.init.zeros_(linear.bias)
    model.load_state_dict({**model.state_dict(), **weights})
