"""Texts that were read once, and the prefixes that follow each: what a causal model remembers, shared by all prefixes.

The symbols of all prefixes of a text stand behind it in one row, and a mask says which of them belong to which prefix:
each sees its text and its own symbols. So a text is held once, however many prefixes follow it. Knows nothing about
what symbols mean.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

UNSEEN = 0.5
"""Symbols that no prefix follows any more are dropped where they are so large a share, as dropping them is a copy."""


@dataclass(frozen=True)
class PromptTree:
    """What was read and written: a row for each text, and which places of its row each prefix sees."""

    past: Any  # a cache of transformers, a row for each text
    text: Tensor  # (prefixes,) the row of each one's text
    seen: Tensor  # (prefixes, length) bool

    @classmethod
    def of_texts(cls, past: Any, mask: Tensor) -> PromptTree:
        """Texts that nothing follows yet; the mask is (texts, length)."""
        return cls(past, torch.arange(len(mask), device=mask.device), mask.bool())

    def followed(self, parents: Tensor) -> PromptTree:
        """The tree with these prefixes alone, some of them perhaps several times; texts without any are dropped."""
        texts, text = self.text[parents].unique(return_inverse=True)
        past = self.past if len(texts) == rows_of(self.past) else selected(self.past, texts)
        return PromptTree(past, text, self.seen[parents])._swept()

    def _swept(self) -> PromptTree:
        """Without places that no prefix sees, where these are many."""
        texts, length = rows_of(self.past), self.seen.shape[1]
        in_use = torch.zeros(texts, length, dtype=torch.long, device=self.seen.device)
        in_use = in_use.index_add_(0, self.text, self.seen.long()) > 0
        count = int(in_use.sum(1).max()) if len(in_use) else length
        if count >= (1 - UNSEEN) * length:
            return self
        kept = in_use.int().argsort(dim=1, descending=True, stable=True)[:, :count]
        past = _changed(self.past, lambda states: states.gather(2, _columns(kept, states)))
        return PromptTree(past, self.text, self.seen.gather(1, kept[self.text]))


@dataclass(frozen=True)
class Growth:
    """New symbols of prefixes (n, t), laid out as (texts, places): the prefixes of a text stand side by side."""

    tree: PromptTree
    columns: Tensor  # (n, t) the place of each symbol in the row of its text
    own: Tensor  # (n, t, places) the new places that each symbol sees: those of its prefix, up to itself
    texts: int
    places: int

    @classmethod
    def of(cls, tree: PromptTree, count: int) -> Growth:
        """Room for `count` symbols behind each prefix of a tree."""
        device, texts = tree.text.device, rows_of(tree.past)
        sizes = tree.text.bincount(minlength=texts)
        order = tree.text.argsort(stable=True)
        slot = torch.empty_like(order)
        slot[order] = torch.arange(len(order), device=device) - (sizes.cumsum(0) - sizes)[tree.text[order]]
        columns = slot[:, None] * count + torch.arange(count, device=device)
        places = int(sizes.max()) * count
        until = torch.ones(count, count, dtype=torch.bool, device=device).tril()
        own = torch.zeros(len(order), count, places, dtype=torch.bool, device=device)
        own.scatter_(2, columns[:, None].expand(-1, count, -1), until.expand(len(order), -1, -1))
        return cls(tree, columns, own, texts, places)

    def laid_out(self, values: Tensor) -> Tensor:
        """Values (n, t) at their places, (texts, places); zero where there is no prefix."""
        grid = values.new_zeros(self.texts, self.places)
        grid[self.tree.text[:, None], self.columns] = values
        return grid

    def taken(self, states: Tensor) -> Tensor:
        """(n, t, d) of states at their places (texts, places, d)."""
        return states[self.tree.text[:, None], self.columns]

    def positions(self) -> Tensor:
        """(texts, places) how many tokens and symbols stand before each symbol."""
        depth = torch.arange(self.columns.shape[1], device=self.columns.device)
        return self.laid_out(self.tree.seen.sum(1, keepdim=True) + depth)

    def sees(self) -> Tensor:
        """(texts, 1, places, length + places) what each symbol sees; a place without a prefix sees itself."""
        length = self.tree.seen.shape[1]
        sees = self.tree.seen.new_zeros(self.texts, self.places, length + self.places)
        sees[:, :, length:] = torch.eye(self.places, dtype=torch.bool, device=sees.device)
        before = self.tree.seen[:, None].expand(-1, self.columns.shape[1], -1)
        sees[self.tree.text[:, None], self.columns] = torch.cat([before, self.own], 2)
        return sees[:, None]

    def grown(self, past: Any) -> PromptTree:
        """The tree with the new symbols, as the model remembers them now."""
        return PromptTree(past, self.tree.text, torch.cat([self.tree.seen, self.own[:, -1]], 1))


def rows_of(past: Any) -> int:
    """How many rows a cache of transformers has."""
    return len(past.layers[0].keys)


def shared(past: Any) -> Any:
    """A transformers cache that may grow while an old one, whose tensors it holds, stays as it is."""
    return _changed(past, lambda states: states)


def selected(past: Any, rows: Tensor) -> Any:
    """A new transformers cache with some rows of an old one, which stays as it is."""
    from transformers.cache_utils import EncoderDecoderCache

    if isinstance(past, EncoderDecoderCache):
        self_attention, cross = (
            selected(part, rows) for part in (past.self_attention_cache, past.cross_attention_cache)
        )
        return EncoderDecoderCache(self_attention, cross)
    return _changed(past, lambda states: states[rows])


def _changed(past: Any, change: Any) -> Any:
    """A cache whose layers have other tensors; a layer that grows gets new ones, and so the old cache keeps its own."""
    made = copy.copy(past)
    made.layers = [copy.copy(layer) for layer in past.layers]
    for layer in made.layers:
        layer.keys, layer.values = change(layer.keys), change(layer.values)
    return made


def _columns(kept: Tensor, states: Tensor) -> Tensor:
    """Places (texts, count) as an index into states (texts, heads, length, d)."""
    return kept[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3])
