"""The contextual vocabulary: several ids for one token, each for what it means in some of the titles that have it.

Every occurrence of a token in a title comes with its state in context. Occurrences of one token are clustered, and
a cluster is an id: its row, the mean of its states, is both what a decoder reads and what it writes. Where a token
occurs no more often than there may be clusters, every occurrence is an id of its own. A few special symbols have one
plain row each. Array functions; nothing here knows a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triever.docids.quantize import kmeans_within, nearest, spread_within
from triever.docids.trie import Trie
from triever.docids.walk import Children, Walk

SLAB = 2**18
"""So many states are held and clustered at once; of a token that occurs more often, so many are looked at."""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The ids of symbol s are start[s] to start[s] + count[s]; rows (ids, d) are their vectors."""

    rows: Tensor
    start: np.ndarray  # (symbols,) int64
    count: np.ndarray  # (symbols,) int64, 0 for a symbol that no title has

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def most_ids(self) -> int:
        """How many ids a symbol has at most."""
        return int(self.count.max(initial=0))

    @cached_property
    def symbol(self) -> np.ndarray:
        """(ids,) whose id each is."""
        there = np.flatnonzero(self.count)
        there = there[self.start[there].argsort()]  # ids follow each other in the order of where they start
        return np.repeat(there, self.count[there])

    def rows_of(self, symbol: int) -> Tensor:
        """The vectors of a symbol's ids."""
        return self.rows[self.start[symbol] : self.start[symbol] + self.count[symbol]]

    def placed(self, symbols: np.ndarray, states: np.ndarray) -> tuple[Vocabulary, np.ndarray]:
        """The nearest id of its symbol for each of some states (n, d); a symbol without any gets a new one behind.

        States may be mapped from a file, of which some are looked at at a time.
        """
        new = np.flatnonzero(self.count[symbols] == 0)
        larger = self._with_own(symbols[new], _floats(states[new])) if len(new) else self
        ids = np.empty(len(symbols), np.int64)
        together = max(1, SLAB // max(1, larger.most_ids))  # each is held beside all rows that its symbol has
        for low in range(0, len(symbols), together):
            some = slice(low, low + together)
            ids[some] = larger._nearest(symbols[some], _floats(states[some]))
        return larger, ids

    @cached_property
    def table(self) -> np.ndarray:
        """(symbols, most) the ids of each symbol, -1 where there are no more."""
        slots = np.arange(self.most_ids)
        return np.where(slots < self.count[:, None], self.start[:, None] + slots, -1)

    def _nearest(self, symbols: np.ndarray, states: Tensor) -> np.ndarray:
        ids = torch.from_numpy(self.table[symbols])
        own = self.rows[ids.clamp(min=0).to(self.rows.device)]  # (n, most, d)
        distance = (own - states.to(own)[:, None]).square().sum(2).cpu().masked_fill(ids < 0, torch.inf)
        return ids.gather(1, distance.argmin(1, keepdim=True))[:, 0].numpy()

    def _with_own(self, symbols: np.ndarray, states: Tensor) -> Vocabulary:
        """With an id for each symbol that had none: the mean of its states."""
        named = np.unique(symbols)
        means = [states[torch.from_numpy(symbols == symbol)].float().mean(0) for symbol in named]
        start, count = self.start.copy(), self.count.copy()
        start[named], count[named] = len(self) + np.arange(len(named)), 1
        return Vocabulary(torch.cat([self.rows, torch.stack(means).to(self.rows)]), start, count)


class IdWalk(Walk):
    """A walk by ids over a trie of symbols: what may follow are all ids of all symbols that may.

    Several prefixes of ids may stand at one place of the trie, so that a search meets a title as often as it is
    spelled. Nothing is alone here, as the last of the symbols may still be any of its ids.
    """

    def __init__(self, trie: Trie, vocabulary: Vocabulary, device: str | torch.device = "cpu") -> None:
        super().__init__(trie, device)
        self._ids = torch.from_numpy(vocabulary.table).to(self.device)

    @property
    def _most(self) -> int:
        return self._ids.shape[1]

    def slots(self, depth: int) -> int:
        return super().slots(depth) * self._most

    def children(self, state: Tensor, depth: int) -> Children:
        symbols = super().children(state, depth)
        ids = self._ids[symbols.token].flatten(1)  # (n, C * most)

        def each(values: Tensor) -> Tensor:
            return values.repeat_interleave(self._most, 1)

        exists = each(symbols.exists) & (ids >= 0)
        return Children(ids.clamp(min=0), each(symbols.state), exists, each(symbols.ended), torch.zeros_like(exists))

    def alone(self, state: Tensor) -> Tensor:
        return torch.zeros_like(state[..., 0], dtype=torch.bool)


def build_vocabulary(
    symbols: np.ndarray,
    states: np.ndarray,
    plain: Mapping[int, Tensor],
    *,
    width: int,
    k: int = 5,
    seed: int = 0,
    device: str | torch.device = "cpu",
    before: Vocabulary | None = None,
) -> tuple[Vocabulary, np.ndarray]:
    """A vocabulary over `width` symbols, and the id of each occurrence (n,).

    symbols (n,) says which symbol occurs, states (n, d) in what context; they may be mapped from a file. `plain` has
    the rows of special symbols, which do not occur. Clusters begin where they were `before`, so that the same states
    give the same vocabulary.
    """
    occurrences = _Occurrences(symbols, states, k, seed, device, before)
    count, number = np.zeros(width, np.int64), np.empty(len(symbols), np.int64)
    rows = []
    for at, own, numbers in occurrences.clusters():
        count[occurrences.symbols[at]] = len(own)
        number[occurrences.places(at)] = numbers
        rows.append(own)
    listed = np.array([*occurrences.symbols, *plain], np.int64)
    count[[*plain]] = 1
    start = np.zeros(width, np.int64)
    start[listed] = np.cumsum(count[listed]) - count[listed]
    rows += [row[None].float().cpu() for row in plain.values()]
    return Vocabulary(torch.cat(rows), start, count), start[symbols] + number


class _Occurrences:
    """All occurrences in the order of their symbols, of which some are looked at at a time."""

    def __init__(
        self,
        symbols: np.ndarray,
        states: np.ndarray,
        k: int,
        seed: int,
        device: str | torch.device,
        before: Vocabulary | None,
    ) -> None:
        self.states, self.k, self.seed, self.device, self.before = states, k, seed, device, before
        self.symbols, self.counts = np.unique(symbols, return_counts=True)
        self._order = np.argsort(symbols, kind="stable")
        self._ends = np.cumsum(self.counts)

    def places(self, at: int) -> np.ndarray:
        """Where the symbol that is at this place among all occurs."""
        return self._order[self._ends[at] - self.counts[at] : self._ends[at]]

    def clusters(self) -> Iterator[tuple[int, Tensor, np.ndarray]]:
        """For each symbol, by its place, its rows (ids, d) and the number of each occurrence among them."""
        for some in self._slabs():
            many = [at for at in some if self.counts[at] > self.k]
            found = dict(zip(many, self._clustered(many), strict=True)) if many else {}
            for at in some:
                yield at, *(found.get(at) or (self._states(self.places(at)), np.arange(self.counts[at])))

    def _slabs(self) -> Iterator[range]:
        """Symbols whose occurrences can be held together."""
        first = 0
        while first < len(self.symbols):
            room = self._ends[first] - self.counts[first] + SLAB
            last = max(first + 1, int(np.searchsorted(self._ends, room, side="right")))
            yield range(first, last)
            first = last

    def _states(self, places: np.ndarray) -> Tensor:
        return _floats(self.states[places])

    def _clustered(self, many: Sequence[int]) -> Iterator[tuple[Tensor, np.ndarray]]:
        places = [self._looked_at(at) for at in many]
        lengths = [len(some) for some in places]
        vectors = self._states(np.concatenate(places)).to(self.device)
        sizes = torch.tensor(lengths, device=self.device)
        known = self._from_before(many)
        start = spread_within(vectors, sizes, self._chance(many, lengths)) if known is None else known
        centroids, number = kmeans_within(vectors, sizes, start)
        if known is not None:  # there are as many as before: what nobody is in any more stays where it was
            centroids = torch.where(centroids.isnan(), known, centroids)
        numbers = np.split(number.cpu().numpy(), np.cumsum(lengths)[:-1])
        for at, own, one in zip(many, centroids.cpu(), numbers, strict=True):
            there = ~own[:, 0].isnan().numpy()  # where few states differ, nobody is in some
            rows = own[torch.from_numpy(there)]
            yield rows, (np.cumsum(there) - 1)[one] if len(one) == self.counts[at] else self._assigned(at, rows)

    def _looked_at(self, at: int) -> np.ndarray:
        places = self.places(at)
        if len(places) <= SLAB:
            return places
        return np.sort(np.random.default_rng((self.seed, at)).choice(places, SLAB, replace=False))

    def _chance(self, many: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """(k, n) numbers that belong to the symbols, whichever others are looked at together with them."""
        each = [
            np.random.default_rng((self.seed, int(self.symbols[at]))).random((self.k, length), np.float32)
            for at, length in zip(many, lengths, strict=True)
        ]
        return torch.from_numpy(np.concatenate(each, 1)).to(self.device).clamp(1e-7, 1 - 1e-7)

    def _from_before(self, many: Sequence[int]) -> Tensor | None:
        """(symbols, k, d) the rows from before, NaN where there were fewer; nothing where a symbol is new."""
        if self.before is None:
            return None
        known = self.before
        counts = known.count[self.symbols[list(many)]]
        if not counts.all() or counts.max() > self.k:
            return None
        start = torch.full((len(many), self.k, known.rows.shape[1]), torch.nan)
        for own, symbol in zip(start, self.symbols[list(many)], strict=True):
            rows = known.rows_of(symbol)
            own[: len(rows)] = rows.cpu()
        return start.to(self.device)

    def _assigned(self, at: int, rows: Tensor) -> np.ndarray:
        """The nearest row of every occurrence of a symbol that has too many to be held at once."""
        places = self.places(at)
        parts = (self._states(places[low : low + SLAB]) for low in range(0, len(places), SLAB))
        return np.concatenate([nearest(part, rows)[0].numpy() for part in parts])


def _floats(states: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(states, np.float32))


def about(vocabulary: Vocabulary, occurrences: int) -> dict[str, Any]:
    """Its size beside that of all states and of one row for each symbol, for a card."""
    symbols = int((vocabulary.count > 0).sum())
    size = vocabulary.rows.shape[1] * 4
    return {
        "decoder ids": len(vocabulary),
        "title tokens": symbols,
        "bytes": len(vocabulary) * size,
        "bytes of all states": occurrences * size,
        "bytes of one row each": symbols * size,
    }
