"""The contextual vocabulary: several ids for one token, one for each of its meanings in titles.

Every occurrence of a token in a title has a state, a vector of the token in its context. The states of a token are
clustered, and each cluster is an id. Its row, the mean of its states, is both the input and the output of a decoder.
A token that occurs no more than k times has one id for each occurrence. A few special symbols have one plain row each.
These are functions of arrays; nothing here knows a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from triever.docids.quantize import kmeans_within, nearest, spread_within
from triever.docids.trie import Trie
from triever.docids.walk import Children, Walk

SLAB = 2**18
"""How many states are held and clustered at once; of a token that occurs more often, a sample of this size."""


@dataclass(frozen=True, eq=False)
class Spellings:
    """The ids of symbol s are start[s] to start[s] + count[s]."""

    start: np.ndarray  # (symbols,) int64
    count: np.ndarray  # (symbols,) int64, 0 for a symbol that no title has

    def __len__(self) -> int:
        return int(self.count.sum())

    @property
    def most_ids(self) -> int:
        """The largest number of ids of one symbol."""
        return int(self.count.max(initial=0))

    @cached_property
    def symbol(self) -> np.ndarray:
        """(ids,) the symbol of each id."""
        symbols = np.flatnonzero(self.count)
        symbols = symbols[self.start[symbols].argsort()]  # in the order of their first ids
        return np.repeat(symbols, self.count[symbols])

    @cached_property
    def table(self) -> np.ndarray:
        """(symbols, most_ids) the ids of each symbol, then -1."""
        slots = np.arange(self.most_ids)
        return np.where(slots < self.count[:, None], self.start[:, None] + slots, -1)


@dataclass(frozen=True, eq=False)
class Vocabulary(Spellings):
    """Spellings with a vector for each id: rows (ids, d)."""

    rows: Tensor

    def rows_of(self, symbol: int) -> Tensor:
        """The vectors of a symbol's ids."""
        return self.rows[self.start[symbol] : self.start[symbol] + self.count[symbol]]

    def placed(self, symbols: np.ndarray, states: np.ndarray) -> tuple[Vocabulary, np.ndarray]:
        """A vocabulary in which all symbols (n,) have ids, and for each state (n, d) the nearest id of its symbol.

        A symbol without ids gets a new one at the end. States may be mapped from a file; they are read in parts.
        """
        new = np.flatnonzero(self.count[symbols] == 0)
        larger = self._with_new(symbols[new], _floats(states[new])) if len(new) else self
        ids = np.empty(len(symbols), np.int64)
        step = max(1, SLAB // max(1, larger.most_ids))  # each state is held with all rows of its symbol
        for low in range(0, len(symbols), step):
            part = slice(low, low + step)
            ids[part] = larger._nearest(symbols[part], _floats(states[part]))
        return larger, ids

    def _nearest(self, symbols: np.ndarray, states: Tensor) -> np.ndarray:
        ids = torch.from_numpy(self.table[symbols])
        rows = self.rows[ids.clamp(min=0).to(self.rows.device)]  # (n, most, d)
        distance = (rows - states.to(rows)[:, None]).square().sum(2).cpu().masked_fill(ids < 0, torch.inf)
        return ids.gather(1, distance.argmin(1, keepdim=True))[:, 0].numpy()

    def _with_new(self, symbols: np.ndarray, states: Tensor) -> Vocabulary:
        """A vocabulary with an id for each of these symbols, which have none: its row is the mean of their states."""
        named = np.unique(symbols)
        means = [states[torch.from_numpy(symbols == symbol)].float().mean(0) for symbol in named]
        start, count = self.start.copy(), self.count.copy()
        start[named], count[named] = len(self) + np.arange(len(named)), 1
        return Vocabulary(start, count, torch.cat([self.rows, torch.stack(means).to(self.rows)]))


class IdWalk(Walk):
    """A walk by ids over a trie of symbols: the children of a prefix are all ids of all symbols that may follow.

    Several prefixes of ids may lead to the same node of the trie, so that a search reaches a title once for each of
    its spellings in ids. No prefix is `alone` here, as the last symbol may still be any of its ids.
    """

    def __init__(self, trie: Trie, spellings: Spellings, device: str | torch.device = "cpu") -> None:
        super().__init__(trie, device)
        self._ids = torch.from_numpy(spellings.table).to(self.device)

    @property
    def _max_ids(self) -> int:
        return self._ids.shape[1]

    def slots(self, depth: int) -> int:
        return super().slots(depth) * self._max_ids

    def children(self, state: Tensor, depth: int) -> Children:
        symbols = super().children(state, depth)
        ids = self._ids[symbols.token].flatten(1)  # (n, C * most)

        def each(values: Tensor) -> Tensor:
            return values.repeat_interleave(self._max_ids, 1)

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

    `symbols` (n,) has the symbol of each occurrence and `states` (n, d) its state; both may be mapped from a file.
    `plain` has the rows of special symbols, which do not occur. The clustering starts from the vocabulary `before`, if
    there is one, so that the same states give the same vocabulary.
    """
    occurrences = _Occurrences(symbols, states, k, seed, device, before)
    count, number = np.zeros(width, np.int64), np.empty(len(symbols), np.int64)
    rows = []
    for at, centroids, cluster in occurrences.clusters():
        count[occurrences.symbols[at]] = len(centroids)
        number[occurrences.positions(at)] = cluster
        rows.append(centroids)
    listed = np.array([*occurrences.symbols, *plain], np.int64)
    count[[*plain]] = 1
    start = np.zeros(width, np.int64)
    start[listed] = np.cumsum(count[listed]) - count[listed]
    rows += [row[None].float().cpu() for row in plain.values()]
    return Vocabulary(start, count, torch.cat(rows)), start[symbols] + number


class _Occurrences:
    """All occurrences, sorted by symbol and read in slabs; `at` is the number of a symbol among those that occur."""

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

    def positions(self, at: int) -> np.ndarray:
        """The positions at which a symbol occurs."""
        return self._order[self._ends[at] - self.counts[at] : self._ends[at]]

    def clusters(self) -> Iterator[tuple[int, Tensor, np.ndarray]]:
        """For each symbol: its number, its rows (ids, d), and for each occurrence the number of its row."""
        for slab in self._slabs():
            frequent = [at for at in slab if self.counts[at] > self.k]
            clustered = dict(zip(frequent, self._clustered(frequent), strict=True)) if frequent else {}
            for at in slab:
                yield at, *(clustered.get(at) or (self._states(self.positions(at)), np.arange(self.counts[at])))

    def _slabs(self) -> Iterator[range]:
        """Ranges of symbols whose occurrences can be held together."""
        first = 0
        while first < len(self.symbols):
            room = self._ends[first] - self.counts[first] + SLAB
            last = max(first + 1, int(np.searchsorted(self._ends, room, side="right")))
            yield range(first, last)
            first = last

    def _states(self, positions: np.ndarray) -> Tensor:
        return _floats(self.states[positions])

    def _clustered(self, frequent: Sequence[int]) -> Iterator[tuple[Tensor, np.ndarray]]:
        positions_of = [self._sampled_positions(at) for at in frequent]
        lengths = [len(positions) for positions in positions_of]
        vectors = self._states(np.concatenate(positions_of)).to(self.device)
        sizes = torch.tensor(lengths, device=self.device)
        known = self._from_before(frequent)
        start = spread_within(vectors, sizes, self._chance(frequent, lengths)) if known is None else known
        centroids, number = kmeans_within(vectors, sizes, start)
        if known is not None:  # as many clusters as before: one that has become empty stays where it was
            centroids = torch.where(centroids.isnan(), known, centroids)
        numbers = np.split(number.cpu().numpy(), np.cumsum(lengths)[:-1])
        for at, slots, cluster in zip(frequent, centroids.cpu(), numbers, strict=True):
            used = ~slots[:, 0].isnan().numpy()  # where few states differ, some clusters are empty
            rows = slots[torch.from_numpy(used)]
            yield rows, (np.cumsum(used) - 1)[cluster] if len(cluster) == self.counts[at] else self._assigned(at, rows)

    def _sampled_positions(self, at: int) -> np.ndarray:
        positions = self.positions(at)
        if len(positions) <= SLAB:
            return positions
        return np.sort(np.random.default_rng((self.seed, at)).choice(positions, SLAB, replace=False))

    def _chance(self, frequent: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """(k, n) random numbers that depend only on the symbol, not on the other symbols of the slab."""
        each = [
            np.random.default_rng((self.seed, int(self.symbols[at]))).random((self.k, length), np.float32)
            for at, length in zip(frequent, lengths, strict=True)
        ]
        return torch.from_numpy(np.concatenate(each, 1)).to(self.device).clamp(1e-7, 1 - 1e-7)

    def _from_before(self, frequent: Sequence[int]) -> Tensor | None:
        """(symbols, k, d) the rows of the vocabulary `before`, then NaN; None if a symbol is new or has more than k."""
        if self.before is None:
            return None
        known = self.before
        counts = known.count[self.symbols[list(frequent)]]
        if not counts.all() or counts.max() > self.k:
            return None
        start = torch.full((len(frequent), self.k, known.rows.shape[1]), torch.nan)
        for slots, symbol in zip(start, self.symbols[list(frequent)], strict=True):
            rows = known.rows_of(symbol)
            slots[: len(rows)] = rows.cpu()
        return start.to(self.device)

    def _assigned(self, at: int, rows: Tensor) -> np.ndarray:
        """The nearest row of each occurrence, for a symbol with too many occurrences to be held at once."""
        positions = self.positions(at)
        parts = (self._states(positions[low : low + SLAB]) for low in range(0, len(positions), SLAB))
        return np.concatenate([nearest(part, rows)[0].numpy() for part in parts])


def _floats(states: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(states, np.float32))


def about(vocabulary: Vocabulary, occurrences: int) -> dict[str, int]:
    """The size of a vocabulary, and for comparison of all states and of one row for each symbol, for a card."""
    symbols = int((vocabulary.count > 0).sum())
    size = vocabulary.rows.shape[1] * 4
    return {
        "decoder ids": len(vocabulary),
        "title tokens": symbols,
        "bytes": len(vocabulary) * size,
        "bytes of all states": occurrences * size,
        "bytes of one row each": symbols * size,
    }
