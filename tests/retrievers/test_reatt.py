"""Retrieval as attention and readers: the contract, search by brute force, answers and what they were written from."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import triever
from tests.models.causal import save_causal
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from tests.warm import run
from triever import BM25, Cut, Dataset, Document, Query
from triever.commands.use import ask as ask_command
from triever.data.answers import has_answer
from triever.data.entities import entities, sentences
from triever.data.records import Answer, Found, Hit, Source
from triever.data.store import DocumentStore
from triever.engines.attention import AttentionEngine
from triever.engines.readers import AT_ONCE, NEVER, Reader
from triever.errors import UsageError
from triever.evaluation.heads import heads
from triever.held import NO_DOCUMENTS
from triever.index.token_vectors import TokenOptions
from triever.learning import answering
from triever.learning.answer_tasks import MASKED, AskedAnswers, asked, with_gaps
from triever.learning.answering import ReadingCourse, known_from
from triever.models.reatt import UNSET, ReAttModel
from triever.retrievers.answerer import Answerer, ReaderTuning
from triever.retrievers.reatt import ReAtt, ReAttTuning
from triever.terminal import answered
from triever.training import memory_estimate
from triever.training.reatt_loss import ReAttLoss

SMALL = "scratch:hidden=32,layers=2,heads=2,vocabulary=400"
CAUSAL = "scratch:causal=true,hidden=32,layers=2,heads=2,vocabulary=400"
UNTRAINED = ReAttTuning(answer_steps=0, steps=0)
NAMES = ["Anna", "Berta", "Carl", "Dora", "Emil", "Frieda", "Gustav", "Hanna"]
TOWNS = ["Aachen", "Bonn", "Celle", "Dresden", "Essen", "Fulda", "Gera", "Halle"]
PEOPLE = [Document(name, f"{name} lives in {town}.", "People") for name, town in zip(NAMES, TOWNS, strict=True)]
ASKED = [
    Query(f"q{name}", f"Where does {name} live?", answers=(town,)) for name, town in zip(NAMES, TOWNS, strict=True)
]
SHORT = ReAttTuning(answer_steps=4, steps=6, rounds=2, batch=4, close=3, holdout=0.3, learning_rate=1e-3)
NO_STEPS = ReaderTuning(steps=0)
READS = ReaderTuning(steps=2, batch=4, close=3, holdout=0.3, learning_rate=1e-3)


def people() -> Dataset:
    qrels = {query.id: {name: 1} for query, name in zip(ASKED, NAMES, strict=True)}
    return Dataset.of("people", PEOPLE, ASKED, {"train": qrels, "test": qrels})


def reatt(**options: object) -> ReAtt:
    return ReAtt(**{"backbone": SMALL, "training": UNTRAINED} | options)  # ty: ignore[invalid-argument-type]


class TestReAtt(Contract):
    understands = False

    def make(self) -> triever.Retriever:
        return reatt()


class TestAnswerer(Contract):
    filters_as = "left out"

    def make(self) -> triever.Retriever:
        return Answerer(backbone=SMALL, training=ReaderTuning(steps=0))


@pytest.mark.long
class TestCompressed(Contract):
    understands = False

    def make(self) -> triever.Retriever:
        return reatt(index=TokenOptions(score="avgmax", bits=4))


@torch.inference_mode()
def test_a_score_is_the_average_of_the_best_attention_of_one_head() -> None:
    """The oracle: the model's own relevance of all heads, computed from texts that were read one by one."""
    fitted = reatt().fit(dataset())
    model = fitted.engine.reader.texts.model
    with torch.no_grad():
        model.head_logits[1] = 1.0  # the second head is chosen, and then all keys are made anew
    fitted = replace(fitted).holding(replace(fitted._checked(), engine=fitted._indexed(fitted.engine.reader, None)))
    for query in QUERIES:
        found = {hit.id: hit.score for hit in fitted.search(query, len(DOCUMENTS))}
        asked = torch.tensor(model.tokenizer.ids([query.text], 64))
        for document in DOCUMENTS:
            held = torch.tensor(model.tokenizer.ids([document.full_text], 256))
            masks = torch.ones_like(asked), torch.ones_like(held)
            states = model.query_states(asked, masks[0]), model.document_states(held, masks[1])
            each = model.relevance(states[0], masks[0], states[1], masks[1])
            assert found[document.id] == pytest.approx(float(each[1, 0, 0]), abs=2e-3)  # keys are kept in 16 bits


def test_another_index_finds_the_same_and_answers_the_same() -> None:
    fitted = reatt(read_documents=4).fit(people())
    expected = [[hit.id for hit in fitted.search(query, 8)] for query in ASKED]
    nearest = fitted.reindexed(candidates=None, tokens=2048)
    assert [[hit.id for hit in nearest.search(query, 8)] for query in ASKED] == expected
    assert nearest.ask(ASKED[0]) == fitted.ask(ASKED[0])
    assert nearest.index.tokens == 2048
    assert fitted.reindexed(bits=2).index_bytes < fitted.index_bytes


def test_an_answer_has_the_documents_it_was_written_from() -> None:
    fitted = reatt(read_documents=4).fit(people())
    answer = fitted.ask(ASKED[0])
    assert len(answer.sources) == 4
    assert {source.hit.id for source in answer.sources} == {hit.id for hit in fitted.search(ASKED[0], 4)}
    shares = [source.share for source in answer.sources]
    assert sum(shares) == pytest.approx(1, abs=1e-4)
    assert shares == sorted(shares, reverse=True)
    assert 0 <= answer.probability <= 1
    asked = [piece for piece, _, _ in answer.sources[0].matches]
    assert asked == fitted.engine.first.pieces(ASKED[0].text)  # ty: ignore[unresolved-attribute]
    mean = np.mean([score for _, _, score in answer.sources[0].matches])
    assert answer.sources[0].hit.score == pytest.approx(mean, abs=2e-3)
    assert "lives in" in str(answer.sources[0].hit.snippet)
    json.dumps(answer.to_dict())


