"""What a model claims of its answers, beside the same counted by hand from what it answers."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from tests.retrievers.test_reatt import ASKED, PEOPLE, people, reatt
from triever import BM25, Dataset, Query
from triever.errors import UsageError
from triever.evaluation.calibration_analysis import ANSWERS, calibration
from triever.evaluation.compare import compare
from triever.retrievers.answerer import Answerer, ReaderTuning
from triever.retrievers.reatt import ReAtt


@functools.cache
def model() -> ReAtt:
    return reatt().fit(people())


@functools.cache
def data() -> Dataset:
    """Every other question has what the model writes as its answer; the last one is blank."""
    written = [answer.written for answer in model().ask_many(ASKED)]
    queries = [
        replace(query, answers=(text if number % 2 else "Zzyzx",))
        for number, (query, text) in enumerate(zip(ASKED, written, strict=True))
    ]
    blank = Query("blank", " ", answers=("Aachen",))
    qrels = {query.id: {PEOPLE[0].id: 1} for query in [*queries, blank]}
    others = [replace(query, id=f"other {query.id}") for query in queries[:4]]
    dev = {query.id: {PEOPLE[0].id: 1} for query in others}
    return Dataset.of("people", PEOPLE, [*queries, blank, *others], {"test": qrels, "dev": dev})


def test_answers_are_right_and_claimed_as_they_are_written() -> None:
    claims = [answer.probability for answer in model().ask_many(ASKED)]
    right = [float(number % 2) for number in range(len(ASKED))]
    found = calibration(model(), data())
    way = found.values["ways"][ANSWERS]
    assert way["right"] == 0.5
    assert way["without_hits"] == 1
    assert "1 questions got no answer and are left out" in found.parts[0].lines
    expected = sum((claim - truth) ** 2 for claim, truth in zip(claims, right, strict=True)) / len(claims)
    assert way["as_it_comes"]["brier"] == pytest.approx(expected)
    surest = sorted(zip(claims, right, strict=True), reverse=True)[: len(claims) // 2]
    point = next(point for point in way["risk_coverage"] if point["coverage"] == 0.5)
    assert point["risk"] == pytest.approx(1 - sum(truth for _, truth in surest) / len(surest))
    measured = compare({"it": model()}, data(), "test", ["EM"]).scores["it"]["EM"].mean
    assert measured * (len(ASKED) + 1) == way["right"] * len(ASKED), "a blank question is not exactly right"


@pytest.mark.parametrize("rank", range(len(ASKED)))
def test_the_threshold_of_a_model_is_measured(rank: int) -> None:
    claims = sorted((answer.probability for answer in model().ask_many(ASKED)), reverse=True)
    own = model().searched_with({"known_from": claims[rank]})
    found = calibration(own, data()).values["ways"][ANSWERS]["own"]
    given = [answer.text is not None for answer in own.ask_many(ASKED)]
    right = [number % 2 for number in range(len(ASKED))]
    wrong = sum(is_given and not is_right for is_given, is_right in zip(given, right, strict=True))
    assert found == {
        "threshold": pytest.approx(claims[rank]),
        "coverage": pytest.approx(sum(given) / len(given)),
        "risk": pytest.approx(wrong / sum(given)),
    }


def test_a_temperature_and_a_threshold_are_fitted_to_answers() -> None:
    found = calibration(model(), data(), fit_on="dev", coverage=0.5)
    way = found.values["ways"][ANSWERS]
    assert way["tempered"] is not None
    assert way["threshold"] is not None
    claims = [answer.probability for answer in model().ask_many(ASKED[:4])]
    assert way["threshold"]["fitted"]["threshold"] == pytest.approx(sorted(claims)[-2])
    assert found.parts[-1].lines[1].startswith("it gives answers from 0: coverage 1.000, risk 0.500")
    every = sorted({answer.probability for answer in model().ask_many(ASKED)}, reverse=True)
    assert len(found.curves[1].curves[0].points) == len(every), "a point for each claim"


def test_a_model_that_gives_no_answer_says_so() -> None:
    silent = model().searched_with({"known_from": 1.0})
    assert calibration(silent, data()).values["ways"][ANSWERS]["own"]["coverage"] == 0
    [line] = [line for line in calibration(silent, data()).parts[-1].lines if line.startswith("it gives")]
    assert line == "it gives answers from 1: coverage 0.000, risk 0.000"


def test_readers_behind_others_are_measured_too_and_the_rest_is_refused() -> None:
    reader = Answerer(backbone=model().backbone, training=ReaderTuning(steps=0)).fit(people())
    assert [*calibration(reader, people()).values["ways"]] == [ANSWERS]
    bare = Dataset.of("bare", PEOPLE, [Query("q", "Where does Anna live?")], {"test": {"q": {"Anna": 1}}})
    with pytest.raises(UsageError, match="answer"):
        calibration(reader, bare)
    with pytest.raises(UsageError, match="are no probabilities"):
        calibration(BM25().fit(people()), people())
