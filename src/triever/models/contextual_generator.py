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

from triever.docids.contextual_vocabulary import Spellings
from triever.models.generator import Cache, Generator

NEGLIGIBLE = 1e-4
"""A path with less than this share of its prefix is dropped, and counted as lost: it costs as much to follow as
the first."""

LOWEST = torch.finfo(torch.float64).min


@dataclass(frozen=True)
class PathStates:
    """What is known of the paths of prefixes, in whatever shape prefixes come: (...), here.

    A path that is not followed has a share of nought.
    """

    hidden: Tensor  # (..., paths, d) the states of the model underneath
    share: Tensor  # (..., paths) the log of a path's share of its prefix, less that of what all ids have there together
    lost: Tensor  # (...) the log of the share that is on paths which are not followed

    def __len__(self) -> int:
        return len(self.lost)

    def __getitem__(self, prefixes: Any) -> PathStates:
        """Those of some prefixes, chosen as numbers of a tensor are."""
        return PathStates(self.hidden[prefixes], self.share[prefixes], self.lost[prefixes])

    def flatten(self, first: int, last: int) -> PathStates:
        """Those of prefixes in a shape in which these dimensions are one."""
        return PathStates(*(part.flatten(first, last) for part in (self.hidden, self.share, self.lost)))

    def split(self, size: int) -> list[PathStates]:
        """Those of so many prefixes after the other."""
        columns = (part.split(size) for part in (self.hidden, self.share, self.lost))
        return [PathStates(*parts) for parts in zip(*columns, strict=True)]

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.lost.device


@dataclass(frozen=True)
class PathCache:
    """What the model underneath remembers, its rows being the paths of all prefixes, and the paths of each prefix."""

    inner: Cache
    paths: PathStates  # of (prefixes,)
    rows: Tensor  # (prefixes, paths) where the model underneath has each; those without a share are not there


