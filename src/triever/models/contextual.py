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

from triever.docids.contextual import Vocabulary
from triever.models.generator import Generator

NEGLIGIBLE = 1e-6
"""A path with less than this share of its prefix is dropped, and counted as lost, where all paths of a step have less
there: to follow it would cost as much as the first."""


@dataclass(frozen=True)
class PathCache:
    """What the model underneath remembers, its rows being the paths of all prefixes, and the paths of each prefix."""

    inner: Any
    paths: Tensor  # (prefixes, paths, d + 2) see `ContextualGenerator`


class ContextualGenerator:
    """`ContextualGenerator(generator of ids, vocabulary, paths=5)`; its symbols are those of the vocabulary.

    Its hidden states are (..., paths, d + 2): for each path the state of the model underneath, and behind it the log
    of the path's share of its prefix, less the log of what all ids have together there; and that of the share that is
    lost, on paths of the prefix that are not followed. The last symbol, behind those of the vocabulary, has what is
    lost, and no docid has it.
    """

    def __init__(self, inner: Generator, vocabulary: Vocabulary, *, paths: int = 5) -> None:
        self.inner = inner
        self.device = inner.device
        self.width = len(vocabulary.count) + 1
        self.paths = paths
        # (symbols + 1, most); what is lost has no id.
        known = torch.from_numpy(vocabulary.table).to(self.device)
        self._ids = torch.cat([known, torch.full_like(known[:1], -1)])
        self._symbol = torch.from_numpy(vocabulary.symbol).to(self.device)

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[PathCache, Tensor]:
        """Read the texts; the empty prefix has one path."""
        inner, hidden = self.inner.prefill(prompts)
        paths = self._packed(hidden[:, None], torch.zeros(len(hidden), 1, device=self.device, dtype=torch.float64))
        return PathCache(inner, paths), paths

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
        count = max(1, int((share > math.log(NEGLIGIBLE)).sum(1).max()))
        share, at = share[:, :count], at[:, :count]
        path, chosen = at // ids.shape[1], ids.gather(1, at % ids.shape[1])
        rows = (parents[:, None] * cache.paths.shape[1] + path).reshape(-1)
        # Where there are fewer paths than elsewhere, any id will do: it has no share.
        inner, hidden = self.inner.extend(cache.inner, rows, chosen.clamp(min=0).reshape(-1, 1))
        return PathCache(inner, self._packed(hidden[:, -1].view(*at.shape, -1), share))

    def _packed(self, hidden: Tensor, share: Tensor) -> Tensor:
        """(n, paths, d + 2) of states (n, paths, d) and logs of shares (n, paths), doubles, as some are small."""
        total = self.inner.logits(hidden.flatten(0, 1)).float().logsumexp(-1).view_as(share)
        lost = (1 - share.exp().sum(1, keepdim=True)).clamp(min=0).log().expand_as(share)
        return torch.cat([hidden.float(), torch.stack([share - total, lost], -1).float()], -1)

    def _masses(self, paths: Tensor, ids: Tensor) -> Tensor:
        """(n, paths, C) the logs of what each path gives to each of some ids (n, C), -inf for -1."""
        hidden, share = paths[..., :-2], paths[..., -2]
        each = ids.clamp(min=0)[:, None].expand(-1, paths.shape[1], -1)
        logits = self.inner.logits(hidden.flatten(0, 1), each.flatten(0, 1)).float().view_as(each)
        return (logits + share[..., None]).masked_fill(ids[:, None] < 0, -torch.inf)

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
