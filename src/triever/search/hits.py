"""From docids to documents: the documents of a docid share its probability; a document sums over its docids."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from triever.docids.walk import Walk
from triever.search.beam import Frontier


def documents(walk: Walk, frontier: Frontier, k: int, *, ties: bool = False) -> list[list[tuple[int, float]]]:
    """For each query the k best documents and their log-probabilities, best first.

    Of equal documents the smaller number comes first; with `ties`, all that tie with the k-th are there too, so that
    the caller can order them. If a document has several docids, its sum lacks those that were not found, and is then
    a lower bound.
    """
    if walk.one_to_one:
        return _of_lone_docids(walk, frontier, k, ties=ties)
    return summed(walk, frontier.state, frontier.logprob, frontier.rank, k, ties=ties)


def _of_lone_docids(walk: Walk, frontier: Frontier, k: int, *, ties: bool) -> list[list[tuple[int, float]]]:
    """The same where documents are docids, which are in order already, but for equal ones."""
    rank, logprob = frontier.rank.cpu().numpy(), frontier.logprob.cpu().numpy()
    there = (logprob > -np.inf).sum(1)  # these are in front
    best = rank[:, : k + 1]
    equal = ((best[:, 1:] == best[:, :-1]) & (best[:, 1:] > -np.inf)).any(1)
    if frontier.document is None:
        document, finite = np.full(logprob.shape, -1), logprob > -np.inf
        which, numbers = walk.documents_of(frontier.state.cpu().numpy()[finite])
        if len(which) != finite.sum():  # prefixes, not docids
            return summed(walk, frontier.state, frontier.logprob, frontier.rank, k, ties=ties)
        document[finite] = numbers
    else:
        document = frontier.document.cpu().numpy()
    columns = zip(document[:, :k].tolist(), logprob[:, :k].astype(np.float64).tolist(), there.tolist(), strict=True)
    hits = [list(zip(numbers[:count], masses[:count], strict=True)) for numbers, masses, count in columns]
    if equal.any():
        rows = np.flatnonzero(equal)
        some = (column.cpu()[rows] for column in (frontier.state, frontier.logprob, frontier.rank))
        for row, found in zip(rows.tolist(), summed(walk, *some, k, ties=ties), strict=True):
            hits[row] = found
    return hits


def summed(
    walk: Walk, states: Tensor, logprobs: Tensor, ranks: Tensor, k: int, *, ties: bool
) -> list[list[tuple[int, float]]]:
    """The same of prefixes in any order: states (queries, width, parts), log-probabilities and ranks (queries, width).

    All documents below a prefix have equal shares of it.
    """
    state, logprob, rank = (column.cpu().numpy() for column in (states, logprobs, ranks))
    query, slot = np.nonzero(logprob > -np.inf)
    which, numbers = walk.documents_of(state[query, slot])
    mass = logprob[query, slot].astype(np.float64)[which] - np.log(np.bincount(which)[which])
    order = np.lexsort((numbers, query[which]))
    numbers, owner = numbers[order], query[which][order]
    first = np.flatnonzero(np.diff(numbers, prepend=-1) | np.diff(owner, prepend=-1))
    if len(first):
        mass = np.logaddexp.reduceat(mass[order], first)
        best_rank = np.maximum.reduceat(rank[query, slot][which][order], first)
    else:
        best_rank = rank[query, slot]
    owner, numbers = owner[first], numbers[first]
    # With a length penalty, the best docid of a document decides its rank.
    key = np.where((rank == logprob).all(1)[owner], mass, best_rank)
    return _of_queries(len(state), owner, numbers, mass, key, k, ties=ties)


def _of_queries(
    queries: int, owner: np.ndarray, numbers: np.ndarray, mass: np.ndarray, key: np.ndarray, k: int, *, ties: bool
) -> list[list[tuple[int, float]]]:
    """For each query its documents with the k greatest keys, of equal ones the smaller number first."""
    order = np.lexsort((numbers, -key, owner))
    owner, numbers, mass, key = owner[order], numbers[order], mass[order], key[order]
    begin = np.searchsorted(owner, np.arange(queries + 1))
    last = np.minimum(begin[:-1] + k, begin[1:]) - 1
    end = last + 1
    if ties and len(key):  # all that tie with the k-th follow it
        for row in np.flatnonzero((end < begin[1:]) & (end > begin[:-1])):
            end[row] += np.searchsorted(-key[end[row] : begin[row + 1]], -key[last[row]], side="right")
    pairs = list(zip(numbers.tolist(), mass.tolist(), strict=True))
    return [pairs[low:high] for low, high in zip(begin[:-1].tolist(), end.tolist(), strict=True)]


def best_ranks(walk: Walk, states: list[list[int]], ranks: list[float]) -> dict[int, float]:
    """The best rank of each found document."""
    highest: dict[int, float] = {}
    for state, rank in zip(states, ranks, strict=True):
        if rank > -math.inf:
            for document in walk.documents(state):
                highest[document] = max(rank, highest.get(document, -math.inf))
    return highest


def best(masses: Mapping[int, float], k: int, *, ties: bool = False) -> list[tuple[int, float]]:
    """The k largest, of equal ones the smaller number first; with `ties`, also all that tie with the k-th."""
    # A docid may hold many documents, of which few are wanted: only those at or above the k-th are sorted.
    threshold = min(heapq.nlargest(k, masses.values()), default=-math.inf)
    kept = [(document, mass) for document, mass in masses.items() if mass >= threshold]
    return sorted(kept, key=lambda pair: (-pair[1], pair[0]))[: None if ties else k]
