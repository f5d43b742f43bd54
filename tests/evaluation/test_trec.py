"""Our provider against the real trec_eval: its recorded values everywhere, the thing itself where it is installed."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from hypothesis import Phase, example, find, given, settings
from hypothesis import strategies as st
from ir_measures.providers.base import NOT_PROVIDED

from triever.data.records import Hit, Result
from triever.errors import MissingExtra, UsageError
from triever.evaluation import trec
from triever.evaluation.measures import per_query

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "trec_eval.json").read_text(encoding="utf-8"))
REAL = ir_measures.pytrec_eval.is_available()
MEASURES = [
    *("nDCG", "nDCG@1", "nDCG@3", "nDCG(judged_only=True)@3", "AP", "AP@2", "AP(rel=2)", "AP(judged_only=True)@3"),
    *("RR", "RR@2", "RR(rel=2)", "P@1", "P@3", "P(rel=2)@2", "P(judged_only=True)@2", "R@1", "R@3", "R(rel=2)@100"),
    *("Success@1", "Success@3", "Success(rel=3)@2", "Rprec", "Rprec(rel=2)", "NumRet", "NumRet(rel=2)", "NumRel"),
]


# --- the judge: trec_eval if it is here, else the definitions, written as plainly as possible ---------------


def judge(name: str, qrels: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, float]:
    return real(name, qrels, run) if REAL else {query: plain(name, qrels[query], run.get(query)) for query in qrels}


def real(name: str, qrels: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, float]:
    if name == "RR@2":  # not trec_eval's: ir_measures takes it from elsewhere, where ties break the other way
        return {query: value if value >= 1 / 2 else 0.0 for query, value in real("RR", qrels, run).items()}
    found = ir_measures.iter_calc([ir_measures.parse_measure(name)], qrels, run)
    return {metric.query_id: metric.value for metric in found}


def plain(name: str, grades: Mapping[str, int], scores: Mapping[str, float] | None) -> float:
    if not scores:
        return 0.0
    measure = ir_measures.parse_measure(name)
    allowed = measure.SUPPORTED_PARAMS
    order = sorted(scores, key=lambda document: (scores[document], document), reverse=True)
    if "judged_only" in allowed and measure["judged_only"]:
        order = [document for document in order if grades.get(document, -1) >= 0]
    at = measure["cutoff"] if "cutoff" in allowed else NOT_PROVIDED
    top = order if at is NOT_PROVIDED else order[:at]
    least = measure["rel"] if "rel" in allowed else 1
    if measure.NAME == "NumRet" and least is NOT_PROVIDED:
        return float(len(order))
    relevant = {document for document, grade in grades.items() if grade >= least}
    return float(PLAIN[str(measure.NAME)](top, relevant, grades, at))


def plain_ap(top: Sequence[str], relevant: set[str], *_: Any) -> float:
    total, seen = 0.0, 0
    for rank, document in enumerate(top, 1):
        if document in relevant:
            seen += 1
            total += seen / rank
    return total / len(relevant) if relevant else 0.0


def plain_ndcg(top: Sequence[str], relevant: set[str], grades: Mapping[str, int], at: Any) -> float:
    gains = [max(grades.get(document, 0), 0) for document in top]
    ideal = sorted((max(grade, 0) for grade in grades.values()), reverse=True)
    best = plain_dcg(ideal if at is NOT_PROVIDED else ideal[:at])
    return plain_dcg(gains) / best if best else 0.0


def plain_dcg(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def plain_rr(top: Sequence[str], relevant: set[str], *_: Any) -> float:
    for rank, document in enumerate(top, 1):
        if document in relevant:
            return 1 / rank
    return 0.0


PLAIN: dict[str, Callable[..., float]] = {
    "AP": plain_ap,
    "nDCG": plain_ndcg,
    "RR": plain_rr,
    "P": lambda top, relevant, _, at: len(relevant & set(top)) / at,
    "R": lambda top, relevant, *_: len(relevant & set(top)) / len(relevant) if relevant else 0,
    "Success": lambda top, relevant, *_: bool(relevant & set(top)),
    "Rprec": lambda top, relevant, *_: len(relevant & set(top[: len(relevant)])) / max(len(relevant), 1),
    "NumRet": lambda top, relevant, *_: len(relevant & set(top)),
    "NumRel": lambda _, relevant, *__: len(relevant),
}


# --- random judgements and runs: ties, gaps on either side, unjudged documents, negative grades -------------

IDS = st.sampled_from(["d1", "d2", "d10", "D1", "é", "e", "文"])
GRADES = st.dictionaries(IDS, st.integers(-2, 3), min_size=1).filter(lambda one: max(one.values()) >= 0)
SCORES = st.dictionaries(IDS, st.sampled_from([2.5, 1.0, 0.5, 0.0, -3.0]), min_size=1)
QUERIES = st.sampled_from(["q1", "q2", "q3"])
CASES = st.tuples(
    st.dictionaries(QUERIES, GRADES, min_size=1),
    st.dictionaries(QUERIES, SCORES),
)


def assert_equal(found: Mapping[str, float], expected: Mapping[str, float], name: str) -> None:
    assert found.keys() == expected.keys()
    for query, value in expected.items():
        assert found[query] == pytest.approx(value, abs=1e-9), (name, query)


def as_run(run: Mapping[str, Mapping[str, float]]) -> dict[str, Result]:
    return {query: Result(tuple(Hit(*one) for one in scores.items())) for query, scores in run.items()}


def ours(name: str, qrels: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, float]:
    return {m.query_id: m.value for m in trec.TrecProvider().iter_calc([trec.parse(name)], qrels, run)}


# --- tests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN["measures"])
def test_our_provider_gives_what_trec_eval_gave(name: str) -> None:
    place = GOLDEN["measures"].index(name)
    partial = 0
    for case in GOLDEN["cases"]:
        expected = {query: values[place] for query, values in case["values"].items()}
        assert_equal(ours(name, case["qrels"], case["run"]), expected, name)
        partial += sum(value != 0 for value in expected.values())
    assert partial >= 20, "a file of zeros would prove nothing"


@given(CASES)
@example(({"q1": {"d1": 1}}, {}))
@example(({"q1": {"d1": 0}}, {"q1": {"d1": 1.0}, "q2": {"d1": 1.0}}))
def test_our_provider_agrees_with_the_judge(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    for name in MEASURES:
        assert_equal(ours(name, *case), judge(name, *case), name)


@pytest.mark.skipif(not ir_measures.gdeval.is_available(), reason="gdeval needs perl")
@pytest.mark.parametrize("name", ["ERR@3", "ERR@20", "nDCG(dcg='exp-log2')@3", "nDCG(dcg='exp-log2')@20"])
def test_exponential_gains_agree_with_gdeval(name: str) -> None:
    """It takes whole numbers as query ids and does not know C floats, so the scores here are distinct."""
    rng, documents = random.Random(1), [f"d{number}" for number in range(12)]
    qrels = {str(q): {d: rng.choice([-1, 0, 0, 1, 2, 4]) for d in rng.sample(documents, 6)} for q in range(100)}
    run = {str(q): {d: float(-place) for place, d in enumerate(rng.sample(documents, 8))} for q in range(100)}
    expected = {m.query_id: m.value for m in ir_measures.gdeval.iter_calc([trec.parse(name)], qrels, run)}
    assert sum(value > 0 for value in expected.values()) >= 50
    assert ours(name, qrels, run) == pytest.approx(expected, abs=1e-5)


@given(CASES)
@example(({"q1": {"d1": 1, "d2": 2}}, {"q1": {"d1": 1.0, "d2": 1.0, "e": 1.0}}))
def test_per_query_agrees_with_the_judge(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    qrels, run = case
    found = per_query(as_run(run), qrels, MEASURES)
    for name in MEASURES:
        assert_equal(found[name], judge(name, qrels, run), name)


@pytest.mark.long
@pytest.mark.parametrize("name", MEASURES)
def test_the_random_cases_reach_every_measure(name: str) -> None:
    """Each measure can be partly right in a case that the strategies make."""
    whole = name == "P@1" or trec.parse(name).NAME in {"NumRet", "NumRel", "Success"}  # never between 0 and 1

    def reached(case: tuple[dict[str, Any], dict[str, Any]]) -> bool:
        return any(value >= 1 if whole else 0 < value < 1 for value in judge(name, *case).values())

    find(CASES, reached, settings=settings(phases=[Phase.generate], max_examples=2000))


def test_the_plain_judge_agrees_with_the_recorded_values() -> None:
    """So that the judge used where trec_eval is missing is itself judged."""
    for case in GOLDEN["cases"]:
        single = {q: {d: round(score, 6) for d, score in scores.items()} for q, scores in case["run"].items()}
        for place, name in enumerate(GOLDEN["measures"]):
            if trec.parse(name).NAME in PLAIN and "gains" not in name:
                expected = {query: values[place] for query, values in case["values"].items()}
                found = {query: plain(name, grades, single.get(query)) for query, grades in case["qrels"].items()}
                assert_equal(found, expected, name)


def test_scores_are_c_floats_to_the_provider_and_doubles_to_per_query() -> None:
    run, qrels = {"q": {"a": 1.0 + 1e-9, "b": 1.0}}, {"q": {"a": 1}}
    assert ours("RR", qrels, run) == {"q": 1 / 2}  # a tie, and b is the larger id
    assert per_query(as_run(run), qrels, ["RR"]) == {"RR": {"q": 1.0}}


def test_ndcg_by_hand() -> None:
    qrels = {"q": {"a": 3, "b": 1, "c": 2}}
    run = {"q": {"b": 9.0, "x": 8.0, "a": 7.0}}
    linear = (1 / math.log2(2) + 3 / math.log2(4)) / (3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4))
    assert ours("nDCG@3", qrels, run)["q"] == pytest.approx(linear, abs=1e-12)
    exponential = (1 / math.log2(2) + 7 / math.log2(4)) / (7 / math.log2(2) + 3 / math.log2(3) + 1 / math.log2(4))
    assert ours("nDCG(dcg='exp-log2')@3", qrels, run)["q"] == pytest.approx(exponential, abs=1e-12)


def test_err_by_hand() -> None:
    qrels, run = {"q": {"a": 3, "b": 1}}, {"q": {"b": 9.0, "x": 8.0, "a": 7.0}}
    first, third = (2**1 - 1) / 2**4, (2**3 - 1) / 2**4  # how likely a person stops there
    expected = first / 1 + (1 - first) * third / 3
    assert ours("ERR@3", qrels, run)["q"] == pytest.approx(expected, abs=1e-12)
    assert ours("ERR@2", qrels, run)["q"] == pytest.approx(first, abs=1e-12)
    assert ours("ERR", {"q": {"a": -1}}, run)["q"] == 0.0
    with pytest.raises(UsageError, match="ERR takes grades up to 4"):
        ours("ERR", {"q": {"a": 5}}, run)


def test_queries_with_negative_grades_only_are_safe_and_count_nothing() -> None:
    qrels, run = {"q": {"a": -1, "b": -2}, "r": {"a": 1}}, {"q": {"a": 1.0, "b": 2.0}, "r": {"a": 1.0}}
    names = ["nDCG@10", "nDCG", "AP", "nDCG(gains={0:5})@10", "NumRet", "Judged@2"]
    found = per_query(as_run(run), qrels, names)
    assert {name: values["q"] for name, values in found.items()} == {
        **dict.fromkeys(["nDCG@10", "nDCG", "AP", "nDCG(gains={0:5})@10"], 0.0),
        "NumRet": 2.0,
        "Judged@2": 1.0,
    }


def test_measures_asked_for_together_do_not_disturb_each_other() -> None:
    qrels, run = {"q": {"a": 1, "b": 2}}, as_run({"q": {"a": 2.0, "x": 1.5, "b": 1.0}})
    names = ["nDCG(gains={1:0})@3", "nDCG@3", "nDCG(judged_only=True)@3", "NumRet", "AP(judged_only=True)", "AP"]
    together = per_query(run, qrels, names)
    assert together == {name: per_query(run, qrels, [name])[name] for name in names}
    assert together["NumRet"] == {"q": 3.0}


def test_the_rest_of_ir_measures_still_answers() -> None:
    qrels, run = {"q": {"a": 1, "b": 0}}, as_run({"q": {"a": 1.0, "x": 2.0}})
    assert per_query(run, qrels, ["Judged@2", "RR@10"]) == {"Judged@2": {"q": 1 / 2}, "RR@10": {"q": 1 / 2}}


def test_the_real_trec_eval_comes_first_and_ours_next() -> None:
    parts = trec.pipeline().providers
    place = parts.index(ir_measures.pytrec_eval)
    assert isinstance(parts[place + 1], trec.TrecProvider)
    assert set(ir_measures.DefaultPipeline.providers) < set(parts)


@pytest.mark.parametrize(
    "name", ["nDCG@10", "NDCG@10", "P(rel=2)@5", "P(rel=2, judged_only=True)@5", " RR ", "SetF(beta=0.5)", "SetRelP"]
)
def test_names_mean_what_they_mean_to_ir_measures(name: str) -> None:
    assert trec.parse(name) == ir_measures.parse_measure(name.strip())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("P", "measure 'P' needs a cutoff; write it like P@10"),
        ("IPrec", "measure 'IPrec' needs a recall; write it like IPrec@0.5"),
        ("P@0", "measure 'P@0' cannot have cutoff=0; give 1 or more"),
        ("nDCG@-1", "measure 'nDCG@-1' cannot have cutoff=-1; give 1 or more"),
        ("AP(rel=0)", "measure 'AP(rel=0)' cannot have rel=0; give 1 or more"),
        ("P@2.5", "measure 'P@2.5' cannot have cutoff=2.5; give a whole number"),
        ("P@x", "measure 'P@x' cannot be read; write it like nDCG@10 or P(rel=2)@5"),
        ("P(3)@5", "measure 'P(3)@5' cannot be read; write it like nDCG@10 or P(rel=2)@5"),
        ("P(rel=)@5", "measure 'P(rel=)@5' cannot be read; write it like nDCG@10 or P(rel=2)@5"),
        ("P(rel=print(1))@5", "measure 'P(rel=print(1))@5' cannot be read; write it like nDCG@10 or P(rel=2)@5"),
        ("P(relevance=2)@5", "measure 'P(relevance=2)@5' has no parameter relevance; known: cutoff, judged_only, rel"),
        ("P(cutof=5)", "measure 'P(cutof=5)' has no parameter cutof; did you mean cutoff?"),
        ("SetF(beta=2)", "measure 'SetF(beta=2)' cannot have beta=2; give a number with a decimal point"),
        ("nDCG(gains=3)", "measure 'nDCG(gains=3)' cannot have gains=3; give something like {0: 0, 1: 1, 2: 4}"),
        ("nDCG(dcg='ln')@5", "measure \"nDCG(dcg='ln')@5\" cannot have dcg='ln'; give 'log2' or 'exp-log2'"),
    ],
)
def test_a_measure_that_does_not_fit_says_why(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        trec.parse(name)
    assert str(caught.value) == message


@pytest.mark.skipif(ir_measures.cwl_eval.is_available(), reason="cwl-eval is installed")
def test_a_measure_of_a_missing_package_says_how_to_get_it() -> None:
    with pytest.raises(MissingExtra, match="pip install"):
        trec.parse("RBP(rel=1)")


def test_a_measure_that_is_undefined_for_a_run_is_the_users_to_know() -> None:
    with pytest.raises(UsageError, match="not defined for one of the queries; leave out one of: Accuracy"):
        per_query(as_run({"q": {"a": 1.0}}), {"q": {"a": 1}}, ["Accuracy"])
