"""Exact search: it returns the true best documents with a certificate, or says how near it came.

Prefixes are opened best first. The probability of a prefix bounds that of everything below it. So a document that is
not found yet has at most its number of open docids times the probability of the best open prefix, and at most the
probability of all open prefixes together. The search is done when the k-th best document has at least as much as any
other document can still reach.

A generator that follows only a part of a prefix says which share it does not follow. That share may belong to any
document, so it is added to what other documents can reach. This is exact with `vocabulary` normalisation, and nearly
exact with `trie`.

Where docids are short, prefixes have many children, of which few matter. With one docid for each document these are
the best k + 1 docids that end (the last one bounds the rest), and as many prefixes as may still be opened.

Queries that were read together are searched together: each says which prefixes to open next, and all prefixes of one
length are opened in one pass.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from triever.docids.walk import Children, Walk
from triever.models.generator import Cache, Generator, Hidden, Partial
from triever.search.hits import best
from triever.search.recorder import Recorder
from triever.search.scores import Normalisation, child_scores

BATCH = 64
"""Prefixes of a query that are opened in one pass; with more, many turn out to have been useless."""
TOGETHER = 1024
"""The most prefixes of all queries that are opened in one pass; fewer if each may have many children."""
CHILDREN = 2**24
"""The most children of all prefixes that are opened in one pass."""
FEW = 2**20
"""Up to so many children are looked at on the processor: many small calls to a GPU take longer than one copy."""

LOWEST = float(np.finfo(np.float64).min)
"""The lowest finite number; only -inf, the log-probability of nothing, is below it."""


class Prefix(NamedTuple):
    """A prefix that may be opened; a heap of them has the likeliest first, and of equal ones the first that came."""

    cost: float  # minus its log-probability
    turn: int
    symbols: tuple[int, ...]
    state: list[int]


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
    wanted = min(k, walk.counts[0])
    queries = [_Query(walk, row, wanted, budget, normalisation, recorder) for row in range(len(hidden))]
    opener = _Opener(generator, cache, hidden, walk, normalisation, temperature)
    while requests := [(query, query.next_prefixes()) for query in queries if query.goes_on()]:
        by_length: dict[int, list[QueryPrefixes]] = defaultdict(list)
        for query, prefixes in requests:
            by_length[len(prefixes[0].symbols)].append((query, prefixes))
        for length in sorted(by_length):
            limit = min(TOGETHER, CHILDREN // max(1, walk.slots(length)))
            for batch in _batches(by_length[length], limit):
                opener.open(batch)
    return [query.result(ties) for query in queries]


def _log_sum(logs: Iterable[float]) -> float:
    """The log of the sum of numbers that are given as logs."""
    return float(np.logaddexp.reduce(list(logs)))


QueryPrefixes: TypeAlias = "tuple[_Query, list[Prefix]]"
"""A query, and the prefixes to open for it, all of one length."""


def _batches(requests: list[QueryPrefixes], limit: int) -> Iterator[list[QueryPrefixes]]:
    """Batches of queries whose prefixes are at most `limit` together; a batch has at least one query."""
    batch: list[QueryPrefixes] = []
    for query, prefixes in requests:
        if batch and sum(len(others) for _, others in batch) + len(prefixes) > limit:
            yield batch
            batch = []
        batch.append((query, prefixes))
    yield batch


@dataclass(frozen=True)
class NextSymbols:
    """The children of n prefixes, in C slots."""

    token: Tensor  # (n, C)
    state: Tensor  # (n, C, parts)
    share: Tensor  # (n, C) the log-probability of each document of a docid that ends there, else -inf
    prefix: Tensor  # (n, C) the log-probability of a prefix that goes on, else -inf

    def rows(self, rows: slice) -> NextSymbols:
        """The children of a part of the prefixes."""
        return NextSymbols(self.token[rows], self.state[rows], self.share[rows], self.prefix[rows])

    def to(self, device: str) -> NextSymbols:
        """A copy on another device."""
        return NextSymbols(*(part.to(device) for part in (self.token, self.state, self.share, self.prefix)))


@dataclass(frozen=True)
class _Opener:
    """Opens prefixes of several queries at once."""

    generator: Generator
    cache: Cache
    hidden: Hidden
    walk: Walk
    normalisation: Normalisation
    temperature: float

    def open(self, requests: list[QueryPrefixes]) -> None:
        """Give each query the children of its prefixes, all of which have one length."""
        prefixes = [prefix for _, taken in requests for prefix in taken]
        state = torch.tensor([prefix.state for prefix in prefixes], device=self.walk.device)
        children = self.walk.children(state, len(prefixes[0].symbols))
        rows = [query.row for query, taken in requests for _ in taken]
        hidden = self._hidden(rows, [prefix.symbols for prefix in prefixes])
        scores = child_scores(self.generator, hidden, children, self.normalisation, self.temperature, above=state)
        above = torch.tensor([-prefix.cost for prefix in prefixes], dtype=torch.float64, device=scores.device)
        below = self._below(children, above[:, None] + scores.double())
        lost = self._lost(above, hidden, children)
        begin = 0
        for query, taken in requests:
            here = slice(begin, begin + len(taken))
            query.add_children(taken, below.rows(here), None if lost is None else lost[here])
            begin += len(taken)

    def _below(self, children: Children, total: Tensor) -> NextSymbols:
        over = children.ended | children.alone if self.normalisation == "trie" else children.ended
        share = total - self.walk.living(children.state).clamp(min=1).double().log()
        shares, prefixes = share.masked_fill(~over, -torch.inf), total.masked_fill(over, -torch.inf)
        below = NextSymbols(children.token, children.state, shares, prefixes)
        return below.to("cpu") if total.numel() <= FEW else below

    def _hidden(self, rows: list[int], prefixes: list[tuple[int, ...]]) -> Hidden:
        parents = torch.tensor(rows, device=self.walk.device)
        if not prefixes[0]:
            return self.hidden[parents]
        _, hidden = self.generator.extend(self.cache, parents, torch.tensor(prefixes, device=self.walk.device))
        return hidden[:, -1]

    def _lost(self, above: Tensor, hidden: Hidden, children: Children) -> Tensor | None:
        """(n,) the log-probability that the generator does not follow below prefixes of log-probability `above`."""
        if not isinstance(self.generator, Partial):
            return None
        lost = self.generator.lost(hidden).double()
        if self.normalisation == "trie":
            here = self.generator.logits(hidden, children.token).masked_fill(~children.exists, -torch.inf)
            lost = torch.sigmoid(lost - here.double().logsumexp(1)).log()
        return above + lost


@dataclass
class _Query:
    """The search for one query."""

    walk: Walk
    row: int
    k: int  # at most the number of documents
    budget: int
    normalisation: Normalisation
    recorder: Recorder | None
    open: list[Prefix] = field(default_factory=list)
    logprobs: dict[int, float] = field(default_factory=lambda: defaultdict(lambda: -math.inf))  # of found documents
    missing: dict[int, int] = field(default_factory=dict)  # for documents with several docids: those not found yet
    lost: float = -math.inf  # log-probability of what the generator did not follow
    opened: int = 0
    order: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.missing = dict(self._several)
        if self.recorder is not None:
            self.recorder.begin()
        if self.k:
            self._push((), self.walk.root(1)[0].tolist(), 0.0)

    def goes_on(self) -> bool:
        """Whether opening another prefix could still change the result."""
        return bool(self.open) and self.opened < self.budget and not self._is_certain(self._bound())

    def result(self, ties: bool) -> Certified:
        """The best documents, with a bound for all others."""
        # Opening more prefixes cannot regain what was not followed, so it counts only at the end.
        bound = float(np.logaddexp(self._bound(), self.lost))
        documents = best(self.logprobs, self.k, ties=ties)
        if self.recorder is not None:
            self.recorder.end_exact((document for document, _ in documents), self.walk.documents)
        return Certified(documents, self._is_certain(bound), self.opened, bound, self.lost)

    def _is_certain(self, bound: float) -> bool:
        """Whether no other document can have more than the k-th, if none can have more than `bound`."""
        top = best(self.logprobs, self.k)
        if len(top) < self.k:
            return not self.open and self.lost == -math.inf  # all other documents have probability zero
        return self.k == self.walk.counts[0] or top[-1][1] >= bound

    def _bound(self) -> float:
        """The most that a document outside the first k can have, if everything is followed."""
        top = {document for document, _ in best(self.logprobs, self.k)}
        more = self._more
        bounds = (
            float(np.logaddexp(mass, more(self.missing.get(document, 0))))
            for document, mass in self.logprobs.items()
            if document not in top
        )
        return max([more(self._unseen), *bounds])

    @property
    def _several(self) -> Mapping[int, int]:
        return self.walk.counts[1]

    @property
    def _unseen(self) -> int:
        """The highest number of docids of any document that is not found yet."""
        several = (left for document, left in self.missing.items() if document not in self.logprobs)
        return max([1 if len(self.logprobs) < self.walk.counts[0] else 0, *several])

    @property
    def _more(self) -> Callable[[int], float]:
        """A function from a number of docids that are not found yet to the most log-probability that they can add.

        Each adds at most the best open prefix, and together they add at most all open prefixes.
        """
        if not self.open:
            return lambda _docids: -math.inf
        highest = -self.open[0].cost
        whole = min(0.0, _log_sum(-prefix.cost for prefix in self.open)) if self._several else highest
        return lambda docids: min(whole, highest + math.log(docids)) if docids else -math.inf

    def _push(self, symbols: tuple[int, ...], state: list[int], logprob: float) -> None:
        heapq.heappush(self.open, Prefix(-logprob, next(self.order), symbols, state))

    def next_prefixes(self) -> list[Prefix]:
        """The best prefixes to open now, all as long as the very best one."""
        limit = min(BATCH, self.budget - self.opened)
        taken, put_back = [heapq.heappop(self.open)], []
        while self.open and len(taken) < limit and len(taken) + len(put_back) < 4 * BATCH:
            prefix = heapq.heappop(self.open)
            (taken if len(prefix.symbols) == len(taken[0].symbols) else put_back).append(prefix)
        for prefix in put_back:
            heapq.heappush(self.open, prefix)
        self.opened += len(taken)
        return taken

    def add_children(self, taken: list[Prefix], below: NextSymbols, lost: Tensor | None) -> None:
        """Add the children of prefixes that were opened, and the log-probability (n,) that was not followed."""
        if lost is not None:
            self.lost = float(np.logaddexp(self.lost, float(lost.logsumexp(0))))
        if self.recorder is not None:
            self._record(self.recorder, taken, below)
        self._add_documents(below)
        self._keep_open(taken, below)

    def _record(self, recorder: Recorder, taken: list[Prefix], below: NextSymbols) -> None:
        """Take down the children of prefixes that were opened; a docid has what its documents share."""
        sharing = self.walk.living(below.state.to(self.walk.device)).clamp(min=1).to(below.share)
        logprob = torch.maximum(below.share + sharing.log(), below.prefix)
        final = below.share.isfinite()
        recorder.add([prefix.symbols for prefix in taken], below.token, below.state, logprob, final, self.budget)

    def _add_documents(self, below: NextSymbols) -> None:
        """Add the shares of docids that end to the log-probabilities of their documents."""
        chosen = below.share >= self._threshold(below.share, self.k + 1)
        for state, mass in zip(below.state[chosen].tolist(), below.share[chosen].tolist(), strict=True):
            for document in self.walk.documents(state):
                self.logprobs[document] = float(np.logaddexp(self.logprobs[document], mass))
                if document in self.missing:
                    self.missing[document] -= 1

    def _keep_open(self, taken: list[Prefix], below: NextSymbols) -> None:
        """Add the prefixes that go on to those that may be opened."""
        chosen = below.prefix >= self._threshold(below.prefix, self.budget - self.opened + 1)
        parents = [taken[at].symbols for at in chosen.nonzero()[:, 0].tolist()]
        columns = (below.token[chosen], below.state[chosen], below.prefix[chosen])
        for symbols, token, state, mass in zip(parents, *(column.tolist() for column in columns), strict=True):
            self._push((*symbols, token), state, mass)

    def _threshold(self, values: Tensor, wanted: int) -> float:
        """The lowest of the `wanted` highest values; LOWEST if documents have several docids: then all values count."""
        if self._several or wanted >= values.numel():
            return LOWEST
        return max(float(values.flatten().topk(wanted).values[-1]), LOWEST)
