"""Questions by their overlap with titles, against a naive TF-IDF and against sets that are written out by hand."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever import DataError, Dataset, Document, Hit, Query, Result, UsageError
from triever.data.records import Run
from triever.data.words import words
from triever.evaluation.finding import Part
from triever.evaluation.groups import hits_needed
from triever.evaluation.overlap import TfIdf, overlap
from triever.evaluation.report import evaluate

DOCUMENTS = [
    Document("forum", "An assembly in the mountains.", "World Economic Forum"),
    Document("climate", "Rain falls in winter.", "Climate of South Africa"),
    Document("town", "A harbour below a mountain.", "Cape Town"),
    Document("sign", "Three dots in a triangle.", "Therefore sign"),
    Document("dots", "Three dots in a row.", "Ellipsis"),
]
QUERIES = [
    Query("q1", "where was the world economic forum"),
    Query("q2", "when does it rain at the cape"),
    Query("q3", "what do the three dots mean"),
    Query("q4", "which town is below a mountain, cape town"),
]
QRELS = {"q1": {"forum": 1}, "q2": {"climate": 1, "town": 0}, "q3": {"sign": 2}, "q4": {"town": 1}}
DATA = Dataset.of("hand", DOCUMENTS, QUERIES, {"test": QRELS})


def run(**found: str) -> Run:
    """A run by the ids that it finds for each question, best first."""
    return {
        query: Result(tuple(Hit(one, -float(rank)) for rank, one in enumerate(ids.split())))
        for query, ids in found.items()
    }


GENRE = run(q1="forum town", q2="town climate", q3="dots sign", q4="forum climate")
CGR = run(q1="forum", q2="climate town", q3="sign dots forum town", q4="dots")


# --- TF-IDF ---------------------------------------------------------------------------------------------------


def naive_cosine(texts: list[str], one: str, other: str) -> float:
    """The cosine with every count in an array: rows are texts, columns all words that there are."""
    known = sorted({word for text in (*texts, one, other) for word in words(text)})
    counts = np.array([[words(text).count(word) for word in known] for text in (*texts, one, other)], float)
    counts = counts.reshape(len(texts) + 2, len(known))
    inside = (counts[: len(texts)] > 0).sum(0)
    weights = counts * (np.log((1 + len(texts)) / (1 + inside)) + 1)
    first, second = weights[-2], weights[-1]
    length = np.linalg.norm(first) * np.linalg.norm(second)
    return float(first @ second / length) if length else 0.0


texts = st.lists(st.sampled_from(["rain", "cape", "town", "of", "sea", "東京"]), max_size=6).map(" ".join)


@given(st.lists(texts, max_size=8), texts, texts)
def test_the_cosine_is_that_of_a_naive_computation(corpus: list[str], one: str, other: str) -> None:
    assert TfIdf.of(corpus).cosine(one, other) == pytest.approx(naive_cosine(corpus, one, other), abs=1e-12)


def test_a_cosine_by_hand() -> None:
    """Of two texts, one word is in both and one in each: their rarities are 1 and log(3 / 2) + 1."""
    rare = math.log(3 / 2) + 1
    found = TfIdf.of(["Cape Town", "cape sea"]).cosine("Cape Town", "CAPE sea")
    assert found == pytest.approx(1 / (1 + rare**2))


# --- low and high ---------------------------------------------------------------------------------------------


def test_questions_are_split_at_the_average() -> None:
    found = overlap({"genre": GENRE, "cgr": CGR}, DATA).values
    all_texts = [document.title for document in DOCUMENTS] + [query.text for query in QUERIES]
    shared = [
        naive_cosine(all_texts, QUERIES[0].text, "World Economic Forum"),
        naive_cosine(all_texts, QUERIES[1].text, "Climate of South Africa"),
        naive_cosine(all_texts, QUERIES[2].text, "Therefore sign"),
        naive_cosine(all_texts, QUERIES[3].text, "Cape Town"),
    ]
    assert shared[1] == shared[2] == 0, "they have no word in common"
    assert found["average_overlap"] == pytest.approx(sum(shared) / 4)
    assert found["questions"] == {"low": 2, "high": 2, "all": 4}  # q2 and q3; q1 and q4
    means = {name: [one["mean"] for one in scores.values()] for name, scores in found["scores"].items()}
    assert means == {"genre": [0, 1 / 2, 1 / 4], "cgr": [1, 1 / 2, 3 / 4]}


def test_groups_have_the_means_and_intervals_of_their_own_questions() -> None:
    found = overlap({"cgr": CGR}, DATA, measure="RR").values["scores"]["cgr"]
    low = evaluate(CGR, {query: QRELS[query] for query in ("q2", "q3")}, ["RR"]).scores["run"]["RR"]
    assert (found["low"]["mean"], found["low"]["low"], found["low"]["high"]) == (low.mean, low.low, low.high)
    every = evaluate(CGR, QRELS, ["RR"]).scores["run"]["RR"]
    assert (found["all"]["mean"], found["all"]["high"]) == (every.mean, every.high)


def test_of_questions_that_share_equally_none_is_low() -> None:
    same = [Query(f"q{number}", "about tides") for number in range(3)]
    data = Dataset.of("same", [Document("t", "", "Tides rise")], same, {"test": {one.id: {"t": 1} for one in same}})
    found = overlap({"a": run(q0="t"), "b": run(q1="t")}, data)
    assert found.values["questions"] == {"low": 0, "high": 3, "all": 3}
    assert found.values["scores"]["a"]["low"] is None
    assert "none" in found.parts[0].rows[0]["low (0)"]


def test_the_nearest_of_several_right_titles_counts() -> None:
    qrels = {"test": {"q1": {"town": 1, "forum": 1}, "q3": {"sign": 1, "gone": 1}}}
    data = Dataset.of("several", DOCUMENTS, [QUERIES[0], QUERIES[2]], qrels)
    names = [document.title for document in DOCUMENTS] + [QUERIES[0].text, QUERIES[2].text]
    nearest = naive_cosine(names, QUERIES[0].text, "World Economic Forum")
    found = overlap({"cgr": CGR}, data).values
    assert found["average_overlap"] == pytest.approx((nearest + 0) / 2)


def test_texts_stand_in_for_missing_titles(caplog: pytest.LogCaptureFixture) -> None:
    documents = [Document("forum", DOCUMENTS[0].title), *DOCUMENTS[1:]]
    with caplog.at_level(logging.WARNING, "triever"):
        found = overlap({"cgr": CGR}, Dataset.of("bare", documents, QUERIES, {"test": QRELS}))
    assert "bare: 1 of 5 documents have no title: questions are compared with their texts" in caplog.text
    assert found.values["documents_without_title"] == 1
    assert found.values["average_overlap"] == overlap({"cgr": CGR}, DATA).values["average_overlap"]
    assert "1 of 5 documents have no title" in found.parts[0].lines[0]


# --- four sets, examples --------------------------------------------------------------------------------------


def test_the_four_sets_by_hand() -> None:
    """Both find q1 (high), neither q4 (high), and only the second q2 and q3 (low)."""
    sets = overlap({"genre": GENRE, "cgr": CGR, "third": GENRE}, DATA).values["sets"]
    assert sets == [
        {"set": "genre+/cgr+", "questions": 1, "low": 0, "high": 1, "low_rate": 0, "high_rate": 1},
        {"set": "genre+/cgr-", "questions": 0, "low": 0, "high": 0, "low_rate": None, "high_rate": None},
        {"set": "genre-/cgr+", "questions": 2, "low": 2, "high": 0, "low_rate": 1, "high_rate": 0},
        {"set": "genre-/cgr-", "questions": 1, "low": 0, "high": 1, "low_rate": 0, "high_rate": 1},
    ]


def test_examples_are_what_only_the_second_finds() -> None:
    found = overlap({"genre": GENRE, "cgr": CGR}, DATA, measure="Rprec")
    assert [one["question"] for one in found.values["examples"]] == [QUERIES[1].text, QUERIES[2].text]
    assert found.values["examples"][1]["found"]["cgr"] == [
        {"title": "Therefore sign", "right": True},
        {"title": "Ellipsis", "right": False},
        {"title": "World Economic Forum", "right": False},
    ]
    assert found.parts[2].lines[3:] == [
        "what do the three dots mean (overlap 0.000; right: Therefore sign)",
        "  genre  Ellipsis / *Therefore sign*",
        "  cgr    *Therefore sign* / Ellipsis / World Economic Forum",
    ]


def test_without_examples_there_is_no_list_of_them() -> None:
    asked = overlap({"genre": GENRE, "cgr": CGR}, DATA, examples=0)
    assert asked.values["examples"] == []
    assert [part.title.split()[0] for part in asked.parts] == ["Success@1", "Questions"]
    nothing_gained = overlap({"cgr": CGR, "genre": GENRE}, DATA).parts[2]
    assert (nothing_gained.title[:30], nothing_gained.lines) == ("Found by genre and not by cgr,", ["none"])


def test_one_system_has_no_sets_to_compare() -> None:
    found = overlap({"cgr": CGR}, DATA)
    assert (found.values["sets"], found.values["examples"], list(found.bars)) == ([], [], [])
    assert len(found.parts) == 1


def test_a_question_without_results_is_missed() -> None:
    found = overlap({"genre": GENRE, "cgr": run(q2="climate")}, DATA).values
    assert found["scores"]["cgr"]["all"]["mean"] == 1 / 4
    assert [one["questions"] for one in found["sets"]] == [0, 1, 1, 2]


# --- what is searched, refused, shown -------------------------------------------------------------------------


def test_only_as_many_hits_are_searched_as_are_read() -> None:
    many = {"q1": dict.fromkeys(map(str, range(7)), 1), "q2": {"a": 1, **dict.fromkeys(map(str, range(20)), 0)}}
    assert hits_needed("Success@1", QUERIES, many) == 3
    assert hits_needed("R@50", QUERIES, many) == 50
    assert hits_needed("Rprec", QUERIES, many) == 7
    assert hits_needed("AP", QUERIES, many) == 1000
    evidence = [Query("q1", "", evidence=(("a", "b"), ("a", "b", "c", "d"))), Query("q2", "")]
    assert hits_needed("KILT-Rprec", evidence, many) == 4
    assert hits_needed("KILT-Rprec", [Query("q1", "")], many) == 7


@pytest.mark.parametrize(
    ("found", "split", "message"),
    [
        (run(q9="forum"), "test", "mine has no results for any question of the split 'test' of hand"),
        (run(q1="x y", q2="z"), "test", "none of the documents that mine retrieves is in hand, such as 'x'"),
    ],
)
def test_runs_of_something_else_are_refused(found: Run, split: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        overlap({"mine": found}, DATA, split)


def test_no_such_split() -> None:
    with pytest.raises(UsageError, match="did you mean test"):
        overlap({"cgr": CGR}, DATA, "tset")


def test_documents_that_are_not_there_are_shown_by_their_ids(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "triever"):
        found = overlap({"genre": run(q3="unknown dots"), "cgr": CGR}, DATA).values["examples"]
    assert "genre retrieves 1 documents that are not in hand, such as unknown" in caplog.text
    titles = {one["question"]: [hit["title"] for hit in one["found"]["genre"]] for one in found}
    assert titles[QUERIES[2].text] == ["unknown", "Ellipsis"]


def test_a_finding_is_json_and_a_picture(tmp_path: Path) -> None:
    found = overlap({"genre": GENRE, "cgr": CGR}, DATA)
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [Part(**part).markdown() for part in again["parts"]] == [part.markdown() for part in found.parts]
    found.plot(tmp_path / "sets.svg")
    found.plot(tmp_path / "again.svg")
    assert (tmp_path / "sets.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()
    (panel,) = found.bars
    assert panel.series == {"low overlap": [0, None, 1, 0], "high overlap": [1, None, 0, 1]}


def test_what_was_found_as_markdown() -> None:
    part = Part("A <b>", [{"system": "a|b", "x": "1"}], ["object.__init__", "  *inside*"])
    assert part.markdown().splitlines() == [
        r"**A \<b\>**",
        "",
        "| system | x |",
        "| --- | --- |",
        r"| a\|b | 1 |",
        "",
        r"- object.\_\_init\_\_",
        r"    - \*inside\*",
    ]
