"""From docids to documents: the documents of a docid share its probability; a document sums over its docids."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping

import torch

from triever.docids.walk import Walk
from triever.search.beam import Frontier


def documents(walk: Walk, frontier: Frontier, k: int, *, ties: bool = False) -> list[list[tuple[int, float]]]:
    """For each query the k best documents and their log-probabilities, best first.

    Of equal documents the smaller number comes first; with `ties`, all that tie with the k-th are there too, so that
    the caller can order them. If a document has several docids, its sum lacks those that were not found, and is then
    a lower bound.
    """
    columns = (frontier.state.tolist(), frontier.logprob.tolist(), frontier.rank.tolist())
    return [_of_query(walk, *row, k, ties) for row in zip(*columns, strict=True)]


def _of_query(
    walk: Walk, states: list[list[int]], logprobs: list[float], ranks: list[float], k: int, ties: bool
) -> list[tuple[int, float]]:
    document_masses = masses(walk, states, logprobs)
    if ranks == logprobs:
        return best(document_masses, k, ties=ties)
    # With a length penalty, the best docid of a document decides its rank.
    order = best_ranks(walk, states, ranks)
    return [(document, document_masses[document]) for document, _ in best(order, k, ties=ties)]


def best_ranks(walk: Walk, states: list[list[int]], ranks: list[float]) -> dict[int, float]:
    """The best rank of each found document."""
    highest: dict[int, float] = {}
    for state, rank in zip(states, ranks, strict=True):
        if rank > -math.inf:
            for document in walk.documents(state):
                highest[document] = max(rank, highest.get(document, -math.inf))
    return highest


def masses(walk: Walk, states: list[list[int]], logprobs: list[float]) -> dict[int, float]:
    """The log-probability of each found document."""
    parts: dict[int, list[float]] = defaultdict(list)
    for state, logprob in zip(states, logprobs, strict=True):
        if logprob > -math.inf:
            for document, mass in shares(walk, state, logprob):
                parts[document].append(mass)
    return {document: log_sum(document_parts) for document, document_parts in parts.items()}


def shares(walk: Walk, state: list[int], logprob: float) -> list[tuple[int, float]]:
    """The documents of one docid, each with an equal share of its probability."""
    documents = walk.documents(state)
    return [(document, logprob - math.log(len(documents))) for document in documents]


def best(masses: Mapping[int, float], k: int, *, ties: bool = False) -> list[tuple[int, float]]:
    """The k largest, of equal ones the smaller number first; with `ties`, also all that tie with the k-th."""
    # A docid may hold many documents, of which few are wanted: only those at or above the k-th are sorted.
    threshold = min(heapq.nlargest(k, masses.values()), default=-math.inf)
    kept = [(document, mass) for document, mass in masses.items() if mass >= threshold]
    return sorted(kept, key=lambda pair: (-pair[1], pair[0]))[: None if ties else k]


def log_sum(parts: list[float]) -> float:
    """The log of the sum of probabilities given as logs."""
    return parts[0] if len(parts) == 1 else float(torch.tensor(parts, dtype=torch.float64).logsumexp(0))
