"""A generator whose every score is known: random numbers that depend on the query and the prefix alone."""

from __future__ import annotations

import math
import random
from collections import defaultdict

import torch
from torch import Tensor

from triever.models.generator import of_candidates

Pair = tuple[tuple[int, ...], int]
Row = tuple[str, tuple[int, ...]]


class Toy:
    """Keeps the Generator's shape; its hidden states are numbers of rows, its cache the rows themselves."""

    device = torch.device("cpu")

    def __init__(self, width: int, sharpness: float = 2.0) -> None:
        self.width = width
        self.sharpness = sharpness
        self.rows: list[Row] = []

    def scores(self, query: str, prefix: tuple[int, ...]) -> list[float]:
        chance = random.Random(f"{query} {prefix}")
        return [chance.gauss(0, self.sharpness) for _ in range(self.width)]

    def _number(self, row: Row) -> list[float]:
        self.rows.append(row)
        return [float(len(self.rows) - 1)]

    def prefill(self, prompts: list[str]) -> tuple[list[Row], Tensor]:
        rows: list[Row] = [(prompt, ()) for prompt in prompts]
        return rows, torch.tensor([self._number(row) for row in rows])

    def extend(self, cache: list[Row], parents: Tensor, tokens: Tensor) -> tuple[list[Row], Tensor]:
        rows, hidden = [], []
        for parent, more in zip(parents.tolist(), tokens.tolist(), strict=True):
            query, prefix = cache[parent]
            steps = [(query, prefix + tuple(more[: length + 1])) for length in range(len(more))]
            hidden.append([self._number(row) for row in steps])
            rows.append(steps[-1])
        return rows, torch.tensor(hidden)

    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        if candidates is not None:
            return of_candidates(self.logits(hidden), candidates)
        flat = [self.scores(*self.rows[int(number)]) for number in hidden.reshape(-1).tolist()]
        return torch.tensor(flat).reshape(*hidden.shape[:-1], self.width)


def log_softmax(scores: list[float]) -> list[float]:
    top = max(scores)
    total = top + math.log(sum(math.exp(score - top) for score in scores))
    return [score - total for score in scores]


def docid_logprob(toy: Toy, query: str, docid: tuple[int, ...], pairs: list[Pair], normalisation: str) -> float:
    """The slow and obvious way: one symbol after the other."""
    total = 0.0
    for depth, symbol in enumerate(docid):
        scores = toy.scores(query, docid[:depth])
        allowed = sorted({other[depth] for other, _ in pairs if other[:depth] == docid[:depth]})
        over = allowed if normalisation == "trie" else range(toy.width)
        total += dict(zip(over, log_softmax([scores[one] for one in over]), strict=True))[symbol]
    return total


def brute_force(toy: Toy, query: str, pairs: list[Pair], normalisation: str) -> dict[int, float]:
    """The probability of every document, by enumerating every docid."""
    mass: dict[int, float] = defaultdict(float)
    for docid, document in pairs:
        sharing = sum(other == docid for other, _ in pairs)
        mass[document] += math.exp(docid_logprob(toy, query, docid, pairs, normalisation)) / sharing
    return dict(mass)
