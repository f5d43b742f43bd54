"""A decoder of T5's form as a search wants it: few and large products, and shapes that depend on nothing but sizes.

The products of a layer that have the same input are one product, what was read of texts is one product for all layers,
and what was written lies in one store that nothing is ever moved in: a prefix knows in which rows its symbols are. The
states are those of `CrossDecoder.decode`. The weights are copied when it is made: it is for models that are done
learning.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from triever.models.cross_decoder import Reader
from triever.models.docid_model import DocidModel, Tokenise, versions
from triever.models.encoder import pooled
from triever.models.kernels import attend_paths, attend_texts, gated_gelu, rms_norm
from triever.models.layers import DecoderLayer, EncoderLayer, Feed, distances
from triever.models.t5 import T5, TextEncoder

PLACES = 512
"""Distances back whose weights are known beforehand."""


@dataclass(frozen=True)
class FusedCache:
    """What was read, once for each text, and the rows of the store that hold the symbols of each prefix."""

    keys: list[Tensor]  # for each layer (texts, length, heads * d_kv)
    values: list[Tensor]
    mask: Tensor  # (texts, length) uint8
    pooled: Tensor | None  # (texts, d_model)
    stores: list[Tensor]  # for each layer (rows, 3 * heads * d_kv), see `attend_paths`
    ancestors: Tensor  # (prefixes, places)
    used: int  # rows of the store


def can_fuse(model: nn.Module, longest: int) -> bool:
    """Whether a model is of T5's form, with heads that kernels take, for docids of at most `longest` symbols."""
    if not isinstance(model, T5) or not model.shape.decoder_layers or model.shape.shards > 1:
        return False
    size = model.shape.d_kv
    return longest < PLACES and 16 <= size <= 128 and size & (size - 1) == 0


