"""Many queries: searched in batches of nearly equal length, so that none waits for the padding of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from triever.models.generator import Cache, Generator
from triever.models.tokens import by_length
from triever.progress import track

Found = TypeVar("Found")


def search_each(
    generator: Generator,
    prompts: Sequence[str],
    find: Callable[[Cache, Tensor], Sequence[Found]],
    *,
    rows: int = 64,
) -> list[Found]:
    """What `find` makes of prompts that were read together, one for each, in the order of the prompts."""
    found: dict[int, Found] = {}
    # Characters stand for tokens: it is only about who is read together.
    lengths = [1 + len(prompt) for prompt in prompts]
    batches = by_length(lengths, rows=rows, tokens=rows * max(lengths, default=1))
    for batch in track(batches, "searching", len(batches)):
        cache, hidden = generator.prefill([prompts[place] for place in batch])
        found |= zip(batch.tolist(), find(cache, hidden), strict=True)
    return [found[place] for place in range(len(prompts))]
