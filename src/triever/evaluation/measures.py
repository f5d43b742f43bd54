"""Values of measures for every judged query: ir_measures' by their names there, and some of our own.

    KILT-Rprec   R-precision by sets of evidence: the best r/R over the alternatives in `Query.evidence`
    EM, F1       `Result.answer` against `Query.answers`, normalised as SQuAD does
    Answer@k     whether one of the top k texts holds one of `Query.answers` (DPR)
    Brier        (p - y)^2 of the top hit, p its probability, y whether it is relevant; less is better

A judged query without results counts as the worst there is, 0 for all but Brier, where it is 1: silence must
never pay. Queries that are not judged are ignored.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

from triever.data.records import Hit, Qrels, Query, Run, ranked
from triever.errors import MissingExtra, UsageError, nearest
from triever.evaluation.answers import exact_match, f1, has_answer
from triever.evaluation.calibration import claim

DEFAULT_MEASURES = ("nDCG@10", "RR@10", "Success@1", "Success@10", "R@100")

Texts: TypeAlias = Mapping[str, str] | Callable[[str], str]
Values: TypeAlias = dict[str, float]
logger = logging.getLogger("triever")


def per_query(
    run: Run,
    qrels: Qrels,
    measures: Sequence[str],
    *,
    queries: Iterable[Query] = (),
    texts: Texts | None = None,
) -> dict[str, Values]:
    """Measure -> query id -> value, for every query in `qrels` and every measure asked for, each once."""
    asked = {name: _parse(name) for name in dict.fromkeys(measures)}
    if not asked:
        raise UsageError("there is no measure to compute", f"ask for some, such as {DEFAULT_MEASURES[0]}")
    task = _task(run, qrels, queries, texts)
    standard = {name: part for name, part in asked.items() if not isinstance(part, Own)}
    values = _standard(task, standard)
    return {name: part.values(task) if isinstance(part, Own) else values[name] for name, part in asked.items()}


def lower_is_better(measure: str) -> bool:
    """Whether a small value of this measure is a good one."""
    return measure == "Brier"


# --- what the measures read ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Task:
    """A run beside its judgements, checked: hits are in order, distinct, and have finite scores."""

    hits: Mapping[str, tuple[Hit, ...]]  # judged queries that have some
    answers: Mapping[str, str]  # judged queries whose result has one
    qrels: Qrels
    queries: Mapping[str, Query]
    texts: Texts | None


def _task(run: Run, qrels: Qrels, queries: Iterable[Query], texts: Texts | None) -> Task:
    if not qrels:
        raise UsageError("no query is judged", "give qrels with at least one query")
    hits = {query: _ranked(query, run[query]) for query in qrels if run.get(query)}
    results = {query: run[query] for query in qrels if query in run}
    answers = {query: result.answer for query, result in results.items() if result.answer is not None}
    if not hits and not answers:
        logger.warning("the run has no results for any of the %d judged queries: all count as misses", len(qrels))
    return Task(hits, answers, qrels, {query.id: query for query in queries}, texts)


def _ranked(query: str, hits: Iterable[Hit]) -> tuple[Hit, ...]:
    order = ranked(hits)
    bad = next((hit for hit in order if not math.isfinite(hit.score)), None)
    if bad is not None:
        raise UsageError(f"query {query!r}: document {bad.id!r} has the score {bad.score}", "give finite scores")
    if len({hit.id for hit in order}) < len(order):
        raise UsageError(f"query {query!r}: a document was retrieved twice", "keep each document's best hit")
    return order


# --- standard measures, through ir_measures ------------------------------------------------------------------


def _standard(task: Task, measures: Mapping[str, Any]) -> dict[str, Values]:
    if not measures:
        return {}
    run = {query: _surrogates(hits) for query, hits in task.hits.items()}
    judged = {query: dict(grades) for query, grades in task.qrels.items() if grades}
    found = _trec().values(list(dict.fromkeys(measures.values())), judged, run)
    return {name: dict.fromkeys(task.qrels, 0.0) | found[measure] for name, measure in measures.items()}


def _surrogates(hits: Sequence[Hit]) -> dict[str, float]:
    """Scores that say our ranks and nothing else: tools differ in how they break ties, and trec_eval, whose
    scores are C floats, sees ties where doubles have none. Whole numbers stay exact in both."""
    return {hit.id: float(len(hits) - place) for place, hit in enumerate(hits)}


def _trec() -> ModuleType:
    try:
        from triever.evaluation import trec
    except ModuleNotFoundError as error:
        if error.name != "ir_measures":
            raise
        raise MissingExtra("measuring a ranking", "pip install --no-deps ir-measures") from error
    return trec


# --- our own measures -----------------------------------------------------------------------------------------


def _kilt_rprec(task: Task, query: str) -> float:
    ids = [hit.id for hit in task.hits.get(query, ())]
    relevant = {document for document, grade in task.qrels[query].items() if grade > 0}
    given = task.queries[query].evidence if query in task.queries else ()
    sets = [set(one) for one in given if one] or [relevant]
    return max(len(one.intersection(ids[: len(one)])) / max(len(one), 1) for one in sets)


def _answers(task: Task, query: str, measure: str) -> tuple[str, ...]:
    if query not in task.queries or not task.queries[query].answers:
        raise UsageError(f"{measure} needs answers, and query {query!r} has none", "give queries with answers")
    return task.queries[query].answers


def _answered(name: str, score: Callable[[str, Iterable[str]], float]) -> Callable[[Task, str], float]:
    def value(task: Task, query: str) -> float:
        if task.hits and not task.answers:
            raise UsageError(f"{name} needs a run that answers, and this one only retrieves", "use an answerer")
        wanted = _answers(task, query, name)
        return score(task.answers[query], wanted) if query in task.answers else 0.0

    return value


def _answer_at(cutoff: int) -> Callable[[Task, str], float]:
    def value(task: Task, query: str) -> float:
        wanted = _answers(task, query, "Answer@k")
        top = task.hits.get(query, ())[:cutoff]
        return float(any(has_answer(_text(task, hit.id), wanted) for hit in top))

    return value


def _text(task: Task, document: str) -> str:
    if task.texts is None:
        raise UsageError("Answer@k needs the documents' texts", "give texts, a mapping or a function of the id")
    try:
        return task.texts[document] if isinstance(task.texts, Mapping) else task.texts(document)
    except KeyError as error:
        raise UsageError(f"there is no text for document {document!r}", "give the texts of all hits") from error


def _brier(task: Task, query: str) -> float:
    if query not in task.hits:
        return 1.0
    probability, right = claim(query, task.hits[query], task.qrels[query])
    return (probability - right) ** 2


@dataclass(frozen=True, slots=True)
class Own:
    """A measure of ours, ready to be computed."""

    value: Callable[[Task, str], float]

    def values(self, task: Task) -> Values:
        return {query: self.value(task, query) for query in task.qrels}


OWN: dict[str, Callable[[Task, str], float]] = {
    "Brier": _brier,
    "EM": _answered("EM", exact_match),
    "F1": _answered("F1", f1),
    "KILT-Rprec": _kilt_rprec,
}
ANSWER_AT = re.compile(r"Answer@([1-9][0-9]*)")


def _parse(name: str) -> Any:
    """One of ours, or a measure of ir_measures."""
    if name in OWN:
        return Own(OWN[name])
    if at := ANSWER_AT.fullmatch(name):
        return Own(_answer_at(int(at[1])))
    trec = _trec()
    try:
        return trec.parse(name)
    except KeyError:
        base = re.split(r"[@(]", name)[0]
        hint = nearest(base, {*OWN, "Answer@k", *trec.names()})
        raise UsageError(f"there is no measure {name!r}", hint) from None