class FusedGenerator:
    """`FusedGenerator(model, tokenise)`: a generator whose prefixes lie evenly, equally many for each text.

    The model has to be one that `can_fuse`. It computes in the model's numbers, or in others of a copy of it.
    """

    _bias: Tensor

    def __init__(self, model: DocidModel, tokenise: Tokenise, dtype: torch.dtype | None = None) -> None:
        assert isinstance(model, T5)  # the caller has asked `can_fuse`
        self._source, self._dtype = model, dtype
        if dtype not in (None, model.dtype):
            model = copy.deepcopy(model).to(dtype)
        self.model = model.eval()
        self.tokenise = tokenise
        self.width, self.device = model.shape.width, model.device
        self.scores_each = self.width
        self.heads = model.shape.heads
        self.longest: int = getattr(model.reader, "longest", None) or 0
        self._made_from = versions(self._source)
        with torch.inference_mode():
            self._layers = [_Layer.of(layer) for layer in model.cross_layers()]
            layers = [layer.cross for layer in model.cross_layers()]
            self._cross = torch.cat([part.weight for cross in layers for part in (cross.k, cross.v)]).t()
            self._reader = _FusedReader(model.reader) if isinstance(model.reader, TextEncoder) else None
            # For a distance of n, the last key and a query n places behind it.
            key = torch.arange(PLACES, device=self.device)
            one = model.position_bias(key[-1:], key, self._cross)  # (1, heads, 1, places)
            self._bias = one[0, :, 0].flip(1).float().contiguous()  # (heads, places) by distance

    def is_current(self) -> bool:
        """Whether the model's weights are still those that it was made from."""
        return self._made_from == versions(self._source)

    def renewed(self) -> FusedGenerator:
        """One of the weights as they are now."""
        return FusedGenerator(self._source, self.tokenise, self._dtype)

    # Reading

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[FusedCache, Tensor]:
        """Read the texts; the start symbol gives the state after the empty prefix."""
        ids, mask = (tensor.to(self.device) for tensor in self.tokenise(prompts))
        return self.read(ids, mask)

    @torch.inference_mode()
    def read(self, ids: Tensor, mask: Tensor, rows: int = 0) -> tuple[FusedCache, Tensor]:
        """The same of tokens, with room for so many symbols.

        Where there is room, symbols are written behind those that were there when a cache was made, and what one
        `extend` has written is lost with the next of the same cache. Without, everything is copied once more.
        """
        return self.begin(self.states(ids, mask), mask, rows)

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(texts, length, d_model) the states of tokens."""
        reader = self._reader or cast("Reader", self.model.reader)
        return reader.states(ids, mask)

    @torch.inference_mode()
    def begin(self, states: Tensor, mask: Tensor, rows: int = 0) -> tuple[FusedCache, Tensor]:
        """The same of the states of tokens."""
        texts, length, size = states.shape
        looked_up = torch.mm(states.reshape(-1, size), self._cross).view(texts, length, 2 * len(self._layers), -1)
        keys, values = (list(looked_up[:, :, at::2].unbind(2)) for at in (0, 1))
        shape = self.model.shape
        one = pooled(states, mask, shape.pooling).to(states.dtype) if shape.pooled else None
        ancestors = torch.zeros(texts, 0, dtype=torch.long, device=self.device)
        stores = [states.new_empty(rows, layer.own.shape[1]) for layer in self._layers]
        cache = FusedCache(keys, values, mask.to(torch.uint8), one, stores, ancestors, 0)
        start = torch.full((texts, 1), shape.start, device=self.device)
        cache, hidden = self._extended(cache, ancestors, start)
        return cache, hidden[:, -1]

    # Writing

    @torch.inference_mode()
    def extend(self, cache: FusedCache, parents: Tensor, tokens: Tensor) -> tuple[FusedCache, Tensor]:
        """Follow prefixes by symbols; of each text there are equally many, lying together."""
        return self._extended(cache, cache.ancestors[parents], tokens)

    def _extended(self, cache: FusedCache, before: Tensor, tokens: Tensor) -> tuple[FusedCache, Tensor]:
        rows, count = tokens.shape
        own = cache.used + torch.arange(rows * count, device=self.device).view(rows, count)
        ancestors = torch.cat([before, own], 1)  # of the last symbol of each
        hidden = self._entered(tokens.reshape(-1), cache.pooled)
        sees = ancestors if count == 1 else _up_to_each(ancestors, count)
        bias = self._bias[:, : sees.shape[1]].contiguous()
        stores: list[Tensor] = []
        for at, layer in enumerate(self._layers):
            stores.append(layer.written(hidden, cache.stores[at], cache.used))
            hidden = layer.passed(hidden, stores[at], cache, at, sees, bias, self.heads)
        final = rms_norm(hidden, self.model.norm.weight, self.model.norm.epsilon)
        grown = replace(cache, stores=stores, ancestors=ancestors, used=cache.used + rows * count)
        return grown, final.view(rows, count, -1)

    def _entered(self, tokens: Tensor, pooled: Tensor | None) -> Tensor:
        """(n, d_model) what the first layer gets of symbols (n,)."""
        hidden = self.model.symbols(tokens)
        if self.model.shape.entering != 1:
            hidden = hidden * self.model.shape.entering
        if pooled is not None:
            hidden = (hidden.view(len(pooled), -1, hidden.shape[1]) + pooled[:, None]).view_as(hidden)
        return hidden

    @torch.inference_mode()
    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Scores of all symbols, or of the candidates."""
        return self.model.scores(hidden, candidates)

    def scores_all(self, candidates: int) -> bool:
        """Whether so many candidates of each prefix are scored among all symbols."""
        return self.model.scores_all(candidates)


def _up_to_each(ancestors: Tensor, count: int) -> Tensor:
    """(rows * count, places) for each of the last `count` symbols of rows what it sees: up to itself, -1 behind it."""
    rows, places = ancestors.shape
    place = torch.arange(places, device=ancestors.device)
    last = places - count + torch.arange(count, device=ancestors.device)
    seen = torch.where(place <= last[:, None], ancestors[:, None], -1)
    return seen.reshape(rows * count, places)


@dataclass(frozen=True)
class _Feed:
    """The layer after attention; the weights lie as a product takes them, (in, out)."""

    up: Tensor  # behind the gate, where there is one
    down: Tensor
    gated: bool

    @classmethod
    def of(cls, feed: Feed) -> _Feed:
        up = feed.up.weight if feed.gate is None else torch.cat([feed.gate.weight, feed.up.weight])
        return cls(up.t(), feed.down.weight.t(), feed.gate is not None)

    def added(self, hidden: Tensor, normed: Tensor) -> Tensor:
        inner = torch.mm(normed, self.up)
        return hidden.addmm_(gated_gelu(inner) if self.gated else inner.relu_(), self.down)