def test_one_question_is_answered_as_among_many() -> None:
    fitted = reatt(read_documents=3).fit(people())
    together = fitted.ask_many(ASKED)
    for query, answer in zip(ASKED, together, strict=True):
        alone = fitted.ask(query)
        assert alone.written == answer.written
        assert alone.probability == pytest.approx(answer.probability, rel=1e-3)
    assert all(source.matches == () for source in fitted.ask_many(ASKED[:1], matches=False)[0].sources)
    assert fitted.ask_many([]) == []


@pytest.mark.parametrize("documents", [1, 3])
def test_documents_of_one_question_are_read_some_at_a_time(documents: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = reatt(read_documents=8).fit(people())
    model = fitted.engine.reader.texts.model
    read, lengths = model.document_states, []

    def noted(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        lengths.append(len(ids))
        return read(ids, mask)

    monkeypatch.setattr(model, "document_states", noted)
    whole = fitted.ask(ASKED[0])
    assert lengths == [8]
    lengths.clear()
    monkeypatch.setitem(AT_ONCE, "cpu", documents * (64 + 256))
    some = fitted.ask(ASKED[0])
    assert lengths == [documents] * (8 // documents) + [8 % documents] * (8 % documents > 0)
    assert some.written == whole.written
    assert some.probability == pytest.approx(whole.probability, rel=1e-3)
    assert [source.share for source in some.sources] == pytest.approx(
        [source.share for source in whole.sources], abs=1e-3
    )


def test_answers_obey_filters_and_survive_saving(tmp_path: Path) -> None:
    documents = [replace(document, metadata={"name": document.id}) for document in PEOPLE]
    fitted = reatt().fit(Dataset.of("people", documents))
    only = fitted.ask("Where does Anna live?", where={"name": "Berta"})
    assert [source.hit.id for source in only.sources] == ["Berta"]
    fitted.save(tmp_path / "m")
    again = triever.load(tmp_path / "m")
    assert isinstance(again, ReAtt)
    assert again.ask("Where does Anna live?") == fitted.ask("Where does Anna live?")
    again.delete([document.id for document in documents])
    nothing = again.ask("Where does Anna live?")
    assert (nothing.text, nothing.sources, nothing.probability) == (None, (), 0.0)
    assert nothing.note == NO_DOCUMENTS


@pytest.mark.parametrize("backbone", [SMALL, CAUSAL])
def test_an_answer_from_nothing_says_why_and_nothing_is_read(
    backbone: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triever.progress._shown", True)
    documents = [replace(document, metadata={"name": document.id}) for document in PEOPLE]
    answerer = Answerer(backbone=backbone, training=ReaderTuning(steps=0)).fit(Dataset.of("people", documents))
    assert answerer.ask("Where does Anna live?").note == ""
    capfd.readouterr()
    filtered = answerer.ask("Where does Anna live?", where={"name": "nobody"})
    assert (filtered.text, filtered.note) == (None, NO_DOCUMENTS)
    unknown = answerer.ask("xylophone?")
    with pytest.raises(UsageError, match="an answerer retriever has no docids"):
        answerer.browse()
    assert unknown.note == unknown.to_dict()["note"] == "no word of the query is in the corpus"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", [ReAtt, Answerer])
def test_from_when_on_it_knows_is_set_after_fitting_too(kind: type[ReAtt | Answerer], tmp_path: Path) -> None:
    fitted = (reatt() if kind is ReAtt else Answerer(backbone=SMALL, training=ReaderTuning(steps=0))).fit(people())
    reader = replace(fitted.engine.reader, known_from=1.0)
    strict = fitted.holding(replace(fitted._checked(), engine=replace(fitted.engine, reader=reader)))
    answer = strict.ask(ASKED[0])
    assert (answer.text, answer.probability < 1) == (None, True)
    given = strict.searched_with({"known_from": 0}).ask(ASKED[0])
    assert given == replace(answer, text=answer.written)
    just = answer.probability
    assert strict.searched_with({"known_from": just}).ask(ASKED[0]).text == answer.written
    assert strict.searched_with({"known_from": min(1.0, just * 1.01)}).ask(ASKED[0]).text is None
    strict.searched_with({"known_from": 0.0}).save(tmp_path / "m")
    assert triever.load(tmp_path / "m").ask(ASKED[0]).text == answer.written  # ty: ignore[unresolved-attribute]
    with pytest.raises(UsageError, match=r"known_from = 2\.0 is no probability; set it from 0 to 1"):
        kind(known_from=2.0)


def test_a_blank_question_is_refused() -> None:
    fitted = reatt().fit(people())
    for blank in ("", " \n\t", Query("q", " ")):
        with pytest.raises(UsageError, match="the question is empty"):
            fitted.ask_many(["Where does Anna live?", blank])
    with pytest.raises(UsageError, match="ask_many takes a list of questions, not str; for a single question use ask"):
        fitted.ask_many("who built")
    with pytest.raises(UsageError, match="search_many takes a list of queries, not str; for a single query use search"):
        fitted.search_many("who built")


def test_passages_are_read_where_documents_are_cut() -> None:
    filler = " ".join(["Nothing is said here."] * 60)
    long = [Document("long", f"{filler} Anna lives in Aachen."), *PEOPLE[1:]]
    fitted = reatt(cut=Cut("all", words=40, overlap=5), read_documents=3).fit(Dataset.of("long", long))
    source = fitted.ask("Where does Anna live?").sources[0]
    assert source.hit.span is not None
    assert len(source.hit.passage) < len(source.hit.text) or source.hit.id != "long"


@pytest.mark.parametrize("kind", ["reatt", "answerer"])
def test_training_changes_the_model_and_fits_from_when_on_it_knows(kind: str, tmp_path: Path) -> None:
    training = SHORT if kind == "reatt" else ReaderTuning(steps=6, batch=4, close=3, holdout=0.3, learning_rate=1e-3)
    make = ReAtt if kind == "reatt" else Answerer
    fitted = make(backbone=SMALL, training=training).fit(people(), work=tmp_path / "work")  # ty: ignore[invalid-argument-type]
    told = fitted.engine.made_from()
    assert told["trained steps"] == 6
    assert "held-out likelihood" in told
    assert 0 <= told["exact match of held-out questions"] <= 1
    untouched = reatt().fit(people()).engine.reader.texts.model.state_dict()
    learned = fitted.engine.reader.texts.model.state_dict()
    assert any(not torch.equal(learned[name], weight) for name, weight in untouched.items())
    again = make(backbone=SMALL, training=training).fit(people(), work=tmp_path / "work")  # ty: ignore[invalid-argument-type]
    assert again.ask(ASKED[0]) == fitted.ask(ASKED[0])


@pytest.mark.long
def test_close_documents_are_found_anew_by_the_model_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    search = AttentionEngine.search

    def counted(self: AttentionEngine, store: object, queries: list[str], k: int) -> object:
        searched.append(len(queries))
        return search(self, store, queries, k)  # ty: ignore[invalid-argument-type]

    monkeypatch.setattr(AttentionEngine, "search", counted)
    learned, judged = reatt(training=SHORT).lesson(people(), DocumentStore.of(PEOPLE))
    reatt(training=SHORT).fit(people())
    assert len(searched) == 2, "before the second round, and for the threshold"
    assert SHORT.batch <= searched[0] <= len(learned)
    assert searched[1] == len(judged)
    searched.clear()
    reatt(training=replace(SHORT, renew=False)).fit(people())
    assert searched == [len(judged)]


@pytest.mark.long
def test_a_reader_learns_to_answer_from_the_right_document() -> None:
    """One document a question and many steps: a model that reads can repeat what stands there."""
    training = ReaderTuning(steps=250, batch=8, close=1, holdout=0.0, learning_rate=2e-3)
    shape = triever.ReAttShape(apart=0, dropout=0.0)
    answerer = Answerer(backbone=SMALL, shape=shape, training=training, read_documents=1).fit(people())
    answers = [answer.written for answer in answerer.ask_many(ASKED)]
    assert sum(text == town for text, town in zip(answers, TOWNS, strict=True)) >= 6


def test_measures_of_answers_ask_for_them() -> None:
    fitted = reatt(read_documents=2).fit(people())
    report = triever.compare({"reatt": fitted}, people(), "test", ["EM", "F1", "Answer@1"])
    answers = {query.id: answer.written for query, answer in zip(ASKED, fitted.ask_many(ASKED), strict=True)}
    right = [triever.data.answers.exact_match(answers[query.id], query.answers) for query in ASKED]
    assert report.to_dict()["scores"]["reatt"]["EM"]["mean"] == pytest.approx(np.mean(right))


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="no query of contract's train has an answer"):
        ReAtt(backbone=SMALL, training=SHORT).fit(dataset())
    with pytest.raises(UsageError, match="all training queries are held out"):
        ReAtt(backbone=SMALL, training=replace(SHORT, holdout=0.999)).fit(people())
    with pytest.raises(UsageError, match="attention is averaged"):
        reatt(index=TokenOptions())
    with pytest.raises(UsageError, match="read_documents = 0"):
        reatt(read_documents=0)
    with pytest.raises(UsageError, match="alpha = -1"):
        ReAttTuning(alpha=-1.0)
    with pytest.raises(UsageError, match=r"dropout = 1\.5 is out of range; set it from 0 to below 1"):
        triever.ReAttShape(dropout=1.5)


def test_a_document_length_that_the_backbone_does_not_read_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    fitted = reatt(document_length=100_000).fit(people())
    longest = fitted.engine.reader.texts.model.encoder.longest_document
    [told] = [record.message for record in caplog.records if "document_length" in record.message]
    assert told.startswith(f"document_length = 100000, but only {longest} tokens of a document are read")
    caplog.clear()
    reatt(document_length=longest).fit(people())
    assert "document_length" not in caplog.text


@pytest.mark.parametrize(
    ("probabilities", "right", "expected"),
    [([0.9, 0.5], [True, False], 0.9), ([0.2, 0.9], [True, False], 0.2), ([], [], 0.0), ([0.4], [False], NEVER)],
)
def test_it_knows_from_where_right_answers_are_found_best(
    probabilities: list[float], right: list[bool], expected: float
) -> None:
    assert known_from(probabilities, right) == expected


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=9))
def test_no_other_probability_would_find_right_answers_better(claims: list[tuple[float, bool]]) -> None:
    """The oracle gives all answers from each probability on, and counts."""

    def quality(least: float) -> float:
        shown = [right for probability, right in claims if probability >= least]
        return 2 * sum(shown) / (len(shown) + sum(right for _, right in claims))

    chosen = known_from(*zip(*claims, strict=True))
    if any(right for _, right in claims):
        assert quality(chosen) == max(quality(probability) for probability, _ in claims)
    else:
        assert chosen == NEVER


@pytest.mark.parametrize("kind", ["reatt", "answerer"])
def test_a_model_that_is_never_right_says_that_it_does_not_know(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr("triever.learning.answering.exact_match", lambda *_: 0.0)
    fitted = reatt(training=SHORT) if kind == "reatt" else Answerer(backbone=SMALL, training=READS)
    judged = len(fitted.lesson(people(), DocumentStore.of(PEOPLE))[1])
    fitted.fit(people())
    assert f"none of {judged} held-out questions was answered exactly, so this model says that" in caplog.text
    fitted.save(tmp_path / "m")
    again = triever.load(tmp_path / "m")
    assert isinstance(again, ReAtt | Answerer)
    assert again.engine.reader.known_from == NEVER
    monkeypatch.setattr(Reader, "text", lambda *_: "Aachen")
    assert [(answer.text, answer.written) for answer in again.ask_many(ASKED[:2])] == [(None, "Aachen")] * 2
    assert "| answers known from | never |" in again.card
    assert again.engine.made_from()["answers known from"] == "never"


@pytest.mark.parametrize("holdout", [0.0, 0.001])
def test_a_model_that_nobody_judged_answers_and_says_so(holdout: float, caplog: pytest.LogCaptureFixture) -> None:
    fitted = Answerer(backbone=SMALL, training=replace(READS, holdout=holdout)).fit(people())
    assert fitted.engine.reader.known_from == 0.0
    assert caplog.text.count("no question was held out, so this model answers every question") == 1


@pytest.mark.parametrize("holdout", [0.0, 0.3])
def test_how_relevant_a_document_is_has_no_threshold(holdout: float, caplog: pytest.LogCaptureFixture) -> None:
    training = replace(READS, holdout=holdout, task="relevance")
    assert Answerer(backbone=SMALL, training=training).fit(people()).engine.reader.known_from == 0.0
    assert "held out" not in caplog.text
    assert "held-out" not in caplog.text


@pytest.mark.parametrize("make", [Answerer, ReAtt])
def test_it_is_said_how_many_questions_have_no_answers(make: type, caplog: pytest.LogCaptureFixture) -> None:
    without = [replace(query, answers=()) for query in ASKED[3:]]
    qrels = {query.id: {name: 1} for query, name in zip(ASKED, NAMES, strict=True)}
    data = Dataset.of("some", PEOPLE, [*ASKED[:3], *without], {"train": qrels})
    steps = {"steps": 1} if make is Answerer else {"steps": 1, "answer_steps": 0, "rounds": 1}
    tuning = ReaderTuning if make is Answerer else ReAttTuning
    make(backbone=SMALL, training=tuning(holdout=0.0, batch=2, close=2, **steps)).fit(data)
    assert caplog.text.count("learning from 3 of 8 questions of train: the others are blank or have no answers") == 1
    caplog.clear()
    make(backbone=SMALL, training=tuning(holdout=0.0, batch=2, close=2, **steps)).fit(people())
    assert "have no answers" not in caplog.text


@pytest.mark.parametrize("make", [Answerer, ReAtt])
@pytest.mark.parametrize(("there", "said"), [(0, "only 0 of 8 questions"), (1, "only 1 of 8 questions"), (2, "")])
def test_it_is_said_where_answers_stand_in_no_document_that_is_read(
    make: type, there: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost = [query if number < there else replace(query, answers=("Zwickau",)) for number, query in enumerate(ASKED)]
    data = Dataset.of("lost", PEOPLE, lost, {"train": {query.id: {"Anna": 1} for query in lost}})
    steps = {"steps": 1} if make is Answerer else {"steps": 1, "answer_steps": 1, "rounds": 1}
    tuning = ReaderTuning if make is Answerer else ReAttTuning
    training = tuning(holdout=0.0, batch=2, close=2, **steps)
    make(backbone=SMALL, training=training).fit(data)
    assert caplog.text.count("an answer stands in one of the close documents for only") == bool(said)
    assert said in caplog.text
    caplog.clear()
    for other in (replace(training, task="masked"), replace(training, task="relevance")):
        make(backbone=SMALL, training=other).fit(data)
    make(backbone=SMALL, shape=triever.ReAttShape(copy=False), training=training).fit(data)
    assert "an answer stands in" not in caplog.text


@pytest.mark.parametrize("make", [Answerer, ReAtt])
def test_it_is_said_where_answers_stand_behind_what_is_read(make: type, caplog: pytest.LogCaptureFixture) -> None:
    first = replace(PEOPLE[0], text=f"{'really ' * 20}{PEOPLE[0].text}")
    rest = [replace(document, text=f"{'really ' * 200}{document.text}") for document in PEOPLE[1:]]
    qrels = {query.id: {name: 1} for query, name in zip(ASKED, NAMES, strict=True)}
    data = Dataset.of("late", [first, *rest], ASKED, {"train": qrels})
    steps = {"steps": 1} if make is Answerer else {"steps": 1, "answer_steps": 0, "rounds": 1}
    training = (ReaderTuning if make is Answerer else ReAttTuning)(holdout=0.0, batch=2, close=2, **steps)
    make(backbone=SMALL, document_length=64, training=training).fit(data)
    assert "7 of 8 texts are longer than the 64 tokens that are read of each" in caplog.text
    said = "for 7 of 8 questions the answer stands in a close document, behind the 64 tokens that are read of it: "
    assert f"{said}document_length=128 reads more" in caplog.text
    assert "of the close documents for only" not in caplog.text, "they are close, and not read"
    caplog.clear()
    make(backbone=SMALL, document_length=512, training=training).fit(data)
    assert "that are read" not in caplog.text


def test_sources_are_what_was_read_of_documents() -> None:
    long = replace(PEOPLE[0], text=f"{'Really. ' * 60}Anna lives in Aachen.")
    fitted = reatt(document_length=64, read_documents=3).fit(Dataset.of("long", [long, *PEOPLE[1:3]]))
    sources = {source.hit.id: source for source in fitted.ask("Where does Anna live?").sources}
    whole = {**sources}
    read = whole.pop(long.id)
    assert read.hit.span is not None
    assert read.hit.span[0] == 0
    assert long.text.startswith(read.hit.passage)
    assert 0 < len(read.hit.passage) < 64 * len("Really. ")
    assert "Aachen" not in str(read.hit.snippet)
    assert all(source.hit.span is None for source in whole.values())
    for source in sources.values():
        answer = fitted.ask("Where does Anna live?")
        assert source.holds_answer == has_answer(f"{source.hit.title} {source.hit.passage}", [answer.written])
    [brief] = fitted.ask_many(["Where does Anna live?"], matches=False)
    assert [source.holds_answer for source in brief.sources] == [None] * 3
    assert brief.written == fitted.ask("Where does Anna live?").written
    told = {source["id"]: source for source in fitted.ask("Where does Anna live?").to_dict()["sources"]}
    assert told[long.id]["span"] == [*read.hit.span]
    assert {key: value["holds_answer"] for key, value in told.items()} == {
        key: source.holds_answer for key, source in sources.items()
    }


@pytest.mark.parametrize(("right", "said"), [(1, "only 1 of 8 held-out questions were answered exactly"), (5, "")])
def test_it_is_said_where_few_right_answers_choose_from_when_on_it_knows(
    right: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    fitted = reatt(training=SHORT).fit(people())
    written = [fitted.ask(query).written for query in ASKED]
    wanted = [*written[:right], *["Zwickau"] * len(written)]
    told = [replace(query, answers=(text,)) for query, text in zip(ASKED, wanted, strict=False)]
    caplog.clear()
    fitted.with_threshold(fitted.engine, AskedAnswers(told), fitted.documents)
    assert said in caplog.text
    assert ("held-out questions" in caplog.text) == bool(said)


def test_options_of_asking_are_checked_where_they_are_set_later() -> None:
    fitted = reatt().fit(people())
    fitted.known_from = 7.0
    with pytest.raises(UsageError, match="is no probability"):
        fitted.ask("Where does Anna live?")
    fitted.known_from, fitted.read_documents = None, 0
    with pytest.raises(UsageError, match="read_documents = 0 should be above zero"):
        fitted.ask("Where does Anna live?")


def test_the_training_of_what_stands_before_a_reader_is_not_called_its_own() -> None:
    first = reatt(training=SHORT).fit(people())
    told = Answerer(backbone=SMALL, training=NO_STEPS, first=first).fit(people()).engine.made_from()
    assert not [name for name in told if "held-out" in name or "step" in name or "seconds" in name]
    assert "retrieval head" in told


def test_a_document_that_holds_the_answer_is_shown_and_marked() -> None:
    shares = (0.4, 0.3, 0.2, 0.06, 0.04)
    found = [Hit(name, 1.0) for name in NAMES[:5]]
    fitted = reatt().fit(people())
    for hit in found:
        hit.came_from(Found(fitted.documents, "x"))
    sources = [Source(hit, share, (), hit.id in NAMES[3:5]) for hit, share in zip(found, shares, strict=True)]
    shown = str(answered(Answer("x", "y", 0.5, "y", tuple(sources))))
    assert [line.split()[0] for line in shown.splitlines() if "of the attention" in line] == ["1.", "2.", "3.", "4."]
    assert shown.count("6% of the attention, holds the answer") == 1
    assert shown.count("holds the answer") == 1


@pytest.mark.parametrize("make", [Answerer, ReAtt])
def test_blank_questions_are_not_learned_and_get_no_answer(make: type, caplog: pytest.LogCaptureFixture) -> None:
    asked = [replace(query, text=" ") if number % 2 else query for number, query in enumerate(ASKED)]
    qrels = {query.id: {name: 1} for query, name in zip(ASKED, NAMES, strict=True)}
    data = Dataset.of("blanks", PEOPLE, asked, {"train": qrels})
    steps = {"steps": 1} if make is Answerer else {"steps": 1, "answer_steps": 0, "rounds": 1}
    training = (ReaderTuning if make is Answerer else ReAttTuning)(holdout=0.0, batch=2, close=2, **steps)
    fitted = make(backbone=SMALL, training=training).fit(data)
    assert caplog.text.count("learning from 4 of 8 questions of train: the others are blank or have no answers") == 1
    report = triever.compare({"one": fitted}, data, "train", ["EM", "Answer@1"])
    right = [fitted.ask(query).written == query.answers[0] for query in asked[::2]]
    assert report.scores["one"]["EM"].mean == pytest.approx(sum(right) / len(asked))
    assert report.extra["one"].keys() == {"documents", "queries/s", "answers/s"}


def test_it_is_said_where_a_model_never_answers_that_is_started_from(caplog: pytest.LogCaptureFixture) -> None:
    fitted = reatt().fit(people())
    reader = replace(fitted.engine.reader, known_from=NEVER)
    never = fitted.holding(replace(fitted._checked(), engine=replace(fitted.engine, reader=reader)))
    for options, said in (({}, 1), ({"known_from": 0.0}, 0), ({"training": SHORT}, 0)):
        caplog.clear()
        reatt(start=never, **options).fit(people())
        assert caplog.text.count("answered none of its held-out questions exactly, so this one says") == said


def test_documents_alone_are_learned_from_by_their_gaps() -> None:
    with pytest.raises(UsageError, match=r"alone has no queries; give queries .* and masked from texts"):
        reatt(training=SHORT).fit(Dataset.of("alone", PEOPLE))


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"keep": "best", "holdout": 0.0}, "have no effect, because no question is held out to judge by"),
        ({"patience": 2, "holdout": 0.001}, "have no effect, because no question is held out to judge by"),
        ({"keep": "best", "holdout": 0.3}, "of 8 training queries are held out (training.holdout=0.3)"),
        ({"holdout": 0.0}, ""),
        ({"patience": 2, "holdout": 0.3}, ""),
    ],
)
def test_it_is_said_where_too_few_questions_choose_the_step(
    training: dict[str, object], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    Answerer(backbone=SMALL, training=replace(READS, **training)).fit(people())  # ty: ignore[invalid-argument-type]
    told = [record.getMessage() for record in caplog.records if "to judge by" in record.getMessage()]
    assert len(told) == bool(said)
    assert said in "".join(told)


def test_the_command_says_why_it_does_not_know_and_skips_blank_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Answerer(backbone=SMALL, training=ReaderTuning(steps=0)).fit(people()).save(tmp_path / "m")
    note = "no word of the query is in the corpus\n"
    ask_command(tmp_path / "m", "xylophone?")
    assert capsys.readouterr() == ("I do not know  (probability 0.00)\n", note)
    ask_command(tmp_path / "m", "xylophone?", json_=True)
    printed = capsys.readouterr()
    assert (f"{json.loads(printed.out)['note']}\n", printed.err) == (note, note)
    monkeypatch.setattr("sys.stdin", StringIO("Where is Anna?\n\n \nWhere is Carl?\n"))
    ask_command(tmp_path / "m", "-", json_=True)
    asked = [json.loads(line)["question"] for line in capsys.readouterr().out.splitlines()]
    assert asked == ["Where is Anna?", "Where is Carl?"]
    typed = StringIO("Where is Anna?\n")
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", typed)
    ask_command(tmp_path / "m")
    assert capsys.readouterr().err == "question: question: "
    with pytest.raises(UsageError, match="the question is empty"):
        ask_command(tmp_path / "m", " ")


@pytest.mark.long
def test_asking_on_the_command_line(tmp_path: Path) -> None:
    reatt(read_documents=2).fit(people()).save(tmp_path / "m")
    BM25().fit(people()).save(tmp_path / "b")
    done = run(["ask", "m", "Where does Anna live?", "--json"], tmp_path, dict(os.environ))
    told = json.loads(done.stdout)
    assert (told["question"], len(told["sources"])) == ("Where does Anna live?", 2)
    done = run(["ask", "m", "Where does Anna live?"], tmp_path, dict(os.environ))
    assert "of the attention" in done.stdout
    assert math.isclose(told["probability"], float(done.stdout.split("probability ")[1][:4]), abs_tol=0.01)
    refused = run(["ask", "b", "Where does Anna live?"], tmp_path, dict(os.environ))
    assert refused.returncode == 2
    assert "bm25 retriever, which finds documents and does not answer" in refused.stderr


def test_heads_are_correlated_with_judgements_as_numpy_would() -> None:
    data = people()
    fitted = reatt().fit(data)
    found = heads(fitted, data, "test", depth=8)
    model = fitted.engine.reader.texts.model
    assert len(found.correlations) == model.encoder.heads
    assert fitted.engine.made_from()["layers apart"] == "1 of 2"
    head = fitted.engine.made_from()["retrieval head"]
    assert head == f"{found.chosen} of {model.encoder.heads}"
    scores, right = [], []
    for query, name in zip(ASKED, NAMES, strict=True):
        ranks = {hit.id: hit.score for hit in fitted.search(query, len(PEOPLE))}
        for hit in BM25().fit(data).search(query, 8):
            scores.append(ranks[hit.id])
            right.append(float(hit.id == name))
    expected = np.corrcoef(scores, right)[0, 1] if np.std(right) else 0.0
    assert found.correlations[found.chosen] == pytest.approx(expected, abs=0.02)
    behind = heads(Answerer(backbone=SMALL, training=NO_STEPS).fit(data), data, "test", depth=8)
    assert behind.chosen is None, "what is found by BM25 has not been found by a head"
    assert {row["chosen"] for row in behind.rows()} == {""}
    with pytest.raises(UsageError, match="has no attention that finds documents"):
        heads(BM25().fit(data), data, "test")


# What it may learn from.


def test_documents_alone_ask_for_what_is_left_out_of_their_sentences() -> None:
    store = DocumentStore.of([Document(name, f"The famous {name} Smith lives in {name}town now.") for name in NAMES])
    made = with_gaps(store, seed=0, most=20)
    assert len(made) == 16, "a name and a town in each sentence, and no gap twice"
    for query in made.queries:
        document = store.document(query.id.rpartition("#")[0])
        assert query.text.replace(MASKED, query.answers[0]) == document.text
    assert with_gaps(store, seed=0, most=20).queries == made.queries
    with pytest.raises(UsageError, match=r"a name or a number; learn from questions: training\.task=answers"):
        with_gaps(DocumentStore.of([Document("a", "nothing is said here at all")]), 0, 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "灯台は1900年に建てられた。高さは12メートルである。",
            {("灯台は_____年に建てられた。", "1900"), ("高さは_____メートルである。", "12")},
        ),
        ("塔建于1900年。", {("塔建于_____年。", "1900")}),
        ("ประภาคารสร้างในปี1900", {("ประภาคารสร้างในปี_____", "1900")}),
        ("In 1900.", set()),
    ],
)
def test_sentences_without_spaces_have_gaps_too(text: str, expected: set[tuple[str, str]]) -> None:
    store = DocumentStore.of([Document("a", text), Document("b", "It is 5 metres high.")])
    made = with_gaps(store, seed=0, most=20)
    gaps = {(query.text, query.answers[0]) for query in made.queries if query.id.startswith("a#")}
    assert gaps == expected


