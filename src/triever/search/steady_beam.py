"""The same beam search in fixed shapes, so that a GPU can record it once and replay it.

Nothing here depends on what tensors hold: how many prefixes have room at each length is a `Plan`, made before. A search
counts what it would have needed, and the counts come back with the hits: where the room was too small, the search is
made again by `measured_beam`, which looks at the counts as it goes and so makes the plan for the next one. `beam` is
the slow and obvious version; the hits are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from triever.docids.walk import Children, Walk
from triever.models.generator import AllScoring, Cache, Generator, Hidden
from triever.models.kernels import ENDED, LONE, OPEN, Nodes, child_totals, log_sum_exp
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

    frontier: Frontier  # whose lengths are known only where a length penalty asks for them
    needs: Tensor  # (lengths, 3): prefixes that go on, lone ones, symbols of these

    def fits(self, plan: Plan) -> bool:
        """Whether the plan had room for everything; this waits for the device."""
        return has_room(plan, self.needs)


def has_room(plan: Plan, needs: Tensor) -> bool:
    """Whether a plan has room for what a search needs (lengths, 3)."""
    return all(room.holds(Room(*need)) for room, need in zip(plan, needs.tolist(), strict=True))


def steady_beam(
    generator: Generator,
    cache: Cache,
    hidden: Hidden,
    walk: Walk,
    options: BeamOptions,
    plan: Plan,
    keep: int = 0,
    depth: int | None = None,
) -> Outcome:
    """The best docids for each query, as far as the plan has room; the host waits for nothing.

    With `depth`, the best prefixes of that length, and docids that end before it.
    """
    search = _SteadySearch(generator, walk, options, max(options.width, keep), len(hidden), depth)
    return search.run(cache, hidden, lambda length, _needs: plan[length] if length < len(plan) else NOTHING)


def measured_beam(
    generator: Generator,
    cache: Cache,
    hidden: Hidden,
    walk: Walk,
    options: BeamOptions,
    keep: int = 0,
    depth: int | None = None,
) -> tuple[Outcome, Plan]:
    """The same with all the room that is needed, and a plan with a little more."""
    plan: list[Room] = []
    search = _SteadySearch(generator, walk, options, max(options.width, keep), len(hidden), depth)

    def measured(length: int, needs: Tensor) -> Room:
        beams, lone, tail = needs.amax(0).tolist()
        left = walk.longest - length - 1  # the most symbols that a tail has there
        plan.append(Room(_size(beams, options.width), _size(lone, options.width), _size(tail, left)))
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

    def __init__(
        self, generator: Generator, walk: Walk, options: BeamOptions, keep: int, queries: int, depth: int | None
    ) -> None:
        self.generator, self.walk, self.options, self.keep, self.queries = generator, walk, options, keep, queries
        self.depth = depth
        device, parts = walk.device, len(walk.parts)
        self.state = torch.full((queries, keep, parts), -1, dtype=torch.long, device=device)
        self.logprob = torch.full((queries, keep), -torch.inf, device=device)
        self.length = torch.zeros((queries, keep), dtype=torch.long, device=device)
        self.rank = self.logprob
        self.needs: list[Tensor] = []
        self._numbers = torch.arange(queries, device=device)

    def run(self, cache: Cache, hidden: Hidden, room_for: RoomFor) -> Outcome:
        """Extend the empty prefix to the ends of docids, or to a depth."""
        state = self.walk.root(self.queries)[:, None]
        logprob = torch.zeros(self.queries, 1, device=self.walk.device)
        if self.depth == 0:
            self._add(state, logprob, 0)
        for length in range(self.walk.longest if self.depth is None else min(self.depth, self.walk.longest)):
            state, logprob, token, parent = self._chosen(state, logprob, hidden, length)
            if length + 1 == self.depth:
                self._add(state, logprob, length + 1)
                break
            last = length + 1 == self.walk.longest
            if last:  # where every docid has ended
                break
            hopeful = logprob > self._reachable()[:, None]  # in front: the best come first
            lone = self._lone(state, hopeful)
            room = self._room(state, hopeful, lone, length, room_for)
            if lone is not None:
                if room.lone:
                    self._finish(state, logprob, token, parent, cache, lone, room, length + 1)
                hopeful = (logprob > self._reachable()[:, None]) & ~lone
            if not room.beams:
                break
            logprob = logprob.masked_fill(~hopeful, -torch.inf)
            if lone is None:
                logprob, state, token, parent = (each[:, : room.beams] for each in (logprob, state, token, parent))
            else:
                logprob, at = logprob.topk(room.beams, dim=1)
                state, token, parent = _taken(state, at), token.gather(1, at), parent.gather(1, at)
            cache, states = self.generator.extend(cache, parent.reshape(-1), token.reshape(-1, 1))
            hidden = states[:, -1]
        number = self.walk.only_documents(self.state) if self.walk.one_to_one else None
        frontier = Frontier(self.state, self.logprob, self.length, self.rank, number)
        none = torch.zeros(0, 3, dtype=torch.long, device=self.walk.device)
        return Outcome(frontier, torch.stack(self.needs).amax(1) if self.needs else none)

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
        last = length + 1 == self.depth  # where prefixes and docids are kept, and not told apart
        over = torch.zeros_like(total, dtype=torch.bool) if last else self._is_final(children).view_as(total)
        self._add(below, total.masked_fill(~over, -torch.inf), length + 1)
        best, at = total.masked_fill(over, -torch.inf).topk(min(options.width, total.shape[1]), dim=1)
        token = children.token.reshape(queries, -1).gather(1, at)
        first = torch.arange(queries, device=total.device)[:, None] * width
        return _taken(below, at), best, token, first + at // (total.shape[1] // width)

    def _chosen_nodes(
        self, nodes: Nodes, state: Tensor, logprob: Tensor, hidden: Hidden, length: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same where every prefix is a node: states and symbols are looked up for those that are chosen alone."""
        (_, width, _), options, slots, keep = state.shape, self.options, self.walk.slots(length), self.keep
        node = state[..., 0]
        logits = self.generator.logits(hidden)
        over_all = options.normalisation == "vocabulary"
        sums = log_sum_exp(logits, options.temperature) if over_all else None
        kind = ENDED if over_all else LONE
        totals = child_totals(nodes, node, logprob, logits, sums, self.logprob, slots, options.temperature, kind)
        # Of both halves at once: the docids that are kept, and the prefixes that go on.
        best, at = totals.topk(keep, dim=2)
        child = (at - keep).clamp(min=0)
        beams = child // slots
        begin = nodes.child[node].long()
        child = begin.expand(2, -1, -1).gather(2, beams) + child % slots
        old = at[0] < keep
        pooled = self.state[..., 0].gather(1, at[0].clamp(max=keep - 1))
        self.state = torch.where(old, pooled, child[0])[..., None]
        self.logprob = self.rank = best[0]
        # Places without a child lead behind the last node, perhaps; they have no probability, and no say.
        count = min(options.width, width * slots)
        child = child[1, :, :count].clamp(max=len(nodes.token) - 1)
        first = self._numbers[:, None] * width
        return child[..., None], best[1, :, :count], nodes.token[child].long(), first + beams[1, :, :count]

    def _scores_all(self, length: int) -> bool:
        """Whether children are scored among all symbols, and not each by itself."""
        over_all = self.options.normalisation == "vocabulary"
        generator = self.generator
        return isinstance(generator, AllScoring) and (over_all or generator.scores_all(self.walk.slots(length)))

    @cached_property
    def _nodes(self) -> Nodes | None:
        """The nodes of the trie, if all prefixes of the search are nodes, and only probabilities count."""
        apart = self.options.finish and not self.options.length_penalty and self.depth is None
        apart = apart and isinstance(self.generator, AllScoring)  # others go into tails with prefixes that are hopeless
        return Nodes(*self.walk.branching) if apart and self.walk.branching is not None else None

    def _is_final(self, children: Children) -> Tensor:
        free = self.options.finish and self.options.normalisation != "vocabulary"
        return children.ended | children.alone if free else children.ended

    def _lone(self, state: Tensor, hopeful: Tensor) -> Tensor | None:
        """Which prefixes have one docid left that is to be finished in one pass; None if that is not asked for."""
        if not self.options.finish or self.options.normalisation != "vocabulary":
            return None
        if self._nodes is not None:
            return hopeful & (self._nodes.kind[state[..., 0]] > OPEN)
        return hopeful & self.walk.alone(state)

    def _room(self, state: Tensor, hopeful: Tensor, lone: Tensor | None, length: int, room_for: RoomFor) -> Room:
        """How much room there is behind a length."""
        if lone is None:
            columns = [hopeful.sum(1), torch.zeros_like(self._numbers), torch.zeros_like(self._numbers)]
        else:
            tails = torch.where(lone, self._tail_lengths(state), 0)
            columns = [(hopeful & ~lone).sum(1), lone.sum(1), tails.amax(1)]
        needs = torch.stack(columns, 1)
        self.needs.append(needs)
        room, there = room_for(length, needs), hopeful.shape[1]
        return Room(min(room.beams, there), min(room.lone, there), room.tail)

    def _tail_lengths(self, state: Tensor) -> Tensor:
        if self._nodes is None:
            return self.walk.tail_lengths(state)
        return self.walk.leaf_tails(state[..., 0])[1]

    def _tails(self, state: Tensor, slots: int) -> tuple[Tensor, Tensor]:
        """The tails of states (n, parts) that are alone, see `Walk.tails`."""
        if self._nodes is None:
            return self.walk.tails(state, slots)
        begin, length = self.walk.leaf_tails(state[:, 0])
        return self.walk.tail_symbols(begin, length, slots), length

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
        symbols, count = self._tails(state.reshape(-1, state.shape[2]), room.tail)
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
        return max(1, SCORES // getattr(self.generator, "scores_each", self.generator.width))

    def _add(self, state: Tensor, logprob: Tensor, length: int | Tensor) -> None:
        """Add prefixes to the pool, which keeps the best."""
        if logprob.shape[1] > self.keep:  # of many only the best can enter: so states are not copied to be sorted
            logprob, at = logprob.topk(self.keep, dim=1) if not self.options.length_penalty else (logprob, None)
            state = state if at is None else _taken(state, at)
        state, logprob = torch.cat([self.state, state], 1), torch.cat([self.logprob, logprob], 1)
        if not self.options.length_penalty:
            self.rank, at = logprob.topk(self.keep, dim=1)
            self.state, self.logprob = _taken(state, at), self.rank
            return
        lengths = torch.full_like(self.length[:, :1], length) if isinstance(length, int) else length
        lengths = torch.cat([self.length, lengths.expand(-1, logprob.shape[1] - self.keep)], 1)
        rank = logprob / lengths.clamp(min=1).float() ** self.options.length_penalty
        self.rank, at = rank.topk(self.keep, dim=1)
        self.state, self.logprob, self.length = _taken(state, at), logprob.gather(1, at), lengths.gather(1, at)

    def _reachable(self) -> Tensor:
        """(queries,) the log-probability that a prefix must exceed, so that something below it can enter the pool."""
        last = self.logprob[:, -1]
        return torch.full_like(last, -torch.inf) if self.options.length_penalty else last


def _taken(state: Tensor, at: Tensor) -> Tensor:
    return state.gather(1, at[..., None].expand(-1, -1, state.shape[2]))
