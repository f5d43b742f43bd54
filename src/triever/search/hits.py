"""From docids that were found to documents: equal shares on one docid, sums over several."""

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

    Ties go to the smaller number; with `ties`, all that tie with the k-th are there, for another order to
    choose from. With several docids for a document, those that were not found are
    missing from its sum, which is then a lower bound.
    """
    columns = (frontier.state.tolist(), frontier.logprob.tolist(), frontier.rank.tolist())
    return [_of_query(walk, *row, k, ties) for row in zip(*columns, strict=True)]


def _of_query(
    walk: Walk, states: list[list[int]], logprobs: list[float], ranks: list[float], k: int, ties: bool
) -> list[tuple[int, float]]:
    found = masses(walk, states, logprobs)
    if ranks == logprobs:
        return best(found, k, ties=ties)
    # Ranked by length: a document stands where the best of its docids stands.
    order = best_ranks(walk, states, ranks)
    return [(document, found[document]) for document, _ in best(order, k, ties=ties)]


def best_ranks(walk: Walk, states: list[list[int]], ranks: list[float]) -> dict[int, float]:
    """The best rank of each document that is found."""
    found: dict[int, float] = {}
    for state, rank in zip(states, ranks, strict=True):
        if rank > -math.inf:
            for document in walk.documents(state):
                found[document] = max(rank, found.get(document, -math.inf))
    return found


def masses(walk: Walk, states: list[list[int]], logprobs: list[float]) -> dict[int, float]:
    """The log-probability of each document that is found."""
    found: dict[int, list[float]] = defaultdict(list)
    for state, logprob in zip(states, logprobs, strict=True):
        if logprob > -math.inf:
            for document, mass in shares(walk, state, logprob):
                found[document].append(mass)
    return {document: log_sum(parts) for document, parts in found.items()}


def shares(walk: Walk, state: list[int], logprob: float) -> list[tuple[int, float]]:
    """The documents of one docid, each with an equal share of its probability."""
    there = walk.documents(state)
    return [(document, logprob - math.log(len(there))) for document in there]


def best(masses: Mapping[int, float], k: int, *, ties: bool = False) -> list[tuple[int, float]]:
    """The k largest, of equal ones the smaller number first; with `ties`, all that tie with the last of them."""
    # A docid may hold many documents, of which few are wanted: only those at or above the k-th are put in order.
    least = min(heapq.nlargest(k, masses.values()), default=-math.inf)
    kept = [one for one in masses.items() if one[1] >= least]
    return sorted(kept, key=lambda one: (-one[1], one[0]))[: None if ties else k]


def log_sum(parts: list[float]) -> float:
    """The log of the sum of probabilities given as logs."""
    return parts[0] if len(parts) == 1 else float(torch.tensor(parts, dtype=torch.float64).logsumexp(0))
