"""RAG: answers over documents that are read one by one, against the sum done by hand; queries that learn with it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import triever
from tests.retrievers.contract import Contract
from tests.retrievers.test_reatt import ASKED, PEOPLE, SMALL, people
from triever import BM25, Dense
from triever.commands.use import ask as ask_command
from triever.data.store import DocumentStore
from triever.engines.answers import AnswerReader
from triever.engines.encoded import DenseEngine
from triever.engines.hits import found_by
from triever.errors import UsageError
from triever.learning.answering import ReadingCourse
from triever.learning.marginal import MarginalCourse
from triever.retrievers.answerer import Answerer, ReaderTuning
from triever.training.rag_loss import RagLoss, RagModel

SHORT = ReaderTuning(steps=6, batch=4, close=3, holdout=0.3, learning_rate=1e-3, marginal=True)
NOTHING = ReaderTuning(steps=0, marginal=True)


def rag(training: ReaderTuning = NOTHING, **options: object) -> Answerer:
    given = {"backbone": SMALL, "first": Dense(backbone=SMALL), "read_documents": 3} | options
    return Answerer(training=training, **given)  # ty: ignore[invalid-argument-type]


def dense_of(fitted: Answerer) -> DenseEngine:
    assert isinstance(fitted.engine.first, DenseEngine)
    return fitted.engine.first


class TestRAG(Contract):
    def make(self) -> triever.Retriever:
        return rag()


def course_of(fitted: Answerer) -> MarginalCourse:
    store, data = DocumentStore.of(PEOPLE), people()
    learned, judged = rag(SHORT).lesson(data, store)
    first = dense_of(fitted)
    course = ReadingCourse(fitted.engine.reader, learned, judged, SHORT, found_by(first, store), device="cpu")
    return MarginalCourse.of(course, first, 0.1)


@torch.inference_mode()
def test_the_loss_is_the_sum_over_documents_that_are_read_alone() -> None:
    fitted = rag().fit(people())
    course = course_of(fitted)
    batch = course.batches(course.learned, course.close, 0)[0]
    loss = float(RagLoss(0.1)(course.model.eval(), batch)["answer"])
    model = fitted.engine.reader.texts.model
    expected = []
    for question in range(len(batch["query_ids"])):
        one = {name: tensor[question : question + 1] for name, tensor in batch.items()}
        vector = course.asking(one["asked_ids"], one["asked_mask"])[0]
        prior = ((one["vectors"][0] @ vector) / 0.1).softmax(0)
        total = 0.0
        for place in range(batch["document_ids"].shape[1]):
            ids, mask = one["document_ids"][0, place : place + 1], one["document_mask"][0, place : place + 1]
            asked = model.query_states(one["query_ids"], one["query_mask"])
            held = model.document_states(ids, mask)
            given = one["query_ids"], ids[:, None]
            read = model.read(model.encode_pairs(asked, one["query_mask"], held[:, None], mask[:, None], given))
            total += float(prior[place]) * math.exp(float(model.answer_logprobs(read, one["answers"]).sum()))
        expected.append(-math.log(total) / int((one["answers"] >= 0).sum()))
    assert loss == pytest.approx(np.mean(expected), rel=1e-4)


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_gradients_of_few_questions_at_once_are_those_of_all(at_once: int) -> None:
    course = course_of(rag().fit(people()))
    batch = course.batches(course.learned, course.close, 0)[0]
    model, given = course.model.eval(), []
    for loss in (RagLoss(0.1), RagLoss(0.1, at_once)):
        model.zero_grad()
        value = loss(model, batch)["answer"]
        value.backward()
        given.append((value.detach(), [weight.grad for weight in model.parameters() if weight.grad is not None]))
    (whole, expected), (pieces, found) = given
    torch.testing.assert_close(pieces, whole)
    assert len(expected) > 10
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


def test_a_training_reads_as_many_questions_at_once_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    most: list[int] = []
    mean = RagLoss._mean

    def noted(self: RagLoss, model: RagModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        most.append(len(batch["query_ids"]))
        return mean(self, model, batch)

    monkeypatch.setattr(RagLoss, "_mean", noted)
    rag(replace(SHORT, steps=2, at_once=1)).fit(people())
    assert max(most) == 1


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_what_reads_queries_and_does_not_learn_reads_them_as_in_a_search(rate: float) -> None:
    course = course_of(rag().fit(people()))
    course.share(rate)
    course.model.train()
    assert course.both is not None
    assert course.both.reader.training
    assert course.asking.training == (rate > 0)


def test_documents_count_by_how_probable_they_are() -> None:
    fitted = rag().fit(people())
    answer = fitted.ask(ASKED[0])
    hits = fitted.search(ASKED[0], 3)
    scores = np.array([hit.score for hit in hits]) / NOTHING.temperature
    expected = dict(zip((hit.id for hit in hits), np.exp(scores - np.logaddexp.reduce(scores)), strict=True))
    assert {source.hit.id: source.share for source in answer.sources} == pytest.approx(expected, rel=1e-4)
    assert 0 <= answer.probability <= 1


def test_the_command_shows_shares_of_the_weight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rag().fit(people()).save(tmp_path / "m")
    ask_command(tmp_path / "m", ASKED[0].text)
    shown = capsys.readouterr().out
    assert re.findall("% of the weight(.*)", shown) == ["", ", holds the answer", ""]
    assert "attention" not in shown


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_what_reads_queries_learns_if_it_may(rate: float, tmp_path: Path) -> None:
    fitted = rag(replace(SHORT, query_rate=rate)).fit(people())
    dense = dense_of(fitted)
    assert (dense.asking is None) == (rate == 0)
    before, after = (encoder.state_dict() for encoder in (dense.encoder, dense.query_encoder))
    assert any(not torch.equal(before[name], after[name]) for name in before) == (rate > 0)
    untouched = dense_of(rag().fit(people()))
    np.testing.assert_array_equal(dense.index.vectors(), untouched.index.vectors())
    fitted.save(tmp_path / "m")
    again = triever.load(tmp_path / "m")
    assert isinstance(again, Answerer)
    assert again.search_many(ASKED, 4) == fitted.search_many(ASKED, 4)
    assert again.ask(ASKED[0]) == fitted.ask(ASKED[0])


def test_documents_are_read_one_by_one_by_what_learned_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begun = rag(replace(SHORT, temperature=0.1)).fit(people())
    begun.save(tmp_path / "m")
    caplog.clear()
    for start in (begun, str(tmp_path / "m")):
        fitted = rag(ReaderTuning(steps=0), start=start).fit(people())
        assert isinstance(fitted.engine.reader, AnswerReader)
        assert fitted.engine.reader.temperature == 0.1
        assert fitted.ask(ASKED[0]).written == begun.ask(ASKED[0]).written
    rag(replace(NOTHING, temperature=0.1), start=begun).fit(people())
    assert "here it reads" not in caplog.text
    with pytest.raises(UsageError, match=r"the model of answerer weighs documents by dense retrieval.*set first=dense"):
        rag(ReaderTuning(steps=0), start=begun, first=BM25()).fit(people())


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            NOTHING,
            replace(SHORT, marginal=False),
            "learned with training.marginal=true and training.temperature=0.05, and",
        ),
        (
            ReaderTuning(steps=0),
            SHORT,
            "learned with no training.marginal, and here it reads with training.marg",
        ),
        (
            ReaderTuning(steps=0),
            NOTHING,
            "learned with no training.marginal, and here it reads with training.m",
        ),
        (
            NOTHING,
            replace(NOTHING, temperature=0.2),
            "here it reads with training.marginal=true and training.temperat",
        ),
        (NOTHING, SHORT, ""),
        (ReaderTuning(steps=0), replace(SHORT, marginal=False), ""),
    ],
)
def test_another_way_to_read_documents_is_said(
    before: ReaderTuning, after: ReaderTuning, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    rag(after, start=rag(before).fit(people())).fit(people())
    assert caplog.text.count("and here it reads with") == bool(said)
    assert said in caplog.text


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="set first=dense"):
        rag(first=BM25()).fit(people())
    with pytest.raises(UsageError, match="query_rate has no effect without marginal"):
        ReaderTuning(query_rate=0.5)
    with pytest.raises(UsageError, match="temperature = 0"):
        ReaderTuning(temperature=0.0)
    assert isinstance(course_of(rag().fit(people())).model, RagModel)


def test_what_gives_no_vectors_is_refused_before_it_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BM25, "learn", lambda *_: pytest.fail("it was trained"))
    with pytest.raises(UsageError, match=r"training\.marginal weighs documents by dense retrieval, and first is bm25"):
        rag(SHORT, first=BM25()).fit(people())
