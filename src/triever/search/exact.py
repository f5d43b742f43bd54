"""Exact search: it returns the true best documents with a certificate, or says how near it came.

The probability of a prefix bounds that of everything below it. So a document that is not found yet has at most its
number of open docids times the probability of the best open prefix, and at most the probability of all open prefixes
together. The search is done when the k-th best document has at least as much as any other document can still reach.

It goes through the prefixes from short to long, all queries together, and opens those of one length in one pass. The
first time it opens the best few of each length, as a beam does. That gives it documents, and the k-th of them says
which prefixes need not be opened at all. Then it goes through them again and opens what is left, the best as many
again as it has opened before, until it is certain. A model that knows what it looks for is mostly certain at once.

A prefix with one docid left is opened to its end in one pass where that takes the model (under `vocabulary`
normalisation); all prefixes on the way count as opened.

A generator that follows only a part of a prefix says which share it does not follow. That share may belong to any
document, so it is added to what other documents can reach. This is exact with `vocabulary` normalisation, and nearly
exact with `trie`.

Open prefixes lie where the model is. Documents are looked up on the host, the best few of each pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from triever.docids.walk import Children, Walk
from triever.models.generator import Cache, Generator, Hidden, Partial
from triever.search.found_documents import FoundDocuments
from triever.search.recorder import Recorder
from triever.search.scores import Normalisation, child_scores, tail_scores

WIDTH = 24
"""Prefixes of each length that are opened for a query at first; more if more documents are wanted."""
BATCH = 128
"""The fewest prefixes of a query that are opened when it goes through them again, as long as there are so many."""
EACH = 256
"""The most prefixes of one query that are opened in one pass: causal models lay them out side by side."""
TOGETHER = 2048
"""The most prefixes of all queries that are opened in one pass; fewer if each may have many children."""
CHILDREN = 2**24
"""The most children of all prefixes that are opened in one pass."""
HELD = 4096
"""The most prefixes of the latest passes that others may follow, so that only their last symbols are read."""
APART = 128
"""Prefixes that follow a pass have a pass of their own if that saves reading at least so many symbols."""


@dataclass(frozen=True)
class Certified:
    """The best documents with their log-probabilities; `bound` is the log-probability that no other exceeds.

    The certificate says that these documents are the best. If a document has several docids, its probability may lack
    those that the search did not need, and is then a lower bound.
    """

    documents: list[tuple[int, float]]
    certified: bool
    opened: int
    bound: float
    lost: float = -math.inf
    """The log-probability of everything that the generator did not follow."""

    def __str__(self) -> str:
        if self.certified:
            return f"exact: {self.opened} prefixes opened"
        why = "budget spent" if self.lost < self.bound - math.log(2) else "too much was not followed"
        return f"{why} after {self.opened} prefixes: another document can have up to log p = {self.bound:.4g}"


def exact(
    generator: Generator,
    cache: Cache,
    hidden: Hidden,
    walk: Walk,
    k: int,
    *,
    budget: int = 10_000,
    normalisation: Normalisation = "trie",
    temperature: float = 1.0,
    ties: bool = False,
    recorder: Recorder | None = None,
) -> list[Certified]:
    """The k best documents of each query; `budget` is the most prefixes that may be opened for a query.

    With `ties`, the result also has all found documents that tie with the k-th, so that the caller can order them.
    A recorder takes down what the search for a single query does: a prefix is kept if it is opened.
    """
    reading = _Reading(generator, cache, hidden)
    search = _Search(reading, walk, min(k, walk.counts[0]), budget, normalisation, temperature, recorder)
    search.run()
    return search.results(ties=ties)


@dataclass(frozen=True)
class Prefixes:
    """n prefixes of one length; those of a query lie together, in the order of queries."""

    query: Tensor  # (n,)
    logprob: Tensor  # (n,) float64
    state: Tensor  # (n, parts)
    symbols: Tensor  # (n, length)
    read: Tensor  # (n,) the number of the pass that has read all but the last symbol, -1 for none
    parent: Tensor  # (n,) the row there

    def __len__(self) -> int:
        return len(self.query)

    def __getitem__(self, rows: Tensor) -> Prefixes:
        return Prefixes(*(column[rows] for column in self._columns()))

    def _columns(self) -> tuple[Tensor, ...]:
        return self.query, self.logprob, self.state, self.symbols, self.read, self.parent

    @classmethod
    def joined(cls, parts: Sequence[Prefixes]) -> Prefixes:
        """All of them, in the order of queries."""
        if len(parts) == 1:
            return parts[0]
        every = cls(*(torch.cat(columns) for columns in zip(*(part._columns() for part in parts), strict=True)))
        return every[every.query.argsort(stable=True)]


def _by_query(query: Tensor, value: Tensor, queries: int) -> tuple[Tensor, Tensor]:
    """Values (n,) in the order of queries as (queries, most), -inf behind those of a query, and where each begins."""
    counts = query.bincount(minlength=queries)
    start = counts.cumsum(0) - counts
    grid = value.new_full((queries, int(counts.max())), -torch.inf)
    grid[query, torch.arange(len(query), device=query.device) - start[query]] = value
    return grid, start


def best_of_each(query: Tensor, value: Tensor, limit: Tensor) -> Tensor:
    """Where the highest values (n,) are, at most `limit` (queries,) of each query; n is in the order of queries."""
    grid, start = _by_query(query, value, len(limit))
    best, at = grid.topk(min(grid.shape[1], int(limit.max())), dim=1)
    slot = torch.arange(best.shape[1], device=best.device)
    return (start[:, None] + at)[(best > -torch.inf) & (slot < limit[:, None])]


def last_of_best(query: Tensor, value: Tensor, limit: Tensor) -> Tensor:
    """(queries,) the lowest of the `limit` (queries,) highest values of each query; -inf where there are fewer."""
    grid, _ = _by_query(query, value, len(limit))
    best = grid.topk(min(grid.shape[1], int(limit.max())), dim=1).values
    last = best.gather(1, (limit - 1).clamp(0, best.shape[1] - 1)[:, None])[:, 0]
    return last.masked_fill(limit > best.shape[1], -torch.inf)


Docids: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Queries (n,), states (n, parts) of docids that end, and the log-probability (n,) of each document of a docid."""


