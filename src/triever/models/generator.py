"""The shape of every generator: it reads a query once and scores the next symbol after any prefix."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

Cache: TypeAlias = Any
"""What a generator remembers of queries and prefixes; only it looks inside."""
Hidden: TypeAlias = Any
"""The states of prefixes: a tensor (prefixes, d), or what has a length and is indexed as one; only its generator looks
inside."""


@runtime_checkable
class Generator(Protocol):
    """A model that writes docids. Its rows are prefixes; rows of one query lie together, in query order."""

    width: int
    """How many symbols its docid vocabulary has."""
    device: torch.device

    def prefill(self, prompts: list[str]) -> tuple[Cache, Hidden]:
        """Read the queries: one row each with the empty prefix, and its hidden state (queries, d)."""
        ...

    def extend(self, cache: Cache, parents: Tensor, tokens: Tensor) -> tuple[Cache, Hidden]:
        """New rows: prefix parents[i] (n,) followed by tokens[i] (n, t); hidden states (n, t, d)."""
        ...

    def logits(self, hidden: Hidden, candidates: Tensor | None = None) -> Tensor:
        """Scores of all symbols, (..., width); or those of candidates (n, C) after states (n, ..., d): (n, ..., C)."""
        ...


def of_candidates(scores: Tensor, candidates: Tensor) -> Tensor:
    """Those of candidates (n, C) among the scores of all symbols (n, ..., width): (n, ..., C)."""
    rows, count = candidates.shape
    between = [1] * (scores.ndim - 2)
    return scores.gather(-1, candidates.view(rows, *between, count).expand(*scores.shape[:-1], count))


@runtime_checkable
class Partial(Protocol):
    """A generator that follows only a part of what a prefix stands for."""

    def lost(self, hidden: Hidden) -> Tensor:
        """(n,) the log of the share of each prefix that is not followed, of states (n, d)."""
        ...


@runtime_checkable
class Weighing(Protocol):
    """A generator that has a row for every node of a trie, and knows no symbols."""

    def weights(self, hidden: Hidden, state: Tensor) -> Tensor:
        """(n, C) the log of how much lies at and below nodes (n, C, parts), estimated, for states (n, d)."""
        ...


@runtime_checkable
class AllScoring(Protocol):
    """A generator whose states are (n, d), and which mostly scores all symbols at once."""

    def scores_all(self, candidates: int) -> bool:
        """Whether so many candidates of each prefix are scored among all symbols."""
        ...
