"""A causal language model that continues a text by a docid, over symbols of its own.

The text is read as the model reads any text, and the symbols of a docid follow it; the state of the text's last token
gives the first of them. In a search a text is read once, but what was read is copied for every prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from triever.models.docid_model import DocidModel, SymbolShape, Tokenise

ROOM = 64
"""Places behind a text that are kept for its docid, where a backbone knows so many places and no more."""
SMALL = 0.02
"""The spread of new rows of symbols, as language models begin with."""


@dataclass(frozen=True)
class CausalShape(SymbolShape):
    """The symbols of a causal model; all its other sizes are those of its backbone. Nothing is read as a start."""


class LanguageModel(Protocol):
    """A causal model of transformers without its head."""

    def __call__(self, *, inputs_embeds: Tensor, **others: Any) -> Any:
        """The states of what comes in as vectors (rows, t, d_model), and a cache."""
        ...

    def get_input_embeddings(self) -> nn.Module:
        """What tokens are read as."""
        ...


class BareReader(nn.Module):
    """A transformers model without a head, for those who bring numbers of tokens instead of texts."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


class CausalDecoder(DocidModel[CausalShape]):
    """A causal language model that writes docids; `reader.module` is the language model without its head."""

    def add_layers(self) -> None:
        """Nothing is added: the language model reads and writes."""

    def reset(self) -> None:
        """Small random rows for all symbols, as those of tokens are at first."""
        for name, parameter in self.named_parameters():
            if not name.startswith("reader.") and parameter.dim() > 1:
                nn.init.normal_(parameter, std=SMALL)

    def at_most(self, wanted: int) -> int:
        """How many tokens of a text can be read, so that a docid has room behind them."""
        longest = self.encoder.longest
        return min(wanted, max(1, longest - ROOM)) if longest else wanted

    def states_before(self, ids: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
        """The states from which each symbol of the targets is written: of the text's last token, and of symbols."""
        symbols = targets[:, :-1]
        mask = torch.cat([mask, torch.ones_like(symbols)], 1)
        rows = torch.cat([self._words(ids), self._rows(symbols)], 1)
        states = self.language_model(inputs_embeds=rows, **_places(mask, rows.shape[1])).last_hidden_state
        first = last_states(states[:, : ids.shape[1]], mask[:, : ids.shape[1]])
        return torch.cat([first[:, None], states[:, ids.shape[1] :]], 1)

    def first_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The states of the last tokens of texts."""
        return last_states(self.continued(ids, mask).last_hidden_state, mask)

    def continued(self, ids: Tensor, mask: Tensor, past: Any = None, *, symbols: bool = False) -> Any:
        """What the language model makes of tokens or symbols (rows, t) behind a past; the mask covers both."""
        rows = self._rows(ids) if symbols else self._words(ids)
        return self.language_model(
            inputs_embeds=rows, past_key_values=past, use_cache=True, **_places(mask, ids.shape[1])
        )

    @property
    def language_model(self) -> LanguageModel:
        """The backbone, as transformers has it."""
        return cast("LanguageModel", self.reader.module)  # torch types attributes of modules as anything

    def _words(self, ids: Tensor) -> Tensor:
        return self.language_model.get_input_embeddings()(ids)

    def _rows(self, symbols: Tensor) -> Tensor:
        rows = self.symbols(symbols)
        return rows * self.shape.entering if self.shape.entering != 1 else rows

    def generator(self, length: int, prefix: str = "") -> CausalGenerator:
        """What a search asks."""
        return CausalGenerator(self, self.tokeniser(length, prefix))


def last_states(states: Tensor, mask: Tensor) -> Tensor:
    """(rows, d_model) the state of the last token of each text; texts are filled up on the right."""
    last = (mask.sum(1) - 1).clamp(min=0)
    return states[torch.arange(len(states), device=states.device), last]


def _places(mask: Tensor, count: int) -> dict[str, Tensor]:
    """The mask, and at which place of its text each of the last `count` stands: what is masked takes none."""
    return {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)[:, -count:]}


@dataclass(frozen=True)
class CausalCache:
    """What was read and written, a row for each prefix."""

    past: Any  # a cache of transformers
    mask: Tensor  # (prefixes, length) of the text and of what follows it


class CausalGenerator:
    """`CausalGenerator(model, tokenise)`: docids that follow texts."""

    def __init__(self, model: CausalDecoder, tokenise: Tokenise) -> None:
        self.model = model.eval()
        self.tokenise = tokenise
        self.width = model.shape.width
        self.device = model.device

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[CausalCache, Tensor]:
        """Read the texts; the last token of each gives the state after the empty prefix."""
        ids, mask = (tensor.to(self.device) for tensor in self.tokenise(prompts))
        out = self.model.continued(ids, mask)
        return CausalCache(out.past_key_values, mask), last_states(out.last_hidden_state, mask)

    @torch.inference_mode()
    def extend(self, cache: CausalCache, parents: Tensor, tokens: Tensor) -> tuple[CausalCache, Tensor]:
        """Follow prefixes by symbols."""
        mask = torch.cat([cache.mask[parents], torch.ones_like(tokens)], 1)
        out = self.model.continued(tokens, mask, selected(cache.past, parents), symbols=True)
        return CausalCache(out.past_key_values, mask), out.last_hidden_state

    def only(self, cache: CausalCache, texts: Tensor) -> CausalCache:
        """What `prefill` remembers of some of the texts that it has read."""
        return CausalCache(selected(cache.past, texts), cache.mask[texts])

    @torch.inference_mode()
    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Scores of all symbols, or of the candidates."""
        return self.model.scores(hidden, candidates)


def selected(past: Any, rows: Tensor) -> Any:
    """A new transformers cache with some rows of an old one, which stays as it is."""
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    if isinstance(past, EncoderDecoderCache):
        self_attention, cross = (
            selected(part, rows) for part in (past.self_attention_cache, past.cross_attention_cache)
        )
        return EncoderDecoderCache(self_attention, cross)
    chosen = DynamicCache()
    for number, layer in enumerate(past.layers):
        chosen.update(layer.keys[rows], layer.values[rows], number)
    return chosen


@torch.no_grad()
def from_transformers(model: Any) -> CausalDecoder:
    """A transformers causal model whose own tokens are the docid symbols."""
    words, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    ours = CausalDecoder(CausalShape(len(words), 0, words.shape[1]), BareReader(model.base_model))
    ours.symbols.weight.copy_(words)
    ours.set_rows(head)
    return ours.to(model.device, model.dtype).eval()
