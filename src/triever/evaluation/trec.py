"""The ranking measures of ir_measures, on every platform; the only file that talks to that library.

Its compiled half, trec_eval, has no build for Linux on ARM. `TrecProvider` computes trec_eval's measures in
NumPy with the same results: tests/golden holds those of the real one.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias

import ir_measures
import numpy as np
from ir_measures import Measure, Metric, providers
from ir_measures import measures as known
from ir_measures.measures.base import registry
from ir_measures.providers.base import NOT_PROVIDED
from ir_measures.util import QrelsConverter, RunConverter

from triever import ranks
from triever.data.records import Qrels
from triever.errors import MissingExtra, UsageError, nearest

UNJUDGED = -1
MAX_ERR_GRADE = 4


@dataclass(frozen=True, slots=True)
class JudgedRanking:
    """One query as a measure sees it. A negative grade is "unjudged", as trec_eval has it."""

    grades: np.ndarray  # (hits,) by rank; UNJUDGED where there is no judgement
    judged: np.ndarray  # (judgements,) the query's grades, in no order

    @classmethod
    def of(cls, ids: Sequence[str], grades: Mapping[str, int], judged_only: bool = False) -> JudgedRanking:
        judged = {document: grade for document, grade in grades.items() if grade >= 0}
        ranked = [judged.get(document, UNJUDGED) for document in ids]
        kept = [grade for grade in ranked if grade >= 0] if judged_only else ranked
        return cls(np.array(kept, dtype=np.int64), np.array(list(judged.values()), dtype=np.int64))


# --- the measures: small functions of a ranking and a measure's parameters ---------------------------------


def _top(ranking: JudgedRanking, measure: Measure) -> np.ndarray:
    """Whether each of the top hits is relevant, (at most the cutoff,)."""
    at = measure["cutoff"] if "cutoff" in measure.SUPPORTED_PARAMS else NOT_PROVIDED
    grades = ranking.grades if at is NOT_PROVIDED else ranking.grades[:at]
    return grades >= measure["rel"]


def _relevant_hits(ranking: JudgedRanking, measure: Measure) -> int:
    return int(np.count_nonzero(_top(ranking, measure)))


def _relevant(ranking: JudgedRanking, measure: Measure) -> int:
    return int(np.count_nonzero(ranking.judged >= measure["rel"]))


def _share(part: float, whole: float) -> float:
    """A fraction that is zero where there is nothing to be a fraction of."""
    return float(part / whole) if whole else 0.0


def precision(ranking: JudgedRanking, measure: Measure) -> float:
    return _share(_relevant_hits(ranking, measure), measure["cutoff"])


def recall(ranking: JudgedRanking, measure: Measure) -> float:
    return _share(_relevant_hits(ranking, measure), _relevant(ranking, measure))


def success(ranking: JudgedRanking, measure: Measure) -> float:
    return float(_top(ranking, measure).any())


def reciprocal_rank(ranking: JudgedRanking, measure: Measure) -> float:
    return ranks.reciprocal_rank(_top(ranking, measure))


def average_precision(ranking: JudgedRanking, measure: Measure) -> float:
    ranks = np.flatnonzero(_top(ranking, measure)) + 1
    precisions = np.arange(1, len(ranks) + 1) / ranks
    return _share(float(precisions.sum()), _relevant(ranking, measure))


def r_precision(ranking: JudgedRanking, measure: Measure) -> float:
    wanted = _relevant(ranking, measure)
    return _share(float(_top(ranking, measure)[:wanted].sum()), wanted)


def ndcg(ranking: JudgedRanking, measure: Measure) -> float:
    at = None if measure["cutoff"] is NOT_PROVIDED else measure["cutoff"]
    ideal = np.sort(ranking.judged)[::-1]
    exponential = measure["dcg"] == "exp-log2"
    return _share(_dcg(ranking.grades[:at], exponential), _dcg(ideal[:at], exponential))


def _dcg(grades: np.ndarray, exponential: bool) -> float:
    gains = np.maximum(grades, 0).astype(np.float64)
    return float((np.exp2(gains) - 1.0 if exponential else gains) @ _discounts(len(grades)))


@lru_cache(maxsize=1024)
def _discounts(n: int) -> np.ndarray:
    return 1.0 / np.log2(np.arange(2, n + 2))


def expected_reciprocal_rank(ranking: JudgedRanking, measure: Measure) -> float:
    """As gdeval, TREC's own script, has it, which is written in Perl, wants whole numbers as query ids and
    rounds to five digits."""
    at = None if measure["cutoff"] is NOT_PROVIDED else measure["cutoff"]
    if ranking.judged.max(initial=0) > MAX_ERR_GRADE:
        raise UsageError(f"ERR takes grades up to {MAX_ERR_GRADE} only", "use nDCG, which takes all grades")
    stops = (np.exp2(np.maximum(ranking.grades[:at], 0)) - 1.0) / 2.0**MAX_ERR_GRADE
    arrives = np.concatenate([[1.0], np.cumprod(1.0 - stops)[:-1]])[: len(stops)]
    return float((arrives * stops / np.arange(1, len(stops) + 1)).sum())


def retrieved(ranking: JudgedRanking, measure: Measure) -> float:
    everything = measure["rel"] is NOT_PROVIDED
    return float(len(ranking.grades) if everything else np.count_nonzero(ranking.grades >= measure["rel"]))


def relevant(ranking: JudgedRanking, measure: Measure) -> float:
    return float(_relevant(ranking, measure))


def set_precision(ranking: JudgedRanking, measure: Measure) -> float:
    hits = len(ranking.grades)
    possible = min(hits, _relevant(ranking, measure)) if measure["relative"] else hits
    return _share(_relevant_hits(ranking, measure), possible)


def set_f(ranking: JudgedRanking, measure: Measure) -> float:
    """The F measure of the whole set; trec_eval's weight is beta itself, not its square."""
    hits, beta = _relevant_hits(ranking, measure), measure["beta"]
    p, r = _share(hits, len(ranking.grades)), _share(hits, _relevant(ranking, measure))
    return _share((beta + 1.0) * p * r, r + beta * p)


