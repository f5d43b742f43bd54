"""Many queries: searched in batches of nearly equal length, so that none waits for the padding of another."""

from __future__ import annotations

from collections.abc import Sequence

from triever.docids.walk import Walk
from triever.models.generator import Generator
from triever.models.tokens import by_length
from triever.progress import track
from triever.search.beam import BeamOptions, beam
from triever.search.hits import documents


def beam_many(
    generator: Generator,
    prompts: Sequence[str],
    walk: Walk,
    k: int,
    options: BeamOptions | None = None,
    *,
    rows: int = 64,
) -> list[list[tuple[int, float]]]:
    """The k best documents of each prompt with their log-probabilities, in the order of the prompts."""
    found: list[list[tuple[int, float]]] = [[] for _ in prompts]
    # Characters stand for tokens: it is only about who is read together.
    lengths = [1 + len(prompt) for prompt in prompts]
    batches = by_length(lengths, rows=rows, tokens=rows * max(lengths, default=1))
    for batch in track(batches, "searching", len(batches)):
        cache, hidden = generator.prefill([prompts[place] for place in batch])
        frontier = beam(generator, cache, hidden, walk, options, keep=k)
        for place, hits in zip(batch.tolist(), documents(walk, frontier, k), strict=True):
            found[place] = hits
    return found
