"""What a comparison refuses or warns of before it searches."""

from __future__ import annotations

import logging

import pytest

import triever
from triever import BM25, Dataset, Document, Query, UsageError

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
