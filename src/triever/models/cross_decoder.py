"""Models whose decoder attends to the states of a reader, and writes symbols of its own.

The reader reads text: any encoder that gives states of the decoder's width. The same code trains and searches: in a
search the keys and values of a text are computed once and shared by all of its prefixes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from triever.docids.branches import Branches
from triever.models.docid_model import DocidModel, SymbolShape, Tokenise
from triever.models.encoder import pooled
from triever.models.layers import CrossLayer, LayerShape, Memory, RowsOfTexts, additive


class Reader(Protocol):
    """What reads texts for a decoder."""

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Hidden states of texts: ids and mask (rows, length) to (rows, length, d_model)."""
        ...


@dataclass(frozen=True)
class CrossShape(LayerShape, SymbolShape):
    """The sizes of a decoder that attends to a reader's states."""

    decoder_layers: int = 8
    pooled: bool = False  # one state for the whole text is added to what the decoder reads at every place
    pooling: str = "mean"  # which state that is: mean, first or last


C = TypeVar("C", bound=CrossShape)


@dataclass(frozen=True)
class Read:
    """What the decoder looks up in texts, computed once."""

    layers: list[Memory]  # keys and values for each layer, of (texts, heads, length, d_kv)
    mask: Tensor  # (texts, 1, 1, length)
    pooled: Tensor | None = None  # (texts, 1, d_model)
    rows: RowsOfTexts | None = field(default=None, kw_only=True)
    """Which text each row of tokens belongs to, where texts have unequally many."""

    def of(self, text: Tensor) -> Read:
        """A row for each of these texts (rows,)."""
        layers = [(keys[text], values[text]) for keys, values in self.layers]
        return Read(layers, self.mask[text], None if self.pooled is None else self.pooled[text])


class CrossDecoder(DocidModel[C]):
    """`model(ids, mask, targets)` for training; `read` and `decode` for searching."""

    # What a form of decoder has to bring.

    @abstractmethod
    def cross_layers(self) -> Iterable[CrossLayer]:
        """Its layers, in their order."""

    @abstractmethod
    def entered(self, rows: Tensor, before: int) -> Tensor:
        """What the first layer gets of the rows of symbols (rows, t, d_model) that follow `before` others."""

    @abstractmethod
    def position_bias(self, query: Tensor, key: Tensor, like: Tensor) -> Tensor:
        """(1, heads or 1, queries, keys) what attention adds for each distance back."""

    @abstractmethod
    def left(self, hidden: Tensor) -> Tensor:
        """What becomes of the states of the last layer."""

    # Reading

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Hidden states of texts: ids and mask (rows, length) to (rows, length, d_model)."""
        return cast("Reader", self.reader).states(ids, mask)

    def read(self, ids: Tensor, mask: Tensor) -> Read:
        """What every decoder layer looks up in texts, (rows, length)."""
        return self.looked_up(self.encode(ids, mask), mask)

    def looked_up(self, states: Tensor, mask: Tensor) -> Read:
        """The same of texts whose hidden states are there already."""
        layers = [layer.read(states) for layer in self.cross_layers()]
        return Read(layers, additive(mask, states.dtype), self._pooled(states, mask) if self.shape.pooled else None)

    def _pooled(self, states: Tensor, mask: Tensor) -> Tensor:
        """(rows, 1, d_model) the one state of each text."""
        return pooled(states, mask, self.shape.pooling)[:, None].to(states.dtype)

    # Writing

    def states_before(self, ids: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
        """The states from which each symbol of the targets is written."""
        return self._before_each(self.read(ids, mask), targets)

    def first_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The states from which the first symbol is written: what the start symbol gives."""
        begin = torch.full_like(ids[:, :1], self.shape.start)
        return self.decode(begin, None, self.read(ids, mask))[0][:, 0]

    def loss_after(self, read: Read, targets: Tensor, ignored: int, branches: Branches | None = None) -> Tensor:
        """The loss of targets after texts that were read already."""
        known = targets.masked_fill(targets == ignored, 0)
        return self.loss_of(self._before_each(read, known), targets, ignored, branches)

    def _before_each(self, read: Read, targets: Tensor) -> Tensor:
        begin = torch.full_like(targets[:, :1], self.shape.start)
        return self.decode(torch.cat([begin, targets[:, :-1]], 1), None, read)[0]

    def decode(self, tokens: Tensor, past: list[Memory] | None, read: Read) -> tuple[Tensor, list[Memory]]:
        """Hidden states after tokens (rows, t) that follow a past, and the past of whatever comes next.

        What was read may have fewer rows than the tokens: then the rows of each text lie together, equally
        many for each, or `read.rows` says of which text they are.
        """
        entering, past_of, bias = self._begun(tokens, past, read)
        hidden, now = self._through(entering, past_of, bias, read, len(read.layers))
        return self.left(hidden), now

    def decode_attending(
        self, tokens: Tensor, past: list[Memory] | None, read: Read
    ) -> tuple[Tensor, list[Memory], Tensor]:
        """The same, and (rows, t, length) the shares of the last layer's attention to the tokens of texts.

        They are averages over heads. What was read has as many rows as the tokens.
        """
        entering, past_of, bias = self._begun(tokens, past, read)
        hidden, now = self._through(entering, past_of, bias, read, len(read.layers) - 1)
        *_, last = self.cross_layers()
        scores = last.text_scores(hidden, past_of[-1], bias, read.layers[-1][0]) + read.mask
        hidden, kept = last(hidden, past_of[-1], bias, read.layers[-1], read.mask)
        return (
            self.left(hidden),
            [*now, kept],
            scores.to(torch.promote_types(scores.dtype, torch.float32)).softmax(3).mean(1),
        )

    def _begun(
        self, tokens: Tensor, past: list[Memory] | None, read: Read
    ) -> tuple[Tensor, Sequence[Memory | None], Tensor]:
        """What the first layer gets of tokens, the past of each layer, and what attention adds for each distance."""
        before = past[0][0].shape[2] if past else 0
        hidden = self._entered(tokens, before, read)
        return hidden, past or [None] * len(read.layers), self._backwards(before, tokens.shape[1], hidden)

    def _through(
        self, hidden: Tensor, past: Sequence[Memory | None], bias: Tensor, read: Read, layers: int
    ) -> tuple[Tensor, list[Memory]]:
        """States that have gone through the first layers, and the past of whatever comes next."""
        now: list[Memory] = []
        for layer, before, memory in zip(islice(self.cross_layers(), layers), past, read.layers, strict=False):
            hidden, kept = layer(hidden, before, bias, memory, read.mask, read.rows)
            now.append(kept)
        return hidden, now

    def first_text_scores(self, read: Read) -> Tensor:
        """(texts, heads, length) how the last layer scores the tokens of texts for the first symbol, before a softmax.

        What is masked has the lowest score there is.
        """
        begin = torch.full((len(read.mask), 1), self.shape.start, device=read.mask.device)
        entering, past_of, bias = self._begun(begin, None, read)
        hidden, _ = self._through(entering, past_of, bias, read, len(read.layers) - 1)
        *_, last = self.cross_layers()
        return (last.text_scores(hidden, None, bias, read.layers[-1][0]) + read.mask)[:, :, 0]

    def _entered(self, tokens: Tensor, before: int, read: Read) -> Tensor:
        """What the first layer gets of tokens (rows, t) that follow `before` others."""
        hidden = self.symbols(tokens)
        if self.shape.entering != 1:
            hidden = hidden * self.shape.entering
        if read.pooled is not None:
            even = len(tokens) // len(read.pooled)
            hidden = hidden + (
                read.pooled.repeat_interleave(even, 0) if read.rows is None else read.pooled[read.rows.text]
            )
        return self.entered(hidden, before)

    def _backwards(self, before: int, now: int, like: Tensor) -> Tensor:
        """(1, heads or 1, now, before + now) what attention adds for each distance back, and -inf ahead."""
        key = torch.arange(before + now, device=like.device)
        query = key[before:]
        return self.position_bias(query, key, like).masked_fill(key > query[:, None], -torch.inf)

    def generator(self, length: int, prefix: str = "") -> Seq2SeqGenerator:
        """What a search asks."""
        return Seq2SeqGenerator(self, self.tokeniser(length, prefix))