WORDS = st.sampled_from(["Anna", "Berta", "Carl", "1912", "48", "lives", "in", "the", "house"])
SENTENCES = st.lists(WORDS, min_size=1, max_size=7).map(lambda words: f"{' '.join(words)}.")
TEXTS = st.lists(SENTENCES, max_size=4).map(" ".join)


def gaps_of(text: str) -> set[tuple[str, str]]:
    """The oracle: every gap of every sentence of four words, and what stood there."""
    long = [sentence for sentence in sentences(text) if len(sentence.split()) >= 4]
    return {
        (f"{sentence[:start]}{MASKED}{sentence[end:]}", sentence[start:end])
        for sentence in long
        for start, end in entities(sentence)
    }


@given(st.lists(TEXTS, min_size=1, max_size=8), st.integers(0, 3), st.integers(1, 30), st.floats(0, 0.9))
def test_gaps_are_different_even_over_documents_and_held_out_by_sentence(
    texts: list[str], seed: int, most: int, share: float
) -> None:
    store = DocumentStore.of([Document(str(number), text) for number, text in enumerate(texts)])
    every = [gaps_of(text) for text in texts]
    possible = set().union(*every)
    assume(possible)
    made = with_gaps(store, seed, most)
    found = [(query.text, query.answers[0]) for query in made.queries]
    assert len(set(found)) == len(found) == min(most, len(possible))
    assert {*found} <= possible
    assert len({query.id for query in made.queries}) == len(found)
    assert with_gaps(store, seed, most).queries == made.queries
    if sum(map(len, every)) == len(possible):  # no two documents share a sentence
        counts = Counter(query.id.rpartition("#")[0] for query in made.queries)
        highest = max(counts.values())
        for number, gaps in enumerate(every):
            assert counts[str(number)] >= min(len(gaps), highest - 1)
    with contextlib.suppress(UsageError):  # all are held out
        learned, judged = made.held_out(share)
        assert [*learned.queries, *judged.queries] == sorted(
            made.queries, key=lambda query: query not in learned.queries
        )
        wholes = [
            {query.text.replace(MASKED, query.answers[0]) for query in part.queries} for part in (learned, judged)
        ]
        assert wholes[0].isdisjoint(wholes[1])


