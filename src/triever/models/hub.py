"""Any sequence-to-sequence model of transformers as a generator, with its own cache and vocabulary.

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
from triever.models.prompt_tree import selected


@dataclass(frozen=True)
class HubCache:
    """A transformers cache, one row for each prefix, and what else a call needs."""

    past: Any
    mask: Tensor  # (prompts, length)
    encoded: Tensor  # (prompts, length, d) of the encoder
    prompt: Tensor  # (prefixes,) which prompt each belongs to


class HubSeq2SeqGenerator:
    """A sequence-to-sequence model that answers a text by a docid: `HubSeq2SeqGenerator(model, tokenizer)`."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.width = model.config.vocab_size
        self.device = model.device

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
        return self._call(replace(cache, past=selected(cache.past, parents), prompt=cache.prompt[parents]), tokens)

    def _call(self, cache: HubCache, tokens: Tensor) -> tuple[HubCache, Tensor]:
        out = self.model(
            encoder_outputs=(cache.encoded[cache.prompt],),
            attention_mask=cache.mask[cache.prompt],
            decoder_input_ids=tokens,
            past_key_values=cache.past,
            use_cache=True,
        )
        return replace(cache, past=out.past_key_values), out.logits

    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Hidden states are scores already."""
        return hidden if candidates is None else of_candidates(hidden, candidates)
