"""What a teacher thinks of training texts: its best documents for each, and how likely it holds them."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from triever.data.cache import cache_folder
from triever.data.store import DocumentStore
from triever.engines.base import Engine
from triever.errors import DataError
from triever.files import atomic
from triever.training import fit_fingerprints

DEPTH = 48
"""Documents of a teacher that a training text is compared by."""
TEMPERATURES = np.geomspace(0.01, 30.0, 33)
"""What a teacher's scores may be divided by: those of all kinds of retrievers are among them."""


@dataclass(frozen=True)
class Opinions:
    """A teacher's best documents for texts, and its scores."""

    rows: np.ndarray  # (texts, depth) int32
    scores: np.ndarray  # (texts, depth) float32, -inf where it found fewer

    def logprobs(self, temperature: float) -> np.ndarray:
        """(texts, depth) the logs of its softmax over what it found."""
        scaled = self.scores / temperature
        top = scaled.max(1, keepdims=True)
        safe = np.where(np.isfinite(top), scaled - top, -np.inf)
        return (safe - np.log(np.exp(safe).sum(1, keepdims=True).clip(min=1e-30))).astype(np.float32)


def opinions(engine: Engine, store: DocumentStore, texts: Sequence[str], made: str, depth: int = DEPTH) -> Opinions:
    """What a teacher finds for texts; it is kept in the cache folder for all trainings with the same teacher.

    `made` is a mark of what the teacher was made from.
    """
    depth = min(depth, len(store))
    key = fit_fingerprints.fingerprint([made, store.fingerprint, depth, list(texts)])[:16]
    file = cache_folder() / f"teacher-{key}.npz"
    if (kept := _kept(file, (len(texts), depth))) is not None:
        return kept
    asked = _asked(engine, store, texts, depth)
    with contextlib.suppress(DataError), atomic(file) as opened:
        np.savez(opened, rows=asked.rows, scores=asked.scores)
    return asked


def _kept(file: Path, shape: tuple[int, int]) -> Opinions | None:
    """What was kept in a file, or none if it is not there or cannot be read: it can be made again."""
    try:
        with np.load(file) as arrays:
            kept = Opinions(arrays["rows"], arrays["scores"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    return kept if kept.rows.shape == kept.scores.shape == shape else None


def _asked(engine: Engine, store: DocumentStore, texts: Sequence[str], depth: int) -> Opinions:
    rows = np.zeros((len(texts), depth), np.int32)
    scores = np.full((len(texts), depth), -np.inf, np.float32)
    for number, result in enumerate(engine.search(store, texts, depth)):
        for at, hit in enumerate(result):
            rows[number, at], scores[number, at] = store.row(hit.id), hit.score
    return Opinions(rows, scores)


def fitted_temperature(labelled: Opinions, relevant: Sequence[np.ndarray]) -> float:
    """What to divide a teacher's scores by, so that the right documents of judged questions are likeliest."""
    right = np.array([np.isin(rows, known) for rows, known in zip(labelled.rows, relevant, strict=True)])
    right &= np.isfinite(labelled.scores)
    useful = right.any(1)
    if not useful.any():
        return 1.0
    asked = Opinions(labelled.rows[useful], labelled.scores[useful])

    def likelihood(temperature: float) -> float:
        chosen = np.where(right[useful], asked.logprobs(temperature), -np.inf)
        return float(np.logaddexp.reduce(chosen, 1).mean())

    return float(max(TEMPERATURES, key=likelihood))


@dataclass(frozen=True)
class Teaching:
    """A teacher's opinions on the texts of views, by the names of the views, and what its scores are divided by."""

    views: Mapping[str, Opinions]
    temperature: float

    def of(self, name: str, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows and log-probabilities (examples, depth) of what it found; -inf for views that it does not know."""
        if name in self.views:
            known = self.views[name]
            part = Opinions(known.rows[examples], known.scores[examples])
            return part.rows.astype(np.int64), part.logprobs(self.temperature)
        depth = next(iter(self.views.values())).rows.shape[1]
        shape = len(examples), depth
        return np.zeros(shape, np.int64), np.full(shape, -np.inf, np.float32)
