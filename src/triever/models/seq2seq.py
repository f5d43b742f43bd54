"""Our T5-shaped model as a generator: texts are read once, and all prefixes of a text share what was read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from triever.models.generator import of_candidates
from triever.models.layers import Memory
from triever.models.t5 import T5, Read

FEW = 32
"""A candidate's row is fetched from memory, where a whole layer is one product: so many times dearer, roughly."""

Tokenise = Callable[[list[str]], tuple[Tensor, Tensor]]
"""Texts to ids and mask, (rows, length) each."""


@dataclass(frozen=True)
class Seq2SeqCache:
    """What was read, once for each text, and what was written, for each prefix."""

    read: Read
    past: list[Memory]  # for each layer, of (prefixes, heads, symbols, d_kv)
    text: Tensor  # (prefixes,) which text each prefix belongs to


class Seq2SeqGenerator:
    """`Seq2SeqGenerator(model, tokenise)`; keeps the Generator's shape."""

    def __init__(self, model: T5, tokenise: Tokenise) -> None:
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
        """What was read as it is where every text has equally many prefixes, lying together; else a row for each."""
        texts = len(cache.read.mask)
        if len(text) % texts == 0:
            regular = torch.arange(texts, device=text.device).repeat_interleave(len(text) // texts)
            if torch.equal(text, regular):
                return cache.read
        return cache.read.of(text)

    @torch.inference_mode()
    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Scores of all symbols, or of the candidates; few of them are scored by themselves."""
        if candidates is None:
            return self.model.logits(hidden)
        if FEW * candidates.shape[1] < self.width * hidden[0, ..., 0].numel():
            return self.model.logits_of(hidden, candidates)
        return of_candidates(self.model.logits(hidden), candidates)
