"""The layers that transformers of T5's and of BERT's form are made of, and their sizes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

Memory = tuple[Tensor, Tensor]
"""Keys and values, (rows, heads, length, d_kv) each."""
Form: TypeAlias = Literal["t5", "bert"]
"""Whose layers they are like."""


@dataclass(frozen=True)
class LayerShape:
    """The sizes of one layer; the defaults are those of T5 v1.1 small."""

    d_model: int = 512
    d_kv: int = 64
    heads: int = 6
    d_ff: int = 1024
    epsilon: float = 1e-6
    dropout: float = 0.0


class Norm(nn.Module):
    """Root mean square, without a mean and without a bias."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.d_model))
        self.epsilon = shape.epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        return functional.rms_norm(hidden, self.weight.shape, self.weight, self.epsilon)


@dataclass(frozen=True)
class RowsOfTexts:
    """Rows that lie together by texts, of which each may have another number: as many places as the most for each."""

    text: Tensor  # (rows,)
    place: Tensor  # (rows,) among texts * most
    texts: int
    most: int

    @classmethod
    def of(cls, text: Tensor, counts: Tensor) -> RowsOfTexts:
        """The text of each row (rows,), from 0 on, and the number of rows (texts,) of each."""
        most = int(counts.max())
        number = torch.arange(len(text), device=text.device) - (counts.cumsum(0) - counts)[text]
        return cls(text, text * most + number, len(counts), most)

    @property
    def are_even(self) -> bool:
        """Whether all texts have equally many."""
        return self.texts * self.most == len(self.text)

    def laid_out(self, states: Tensor) -> Tensor:
        """States (rows, t, d) at their places, (texts * most, t, d); zero elsewhere."""
        grid = states.new_zeros(self.texts * self.most, *states.shape[1:])
        return grid.index_copy_(0, self.place, states)


class Attention(nn.Module):
    """Attention without scaling, as T5 has it, or with, as BERT has it; what is added carries positions and masks."""

    def __init__(self, shape: LayerShape, form: Form) -> None:
        super().__init__()
        inner = shape.heads * shape.d_kv
        bert = form == "bert"
        self.heads = shape.heads
        self.scale = shape.d_kv**-0.5 if bert else 1.0
        self.q, self.k, self.v = (nn.Linear(shape.d_model, inner, bias=bert) for _ in range(3))
        self.o = nn.Linear(inner, shape.d_model, bias=bert)

    def memory(self, hidden: Tensor) -> Memory:
        """Keys and values of these states."""
        return self.keys(hidden), self._split(self.v(hidden))

    def forward(self, hidden: Tensor, memory: Memory, bias: Tensor, rows: RowsOfTexts | None = None) -> Tensor:
        """What rows (n, length, d_model) find in memories, of which each has equally many, or has those of `rows`."""
        keys, values = memory
        asked = self.q(hidden) if rows is None else rows.laid_out(self.q(hidden))
        query = self._split(asked.reshape(keys.shape[0], -1, self.q.out_features))
        attended = functional.scaled_dot_product_attention(query, keys, values, bias, scale=self.scale)
        attended = attended.transpose(1, 2).reshape(-1, hidden.shape[1], self.q.out_features)
        return self.o(attended if rows is None else attended[rows.place])

    def queries(self, hidden: Tensor) -> Tensor:
        """(rows, heads, length, d_kv) what these states ask with."""
        return self._split(self.q(hidden))

    def keys(self, hidden: Tensor) -> Tensor:
        """(rows, heads, length, d_kv) what these states are found by."""
        return self._split(self.k(hidden))

    def _split(self, states: Tensor) -> Tensor:
        return states.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Feed(nn.Module):
    """The layer after attention: ReLU in T5, gated GELU in v1.1 and Flan."""

    def __init__(self, shape: LayerShape, *, gated: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.d_model, shape.d_ff, bias=False) if gated else None
        self.up = nn.Linear(shape.d_model, shape.d_ff, bias=False)
        self.down = nn.Linear(shape.d_ff, shape.d_model, bias=False)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        up = self.up(hidden)
        inner = (
            functional.relu(up) if self.gate is None else functional.gelu(self.gate(hidden), approximate="tanh") * up
        )
        return self.down(self.dropout(inner))


class EncoderLayer(nn.Module):
    """Attention, then feed-forward, each on normed states and added to them."""

    def __init__(self, shape: LayerShape, *, gated: bool) -> None:
        super().__init__()
        self.attention, self.feed = Attention(shape, "t5"), Feed(shape, gated=gated)
        self.attention_norm, self.feed_norm = Norm(shape), Norm(shape)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor, bias: Tensor) -> Tensor:
        normed = self.attention_norm(hidden)
        hidden = hidden + self.dropout(self.attention(normed, self.attention.memory(normed), bias))
        return hidden + self.dropout(self.feed(self.feed_norm(hidden)))


