"""Whether a retriever is as sure as it is right, before and after a temperature, and what it gains by abstaining.

Retrievers that write docids give probabilities, by each normalisation that they have. Scores of dense retrieval and of
late interaction become probabilities by a softmax over all documents at the temperature of their training. Other scores
are no probabilities. Of a retriever that answers, its answers are measured, and not what it finds for them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypedDict

import numpy as np

from triever.data.datasets import Dataset
from triever.data.records import Qrels, Query, Result, Run
from triever.engines.nodes import NodeEngine
from triever.errors import UsageError
from triever.evaluation.abstaining import Point, abstaining, area, point_of_coverage, point_of_risk, risk_coverage
from triever.evaluation.answer_claims import answer_claims
from triever.evaluation.calibration import Bin, brier, expected_calibration_error, reliability
from triever.evaluation.compare import have_probabilities, questions, search_all, warn_of_other_documents
from triever.evaluation.finding import Finding, Part
from triever.evaluation.picture import Curve, Curves
from triever.evaluation.seen import ENOUGH
from triever.evaluation.temperature import Distributions, distributions, fitted_temperature
from triever.learning.answering import AnsweringRetriever
from triever.printable import an, count_of, mean_text
from triever.retriever import Retriever
from triever.retrievers.contextual import Contextual
from triever.retrievers.dense import Dense
from triever.retrievers.generative import Generative
from triever.retrievers.multivector import MultiVector

HITS = 100
"""Hits of a question whose probabilities are known; the others share what is left."""
RISK = 0.1
"""The share of wrong answers that a threshold allows where nothing is asked for."""
COVERAGES = tuple(tenth / 10 for tenth in range(1, 11))
"""Where the curve of risk is shown."""
DENSE = "softmax over all documents"
ANSWERS = "answers"
SHARED = "%s of %s can be found in %s too: what is fitted there looks better than it is; fit on other questions"
FEW = "the temperature and the threshold may be far off: %s questions of %s are few to choose them by"
_log = logging.getLogger("triever")


class BinRecord(TypedDict):
    """A bin of claims, as JSON holds it."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


class Calibrated(TypedDict):
    """How sure claims are at a temperature, and how right."""

    temperature: float
    brier: float
    calibration_error: float
    reliability: list[BinRecord]


class Threshold(TypedDict):
    """A threshold that was chosen on one split, there and on the split that is measured."""

    fitted: dict[str, float]
    measured: dict[str, float]


class WayValues(TypedDict):
    """The values of one way to probabilities."""

    right: float
    without_hits: int  # or without an answer
    as_it_comes: Calibrated
    tempered: Calibrated | None  # None where nothing was fitted
    risk_coverage: list[dict[str, float]]
    risk_area: float
    threshold: Threshold | None  # None where nothing was fitted, or no threshold does what was asked
    own: dict[str, float] | None  # what the threshold does from which a model answers by itself, if it has one


class CalibrationValues(TypedDict):
    """The values of this analysis."""

    data: str
    split: str
    fit_on: str | None
    fingerprint: str
    kind: str
    questions: int
    asked: dict[str, float] | None  # the risk or the coverage of the threshold
    ways: dict[str, WayValues]


@dataclass(frozen=True)
class Said:
    """What a retriever says about the questions of a split, and whether it is right."""

    distributions: Distributions
    right: np.ndarray  # (questions with hits,)
    without_hits: int
    own: Point | None = None  # what it does by itself, where it has a threshold

    @property
    def claimed(self) -> np.ndarray:
        """The probabilities of the best hits, as they come."""
        return self.distributions.claimed()


def calibration(
    retriever: Retriever,
    dataset: Dataset,
    split: str = "test",
    *,
    fit_on: str | None = None,
    risk: float | None = None,
    coverage: float | None = None,
) -> Finding:
    """Measure the claims of a retriever on a split; a temperature and a threshold are fitted on another one.

    The threshold allows this risk, 0.1 if nothing is said, or reaches this coverage.
    """
    _check_wishes(split, fit_on, risk, coverage)
    queries, qrels = questions(dataset, split)
    held_out = None
    if fit_on:
        held_out = questions(dataset, fit_on)
        _tell_of_fitted(queries, held_out[0], split, fit_on)
    warn_of_other_documents(retriever.kind, retriever, dataset, split)
    ways, curves = {}, {}
    for name, searched in probable(retriever).items():
        said = _said(searched, queries, qrels)
        fitted = _said(searched, *held_out) if held_out else None
        ways[name] = _values(said, fitted, risk, coverage)
        curves[name] = risk_coverage(said.claimed, said.right)
    values: CalibrationValues = {
        "data": dataset.name,
        "split": split,
        "fit_on": fit_on,
        "fingerprint": dataset.fingerprint[:16],
        "kind": retriever.kind,
        "questions": len(queries),
        "asked": _asked(risk, coverage) if fit_on else None,
        "ways": ways,
    }
    return Finding(values, _parts(values), curves=[_reliability_panel(ways), _risk_panel(curves)])


