"""A T5-shaped encoder and decoder of our own: T5, T5 v1.1 and Flan weights load into it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from triever.models.cross_decoder import CrossDecoder, CrossShape, as_layers
from triever.models.layers import CrossLayer, DecoderLayer, EncoderLayer, Norm, additive, distances


@dataclass(frozen=True)
class T5Shape(CrossShape):
    """The sizes of a T5; the defaults are those of v1.1 small."""

    vocabulary: int = 1  # tokens that its own encoder reads
    encoder_layers: int = 8
    gated: bool = True
    buckets: int = 32  # of distances between places
    max_distance: int = 128

    @classmethod
    def for_docids(cls, vocabulary: int, width: int, **sizes: Any) -> T5Shape:
        """A decoder over `width` docid symbols; the symbol after the last one starts every docid."""
        return cls(width=width, start=width, vocabulary=vocabulary, **sizes)

    @classmethod
    def of(cls, config: Any, *, tied: bool) -> T5Shape:
        """That of a transformers T5 config, decoder vocabulary included.

        Whether the output layer is the embedding is not read from the config: transformers 5 says so of
        every T5, and keeps what the config once meant, that outputs are scaled, in another place.
        """
        return cls(
            vocabulary=config.vocab_size,
            width=config.vocab_size,
            start=config.decoder_start_token_id or config.pad_token_id or 0,
            d_model=config.d_model,
            d_kv=config.d_kv,
            heads=config.num_heads,
            d_ff=config.d_ff,
            encoder_layers=config.num_layers,
            decoder_layers=config.num_decoder_layers,
            gated=config.is_gated_act,
            buckets=config.relative_attention_num_buckets,
            max_distance=config.relative_attention_max_distance,
            epsilon=config.layer_norm_epsilon,
            tied=tied,
            scaled=getattr(config, "scale_decoder_outputs", config.tie_word_embeddings),
        )


class TextEncoder(nn.Module):
    """T5's encoder."""

    def __init__(self, shape: T5Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.d_model)
        self.bias = nn.Embedding(shape.buckets, shape.heads)
        self.layers = nn.ModuleList(EncoderLayer(shape, gated=shape.gated) for _ in range(shape.encoder_layers))
        self.norm = Norm(shape)
        self.dropout = nn.Dropout(shape.dropout)

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Hidden states of texts: ids and mask (rows, length) to (rows, length, d_model)."""
        return self.left(self.passed(self.entered(ids), mask, self.layers))

    def entered(self, ids: Tensor) -> Tensor:
        """What the first layer gets of tokens."""
        return self.dropout(self.embedding(ids))

    def passed(self, hidden: Tensor, mask: Tensor, layers: Iterable[nn.Module]) -> Tensor:
        """States that have gone through some of the layers."""
        positions = torch.arange(hidden.shape[1], device=hidden.device)
        near = distances(self.bias, self.shape.max_distance, positions, positions, both_ways=True)
        bias = near + additive(mask, hidden.dtype)
        for layer in layers:
            hidden = layer(hidden, bias)
        return hidden

    def left(self, hidden: Tensor) -> Tensor:
        """What becomes of the states of the last layer."""
        return self.dropout(self.norm(hidden))


class T5(CrossDecoder[T5Shape]):
    """T5's decoder over docid symbols, behind T5's own encoder or behind another reader."""

    def __init__(self, shape: T5Shape, reader: nn.Module | None = None) -> None:
        super().__init__(shape, reader or TextEncoder(shape))

    def add_layers(self) -> None:
        """Add the decoder's layers; a table says how much each distance between symbols counts."""
        shape = self.shape
        self.bias = nn.Embedding(shape.buckets, shape.heads)
        self.layers = nn.ModuleList(DecoderLayer(shape, gated=shape.gated) for _ in range(shape.decoder_layers))
        self.norm = Norm(shape)
        self.dropout = nn.Dropout(shape.dropout)

    def reset(self) -> None:
        """T5's own initial weights, in all but a reader that came with its own."""
        reset(self, self.shape, reads_itself=isinstance(self.reader, TextEncoder))

    def cross_layers(self) -> Iterable[CrossLayer]:
        """Its layers."""
        return as_layers(self.layers)

    def entered(self, rows: Tensor, before: int) -> Tensor:
        """The rows themselves: places come in by distances."""
        return self.dropout(rows)

    def position_bias(self, query: Tensor, key: Tensor, like: Tensor) -> Tensor:
        """What each distance counts, for each head."""
        return distances(self.bias, self.shape.max_distance, query, key, both_ways=False)

    def left(self, hidden: Tensor) -> Tensor:
        """States, normed once more."""
        return self.dropout(self.norm(hidden))


