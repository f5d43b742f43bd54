"""From the tokens of queries to documents in one go: read, search, look up, and one copy to the host.

Batches are filled up to few sizes, so that few shapes are recorded. See `steady_beam` for what is fixed in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from triever.docids.walk import Walk
from triever.models.generator import Cache, Generator, Hidden
from triever.search.beam import BeamOptions, Frontier
from triever.search.hits import documents
from triever.search.many import batches_of
from triever.search.recorded import Recorded
from triever.search.steady_beam import Outcome, Plan, joined, measured_beam, steady_beam, symbols_of

ROWS = 128
"""The most queries that are searched together."""
CHILDREN = 2**26
"""The most children of all prefixes of one length that are looked at together."""
SCORES = 2**28
"""The most scores of symbols that are there at once."""
LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Lengths that texts are filled up to; longer ones stay as they are."""
FEW = 64
"""Plans that are remembered."""


Found: TypeAlias = list[tuple[int, float]]
"""Documents and their log-probabilities, best first."""


class Steady(Generator, Protocol):
    """A generator that can be recorded: of each text it extends equally many prefixes, and never waits for a GPU."""

    tokenise: Callable[[list[str]], tuple[Tensor, Tensor]]
    longest: int  # the most tokens of a text that it reads; 0 if there is no end
    scores_each: int  # scores that it may compute for one prefix

    def read(self, ids: Tensor, mask: Tensor, rows: int = 0) -> tuple[Cache, Hidden]:
        """The same as `prefill`, of tokens (texts, length) and a mask, with room for so many symbols."""
        ...

    def is_current(self) -> bool:
        """Whether the model's weights are still those that it was made from."""
        ...

    def renewed(self) -> Self:
        """One of the weights as they are now."""
        ...


@dataclass(frozen=True)
class _Key:
    queries: int
    length: int
    options: BeamOptions
    keep: int


def can_be_steady(options: BeamOptions) -> bool:
    """Whether a search can be made in fixed shapes."""
    return not options.backoff and options.normalisation != "documents"


class SteadySearch:
    """`SteadySearch(generator, walk).search(prompts, options, k)`: one for each model and trie, to be used again."""

    def __init__(self, generator: Steady, walk: Walk, *, record: bool = True) -> None:
        self.generator, self.walk = generator, walk
        self.recorded, self.record = Recorded(), record
        self.again = 0  # searches that had too little room and were made again
        self.plans: dict[_Key, Plan] = {}  # how much room there is, by the size of a batch and what is asked for

    @torch.inference_mode()
    def search(self, prompts: Sequence[str], options: BeamOptions, k: int, *, ties: bool = False) -> list[Found]:
        """For each prompt the k best documents and their log-probabilities, as `beam` and `documents` give them."""
        found: dict[int, Found] = {}
        for batch in batches_of(prompts, self._together(options)):
            ids, mask = self.generator.tokenise([prompts[number] for number in batch])
            found |= zip(batch.tolist(), self.search_tokens(ids, mask, options, k, ties=ties), strict=True)
        return [found[number] for number in range(len(prompts))]

    @torch.inference_mode()
    def search_tokens(
        self, ids: Tensor, mask: Tensor, options: BeamOptions, k: int, *, ties: bool = False
    ) -> list[Found]:
        """The same of the tokens (queries, length) of one query at least."""
        queries = len(ids)
        ids, mask = filled_up(ids, mask, self.generator.longest)
        key = _Key(*ids.shape, options, max(options.width, k))
        with self.recorded.lock:  # buffers are shared
            if not self.generator.is_current():
                self.generator, self.recorded, self.plans = self.generator.renewed(), Recorded(), {}
            frontier = self._frontier(key, ids.to(self.walk.device), mask.to(self.walk.device))
        return documents(self.walk, frontier.first(queries), k, ties=ties)

    def _together(self, options: BeamOptions) -> int:
        """How many queries are searched together, so that the children and scores of all their prefixes have room."""
        walk, width = self.walk, options.width
        children = max([walk.slots(0), *(width * walk.slots(length) for length in range(1, walk.longest))])
        scores = self.generator.scores_each * (width if walk.longest > 1 else 1)
        return power_of_two(max(1, min(ROWS, CHILDREN // children, SCORES // scores)))

    def _frontier(self, key: _Key, ids: Tensor, mask: Tensor) -> Frontier:
        """What was found, on the host."""
        plan = self.plans.get(key)
        if plan is not None:
            frontier, fits = self._planned(key, plan, ids, mask)
            if fits:
                return frontier
            self.again += 1
            self.recorded.forget((key, plan))
        cache, hidden = self.generator.read(ids, mask)
        outcome, needed = measured_beam(self.generator, cache, hidden, self.walk, key.options, key.keep)
        while len(self.plans) >= FEW:
            self.plans.pop(next(iter(self.plans)))
        self.plans[key] = needed if plan is None else joined(plan, needed)
        return _on_host(_tensors(outcome)).frontier

    def _planned(self, key: _Key, plan: Plan, ids: Tensor, mask: Tensor) -> tuple[Frontier, bool]:
        """The same in fixed shapes, and whether there was room for everything."""

        def planned(ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
            cache, hidden = self.generator.read(ids, mask, len(ids) * symbols_of(plan))
            outcome = steady_beam(self.generator, cache, hidden, self.walk, key.options, plan, key.keep)
            return _tensors(outcome)

        tensors = self.recorded((key, plan), planned, (ids, mask)) if self.record else planned(ids, mask)
        outcome = _on_host(tensors)
        return outcome.frontier, outcome.fits(plan)


def power_of_two(most: int) -> int:
    """The greatest power of two that is not above a number: batches are filled up to one."""
    return 1 << (most.bit_length() - 1)


def filled_up(ids: Tensor, mask: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Tokens and mask (rows, length) with more rows and places, so that there are few different shapes.

    A new row repeats the first. No text gets more than `longest` places; 0 is no limit.
    """
    rows, length = ids.shape
    wanted = next((size for size in LENGTHS if size >= length), length)
    wanted = max(length, min(wanted, longest or wanted))
    more = (1 << (rows - 1).bit_length()) - rows
    ids, mask = (functional.pad(tensor, (0, wanted - length)) for tensor in (ids, mask))
    ids, mask = (torch.cat([tensor, tensor[:1].expand(more, -1)]) for tensor in (ids, mask))
    return ids, mask


def on_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies on the host: all are begun before the first is waited for."""
    copies = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
    if tensors[0].is_cuda:
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return copies


def _tensors(outcome: Outcome) -> tuple[Tensor, ...]:
    frontier = outcome.frontier
    columns = frontier.state, frontier.logprob, frontier.length, frontier.rank, outcome.needs
    return columns if frontier.document is None else (*columns, frontier.document)


def _on_host(tensors: Sequence[Tensor]) -> Outcome:
    """The outcome of a search on the host."""
    state, logprob, length, rank, needs, *known = on_host(tensors)
    return Outcome(Frontier(state, logprob, length, rank, *known), needs)
