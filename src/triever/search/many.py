"""Searches for many queries in batches of nearly equal length, so that little is padded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from torch import Tensor

from triever.models.generator import Cache, Generator
from triever.models.tokens import by_length
from triever.progress import track

Outcome = TypeVar("Outcome")


ROWS = 64
"""The most prompts that are read together."""


def search_each(
    generator: Generator,
    prompts: Sequence[str],
    find: Callable[[Cache, Tensor], Sequence[Outcome]],
    *,
    rows: int = ROWS,
) -> list[Outcome]:
    """The outcome of `find` for each prompt, in the order of the prompts; it is called with a batch that was read."""
    outcomes: dict[int, Outcome] = {}
    for batch, cache, hidden in read_together(generator, prompts, rows):
        outcomes |= zip(batch.tolist(), find(cache, hidden), strict=True)
    return [outcomes[number] for number in range(len(prompts))]


def read_together(
    generator: Generator, prompts: Sequence[str], rows: int = ROWS
) -> Iterator[tuple[np.ndarray, Cache, Tensor]]:
    """Read prompts in batches: the numbers of those in a batch, and the cache and hidden states of `prefill`."""
    for batch in batches_of(prompts, rows):
        yield batch, *generator.prefill([prompts[number] for number in batch])


def batches_of(prompts: Sequence[str], rows: int = ROWS) -> Iterator[np.ndarray]:
    """The numbers of prompts in batches of nearly equal length, with the progress of a search."""
    # Characters are counted instead of tokens: they only decide which prompts share a batch.
    lengths = [1 + len(prompt) for prompt in prompts]
    batches = by_length(lengths, rows=rows, tokens=rows * max(lengths, default=1))
    yield from track(batches, "searching", len(prompts), unit="questions", size=len)