def probable(retriever: Retriever) -> dict[str, Retriever]:
    """The retriever by each way to its probabilities; what is not known here comes as it is.

    A softmax compares all documents, so that vectors are searched exactly whatever their index.
    """
    if isinstance(retriever, MultiVector):
        exact = replace(retriever.index, candidates=0, tokens=0)
        return {DENSE: retriever if retriever.index == exact else retriever.reindexed(candidates=0, tokens=0)}
    if isinstance(retriever, Dense):
        return {DENSE: retriever if retriever.index.kind == "flat" else retriever.reindexed(kind="flat")}
    if isinstance(retriever, AnsweringRetriever):
        return {ANSWERS: retriever}
    if isinstance(retriever, Generative | Contextual) and not retriever.search_options.writes_freely:
        over = ("documents", "trie") if isinstance(retriever.engine, NodeEngine) else ("trie", "vocabulary")
        return {f"over {name}": retriever.searching(normalisation=name) for name in over}
    return {retriever.kind: retriever}


def with_probabilities(retriever: Retriever, queries: Sequence[Query], results: Sequence[Result]) -> list[Result]:
    """The results of queries with a log-probability for each hit; an error where scores are no probabilities."""
    likely = retriever.with_probabilities(queries, results)
    if not have_probabilities(likely):
        problem = f"the scores of {an(retriever.kind)} retriever are no probabilities"
        raise UsageError(problem, "take a generative or a dense one")
    return likely


def _check_wishes(split: str, fit_on: str | None, risk: float | None, coverage: float | None) -> None:
    if fit_on == split:
        problem = f"a temperature that is fitted on {split!r} looks better there than it is"
        raise UsageError(problem, "fit it on another split, such as dev")
    if risk is not None and coverage is not None:
        raise UsageError("a threshold follows a risk or a coverage, not both", "leave one of them out")
    if fit_on is None and (risk is not None or coverage is not None):
        raise UsageError("a threshold has to be fitted on some split", "name one, such as dev, with --fit-on")


def _tell_of_fitted(measured: Sequence[Query], fitted: Sequence[Query], split: str, fit_on: str) -> None:
    """Say where questions that are measured are fitted on too, and where there are few to fit on."""
    both = {query.id for query in measured} & {query.id for query in fitted}
    if both:
        _log.warning(SHARED, count_of(len(both), "question"), split, fit_on)
    if len(fitted) < ENOUGH:
        _log.warning(FEW, len(fitted), fit_on)


def _asked(risk: float | None, coverage: float | None) -> dict[str, float]:
    return {"coverage": coverage} if coverage is not None else {"risk": RISK if risk is None else risk}


def _said(retriever: Retriever, queries: Sequence[Query], qrels: Qrels) -> Said:
    if isinstance(retriever, AnsweringRetriever):
        claims = answer_claims(retriever, queries, qrels)
        own = claims.own_point(retriever.answers_from)
        return Said(claims.distributions, claims.right, len(queries) - len(claims.right), own)
    first = queries[:1]
    with_probabilities(retriever, first, retriever.search_many(first, 1))  # refused before a long search
    run = search_all(retriever, queries, HITS, retriever.kind)
    results = with_probabilities(retriever, queries, [run[query.id] for query in queries])
    probable_run: Run = dict(zip((query.id for query in queries), results, strict=True))
    said, right = distributions(probable_run, {query.id: qrels[query.id] for query in queries}, len(retriever))
    if not len(right):
        raise UsageError(f"none of {len(queries):,} questions has a hit", "take other questions or another retriever")
    return Said(said, right, len(queries) - len(right))


def _values(said: Said, fitted: Said | None, risk: float | None, coverage: float | None) -> WayValues:
    curve = risk_coverage(said.claimed, said.right)
    temperature = fitted_temperature(fitted.distributions, fitted.right) if fitted else None
    return {
        "right": float(said.right.mean()),
        "without_hits": said.without_hits,
        "as_it_comes": _calibrated(said, 1.0),
        "tempered": _calibrated(said, temperature) if temperature else None,
        "risk_coverage": [asdict(point_of_coverage(curve, share)) for share in COVERAGES],
        "risk_area": area(curve),
        "threshold": _threshold(said, fitted, _asked(risk, coverage)) if fitted else None,
        "own": asdict(said.own) if said.own else None,
    }


def _calibrated(said: Said, temperature: float) -> Calibrated:
    claimed = said.distributions.claimed(temperature)
    bins = reliability(claimed, said.right)
    return {
        "temperature": temperature,
        "brier": brier(claimed, said.right),
        "calibration_error": expected_calibration_error(bins),
        "reliability": [_record(claims) for claims in bins],
    }


def _record(claims: Bin) -> BinRecord:
    return {
        "low": claims.low,
        "high": claims.high,
        "count": claims.count,
        "confidence": claims.confidence,
        "accuracy": claims.accuracy,
    }


