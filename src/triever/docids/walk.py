"""A trie on a device, walked by many prefixes at once.

The state of a prefix has one number for each part of the trie (main, and perhaps an annex): a node, or if it is at
least the number of nodes, a position in the tails; -1 if the part does not have the prefix. All tensors have fixed
shapes, so that a search step can be captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from triever.arrays import places, starts_of
from triever.docids.trie import Arrays, Trie
from triever.memory_parts import Thing


@dataclass(frozen=True)
class Children:
    """The symbols that may follow each of n prefixes, in C slots."""

    token: Tensor  # (n, C)
    state: Tensor  # (n, C, parts)
    exists: Tensor  # (n, C) bool
    ended: Tensor  # (n, C) bool, a docid ends there
    alone: Tensor  # (n, C) bool, one docid is left there, in one part


class Walk:
    """`walk = Walk(trie, device)`, then `walk.children(walk.root(2), depth=0)`."""

    def __init__(self, trie: Trie, device: str | torch.device = "cpu") -> None:
        self.trie = trie
        self.parts = [_Part(part, alive, device) for part, alive in zip(trie.parts, trie.alive, strict=True)]
        self.device = torch.device(device)

    def stored(self) -> list[Thing]:
        """What takes memory, in addition to the trie."""
        return [tensor for part in self.parts for tensor in part.stored()]

    def root(self, prefixes: int) -> Tensor:
        """(prefixes, parts) the state of the empty prefix, repeated."""
        return torch.zeros(prefixes, len(self.parts), dtype=torch.long, device=self.device)

    def slots(self, depth: int) -> int:
        """The largest number of children of a prefix of this length."""
        return sum(part.widest(depth) for part in self.parts)

    def children(self, state: Tensor, depth: int) -> Children:
        """The children of these prefixes (n, parts), all of length `depth`."""
        steps = [part.step(state[:, at], part.widest(depth)) for at, part in enumerate(self.parts)]
        return self._both(state, *steps) if len(steps) == 2 else _single(*steps)

    def _both(self, state: Tensor, main: _Step, annex: _Step) -> Children:
        """The children of both parts; a child that both have is listed once, with a state in both."""
        beside = self.parts[1].find(state[:, 1], main.token)
        known = self.parts[0].find(state[:, 0], annex.token)
        # A child whose entries are all deleted in the main part may have living ones in the annex.
        lives = main.exists | (main.there & (beside >= 0) & (self.parts[1].living(beside) > 0))
        fresh = annex.exists & (known < 0)
        left = torch.stack([main.state, beside], -1)
        right = torch.stack([torch.full_like(annex.state, -1), annex.state], -1)
        state = torch.cat([left, right], 1)
        token, exists = torch.cat([main.token, annex.token], 1), torch.cat([lives, fresh], 1)
        return Children(token, state, exists, self.ended(state), self.alone(state))

    def child(self, state: Tensor, symbol: int) -> Tensor | None:
        """The state (1, parts) behind one symbol after a state (1, parts), if something living is there."""
        if symbol > torch.iinfo(torch.int32).max:  # which no trie has
            return None
        token = torch.tensor([[symbol]], device=self.device)
        after = torch.cat([part.find(state[:, at], token) for at, part in enumerate(self.parts)], 1)
        return after if bool(self.living(after)[0] > 0) else None

    def living(self, state: Tensor) -> Tensor:
        """The number of living entries below each state (…, parts)."""
        return sum((part.living(state[..., at]) for at, part in enumerate(self.parts)), torch.zeros_like(state[..., 0]))

    def ended(self, state: Tensor) -> Tensor:
        """Whether a docid ends at each state (…, parts)."""
        ends = [part.ended(state[..., at]) for at, part in enumerate(self.parts)]
        return torch.stack(ends).any(0)

    def alone(self, state: Tensor) -> Tensor:
        """Whether only one docid is left below each state (…, parts), in one part."""
        here = state >= 0
        lone = torch.stack([part.lone(state[..., at]) for at, part in enumerate(self.parts)], -1)
        return (here.sum(-1) == 1) & (lone & here).any(-1)

    @cached_property
    def branching(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """The symbols and children of nodes, and 0, or 1 where a node has one docid left, or 2 where one ends there.

        None if prefixes are more than nodes: in a trie of two parts, with deleted entries, or with a single docid.
        """
        part = self.parts[0]
        if len(self.parts) > 1 or part.before is not None or part.nodes < 2:
            return None
        return part.token, part.child, part.leaf.to(torch.uint8) + part.end.to(torch.uint8)

    def tail_lengths(self, state: Tensor) -> Tensor:
        """How many symbols the tails of states (…, parts) that are alone have."""
        spans = [part.rest(state[..., at]) for at, part in enumerate(self.parts)]
        return torch.stack([end - at for at, end in spans]).clamp(min=0).amax(0)

    def tails(self, state: Tensor, slots: int | None = None) -> tuple[Tensor, Tensor]:
        """The tails of states that are alone: symbols (n, longest), and how many of them count (n,).

        With `slots`, there are so many symbols of each, and the host does not wait for the longest.
        """
        spans = [part.rest(state[:, at]) for at, part in enumerate(self.parts)]
        length = self.tail_lengths(state)
        if slots is None:
            slots = int(length.max()) if len(length) else 0
        slot = torch.arange(slots, device=self.device)
        symbols = torch.zeros(len(state), len(slot), dtype=torch.long, device=self.device)
        for part, (at, end) in zip(self.parts, spans, strict=True):
            inside = slot < (end - at)[:, None]
            where = (at[:, None] + slot).clamp(max=max(len(part.tail) - 1, 0))
            symbols = torch.where(inside, part.tail[where].long(), symbols) if len(part.tail) else symbols
        return symbols, length

    def leaf_tails(self, node: Tensor) -> tuple[Tensor, Tensor]:
        """Where the tails of leaves begin, and their lengths, in a trie of one part; lengths of other nodes are 0."""
        part = self.parts[0]
        entry = part.first[node].long()
        begin = part.tail_start[entry].long()
        end = part.tail_start[(entry + 1).clamp(max=len(part.tail_start) - 1)].long()
        return begin, torch.where(part.leaf[node], end - begin, 0)

    def tail_symbols(self, begin: Tensor, length: Tensor, slots: int) -> Tensor:
        """(n, slots) the symbols of tails (n,) in a trie of one part, 0 behind their ends."""
        tail = self.parts[0].tail
        slot = torch.arange(slots, device=self.device)
        if not len(tail):
            return torch.zeros(len(begin), slots, dtype=torch.long, device=self.device)
        symbols = tail[(begin[:, None] + slot).clamp(max=len(tail) - 1)].long()
        return torch.where(slot < length[:, None], symbols, 0)

    def spans(self, state: Sequence[int]) -> list[tuple[int, slice]]:
        """The entries at and below one state (parts,), living or deleted: (part, slice) for each part that has some."""
        states = [(at, part, part_state) for at, (part, part_state) in enumerate(zip(self.parts, state, strict=True))]
        return [(at, part.span(part_state)) for at, part, part_state in states if part_state >= 0]

    def documents(self, state: list[int]) -> list[int]:
        """The living documents at and below one state (parts,)."""
        living = [part.documents(at) for part, at in zip(self.parts, state, strict=True) if at >= 0]
        return [document for documents in living for document in documents]

    def documents_of(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The living documents at and below many states (n, parts): which state each is below, and its number."""
        parts = [part.documents_of(states[:, at]) for at, part in enumerate(self.parts)]
        which, documents = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return which, documents

    @cached_property
    def longest(self) -> int:
        """The length of the longest docid, living or deleted."""
        return max(part.arrays.longest for part in self.parts)

    @cached_property
    def one_to_one(self) -> bool:
        """Whether every docid has one document and every document one docid, in one part without deleted entries."""
        part = self.parts[0]
        if len(self.parts) > 1 or part.before is not None or int(part.arrays.leaf.sum()) != part.arrays.entries:
            return False
        return self.counts[0] == part.arrays.entries

    def only_documents(self, state: Tensor) -> Tensor:
        """The number of the document of each docid (…, 1), where they are `one_to_one`; anything for other states."""
        return self.parts[0].document[self.parts[0].entry(state[..., 0])]

    @cached_property
    def counts(self) -> tuple[int, dict[int, int]]:
        """The number of living documents, and the number of living docids of each document with several."""
        living = [part.arrays.document if part.mask is None else part.arrays.document[part.mask] for part in self.parts]
        documents, docids = np.unique(np.concatenate(living), return_counts=True)
        several = docids > 1
        return len(documents), dict(zip(documents[several].tolist(), docids[several].tolist(), strict=True))


