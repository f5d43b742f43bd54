"""Exact search: the true best documents, with a certificate, or how near the search came.

Prefixes are opened best first. A prefix's probability bounds all below it, so a document that is not
found yet has at most its number of open docids times the best open prefix, and at most all open mass.
When the k-th best found is at or above what any other document can still reach, the search is done.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import torch
from torch import Tensor

from triever.docids.walk import Walk
from triever.models.generator import Cache, Generator
from triever.search.hits import best, shares
from triever.search.scores import Normalisation, child_scores

BATCH = 64
"""Prefixes opened in one pass; more waste work on prefixes that a better one would have made useless."""


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

    def __str__(self) -> str:
        if self.certified:
            return f"exact: {self.opened} prefixes opened"
        return f"budget spent after {self.opened} prefixes: another document can have up to log p = {self.bound:.4g}"


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
) -> list[Certified]:
    """The k best documents of each query; `budget` is how many prefixes may be opened for one."""
    docids = docids_of(walk)
    return [
        _Query(generator, cache, hidden, walk, row, docids, normalisation, temperature).run(k, budget)
        for row in range(hidden.shape[0])
    ]


def docids_of(walk: Walk) -> Counter[int]:
    """How many living docids each document has."""
    total: Counter[int] = Counter()
    for part in walk.parts:
        documents = part.arrays.document if part.mask is None else part.arrays.document[part.mask]
        numbers, counts = np.unique(documents, return_counts=True)
        total.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
    return total


@dataclass
class _Query:
    """The search for one query."""

    generator: Generator
    cache: Cache
    hidden: Tensor
    walk: Walk
    row: int
    docids: Counter[int]
    normalisation: Normalisation
    temperature: float
    open: list[tuple[float, int, tuple[int, ...], list[int]]] = field(default_factory=list)
    found: dict[int, float] = field(default_factory=lambda: defaultdict(lambda: -math.inf))  # log-probabilities
    missing: Counter[int] = field(default_factory=Counter)
    opened: int = 0
    order: Iterator[int] = field(default_factory=count)

    def run(self, k: int, budget: int) -> Certified:
        self.missing = self.docids.copy()
        if self.docids:
            self._push((), self.walk.root(1)[0].tolist(), 0.0)
        while self.open and self.opened < budget and not self._is_certain(k):
            self._open_some(min(BATCH, budget - self.opened))
        certain = self._is_certain(k)
        return Certified(self._top(k), certain, self.opened, self._bound(k))

    def _top(self, k: int) -> list[tuple[int, float]]:
        return best(dict(self.found), k)

    def _is_certain(self, k: int) -> bool:
        top = self._top(k)
        if not self.open:
            return True
        return len(top) == min(k, len(self.docids)) and top[-1][1] >= self._bound(k)

    def _bound(self, k: int) -> float:
        """What a document outside the first k can have at most."""
        if not self.open:
            return -math.inf
        top = {document for document, _ in self._top(k)}
        unseen = max((left for document, left in self.missing.items() if document not in self.found), default=0)
        others = (document for document in self.found if document not in top)
        more = self._more
        return max([more(unseen), *(np.logaddexp(self.found[one], more(self.missing[one])) for one in others)])

    @property
    def _more(self) -> Callable[[int], float]:
        """What so many docids that are not found yet can add at most: each the best open prefix, together all."""
        best = -self.open[0][0]
        whole = min(0.0, float(np.logaddexp.reduce([-one[0] for one in self.open]))) if self._several else best
        return lambda docids: min(whole, best + math.log(docids)) if docids else -math.inf

    @property
    def _several(self) -> bool:
        return max(self.docids.values(), default=1) > 1

    def _push(self, prefix: tuple[int, ...], state: list[int], logprob: float) -> None:
        heapq.heappush(self.open, (-logprob, next(self.order), prefix, state))

    def _open_some(self, most: int) -> None:
        """Open the best prefixes of one length, the length of the very best."""
        taken, put_back = [heapq.heappop(self.open)], []
        while self.open and len(taken) < most and len(taken) + len(put_back) < 4 * BATCH:
            one = heapq.heappop(self.open)
            (taken if len(one[2]) == len(taken[0][2]) else put_back).append(one)
        for one in put_back:
            heapq.heappush(self.open, one)
        self.opened += len(taken)
        self._expand(taken)

    def _expand(self, taken: list[tuple[float, int, tuple[int, ...], list[int]]]) -> None:
        length = len(taken[0][2])
        state = torch.tensor([one[3] for one in taken], device=self.walk.device)
        children = self.walk.children(state, length)
        hidden = self._hidden([one[2] for one in taken])
        scores = child_scores(self.generator, hidden, children, self.normalisation, self.temperature)
        ended = children.ended | children.alone if self.normalisation == "trie" else children.ended
        for at, slot in children.exists.nonzero().tolist():
            logprob = -taken[at][0] + float(scores[at, slot])
            below = children.state[at, slot].tolist()
            if bool(ended[at, slot]):
                self._find(below, logprob)
            elif logprob > -math.inf:
                self._push((*taken[at][2], int(children.token[at, slot])), below, logprob)

    def _hidden(self, prefixes: list[tuple[int, ...]]) -> Tensor:
        if not prefixes[0]:
            return self.hidden[self.row : self.row + 1].expand(len(prefixes), -1)
        parents = torch.full((len(prefixes),), self.row, device=self.walk.device)
        _, hidden = self.generator.extend(self.cache, parents, torch.tensor(prefixes, device=self.walk.device))
        return hidden[:, -1]

    def _find(self, state: list[int], logprob: float) -> None:
        for document, mass in shares(self.walk, state, logprob):
            self.found[document] = float(np.logaddexp(self.found[document], mass))
            self.missing[document] -= 1