def test_gaps_are_not_read_of_more_documents_than_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    store = DocumentStore.of([Document(str(n), f"In the year {n} there were {n + 7000} towns.") for n in range(1000)])
    read: list[int] = []
    slice_of = DocumentStore.slice
    monkeypatch.setattr(DocumentStore, "slice", lambda self, a, b: read.append(a) or slice_of(self, a, b))
    assert len(with_gaps(store, 0, 20)) == len(read) == 20
    read.clear()
    assert len(with_gaps(store, 0, 5000)) == 2000
    assert len(read) == 1000


def test_blank_answers_are_left_out() -> None:
    answers = [(" Aachen ", ""), ("", "  "), (), ("\n",), ("Essen",)]
    queries = [Query(f"q{number}", "where", answers=given) for number, given in enumerate(answers)]
    qrels = {"train": {query.id: {"Anna": 1} for query in queries}}
    store = DocumentStore.of(PEOPLE)
    lesson = asked("answers", Dataset.of("blank", PEOPLE, queries, qrels), store, "train", 0, 0)
    assert [(query.id, query.answers) for query in lesson.queries] == [("q0", ("Aachen",)), ("q4", ("Essen",))]
    assert lesson.unanswered == 3
    blank = Dataset.of("blank", PEOPLE, queries[1:4], {"train": {query.id: {"Anna": 1} for query in queries[1:4]}})
    with pytest.raises(UsageError, match="no query of blank's train has an answer"):
        asked("answers", blank, store, "train", 0, 0)