def _threshold(said: Said, fitted: Said, asked: dict[str, float]) -> Threshold | None:
    curve = risk_coverage(fitted.claimed, fitted.right)
    if "coverage" in asked:
        chosen: Point | None = point_of_coverage(curve, asked["coverage"])
    else:
        chosen = point_of_risk(curve, asked["risk"])
    if chosen is None:
        return None
    return {"fitted": asdict(chosen), "measured": asdict(abstaining(said.claimed, said.right, chosen.threshold))}


# --- for a person to read --------------------------------------------------------------------------------------


def _parts(values: CalibrationValues) -> list[Part]:
    rows = [row for name, way in values["ways"].items() for row in _rows(name, way)]
    where = f"data {values['data']}; split {values['split']}; fingerprint {values['fingerprint']}"
    fitted = f"; temperature and threshold fitted on {values['fit_on']}" if values["fit_on"] else ""
    silent = max(way["without_hits"] for way in values["ways"].values())
    lines = [f"{where}; {values['questions']:,} questions{fitted}"]
    nothing = "got no answer" if ANSWERS in values["ways"] else "have no hits"
    lines += [f"{silent:,} questions {nothing} and are left out"] if silent else []
    parts = [Part(f"calibration of {values['kind']}", rows, lines)]
    for name, way in values["ways"].items():
        parts += [_bins_part(name, told) for told in (way["as_it_comes"], way["tempered"]) if told]
        parts.append(_risk_part(name, way, values))
    return parts


def _rows(name: str, way: WayValues) -> list[dict[str, str]]:
    return [
        {
            "probabilities": name,
            "temperature": mean_text(told["temperature"]),
            "Brier": mean_text(told["brier"]),
            "calibration error": mean_text(told["calibration_error"]),
            "right": mean_text(way["right"]),
        }
        for told in (way["as_it_comes"], way["tempered"])
        if told
    ]


def _bins_part(name: str, told: Calibrated) -> Part:
    rows = [
        {
            "claims": f"{claims.low:.1f} to {claims.high:.1f}",
            "questions": f"{claims.count:,}",
            "mean claim": mean_text(claims.confidence),
            "right": mean_text(claims.accuracy),
        }
        for claims in _bins(told)
    ]
    return Part(f"reliability, {name}, temperature {mean_text(told['temperature'])}", rows)


def _risk_part(name: str, way: WayValues, values: CalibrationValues) -> Part:
    points = dict.fromkeys(Point(**point) for point in way["risk_coverage"])  # equal claims are one point
    rows = [
        {"threshold": f"{point.threshold:.4g}", "coverage": mean_text(point.coverage), "risk": mean_text(point.risk)}
        for point in points
    ]
    lines = [f"mean risk over all coverages: {mean_text(way['risk_area'])}"]
    if way["own"]:
        own = Point(**way["own"])
        given = f"{own.threshold:.4g}: coverage {mean_text(own.coverage)}, risk {mean_text(own.risk)}"
        lines.append(f"it gives answers from {given}" if own.threshold <= 1 else "it gives no answer as it is set now")
    if values["asked"]:
        lines.append(_threshold_line(way["threshold"], values))
    return Part(f"risk and coverage, {name}, where claims below the threshold are not answered", rows, lines)


def _threshold_line(threshold: Threshold | None, values: CalibrationValues) -> str:
    [(wish, share)] = (values["asked"] or {}).items()
    if threshold is None:
        return f"no threshold has a {wish} of at most {share:g} on {values['fit_on']}"
    fitted, measured = (Point(**point) for point in (threshold["fitted"], threshold["measured"]))
    told = "; ".join(
        f"{split}: coverage {mean_text(point.coverage)}, risk {mean_text(point.risk)}"
        for split, point in ((values["fit_on"], fitted), (values["split"], measured))
    )
    return f"threshold for a {wish} of {share:g}: {fitted.threshold:.4g}; {told}"


def _bins(told: Calibrated) -> list[Bin]:
    return [Bin(**claims) for claims in told["reliability"]]


# --- to draw -----------------------------------------------------------------------------------------------------


def _reliability_panel(ways: dict[str, WayValues]) -> Curves:
    lines = []
    for name, way in ways.items():
        for told, variant in ((way["as_it_comes"], "as it comes"), (way["tempered"], "with the fitted temperature")):
            if told:
                bins = _bins(told)
                points = [(claims.confidence, claims.accuracy) for claims in bins]
                shares = [claims.count / sum(claims.count for claims in bins) for claims in bins]
                lines.append(Curve(f"{name}, {variant}", points, shares))
    return Curves("reliability", "claimed probability", "share that is right", lines, diagonal=True)


def _risk_panel(curves: dict[str, list[Point]]) -> Curves:
    lines = [
        Curve(f"{name}, as it comes", [(point.coverage, point.risk) for point in curve])
        for name, curve in curves.items()
    ]
    return Curves("risk by coverage", "coverage: share of questions answered", "risk: share of answers wrong", lines)
