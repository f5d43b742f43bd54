"""Values of measures for every judged query: ir_measures' by their names there, and some of our own.

    KILT-Rprec   R-precision by sets of evidence: the best r/R over the alternatives in `Query.evidence`
    EM, F1       `Result.answer` against `Query.answers`, as SQuAD 2's script compares them
    Answer@k     whether one of the top k texts holds one of `Query.answers` (DPR)
    Brier        (p - y)^2 of the top hit, p its probability, y whether it is relevant; less is better

A judged query without results counts as the worst there is, 0 for all but Brier, where it is 1: silence must
never pay, unless a question is known to have no answer. Queries that are not judged are ignored.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from triever import plugins
from triever.arguments import brief, listed, table, text
from triever.data.answers import exact_match, f1, has_answer
from triever.data.records import Hit, Qrels, Query, Result, normalise, ranked
from triever.errors import MissingExtra, TrieverError, UsageError, close_name
from triever.evaluation.calibration import claim

if TYPE_CHECKING:
    from ir_measures import Measure as IrMeasure

DEFAULT_MEASURES = ("nDCG@10", "RR@10", "Success@1", "Success@10", "R@100")
COMMON = ("nDCG", "RR", "Success", "R", "P", "AP", "Rprec", "KILT-Rprec", "EM", "F1", "Answer@k", "Brier")

AnyRun: TypeAlias = Mapping[str, Result | Mapping[str, float]]
"""A run, or what pytrec_eval calls one: query id -> document id -> score."""
Texts: TypeAlias = Mapping[str, str] | Callable[[str], str]
Values: TypeAlias = dict[str, float]
logger = logging.getLogger("triever")


def per_query(
    run: AnyRun,
    qrels: Qrels,
    measures: Sequence[str],
    *,
    queries: Iterable[Query] = (),
    texts: Texts | None = None,
) -> dict[str, Values]:
    """Measure -> query id -> value, for every query in `qrels` and every measure asked for, each once."""
    asked = _parsed(measures)
    task = _task(run, qrels, queries, texts)
    own = {name: part for name, part in asked.items() if isinstance(part, Measure)}
    values = _standard(task, {name: part.measure for name, part in asked.items() if isinstance(part, Standard)})
    values |= {name: _finite(name, part.values(task)) for name, part in own.items()}
    for warn in dict.fromkeys(part.warns for part in own.values() if part.warns):  # each once
        warn(task)
    return {name: values[name] for name in asked}


def _finite(name: str, values: Values) -> Values:
    """The values of a measure, if all are numbers: a package may bring one that divides by zero."""
    for query, value in values.items():
        if not math.isfinite(value):
            raise UsageError(f"{name} is {value} for query {query!r}", "leave that measure out, or correct it")
    return values


def check(measures: Sequence[str]) -> None:
    """Refuse a measure that cannot be computed here, before any work is done for it."""
    _parsed(measures)


def check_questions(measures: Sequence[str], queries: Sequence[Query], qrels: Qrels) -> None:
    """Refuse a measure that needs more of the judged queries than they have, before any of them is searched for."""
    task = Task({}, {}, qrels, {query.id: query for query in queries}, None)
    for measure in _parsed(measures).values():
        if isinstance(measure, Measure) and measure.needs:
            measure.needs(task)


def depth(measures: Sequence[str], qrels: Qrels | None = None, queries: Sequence[Query] = ()) -> int | None:
    """How many hits of a query the measures read; None where one of them reads all there are, as AP does.

    R-precision reads as many as there are relevant documents, which only the judgements tell; by sets of evidence, as
    many as the largest has, which only the queries tell.

    >>> depth(["nDCG@10", "R@1000"]), depth(["nDCG@10", "AP"])
    (1000, None)
    >>> depth(["Rprec"]), depth(["Rprec"], {"q": {"a": 1, "b": 1, "c": 0}})
    (None, 2)
    """
    depths = [measure.depth(qrels, queries) for measure in _parsed(measures).values()]
    cutoffs = [cutoff for cutoff in depths if cutoff is not None]
    return max(cutoffs) if len(cutoffs) == len(depths) else None


def _relevant_count(judged: Mapping[str, int]) -> int:
    return sum(grade > 0 for grade in judged.values())


def lower_is_better(measure: str) -> bool:
    """Whether a small value of this measure is a good one."""
    ours = _own(measure) or _brought(measure)
    return ours is not None and ours.lower_is_better


def reads_texts(measures: Sequence[str]) -> bool:
    """Whether one of the measures reads the texts of documents."""
    return any(isinstance(part, Measure) and part.reads_texts for part in _parsed(measures).values())


# --- what the measures read ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Task:
    """A run beside its judgements, checked: hits in order, distinct, with finite scores; grades whole."""

    hits: Mapping[str, tuple[Hit, ...]]  # judged queries that have some
    answers: Mapping[str, str]  # judged queries whose result has one
    qrels: Qrels
    queries: Mapping[str, Query]
    texts: Texts | None


def _task(run: AnyRun, qrels: Qrels, queries: Iterable[Query], texts: Texts | None) -> Task:
    if not table(qrels, "qrels", '{"q1": {"d1": 1}}'):
        raise UsageError("no query is judged", "give qrels with at least one query")
    grades = {_id(query, "query"): _whole(query, judged) for query, judged in qrels.items()}
    found = {_id(query, "query"): result for query, result in table(run, "the run", '{"q1": {"d1": 0.5}}').items()}
    results = {query: _result(query, found[query]) for query in grades if query in found}
    asked = listed(queries, Query, "evaluate", "queries")
    if texts is not None and not callable(texts):
        table(texts, "texts", '{"d1": "what it says"}')
    hits = {query: _ranked(query, result) for query, result in results.items() if result}
    answers = {query: result.answer for query, result in results.items() if result.answer is not None}
    if not hits and not answers:
        logger.warning("the run has no results for any of the %d judged queries: all count as misses", len(qrels))
    elif lacking := grades.keys() - found.keys():
        message = "the run has no results for %d of %d judged queries: they count as misses"
        logger.warning(message, len(lacking), len(grades))
    return Task(hits, answers, grades, {query.id: query for query in asked}, texts)


def _result(query: str, result: Result | Mapping[str, float]) -> Result:
    if isinstance(result, Result):
        return result
    scores = table(result, f"the run of {query}", '{"d1": 0.5}')
    return Result(tuple(Hit(_id(document, "document"), _score(query, score)) for document, score in scores.items()))


def _score(query: str, score: float) -> float:
    try:
        return float(score)
    except (TypeError, ValueError):
        raise UsageError(f"query {query!r}: a document has the score {brief(score)}", "give finite scores") from None


def _whole(query: str, grades: Mapping[str, float]) -> dict[str, int]:
    """The grades as whole numbers: trec_eval knows no others and would cut a half to nothing."""
    for document, grade in table(grades, f"what is judged for {query}", '{"d1": 1}').items():
        if not isinstance(grade, Real) or not float(grade).is_integer():
            raise UsageError(f"query {query!r}: document {document!r} has the grade {grade!r}", "give whole numbers")
    return {_id(document, "document"): int(grade) for document, grade in grades.items()}


def _id(value: str, what: str) -> str:
    """An id in the form in which Triever holds all of them."""
    return normalise(text(value, f"the id of a {what}"))


def _ranked(query: str, hits: Iterable[Hit]) -> tuple[Hit, ...]:
    order = ranked(hits)
    bad = next((hit for hit in order if not math.isfinite(hit.score)), None)
    if bad is not None:
        raise UsageError(f"query {query!r}: document {bad.id!r} has the score {bad.score}", "give finite scores")
    if len({hit.id for hit in order}) < len(order):
        raise UsageError(f"query {query!r}: a document was retrieved twice", "keep each document's best hit")
    return order


# --- standard measures, through ir_measures ------------------------------------------------------------------


def _standard(task: Task, measures: Mapping[str, IrMeasure]) -> dict[str, Values]:
    if not measures:
        return {}
    run = {query: _surrogates(hits) for query, hits in task.hits.items()}
    judged = {query: dict(grades) for query, grades in task.qrels.items() if grades}
    values = _trec().values(list(dict.fromkeys(measures.values())), judged, run)
    return {name: dict.fromkeys(task.qrels, 0.0) | values[measure] for name, measure in measures.items()}


def _surrogates(hits: Sequence[Hit]) -> dict[str, float]:
    """Whole numbers as scores, which keep our ranks: tools break ties in different ways, and trec_eval, whose
    scores are C floats, sees ties where doubles have none. Whole numbers are exact in both."""
    return {hit.id: float(len(hits) - index) for index, hit in enumerate(hits)}


def _trec() -> ModuleType:
    try:
        from triever.evaluation import trec
    except ModuleNotFoundError as error:
        if error.name != "ir_measures":
            raise
        raise MissingExtra("measuring a ranking", "pip install --no-deps ir-measures") from error
    return trec


@dataclass(frozen=True, slots=True)
class Standard:
    """A measure of ir_measures."""

    measure: IrMeasure

    def depth(self, qrels: Qrels | None, _queries: Sequence[Query]) -> int | None:
        """How many hits it reads; None for all of them."""
        relevant = max(map(_relevant_count, qrels.values()), default=0) if qrels is not None else None
        return _trec().depth(self.measure, relevant)


# --- our own measures -----------------------------------------------------------------------------------------


def _kilt_rprec(task: Task, query: str) -> float:
    ids = [hit.id for hit in task.hits.get(query, ())]
    relevant = {document for document, grade in task.qrels[query].items() if grade > 0}
    given = task.queries[query].evidence if query in task.queries else ()
    sets = [set(documents) for documents in given if documents] or [relevant]
    return max(len(wanted.intersection(ids[: len(wanted)])) / max(len(wanted), 1) for wanted in sets)


def _kilt_depth(qrels: Qrels | None, queries: Sequence[Query]) -> int | None:
    """The size of the largest set of evidence; a query without any counts its relevant documents."""
    sizes = [
        max(map(len, query.evidence), default=0) or _relevant_count((qrels or {}).get(query.id, {}))
        for query in queries
    ]
    return max(sizes, default=None)


def _answers(task: Task, query: str) -> tuple[str, ...]:
    """The answers of a question; blank ones count as none."""
    given = task.queries[query].answers if query in task.queries else ()
    return tuple(answer for answer in given if answer.strip())


def _need_answers(task: Task, measure: str) -> None:
    if not any(_answers(task, query) for query in task.qrels):
        raise UsageError(f"{measure} needs answers, but no judged query has any", "give queries with answers")


def _warn_of_unanswerable(task: Task) -> None:
    count = sum(not _answers(task, query) for query in task.qrels)
    if count:
        logger.warning(
            "%d of %d judged queries have no answers: Answer@k counts them as misses", count, len(task.qrels)
        )


def _answered(name: str, score: Callable[[str, Iterable[str]], float]) -> Measure:
    def needs(task: Task) -> None:
        if task.hits and not task.answers:
            problem = f"{name} needs a run with answers, but this run has only hits"
            raise UsageError(problem, "measure only systems that answer, such as reatt, or leave the measure out")
        _need_answers(task, name)

    def value(task: Task, query: str) -> float:
        if query not in task.queries:  # a question that nobody gave is not known to have no answer
            return 0.0
        return score(task.answers.get(query, ""), _answers(task, query))

    return Measure(value, 1, needs)


def _answer_at(cutoff: int) -> Measure:
    def value(task: Task, query: str) -> float:
        wanted = _answers(task, query)
        top = task.hits.get(query, ())[:cutoff] if wanted else ()
        return float(any(has_answer(_text(task, hit.id), wanted) for hit in top))

    needs = partial(_need_answers, measure="Answer@k")
    return Measure(value, cutoff, needs, warns=_warn_of_unanswerable, reads_texts=True)


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
class Measure:
    """A measure of ours or of another package, ready to be computed, and all that others have to know of it."""

    value: Callable[[Task, str], float]  # of the query with this id
    reads: int | Callable[[Qrels | None, Sequence[Query]], int | None] | None  # so many hits; None: all there are
    needs: Callable[[Task], None] | None = None  # refuses a task that it cannot measure
    warns: Callable[[Task], None] | None = None  # of what a task lacks
    lower_is_better: bool = False
    reads_texts: bool = False

    def depth(self, qrels: Qrels | None, queries: Sequence[Query]) -> int | None:
        """How many hits it reads; None: as many as there are."""
        return self.reads if self.reads is None or isinstance(self.reads, int) else self.reads(qrels, queries)

    def values(self, task: Task) -> Values:
        """Query id -> value."""
        if self.needs:
            self.needs(task)
        return {query: self.value(task, query) for query in task.qrels}


OWN: dict[str, Measure] = {
    "Brier": Measure(_brier, 1, lower_is_better=True),
    "EM": _answered("EM", exact_match),
    "F1": _answered("F1", f1),
    "KILT-Rprec": Measure(_kilt_rprec, _kilt_depth),
}
ANSWER_AT = re.compile(r"Answer@([1-9][0-9]*)")
WITH_CUTOFF = re.compile(r"(?P<base>[^@]+)(@(?P<cutoff>[1-9][0-9]*))?")


def _parsed(measures: Sequence[str]) -> dict[str, Measure | Standard]:
    """Every measure by the name it was asked for."""
    if isinstance(measures, str) or not isinstance(measures, Iterable):
        raise UsageError(f"measures = {brief(measures)} should be a list", f'for example: ["{DEFAULT_MEASURES[0]}"]')
    if not measures:
        raise UsageError("there is no measure to compute", f"name one, such as {DEFAULT_MEASURES[0]}")
    return {name: _parse(name) for name in measures}


def _own(name: str) -> Measure | None:
    """A measure of ours."""
    at = ANSWER_AT.fullmatch(name)
    return _answer_at(int(at[1])) if at else OWN.get(name)


def _brought(name: str) -> Measure | None:
    """A measure that an installed package brings: as it is, or for the cutoff of a name such as `Margin@2`."""
    form = WITH_CUTOFF.fullmatch(name)
    if form is None or form["base"] not in plugins.installed(plugins.MEASURES) or _is_known(form["base"]):
        return None
    base, cutoff = form["base"], form["cutoff"]
    provided = plugins.find(plugins.MEASURES, base)
    if callable(provided) != bool(cutoff):
        hint = f"it takes a cutoff: {base}@10" if callable(provided) else f"it takes no cutoff: {base}"
        raise UsageError(f"there is no measure {name!r}", hint)
    measure = provided(int(cutoff)) if callable(provided) else provided
    if not isinstance(measure, Measure):
        raise plugins.unusable(plugins.MEASURES, base, "a Measure, or a function that makes one for a cutoff")
    return measure


def _is_known(base: str) -> bool:
    """Whether a name without its cutoff is one of ours, or of ir_measures: these win."""
    return base in OWN or base == "Answer" or base in _trec().names()


def _parse(name: str) -> Measure | Standard:
    """A measure by its name, or the nearest name to it."""
    try:
        return _known(text(name, "a measure"))
    except KeyError:
        raise UsageError(f"there is no measure {name!r}", _hint(name, _trec().names())) from None


def _known(name: str) -> Measure | Standard:
    """One of ours, one that a package brings, or a measure of ir_measures; a KeyError where nobody has it."""
    return _own(name) or _brought(name) or Standard(_trec().parse(name))


def _hint(name: str, standard: Iterable[str]) -> str:
    """The nearest of all names, or the common ones: nobody reads fifty."""
    known = {*OWN, "Answer", *standard, *plugins.names(plugins.MEASURES)}
    base = re.split(r"[@(]", name)[0]
    suggested = close_name(base, known)
    if not suggested:
        return f"known: {', '.join(COMMON)}, …"
    return f"did you mean {suggested}{_cutoff(suggested, name.removeprefix(base))}?"


def _cutoff(base: str, rest: str) -> str:
    """What stands behind the name of a measure: as it was asked for where that can be computed, or as help shows it."""
    try:
        _known(base + rest)
    except (KeyError, TrieverError):
        return "@k" if base == "Answer" else ""
    return rest