def test_judged_documents_are_answers_that_say_how_relevant_they_are() -> None:
    lesson = asked("relevance", people(), DocumentStore.of(PEOPLE), "train", 0, 0)
    assert lesson.queries[0].answers == ("relevance: 1. People\nAnna lives in Aachen.",)


@pytest.mark.parametrize("task", ["relevance", "masked"])
def test_every_task_trains(task: str) -> None:
    training = replace(SHORT, task=task, sentences=10)
    fitted = reatt(training=training).fit(people())
    assert fitted.engine.made_from()["trained steps"] == 6


def test_a_saved_model_is_learned_further(tmp_path: Path) -> None:
    first = reatt().fit(people())
    first.save(tmp_path / "m")
    begun = reatt(start=str(tmp_path / "m")).fit(people())
    assert begun.ask(ASKED[0]) == first.ask(ASKED[0])
    further = reatt(start=str(tmp_path / "m"), training=SHORT).fit(people())
    assert further.ask(ASKED[0]).probability != first.ask(ASKED[0]).probability
    reader = replace(further.engine.reader, known_from=0.25)
    further.holding(replace(further._checked(), engine=replace(further.engine, reader=reader))).save(tmp_path / "k")
    assert reatt(start=str(tmp_path / "k")).fit(people()).engine.reader.known_from == 0.25, "what is known comes along"
    learning = replace(SHORT, answer_steps=1, steps=0, holdout=0.0)
    other = reatt(start=str(tmp_path / "k"), training=learning).fit(people())
    assert other.engine.reader.known_from == 0.0, "what is known holds for a model that stays as it is"
    store = DocumentStore.of(PEOPLE)
    before = reatt(start=str(tmp_path / "m")).lessons(people(), store)
    further.save(tmp_path / "m")
    assert reatt(start=str(tmp_path / "m")).lessons(people(), store) != before, "work on another model is not resumed"
    BM25().fit(people()).save(tmp_path / "b")
    with pytest.raises(UsageError, match="bm25 retriever, which does not answer"):
        reatt(start=str(tmp_path / "b")).fit(people())
    with pytest.raises(UsageError, match=r"shape\.dropout = 0\.5, but the model of .* leave shape\.dropout out"):
        reatt(start=str(tmp_path / "m"), shape=triever.ReAttShape(dropout=0.5)).fit(people())


