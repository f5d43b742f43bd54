"""A T5-shaped encoder and decoder of our own: T5, T5 v1.1 and Flan weights load into it.

The reader reads text: T5's encoder, or any other that gives states of the decoder's width. The decoder
writes docids over a vocabulary of its own, so its output layer is as wide as the docids need. The same code
trains and searches: in a search the keys and values of a query are computed once and shared by all of its
prefixes.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from triever.models.encoder import pooled
from triever.models.generator import of_candidates
from triever.models.layers import (
    BertDecoderLayer,
    BertInput,
    CrossLayer,
    DecoderLayer,
    EncoderLayer,
    Memory,
    Norm,
    T5Shape,
    additive,
    distances,
)
from triever.models.rows import ShardedRows


class Reader(Protocol):
    """What reads texts for a decoder."""

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Hidden states of texts: ids and mask (rows, length) to (rows, length, d_model)."""
        ...


class TextEncoder(nn.Module):
    """T5's encoder."""

    def __init__(self, shape: T5Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.d_model)
        self.bias = nn.Embedding(shape.buckets, shape.heads)
        self.layers = nn.ModuleList(EncoderLayer(shape) for _ in range(shape.encoder_layers))
        self.norm = Norm(shape)
        self.dropout = nn.Dropout(shape.dropout)

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Hidden states of texts: ids and mask (rows, length) to (rows, length, d_model)."""
        hidden = self.dropout(self.embedding(ids))
        place = torch.arange(ids.shape[1], device=ids.device)
        bias = distances(self.bias, self.shape, place, place, both_ways=True) + additive(mask, hidden.dtype)
        for layer in self.layers:
            hidden = layer(hidden, bias)
        return self.dropout(self.norm(hidden))


@dataclass(frozen=True)
class Read:
    """What the decoder looks up in texts, computed once."""

    layers: list[Memory]  # keys and values for each layer, of (texts, heads, length, d_kv)
    mask: Tensor  # (texts, 1, 1, length)
    pooled: Tensor | None = None  # (texts, 1, d_model)

    def of(self, text: Tensor) -> Read:
        """A row for each of these texts (rows,)."""
        layers = [(keys[text], values[text]) for keys, values in self.layers]
        return Read(layers, self.mask[text], None if self.pooled is None else self.pooled[text])


class FixedRows(nn.Module):
    """A table of vectors that no training changes."""

    weight: Tensor

    def __init__(self, count: int, size: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(count, size))

    def forward(self, numbers: Tensor) -> Tensor:
        return functional.embedding(numbers, self.weight)


class T5(nn.Module):
    """`model(ids, mask, docids)` for training; `read` and `decode` for searching."""

    def __init__(self, shape: T5Shape, reader: nn.Module | None = None) -> None:
        super().__init__()
        self.shape = shape
        self.reader = reader or TextEncoder(shape)
        table = FixedRows if shape.fixed else nn.Embedding
        self.symbols = table(shape.inputs or max(shape.width, shape.start + 1), shape.d_model)
        bert = shape.form == "bert"
        self.entry = BertInput(shape) if bert else None
        self.bias = None if bert else nn.Embedding(shape.buckets, shape.heads)
        kind = BertDecoderLayer if bert else DecoderLayer
        self.layers = nn.ModuleList(kind(shape) for _ in range(shape.decoder_layers))
        self.norm = nn.Identity() if bert else Norm(shape)
        self.dropout = nn.Dropout(shape.dropout)
        if not shape.tied:
            whole = shape.shards <= 1
            self.output = (
                nn.Linear(shape.d_model, shape.width, bias=False)
                if whole
                else ShardedRows(shape.d_model, shape.width, shape.shards)
            )
        self.reset()

    def reset(self) -> None:
        """T5's own initial weights, in all but a reader that came with its own."""
        own = [name for name, _ in self.named_parameters() if self._is_ours(name)]
        for name in own:
            parameter = self.get_parameter(name)
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=_spread(name, self.shape))

    @torch.no_grad()
    def set_rows(self, rows: Tensor) -> None:
        """Let the rows of the first symbols be these, (up to width, d_model)."""
        if isinstance(self.output, ShardedRows):
            self.output.load(rows)
        else:
            self.output.weight[: len(rows)] = rows.to(self.output.weight)

    def _is_ours(self, name: str) -> bool:
        return isinstance(self.reader, TextEncoder) or not name.startswith("reader.")

    def forward(self, ids: Tensor, mask: Tensor, docids: Tensor) -> Tensor:
        """Scores of every symbol at every place of the docids (rows, length): (rows, length, width)."""
        return self.logits(self._before_each(self.read(ids, mask), docids))

    def _before_each(self, read: Read, docids: Tensor) -> Tensor:
        """The states (rows, length, d_model) from which each symbol of the docids is written."""
        begin = torch.full_like(docids[:, :1], self.shape.start)
        return self.decode(torch.cat([begin, docids[:, :-1]], 1), None, read)[0]

    @property
    def dtype(self) -> torch.dtype:
        """The type it computes in."""
        return self.symbols.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.symbols.weight.device

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Hidden states of texts: ids and mask (rows, length) to (rows, length, d_model)."""
        return cast("Reader", self.reader).states(ids, mask)

    def read(self, ids: Tensor, mask: Tensor) -> Read:
        """What every decoder layer looks up in texts, (rows, length)."""
        return self.looked_up(self.encode(ids, mask), mask)

    def looked_up(self, states: Tensor, mask: Tensor) -> Read:
        """The same of texts whose hidden states are there already."""
        layers = [layer.read(states) for layer in self._decoder_layers]
        return Read(layers, additive(mask, states.dtype), self._pooled(states, mask) if self.shape.pooled else None)

    def _pooled(self, states: Tensor, mask: Tensor) -> Tensor:
        """(rows, 1, d_model) the one state of each text."""
        return pooled(states, mask, self.shape.pooling)[:, None].to(states.dtype)

    @property
    def _decoder_layers(self) -> list[CrossLayer]:
        return [layer for layer in self.layers if isinstance(layer, CrossLayer)]

    def decode(self, tokens: Tensor, past: list[Memory] | None, read: Read) -> tuple[Tensor, list[Memory]]:
        """Hidden states after tokens (rows, t) that follow a past, and the past of whatever comes next.

        What was read may have fewer rows than the tokens: then the rows of each text lie together, equally
        many for each.
        """
        hidden = self.symbols(tokens)
        if self.shape.entering != 1:
            hidden = hidden * self.shape.entering
        if read.pooled is not None:
            hidden = hidden + read.pooled.repeat_interleave(len(tokens) // len(read.pooled), 0)
        before = past[0][0].shape[2] if past else 0
        if self.entry is not None:
            hidden = self.entry(hidden, before)
        hidden = self.dropout(hidden)
        bias = self._backwards(before, tokens.shape[1], hidden)
        now: list[Memory] = []
        for at, layer in enumerate(self.layers):
            hidden, kept = layer(hidden, past[at] if past else None, bias, read.layers[at], read.mask)
            now.append(kept)
        return self.dropout(self.norm(hidden)), now

    def _backwards(self, before: int, now: int, like: Tensor) -> Tensor:
        """(1, heads or 1, now, before + now) what attention adds for each distance back, and -inf ahead."""
        key = torch.arange(before + now, device=like.device)
        query = key[before:]
        near = like.new_zeros(1, 1, now, before + now)
        if self.bias is not None:
            near = distances(self.bias, self.shape, query, key, both_ways=False)
        return near.masked_fill(key > query[:, None], -torch.inf)

    def loss(self, ids: Tensor, mask: Tensor, docids: Tensor, ignored: int) -> Tensor:
        """Minus the mean log-probability of docids (rows, length), each the sum of its symbols but for those ignored.

        A mean over rows, not over symbols: so the mean over several batches is that of all their rows as one.
        """
        return self.loss_of(self.read(ids, mask), docids, ignored)

    def loss_of(self, read: Read, docids: Tensor, ignored: int) -> Tensor:
        """The same of texts that were read already."""
        there = docids != ignored
        hidden = self._before_each(read, docids.masked_fill(~there, 0))
        # Scores of all symbols are the most that is computed here: not for places behind the ends of docids.
        return self._cross_entropy(hidden[there], docids[there]) / len(docids)

    def _cross_entropy(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Minus the log-probabilities of targets (n,) after states (n, d_model), added up."""
        if blocks := self._blocks:
            return blocks.cross_entropy(self._scaled(hidden), targets)
        return functional.cross_entropy(self.logits(hidden).float(), targets, reduction="sum")

    @property
    def _blocks(self) -> ShardedRows | None:
        """The output layer, where it lies in blocks."""
        return self.output if not self.shape.tied and isinstance(self.output, ShardedRows) else None

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of every symbol."""
        states = self._scaled(hidden)
        return functional.linear(states, self._output_rows()) if self.shape.tied else self.output(states)

    def logits_of(self, hidden: Tensor, candidates: Tensor) -> Tensor:
        """Scores of some symbols (n, C) after states (n, ..., d): (n, ..., C)."""
        if self._blocks:  # whose rows lie on several devices
            return of_candidates(self.logits(hidden), candidates)
        return torch.einsum("n...d,ncd->n...c", self._scaled(hidden), self._output_rows()[candidates])

    def _scaled(self, hidden: Tensor) -> Tensor:
        scale = self.shape.scale or (self.shape.d_model**-0.5 if self.shape.scaled else 1.0)
        return hidden * scale if scale != 1 else hidden

    def _output_rows(self) -> Tensor:
        # The symbol that starts a docid may be behind the others; it is never written.
        return self.symbols.weight[: self.shape.width] if self.shape.tied else self.output.weight


def _spread(name: str, shape: T5Shape) -> float:
    if name.endswith((".q.weight",)):
        return (shape.d_model * shape.d_kv) ** -0.5
    if name.startswith(("reader.embedding", "symbols")):
        return 1.0
    if name.endswith((".o.weight",)):
        return (shape.heads * shape.d_kv) ** -0.5
    return shape.d_ff**-0.5 if name.endswith("down.weight") else shape.d_model**-0.5


def split_rows(model: T5) -> tuple[list[Tensor], list[Tensor]]:
    """The rows of docid symbols, those that are written with and those that are read, and all other weights."""
    rows: list[Tensor] = []
    others: list[Tensor] = []
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        (rows if name.startswith(("symbols.", "output.")) else others).append(tensor)
    return rows, others


def laid_out(model: T5) -> T5:
    """The model, on a processor with the weights of its layers lying column by column.

    Nothing changes but the speed: products of few rows are some 15% faster so, where the processor has
    no library that packs weights by itself.
    """
    if model.dtype == torch.float32 and model.device.type == "cpu":
        for layer in (*model.reader.modules(), *model.layers.modules()):
            if isinstance(layer, nn.Linear):
                layer.weight.data = layer.weight.data.t().contiguous().t()
    return model


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
    found: dict[str, Tensor] = {}
    for name, weight in weights.items():
        for theirs, ours in NAMES:
            changed, hits = re.subn(theirs, ours, name)
            if hits:
                found[_feed_name(changed)] = weight
                break
    found["symbols.weight"] = found["reader.embedding.weight"]
    return found


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


def narrowed(model: T5, tokens: Tensor) -> T5:
    """The same model over fewer docid symbols: symbol i is token tokens[i] of the old vocabulary.

    Scores are the old ones, so under `trie` normalisation nothing changes but the work.
    """
    shape = replace(model.shape, width=len(tokens), start=len(tokens), tied=False, shards=1)
    ours = _like(model, shape)
    weights = _whole(model)
    output = weights["symbols.weight"] if model.shape.tied else weights["output.weight"]
    begin = torch.tensor([model.shape.start], device=tokens.device)
    weights["output.weight"] = output[tokens]
    weights["symbols.weight"] = weights["symbols.weight"][torch.cat([tokens, begin])]
    ours.load_state_dict(weights)
    return ours.to(tokens.device).eval()


def widened(model: T5, rows: Sequence[Sequence[int]], apart: Tensor | None = None) -> T5:
    """The same model with one more docid symbol for each of these, behind the last one, not yet trained.

    The rows of a new symbol are the mean of those of the symbols named for it, or of all where none are named;
    where output rows began as vectors, `apart` (new, d_model) says how far the new ones were from that mean, and they
    are as far from it now. Old symbols keep theirs to the last bit, and so their scores. For symbols that atomic
    docids have added since:
    `widened(model, [scheme.untrained[symbol] for symbol in range(model.shape.width, scheme.width)])`.
    """
    old, more = model.shape, len(rows)
    shape = replace(old, width=old.width + more, start=old.start + more if old.start >= old.width else old.start)
    ours = _like(model, shape)
    weights = _whole(model)
    if not old.inputs:
        weights["symbols.weight"] = _with_means(weights["symbols.weight"], old.width, rows)
    if not old.tied:
        weights["output.weight"] = _with_means(weights["output.weight"], old.width, rows, apart)
    _load(ours, weights)
    return ours.to(model.device).eval()


def _whole(model: T5) -> dict[str, Tensor]:
    """The weights of a model, with an output layer in one piece."""
    weights = {name: weight for name, weight in model.state_dict().items() if not name.startswith("output.")}
    return weights if model.shape.tied else {**weights, "output.weight": model.output.weight.detach()}


def _load(model: T5, weights: dict[str, Tensor]) -> None:
    """Take weights with an output layer in one piece, whatever the model's is."""
    if model.shape.tied or isinstance(model.output, nn.Linear):
        model.load_state_dict(weights)
        return
    model.set_rows(weights["output.weight"])
    rest = {name: weight for name, weight in weights.items() if name != "output.weight"}
    model.load_state_dict({**model.state_dict(), **rest})


def _like(model: T5, shape: T5Shape) -> T5:
    """A model of another width with a reader of its own, whose weights are still to be loaded."""
    reader = None if isinstance(model.reader, TextEncoder) else copy.deepcopy(model.reader)
    with torch.random.fork_rng(devices=[]):  # what is drawn here is thrown away, and must not change what comes next
        return T5(shape, reader).to(model.dtype)


def _with_means(table: Tensor, width: int, rows: Sequence[Sequence[int]], apart: Tensor | None = None) -> Tensor:
    """A table with a mean for each of these, and what is apart from it, behind its first rows.

    The row of the symbol that starts docids, where there is one, stays the last.
    """
    known = table[:width]
    whole = known.mean(0, dtype=torch.float32)  # a sum in half precision loses digits
    means = [known[list(named)].mean(0, dtype=torch.float32) if named else whole for named in rows]
    new = torch.stack(means) if means else known[:0].float()
    if apart is not None:
        new = new + apart.to(new)
    return torch.cat([known, new.to(table.dtype), table[width:]])
