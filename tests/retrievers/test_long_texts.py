"""What is not read to its end is told, by every system that reads documents, and once."""

from __future__ import annotations

from typing import Any

import pytest

from triever import Dataset, Document, Query
from triever.data.cutting import Cut
from triever.learning.encoders import to_read_more
from triever.retriever import system
from triever.training.tuning import DocidTuning, RerankTuning, Tuning
from triever.training.views import ViewOptions

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=300"
LONG = [Document(f"d{number}", f"The tower of town {number} stands by the river. " * 20) for number in range(7)]
DOCUMENTS = [*LONG, Document("short", "A short note.")]
QRELS = {f"q{number}": {document.id: 1} for number, document in enumerate(LONG)}
QUERIES = [Query(key, f"where is the tower of town {key[1:]}") for key in QRELS]


def long_texts() -> Dataset:
    return Dataset.of("long", DOCUMENTS, QUERIES, {"train": QRELS, "test": QRELS})


SYSTEMS: dict[str, dict[str, Any]] = {
    "dense": {"training": Tuning(steps=0)},
    "multivector": {"training": Tuning(steps=0)},
    "reranked": {"training": RerankTuning(steps=1, batch=2, holdout=0)},
    "generative": {"training": DocidTuning(steps=1, batch=2, holdout=0)},
    "gdr": {"training": DocidTuning(steps=1, batch=2, holdout=0), "views": ViewOptions(names=("daq", "labelled"))},
}


def told_of(kind: str, cut: Cut, caplog: pytest.LogCaptureFixture) -> list[str]:
    made = system(kind)(backbone=SMALL, document_length=64, cut=cut, **SYSTEMS[kind])  # ty: ignore[unknown-argument]
    caplog.clear()
    made.fit(long_texts())
    return [record.getMessage() for record in caplog.records if "longer than the" in record.getMessage()]


@pytest.mark.parametrize("kind", SYSTEMS)
def test_texts_that_are_cut_are_told_of_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    assert told_of(kind, Cut(), caplog) == [
        "7 of 8 texts are longer than the 64 tokens that are read of each; document_length=128 reads more, and "
        "cut.which=all searches long documents by their passages"
    ]


@pytest.mark.parametrize("kind", SYSTEMS)
def test_where_texts_are_cut_already_shorter_passages_are_advised(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    told = told_of(kind, Cut("all", words=100, overlap=20), caplog)
    assert [message.partition("; ")[2] for message in told] == [
        "document_length=128 reads more, and cut.words=48 with cut.overlap=12 makes shorter passages"
    ]
    assert told_of(kind, Cut("all", words=48, overlap=12), caplog) == []


@pytest.mark.parametrize(
    ("cut", "advice"),
    [
        (None, ", and cut.which=all searches long documents by their passages"),
        (Cut("all"), ", and cut.words=75 with cut.overlap=18 makes shorter passages"),
        (Cut("files", words=400, overlap=40), ", and cut.words=192 makes shorter passages"),
        (Cut("all", words=1, overlap=0), ""),
    ],
)
def test_what_is_advised_can_be_set(cut: Cut | None, advice: str) -> None:
    assert to_read_more(256, cut) == f"document_length=512 reads more{advice}"
