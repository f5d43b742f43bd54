"""A causal language model that continues a text by a docid, over symbols of its own.

The text is read as the model reads any text, and the symbols of a docid follow it; the state of the text's last token
gives the first of them. In a search a text is read once, and what was read is shared by all prefixes that follow it,
see `prompt_tree`; models that cannot be told what each symbol sees have a copy of it for every prefix instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from triever.models.docid_model import DocidModel, SymbolShape, Tokenise
from triever.models.generator import Generator
from triever.models.precision import computing_in
from triever.models.prompt_tree import Growth, PromptTree, selected, shared

ROOM = 64
"""Places behind a text that are kept for its docid, where a backbone knows so many places and no more."""
SMALL = 0.02
"""The spread of new rows of symbols, as language models begin with."""
CLOSE = 1e-3
"""How far, as a share, states may be from each other that should be the same."""
BLOCKED = torch.finfo(torch.bfloat16).min
"""What is added to the scores of places that are not seen: a number in float32 and in bfloat16."""


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
        rows = torch.cat([self._words(ids), self.symbol_rows(symbols)], 1)
        states = self.language_model(inputs_embeds=rows, **_places(mask, rows.shape[1])).last_hidden_state
        first = last_states(states[:, : ids.shape[1]], mask[:, : ids.shape[1]])
        return torch.cat([first[:, None], states[:, ids.shape[1] :]], 1)

    def first_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The states of the last tokens of texts."""
        return last_states(self.continued(ids, mask).last_hidden_state, mask)

    def continued(self, ids: Tensor, mask: Tensor, past: Any = None, *, symbols: bool = False) -> Any:
        """What the language model makes of tokens or symbols (rows, t) behind a past; the mask covers both."""
        rows = self.symbol_rows(ids) if symbols else self._words(ids)
        return self.language_model(
            inputs_embeds=rows, past_key_values=past, use_cache=True, **_places(mask, ids.shape[1])
        )

    @property
    def language_model(self) -> LanguageModel:
        """The backbone, as transformers has it."""
        return cast("LanguageModel", self.reader.module)  # torch types attributes of modules as anything

    def _words(self, ids: Tensor) -> Tensor:
        return self.language_model.get_input_embeddings()(ids)

    def symbol_rows(self, symbols: Tensor) -> Tensor:
        """What symbols are read as."""
        rows = self.symbols(symbols)
        return rows * self.shape.entering if self.shape.entering != 1 else rows

    def grown(self, growth: Growth, symbols: Tensor) -> tuple[PromptTree, Tensor]:
        """A tree of prefixes with one or more symbols (n, t) behind each, and their states (n, t, d_model)."""
        sees = growth.sees()
        # As numbers that are added to scores, which all ways to compute attention take.
        mask = torch.zeros_like(sees, dtype=self.dtype).masked_fill(~sees, BLOCKED)
        out = self.language_model(
            inputs_embeds=self.symbol_rows(growth.laid_out(symbols)),
            attention_mask=mask,
            position_ids=growth.positions(),
            past_key_values=shared(growth.tree.past),
            use_cache=True,
        )
        return growth.grown(out.past_key_values), growth.taken(out.last_hidden_state)

    @property
    def shares_texts(self) -> bool:
        """Whether prefixes can share what was read: whether the backbone heeds a mask and positions that it is given.

        It is tried once: two prefixes of a text have to have the states that they have each by itself.
        """
        if self._shares is None:
            self._shares = _heeds_masks(self)
        return self._shares

    _shares: bool | None = None

    def generator(self, length: int, prefix: str = "") -> Generator:
        """What a search asks."""
        return self.writing(self.tokeniser(length, prefix))

    def writing(self, tokenise: Tokenise, dtype: torch.dtype | None = None) -> Generator:
        """The same for texts that are tokenised in this way; layers may compute in other numbers than the weights'."""
        kind = CausalGenerator if self.shares_texts else CopyingGenerator
        return kind(self, tokenise, dtype)


