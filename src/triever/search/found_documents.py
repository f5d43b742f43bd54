"""The documents that an exact search has found so far, for many queries at once, and what any other can still reach."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from triever.docids.walk import Walk


@dataclass
class FoundDocuments:
    """`found = FoundDocuments(walk, queries, k)`, then `found.add(query, state, share)`.

    If every document has one docid, only the first k + 1 of each query and those that tie with the k-th are kept: the
    one behind the k-th bounds all that were dropped.
    """

    walk: Walk
    queries: int
    k: int
    query: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # (n,) all in the order of queries
    document: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    logprob: np.ndarray = field(default_factory=lambda: np.empty(0))
    docids: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # how many docids of each were found
    rank: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # from 0, of equal ones the smaller first
    kth: np.ndarray = field(init=False)
    """(queries,) the log-probability of the k-th document, -inf where fewer are found."""

    def __post_init__(self) -> None:
        self.kth = np.full(self.queries, -np.inf if self.k else np.inf)
        total, several = self.walk.counts
        self.total = total
        self._several = np.array(sorted(several.items()), np.int64).reshape(-1, 2)

    @property
    def one_docid_each(self) -> bool:
        """Whether no document has several docids."""
        return not len(self._several)

    def add(self, query: np.ndarray, state: np.ndarray, share: np.ndarray) -> None:
        """Add docids (n,) of queries by their states (n, parts); each of their documents has the share (n,)."""
        which, documents = self.walk.documents_of(state)
        owner = np.concatenate([self.query, query[which]])
        number = np.concatenate([self.document, documents])
        mass = np.concatenate([self.logprob, share[which]])
        docids = np.concatenate([self.docids, np.ones(len(which), np.int64)])
        order = np.lexsort((number, owner))
        owner, number = owner[order], number[order]
        first = np.flatnonzero((np.diff(owner, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0))
        if len(first):
            mass, docids = np.logaddexp.reduceat(mass[order], first), np.add.reduceat(docids[order], first)
        self._rank(owner[first], number[first], mass, docids)

    def _rank(self, owner: np.ndarray, number: np.ndarray, mass: np.ndarray, docids: np.ndarray) -> None:
        """Order the documents of each query by their log-probabilities, and drop those that no longer count."""
        order = np.lexsort((number, -mass, owner))
        owner, number, mass, docids = owner[order], number[order], mass[order], docids[order]
        rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
        last = rank == self.k - 1
        self.kth[owner[last]] = mass[last]
        kept = np.ones(len(owner), bool)
        if self.one_docid_each:
            kept = (rank <= self.k) | (mass >= self.kth[owner])
        columns = (owner, number, mass, docids, rank)
        self.query, self.document, self.logprob, self.docids, self.rank = (column[kept] for column in columns)

    def bounds(self, highest: np.ndarray, whole: np.ndarray) -> np.ndarray:
        """(queries,) the most that a document outside the first k can have.

        A docid that is not found yet adds at most what the best open prefix has, `highest` (queries,). All of them
        together add at most what all open prefixes have, `whole` (queries,).
        """
        bounds = _more(self._unseen(), highest, whole)
        others = self.rank >= self.k
        query, missing = self.query[others], self._missing()[others]
        np.maximum.at(bounds, query, np.logaddexp(self.logprob[others], _more(missing, highest[query], whole[query])))
        return bounds

    def certain(self, bounds: np.ndarray, ended: np.ndarray) -> np.ndarray:
        """(queries,) whether no other document can have more than the k-th, if none can have more than `bounds`.

        `ended` (queries,) says for which queries all docids that have any probability are found.
        """
        full = np.bincount(self.query, minlength=self.queries) >= self.k
        return np.where(full, (self.kth >= bounds) | (self.k == self.total), ended)

    def best(self, *, ties: bool) -> list[list[tuple[int, float]]]:
        """For each query the k best documents, of equal ones the smaller number first; with `ties`, all equal ones."""
        kept = self.rank < self.k
        if ties:
            kept |= self.logprob >= self.kth[self.query]
        begin = np.searchsorted(self.query[kept], np.arange(self.queries + 1)).tolist()
        pairs = list(zip(self.document[kept].tolist(), self.logprob[kept].tolist(), strict=True))
        return [pairs[low:high] for low, high in pairwise(begin)]

    def _missing(self) -> np.ndarray:
        """(n,) how many docids of each document are not found yet."""
        if self.one_docid_each:
            return np.zeros(len(self.document), np.int64)
        at = np.searchsorted(self._several[:, 0], self.document).clip(max=len(self._several) - 1)
        docids = np.where(self._several[at, 0] == self.document, self._several[at, 1], 1)
        return docids - self.docids

    def _unseen(self) -> np.ndarray:
        """(queries,) the highest number of docids of any document that is not found yet."""
        unseen = (np.bincount(self.query, minlength=self.queries) < self.total).astype(np.int64)
        if self.one_docid_each:
            return unseen
        begin = np.searchsorted(self.query, np.arange(self.queries + 1))
        for at, (low, high) in enumerate(pairwise(begin)):
            left = ~np.isin(self._several[:, 0], self.document[low:high])
            unseen[at] = self._several[left, 1].max(initial=unseen[at])
        return unseen


def _more(docids: np.ndarray, highest: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """The most log-probability that so many docids which are not found yet can add; -inf for none."""
    with np.errstate(divide="ignore"):
        return np.minimum(whole, highest + np.log(docids))
