"""What systems find for questions about documents that training questions were about, and about other documents.

A model that writes identifiers has learned some of them from questions, and must have another way to those that nobody
asked for. An average over both hides which of the two it is good at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from triever.data.datasets import Dataset
from triever.data.records import Qrels, Run
from triever.evaluation.compare import questions
from triever.evaluation.finding import Finding
from triever.evaluation.groups import GroupedValues, by_question, check_runs, relevant, scores_by_group, scores_part
from triever.evaluation.measures import Texts
from triever.evaluation.picture import Bars
from triever.evaluation.report import ScoreRecord

ENOUGH = 20
"""Questions that a group needs for its mean to say something."""


class SeenValues(GroupedValues):
    """The values of this analysis."""

    train: str
    documents_seen: int


def seen(
    runs: Mapping[str, Run],
    dataset: Dataset,
    split: str = "test",
    measure: str = "Success@1",
    *,
    train: str = "train",
    texts: Texts | None = None,
) -> Finding:
    """Measure systems on a split's questions: on those that share a document with a question of `train`, and others."""
    queries, judged = questions(dataset, split)
    qrels = {query.id: judged[query.id] for query in queries}
    learned = _asked_about(dataset, train)
    missing = {hit.id for run in runs.values() for query in qrels if query in run for hit in run[query]}
    learned_there = set()
    for document in dataset.documents():
        missing.discard(document.id)
        if document.id in learned:
            learned_there.add(document.id)
    check_runs(runs, qrels, missing, dataset, split)
    groups = {**_divided(qrels, learned), "all": list(qrels)}
    values: SeenValues = {
        "data": dataset.name,
        "split": split,
        "train": train,
        "fingerprint": dataset.fingerprint[:16],
        "measure": measure,
        "documents_seen": len(learned_there),
        "questions": {group: len(ids) for group, ids in groups.items()},
        "scores": scores_by_group(by_question(runs, qrels, measure, queries, texts), measure, groups),
    }
    note = f"seen: a question of {train} is about one of their documents, of which there are {len(learned_there):,}"
    return Finding(values, [scores_part("by what training questions were about", values, note)], [_bars(values)])


class SeenScores(TypedDict):
    """A measure of one system on both groups of a split's questions."""

    train: str
    measure: str
    questions: dict[str, int]  # by group
    scores: dict[str, ScoreRecord]  # by group


def seen_scores(
    values: Mapping[str, float], dataset: Dataset, split: str, measure: str, *, train: str
) -> SeenScores | None:
    """Both groups of a split's questions, which have these values; nothing where one of the groups is too small."""
    qrels = {query: grades for query, grades in dataset.qrels(split).items() if query in values}
    groups = _divided(qrels, _asked_about(dataset, train))
    counts = {group: len(ids) for group, ids in groups.items()}
    if min(counts.values()) < ENOUGH:
        return None
    [scores] = scores_by_group({"system": values}, measure, groups).values()
    means = {group: score for group, score in scores.items() if score}
    return {"train": train, "measure": measure, "questions": counts, "scores": means}


def _asked_about(dataset: Dataset, train: str) -> set[str]:
    """The documents that questions of a split are about."""
    return {document for grades in dataset.qrels(train).values() for document in relevant(grades)}


def _divided(qrels: Qrels, learned: set[str]) -> dict[str, list[str]]:
    """Questions about documents that training questions were about, and the others."""
    groups: dict[str, list[str]] = {"seen": [], "unseen": []}
    for query, grades in qrels.items():
        groups["unseen" if learned.isdisjoint(relevant(grades)) else "seen"].append(query)
    return groups


def _bars(values: SeenValues) -> Bars:
    labels = [f"{group} ({values['questions'][group]:,})" for group in ("seen", "unseen")]
    series = {
        name: [score["mean"] if (score := scores[group]) else None for group in ("seen", "unseen")]
        for name, scores in values["scores"].items()
    }
    return Bars(f"{values['measure']} by what training questions were about", labels, series)