def set_average_precision(ranking: JudgedRanking, measure: Measure) -> float:
    hits = _relevant_hits(ranking, measure)
    return _share(hits * hits, len(ranking.grades) * _relevant(ranking, measure))


def bpref(ranking: JudgedRanking, measure: Measure) -> float:
    """How seldom a document judged irrelevant stands above a relevant one."""
    judged = ranking.grades[ranking.grades >= 0]
    is_relevant, wanted = judged >= measure["rel"], _relevant(ranking, measure)
    above = np.minimum(np.cumsum(~is_relevant)[is_relevant], wanted)
    bound = min(len(ranking.judged) - wanted, wanted)
    return _share(len(above) - _share(float(above.sum()), bound), wanted)


Function: TypeAlias = Callable[[JudgedRanking, Measure], float]
FUNCTIONS: dict[str, Function] = {
    "AP": average_precision,
    "Bpref": bpref,
    "ERR": expected_reciprocal_rank,
    "NumQ": lambda ranking, measure: 1.0,  # noqa: ARG005  a query that was answered is one query
    "NumRel": relevant,
    "NumRet": retrieved,
    "P": precision,
    "R": recall,
    "RR": reciprocal_rank,
    "Rprec": r_precision,
    "SetAP": set_average_precision,
    "SetF": set_f,
    "SetP": set_precision,
    "SetR": recall,
    "Success": success,
    "nDCG": ndcg,
}


# --- the provider -------------------------------------------------------------------------------------------


class TrecProvider(providers.Provider):
    """trec_eval's measures in NumPy, for platforms without trec_eval."""

    NAME = "triever"

    def supports(self, measure: Measure) -> bool:
        measure.validate_params()
        return measure.NAME in FUNCTIONS

    def _evaluator(self, measures: Iterable[Measure], qrels: Any) -> TrecEvaluator:
        return TrecEvaluator(measures, QrelsConverter(qrels).as_dict_of_dict())


