"""What `per_query` promises, and our own measures with their sums written out."""

from __future__ import annotations

import builtins
import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures.measures.base import registry

from triever.data.records import Hit, Query, Result
from triever.errors import MissingExtra, UsageError
from triever.evaluation import measures, trec
from triever.evaluation.measures import (
    COMMON,
    DEFAULT_MEASURES,
    OWN,
    check,
    depth,
    lower_is_better,
    per_query,
    reads_texts,
)


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


def test_a_run_may_be_scores_by_document() -> None:
    scores = {"q1": {"a": 1.0, "b": np.float32(2.0), "c": 1}, "q2": {}}
    results = {"q1": Result((Hit("a", 1.0), Hit("b", 2.0), Hit("c", 1.0))), "q2": Result()}
    measures = ["RR", "P@1", "KILT-Rprec"]
    values = per_query(scores, {"q1": {"a": 1}, "q2": {"a": 1}}, measures)
    assert values == per_query(results, {"q1": {"a": 1}, "q2": {"a": 1}}, measures)
    assert values["RR"] == {"q1": 1 / 3, "q2": 0.0}


@pytest.mark.parametrize("grade", [0.5, math.nan, math.inf, "1", None])
def test_grades_that_are_not_whole_are_refused(grade: Any) -> None:
    message = f"query 'q': document 'd' has the grade {grade!r}; give whole numbers"
    assert refusal({"q": result("d")}, {"q": {"a": 1, "d": grade}}, ["RR"]) == message


@pytest.mark.parametrize("grade", [2, 2.0, np.int64(2), np.float32(2.0)])
def test_whole_grades_may_have_any_type(grade: Any) -> None:
    values = per_query({"q": result("x", "d")}, {"q": {"d": grade}}, ["RR(rel=2)", "nDCG@10", "KILT-Rprec"])
    assert values["RR(rel=2)"] == {"q": 1 / 2}
    assert values["nDCG@10"] == {"q": pytest.approx(1 / math.log2(3))}
    assert type(measures._whole("q", {"d": grade})["d"]) is int  # the compiled trec_eval takes nothing else


def test_nothing_judged_is_refused() -> None:
    assert refusal({"q": result("a")}, {}, ["RR"]).startswith("no query is judged")


def test_no_measure_is_refused() -> None:
    assert refusal({}, {"q": {"a": 1}}, []).startswith("there is no measure to compute")


def test_a_run_without_the_judged_queries_gives_zeros_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="triever"):
        values = per_query({"other": result("a")}, {"q1": {"a": 1}, "q2": {"a": 1}}, ["RR", "EM"], queries=QUERIES)
    assert values == {"RR": {"q1": 0.0, "q2": 0.0}, "EM": {"q1": 0.0, "q2": 0.0}}
    assert "no results for any of the 2 judged queries" in caplog.text


def test_judged_queries_that_a_run_lacks_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="triever"):
        per_query({"q1": {"d1": 1.0}, "q3": {}}, {"q1": {"d1": 1}, "q2": {"d1": 1}, "q3": {"d1": 1}}, ["RR@10"])
    assert [record.message for record in caplog.records] == [
        "the run has no results for 1 of 3 judged queries: they count as misses"
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("nDGC@10", "did you mean nDCG@10?"),
        ("sucess@1", "did you mean Success@1?"),
        ("KILT-RPrec", "did you mean KILT-Rprec?"),
        ("Answer", "did you mean Answer@k?"),
        ("Answer@0", "did you mean Answer@k?"),
        ("EM@1", "did you mean EM?"),
        ("brier", "did you mean Brier?"),
        ("ndcg@10", "did you mean nDCG@10?"),
        ("p(REL=2)@5", "did you mean P?"),
        ("p(rel=2)@5", "did you mean P(rel=2)@5?"),
        ("answer@3", "did you mean Answer@3?"),
        ("rprec", "did you mean Rprec?"),
        ("recall@5", "did you mean Recall@5?"),
        ("zzzzzz", f"known: {', '.join(COMMON)}, …"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, hint: str) -> None:
    assert refusal({}, {"q": {"a": 1}}, ["RR", name]) == f"there is no measure {name!r}; {hint}"


def test_every_measure_is_suggested_to_who_writes_it_in_another_case() -> None:
    for name in sorted({*trec.names(), *OWN}):
        for other in {name.lower(), name.upper()} - {name}:
            if other in registry:  # ir_measures knows some in two cases
                continue
            assert refusal({}, {"q": {"a": 1}}, [f"{other}@10"]) in (
                f"there is no measure '{other}@10'; did you mean {name}@10?",
                f"there is no measure '{other}@10'; did you mean {name}?",  # it takes no cutoff
            )


def test_the_common_names_are_known() -> None:
    needs_cutoff = {"Success", "R", "P"}
    check([f"{name.removesuffix('@k')}@5" if name in {*needs_cutoff, "Answer@k"} else name for name in COMMON])


@pytest.mark.parametrize("names", [[], ["RR", "nDGC@10"], ["P"], ["Answer@0"]])
def test_measures_can_be_checked_before_any_work(names: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        check(names)
    assert str(caught.value) == refusal({}, {"q": {"a": 1}}, names)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (DEFAULT_MEASURES, 100),
        (["nDCG@10", "R@1000", "Success@1"], 1000),
        (["P(rel=2)@5", "AP(cutoff=7)", "Judged@3"], 7),
        (["Answer@20", "nDCG@10"], 20),
        (["EM", "F1", "Brier"], 1),
        (["nDCG@10", "AP"], None),
        (["nDCG"], None),
        (["RR", "R@1000"], None),
        (["KILT-Rprec", "Answer@5"], None),
        (["P(judged_only=True)@5"], None),  # the fifth judged hit may stand anywhere
    ],
)
def test_how_deep_the_measures_read(names: Sequence[str], expected: int | None) -> None:
    assert depth(names) == expected