class CrossLayer(nn.Module, ABC):
    """What every decoder layer has: attention to what was written, and to the text."""

    def __init__(self, shape: LayerShape, form: Form) -> None:
        super().__init__()
        self.own, self.cross = Attention(shape, form), Attention(shape, form)
        self.dropout = nn.Dropout(shape.dropout)

    def read(self, encoded: Tensor) -> Memory:
        """What this layer looks up in the encoded texts."""
        return self.cross.memory(encoded)

    @abstractmethod
    def looked_back(self, hidden: Tensor, past: Memory | None, bias: Tensor) -> tuple[Tensor, Memory]:
        """The states after attention to what was written, and the past of whatever comes next."""

    @abstractmethod
    def asking(self, hidden: Tensor) -> Tensor:
        """What attention to the text makes its queries of, from states that have looked back."""

    def text_scores(self, hidden: Tensor, past: Memory | None, bias: Tensor, keys: Tensor) -> Tensor:
        """(rows, heads, t, length) the scores of the text's keys before the softmax, without any mask."""
        hidden, _ = self.looked_back(hidden, past, bias)
        return self.cross.queries(self.asking(hidden)) @ keys.transpose(2, 3) * self.cross.scale


class DecoderLayer(CrossLayer):
    """The same as in the encoder, with attention to the text in between."""

    def __init__(self, shape: LayerShape, *, gated: bool) -> None:
        super().__init__(shape, "t5")
        self.feed = Feed(shape, gated=gated)
        self.own_norm, self.cross_norm, self.feed_norm = Norm(shape), Norm(shape), Norm(shape)

    def forward(
        self,
        hidden: Tensor,
        past: Memory | None,
        bias: Tensor,
        memory: Memory,
        mask: Tensor,
        rows: RowsOfTexts | None = None,
    ) -> tuple[Tensor, Memory]:
        hidden, kept = self.looked_back(hidden, past, bias)
        hidden = hidden + self.dropout(self.cross(self.asking(hidden), memory, mask, rows))
        return hidden + self.dropout(self.feed(self.feed_norm(hidden))), kept

    def looked_back(self, hidden: Tensor, past: Memory | None, bias: Tensor) -> tuple[Tensor, Memory]:
        normed = self.own_norm(hidden)
        kept = joined(past, self.own.memory(normed))
        return hidden + self.dropout(self.own(normed, kept, bias)), kept

    def asking(self, hidden: Tensor) -> Tensor:
        return self.cross_norm(hidden)


class BertDecoderLayer(CrossLayer):
    """BERT's layer, which norms what it has added, with attention to the text in between."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__(shape, "bert")
        self.up, self.down = nn.Linear(shape.d_model, shape.d_ff), nn.Linear(shape.d_ff, shape.d_model)
        self.own_norm, self.cross_norm, self.feed_norm = (
            nn.LayerNorm(shape.d_model, eps=shape.epsilon) for _ in range(3)
        )

    def forward(
        self,
        hidden: Tensor,
        past: Memory | None,
        bias: Tensor,
        memory: Memory,
        mask: Tensor,
        rows: RowsOfTexts | None = None,
    ) -> tuple[Tensor, Memory]:
        hidden, kept = self.looked_back(hidden, past, bias)
        hidden = self.cross_norm(hidden + self.dropout(self.cross(self.asking(hidden), memory, mask, rows)))
        return self.feed_norm(hidden + self.dropout(self.down(functional.gelu(self.up(hidden))))), kept

    def looked_back(self, hidden: Tensor, past: Memory | None, bias: Tensor) -> tuple[Tensor, Memory]:
        kept = joined(past, self.own.memory(hidden))
        return self.own_norm(hidden + self.dropout(self.own(hidden, kept, bias))), kept

    def asking(self, hidden: Tensor) -> Tensor:
        return hidden


class BertInput(nn.Module):
    """What BERT does to symbols before its first layer: places are added, and all of it is normed."""

    def __init__(self, shape: LayerShape, positions: int) -> None:
        super().__init__()
        self.places = nn.Embedding(positions, shape.d_model)
        self.norm = nn.LayerNorm(shape.d_model, eps=shape.epsilon)

    def forward(self, hidden: Tensor, before: int) -> Tensor:
        """Of symbols (rows, t, d_model) behind so many others; those behind the last place stand there too."""
        positions = torch.arange(before, before + hidden.shape[1], device=hidden.device)
        return self.norm(hidden + self.places(positions.clamp(max=self.places.num_embeddings - 1)))


def joined(past: Memory | None, now: Memory) -> Memory:
    """The keys and values of a past and of what follows it."""
    return now if past is None else (torch.cat([past[0], now[0]], 2), torch.cat([past[1], now[1]], 2))


def distances(table: nn.Embedding, farthest: int, query: Tensor, key: Tensor, *, both_ways: bool) -> Tensor:
    """(1, heads, queries, keys) how much each distance counts, by a table (buckets, heads)."""
    distance = key - query[:, None]
    return table(bucket(distance, table.num_embeddings, farthest, both_ways)).permute(2, 0, 1)[None]


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of ones and zeros (rows, length) as what is added to attention scores (rows, 1, 1, length)."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask == 0, torch.finfo(dtype).min)[:, None, None]


def bucket(distance: Tensor, buckets: int, max_distance: int, both_ways: bool) -> Tensor:
    """T5's number for a distance: exact up to a half of the buckets, then by its logarithm."""
    offset = torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        offset = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    near = buckets // 2
    ratio = torch.log(distance.clamp(min=1).float() / near) / math.log(max_distance / near)
    far = (near + (ratio * (buckets - near)).long()).clamp(max=buckets - 1)
    return offset + torch.where(distance < near, distance, far)
