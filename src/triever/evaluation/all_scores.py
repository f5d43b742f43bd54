"""The scores of a saved encoder model for every pair of some questions and documents, as one matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from triever.data.datasets import Dataset
from triever.data.records import Qrels, Query
from triever.engines.encoded import DenseEngine, LateEngine
from triever.errors import UsageError
from triever.evaluation.compare import questions
from triever.evaluation.groups import relevant
from triever.printable import an
from triever.progress import track
from triever.retriever import Retriever


@dataclass(frozen=True)
class AllScores:
    """Scores of questions and documents, and for each question which documents are relevant."""

    scores: np.ndarray  # (questions, documents) float64
    positive: np.ndarray  # (questions,) the first relevant document of each
    relevant: np.ndarray  # (questions, documents) bool


def all_scores(
    retriever: Retriever, dataset: Dataset, split: str, *, most: int, documents: int = 0, seed: int = 0
) -> AllScores:
    """The scores of the first `most` questions of a split for all documents, or for a sample of so many.

    A sample has the first relevant document of each question. Questions without one that the model holds are left out.
    """
    engine = _engine(retriever)
    if len(retriever.searched) != len(retriever):
        problem = "this model searches long documents by their passages, which are not judged"
        raise UsageError(problem, "fit one with --set cut.which=none")
    asked, right = _judged(retriever, *questions(dataset, split), most)
    rows = _sample(_readable(engine), np.unique([each[0] for each in right]), documents, seed)
    scores = _scores(engine, [query.text for query in asked], rows)
    is_relevant = np.stack([np.isin(rows, each) for each in right])
    return AllScores(scores.astype(np.float64), np.searchsorted(rows, [each[0] for each in right]), is_relevant)


def _engine(retriever: Retriever) -> DenseEngine | LateEngine:
    engine = retriever.engine
    if not isinstance(engine, DenseEngine | LateEngine):
        problem = f"{an(retriever.kind)} retriever does not score every document by vectors"
        raise UsageError(problem, "make one with: triever fit dense, or multivector")
    return engine


def _readable(engine: DenseEngine | LateEngine) -> np.ndarray:
    """The rows of documents that have a score: late interaction has none for documents without tokens."""
    return np.flatnonzero(engine.index.lengths) if isinstance(engine, LateEngine) else np.arange(len(engine.index))


def _judged(
    retriever: Retriever, queries: Sequence[Query], qrels: Qrels, most: int
) -> tuple[list[Query], list[list[int]]]:
    """The first questions with a relevant document that the model holds, and the rows of these."""
    held = {doc_id: row for row, doc_id in enumerate(retriever.documents.ids)}
    rows = [[held[doc_id] for doc_id in relevant(qrels[query.id]) if doc_id in held] for query in queries]
    kept = [at for at, row in enumerate(rows) if row][:most]
    if not kept:
        problem = "the model holds no relevant document of any question of this split"
        raise UsageError(problem, "name the data that it was fitted to")
    return [queries[at] for at in kept], [rows[at] for at in kept]


def _sample(rows: np.ndarray, wanted: np.ndarray, documents: int, seed: int) -> np.ndarray:
    """Rising rows of all documents, or of so many: those that are wanted, and a random sample of the others."""
    if not documents or documents >= len(rows):
        return np.union1d(rows, wanted)
    others = np.random.default_rng(seed).permutation(np.setdiff1d(rows, wanted))
    return np.sort(np.concatenate([wanted, others[: max(0, documents - len(wanted))]]))


def _scores(engine: DenseEngine | LateEngine, texts: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """(questions, documents) the scores of all pairs."""
    if isinstance(engine, DenseEngine):
        return engine.vectors(texts).astype(np.float32) @ engine.index.take(rows).astype(np.float32).T
    flat, starts = engine.vectors(texts)
    spans = track([*zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)], "scoring", unit="questions")
    return np.stack([engine.index.score(flat[low:high], rows) for low, high in spans])
