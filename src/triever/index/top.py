"""The best of many scores, chunk by chunk, in one order: the greatest first, of equal ones the smaller position.

Also arrays as tensors on the device of a search. Knows nothing about what is scored.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

CHUNK = 2**24
"""How many numbers, scores or parts of vectors, are held at once."""

ScoresAndRows = tuple[np.ndarray, np.ndarray]
"""Scores (queries, k) and their rows (queries, k), then -inf and -1."""


def shared(array: np.ndarray) -> Tensor:
    """A tensor that shares the memory of an array, mapped or not; it must not be written to."""
    with warnings.catch_warnings():
        # torch has no read-only tensors and says so; a mapped file cannot be written to, and nothing tries
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def resident(array: np.ndarray, device: torch.device) -> Tensor:
    """The array as a tensor on the device; in CPU memory, or mapped, if the device has no room for it."""
    tensor = shared(array)
    if device.type != "cuda":
        return tensor
    free, _ = torch.cuda.mem_get_info(device)
    return tensor.to(device) if array.nbytes <= free // 2 else tensor


def best(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest values of each row and their positions (rows, k), greatest first; of equal ones the first."""
    k = min(k, scores.shape[1])
    values, places = scores.topk(k)
    lowest = values[:, -1:]
    # topk takes any of the values that are equal to its last one: if there are more, a sort decides
    unsure = (lowest[:, 0] > -torch.inf) & ((scores == lowest).sum(1) > (values == lowest).sum(1))
    if unsure.any():
        by = scores[unsure].sort(dim=1, descending=True, stable=True)
        values[unsure], places[unsure] = by.values[:, :k], by.indices[:, :k]
    return ordered(values, places)


def ordered(values: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Values and positions (rows, k), greatest value first; of equal ones the smallest position."""
    by = places.argsort(dim=1, stable=True)
    values, places = values.gather(1, by), places.gather(1, by)
    by = values.argsort(dim=1, descending=True, stable=True)
    return values.gather(1, by), places.gather(1, by)


class Running:
    """The k best scores of chunks that come in the order of their positions."""

    def __init__(self, queries: int, k: int, device: torch.device) -> None:
        self.k = k
        self.values = torch.full((queries, 0), -torch.inf, device=device)  # (queries, up to k)
        self.places = torch.full((queries, 0), -1, dtype=torch.long, device=device)

    def add(self, scores: Tensor, first: int) -> None:
        """Add the scores (queries, chunk) of the positions from `first` on."""
        values, places = best(scores, self.k)
        values, places = torch.cat([self.values, values], 1), torch.cat([self.places, places + first], 1)
        # Both halves are in order, and the first one has the smaller positions: a stable sort keeps both rules.
        by = values.argsort(dim=1, descending=True, stable=True)[:, : self.k]
        self.values, self.places = values.gather(1, by), places.gather(1, by)

    def result(self) -> ScoresAndRows:
        """The best so far, (queries, k)."""
        return filled(self.values.cpu().numpy(), self.places.cpu().numpy(), self.k)


def filled(scores: np.ndarray, places: np.ndarray, k: int) -> ScoresAndRows:
    """The first k columns, filled up with -inf and -1."""
    wide_scores = np.full((len(scores), k), -np.inf, np.float32)
    wide_places = np.full((len(scores), k), -1, np.int64)
    wide_scores[:, : scores.shape[1]] = scores[:, :k]
    wide_places[:, : places.shape[1]] = places[:, :k]
    nothing = (wide_places < 0) | np.isneginf(wide_scores)
    wide_scores[nothing], wide_places[nothing] = -np.inf, -1
    return wide_scores, wide_places


def nothing(queries: int, k: int) -> ScoresAndRows:
    """The result of a search without documents: -inf and -1."""
    return filled(np.empty((queries, 0)), np.empty((queries, 0)), k)


def stacked(parts: Iterable[ScoresAndRows]) -> ScoresAndRows:
    """The results of parts of the queries, joined in their order."""
    scores, places = zip(*parts, strict=True)
    return np.concatenate(scores), np.concatenate(places)


def merged(first: ScoresAndRows, second: ScoresAndRows, k: int) -> ScoresAndRows:
    """The k best of two results of the same queries."""
    scores, places = (torch.from_numpy(np.concatenate(pair, 1)) for pair in zip(first, second, strict=True))
    values, numbers = ordered(scores, places)
    return filled(values.numpy(), numbers.numpy(), k)
