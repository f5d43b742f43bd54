"""Many queries: searched in batches of nearly equal length, so that none waits for the padding of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from triever.models.generator import Cache, Generator
from triever.models.tokens import by_length
from triever.progress import track

Outcome = TypeVar("Outcome")


ROWS = 64
"""Prompts that are read together, at most."""


def search_each(
    generator: Generator,
    prompts: Sequence[str],
    find: Callable[[Cache, Tensor], Sequence[Outcome]],
    *,
    rows: int = ROWS,
) -> list[Outcome]:
    """What `find` makes of prompts that were read together, one for each, in the order of the prompts."""
    found: dict[int, Outcome] = {}
    for batch, cache, hidden in read_together(generator, prompts, rows):
        found |= zip(batch.tolist(), find(cache, hidden), strict=True)
    return [found[place] for place in range(len(prompts))]


def read_together(
    generator: Generator, prompts: Sequence[str], rows: int = ROWS
) -> Iterator[tuple[np.ndarray, Any, Tensor]]:
    """Some prompts after the other: the places of those that were read, and what `prefill` made of them."""
    # Characters stand for tokens: it is only about who is read together.
    lengths = [1 + len(prompt) for prompt in prompts]
    batches = by_length(lengths, rows=rows, tokens=rows * max(lengths, default=1))
    for batch in track(batches, "searching", len(batches)):
        yield batch, *generator.prefill([prompts[place] for place in batch])