class _Reading:
    """What the generator knows of prefixes: it follows those of the latest passes, and reads others from the root."""

    def __init__(self, generator: Generator, cache: Cache, hidden: Hidden) -> None:
        self.generator = generator
        self.root = cache
        self.hidden = hidden
        self.queries = len(hidden)
        self._held: dict[int, tuple[Cache, int]] = {}  # number of a pass -> its cache, and how many it has read
        self._passes = 0

    def groups(self, prefixes: Prefixes) -> list[Prefixes]:
        """Prefixes by the pass that they follow; those that are too few to follow one are read from the root."""
        counts = dict(zip(*(column.tolist() for column in prefixes.read.unique(return_counts=True)), strict=True))
        saved = prefixes.symbols.shape[1] - 1
        apart = [read for read, count in counts.items() if read in self._held and count * saved >= APART]
        followed = [prefixes[prefixes.read == read] for read in apart]
        rest = prefixes
        for read in apart:
            rest = rest[rest.read != read]
        return [*followed, replace(rest, read=torch.full_like(rest.read, -1))] if len(rest) else followed

    def states(self, prefixes: Prefixes) -> tuple[Hidden, int]:
        """The states (n, d) after prefixes of one group, and the number of the pass that has read them."""
        if not prefixes.symbols.shape[1]:
            return self.hidden[prefixes.query], -1
        cache, states = self._extended(prefixes, prefixes.symbols[:, :0])
        return states[:, -1], self._hold(cache, len(prefixes))

    def _hold(self, cache: Cache, count: int) -> int:
        """Keep a cache for prefixes that follow it, and forget the oldest if they have read too many: its number."""
        self._passes += 1
        self._held[self._passes] = cache, count
        while len(self._held) > 1 and sum(count for _, count in self._held.values()) > HELD:
            del self._held[min(self._held)]
        return self._passes

    def states_along(self, prefixes: Prefixes, more: Tensor) -> Hidden:
        """The states (n, 1 + t, d) after prefixes, and after each of the symbols (n, t) that follow them."""
        _, states = self._extended(prefixes, more)
        return states[:, -1 - more.shape[1] :]

    def _extended(self, prefixes: Prefixes, more: Tensor) -> tuple[Cache, Hidden]:
        """What the generator has of prefixes of one group and more symbols."""
        cache, parents, symbols = self.root, prefixes.query, prefixes.symbols
        if held := self._held.get(int(prefixes.read[0])):
            cache, parents, symbols = held[0], prefixes.parent, prefixes.symbols[:, -1:]
        tokens = torch.cat([symbols, more], 1)
        return self.generator.extend(cache, parents, tokens)


