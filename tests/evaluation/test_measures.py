"""What `per_query` promises, and our own measures with their sums written out."""

from __future__ import annotations

import builtins
import logging
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.data.records import Hit, Query, Result
from triever.errors import MissingExtra, UsageError
from triever.evaluation import measures
from triever.evaluation.measures import DEFAULT_MEASURES, lower_is_better, per_query


def result(*ids: str, answer: str | None = None, probabilities: Sequence[float] = ()) -> Result:
    """Hits with falling scores."""
    logs = [math.log(p) for p in probabilities] or [None] * len(ids)
    hits = [Hit(one, float(-place), logprob=log) for place, (one, log) in enumerate(zip(ids, logs, strict=True))]
    return Result(tuple(hits), answer=answer)


def refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        per_query(*arguments, **options)
    return str(caught.value)


# --- what is promised ---------------------------------------------------------------------------------------


def test_every_judged_query_has_a_value_and_no_other() -> None:
    run = {"q1": result("a"), "extra": result("a"), "q3": Result()}
    values = per_query(run, {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}, "q4": {}}, ["RR@10", "Judged@5"])
    assert values["RR@10"] == {"q1": 1.0, "q2": 0.0, "q3": 0.0, "q4": 0.0}
    assert values["Judged@5"] == {"q1": 1.0, "q2": 0.0, "q3": 0.0, "q4": 0.0}


def test_names_stay_as_they_were_asked_for_each_once() -> None:
    values = per_query({"q": result("x", "a")}, {"q": {"a": 1}}, ["MRR@10", "RR@10", "MRR@10"])
    assert values == {"MRR@10": {"q": 1 / 2}, "RR@10": {"q": 1 / 2}}


def test_the_default_measures_are_known() -> None:
    values = per_query({"q": result("x", "a")}, {"q": {"a": 1, "b": 1}}, DEFAULT_MEASURES)
    assert values == {
        "nDCG@10": {"q": pytest.approx((1 / math.log2(3)) / (1 + 1 / math.log2(3)))},
        "RR@10": {"q": 1 / 2},
        "Success@1": {"q": 0.0},
        "Success@10": {"q": 1.0},
        "R@100": {"q": 1 / 2},
    }


def test_ranks_follow_scores_and_then_the_larger_id() -> None:
    hits = Result((Hit("a", 1.0), Hit("c", 1.0), Hit("b", 2.0)))
    assert per_query({"q": hits}, {"q": {"a": 1}}, ["RR"]) == {"RR": {"q": 1 / 3}}
    assert per_query({"q": hits}, {"q": {"c": 1}}, ["RR"]) == {"RR": {"q": 1 / 2}}


@given(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=6, unique=True))
def test_doubles_are_never_tied(scores: list[float]) -> None:
    best = max(range(len(scores)), key=lambda place: scores[place])
    hits = Result(tuple(Hit(f"d{place}", score) for place, score in enumerate(scores)))
    assert per_query({"q": hits}, {"q": {f"d{best}": 1}}, ["Success@1"]) == {"Success@1": {"q": 1.0}}


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused(score: float) -> None:
    run = {"q7": Result((Hit("a", 1.0), Hit("b", score)))}
    assert refusal(run, {"q7": {"a": 1}}, ["RR"]).startswith("query 'q7': document 'b' has the score ")


def test_a_document_retrieved_twice_is_refused() -> None:
    run = {"q7": Result((Hit("a", 1.0), Hit("a", 0.5)))}
    message = "query 'q7': a document was retrieved twice; keep each document's best hit"
    assert refusal(run, {"q7": {"a": 1}}, ["RR"]) == message


def test_nothing_judged_is_refused() -> None:
    assert refusal({"q": result("a")}, {}, ["RR"]).startswith("no query is judged")


def test_no_measure_is_refused() -> None:
    assert refusal({}, {"q": {"a": 1}}, []).startswith("there is no measure to compute")


def test_a_run_without_the_judged_queries_gives_zeros_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="triever"):
        values = per_query({"other": result("a")}, {"q1": {"a": 1}, "q2": {"a": 1}}, ["RR", "EM"], queries=QUERIES)
    assert values == {"RR": {"q1": 0.0, "q2": 0.0}, "EM": {"q1": 0.0, "q2": 0.0}}
    assert "no results for any of the 2 judged queries" in caplog.text


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("nDGC@10", "did you mean nDCG?"),
        ("sucess@1", "did you mean Success?"),
        ("KILT-RPrec", "did you mean KILT-Rprec?"),
        ("Answer", "did you mean Answer@k?"),
        ("Answer@0", "did you mean Answer@k?"),
        ("EM@1", "did you mean EM?"),
        ("brier", "did you mean Brier?"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, hint: str) -> None:
    assert refusal({}, {"q": {"a": 1}}, ["RR", name]) == f"there is no measure {name!r}; {hint}"


