"""Dense retrieval and late interaction with a teacher: what it is asked, what is learned of it, and how it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import triever
from tests.marks import quick
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import BM25, Dense, Generative, MultiVector, Tuning, UsageError
from triever.data.store import DocumentStore
from triever.engines.lexical import LexicalEngine
from triever.learning import encoders as encoding
from triever.learning.encoders import EncoderRetriever
from triever.learning.teachers import Teacher
from triever.retriever import learned_by
from triever.training.pairs import TAUGHT

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
TUNING = Tuning(steps=3, batch=4, rounds=1, learning_rate=2e-3, holdout=0.0)
KINDS = [Dense, MultiVector]
WRONG = {"q1": "chess", "q2": "tides", "q3": "coffee", "q4": "größe"}
"""What a teacher finds that knows nothing."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for what teachers think."""
    monkeypatch.setenv("TRIEVER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class TestTaughtDense(Contract):
    def make(self) -> triever.Retriever:
        return Dense(backbone=SMALL, training=replace(TUNING, steps=1), teacher=BM25())


@pytest.mark.long
class TestTaughtMultiVector(Contract):
    def make(self) -> triever.Retriever:
        return MultiVector(backbone=SMALL, training=replace(TUNING, steps=1), teacher=BM25())


def stubborn() -> triever.Retriever:
    """A teacher that finds the wrong documents first: their texts are the queries."""
    texts = {WRONG[query.id]: query.text for query in QUERIES}
    known = {document.id: [texts.get(document.id, "nothing")] * 5 for document in DOCUMENTS}
    return BM25().fit(dataset().with_expansions(known))


@pytest.mark.parametrize("kind", quick(Dense, of=KINDS))
def test_a_student_prefers_what_its_teacher_prefers(
    kind: type[EncoderRetriever], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fitted temperature would make little of a teacher that is wrong.
    monkeypatch.setattr("triever.learning.teachers.fitted_temperature", lambda *_: 0.5)
    teacher = stubborn()
    assert [teacher.search(query, 1)[0].id for query in QUERIES] == list(WRONG.values())
    data = dataset().with_expansions({document.id: document.expansions for document in teacher.documents})
    training = replace(TUNING, steps=20)

    def first(**options: Any) -> list[str]:
        fitted = kind(backbone=SMALL, training=training, **options).fit(data)
        right = {"tea", "bike", "東京", "bread"}
        return [next(hit.id for hit in result if hit.id not in right) for result in fitted.search_many(QUERIES, 10)]

    assert first(teacher=teacher) == list(WRONG.values())
    assert first() != list(WRONG.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_teacher_is_asked_once_for_all_trainings(kind: type[EncoderRetriever], cache: Path) -> None:
    asked: list[Sequence[str]] = []
    search = LexicalEngine.search

    def heard(engine: LexicalEngine, store: DocumentStore, queries: Sequence[str], k: int) -> Any:
        asked.append(queries)
        return search(engine, store, queries, k)

    with mock.patch.object(LexicalEngine, "search", heard):
        fitted = kind(backbone=SMALL, training=replace(TUNING, rounds=3), teacher=BM25()).fit(dataset())
        assert fitted.engine.trained["teacher's temperature"] > 0
        again = kind(backbone=SMALL, training=replace(TUNING, rounds=3), teacher=BM25()).fit(dataset())
    assert [list(texts) for texts in asked] == [[query.text for query in QUERIES]]
    assert len(list(cache.glob("teacher-*.npz"))) == 1
    assert again.search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)


def test_what_was_kept_spares_the_training_of_a_teacher() -> None:
    def fit() -> triever.Retriever:
        return Dense(backbone=SMALL, training=TUNING, teacher=Dense(backbone=SMALL, training=TUNING)).fit(dataset())

    fitted = fit()
    with mock.patch.object(Teacher, "_engine", mock.PropertyMock(side_effect=AssertionError("it was made again"))):
        assert fit().search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)


def test_opinions_are_those_of_the_very_same_teacher() -> None:
    def asked(retriever: triever.Retriever, expansions: dict[str, list[str]] | None = None) -> np.ndarray:
        data = dataset().with_expansions(expansions or {})
        store = DocumentStore.of(data.documents())
        store.fingerprint = data.fingerprint
        return Teacher(retriever, data, store, None).opinions(["boiling water"]).scores

    plain = asked(BM25())
    assert not np.array_equal(plain, asked(BM25(k1=0.1)))
    assert not np.array_equal(plain, asked(BM25(), {"tea": ["boiling", "water"]}))
    assert np.array_equal(asked(BM25().fit(dataset())), plain)


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_of_zero_leaves_the_teacher_out(kind: type[EncoderRetriever]) -> None:
    plain = kind(backbone=SMALL, training=TUNING).fit(dataset())
    with mock.patch.object(Teacher, "opinions", side_effect=AssertionError("it was asked")):
        taught = kind(backbone=SMALL, training=replace(TUNING, teacher_weight=0.0), teacher=BM25()).fit(dataset())
    assert taught.search_many(QUERIES, 5) == plain.search_many(QUERIES, 5)
    assert "teacher's temperature" not in taught.engine.trained
    followed = kind(backbone=SMALL, training=TUNING, teacher=BM25()).fit(dataset())
    assert followed.search_many(QUERIES, 5) != plain.search_many(QUERIES, 5)


def test_the_documents_of_a_teacher_need_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    monkeypatch.setattr(encoding, "check_memory", lambda _encoder, _training, count, *_, **__: rows.append(count))
    for options in ({}, {"teacher": BM25()}):
        Dense(backbone=SMALL, training=replace(TUNING, steps=1), **options).fit(dataset())
    assert rows == [4 + 4, 4 + 4 * (1 + TAUGHT)]


# Folders


def test_a_saved_folder_may_teach_and_what_is_saved_needs_it_no_more(tmp_path: Path) -> None:
    MultiVector(backbone=SMALL).fit(dataset()).save(tmp_path / "late")
    fitted = Dense(backbone=SMALL, training=TUNING, teacher=str(tmp_path / "late")).fit(dataset())  # ty: ignore[invalid-argument-type]
    fitted.save(tmp_path / "dense")
    (tmp_path / "late").rename(tmp_path / "gone")
    opened = triever.load(tmp_path / "dense")
    assert opened.search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)
    assert isinstance(opened, Dense)
    assert isinstance(opened.teacher, MultiVector)
    assert not opened.teacher.is_fitted
    assert "teacher's temperature" in opened.card
    assert not (tmp_path / "dense" / "teacher").exists()


