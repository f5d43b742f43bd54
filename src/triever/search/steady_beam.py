"""The same beam search in fixed shapes, so that a GPU can record it once and replay it.

Nothing here depends on what tensors hold: how many prefixes have room at each length is a `Plan`, made before. A search
counts what it would have needed, and the counts come back with the hits: where the room was too small, the search is
made again by `measured_beam`, which looks at the counts as it goes and so makes the plan for the next one. `beam` is
the slow and obvious version; the hits are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from triever.docids.walk import Children, Walk
from triever.models.generator import AllScoring, Cache, Generator, Hidden
from triever.models.kernels import ENDED, LONE, Nodes, child_totals, log_sum_exp
from triever.search.beam import BeamOptions, Frontier
from triever.search.scores import child_scores

SCORES = 2**27
"""The most scores of symbols that are there at once for the rest of docids."""
SIZES = (0, 1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of prefixes or symbols that room is made for: few, so that few shapes are recorded."""


@dataclass(frozen=True)
class Room:
    """The room behind one length, for each query."""

    beams: int  # prefixes that go on
    lone: int = 0  # prefixes with one docid left, which are finished in one pass
    tail: int = 0  # symbols of these

    def holds(self, other: Room) -> bool:
        """Whether there is at least as much room here."""
        return self.beams >= other.beams and self.lone >= other.lone and self.tail >= other.tail

    def joined(self, other: Room) -> Room:
        """The larger of both, in each respect."""
        return Room(max(self.beams, other.beams), max(self.lone, other.lone), max(self.tail, other.tail))


Plan: TypeAlias = tuple[Room, ...]
"""The room behind each length, until nothing goes on."""
RoomFor: TypeAlias = Callable[[int, Tensor], Room]
"""From a length and what it needs (queries, 3) to the room that there is."""
NOTHING = Room(0)


@dataclass(frozen=True)
class Outcome:
    """What was found, and how much room it would have taken."""

    frontier: Frontier
    needs: Tensor  # (lengths, 3) int32: prefixes that go on, lone ones, symbols of these

    def fits(self, plan: Plan) -> bool:
        """Whether the plan had room for everything; this waits for the device."""
        return all(room.holds(Room(*need)) for room, need in zip(plan, self.needs.tolist(), strict=True))


def steady_beam(
    generator: Generator, cache: Cache, hidden: Hidden, walk: Walk, options: BeamOptions, plan: Plan, keep: int = 0
) -> Outcome:
    """The best docids for each query, as far as the plan has room; the host waits for nothing."""
    search = _SteadySearch(generator, walk, options, max(options.width, keep), len(hidden))
    return search.run(cache, hidden, lambda length, _needs: plan[length] if length < len(plan) else NOTHING)


def measured_beam(
    generator: Generator, cache: Cache, hidden: Hidden, walk: Walk, options: BeamOptions, keep: int = 0
) -> tuple[Outcome, Plan]:
    """The same with all the room that is needed, and a plan with a little more."""
    plan: list[Room] = []
    search = _SteadySearch(generator, walk, options, max(options.width, keep), len(hidden))

    def measured(_length: int, needs: Tensor) -> Room:
        beams, lone, tail = needs.amax(0).tolist()
        plan.append(Room(_size(beams, options.width), _size(lone, options.width), _size(tail, 2 * tail)))
        return Room(beams, lone, tail)

    return search.run(cache, hidden, measured), tuple(plan)


def joined(plan: Plan, other: Plan) -> Plan:
    """A plan with room for what both have room for."""
    longer, shorter = (plan, other) if len(plan) >= len(other) else (other, plan)
    both = (one.joined(two) for one, two in zip(longer, shorter, strict=False))
    return (*both, *longer[len(shorter) :])


def symbols_of(plan: Plan) -> int:
    """The most symbols of one query that a generator remembers at once; those of tails are soon forgotten."""
    kept, most = 1, 1
    for room in plan:
        most = max(most, kept + room.lone * room.tail)
        kept += room.beams
    return max(most, kept)


def _size(needed: int, most: int) -> int:
    """Room for some more than is needed, but for no more than there can be."""
    if not needed:
        return 0
    wanted = needed + needed // 4
    return min(most, next((size for size in SIZES if size >= wanted), most))


