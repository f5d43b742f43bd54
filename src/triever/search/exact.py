"""Exact search: the true best documents, with a certificate, or how near the search came.

Prefixes are opened best first. A prefix's probability bounds all below it, so a document that is not
found yet has at most its number of open docids times the best open prefix, and at most all open mass.
When the k-th best found is at or above what any other document can still reach, the search is done.

A generator that follows only a part of a prefix says which share it does not. That may belong to any document, and is
added to what others can reach; so is it over all symbols, and near it over those of the trie alone.

Children are many where docids are short, and few of them matter: with one docid for each document, the best
k + 1 that end (the last one bounds the others), and no more prefixes than may still be opened.

Queries that were read together are searched together: each says which prefixes it wants opened next, and those of one
length are opened in one pass.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from triever.docids.walk import Children, Walk
from triever.models.generator import Cache, Generator, Partial
from triever.search.hits import best
from triever.search.scores import Normalisation, child_scores

BATCH = 64
"""Prefixes of a query opened in one pass; more waste work on prefixes that a better one would have made useless."""
TOGETHER = 1024
"""Prefixes of all queries opened in one pass, at most; fewer where each may have many children."""
CHILDREN = 2**24
"""Children of all these."""
FEW = 2**20
"""Children that are looked at on the processor: many small questions to a GPU take longer than one answer."""

LOWEST = float(np.finfo(np.float64).min)
"""Below this is only -inf, the log-probability of nothing."""

Prefix: TypeAlias = tuple[float, int, tuple[int, ...], list[int]]
"""Minus the log-probability of a prefix, its turn among equal ones, its symbols and its state."""


@dataclass(frozen=True)
class Certified:
    """The best documents with their log-probabilities; `bound` is the log-probability that no other exceeds.

    The certificate is about which documents are best. Where a document has several docids, those that were
    not needed to tell are missing from its probability, which is then a lower bound.
    """

    documents: list[tuple[int, float]]
    certified: bool
    opened: int
    bound: float
    lost: float = -math.inf
    """The log-probability of all that the generator did not follow."""

    def __str__(self) -> str:
        if self.certified:
            return f"exact: {self.opened} prefixes opened"
        why = "budget spent" if self.lost < self.bound - math.log(2) else "too much was not followed"
        return f"{why} after {self.opened} prefixes: another document can have up to log p = {self.bound:.4g}"


def exact(
    generator: Generator,
    cache: Cache,
    hidden: Tensor,
    walk: Walk,
    k: int,
    *,
    budget: int = 10_000,
    normalisation: Normalisation = "trie",
    temperature: float = 1.0,
    ties: bool = False,
) -> list[Certified]:
    """The k best documents of each query; `budget` is how many prefixes may be opened for one.

    With `ties`, all that were found and tie with the k-th are there, for another order to choose from.
    """
    wanted = min(k, walk.counts[0])
    queries = [_Query(walk, row, wanted, budget, normalisation) for row in range(hidden.shape[0])]
    opener = _Opener(generator, cache, hidden, walk, normalisation, temperature)
    while asked := [(query, query.wants()) for query in queries if query.goes_on()]:
        for length in sorted({len(taken[0][2]) for _, taken in asked}):
            most = min(TOGETHER, CHILDREN // max(1, walk.slots(length)))
            for some in _some_at_a_time([one for one in asked if len(one[1][0][2]) == length], most):
                opener.open(some)
    return [query.result(ties) for query in queries]


QueryPrefixes: TypeAlias = "tuple[_Query, list[Prefix]]"
"""A query, and the prefixes that it wants opened, all of one length."""


def _some_at_a_time(asked: list[QueryPrefixes], most: int) -> Iterator[list[QueryPrefixes]]:
    """As many queries at once as want no more than so many prefixes, but at least one."""
    some: list[QueryPrefixes] = []
    for one in asked:
        if some and sum(len(taken) for _, taken in some) + len(one[1]) > most:
            yield some
            some = []
        some.append(one)
    yield some


@dataclass(frozen=True)
class NextSymbols:
    """What follows n prefixes, in C slots."""

    token: Tensor  # (n, C)
    state: Tensor  # (n, C, parts)
    share: Tensor  # (n, C) of a docid that ends there the log-probability of each of its documents, else -inf
    prefix: Tensor  # (n, C) of a prefix that goes on its log-probability, else -inf

    def rows(self, some: slice) -> NextSymbols:
        """Those of some prefixes."""
        return NextSymbols(self.token[some], self.state[some], self.share[some], self.prefix[some])

    def to(self, device: str) -> NextSymbols:
        """The same elsewhere."""
        return NextSymbols(*(part.to(device) for part in (self.token, self.state, self.share, self.prefix)))


@dataclass(frozen=True)
class _Opener:
    """What opens prefixes, of several queries at once."""

    generator: Generator
    cache: Cache
    hidden: Tensor
    walk: Walk
    normalisation: Normalisation
    temperature: float

    def open(self, asked: list[QueryPrefixes]) -> None:
        """Give each query what lies below its prefixes, all of which have one length."""
        prefixes = [one for _, taken in asked for one in taken]
        state = torch.tensor([one[3] for one in prefixes], device=self.walk.device)
        children = self.walk.children(state, len(prefixes[0][2]))
        hidden = self._hidden([query.row for query, taken in asked for _ in taken], [one[2] for one in prefixes])
        scores = child_scores(self.generator, hidden, children, self.normalisation, self.temperature)
        above = torch.tensor([-one[0] for one in prefixes], dtype=torch.float64, device=scores.device)
        below = self._below(children, above[:, None] + scores.double())
        lost = self._lost(above, hidden, children)
        begin = 0
        for query, taken in asked:
            here = slice(begin, begin + len(taken))
            query.takes(taken, below.rows(here), None if lost is None else lost[here])
            begin += len(taken)

    def _below(self, children: Children, total: Tensor) -> NextSymbols:
        over = children.ended | children.alone if self.normalisation == "trie" else children.ended
        share = total - self.walk.living(children.state).clamp(min=1).double().log()
        shares, prefixes = share.masked_fill(~over, -torch.inf), total.masked_fill(over, -torch.inf)
        found = NextSymbols(children.token, children.state, shares, prefixes)
        return found.to("cpu") if total.numel() <= FEW else found

    def _hidden(self, rows: list[int], prefixes: list[tuple[int, ...]]) -> Tensor:
        parents = torch.tensor(rows, device=self.walk.device)
        if not prefixes[0]:
            return self.hidden[parents]
        _, hidden = self.generator.extend(self.cache, parents, torch.tensor(prefixes, device=self.walk.device))
        return hidden[:, -1]

    def _lost(self, above: Tensor, hidden: Tensor, children: Children) -> Tensor | None:
        """The log-probabilities of what the generator does not follow below prefixes of these log-probabilities."""
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
    open: list[Prefix] = field(default_factory=list)
    found: dict[int, float] = field(default_factory=lambda: defaultdict(lambda: -math.inf))  # log-probabilities
    missing: dict[int, int] = field(default_factory=dict)  # of a document with several docids: those not found yet
    lost: float = -math.inf  # log-probability of what the generator did not follow
    opened: int = 0
    order: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.missing = dict(self._several)
        if self.k:
            self._push((), self.walk.root(1)[0].tolist(), 0.0)

    def goes_on(self) -> bool:
        """Whether there is something to open that could still matter."""
        return bool(self.open) and self.opened < self.budget and not self._is_certain(self._bound())

    def result(self, ties: bool) -> Certified:
        """What was found."""
        # Nothing that is opened brings back what was not followed, so it counts only in the end.
        bound = float(np.logaddexp(self._bound(), self.lost))
        documents = best(self.found, self.k, ties=ties)
        return Certified(documents, self._is_certain(bound), self.opened, bound, self.lost)

    def _is_certain(self, bound: float) -> bool:
        """Whether no other document has more than the k-th, where none can have more than this."""
        top = best(self.found, self.k)
        if len(top) < self.k:
            return not self.open and self.lost == -math.inf  # the others have no probability at all
        return self.k == self.walk.counts[0] or top[-1][1] >= bound

    def _bound(self) -> float:
        """What a document outside the first k can have at most, if all is followed."""
        top = {document for document, _ in best(self.found, self.k)}
        more = self._more
        others = (
            float(np.logaddexp(mass, more(self.missing.get(document, 0))))
            for document, mass in self.found.items()
            if document not in top
        )
        return max([more(self._unseen), *others])

    @property
    def _several(self) -> Mapping[int, int]:
        return self.walk.counts[1]

    @property
    def _unseen(self) -> int:
        """The most docids that a document has of which none is found yet."""
        several = (left for document, left in self.missing.items() if document not in self.found)
        return max([1 if len(self.found) < self.walk.counts[0] else 0, *several])

    @property
    def _more(self) -> Callable[[int], float]:
        """What so many docids that are not found yet can add at most: each the best open prefix, together all."""
        if not self.open:
            return lambda _docids: -math.inf
        highest = -self.open[0][0]
        whole = min(0.0, float(np.logaddexp.reduce([-one[0] for one in self.open]))) if self._several else highest
        return lambda docids: min(whole, highest + math.log(docids)) if docids else -math.inf

    def _push(self, prefix: tuple[int, ...], state: list[int], logprob: float) -> None:
        heapq.heappush(self.open, (-logprob, next(self.order), prefix, state))

    def wants(self) -> list[Prefix]:
        """The best prefixes of one length, the length of the very best, which are to be opened now."""
        most = min(BATCH, self.budget - self.opened)
        taken, put_back = [heapq.heappop(self.open)], []
        while self.open and len(taken) < most and len(taken) + len(put_back) < 4 * BATCH:
            one = heapq.heappop(self.open)
            (taken if len(one[2]) == len(taken[0][2]) else put_back).append(one)
        for one in put_back:
            heapq.heappush(self.open, one)
        self.opened += len(taken)
        return taken

    def takes(self, taken: list[Prefix], below: NextSymbols, lost: Tensor | None) -> None:
        """What lies below prefixes that were opened, and what of them (n,) is not followed."""
        if lost is not None:
            self.lost = float(np.logaddexp(self.lost, float(lost.logsumexp(0))))
        self._find(below)
        self._keep_open(taken, below)

    def _find(self, below: NextSymbols) -> None:
        """Give the documents of docids that end their shares."""
        chosen = below.share >= self._least(below.share, self.k + 1)
        for state, mass in zip(below.state[chosen].tolist(), below.share[chosen].tolist(), strict=True):
            for document in self.walk.documents(state):
                self.found[document] = float(np.logaddexp(self.found[document], mass))
                if document in self.missing:
                    self.missing[document] -= 1

    def _keep_open(self, taken: list[Prefix], below: NextSymbols) -> None:
        """Put longer prefixes among those that may be opened."""
        chosen = below.prefix >= self._least(below.prefix, self.budget - self.opened + 1)
        parents = [taken[at][2] for at in chosen.nonzero()[:, 0].tolist()]
        columns = (below.token[chosen], below.state[chosen], below.prefix[chosen])
        for prefix, token, state, mass in zip(parents, *(column.tolist() for column in columns), strict=True):
            self._push((*prefix, token), state, mass)

    def _least(self, values: Tensor, wanted: int) -> float:
        """What a value must have to be among the wanted; where documents have several docids, all that exist are."""
        if self._several or wanted >= values.numel():
            return LOWEST
        return max(float(values.flatten().topk(wanted).values[-1]), LOWEST)