@dataclass(frozen=True)
class _Step:
    token: Tensor  # (n, C)
    state: Tensor  # (n, C)
    there: Tensor  # (n, C) the slot holds a child, living or deleted
    exists: Tensor  # (n, C) and something below it lives
    ended: Tensor  # (n, C) a docid ends there
    lone: Tensor  # (n, C) nothing branches below it


def _single(step: _Step) -> Children:
    return Children(step.token, step.state[..., None], step.exists, step.ended, step.lone)


class _Part:
    """One part of a trie as tensors; see `Arrays` for their shapes."""

    def __init__(self, arrays: Arrays, alive: np.ndarray | None, device: str | torch.device) -> None:
        self.arrays = arrays
        self.nodes = arrays.nodes
        self.token, self.child, self.first, self.count, self.tail, self.tail_start = (
            _tensor(array, device)
            for array in (
                *(arrays.token, arrays.child, arrays.first),
                *(arrays.count, arrays.tail, arrays.tail_start),
            )
        )
        # Whether a node is a leaf, and whether a docid ends in it: stored, as computing it for all children is slow.
        self.leaf, self.end = (_tensor(array, device) for array in (arrays.leaf, arrays.end))
        self.mask = alive
        self.before = None  # (entries + 1,) the number of living entries before each
        if alive is not None:
            self.before = _tensor(starts_of(alive).astype(np.int32), device)

    def stored(self) -> list[Thing]:
        tensors = [self.token, self.child, self.first, self.count, self.tail, self.tail_start, self.leaf, self.end]
        before = [] if self.before is None else [self.before]
        return [*tensors, *before, self.arrays.leaf, self.arrays.end]

    def widest(self, depth: int) -> int:
        return self.arrays.widest[depth] if depth < len(self.arrays.widest) else 1

    @cached_property
    def bisections(self) -> int:
        """The number of steps of a binary search among the largest number of children."""
        return max(self.arrays.widest).bit_length()

    def step(self, state: Tensor, slots: int) -> _Step:
        """The children of each state (n,), in `slots` slots."""
        begin, degree = self._span(state)
        slot = torch.arange(slots, device=state.device)
        there = slot < degree[:, None]
        node = torch.where(there, begin[:, None] + slot, 0)
        token = self.token[node].long()
        at, end = self.rest(state)
        goes_on = (at < end)[:, None] & (slot == 0)  # the next symbol of a tail, in the first slot
        if len(self.tail):
            token = torch.where(goes_on, self.tail[at.clamp(max=len(self.tail) - 1)].long()[:, None], token)
        ended = torch.where(goes_on, (at + 1 >= end)[:, None], there & self.end[node])
        lone = goes_on | (there & self.leaf[node])
        node = torch.where(goes_on, (self.nodes + at + 1)[:, None], node)
        there = there | goes_on
        lives = there & (self.living(node) > 0) if self.before is not None else there
        return _Step(token, torch.where(there, node, -1), there, lives, ended, lone)

    def find(self, state: Tensor, token: Tensor) -> Tensor:
        """The child of each state (n,) by each of its symbols (n, C), or -1."""
        begin, degree = self._span(state)
        low, high = begin[:, None].expand_as(token), (begin + degree)[:, None].expand_as(token)
        for _ in range(self.bisections):
            middle = (low + high) // 2
            right = (low < high) & (self.token[middle.clamp(max=self.nodes - 1)] < token)
            low, high = torch.where(right, middle + 1, low), torch.where(right | (low >= high), high, middle)
        end = (begin + degree)[:, None]
        is_child = (low < end) & (self.token[low.clamp(max=self.nodes - 1)] == token)
        child = torch.where(is_child, low, -1)
        at, until = self.rest(state)
        if len(self.tail):
            same = self.tail[at.clamp(max=len(self.tail) - 1)].long()[:, None] == token
            child = torch.where((at < until)[:, None] & same, (self.nodes + at + 1)[:, None], child)
        return child

    def living(self, state: Tensor) -> Tensor:
        """The number of living entries at and below each state; 0 for -1."""
        node = self._node(state)
        first = torch.where(self._is_node(state), self.first[node].long(), self._entry(state))
        count = torch.where(self._is_node(state), self.count[node].long(), 1)
        if self.before is not None:
            count = (self.before[first + count] - self.before[first]).long()
        return torch.where(state >= 0, count, 0)

    def node_of(self, state: Tensor) -> Tensor:
        """The node of each state, -1 for -1; a state in a tail counts as the node that the tail begins at."""
        node = torch.where(self._is_node(state), state, self.leaves[self._entry(state)])
        return torch.where(state >= 0, node, -1)

    @cached_property
    def leaves(self) -> Tensor:
        """(entries or more,) the node that each entry lies at."""
        return _tensor(np.append(self.arrays.leaf_of_entry(), 0), self.token.device)

    @cached_property
    def document(self) -> Tensor:
        """(entries,) the documents, where states are."""
        return _tensor(self.arrays.document, self.token.device)

    def entry(self, state: Tensor) -> Tensor:
        """The first entry at or below each state; any for -1 and for states that do not exist."""
        entry = torch.where(self._is_node(state), self.first[self._node(state)].long(), self._entry(state))
        return entry.clamp(0, self.arrays.entries - 1)

    def lone(self, state: Tensor) -> Tensor:
        """Whether nothing branches below each state."""
        return (state >= 0) & (self._span(state)[1] == 0)

    def ended(self, state: Tensor) -> Tensor:
        at, end = self.rest(state)
        return self.lone(state) & (at >= end)

    def rest(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """The position in the tails of each state that is alone, and the end of its tail; (0, 0) for other states."""
        entry = torch.where(self._is_node(state), self.first[self._node(state)].long(), self._entry(state))
        entry = entry.clamp(0, max(len(self.tail_start) - 2, 0))
        begin = torch.where(self._is_node(state), self.tail_start[entry].long(), state - self.nodes)
        lone = self.lone(state) & (len(self.tail_start) > 1)
        return torch.where(lone, begin, 0), torch.where(
            lone, self.tail_start[(entry + 1).clamp(max=len(self.tail_start) - 1)].long(), 0
        )

    def span(self, state: int) -> slice:
        if state < self.nodes:
            first = int(self.arrays.first[state])
            return slice(first, first + int(self.arrays.count[state]))
        starts = self.arrays.tail_start
        # In the type of the starts: NumPy would convert millions of them to compare them with a Python number.
        entry = int(np.searchsorted(starts, starts.dtype.type(state - self.nodes - 1), side="right")) - 1
        return slice(entry, entry + 1)

    def documents(self, state: int) -> list[int]:
        span = self.span(state)
        documents = self.arrays.document[span]
        return (documents if self.mask is None else documents[self.mask[span]]).tolist()

    def documents_of(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For many states (n,), of which -1 has none: which of them each living document is below, and its number."""
        starts, is_node = self.arrays.tail_start, states < self.nodes
        node = np.where(is_node & (states >= 0), states, 0)
        tail = (states - self.nodes - 1).clip(min=0).astype(starts.dtype)
        entry = np.searchsorted(starts, tail, side="right") - 1
        first = np.where(is_node, np.asarray(self.arrays.first)[node], entry)
        count = np.where(is_node, np.asarray(self.arrays.count)[node], 1) * (states >= 0)
        entries, which = places(first, count), np.repeat(np.arange(len(states)), count)
        if self.mask is not None:
            entries, which = entries[self.mask[entries]], which[self.mask[entries]]
        return which, np.asarray(self.arrays.document)[entries]

    def _is_node(self, state: Tensor) -> Tensor:
        return state < self.nodes

    def _node(self, state: Tensor) -> Tensor:
        return torch.where((state >= 0) & self._is_node(state), state, 0)

    def _entry(self, state: Tensor) -> Tensor:
        """The entry in whose tail a state is: that of the symbol before its position."""
        position = (state - self.nodes - 1).clamp(min=0).contiguous()
        return (torch.searchsorted(self.tail_start, position.to(self.tail_start.dtype), right=True) - 1).clamp(min=0)

    def _span(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """The first child and the number of children of each state."""
        node = self._node(state)
        begin = self.child[node].long()
        degree = self.child[node + 1].long() - begin
        return begin, torch.where((state >= 0) & self._is_node(state), degree, 0)


def _tensor(array: np.ndarray, device: str | torch.device) -> Tensor:
    wide = array.astype(np.int32) if array.dtype in (np.uint8, np.uint16) else np.array(array)
    return torch.from_numpy(wide).to(device)