class _SteadySearch:
    """One search: the pool of finished docids, and the loop that fills it."""

    def __init__(self, generator: Generator, walk: Walk, options: BeamOptions, keep: int, queries: int) -> None:
        self.generator, self.walk, self.options, self.keep, self.queries = generator, walk, options, keep, queries
        device, parts = walk.device, len(walk.parts)
        self.state = torch.full((queries, keep, parts), -1, dtype=torch.long, device=device)
        self.logprob = torch.full((queries, keep), -torch.inf, device=device)
        self.length = torch.zeros((queries, keep), dtype=torch.long, device=device)
        self.rank = self.logprob
        self.needs: list[Tensor] = []

    def run(self, cache: Cache, hidden: Hidden, room_for: RoomFor) -> Outcome:
        """Extend the empty prefix to the ends of docids."""
        state = self.walk.root(self.queries)[:, None]
        logprob = torch.zeros(self.queries, 1, device=self.walk.device)
        for length in range(self.walk.longest):
            state, logprob, token, parent = self._chosen(state, logprob, hidden, length)
            last = length + 1 == self.walk.longest
            room, lone, goes_on = self._room(state, logprob, length, room_for, last=last)
            if room.lone:
                self._finish(state, logprob, token, parent, cache, lone, room, length + 1)
            if not room.beams:
                break
            hopeful = goes_on & (logprob > self._reachable()[:, None])
            logprob, at = logprob.masked_fill(~hopeful, -torch.inf).topk(room.beams, dim=1)
            state, token, parent = _taken(state, at), token.gather(1, at), parent.gather(1, at)
            cache, states = self.generator.extend(cache, parent.reshape(-1), token.reshape(-1, 1))
            hidden = states[:, -1]
        number = self.walk.only_documents(self.state) if self.walk.one_to_one else None
        frontier = Frontier(self.state, self.logprob, self.length, self.rank, number)
        none = torch.zeros(0, 3, dtype=torch.long, device=self.walk.device)
        return Outcome(frontier, (torch.stack(self.needs) if self.needs else none).to(torch.int32))

    def _chosen(
        self, state: Tensor, logprob: Tensor, hidden: Hidden, length: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The best children of all beams: states, log-probabilities, symbols, and the row of the parent of each."""
        if self._nodes is not None and self._scores_all(length):
            return self._chosen_nodes(self._nodes, state, logprob, hidden, length)
        queries, width, parts = state.shape
        flat = state.reshape(-1, parts)
        children = self.walk.children(flat, length)
        options = self.options
        scores = child_scores(self.generator, hidden, children, options.normalisation, options.temperature, above=flat)
        total = (logprob.reshape(-1, 1) + scores).reshape(queries, -1)
        below = children.state.reshape(queries, -1, parts)
        over = self._is_final(children).view_as(total)
        self._add(below, total.masked_fill(~over, -torch.inf), length + 1)
        best, at = total.masked_fill(over, -torch.inf).topk(min(options.width, total.shape[1]), dim=1)
        token = children.token.reshape(queries, -1).gather(1, at)
        first = torch.arange(queries, device=total.device)[:, None] * width
        return _taken(below, at), best, token, first + at // (total.shape[1] // width)

    def _chosen_nodes(
        self, nodes: Nodes, state: Tensor, logprob: Tensor, hidden: Hidden, length: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same where every prefix is a node: states and symbols are looked up for those that are chosen alone."""
        (queries, width, _), options, slots = state.shape, self.options, self.walk.slots(length)
        node = state.reshape(-1)
        logits = self.generator.logits(hidden)
        over_all = options.normalisation == "vocabulary"
        sums = log_sum_exp(logits, options.temperature) if over_all else None
        final, goes_on = child_totals(
            nodes,
            node,
            logprob.reshape(-1),
            logits,
            sums,
            slots,
            options.temperature,
            ENDED if over_all else LONE,
        )
        begin = nodes.child[node].long().view(queries, width)

        def looked_up(at: Tensor) -> tuple[Tensor, Tensor]:
            beams = at // slots
            return begin.gather(1, beams) + at % slots, beams

        best, at = final.view(queries, -1).topk(min(self.keep, width * slots), dim=1)
        self._add(looked_up(at)[0][..., None], best, length + 1)
        best, at = goes_on.view(queries, -1).topk(min(options.width, width * slots), dim=1)
        child, beams = looked_up(at)
        # Places without a child lead behind the last node, perhaps; they have no probability, and no say.
        child = child.clamp(max=len(nodes.token) - 1)
        first = torch.arange(queries, device=node.device)[:, None] * width
        return child[..., None], best, nodes.token[child].long(), first + beams

    def _scores_all(self, length: int) -> bool:
        """Whether children are scored among all symbols, and not each by itself."""
        over_all = self.options.normalisation == "vocabulary"
        generator = self.generator
        return isinstance(generator, AllScoring) and (over_all or generator.scores_all(self.walk.slots(length)))

    @property
    def _nodes(self) -> Nodes | None:
        """The nodes of the trie, if all prefixes of the search are nodes."""
        branching = self.walk.branching if self.options.finish else None
        return None if branching is None else Nodes(*branching)

    def _is_final(self, children: Children) -> Tensor:
        free = self.options.finish and self.options.normalisation != "vocabulary"
        return children.ended | children.alone if free else children.ended

    def _room(
        self, state: Tensor, logprob: Tensor, length: int, room_for: RoomFor, *, last: bool
    ) -> tuple[Room, Tensor, Tensor]:
        """How much room there is behind a length, and which prefixes are lone, and which go on."""
        hopeful = (logprob > self._reachable()[:, None]) & logprob.isfinite()
        lone = torch.zeros_like(hopeful)
        longest = torch.zeros_like(hopeful, dtype=torch.long)
        if self.options.finish and self.options.normalisation == "vocabulary" and not last:
            lone = hopeful & self.walk.alone(state)
            longest = torch.where(lone, self.walk.tail_lengths(state), 0)
        goes_on = hopeful & ~lone
        if last:  # where every docid has ended
            return NOTHING, lone, goes_on
        needs = torch.stack([goes_on.sum(1), lone.sum(1), longest.amax(1)], 1)
        self.needs.append(needs.amax(0))
        room, there = room_for(length, needs), logprob.shape[1]
        return Room(min(room.beams, there), min(room.lone, there), room.tail), lone, goes_on

    def _finish(
        self,
        state: Tensor,
        logprob: Tensor,
        token: Tensor,
        parent: Tensor,
        cache: Cache,
        lone: Tensor,
        room: Room,
        length: int,
    ) -> None:
        """Score the rest of prefixes with one docid left, in one pass, and add them to the pool."""
        best, at = logprob.masked_fill(~lone, -torch.inf).topk(room.lone, dim=1)
        state = _taken(state, at)
        symbols, count = self.walk.tails(state.reshape(-1, state.shape[2]), room.tail)
        known = torch.cat([token.gather(1, at).reshape(-1, 1), symbols[:, :-1]], 1)
        _, hidden = self.generator.extend(cache, parent.gather(1, at).reshape(-1), known)
        counts = torch.arange(room.tail, device=symbols.device) < count[:, None]
        each = self._symbol_logprobs(hidden.flatten(0, 1), symbols.reshape(-1)).view_as(counts)
        scored = torch.where(counts, each, 0.0).sum(1).view_as(best)
        self._add(state, best + scored, length + count.view_as(best))

    def _symbol_logprobs(self, hidden: Tensor, symbols: Tensor) -> Tensor:
        """(n,) the log-probability of each symbol after a state, some at a time: a vocabulary may be wide."""
        temperature = self.options.temperature
        pieces = []
        for states, wanted in zip(*(column.split(self._at_once) for column in (hidden, symbols)), strict=True):
            logits = self.generator.logits(states)
            own = logits.gather(1, wanted[:, None])[:, 0].float() / temperature
            pieces.append(own - log_sum_exp(logits, temperature))
        return torch.cat(pieces)

    @property
    def _at_once(self) -> int:
        return max(1, SCORES // self.generator.width)

    def _add(self, state: Tensor, logprob: Tensor, length: int | Tensor) -> None:
        """Add prefixes to the pool, which keeps the best."""
        lengths = torch.full_like(self.length[:, :1], length) if isinstance(length, int) else length
        lengths = lengths.expand_as(logprob)
        rank = self._rank(logprob, lengths)
        # Of many only the best can enter: so states are not copied to be sorted.
        if rank.shape[1] > self.keep:
            rank, at = rank.topk(self.keep, dim=1)
            state, logprob, lengths = _taken(state, at), logprob.gather(1, at), lengths.gather(1, at)
        state = torch.cat([self.state, state], 1)
        logprob, lengths = torch.cat([self.logprob, logprob], 1), torch.cat([self.length, lengths], 1)
        self.rank, at = torch.cat([self.rank, rank], 1).topk(self.keep, dim=1)
        self.state, self.logprob, self.length = _taken(state, at), logprob.gather(1, at), lengths.gather(1, at)

    def _rank(self, logprob: Tensor, length: Tensor) -> Tensor:
        penalty = self.options.length_penalty
        return logprob / length.clamp(min=1).float() ** penalty if penalty else logprob

    def _reachable(self) -> Tensor:
        """(queries,) the log-probability that a prefix must exceed, so that something below it can enter the pool."""
        last = self.logprob[:, -1]
        return torch.full_like(last, -torch.inf) if self.options.length_penalty else last


def _taken(state: Tensor, at: Tensor) -> Tensor:
    return state.gather(1, at[..., None].expand(-1, -1, state.shape[2]))
