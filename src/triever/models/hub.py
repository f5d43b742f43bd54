"""Any transformers model as a generator, sequence-to-sequence or causal, with its own cache and vocabulary.

The general way, and the slower one: a prompt is read once, but its cache is copied for every prefix.
Docid symbols are the model's own token numbers. A hidden state is the row of scores that the model gives,
whatever it does to make them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from triever.models.generator import of_candidates


@dataclass(frozen=True)
class HubCache:
    """A transformers cache, one row for each prefix, and what else a call needs."""

    past: Any
    mask: Tensor  # (prefixes, length) of the prompt, and for causal models of what follows it
    encoded: Tensor | None = None  # (prompts, length, d) of an encoder
    prompt: Tensor | None = None  # (prefixes,) which prompt each belongs to


class _HubModel:
    """What both kinds share."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.width = model.config.vocab_size
        self.device = model.device

    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Hidden states are scores already."""
        return hidden if candidates is None else of_candidates(hidden, candidates)


class CausalGenerator(_HubModel):
    """A causal model that continues a prompt by a docid: `CausalGenerator(model, tokenizer)`."""

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[HubCache, Tensor]:
        """Read the prompts, padded on the left so that all end together."""
        batch = self.tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
        return self._call(HubCache(None, batch["attention_mask"].to(self.device)), batch["input_ids"].to(self.device))

    @torch.inference_mode()
    def extend(self, cache: HubCache, parents: Tensor, tokens: Tensor) -> tuple[HubCache, Tensor]:
        """Follow prefixes by symbols."""
        mask = torch.cat([cache.mask[parents], torch.ones_like(tokens)], 1)
        chosen = HubCache(selected(cache.past, parents), mask)
        return self._call(chosen, tokens, every=True)

    def _call(self, cache: HubCache, tokens: Tensor, *, every: bool = False) -> tuple[HubCache, Tensor]:
        place = (cache.mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        out = self.model(
            input_ids=tokens,
            attention_mask=cache.mask,
            position_ids=place,
            past_key_values=cache.past,
            use_cache=True,
        )
        return replace(cache, past=out.past_key_values), out.logits if every else out.logits[:, -1]


class HubSeq2SeqGenerator(_HubModel):
    """A sequence-to-sequence model that answers a text by a docid: `HubSeq2SeqGenerator(model, tokenizer)`."""

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[HubCache, Tensor]:
        """Encode the prompts and begin to decode."""
        batch = self.tokenizer(prompts, return_tensors="pt", padding=True)
        mask = batch["attention_mask"].to(self.device)
        ids = batch["input_ids"].to(self.device)
        encoded = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        cache = HubCache(None, mask, encoded, torch.arange(len(mask), device=self.device))
        start = torch.full((len(mask), 1), self.model.config.decoder_start_token_id, device=self.device)
        cache, logits = self._call(cache, start)
        return cache, logits[:, -1]

    @torch.inference_mode()
    def extend(self, cache: HubCache, parents: Tensor, tokens: Tensor) -> tuple[HubCache, Tensor]:
        """Follow prefixes by symbols."""
        assert cache.prompt is not None  # prefill makes it
        return self._call(replace(cache, past=selected(cache.past, parents), prompt=cache.prompt[parents]), tokens)

    def _call(self, cache: HubCache, tokens: Tensor) -> tuple[HubCache, Tensor]:
        assert cache.encoded is not None  # prefill makes it
        out = self.model(
            encoder_outputs=(cache.encoded[cache.prompt],),
            attention_mask=cache.mask[cache.prompt],
            decoder_input_ids=tokens,
            past_key_values=cache.past,
            use_cache=True,
        )
        return replace(cache, past=out.past_key_values), out.logits


def selected(past: Any, rows: Tensor) -> Any:
    """A new transformers cache with some rows of an old one, which stays as it is."""
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    if isinstance(past, EncoderDecoderCache):
        own, cross = (selected(part, rows) for part in (past.self_attention_cache, past.cross_attention_cache))
        return EncoderDecoderCache(own, cross)
    chosen = DynamicCache()
    for number, layer in enumerate(past.layers):
        chosen.update(layer.keys[rows], layer.values[rows], number)
    return chosen
