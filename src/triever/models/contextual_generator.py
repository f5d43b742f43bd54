"""A generator over the texts of tokens, where the model underneath writes ids of which a token has several.

A prefix of tokens stands for all paths of ids that spell it; what comes next depends on which. The likeliest few
paths of each prefix are followed, and the probability of a token is the sum over them and over its ids. What the
other paths would have had is known and counted as lost, so that a probability over all symbols is never above the true
one; with enough paths it is the true one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from triever.docids.contextual_vocabulary import Vocabulary
from triever.models.generator import Generator

NEGLIGIBLE = 1e-4
"""A path with less than this share of its prefix is dropped, and counted as lost: it costs as much to follow as
the first."""


@dataclass(frozen=True)
class PathCache:
    """What the model underneath remembers, its rows being the paths of all prefixes, and the paths of each prefix."""

    inner: Any
    paths: Tensor  # (prefixes, paths, d + 2) see `ContextualGenerator`
    rows: Tensor  # (prefixes, paths) where the model underneath has each; those without a share are not there


class ContextualGenerator:
    """`ContextualGenerator(generator of ids, vocabulary, paths=5)`; its symbols are those of the vocabulary.

    Its hidden states are (..., paths, d + 2): for each path the state of the model underneath, and behind it the log
    of the path's share of its prefix, less the log of what all ids have together there; and that of the share that is
    lost, on paths of the prefix that are not followed. The last symbol, behind those of the vocabulary, has what is
    lost, and no docid has it.
    """

    def __init__(
        self, inner: Generator, vocabulary: Vocabulary, *, paths: int = 5, negligible: float = NEGLIGIBLE
    ) -> None:
        self.inner = inner
        self.device = inner.device
        self.width = len(vocabulary.count) + 1
        self.paths = paths
        self._least = math.log(negligible) if negligible else -math.inf
        # (symbols + 1, most); what is lost has no id.
        known = torch.from_numpy(vocabulary.table).to(self.device)
        self._ids = torch.cat([known, torch.full_like(known[:1], -1)])
        self._symbol = torch.from_numpy(vocabulary.symbol).to(self.device)

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[PathCache, Tensor]:
        """Read the texts; the empty prefix has one path."""
        inner, hidden = self.inner.prefill(prompts)
        cache = self._packed(inner, hidden, torch.zeros(len(hidden), 1, device=self.device, dtype=torch.float64))
        return cache, cache.paths

    @torch.inference_mode()
    def extend(self, cache: PathCache, parents: Tensor, tokens: Tensor) -> tuple[PathCache, Tensor]:
        """Follow prefixes by symbols, each of which has an id."""
        states = []
        for token in tokens.unbind(1):
            cache = self._followed(cache, parents, token)
            parents = torch.arange(len(parents), device=self.device)
            states.append(cache.paths)
        return cache, _side_by_side(states)

    def _followed(self, cache: PathCache, parents: Tensor, token: Tensor) -> PathCache:
        """The likeliest paths of each prefix that is followed by one symbol."""
        before = cache.paths[parents]  # (n, paths, d + 2)
        ids = self._ids[token]  # (n, most)
        mass = self._masses(before, ids).double()  # (n, paths, most)
        found, at = mass.flatten(1).topk(min(self.paths, mass[0].numel()), dim=1)
        share = found - mass.flatten(1).logsumexp(1, keepdim=True)
        share[:, 1:].masked_fill_(share[:, 1:] < self._least, -torch.inf)
        followed = share > -torch.inf
        count = max(1, int(followed.sum(1).max()))
        share, at, followed = share[:, :count], at[:, :count], followed[:, :count]
        rows = cache.rows[parents].gather(1, at // ids.shape[1])[followed]
        chosen = ids.gather(1, at % ids.shape[1])[followed]
        inner, hidden = self.inner.extend(cache.inner, rows, chosen[:, None])
        return self._packed(inner, hidden[:, -1], share)

    def _packed(self, inner: Any, hidden: Tensor, share: Tensor) -> PathCache:
        """What is remembered of the logs of shares (n, paths), and of the states (rows, d) of paths that have one."""
        there = share > -torch.inf
        total = torch.zeros_like(share)
        total[there] = self.inner.logits(hidden).float().logsumexp(-1).to(total)
        lost = (1 - share.exp().sum(1, keepdim=True)).clamp(min=0).log().expand_as(share)
        paths = hidden.new_zeros(*share.shape, hidden.shape[1] + 2, dtype=torch.float32)
        paths[there] = functional.pad(hidden.float(), (0, 2))
        paths[..., -2], paths[..., -1] = share - total, lost
        return PathCache(inner, paths, (there.flatten().cumsum(0) - 1).view_as(there))

    def _masses(self, paths: Tensor, ids: Tensor) -> Tensor:
        """(n, paths, C) the logs of what each path gives to each of some ids (n, C), -inf for -1."""
        hidden, share = paths[..., :-2], paths[..., -2:-1]
        logits = self.inner.logits(hidden, ids.clamp(min=0)).float()  # for all paths of a prefix at once
        return (logits + share).masked_fill(ids[:, None] < 0, -torch.inf)

    @torch.inference_mode()
    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Log-probabilities of all symbols, of which the last is what is lost; or those of candidates (n, C)."""
        if candidates is None:
            return self._of_all(hidden)
        ids = self._ids[candidates]  # (n, C, most)
        mass = self._masses(hidden, ids.flatten(1)).unflatten(2, ids.shape[1:])  # (n, paths, C, most)
        return mass.logsumexp((1, 3))

    def _of_all(self, hidden: Tensor) -> Tensor:
        """(..., width)."""
        states, share = hidden[..., :-2], hidden[..., -2:-1]
        mass = (self.inner.logits(states).float() + share).logsumexp(-2)  # (..., ids)
        found = torch.zeros(*mass.shape[:-1], self.width, dtype=torch.float64, device=mass.device)
        # Doubles, as the smallest probability that is not nought is far too large among floats.
        found = found.scatter_add(-1, self._symbol.expand_as(mass), mass.double().exp())
        found[..., -1] = hidden[..., 0, -1].double().exp()
        return found.log().float()

    def lost(self, hidden: Tensor) -> Tensor:
        """(n,) the log of the share of each prefix that is on paths that are not followed."""
        return hidden[:, 0, -1]


def _side_by_side(states: list[Tensor]) -> Tensor:
    """(n, steps, paths, d + 2) of steps with various numbers of paths; those that one lacks have no share."""
    most = max(one.shape[1] for one in states)
    padded = []
    for one in states:
        more = one.new_zeros(len(one), most - one.shape[1], one.shape[2])
        more[..., -2] = -torch.inf
        padded.append(torch.cat([one, more], 1))
    return torch.stack(padded, 1)