class TrecEvaluator(providers.Evaluator):
    """Measures over one set of judgements; queries that a run lacks are filled in by the base class."""

    def __init__(self, measures: Iterable[Measure], qrels: Qrels) -> None:
        super().__init__(list(measures), set(qrels))
        self.qrels = qrels
        self.views = _by_view(self.measures)

    def _iter_calc(self, run: Any) -> Iterator[Metric]:
        scores = RunConverter(run).as_dict_of_dict()
        for query in scores.keys() & self.qrels.keys():
            yield from self._query(query, trec_order(scores[query]))

    def _query(self, query: str, ids: Sequence[str]) -> Iterator[Metric]:
        for (judged_only, gains), measures in self.views.items():
            ranking = JudgedRanking.of(ids, _mapped(self.qrels[query], dict(gains)), judged_only)
            for measure in measures:
                yield Metric(query_id=query, measure=measure, value=FUNCTIONS[str(measure.NAME)](ranking, measure))


View: TypeAlias = tuple[bool, tuple[tuple[int, int], ...]]


def _view(measure: Measure) -> View:
    """What a measure changes about a ranking before it reads it: unjudged hits left out, grades mapped."""
    params = measure.SUPPORTED_PARAMS
    judged_only = "judged_only" in params and measure["judged_only"]
    gains: Any = measure["gains"] if "gains" in params else NOT_PROVIDED
    return bool(judged_only), () if gains is NOT_PROVIDED else tuple(sorted(gains.items()))


def _mapped(grades: Mapping[str, int], gains: Mapping[int, int]) -> Mapping[str, int]:
    return {document: gains.get(grade, grade) for document, grade in grades.items()} if gains else grades


def trec_order(scores: Mapping[str, float]) -> list[str]:
    """Document ids as trec_eval ranks them: by score, which it holds as a C float, then the larger id first."""
    with np.errstate(over="ignore"):
        single = np.fromiter(scores.values(), dtype=np.float32, count=len(scores))
    return [document for _, document in sorted(zip(single.tolist(), scores, strict=True), reverse=True)]


# --- the library, by name -----------------------------------------------------------------------------------


@cache
def pipeline() -> providers.FallbackProvider:
    """The providers in their order: trec_eval if it is installed, then ours, then all others of ir_measures."""
    parts = list(ir_measures.DefaultPipeline.providers)
    after = parts.index(ir_measures.pytrec_eval) + 1
    return providers.FallbackProvider([*parts[:after], TrecProvider(), *parts[after:]])


def values(
    measures: Sequence[Measure], qrels: Qrels, run: Mapping[str, Mapping[str, float]]
) -> dict[Measure, dict[str, float]]:
    """Every measure for every judged query; what no provider reports is the measure's default."""
    by_measure = {measure: dict.fromkeys(qrels, float(measure.DEFAULT)) for measure in measures}
    for (_, gains), group in _by_view(measures).items() if run else ():
        for metric in _calculated(group, _survivable(qrels, dict(gains)), run):
            by_measure[metric.measure][metric.query_id] = float(metric.value)
    return by_measure


def _calculated(measures: Sequence[Measure], qrels: Qrels, run: Mapping[str, Mapping[str, float]]) -> list[Metric]:
    try:
        return list(pipeline().iter_calc(measures, qrels, run))
    except ZeroDivisionError as error:  # Accuracy, where all that was retrieved is relevant
        hint = f"leave out one of: {', '.join(map(str, measures))}"
        raise UsageError("a measure is not defined for one of the queries", hint) from error


def _survivable(qrels: Qrels, gains: Mapping[int, int]) -> dict[str, Mapping[str, int]]:
    """The same judgements without queries whose grades are all negative, on which trec_eval may crash.

    To trec_eval such documents are unjudged, so the query has nothing relevant: zeros say the same. Where
    gains would raise those zeros the query is left out, which also counts nothing.
    """
    safe: dict[str, Mapping[str, int]] = {}
    for query, grades in qrels.items():
        if any(gains.get(grade, grade) >= 0 for grade in grades.values()):
            safe[query] = grades
        elif not gains:
            safe[query] = dict.fromkeys(grades, 0)
    return safe


def _by_view(measures: Iterable[Measure]) -> dict[View, list[Measure]]:
    """Groups of measures that may be computed together.

    Asked for nDCG with and without gains at once, the pytrec_eval provider of ir_measures 0.4.3 may compute
    both with the gains; asked for one view at a time it cannot.
    """
    groups: dict[View, list[Measure]] = defaultdict(list)
    for measure in measures:
        groups[_view(measure)].append(measure)
    return groups


