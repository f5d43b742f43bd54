"""The singular-value tail of the scores of a saved model: what vectors of each size could keep of them.

Scores of a dense model have the rank of its vectors at most. Late interaction has no such bound.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from triever.data.datasets import Dataset
from triever.evaluation.all_scores import all_scores
from triever.evaluation.finding import Finding, Part
from triever.evaluation.picture import Bars
from triever.retriever import Retriever
from triever.theory.rank import best_of_rank, tail_errors


class RankRow(TypedDict):
    """What the best vectors of a size keep of the scores."""

    size: int
    error: float  # the Frobenius norm of what they miss, divided by that of the scores
    same_first: float  # the share of questions with the same best document
    right_first: float  # the share of questions with a relevant document first


class RankValues(TypedDict):
    """The values of this analysis."""

    data: str
    split: str
    fingerprint: str
    kind: str
    questions: int
    documents: int
    width: int  # of the model's vectors
    rank: int
    right_first: float  # by the scores themselves
    sizes: list[RankRow]


def rank(
    retriever: Retriever, dataset: Dataset, split: str, *, most: int = 500, documents: int = 2000, seed: int = 0
) -> Finding:
    """The tail of the scores of the first `most` questions for all documents, or for a sample of so many."""
    table = all_scores(retriever, dataset, split, most=most, documents=documents, seed=seed)
    scores, relevant = table.scores, table.relevant
    values: RankValues = {
        "data": dataset.name,
        "split": split,
        "fingerprint": dataset.fingerprint[:16],
        "kind": retriever.kind,
        "questions": scores.shape[0],
        "documents": scores.shape[1],
        "width": retriever.engine.index.width,
        "rank": int(np.linalg.matrix_rank(scores, rtol=1e-5)),  # scores are sums in single precision
        "right_first": _right(scores.argmax(1), relevant),
        "sizes": rank_rows(scores, relevant),
    }
    return Finding(values, [_part(values)], [_bars(values)])


def _right(first: np.ndarray, relevant: np.ndarray) -> float:
    """The share of questions whose first document is relevant."""
    return float(np.mean(relevant[np.arange(len(first)), first]))


def rank_rows(scores: np.ndarray, relevant: np.ndarray) -> list[RankRow]:
    """A row for the sizes 1, 2, 4, ... up to the smaller side of the scores."""
    errors, best = tail_errors(scores), scores.argmax(1)
    sizes = [2**power for power in range(20) if 2**power < len(errors)]
    rows: list[RankRow] = []
    for size in sizes:
        first = best_of_rank(scores, size).argmax(1)
        same, right = float(np.mean(first == best)), _right(first, relevant)
        rows.append({"size": size, "error": float(errors[size]), "same_first": same, "right_first": right})
    return rows


def _part(values: RankValues) -> Part:
    rows = [
        {
            "size": f"{row['size']:,}",
            "error": f"{row['error']:.4f}",
            "same document first": f"{row['same_first']:.3f}",
            "relevant document first": f"{row['right_first']:.3f}",
        }
        for row in values["sizes"]
    ]
    lines = [
        "error: the least relative error of scores that are products of vectors of this size (Eckart and Young)",
        f"the model's own scores have a relevant document first for {values['right_first']:.3f} of the questions",
    ]
    title = (
        f"rank {values['rank']:,} of the scores of {values['questions']:,} questions and {values['documents']:,} "
        f"documents; {values['kind']}, vectors of {values['width']:,} numbers"
    )
    return Part(title, rows, lines)


def _bars(values: RankValues) -> Bars:
    labels = [f"size {row['size']:,}" for row in values["sizes"]]
    series = {
        "error of scores": [row["error"] for row in values["sizes"]],
        "other document first": [1 - row["same_first"] for row in values["sizes"]],
    }
    return Bars(f"what vectors of a size miss of {values['kind']} scores", labels, series)
