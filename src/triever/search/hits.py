"""From docids to documents: the documents of a docid share its probability; a document sums over its docids."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

import numpy as np

from triever.docids.walk import Walk
from triever.search.beam import Frontier


def documents(walk: Walk, frontier: Frontier, k: int, *, ties: bool = False) -> list[list[tuple[int, float]]]:
    """For each query the k best documents and their log-probabilities, best first.

    Of equal documents the smaller number comes first; with `ties`, all that tie with the k-th are there too, so that
    the caller can order them. If a document has several docids, its sum lacks those that were not found, and is then
    a lower bound.
    """
    columns = (frontier.state.cpu().numpy(), frontier.logprob.double().cpu().numpy(), frontier.rank.cpu().numpy())
    return [_of_query(walk, *row, k, ties) for row in zip(*columns, strict=True)]


def _of_query(
    walk: Walk, states: np.ndarray, logprobs: np.ndarray, ranks: np.ndarray, k: int, ties: bool
) -> list[tuple[int, float]]:
    found = masses(walk, states, logprobs)
    if np.array_equal(ranks, logprobs.astype(ranks.dtype)):
        return best(found, k, ties=ties)
    # With a length penalty, the best docid of a document decides its rank.
    order = best_ranks(walk, states.tolist(), ranks.tolist())
    return [(document, found[document]) for document, _ in best(order, k, ties=ties)]


def best_ranks(walk: Walk, states: list[list[int]], ranks: list[float]) -> dict[int, float]:
    """The best rank of each found document."""
    highest: dict[int, float] = {}
    for state, rank in zip(states, ranks, strict=True):
        if rank > -math.inf:
            for document in walk.documents(state):
                highest[document] = max(rank, highest.get(document, -math.inf))
    return highest


def masses(walk: Walk, states: np.ndarray, logprobs: np.ndarray) -> dict[int, float]:
    """The log-probability of each document of docids (n, parts); those of one docid have equal shares of it."""
    there = logprobs > -np.inf
    which, documents = walk.documents_of(states[there])
    shares = logprobs[there][which] - np.log(np.bincount(which)[which])
    order = documents.argsort(kind="stable")
    first = np.flatnonzero(np.diff(documents[order], prepend=-1))
    summed = np.logaddexp.reduceat(shares[order], first) if len(first) else shares
    return dict(zip(documents[order][first].tolist(), summed.tolist(), strict=True))


def best(masses: Mapping[int, float], k: int, *, ties: bool = False) -> list[tuple[int, float]]:
    """The k largest, of equal ones the smaller number first; with `ties`, also all that tie with the k-th."""
    # A docid may hold many documents, of which few are wanted: only those at or above the k-th are sorted.
    threshold = min(heapq.nlargest(k, masses.values()), default=-math.inf)
    kept = [(document, mass) for document, mass in masses.items() if mass >= threshold]
    return sorted(kept, key=lambda pair: (-pair[1], pair[0]))[: None if ties else k]