class ContextualGenerator:
    """`ContextualGenerator(generator of ids, spellings, paths=5)`; its symbols are those that are spelled.

    The last symbol, behind those that are spelled, has what is lost, and no docid has it.
    """

    def __init__(
        self, inner: Generator, spellings: Spellings, *, paths: int = 5, negligible: float = NEGLIGIBLE
    ) -> None:
        self.inner = inner
        self.device = inner.device
        self.width = len(spellings.count) + 1
        self.paths = paths
        self._least = math.log(negligible) if negligible else -math.inf
        # (symbols + 1, most_ids); what is lost has no id.
        known = torch.from_numpy(spellings.table).to(self.device)
        self._ids = torch.cat([known, torch.full_like(known[:1], -1)])
        self._symbol = torch.from_numpy(spellings.symbol).to(self.device)

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[PathCache, PathStates]:
        """Read the texts; the empty prefix has one path."""
        inner, hidden = self.inner.prefill(prompts)
        cache = self._packed(inner, hidden, torch.zeros(len(hidden), 1, device=self.device, dtype=torch.float64))
        return cache, cache.paths

    @torch.inference_mode()
    def extend(self, cache: PathCache, parents: Tensor, tokens: Tensor) -> tuple[PathCache, PathStates]:
        """Follow prefixes by symbols, each of which has an id."""
        states = []
        for token in tokens.unbind(1):
            cache = self._followed(cache, parents, token)
            parents = torch.arange(len(parents), device=self.device)
            states.append(cache.paths)
        return cache, _side_by_side(states)

    def _followed(self, cache: PathCache, parents: Tensor, token: Tensor) -> PathCache:
        """The likeliest paths of each prefix that is followed by one symbol."""
        ids = self._ids[token]  # (n, most_ids)
        share, at = self._likeliest(cache.paths[parents], ids)
        followed = share > -torch.inf
        count = max(1, int(followed.sum(1).max()))
        share, at, followed = share[:, :count], at[:, :count], followed[:, :count]
        rows = cache.rows[parents].gather(1, at // ids.shape[1])[followed]
        chosen = ids.gather(1, at % ids.shape[1])[followed]
        inner, hidden = self.inner.extend(cache.inner, rows, chosen[:, None])
        return self._packed(inner, hidden[:, -1], share)

    def _likeliest(self, paths: PathStates, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The logs of the shares (n, paths) of the likeliest paths by one of the ids (n, most_ids) of each prefix.

        And where each is among the paths and ids of its prefix. A path that is not followed has a share of nought.
        """
        mass = self._masses(paths, ids).double().flatten(1)  # (n, paths * most_ids)
        best, at = mass.topk(min(self.paths, mass.shape[1]), dim=1)
        share = best - mass.logsumexp(1, keepdim=True).clamp(min=LOWEST)  # where nothing is, nothing is followed
        share[:, 1:].masked_fill_(share[:, 1:] < self._least, -torch.inf)
        return share, at

    def _packed(self, inner: Cache, hidden: Tensor, share: Tensor) -> PathCache:
        """What is remembered of the logs of shares (n, paths), and of the states (rows, d) of paths that have one."""
        there = share > -torch.inf
        total = torch.zeros_like(share)
        total[there] = self.inner.logits(hidden).float().logsumexp(-1).to(total)
        lost = (1 - share.exp().sum(1)).clamp(min=0).log()
        states = hidden.new_zeros(*share.shape, hidden.shape[1], dtype=torch.float32)
        states[there] = hidden.float()
        paths = PathStates(states, (share - total).float(), lost.float())
        return PathCache(inner, paths, (there.flatten().cumsum(0) - 1).view_as(there))

    def _masses(self, paths: PathStates, ids: Tensor) -> Tensor:
        """(n, paths, C) the logs of what each path gives to each of some ids (n, C), -inf for -1."""
        logits = self.inner.logits(paths.hidden, ids.clamp(min=0)).float()  # for all paths of a prefix at once
        return (logits + paths.share[..., None]).masked_fill(ids[:, None] < 0, -torch.inf)

    @torch.inference_mode()
    def logits(self, hidden: PathStates, candidates: Tensor | None = None) -> Tensor:
        """Log-probabilities of all symbols, of which the last is what is lost; or those of candidates (n, C)."""
        if candidates is None:
            return self._of_all(hidden)
        ids = self._ids[candidates]  # (n, C, most_ids)
        mass = self._masses(hidden, ids.flatten(1)).unflatten(2, ids.shape[1:])  # (n, paths, C, most_ids)
        return mass.logsumexp((1, 3))

    def _of_all(self, paths: PathStates) -> Tensor:
        """(..., width)."""
        mass = (self.inner.logits(paths.hidden).float() + paths.share[..., None]).logsumexp(-2)  # (..., ids)
        sums = torch.zeros(*mass.shape[:-1], self.width, dtype=torch.float64, device=mass.device)
        # Doubles, as the smallest probability that is not nought is far too large among floats.
        sums = sums.scatter_add(-1, self._symbol.expand_as(mass), mass.double().exp())
        sums[..., -1] = paths.lost.double().exp()
        return sums.log().float()

    def lost(self, hidden: PathStates) -> Tensor:
        """(n,) the log of the share of each prefix that is on paths that are not followed."""
        return hidden.lost


def _side_by_side(steps: list[PathStates]) -> PathStates:
    """(n, steps, paths) of steps with various numbers of paths; those that one lacks have no share."""
    width = max(step.share.shape[1] for step in steps)
    hidden = [functional.pad(step.hidden, (0, 0, 0, width - step.share.shape[1])) for step in steps]
    share = [functional.pad(step.share, (0, width - step.share.shape[1]), value=-torch.inf) for step in steps]
    return PathStates(torch.stack(hidden, 1), torch.stack(share, 1), torch.stack([step.lost for step in steps], 1))