FORM = re.compile(r"(?P<base>\w+)(?:\((?P<arguments>.*)\))?(?:@(?P<at>[^@]+))?", re.DOTALL)


def parse(name: str) -> Measure:
    """A measure by its name, such as `nDCG@10` or `P(rel=2)@5`, that can be computed here."""
    form = FORM.fullmatch(name.strip())
    if form is None or form["base"] not in registry:
        raise KeyError(name)
    kind = registry[form["base"]]
    given = _arguments(name, form["arguments"])
    if form["at"] is not None:
        given[kind.AT_PARAM] = _literal(name, form["at"])
    return _computable(name, _checked(name, kind(**given)))


def names() -> set[str]:
    """Every name that `parse` knows, without cutoffs; of names that differ only in case, the measure's main one."""
    main_names = (str(kind.NAME) for kind in registry.values())
    return set({name.casefold(): name for name in (*registry, *main_names)}.values())


def depth(measure: Measure, relevant: int | None = None) -> int | None:
    """How many hits a measure reads; None for all, also where its cutoff counts only those that are judged.

    R-precision reads as many as a query has relevant documents, which are at most `relevant`, where that is known.
    """
    cutoff = relevant if measure.NAME == "Rprec" else measure.params.get("cutoff")
    return cutoff if isinstance(cutoff, int) and not measure.params.get("judged_only") else None


def _arguments(name: str, text: str | None) -> dict[str, object]:
    """The parameters between the brackets. ir_measures has a parser too; Python 3.14 breaks it."""
    try:
        call = ast.parse(f"f({text or ''})", mode="eval").body
    except SyntaxError as error:
        raise _unreadable(name) from error
    if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
        raise _unreadable(name)
    return {str(keyword.arg): _literal(name, ast.unparse(keyword.value)) for keyword in call.keywords}


def _literal(name: str, text: str) -> object:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError) as error:
        raise _unreadable(name) from error


def _unreadable(name: str) -> UsageError:
    return UsageError(f"measure {name!r} cannot be read", "write it like nDCG@10 or P(rel=2)@5")


def _checked(name: str, measure: Measure) -> Measure:
    """The measure, if its parameters fit; trec_eval itself crashes the process on a cutoff of 0."""
    allowed = measure.SUPPORTED_PARAMS
    for key in measure.params.keys() - allowed.keys():
        raise UsageError(f"measure {name!r} has no parameter {key}", nearest(key, allowed))
    for key, information in allowed.items():
        _check_parameter(name, measure, key, information)
    return measure


def _check_parameter(name: str, measure: Measure, key: str, information: known.ParamInfo) -> None:
    value = measure.params.get(key, NOT_PROVIDED)
    if value is NOT_PROVIDED and information.required:
        raise UsageError(f"measure {name!r} needs a {key}", f"write it like {_example(measure, key)}")
    small = key in {"cutoff", "rel"} and isinstance(value, int) and value < 1
    if small or not information.validate(value):
        wanted = "1 or more" if small else _wanted(information)
        raise UsageError(f"measure {name!r} cannot have {key}={value!r}", f"give {wanted}")


def _wanted(information: known.ParamInfo) -> str:
    if information.choices is not NOT_PROVIDED:
        return " or ".join(map(repr, information.choices))
    kinds = {int: "a whole number", float: "a number with a decimal point", bool: "True or False"}
    return kinds.get(information.dtype, "something like {0: 0, 1: 1, 2: 4}")


def _example(measure: Measure, key: str) -> str:
    example = {int: "10", float: "0.5"}.get(measure.SUPPORTED_PARAMS[key].dtype, "...")
    return f"{measure.NAME}@{example}" if key == measure.AT_PARAM else f"{measure.NAME}({key}={example})"


def _computable(name: str, measure: Measure) -> Measure:
    if pipeline().supports(measure):
        return measure
    for provider in pipeline().providers:
        if provider.supports(measure) and provider.install_instructions():
            raise MissingExtra(f"measure {name}", provider.install_instructions())
    raise UsageError(f"no installed package computes {name!r}", "ask for another measure or other parameters")