@dataclass(frozen=True)
class _Layer:
    """One decoder layer."""

    own: Tensor  # (d_model, 3 * heads * d_kv): query, key and value
    own_out: Tensor
    asks: Tensor
    cross_out: Tensor
    feed: _Feed
    norms: tuple[Tensor, Tensor, Tensor]
    epsilon: float

    @classmethod
    def of(cls, layer: nn.Module) -> _Layer:
        assert isinstance(layer, DecoderLayer)  # as all layers of T5's form
        own, cross = layer.own, layer.cross
        norms = layer.own_norm.weight, layer.cross_norm.weight, layer.feed_norm.weight
        joined = torch.cat([own.q.weight, own.k.weight, own.v.weight]).t()
        outs = own.o.weight.t(), cross.q.weight.t(), cross.o.weight.t()
        return cls(joined, *outs, _Feed.of(layer.feed), norms, layer.own_norm.epsilon)

    def written(self, hidden: Tensor, store: Tensor, used: int) -> Tensor:
        """The store with the queries, keys and values of new symbols behind the rows that are used."""
        normed, end = rms_norm(hidden, self.norms[0], self.epsilon), used + len(hidden)
        if len(store) < end:
            store = torch.cat([store[:used], store.new_empty(len(hidden), store.shape[1])])
        torch.mm(normed, self.own, out=store[used:end])
        return store

    def passed(
        self, hidden: Tensor, store: Tensor, cache: FusedCache, at: int, sees: Tensor, bias: Tensor, heads: int
    ) -> Tensor:
        """The states behind the layer; what new symbols were written as is in the store already."""
        hidden = hidden.addmm_(attend_paths(store, cache.used, len(hidden), sees, bias, heads), self.own_out)
        asked = torch.mm(rms_norm(hidden, self.norms[1], self.epsilon), self.asks)
        attended = attend_texts(asked, cache.keys[at], cache.values[at], cache.mask, heads)
        hidden = hidden.addmm_(attended, self.cross_out)
        return self.feed.added(hidden, rms_norm(hidden, self.norms[2], self.epsilon))


class _FusedReader:
    """T5's encoder in the same way."""

    def __init__(self, reader: TextEncoder) -> None:
        self.reader = reader
        self.layers = [_EncoderLayer.of(layer) for layer in reader.layers]

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Hidden states of texts: ids and mask (rows, length) to (rows, length, d_model)."""
        texts, length = ids.shape
        shape = self.reader.shape
        positions = torch.arange(length, device=ids.device)
        near = distances(self.reader.bias, shape.max_distance, positions, positions, both_ways=True)
        bias, seen = near[0].float().contiguous(), mask.to(torch.uint8)
        hidden = self.reader.embedding(ids).view(texts * length, -1)
        for layer in self.layers:
            hidden = layer.passed(hidden, texts, seen, bias, shape.heads)
        normed = rms_norm(hidden, self.reader.norm.weight, self.reader.norm.epsilon)
        return normed.view(texts, length, -1)


@dataclass(frozen=True)
class _EncoderLayer:
    own: Tensor  # (d_model, 3 * heads * d_kv)
    out: Tensor
    feed: _Feed
    norms: tuple[Tensor, Tensor]
    epsilon: float

    @classmethod
    def of(cls, layer: nn.Module) -> _EncoderLayer:
        assert isinstance(layer, EncoderLayer)  # as all layers of the reader
        attention = layer.attention
        joined = torch.cat([attention.q.weight, attention.k.weight, attention.v.weight]).t()
        norms = layer.attention_norm.weight, layer.feed_norm.weight
        return cls(joined, attention.o.weight.t(), _Feed.of(layer.feed), norms, layer.attention_norm.epsilon)

    def passed(self, hidden: Tensor, texts: int, mask: Tensor, bias: Tensor, heads: int) -> Tensor:
        joined = torch.mm(rms_norm(hidden, self.norms[0], self.epsilon), self.own)
        inner = joined.shape[1] // 3
        query, keys, values = joined.split(inner, 1)
        keys, values = (part.view(texts, -1, part.shape[1]) for part in (keys, values))
        attended = attend_texts(query, keys, values, mask, heads, bias)
        hidden = hidden.addmm_(attended, self.out)
        return self.feed.added(hidden, rms_norm(hidden, self.norms[1], self.epsilon))
