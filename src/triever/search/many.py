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
"""The prompts that are read together on a processor, and on a GPU where more have no room."""
MOST = 256
"""The most prompts that are read together on a GPU, which takes as long for few as for many."""
SCORES = 2**28
"""The most scores of symbols that more than `ROWS` prompts may have at once."""


def rows_on(generator: Generator, prefixes: int) -> int:
    """How many prompts to read together, if each has so many prefixes at once.

    >>> import torch
    >>> from types import SimpleNamespace as Made
    >>> on_gpu = [Made(device=torch.device("cuda"), width=width) for width in (1_000, 50_000, 10**6)]
    >>> [rows_on(generator, 20) for generator in on_gpu], rows_on(Made(device=torch.device("cpu"), width=1_000), 20)
    ([256, 256, 64], 64)
    """
    if generator.device.type == "cpu":
        return ROWS
    return max(ROWS, min(MOST, power_of_two(max(1, SCORES // (prefixes * generator.width)))))


def power_of_two(most: int) -> int:
    """The greatest power of two that is not above a number."""
    return 1 << (most.bit_length() - 1)


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