DEEP = ["nDCG@3", "R@2", "P@4", "RR@1", "AP@2", "Success@5", "Judged@2", "Rprec", "Rprec(rel=2)"]


@given(st.lists(st.sampled_from(DEEP), min_size=1), st.integers(0, 7))
def test_no_hit_below_the_depth_matters(names: list[str], relevant: int) -> None:
    ids, judged = list("abcdefgh"), "hfdbgec"[:relevant]
    qrels = {"q": {document: 1 + place % 2 for place, document in enumerate(judged)}}
    read = result(*ids[: depth(names, qrels)])
    assert per_query({"q": read}, qrels, names) == per_query({"q": result(*ids)}, qrels, names)


def test_r_precision_reads_as_many_hits_as_there_are_relevant_documents() -> None:
    qrels = {"one": {"a": 1}, "three": {"a": 1, "b": 2, "c": 1, "d": 0}}
    assert depth(["Rprec"], qrels) == 3
    assert depth(["Rprec", "Success@10"], qrels) == 10
    assert depth(["Rprec", "AP"], qrels) is None
    assert depth(["Rprec(judged_only=True)"], qrels) is None


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


def test_where_there_is_no_answer_an_empty_one_is_right() -> None:
    queries = [QUERIES[0], *(Query(f"n{place}", "?") for place in range(4))]
    judged = {query.id: {"a": 1} for query in queries} | {"unknown": {"a": 1}}
    run = {
        "q1": result("a", answer=""),
        "n0": result("a", answer="The!"),  # nothing is left of it
        "n1": result("a"),
        "n2": result("a", answer="Paris"),
        "unknown": result("a", answer=""),  # not among the queries, so not known to have no answer
    }
    expected = {"q1": 0.0, "n0": 1.0, "n1": 1.0, "n2": 0.0, "n3": 1.0, "unknown": 0.0}
    assert per_query(run, judged, ["EM", "F1"], queries=queries) == {"EM": expected, "F1": expected}


def test_answer_at_k_warns_once_of_questions_without_answers(caplog: pytest.LogCaptureFixture) -> None:
    run, queries = {"q1": result("a"), "q2": result("a")}, [QUERIES[0], Query("q2", "?")]
    with caplog.at_level(logging.WARNING, logger="triever"):
        values = per_query(run, JUDGED, ["Answer@1", "Answer@2"], queries=queries, texts={"a": "Paris"})
    assert values["Answer@1"] == {"q1": 1.0, "q2": 0.0}
    assert caplog.messages == ["1 of 2 judged queries have no answers: Answer@k counts them as misses"]
    caplog.clear()
    blank = [QUERIES[0], Query("q2", "?", answers=("", " "))]
    with caplog.at_level(logging.WARNING, logger="triever"):
        assert (
            per_query(run, JUDGED, ["Answer@1"], queries=blank, texts={"a": "Paris"})["Answer@1"] == values["Answer@1"]
        )
    assert caplog.messages == ["1 of 2 judged queries have no answers: Answer@k counts them as misses"]


def test_what_was_not_given_is_asked_for() -> None:
    run = {"q1": result("a", answer="x"), "q2": result("a")}
    silent = {"q1": result("a")}
    assert refusal(run, JUDGED, ["EM"]) == "EM needs answers, but no judged query has any; give queries with answers"
    for unanswered in (Query("q1", "?"), Query("q1", "?", answers=("", " "))):
        assert refusal(run, JUDGED, ["F1"], queries=[unanswered]).startswith("F1 needs answers, but no judged query")
    assert refusal(silent, JUDGED, ["EM"], queries=QUERIES).startswith("EM needs a run with answers")
    assert refusal(run, JUDGED, ["Answer@5"], texts={}).startswith("Answer@k needs answers, but no judged query has")
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
    assert not lower_is_better("seconds"), "a report may have columns that are no measures"
    assert not any(map(lower_is_better, DEFAULT_MEASURES))


def test_a_measure_says_how_deep_it_reads() -> None:
    qrels = {"q1": {"a": 1, "b": 1, "c": 0}, "q2": {"a": 1}}
    several = [Query("q1", "", evidence=(("a",), ("a", "b", "c"))), Query("q2", "")]
    assert depth(["KILT-Rprec"], qrels, several) == 3
    assert depth(["KILT-Rprec"], qrels, several[1:]) == 1, "without evidence, what is relevant"
    assert depth(["KILT-Rprec"], qrels) is None, "evidence is what queries have"
    assert depth(["Answer@7", "Brier", "EM"]) == 7


def test_a_measure_says_whether_it_reads_texts() -> None:
    assert reads_texts(["nDCG@10", "Answer@5"])
    assert not reads_texts(["nDCG@10", "EM", "KILT-Rprec"])


def test_queries_without_answers_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    queries = [Query("q1", "", answers=("x",)), Query("q2", "")]
    per_query({}, {"q1": {"a": 1}, "q2": {"b": 1}}, ["Answer@1", "Answer@5"], queries=queries, texts={})
    assert sum("have no answers" in record.message for record in caplog.records) == 1