def test_the_shape_is_that_of_the_model_which_is_learned_further(tmp_path: Path) -> None:
    shape = triever.ReAttShape(apart=0, dropout=0.0, query_length=9)
    reatt(shape=shape).fit(people()).save(tmp_path / "m")
    for asked_for in (triever.ReAttShape(), triever.ReAttShape(apart=0, copy=True)):
        further = reatt(start=str(tmp_path / "m"), shape=asked_for).fit(people())
        assert further.shape == shape
        assert further.engine.reader.texts.model.encoder.apart == 0
    with pytest.raises(UsageError, match=r"shape\.apart = 1, but the model of .* was made with another"):
        reatt(start=str(tmp_path / "m"), shape=triever.ReAttShape(apart=1)).fit(people())
    reatt().fit(people()).save(tmp_path / "unset")
    assert reatt(start=str(tmp_path / "unset"), shape=triever.ReAttShape(apart=1)).fit(people()).shape.apart is None


def test_work_that_was_begun_when_more_layers_read_apart_is_not_resumed() -> None:
    store = DocumentStore.of(PEOPLE)
    unset, given = (reatt(shape=triever.ReAttShape(apart=apart)).lessons(people(), store) for apart in (None, 1))
    assert {name: value for name, value in unset.items() if name not in given} == {"apart": UNSET}


