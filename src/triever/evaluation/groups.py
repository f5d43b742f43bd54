"""How well systems do on groups of a split's questions: what is common to the analyses that divide questions."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias, TypedDict

from triever.data.datasets import Dataset
from triever.data.records import Qrels, Query, Run
from triever.errors import DataError
from triever.evaluation.compare import DEEP
from triever.evaluation.finding import Part
from triever.evaluation.measures import Texts, depth, per_query
from triever.evaluation.report import LEVEL, MARK, SIGNIFICANT, Report, Score, ScoreRecord

SHOWN = 3
"""Hits of a question that an analysis can show."""
GroupScores: TypeAlias = dict[str, dict[str, ScoreRecord | None]]
"""System -> group -> score; None for an empty group."""
log = logging.getLogger("triever")


class GroupedValues(TypedDict):
    """The values that every analysis of groups has."""

    data: str
    split: str
    fingerprint: str
    measure: str
    questions: dict[str, int]  # by group
    scores: GroupScores


def relevant(grades: Mapping[str, int]) -> list[str]:
    """The documents that a question is about."""
    return [document for document, grade in grades.items() if grade > 0]


def hits_needed(measure: str, queries: Sequence[Query], qrels: Qrels) -> int:
    """How many hits of a question an analysis reads.

    R-precision has no cutoff, but reads no deeper than there are relevant documents: a beam that had to be a thousand
    wide for it would find other titles than the one that people use.
    """
    needed = depth([measure], qrels, queries)
    return max(SHOWN, DEEP if needed is None else needed)


def by_question(
    runs: Mapping[str, Run], qrels: Qrels, measure: str, queries: Sequence[Query], texts: Texts | None
) -> dict[str, Mapping[str, float]]:
    """System -> question -> the measure."""
    return {name: per_query(run, qrels, [measure], queries=queries, texts=texts)[measure] for name, run in runs.items()}


def scores_by_group(
    columns: Mapping[str, Mapping[str, float]], measure: str, groups: Mapping[str, Sequence[str]]
) -> GroupScores:
    """System -> group -> its mean with an interval and the test against the first system; None for an empty group."""
    scores: GroupScores = {name: {} for name in columns}
    for group, ids in groups.items():
        here = {name: {measure: {query: values[query] for query in ids}} for name, values in columns.items()}
        report = Report.of(here) if ids else None
        for name in columns:
            scores[name][group] = report.scores[name][measure].to_dict() if report else None
    return scores


def scores_part(divided: str, values: GroupedValues, note: str) -> Part:
    """A table of systems and groups, and below it a line about the data."""
    first, *compared = values["scores"]
    marks = f"; {MARK} differs from {first} (p < {SIGNIFICANT})" if compared else ""
    headers = {group: f"{group} ({count:,})" for group, count in values["questions"].items()}
    rows = [
        {"system": name} | {headers[group]: str(Score(**score)) if score else "none" for group, score in scores.items()}
        for name, scores in values["scores"].items()
    ]
    where = f"data {values['data']}; split {values['split']}; fingerprint {values['fingerprint']}; {note}"
    return Part(f"{values['measure']} {divided}, with {LEVEL:.0%} intervals{marks}", rows, [where])


def check_runs(
    runs: Mapping[str, Run], qrels: Qrels, unknown: Collection[str], dataset: Dataset, split: str, *, shown: str = ""
) -> None:
    """Refuse a run of other questions or of another corpus; warn of a run with some documents of another corpus.

    `unknown` are retrieved documents that are not in the corpus; `shown` ends the warning and says how they are shown.
    """
    for name, run in runs.items():
        if not any(query in run for query in qrels):
            problem = f"{name} has no results for any question of the split {split!r} of {dataset.name}"
            raise DataError(problem, "name the data and the split that the run was made for")
        hits = {hit.id for query in qrels if query in run for hit in run[query]}
        strange = sorted(hits.intersection(unknown))
        if strange and len(strange) == len(hits):
            problem = f"none of the documents that {name} retrieves is in {dataset.name}, such as {strange[0]!r}"
            raise DataError(problem, "name the data that the run was made for")
        if strange:
            message = "%s retrieves %d documents that are not in %s, such as %s%s"
            log.warning(message, name, len(strange), dataset.name, strange[0], shown)