def reset(model: CrossDecoder, shape: CrossShape, *, reads_itself: bool) -> None:
    """Give T5's initial weights to all matrices of a model; to those of its reader only if that has none of its own."""
    names = [name for name, _ in model.named_parameters() if reads_itself or not name.startswith("reader.")]
    for name in names:
        parameter = model.get_parameter(name)
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=_spread(name, shape))


def _spread(name: str, shape: CrossShape) -> float:
    if name.endswith((".q.weight",)):
        return (shape.d_model * shape.d_kv) ** -0.5
    if name.startswith(("reader.embedding", "symbols")):
        return 1.0
    if name.endswith((".o.weight",)):
        return (shape.heads * shape.d_kv) ** -0.5
    return shape.d_ff**-0.5 if name.endswith("down.weight") else shape.d_model**-0.5


# Names of transformers' T5 on the left, ours on the right.
NAMES = (
    (r"^shared\.weight$", "reader.embedding.weight"),
    (r"^encoder\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias\.", "reader.bias."),
    (r"^decoder\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias\.", "bias."),
    (r"^encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.", r"reader.layers.\1.attention."),
    (r"^encoder\.block\.(\d+)\.layer\.0\.layer_norm\.", r"reader.layers.\1.attention_norm."),
    (r"^encoder\.block\.(\d+)\.layer\.1\.layer_norm\.", r"reader.layers.\1.feed_norm."),
    (r"^decoder\.block\.(\d+)\.layer\.0\.SelfAttention\.", r"layers.\1.own."),
    (r"^decoder\.block\.(\d+)\.layer\.0\.layer_norm\.", r"layers.\1.own_norm."),
    (r"^decoder\.block\.(\d+)\.layer\.1\.EncDecAttention\.", r"layers.\1.cross."),
    (r"^decoder\.block\.(\d+)\.layer\.1\.layer_norm\.", r"layers.\1.cross_norm."),
    (r"^decoder\.block\.(\d+)\.layer\.2\.layer_norm\.", r"layers.\1.feed_norm."),
    (r"^encoder\.block\.(\d+)\.layer\.\d\.DenseReluDense\.", r"reader.layers.\1.feed."),
    (r"^decoder\.block\.(\d+)\.layer\.\d\.DenseReluDense\.", r"layers.\1.feed."),
    (r"^encoder\.final_layer_norm\.", "reader.norm."),
    (r"^decoder\.final_layer_norm\.", "norm."),
    (r"^lm_head\.", "output."),
)
FEED = {"feed.wi_0.": "feed.gate.", "feed.wi_1.": "feed.up.", "feed.wi.": "feed.up.", "feed.wo.": "feed.down."}


def renamed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """transformers' T5 weights under our names; the decoder's symbols are the shared embedding."""
    ours: dict[str, Tensor] = {}
    for name, weight in weights.items():
        for theirs, new in NAMES:
            changed, hits = re.subn(theirs, new, name)
            if hits:
                ours[_feed_name(changed)] = weight
                break
    ours["symbols.weight"] = ours["reader.embedding.weight"]
    return ours


def _feed_name(name: str) -> str:
    theirs = next((part for part in FEED if part in name), None)
    return name.replace(theirs, FEED[theirs]) if theirs else name


def from_transformers(model: Any) -> T5:
    """Our model with the weights of a transformers T5 for generation, vocabulary and all."""
    weights = renamed(model.state_dict())
    tied = torch.equal(weights["output.weight"], weights["reader.embedding.weight"])
    if tied:
        del weights["output.weight"]
    ours = T5(T5Shape.of(model.config, tied=tied))
    ours.load_state_dict(weights)
    return ours.to(model.device, model.dtype).eval()