def test_the_backbone_is_that_of_the_model_which_is_learned_further(tmp_path: Path) -> None:
    reatt().fit(people()).save(tmp_path / "m")
    begun = ReAtt(start=str(tmp_path / "m"), training=SHORT)
    for _ in range(2):  # the folder notes its options, and goes on with the same
        begun.fit(people(), work=tmp_path / "work")
    assert f"| backbone | {SMALL} |" in begun.card
    begun.save(tmp_path / "b")
    again = triever.load(tmp_path / "b")
    assert isinstance(again, ReAtt)
    assert again.backbone == SMALL
    reader = Answerer(first=ReAtt(start=str(tmp_path / "m"), training=UNTRAINED), start=begun, training=NO_STEPS)
    assert reader.fit(people()).backbone == SMALL
    with pytest.raises(UsageError, match=r"backbone = 'scratch:layers=1', but the model of .*; leave backbone out"):
        reatt(start=str(tmp_path / "m"), backbone="scratch:layers=1").fit(people())


def test_it_is_said_where_a_model_has_not_learned_what_it_is_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Answerer(backbone=SMALL, training=NO_STEPS).fit(people())
    assert "this reader has learned nothing and answers at random" in caplog.text
    caplog.clear()
    finds = reatt().fit(people())
    assert "this model has learned nothing, and finds and answers at random" in caplog.text
    caplog.clear()
    for begun in (reader, finds):
        Answerer(start=begun, training=NO_STEPS).fit(people())
    ReAtt(start=finds, training=UNTRAINED).fit(people())
    Answerer(start=reader, training=READS).fit(people())
    ReAtt(start=reader, training=SHORT).fit(people())
    reatt(training=SHORT).fit(people())
    assert "learned" not in caplog.text
    ReAtt(start=reader, training=UNTRAINED).fit(people())
    assert "the attention of answerer has not learned to find documents, because it is an answerer" in caplog.text