@dataclass(frozen=True)
class Seq2SeqCache:
    """What was read, once for each text, and what was written, for each prefix."""

    read: Read
    past: list[Memory]  # for each layer, of (prefixes, heads, symbols, d_kv)
    text: Tensor  # (prefixes,) which text each prefix belongs to


class Seq2SeqGenerator:
    """`Seq2SeqGenerator(model, tokenise)`: texts are read once, and all prefixes of a text share what was read."""

    def __init__(self, model: CrossDecoder, tokenise: Tokenise) -> None:
        self.model = model.eval()
        self.tokenise = tokenise
        self.width = model.shape.width
        self.device = model.device

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[Seq2SeqCache, Tensor]:
        """Read the texts; the start symbol gives the state after the empty prefix."""
        ids, mask = (tensor.to(self.device) for tensor in self.tokenise(prompts))
        return self._begun(self.model.read(ids, mask))

    def _begun(self, read: Read) -> tuple[Seq2SeqCache, Tensor]:
        rows = len(read.mask)
        begin = torch.full((rows, 1), self.model.shape.start, device=self.device)
        hidden, past = self.model.decode(begin, None, read)
        return Seq2SeqCache(read, past, torch.arange(rows, device=self.device)), hidden[:, -1]

    @torch.inference_mode()
    def extend(self, cache: Seq2SeqCache, parents: Tensor, tokens: Tensor) -> tuple[Seq2SeqCache, Tensor]:
        """Follow prefixes by symbols."""
        text = cache.text[parents]
        past = [(keys[parents], values[parents]) for keys, values in cache.past]
        hidden, now = self.model.decode(tokens, past, self._read_for(cache, text))
        return Seq2SeqCache(cache.read, now, text), hidden

    def only(self, cache: Seq2SeqCache, texts: Tensor) -> Seq2SeqCache:
        """What `prefill` remembers of some of the texts that it has read."""
        past = [(keys[texts], values[texts]) for keys, values in cache.past]
        return Seq2SeqCache(cache.read.of(texts), past, torch.arange(len(texts), device=self.device))

    def _read_for(self, cache: Seq2SeqCache, text: Tensor) -> Read:
        """What was read of the texts of some rows, once for each text if the rows of a text lie together."""
        texts, which, counts = text.unique_consecutive(return_inverse=True, return_counts=True)
        if not len(text) or len(texts) > len(cache.read.mask):
            return cache.read.of(text)
        read = cache.read if _are_all(texts, len(cache.read.mask)) else cache.read.of(texts)
        rows = RowsOfTexts.of(which, counts)
        return read if rows.are_even else replace(read, rows=rows)

    @torch.inference_mode()
    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Scores of all symbols, or of the candidates."""
        return self.model.scores(hidden, candidates)


def _are_all(texts: Tensor, count: int) -> bool:
    """Whether these are all of so many texts, in their order."""
    return len(texts) == count and bool((texts == torch.arange(count, device=texts.device)).all())


def as_layers(modules: nn.ModuleList) -> list[CrossLayer]:
    """The layers of a decoder, typed as what they are."""
    return [layer for layer in modules if isinstance(layer, CrossLayer)]
