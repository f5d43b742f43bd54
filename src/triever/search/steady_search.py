"""From the tokens of queries to documents in one go: read, search, look up, and one copy to the host.

Batches are filled up to few sizes, so that few shapes are recorded. See `steady_beam` for what is fixed in them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from triever.docids.walk import Walk
from triever.models.generator import Cache, Generator, Hidden
from triever.search.beam import BeamOptions, Frontier
from triever.search.hits import documents
from triever.search.many import batches_of, power_of_two
from triever.search.recorded import Recorded
from triever.search.steady_beam import Plan, has_room, joined, measured_beam, steady_beam, symbols_of

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
class Key:
    """What a search depends on, besides the queries."""

    queries: int
    length: int
    options: BeamOptions
    keep: int
    asked: Hashable = None  # for what else, where a kind of search depends on more


@dataclass(frozen=True)
class Begun:
    """Queries that were read."""

    cache: Cache
    hidden: Hidden
    vectors: Tensor | None = None  # (queries, d), where a search needs them


def can_be_steady(options: BeamOptions) -> bool:
    """Whether a search can be made in fixed shapes."""
    return not options.backoff and options.normalisation != "documents"


class SteadySearch:
    """`SteadySearch(generator, walk).search(prompts, options, k)`: one for each model and trie, to be used again."""

    depth: int | None = None  # the length of the prefixes that it looks for; None: whole docids

    def __init__(self, generator: Steady, walk: Walk, *, record: bool = True) -> None:
        self.generator, self.walk = generator, walk
        self.recorded, self.record = Recorded(), record
        self.again = 0  # searches that had too little room and were made again
        self.plans: dict[Key, Plan] = {}  # how much room there is, by the size of a batch and what is asked for

    @torch.inference_mode()
    def search(self, prompts: Sequence[str], options: BeamOptions, k: int, *, ties: bool = False) -> list[Found]:
        """For each prompt the k best documents and their log-probabilities, as `beam` and `documents` give them."""
        found: dict[int, Found] = {}
        for batch in batches_of(prompts, self.together(options)):
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
        key = Key(len(ids), ids.shape[1], options, max(options.width, k))
        frontier = Frontier(*self.searched(key, ids, mask))
        return documents(self.walk, frontier.first(queries), k, ties=ties)

    def together(self, options: BeamOptions) -> int:
        """How many queries are searched together, so that the children and scores of all their prefixes have room."""
        walk, width = self.walk, options.width
        children = max([walk.slots(0), *(width * walk.slots(length) for length in range(1, walk.longest))])
        scores = self.generator.scores_each * (width if walk.longest > 1 else 1)
        return power_of_two(max(1, min(ROWS, CHILDREN // children, SCORES // scores)))

    def searched(self, key: Key, ids: Tensor, mask: Tensor) -> list[Tensor]:
        """What `results` makes of the tokens of queries, on the host."""
        with self.recorded.lock:  # buffers are shared
            if not self.generator.is_current():
                self.generator, self.recorded, self.plans = self.generator.renewed(), Recorded(), {}
            return self._searched(key, ids.to(self.walk.device), mask.to(self.walk.device))

    def begun(self, ids: Tensor, mask: Tensor, rows: int = 0) -> Begun:
        """What is read of tokens, with room for so many symbols."""
        return Begun(*self.generator.read(ids, mask, rows))

    def results(self, key: Key, begun: Begun, frontier: Frontier) -> tuple[Tensor, ...]:
        """What is made of a beam on the device, and copied to the host."""
        columns = frontier.state, frontier.logprob, frontier.length, frontier.rank
        return columns if frontier.document is None else (*columns, frontier.document)

    def _searched(self, key: Key, ids: Tensor, mask: Tensor) -> list[Tensor]:
        plan = self.plans.get(key)
        if plan is not None:
            needs, *results = self._planned(key, plan, ids, mask)
            if has_room(plan, needs):
                return results
            self.again += 1
            self.recorded.forget((key, plan))
        begun = self.begun(ids, mask)
        asked = self.walk, key.options, key.keep, self.depth
        outcome, needed = measured_beam(self.generator, begun.cache, begun.hidden, *asked)
        while len(self.plans) >= FEW:
            self.plans.pop(next(iter(self.plans)))
        self.plans[key] = needed if plan is None else joined(plan, needed)
        return on_host(self.results(key, begun, outcome.frontier))

    def _planned(self, key: Key, plan: Plan, ids: Tensor, mask: Tensor) -> list[Tensor]:
        """The same in fixed shapes, and first how much room was needed."""

        def planned(ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
            begun = self.begun(ids, mask, len(ids) * symbols_of(plan))
            asked = self.walk, key.options, plan, key.keep, self.depth
            outcome = steady_beam(self.generator, begun.cache, begun.hidden, *asked)
            return outcome.needs, *self.results(key, begun, outcome.frontier)

        return on_host(self.recorded((key, plan), planned, (ids, mask)) if self.record else planned(ids, mask))


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
