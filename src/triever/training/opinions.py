"""What a teacher thinks of training questions: its best documents for each, and how likely it holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LABELLED = "labelled"
"""The name of the judged questions, on which a teacher's temperature is fitted."""
TEMPERATURES = np.geomspace(0.01, 30.0, 33)
"""What a teacher's scores may be divided by: those of all kinds of retrievers are among them."""


@dataclass(frozen=True)
class Opinions:
    """A teacher's best documents for texts, and its scores."""

    rows: np.ndarray  # (texts, depth) int32
    scores: np.ndarray  # (texts, depth) float32, -inf where it found fewer

    def logprobs(self, temperature: float) -> np.ndarray:
        """(texts, depth) the logs of its softmax over what it found; -inf behind that."""
        scaled = self.scores / temperature
        top = scaled.max(1, keepdims=True)
        below = scaled - np.where(np.isfinite(top), top, 0.0)
        return (below - np.log(np.exp(below).sum(1, keepdims=True).clip(min=1e-30))).astype(np.float32)


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

    @property
    def about(self) -> dict[str, float]:
        """What a card says about it."""
        return {"teacher's temperature": round(self.temperature, 4)}

    def of(self, name: str, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows and log-probabilities (examples, depth) of what it found; -inf for views that it does not know."""
        if name in self.views:
            known = self.views[name]
            part = Opinions(known.rows[examples], known.scores[examples])
            return part.rows.astype(np.int64), part.logprobs(self.temperature)
        depth = next(iter(self.views.values())).rows.shape[1]
        shape = len(examples), depth
        return np.zeros(shape, np.int64), np.full(shape, -np.inf, np.float32)
