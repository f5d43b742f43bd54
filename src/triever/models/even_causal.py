"""A causal language model as a recorded search wants it: of each text equally many prefixes, and fixed shapes.

As in `prompt_tree`, the symbols of all prefixes of a text stand behind it in one row, and a mask says which of them
belong to which prefix. Here nothing depends on which prefixes there are: places that no prefix sees any more stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from triever.models.causal import BLOCKED, CausalDecoder, last_states
from triever.models.docid_model import Tokenise, versions
from triever.models.precision import computing_in
from triever.models.prompt_tree import shared


@dataclass(frozen=True)
class EvenTree:
    """What was read and written: a row for each text, and which places of its row each of its prefixes sees."""

    past: Any  # a cache of transformers, a row for each text
    seen: Tensor  # (texts, prefixes, length) bool


class EvenCausalGenerator:
    """`EvenCausalGenerator(model, tokenise)`: docids that follow texts, of each text equally many, lying together.

    Its layers may compute in other numbers than the weights'.
    """

    def __init__(self, model: CausalDecoder, tokenise: Tokenise, dtype: torch.dtype | None = None) -> None:
        self.model = model.eval()
        self.tokenise = tokenise
        self.dtype = dtype
        self.width, self.device = model.shape.width, model.device
        self.scores_each = self.width
        self.longest: int = getattr(model.reader, "longest", None) or 0
        self._made_from = versions(model)

    def is_current(self) -> bool:
        """Whether the model's weights are still those that it was made from."""
        return self._made_from == versions(self.model)

    def renewed(self) -> EvenCausalGenerator:
        """One of the weights as they are now."""
        return EvenCausalGenerator(self.model, self.tokenise, self.dtype)

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[EvenTree, Tensor]:
        """Read the texts; the last token of each gives the state after the empty prefix."""
        ids, mask = (tensor.to(self.device) for tensor in self.tokenise(prompts))
        return self.read(ids, mask)

    @torch.inference_mode()
    def read(self, ids: Tensor, mask: Tensor, rows: int = 0) -> tuple[EvenTree, Tensor]:
        """The same of tokens; room is made as it is needed, whatever `rows` says."""
        from transformers.cache_utils import DynamicCache

        there = mask.bool()
        until = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()
        # What is filled up sees itself, so that every place sees something.
        sees = (there[:, None] & until) | torch.eye(ids.shape[1], dtype=torch.bool, device=ids.device)
        words = self.model.language_model.get_input_embeddings()(ids)
        past, states = self._passed(words, sees, (mask.cumsum(1) - 1).clamp(min=0), DynamicCache())
        return EvenTree(past, there[:, None]), last_states(states, mask)

    @torch.inference_mode()
    def extend(self, cache: EvenTree, parents: Tensor, tokens: Tensor) -> tuple[EvenTree, Tensor]:
        """Follow prefixes by symbols."""
        texts, before, length = cache.seen.shape
        (rows, count), prefixes = tokens.shape, len(tokens) // texts
        seen = cache.seen.reshape(texts * before, length)[parents].view(texts, prefixes, length)
        places = prefixes * count
        # Symbol j of prefix i stands at place i * count + j, and sees those of its own prefix up to itself.
        place = torch.arange(places, device=self.device)
        own = (place[:, None] // count == place // count) & (place <= place[:, None])
        earlier = seen[:, :, None].expand(-1, -1, count, -1).reshape(texts, places, length)
        sees = torch.cat([earlier, own.expand(texts, -1, -1)], 2)
        positions = seen.sum(2, keepdim=True) + torch.arange(count, device=self.device)
        symbols = self.model.symbol_rows(tokens.view(texts, places))
        past, states = self._passed(symbols, sees, positions.view(texts, places), shared(cache.past))
        last = own.view(prefixes, count, places)[:, -1].expand(texts, -1, -1)
        return EvenTree(past, torch.cat([seen, last], 2)), states.view(rows, count, -1)

    def _passed(self, rows: Tensor, sees: Tensor, positions: Tensor, past: Any) -> tuple[Any, Tensor]:
        """What the language model makes of vectors (texts, t, d) that see some places (texts, t, length + t)."""
        mask = torch.zeros_like(sees, dtype=self.model.dtype).masked_fill(~sees, BLOCKED)[:, None]
        given = {"attention_mask": mask, "position_ids": positions, "past_key_values": past, "use_cache": True}
        with computing_in(self.device, self.dtype):
            out = self.model.language_model(inputs_embeds=rows, **given)
        return out.past_key_values, out.last_hidden_state.to(self.model.dtype)

    @torch.inference_mode()
    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Scores of all symbols, or of the candidates."""
        return self.model.scores(hidden, candidates)

    def scores_all(self, candidates: int) -> bool:
        """Whether so many candidates of each prefix are scored among all symbols."""
        return self.model.scores_all(candidates)
