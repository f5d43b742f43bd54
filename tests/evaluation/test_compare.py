"""What a comparison refuses or warns of before it searches."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

import triever
from triever import BM25, Dataset, Document, Query, UsageError
from triever.data.records import Result

DOCUMENTS = [Document("a", "a cat"), Document("b", "a dog")]
QUERIES = [Query("q1", "cat"), Query("q2", "dog"), Query("q3", "bird")]


def data(**grades: int) -> Dataset:
    """Questions with what is judged of the first document."""
    return Dataset.of("toy", DOCUMENTS, QUERIES, {"test": {query: {"a": grade} for query, grade in grades.items()}})


@pytest.mark.parametrize(("grades", "said"), [({"q1": 1, "q2": 0, "q3": -1}, "toy: 2 of 3 judged"), ({"q1": 2}, "")])
def test_questions_without_a_relevant_document_are_said(
    grades: dict[str, int], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    judged = data(**grades)
    with caplog.at_level(logging.WARNING, "triever"):
        triever.compare({"one": BM25().fit(judged), "two": BM25(b=0.4).fit(judged)}, judged, measures=["RR@10"])
    assert [record.message.partition(" queries")[0] for record in caplog.records] == [said] * bool(said)


def test_a_measure_of_answers_names_the_systems_that_have_none() -> None:
    judged = data(q1=1)
    with pytest.raises(UsageError, match="EM needs answers, and words only finds documents; measure systems"):
        triever.compare({"words": BM25().fit(judged)}, judged, measures=["RR@10", "EM"])


def test_a_measure_of_answers_needs_questions_that_have_some_before_any_search(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = data(q1=1)
    words = BM25().fit(judged)
    monkeypatch.setattr(BM25, "search_many", lambda *_: pytest.fail("it was searched"))
    with pytest.raises(UsageError, match="Answer@k needs answers, but no judged query has any; give queries with"):
        triever.compare({"words": words}, judged, measures=["RR@10", "Answer@5"])


class Claiming(BM25):
    """One that gives the same probability to every hit."""

    claimed = 1e-13
    gives_probabilities = True

    def with_probabilities(self, queries: Sequence[Query], results: Sequence[Result]) -> list[Result]:
        return [Result(tuple(replace(hit, logprob=math.log(self.claimed)) for hit in result)) for result in results]


def test_a_measure_of_probabilities_names_the_systems_that_have_none_before_any_search() -> None:
    judged = data(q1=1)
    systems = {"sure": Claiming().fit(judged), "words": BM25().fit(judged)}
    kept: list[str] = []
    with pytest.raises(UsageError, match="Brier needs probabilities, and the scores of words are none; measure sys"):
        triever.compare(systems, judged, measures=["RR@10", "Brier"], keep=lambda name, _: kept.append(name))
    assert kept == []


@pytest.mark.parametrize(("claimed", "said"), [(1e-13, True), (0.02, False)])
def test_claims_of_nearly_nothing_are_said(claimed: float, said: bool, caplog: pytest.LogCaptureFixture) -> None:
    judged = data(q1=1)
    system = Claiming().fit(judged)
    system.claimed = claimed
    with caplog.at_level(logging.WARNING, "triever"):
        triever.compare({"timid": system}, judged, measures=["Brier"])
    expected = "Brier of timid says little: it claims 1e-13 on average, so that this is about its Success@1, 1.000"
    assert [record.message for record in caplog.records] == [expected] * said


@pytest.mark.parametrize("changed", [False, True])
def test_the_same_documents_in_another_order_are_the_same(changed: bool, caplog: pytest.LogCaptureFixture) -> None:
    judged = data(q1=1)
    retriever = BM25().fit(judged)
    retriever.delete(["a"])
    retriever.add([Document("a", "a cat that sleeps") if changed else DOCUMENTS[0]])
    assert retriever.fingerprint != judged.fingerprint
    triever.compare({"one": retriever}, judged, measures=["RR@10"])
    assert ("one holds other documents than toy" in caplog.text) == changed