def test_without_ir_measures_only_our_own_measures_work(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name == "triever.evaluation" and "trec" in (arguments[2] or ()):
            raise ModuleNotFoundError("No module named 'ir_measures'", name="ir_measures")
        return original(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    assert per_query({"q": result("a")}, {"q": {"a": 1}}, ["KILT-Rprec"]) == {"KILT-Rprec": {"q": 1.0}}
    with pytest.raises(MissingExtra, match="run: pip install --no-deps ir-measures"):
        measures._parse("nDCG@10")


# --- KILT ---------------------------------------------------------------------------------------------------


def kilt(ids: Sequence[str], *evidence: tuple[str, ...], grades: dict[str, int] | None = None) -> float:
    query = Query("q", "?", evidence=evidence)
    qrels = {"q": grades or {"a": 1, "b": 1, "c": 1}}
    return per_query({"q": result(*ids)}, qrels, ["KILT-Rprec"], queries=[query])["KILT-Rprec"]["q"]


def test_kilt_takes_the_best_set_of_evidence() -> None:
    assert kilt(["a", "x", "b"], ("a", "b")) == 1 / 2  # the top 2 hold a
    assert kilt(["a", "x", "b"], ("b",), ("a",)) == 1 / 1  # the second set alone is enough
    assert kilt(["x", "b", "a"], ("a",), ("a", "b", "c")) == 2 / 3  # 0/1 or 2/3
    assert kilt(["x"], ("a",), ("b",)) == 0.0
    assert kilt([], ("a",)) == 0.0


def test_kilt_without_evidence_uses_what_is_relevant() -> None:
    assert kilt(["a", "x", "b"]) == 2 / 3
    assert kilt(["a", "b"], (), grades={"a": 1, "b": 0}) == 1 / 1
    assert kilt(["a"], grades={"a": 0}) == 0.0
    assert per_query({"q": result("a")}, {"q": {"a": 1}}, ["KILT-Rprec"]) == {"KILT-Rprec": {"q": 1.0}}


# --- answers ------------------------------------------------------------------------------------------------

QUERIES = [Query("q1", "?", answers=("Paris",)), Query("q2", "?", answers=("the Nile", "Nile river"))]
JUDGED = {"q1": {"a": 1}, "q2": {"a": 1}}


def test_answers_are_compared_with_the_best_of_the_queries_own() -> None:
    run = {"q1": result("a", answer="paris."), "q2": result("a", answer="a long river")}
    values = per_query(run, JUDGED, ["EM", "F1"], queries=QUERIES)
    assert values["EM"] == {"q1": 1.0, "q2": 0.0}
    # "long river" and "nile river" share one token of two: p = 1/2, r = 1/2
    assert values["F1"] == {"q1": 1.0, "q2": 2 * (1 / 2) * (1 / 2) / (1 / 2 + 1 / 2)}


def test_a_query_without_an_answer_counts_zero() -> None:
    run = {"q1": result("a", answer="Paris"), "q2": result("a")}
    assert per_query(run, JUDGED, ["EM"], queries=QUERIES) == {"EM": {"q1": 1.0, "q2": 0.0}}


def test_an_answer_needs_no_hits() -> None:
    assert per_query({"q1": result(answer="Paris")}, JUDGED, ["EM"], queries=QUERIES)["EM"]["q1"] == 1.0


def test_answer_at_k_reads_the_top_texts() -> None:
    texts = {"a": "Of cheese.", "b": "It is in PARIS, France.", "c": "Comparisons."}
    run = {"q1": result("a", "b", "c"), "q2": result("c")}
    values = per_query(run, JUDGED, ["Answer@1", "Answer@2"], queries=QUERIES, texts=texts)
    assert values == {"Answer@1": {"q1": 0.0, "q2": 0.0}, "Answer@2": {"q1": 1.0, "q2": 0.0}}
    assert values == per_query(run, JUDGED, ["Answer@1", "Answer@2"], queries=QUERIES, texts=texts.__getitem__)


def test_what_was_not_given_is_asked_for() -> None:
    run = {"q1": result("a", answer="x"), "q2": result("a")}
    silent = {"q1": result("a")}
    some = QUERIES[:1]
    assert refusal(run, JUDGED, ["EM"]) == "EM needs answers, and query 'q1' has none; give queries with answers"
    assert refusal(run, JUDGED, ["F1"], queries=some).startswith("F1 needs answers, and query 'q2' has none")
    assert refusal(silent, JUDGED, ["EM"], queries=QUERIES).startswith("EM needs a run that answers")
    assert refusal(run, JUDGED, ["Answer@5"], texts={}).startswith("Answer@k needs answers, and query 'q1' has none")
    assert refusal(run, JUDGED, ["Answer@5"], queries=QUERIES).startswith("Answer@k needs the documents' texts")
    message = refusal(run, JUDGED, ["Answer@5"], queries=QUERIES, texts={"b": ""})
    assert message == "there is no text for document 'a'; give the texts of all hits"


# --- probabilities ------------------------------------------------------------------------------------------


def test_brier_is_the_squared_error_of_the_top_hits_probability() -> None:
    run = {"q1": result("a", "b", probabilities=[0.75, 0.125]), "q2": result("b", "a", probabilities=[0.5, 0.25])}
    values = per_query(run, JUDGED | {"q3": {"a": 1}}, ["Brier"])["Brier"]
    assert values["q1"] == pytest.approx((0.75 - 1) ** 2)
    assert values["q2"] == pytest.approx((0.5 - 0) ** 2)
    assert values["q3"] == 1.0  # no hits: the worst there is


def test_brier_needs_probabilities() -> None:
    assert refusal({"q1": result("a")}, JUDGED, ["Brier"]).startswith("query 'q1': its hits have no probabilities")
    loud = {"q1": Result((Hit("a", 1.0, logprob=2.0),))}
    assert refusal(loud, JUDGED, ["Brier"]).startswith("query 'q1': 2.0 is not a log-probability")


def test_less_is_better_only_for_errors() -> None:
    assert lower_is_better("Brier")
    assert not any(map(lower_is_better, DEFAULT_MEASURES))