@torch.inference_mode()
def _heeds_masks(model: CausalDecoder) -> bool:
    """Whether two prefixes that share a text have the states that each has by itself."""
    training, text = model.training, torch.zeros(1, 2, dtype=torch.long, device=model.device)
    symbols = torch.tensor([[0, 1], [1, 0]], device=model.device).clamp(max=model.symbols.weight.shape[0] - 1)
    parents = torch.zeros(2, dtype=torch.long, device=model.device)
    try:
        ways: list[Generator] = [
            way(model, lambda _: (text, torch.ones_like(text))) for way in (CausalGenerator, CopyingGenerator)
        ]
        with torch.autocast(model.device.type, enabled=False):  # rounded numbers would look like a difference
            one, other = (way.extend(way.prefill([""])[0], parents, symbols)[1] for way in ways)
    except (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return False
    finally:
        model.train(training)
    return bool(((one - other).norm() <= CLOSE * other.norm()).all())


def last_states(states: Tensor, mask: Tensor) -> Tensor:
    """(rows, d_model) the state of the last token of each text; texts are filled up on the right."""
    last = (mask.sum(1) - 1).clamp(min=0)
    return states[torch.arange(len(states), device=states.device), last]


def _places(mask: Tensor, count: int) -> dict[str, Tensor]:
    """The mask, and at which place of its text each of the last `count` stands: what is masked takes none."""
    return {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)[:, -count:]}


class _Writing:
    """What generators of causal models have in common."""

    def __init__(self, model: CausalDecoder, tokenise: Tokenise, dtype: torch.dtype | None = None) -> None:
        self.model = model.eval()
        self.tokenise = tokenise
        self.dtype = dtype
        self.width = model.shape.width
        self.device = model.device

    @torch.inference_mode()
    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Scores of all symbols, or of the candidates."""
        return self.model.scores(hidden, candidates)

    def _read(self, prompts: list[str], past: Any = None) -> tuple[Any, Tensor, Tensor]:
        """What the model remembers of texts, their mask, and the state of the last token of each."""
        ids, mask = (tensor.to(self.device) for tensor in self.tokenise(prompts))
        with computing_in(self.device, self.dtype):
            out = self.model.continued(ids, mask, past)
        return out.past_key_values, mask, self._whole(last_states(out.last_hidden_state, mask))

    def _whole(self, states: Tensor) -> Tensor:
        """States in the numbers of the weights, in which symbols are scored."""
        return states.to(self.model.dtype)


class CausalGenerator(_Writing):
    """`CausalGenerator(model, tokenise)`: docids that follow texts; all prefixes of a text share what was read."""

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[PromptTree, Tensor]:
        """Read the texts; the last token of each gives the state after the empty prefix."""
        from transformers.cache_utils import DynamicCache

        # Of its own accord a model may keep only the latest tokens, and prefixes side by side are many.
        past, mask, states = self._read(prompts, DynamicCache())
        return PromptTree.of_texts(past, mask), states

    @torch.inference_mode()
    def extend(self, cache: PromptTree, parents: Tensor, tokens: Tensor) -> tuple[PromptTree, Tensor]:
        """Follow prefixes by symbols."""
        with computing_in(self.device, self.dtype):
            tree, states = self.model.grown(Growth.of(cache.followed(parents), tokens.shape[1]), tokens)
        return tree, self._whole(states)

    def only(self, cache: PromptTree, texts: Tensor) -> PromptTree:
        """What `prefill` remembers of some of the texts that it has read."""
        return cache.followed(texts)


@dataclass(frozen=True)
class CausalCache:
    """What was read and written, a row for each prefix."""

    past: Any  # a cache of transformers
    mask: Tensor  # (prefixes, length) of the text and of what follows it


class CopyingGenerator(_Writing):
    """The same, for models that heed no mask: what was read is copied for every prefix."""

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[CausalCache, Tensor]:
        """Read the texts; the last token of each gives the state after the empty prefix."""
        past, mask, states = self._read(prompts)
        return CausalCache(past, mask), states

    @torch.inference_mode()
    def extend(self, cache: CausalCache, parents: Tensor, tokens: Tensor) -> tuple[CausalCache, Tensor]:
        """Follow prefixes by symbols."""
        mask = torch.cat([cache.mask[parents], torch.ones_like(tokens)], 1)
        with computing_in(self.device, self.dtype):
            out = self.model.continued(tokens, mask, selected(cache.past, parents), symbols=True)
        return CausalCache(out.past_key_values, mask), self._whole(out.last_hidden_state)

    def only(self, cache: CausalCache, texts: Tensor) -> CausalCache:
        """What `prefill` remembers of some of the texts that it has read."""
        return CausalCache(selected(cache.past, texts), cache.mask[texts])


@torch.no_grad()
def from_transformers(model: Any) -> CausalDecoder:
    """A transformers causal model whose own tokens are the docid symbols."""
    words, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    ours = CausalDecoder(CausalShape(len(words), 0, words.shape[1]), BareReader(model.base_model))
    ours.symbols.weight.copy_(words)
    ours.set_rows(head)
    return ours.to(model.device, model.dtype).eval()