def test_a_fit_goes_on_with_the_same_teacher_and_with_no_other(tmp_path: Path) -> None:
    def fit(teacher: triever.Retriever | None) -> triever.Retriever:
        return Dense(backbone=SMALL, training=TUNING, teacher=teacher).fit(dataset(), work=tmp_path / "work")

    tuned = Dense(backbone=SMALL, training=TUNING)
    fitted = fit(tuned)
    assert (tmp_path / "work" / "teacher" / "training" / "training.json").exists()
    with mock.patch("triever.training.tuning.PairTraining._loss", side_effect=AssertionError("trained again")):
        assert fit(tuned).search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)
    for other in (None, BM25(), Dense(backbone=SMALL, training=replace(TUNING, seed=1))):
        with pytest.raises(UsageError, match="unfinished work with other"):
            fit(other)
    other = tuned.fit(dataset())  # the same options, but fitted before: it may have been fitted to other queries
    with pytest.raises(UsageError, match="unfinished work with other parts"):
        fit(other)


# What is refused, and what is said


@pytest.mark.parametrize("kind", KINDS)
def test_a_teacher_without_a_training_is_refused(kind: type[EncoderRetriever]) -> None:
    with pytest.raises(UsageError, match=r"teaches nothing without a training; set training\.steps"):
        kind(backbone=SMALL, teacher=BM25())


def test_a_teacher_that_learned_what_is_held_out_is_told(caplog: pytest.LogCaptureFixture) -> None:
    held = replace(TUNING, holdout=0.5)
    for holdout in (0.5, 0.6):
        Dense(backbone=SMALL, training=held, teacher=Dense(backbone=SMALL, training=replace(TUNING, holdout=holdout)))
    careful = Dense(backbone=SMALL, training=replace(TUNING, holdout=0.5))
    Dense(backbone=SMALL, training=held, teacher=careful).fit(dataset())
    assert "held-out measures look too good" not in caplog.text
    student = Dense(backbone=SMALL, training=held, teacher=Dense(backbone=SMALL, training=TUNING)).fit(dataset())
    assert caplog.text.count("the teacher learned queries of train that this training holds out") == 1
    assert learned_by([student], "train", 0.5) is not None, "a fusion with it cannot be fitted on these queries"


def test_rows_of_nodes_bear_a_teacher_that_finds_few_documents() -> None:
    options = triever.DocidTuning(steps=2, batch=4, rounds=1, holdout=0.0, encoder_steps=0)
    views = triever.ViewOptions(names=("labelled",))
    nodes = triever.DecoderOptions(rows="nodes")
    made = Generative(backbone=SMALL, decoder=nodes, views=views, training=options, teacher=BM25())
    assert len(BM25().fit(dataset()).search(QUERIES[1], 10)) < len(DOCUMENTS)
    assert len(made.fit(dataset()).search(QUERIES[0], 5)) == 5
