"""The gap between normalising the scores of a dense model over all its documents and over some that are drawn.

For each question and each number of candidates K, candidates are drawn again and again: K of all documents, or the
relevant document and K - 1 of the others, as a contrastive training has them. Means are over questions and draws.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypedDict

import numpy as np

from triever.data.datasets import Dataset
from triever.errors import UsageError
from triever.evaluation.all_scores import AllScores, all_scores
from triever.evaluation.finding import Finding, Part
from triever.evaluation.picture import Bars
from triever.printable import an
from triever.progress import track
from triever.retriever import Retriever
from triever.retrievers.dense import Dense
from triever.theory.normalisation import gap_bound, gap_bound_with_positive, most_with_positive, sampled_gaps

CANDIDATES = tuple(2**power for power in range(3, 11))
"""The numbers of candidates that are drawn: 8 to 1,024."""


class GapRow(TypedDict):
    """Means over questions, for one number of candidates, in nats."""

    candidates: int
    bound: float  # log(N / K)
    drawn: float  # the gap with K independent draws
    with_positive: float  # the gap where the relevant document is one of them
    bound_with_positive: float
    below_bound: float  # the share of questions whose gap with the relevant document is below log(N / K)


class NormalisationValues(TypedDict):
    """The values of this analysis."""

    data: str
    split: str
    fingerprint: str
    questions: int
    documents: int
    temperature: float
    draws: int
    seed: int
    loss: float  # of the relevant document over all documents: no gap with it among the candidates is larger
    gaps: list[GapRow]


def normalisation(
    retriever: Retriever,
    dataset: Dataset,
    split: str,
    *,
    temperature: float | None = None,
    most: int = 200,
    draws: int = 100,
    seed: int = 0,
) -> Finding:
    """The gaps on the first `most` questions of a split, at the temperature of the model's training or another one."""
    if not isinstance(retriever, Dense):
        problem = f"{an(retriever.kind)} retriever has no scores that were normalised over drawn documents"
        raise UsageError(problem, "make one with: triever fit dense")
    temperature = retriever.training.temperature if temperature is None else temperature
    if not (math.isfinite(temperature) and temperature > 0):
        raise UsageError(f"a temperature of {temperature:g} is not above zero", "for example: --temperature 0.05")
    table = all_scores(retriever, dataset, split, most=most)
    if table.scores.shape[1] < CANDIDATES[0]:
        problem = f"the model holds {table.scores.shape[1]} documents, fewer than the {CANDIDATES[0]} that are drawn"
        raise UsageError(problem, "take a larger corpus")
    scaled = replace(table, scores=table.scores / temperature)
    counts = [k for k in CANDIDATES if k <= scaled.scores.shape[1]]
    values: NormalisationValues = {
        "data": dataset.name,
        "split": split,
        "fingerprint": dataset.fingerprint[:16],
        "questions": len(scaled.scores),
        "documents": scaled.scores.shape[1],
        "temperature": temperature,
        "draws": draws,
        "seed": seed,
        "loss": float(np.mean([*map(most_with_positive, scaled.scores, scaled.positive)])),
        "gaps": [gap_row(scaled, k, draws, seed) for k in track(counts, "drawing", unit="numbers of candidates")],
    }
    return Finding(values, [_part(values)], [_bars(values)])


def gap_row(table: AllScores, k: int, draws: int, seed: int) -> GapRow:
    """What is measured with so many candidates."""
    drawn, inside, bounds = [], [], []
    for at, (scores, positive) in enumerate(zip(table.scores, table.positive.tolist(), strict=True)):
        drawn.append(sampled_gaps(scores, k, draws=draws, seed=seed + at).mean())
        inside.append(sampled_gaps(scores, k, positive=positive, draws=draws, seed=seed + at).mean())
        bounds.append(gap_bound_with_positive(scores, positive, k))
    bound = gap_bound(table.scores[0], k)
    return {
        "candidates": k,
        "bound": bound,
        "drawn": float(np.mean(drawn)),
        "with_positive": float(np.mean(inside)),
        "bound_with_positive": float(np.mean(bounds)),
        "below_bound": float(np.mean(np.array(inside) < bound)),
    }


def _columns(row: GapRow) -> dict[str, float]:
    """The numbers that are shown and drawn, by what they are called."""
    return {
        "log(N/K)": row["bound"],
        "gap, K drawn": row["drawn"],
        "gap, relevant one inside": row["with_positive"],
        "its bound": row["bound_with_positive"],
    }


def _part(values: NormalisationValues) -> Part:
    rows = []
    for row in values["gaps"]:
        numbers = {title: f"{value:.3f}" for title, value in _columns(row).items()}
        rows.append({"K": f"{row['candidates']:,}", **numbers, "below log(N/K)": f"{row['below_bound']:.0%}"})
    lines = [
        "K drawn: independent draws from all documents; the gap is log(N/K) or more, on average",
        "relevant one inside: it and K - 1 that are drawn, as in a contrastive loss; the gap may be far below log(N/K)",
        f"the loss of the relevant document over all is {values['loss']:.3f}: no mean gap with it inside is larger",
    ]
    title = (
        f"log Z - log Z_K of {values['documents']:,} documents, {values['questions']:,} questions, "
        f"temperature {values['temperature']:g}"
    )
    return Part(title, rows, lines)


def _bars(values: NormalisationValues) -> Bars:
    labels = [f"K = {row['candidates']:,}" for row in values["gaps"]]
    each = [*map(_columns, values["gaps"])]
    series = {title: [row[title] for row in each] for title in each[0]}
    return Bars(f"log Z - log Z_K, {values['documents']:,} documents", labels, series)