def test_a_model_that_can_write_need_not_learn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = str(save_causal(tmp_path / "llama", positions=400))
    Answerer(backbone=folder, training=NO_STEPS).fit(people())
    assert "learned nothing" not in caplog.text
    Answerer(backbone="scratch:causal=true,hidden=32,layers=1,heads=2,vocabulary=400", training=NO_STEPS).fit(people())
    assert "this reader has learned nothing" in caplog.text


@pytest.mark.long
def test_a_model_that_is_open_is_learned_further_and_stays_as_it_is(tmp_path: Path) -> None:
    first = reatt().fit(people())
    before = first.ask(ASKED[0])
    further = reatt(start=first, training=SHORT).fit(people())
    assert further.ask(ASKED[0]).probability != before.probability
    assert first.ask(ASKED[0]) == before, "others may start from it too"
    first.save(tmp_path / "m")
    same = reatt(start=str(tmp_path / "m"), training=SHORT).fit(people())
    assert same.ask(ASKED[0]) == further.ask(ASKED[0])
    further.save(tmp_path / "f")
    assert triever.load(tmp_path / "f").ask(ASKED[0]) == further.ask(ASKED[0])
    with pytest.raises(UsageError, match="has no documents yet"):
        reatt(start=reatt()).fit(people())


def test_a_round_finds_documents_for_the_questions_that_it_asks_and_no_others() -> None:
    fitted = reatt().fit(people())
    options = ReAttTuning(steps=4, rounds=2, batch=1, close=2, seed=3)
    looked_up: list[str] = []

    def close(texts: Sequence[str], depth: int) -> list[list[int]]:
        looked_up.extend(texts)
        return [[0, 1][:depth] for _ in texts]

    course = ReadingCourse(fitted.engine.reader, AskedAnswers(ASKED), AskedAnswers([]), options, close)
    batches = course.batches(course.learned, close, 1)
    asked_in = [batches[step]["query_ids"][0].tolist() for step in range(2)]
    tokens = fitted.engine.reader.texts.questions(looked_up)
    assert 1 <= len(looked_up) <= 2
    assert {tuple(row) for row in asked_in} == {tuple(tokens[number].tolist()) for number in range(len(looked_up))}
    assert all((batches[step]["document_rows"] == torch.tensor([0, 1])).all() for step in range(2))


def test_stages_ask_other_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "train", lambda _model, _loss, rounds, *_, **__: rounds)  # the rounds of a training
    fitted = reatt().fit(people())
    options = ReAttTuning(steps=8, rounds=1, batch=2, close=2, seed=3)
    course = ReadingCourse(
        fitted.engine.reader, AskedAnswers(ASKED), AskedAnswers([]), options, lambda texts, _: [[0] for _ in texts]
    )

    def drawn(course: ReadingCourse, number: int) -> list[list[list[int]]]:
        batches = course.run(ReAttLoss())(number)
        assert all((batches[step]["document_rows"][:, 0] == 0).all() for step in range(8)), (
            "looked up, as they are asked"
        )
        return [batches[step]["query_ids"].tolist() for step in range(8)]

    rounds = [drawn(replace(course, stage=stage), number) for stage in (0, 1) for number in (0, 1)]
    assert all(one != other for one, other in itertools.combinations(rounds, 2))
    assert drawn(replace(course, stage=1), 0) == rounds[2]


def test_both_stages_of_a_training_do_so(monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[int] = []
    run = ReadingCourse.run

    def noted(course: ReadingCourse, *args: Any) -> Any:
        stages.append(course.stage)
        return run(course, *args)

    monkeypatch.setattr(ReadingCourse, "run", noted)
    reatt(training=replace(SHORT, answer_steps=1, steps=1)).fit(people())
    assert stages == [0, 1]


@pytest.mark.parametrize("at_once", [0, 1, 3])
def test_held_out_questions_are_judged_as_many_at_once_as_are_learned(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = reatt().fit(people())
    options, asked = ReAttTuning(batch=4, close=2, at_once=at_once), AskedAnswers(ASKED)
    course = ReadingCourse(
        fitted.engine.reader, asked, asked, options, lambda texts, _: [[0, 1] for _ in texts], device="cpu"
    )
    judges = course.batches(asked, course.close, 0, np.arange(len(ASKED)))
    sizes: list[int] = []
    batch = type(judges).batch
    monkeypatch.setattr(
        type(judges),
        "batch",
        lambda self, numbers, answers: sizes.append(len(numbers)) or batch(self, numbers, answers),
    )
    told = course._likelihood(judges)
    assert max(sizes) <= (at_once or 4)
    assert sum(sizes) == len(ASKED)
    whole = replace(course, options=replace(options, batch=len(ASKED), at_once=0))._likelihood(judges)
    assert told == pytest.approx(whole, rel=1e-3)


@pytest.mark.parametrize("make", [reatt, Answerer])
def test_a_training_that_cannot_fit_is_refused_before_its_first_step(
    make: type[ReAtt | Answerer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_estimate, "available", lambda _device: 2**20)
    training = SHORT if make is reatt else ReaderTuning(steps=2, holdout=0.0)
    with pytest.raises(UsageError, match=r"learning to answer needs about .* 0.0 GiB are free.*training.at_once=1"):
        make(backbone=SMALL, training=training).fit(people())


def test_fewer_questions_at_once_need_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    needed: list[int] = []
    monkeypatch.setattr(answering, "check", lambda size, *_: needed.append(size))
    for at_once in (0, 1):
        reatt(training=replace(SHORT, answer_steps=1, steps=0, at_once=at_once)).fit(people())
    whole, one = needed
    assert one < whole, "one question of four"


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("number", [1e6, math.nan])
def test_a_model_that_has_diverged_is_named(number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ReAttModel.document_keys
    monkeypatch.setattr(ReAttModel, "document_keys", lambda *texts: keys(*texts) * 0 + number)
    with pytest.raises(UsageError, match=r"the model has diverged.*learning_rate"):
        reatt().fit(people())
