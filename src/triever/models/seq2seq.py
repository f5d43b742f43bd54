"""Our T5-shaped model as a generator: texts are read once, and all prefixes of a text share what was read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from triever.models.t5 import T5, Memory, additive, laid_out

FEW = 32
"""A candidate's row is fetched from memory, where a whole layer is one product: so many times dearer, roughly."""

Tokenise = Callable[[list[str]], tuple[Tensor, Tensor]]
"""Texts to ids and mask, (rows, length) each."""


@dataclass(frozen=True)
class Seq2SeqCache:
    """What was read, once for each text, and what was written, for each prefix."""

    memory: list[Memory]  # for each layer, of (texts, heads, length, d_kv)
    mask: Tensor  # (texts, 1, 1, length)
    past: list[Memory]  # for each layer, of (prefixes, heads, symbols, d_kv)
    text: Tensor  # (prefixes,) which text each prefix belongs to


class Seq2SeqGenerator:
    """`Seq2SeqGenerator(model, tokenise)`; keeps the Generator's shape."""

    def __init__(self, model: T5, tokenise: Tokenise) -> None:
        self.model = laid_out(model.eval())
        self.tokenise = tokenise
        self.width = model.shape.width
        self.device = model.embedding.weight.device

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[Seq2SeqCache, Tensor]:
        """Read the texts; the start symbol gives the state after the empty prefix."""
        ids, mask = (tensor.to(self.device) for tensor in self.tokenise(prompts))
        memory = self.model.cross_memory(self.model.encode(ids, mask))
        bias = additive(mask, self.model.dtype)
        begin = torch.full((len(ids), 1), self.model.shape.start, device=self.device)
        hidden, past = self.model.decode(begin, None, memory, bias)
        return Seq2SeqCache(memory, bias, past, torch.arange(len(ids), device=self.device)), hidden[:, -1]

    @torch.inference_mode()
    def extend(self, cache: Seq2SeqCache, parents: Tensor, tokens: Tensor) -> tuple[Seq2SeqCache, Tensor]:
        """Follow prefixes by symbols."""
        text = cache.text[parents]
        past = [(keys[parents], values[parents]) for keys, values in cache.past]
        memory, mask = self._memory_for(cache, text)
        hidden, now = self.model.decode(tokens, past, memory, mask)
        return Seq2SeqCache(cache.memory, cache.mask, now, text), hidden

    def _memory_for(self, cache: Seq2SeqCache, text: Tensor) -> tuple[list[Memory], Tensor]:
        """The memory as it is where every text has equally many prefixes, lying together; else a row for each."""
        texts = len(cache.mask)
        if len(text) % texts == 0:
            regular = torch.arange(texts, device=text.device).repeat_interleave(len(text) // texts)
            if torch.equal(text, regular):
                return cache.memory, cache.mask
        return [(keys[text], values[text]) for keys, values in cache.memory], cache.mask[text]

    @torch.inference_mode()
    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Scores of all symbols, or of the candidates; few of them are scored by themselves."""
        if candidates is None:
            return self.model.logits(hidden)
        if FEW * candidates.shape[1] < self.width:
            return self.model.logits_of(hidden, candidates)
        return self.model.logits(hidden).gather(1, candidates)