class _Search:
    """The search for all queries: their open prefixes by length, and the documents found."""

    def __init__(
        self,
        reading: _Reading,
        walk: Walk,
        k: int,
        budget: int,
        normalisation: Normalisation,
        temperature: float,
        recorder: Recorder | None,
    ) -> None:
        self.reading = reading
        self.generator = reading.generator
        self.walk = walk
        self.k = k
        self.normalisation: Normalisation = normalisation
        self.temperature = temperature
        self.recorder = recorder
        queries, device = reading.queries, walk.device
        self.budget = budget
        self.opened = torch.zeros(queries, dtype=torch.long, device=device)
        self.found = FoundDocuments(walk, queries, k)
        nothing = torch.full((queries,), -torch.inf, dtype=torch.float64, device=device)
        self.floor = nothing
        """(queries,) what a prefix must exceed to matter: the k-th document, if every document has one docid."""
        self.dropped = nothing
        """(queries,) the best prefix or docid that was left out, as it does not matter or can never be opened."""
        self.lost = nothing
        """(queries,) the log-probability of what the generator did not follow."""
        self.open: dict[int, Prefixes] = {}
        if k and queries:
            numbers = torch.arange(queries, device=device)
            symbols = torch.zeros(queries, 0, dtype=torch.long, device=device)
            self.open[0] = Prefixes(numbers, torch.zeros_like(nothing), walk.root(queries), symbols, numbers, numbers)
        if recorder is not None:
            recorder.begin()

    def run(self) -> None:
        """Open prefixes until all queries are certain or have spent their budgets."""
        self._sweep(torch.full_like(self.floor, -torch.inf), max(WIDTH, self.k))
        while (undone := self._undone()).any():
            self._sweep(self._cut(torch.from_numpy(undone).to(self.walk.device)), self.budget)

    def results(self, *, ties: bool) -> list[Certified]:
        """The best documents of each query, with a bound for all others."""
        documents = self.found.best(ties=ties)
        if self.recorder is not None:
            self.recorder.end_exact((document for document, _ in documents[0]), self.walk.documents)
        highest, whole = self._reach()
        lost = self.lost.cpu().numpy()
        # Opening more prefixes cannot regain what was not followed, so it counts only at the end.
        bounds = np.logaddexp(self.found.bounds(highest, whole), lost)
        certain = self.found.certain(bounds, (highest == -np.inf) & (lost == -np.inf))
        columns = (certain.tolist(), self.opened.tolist(), bounds.tolist(), lost.tolist())
        return [Certified(*row) for row in zip(documents, *columns, strict=True)]

    # Which prefixes to open

    def _undone(self) -> np.ndarray:
        """(queries,) bool, for which of them opening another prefix could still change the result."""
        highest, whole = self._reach()
        best_open = self._highest(self.floor.new_full(self.floor.shape, -torch.inf))
        can = ((best_open > self.floor) & (self.opened < self.budget)).cpu().numpy()
        return can & ~self.found.certain(self.found.bounds(highest, whole), highest == -np.inf)

    def _reach(self) -> tuple[np.ndarray, np.ndarray]:
        """(queries,) what a docid that is not found yet can have, and all of them together."""
        highest = self._highest(self.dropped)
        if self.found.one_docid_each:
            return (numbers := highest.cpu().numpy()), numbers
        whole = torch.zeros_like(highest)
        for prefixes in self.open.values():
            whole.index_add_(0, prefixes.query, (prefixes.logprob - highest[prefixes.query]).exp())
        return highest.cpu().numpy(), (highest + whole.log()).clamp(max=0).cpu().numpy()

    def _highest(self, least: Tensor) -> Tensor:
        """(queries,) the best open prefix of each, or `least` (queries,)."""
        for prefixes in self.open.values():
            least = least.scatter_reduce(0, prefixes.query, prefixes.logprob, "amax")
        return least

    def _cut(self, undone: Tensor) -> Tensor:
        """(queries,) the least log-probability of prefixes to open now: of about as many again as were opened."""
        query, order = torch.cat([prefixes.query for prefixes in self.open.values()]).sort(stable=True)
        logprob = torch.cat([prefixes.logprob for prefixes in self.open.values()])[order]
        cut = last_of_best(query, logprob, self.opened.clamp(min=BATCH))
        return cut.masked_fill(~undone, torch.inf)

    def _sweep(self, cut: Tensor, width: int) -> None:
        """Go from short prefixes to long ones and open those at or above the cut, at most `width` of each length."""
        length = 0
        while length <= max(self.open, default=-1):
            if length in self.open and len(chosen := self._taken(length, cut, width)):
                self._open(length, chosen)
            length += 1

    def _taken(self, length: int, cut: Tensor, width: int) -> Prefixes:
        """Take the best open prefixes of one length, and drop those that do not matter any more."""
        waiting = self.open.pop(length)
        waiting = waiting[self._mattering(waiting.query, waiting.logprob)]
        wanted = (waiting.logprob >= cut[waiting.query]).nonzero()[:, 0]
        if not len(wanted):
            chosen = wanted
        else:
            limit = (self.budget - self.opened).clamp(max=width)
            chosen = wanted[best_of_each(waiting.query[wanted], waiting.logprob[wanted], limit)]
        left = torch.ones(len(waiting), dtype=torch.bool, device=chosen.device).index_fill(0, chosen, False)
        if len(chosen) < len(waiting):
            self.open[length] = waiting[left]
        return waiting[chosen]

    def _mattering(self, query: Tensor, logprob: Tensor) -> Tensor:
        """Where prefixes or docids (n,) are that exceed the floor; the others are dropped."""
        above = logprob > self.floor[query]
        self._drop(query, logprob.masked_fill(above, -torch.inf))
        return above.nonzero()[:, 0]

    def _drop(self, query: Tensor, logprob: Tensor) -> None:
        self.dropped = self.dropped.scatter_reduce(0, query, logprob, "amax")

    # Opening them

    def _open(self, length: int, prefixes: Prefixes) -> None:
        """Open prefixes of one length: their children are open then, and docids that end there are found."""
        lone = self._can_finish(length, prefixes)
        ended = [self._finished(length, piece) for piece in self._passes(prefixes[lone], self._limit(length) // 4)]
        passes = self._passes(prefixes[~lone], self._limit(length))
        after: list[Prefixes] = []
        for piece in passes:
            states, number = self.reading.states(piece)
            docids, longer = self._children(length, piece, states)
            ended.append(docids)
            after.append(replace(longer, read=torch.full_like(longer.read, number)))
        if after:
            self._add_open(length + 1, Prefixes.joined(after))
        self._add_documents(ended)

    def _limit(self, length: int) -> int:
        """How many prefixes of one length are opened in one pass."""
        return max(1, min(TOGETHER, CHILDREN // max(1, self.walk.slots(length))))

    def _passes(self, prefixes: Prefixes, limit: int) -> Iterator[Prefixes]:
        """Prefixes in parts of at most `limit`, and at most EACH of a query."""
        for group in self.reading.groups(prefixes):
            query = group.query
            turn = (torch.arange(len(query), device=query.device) - torch.searchsorted(query, query)) // EACH
            for number in range(int(turn.max()) + 1 if len(query) else 0):
                for rows in (turn == number).nonzero()[:, 0].split(max(1, limit)):
                    yield group[rows]

    def _children(self, length: int, prefixes: Prefixes, states: Hidden) -> tuple[Docids, Prefixes]:
        """The docids that end behind prefixes, and the prefixes that go on; their parents are rows of these."""
        children = self.walk.children(prefixes.state, length)
        scores = child_scores(
            self.generator, states, children, self.normalisation, self.temperature, above=prefixes.state
        )
        total = prefixes.logprob[:, None] + scores.double()
        final = children.ended | children.alone if self.normalisation == "trie" else children.ended
        self.opened = self.opened.index_add(0, prefixes.query, torch.ones_like(prefixes.query))
        self._lose(prefixes, states, children)
        if self.recorder is not None:
            self._record(self.recorder, prefixes.symbols, children.token, children.state, total, final)
        row, column = (final & (total > -torch.inf)).nonzero().unbind(1)
        docids = self._shared(prefixes.query[row], children.state[row, column], total[row, column])
        row, column = (~final & (total > -torch.inf)).nonzero().unbind(1)
        query, logprob = prefixes.query[row], total[row, column]
        kept = self._mattering(query, logprob)
        row, column = row[kept], column[kept]
        symbols = torch.cat([prefixes.symbols[row], children.token[row, column, None]], 1)
        return docids, Prefixes(query[kept], logprob[kept], children.state[row, column], symbols, row, row)

    def _record(
        self, recorder: Recorder, symbols: Tensor, token: Tensor, state: Tensor, total: Tensor, final: Tensor
    ) -> None:
        """Take down the children (n, C) of prefixes (n, length) that are opened."""
        recorder.add([tuple(prefix) for prefix in symbols.tolist()], token, state, total, final, self.budget)

    def _lose(self, prefixes: Prefixes, states: Hidden, children: Children) -> None:
        """Add up the log-probability that the generator does not follow behind prefixes."""
        if not isinstance(self.generator, Partial):
            return
        lost = self.generator.lost(states).double()
        if self.normalisation == "trie":
            here = self.generator.logits(states, children.token).masked_fill(~children.exists, -torch.inf)
            lost = torch.sigmoid(lost - here.double().logsumexp(1)).log()
        grid, _ = _by_query(prefixes.query, prefixes.logprob + lost, len(self.lost))
        self.lost = torch.logaddexp(self.lost, grid.logsumexp(1))

    def _can_finish(self, length: int, prefixes: Prefixes) -> Tensor:
        """(n,) bool, which prefixes have one docid left whose end is worth a pass, and fits into the budget."""
        if not length or self.normalisation == "trie" or isinstance(self.generator, Partial):
            return torch.zeros_like(prefixes.query, dtype=torch.bool)
        lengths = self.walk.tail_lengths(prefixes.state)
        lone = self.walk.alone(prefixes.state) & (lengths > 1)  # one symbol needs no pass of its own
        opened = self.opened.index_add(0, prefixes.query, torch.where(lone, lengths, 1))
        return lone & (opened <= self.budget)[prefixes.query]

    def _finished(self, length: int, prefixes: Prefixes) -> Docids:
        """The only docid behind each prefix, read to its end."""
        symbols, lengths = self.walk.tails(prefixes.state)
        states = self.reading.states_along(prefixes, symbols[:, :-1])
        scores = tail_scores(self.generator, states, symbols, lengths, self.temperature).double()
        self.opened = self.opened.index_add(0, prefixes.query, lengths)
        if self.recorder is not None:
            self._record_tails(self.recorder, length, prefixes, symbols, lengths, scores)
        return self._shared(prefixes.query, prefixes.state, prefixes.logprob + scores.sum(1))

    def _record_tails(
        self, recorder: Recorder, length: int, prefixes: Prefixes, symbols: Tensor, lengths: Tensor, scores: Tensor
    ) -> None:
        """Take down the prefixes on the way to the ends of docids, as if they were opened one by one."""
        state, written, total = prefixes.state, prefixes.symbols, prefixes.logprob
        for at in range(symbols.shape[1]):
            on = (lengths > at).nonzero()[:, 0]
            state, written, total, symbols = state[on], written[on], total[on] + scores[on, at], symbols[on]
            lengths, scores = lengths[on], scores[on]
            children = self.walk.children(state, length + at)
            slot = children.exists.int().argmax(1, keepdim=True)
            state = children.state.gather(1, slot[..., None].expand(-1, -1, state.shape[1]))
            token = symbols[:, at, None]
            self._record(recorder, written, token, state, total[:, None], children.ended.gather(1, slot))
            state, written = state[:, 0], torch.cat([written, token], 1)

    def _shared(self, query: Tensor, state: Tensor, total: Tensor) -> Docids:
        """Docids (n,) with what each of their documents has, but for those that cannot be among the best."""
        share = total - self.walk.living(state).clamp(min=1).double().log()
        if self.found.one_docid_each and len(query):
            above = share >= self.floor[query]
            self._drop(query, share.masked_fill(above, -torch.inf))
            least = last_of_best(query, share, torch.full_like(self.opened, self.k + 1))
            kept = above & (share >= least[query])
            query, state, share = query[kept], state[kept], share[kept]
        return query, state, share

    def _add_documents(self, docids: Sequence[Docids]) -> None:
        """Look up the documents of docids; the k-th document is the floor from now on."""
        query, state, share = (torch.cat(column).cpu().numpy() for column in zip(*docids, strict=True))
        if not len(query):
            return
        self.found.add(query, state, share)
        if self.found.one_docid_each:
            self.floor = torch.tensor(self.found.kth, device=self.walk.device)

    def _add_open(self, length: int, longer: Prefixes) -> None:
        """Add prefixes to those that may be opened, but for those that the budget is too small for in any case."""
        if not len(longer):
            return
        left = (self.budget - self.opened + 1).clamp(min=1)
        counts = longer.query.bincount(minlength=len(left))
        if self.found.one_docid_each and bool((counts > left).any()):
            best = best_of_each(longer.query, longer.logprob, left)
            self._drop(longer.query, longer.logprob.index_fill(0, best, -torch.inf))
            longer = longer[best]
        parts = [self.open[length], longer] if length in self.open else [longer]
        self.open[length] = Prefixes.joined(parts)
