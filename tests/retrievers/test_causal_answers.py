"""A causal model behind a retriever: the contract, prompts by hand, answers and shares by the slow way, training."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import triever
from tests.models.causal import save_causal
from tests.retrievers.contract import Contract
from tests.retrievers.test_reatt import ASKED, PEOPLE, TOWNS, UNTRAINED, people, reatt
from tests.retrievers.test_reatt import SMALL as ENCODER
from tests.warm import run
from triever import Dense
from triever.data.store import DocumentStore
from triever.engines.causal_answers import CausalReader, PromptTexts, new_reader
from triever.engines.hits import found_by
from triever.engines.readers import Written
from triever.errors import ArtifactError, UsageError
from triever.evaluation.heads import heads
from triever.learning.causal_answering import CausalCourse
from triever.models.backbones import load_backbone
from triever.models.language_model import LanguageModel, new_language_model
from triever.models.reatt import ANSWER_TOKENS
from triever.retrievers.answerer import Answerer, ReaderTuning
from triever.retrievers.reatt import ReAtt

SMALL = "scratch:causal=true,hidden=32,layers=2,heads=2,vocabulary=400"
NOTHING = ReaderTuning(steps=0)
SHORT = ReaderTuning(steps=6, batch=4, close=3, holdout=0.3, learning_rate=1e-3)


def answerer(training: ReaderTuning = NOTHING, **options: object) -> Answerer:
    given = {"backbone": SMALL, "read_documents": 3} | options
    return Answerer(training=training, **given)  # ty: ignore[invalid-argument-type]


class TestCausalAnswerer(Contract):
    filters_as = "left out"

    def make(self) -> triever.Retriever:
        return answerer()


# Prompts.


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = tmp_path_factory.mktemp("causal")
    return new_language_model(load_backbone(str(save_causal(folder / "llama", positions=160))))


def test_a_prompt_has_the_best_document_last_and_then_the_question(model: LanguageModel) -> None:
    texts = PromptTexts(model, 20, 40)
    documents = [
        triever.Document("a", "the best."),
        triever.Document("b", "the second", "Title"),
        triever.Document("c", ""),
    ]
    tokens = texts.documents(documents)
    prompt = texts.prompt(texts.questions([" who is it? "])[0], [tokens[row] for row in (0, 1, 2)])
    written = model.tokenizer.text(prompt.tokens.tolist())
    assert written == "Title\nthe second\n\nthe best.\n\nQuestion: who is it?\nAnswer:"
    found = [model.tokenizer.text(prompt.tokens[start:end].tolist()) for start, end in prompt.spans]
    assert found == ["the best.", "Title\nthe second", ""]


def test_long_documents_and_questions_are_cut_and_words_around_them_are_not(model: LanguageModel) -> None:
    texts = PromptTexts(model, 8, 5)
    assert texts.documents([triever.Document("a", "which of them " * 9)]).lengths.tolist() == [5]
    long, short = (model.tokenizer.text(texts.questions([text])[0].tolist()) for text in ("which text " * 9, "so"))
    assert long.startswith("\n\nQuestion: which text")
    assert long.endswith("\nAnswer:")
    assert len(long) < 60
    assert short == "\n\nQuestion: so\nAnswer:"


@given(st.lists(st.integers(0, 90), min_size=1, max_size=6), st.integers(1, 20), st.sampled_from([2, 32, 64]))
def test_a_prompt_never_is_longer_than_what_the_model_reads(
    model: LanguageModel, lengths: list[int], asked: int, answer: int
) -> None:
    texts = PromptTexts(model, 20, 90)
    question = np.full(asked, 7)
    documents = [np.full(length, 8 + number) for number, length in enumerate(lengths)]
    prompt = texts.prompt(question, documents, answer)
    assert len(prompt.tokens) + answer <= 160
    assert prompt.tokens[-asked:].tolist() == [7] * asked
    kept = [number for number, (start, end) in enumerate(prompt.spans) if end > start]
    there = [number for number, length in enumerate(lengths) if length]
    assert kept == there[: len(kept)], "the worst are left out, and no other"
    for number in kept[1:]:
        start, end = prompt.spans[number]
        assert prompt.tokens[start:end].tolist() == documents[number].tolist()
    if len(kept) < len(there):
        needed = len(prompt.tokens) + answer + 1 + lengths[there[len(kept)]]
        assert needed > 160 or not kept


# Answers.


@pytest.fixture(scope="module")
def fitted() -> Answerer:
    fitted = answerer().fit(people())
    with torch.no_grad():
        for weight in fitted.engine.reader.texts.model.parameters():  # what begins small hides mistakes
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * 0.2)
    return fitted


@torch.inference_mode()
def test_answers_and_shares_are_those_of_one_prompt_read_slowly(fitted: Answerer) -> None:
    """The oracle: a loop without a cache, and attention that gives its weights."""
    reader: CausalReader = fitted.engine.reader
    model: Any = reader.texts.model
    slow = model.backbone.causal_module()
    slow.load_state_dict(model.module.state_dict())
    slow.set_attn_implementation("eager")
    store = DocumentStore.of(PEOPLE)
    hits = fitted.search_many(ASKED, 3)
    rows = [[store.row(hit.id) for hit in result] for result in hits]
    found = reader.answers([query.text for query in ASKED], rows, [[0.0] * len(row) for row in rows])
    for query, chosen, answer in zip(ASKED, rows, found, strict=True):
        prompt = reader.texts.prompt(reader.texts.questions([query.text])[0], [reader.documents[row] for row in chosen])
        begun = slow(input_ids=torch.tensor([prompt.tokens.tolist()]), output_attentions=True)
        weights = begun.attentions[-1][0, :, -1].mean(0)
        sums = np.array([float(weights[start:end].sum()) for start, end in prompt.spans])
        assert answer.shares == pytest.approx((sums / sums.sum()).tolist(), abs=1e-4)
        tokens, logprob = prompt.tokens.tolist(), 0.0
        for _ in range(ANSWER_TOKENS):
            scores = slow(input_ids=torch.tensor([tokens])).logits[0, -1].log_softmax(0)
            logprob += float(scores.max())
            tokens.append(int(scores.argmax()))
            if tokens[-1] == model.end:
                break
        assert answer.tokens == [token for token in tokens[len(prompt.tokens) :] if token != model.end]
        assert answer.logprob == pytest.approx(logprob, rel=1e-3, abs=1e-3)


def test_one_question_is_answered_as_among_many(fitted: Answerer) -> None:
    for query, answer in zip(ASKED, fitted.ask_many(ASKED), strict=True):
        alone = fitted.ask(query)
        assert alone.written == answer.written
        assert alone.probability == pytest.approx(answer.probability, rel=1e-2, abs=1e-30)
        assert sum(source.share for source in answer.sources) == pytest.approx(1, abs=1e-4)
        assert all(source.matches == () for source in answer.sources)
    assert fitted.ask_many([]) == []


def test_an_answer_is_written_as_the_document_writes_it(fitted: Answerer) -> None:
    reader: CausalReader = fitted.engine.reader
    tokens = reader.texts.model.tokenizer.ids([" Aachen"], special=False)[0]
    written = Written(tokens, -0.1, (0.4, 0.6))
    texts = [document.full_text for document in PEOPLE]
    assert reader.text(written, [1, 0], [texts[1], texts[0]]) == "Aachen"


def test_without_documents_nothing_is_known(fitted: Answerer) -> None:
    assert fitted.ask("zzz qqq").probability == 0.0


def test_saved_and_opened_it_answers_the_same(fitted: Answerer, tmp_path: Path) -> None:
    fitted.save(tmp_path / "m")
    again = triever.load(tmp_path / "m")
    assert isinstance(again, Answerer)
    assert again.ask_many(ASKED) == fitted.ask_many(ASKED)
    begun = answerer(start=str(tmp_path / "m")).fit(people())
    assert begun.ask_many(ASKED) == fitted.ask_many(ASKED)
    with pytest.raises(UsageError, match="is a causal model, whose attention cannot find documents"):
        ReAtt(start=str(tmp_path / "m"), training=UNTRAINED).fit(people())
    with pytest.raises(UsageError, match="no attention that finds documents"):
        heads(again, people(), "test")


def test_a_model_of_others_sizes_is_refused(fitted: Answerer, tmp_path: Path) -> None:
    fitted.save(tmp_path / "m")
    from tests.artifact_fuzz import read_manifest, resign

    name = read_manifest(tmp_path / "m")["files"]["reader_backbone"]["file"]
    state = json.loads((tmp_path / "m" / name).read_text(encoding="utf-8"))
    state["config"]["num_hidden_layers"] = 1
    resign(tmp_path / "m", "reader_backbone", json.dumps(state).encode())
    with pytest.raises(ArtifactError, match="do not fit the model"):
        triever.load(tmp_path / "m")


def test_asking_on_the_command_line(fitted: Answerer, tmp_path: Path) -> None:
    fitted.save(tmp_path / "m")
    done = run(["ask", "m", "Where does Anna live?", "--json"], tmp_path, dict(os.environ))
    told = json.loads(done.stdout)
    assert len(told["sources"]) == 3
    assert math.isclose(sum(source["share"] for source in told["sources"]), 1, abs_tol=1e-3)
    assert told["written"] == fitted.ask("Where does Anna live?").written


def test_it_may_read_what_a_saved_reatt_finds(tmp_path: Path) -> None:
    first = reatt().fit(people())
    first.save(tmp_path / "one")
    both = triever.config.build(
        Answerer, {"first": str(tmp_path / "one"), "backbone": SMALL, "read_documents": 2, "training": {"steps": 0}}
    ).fit(people())
    assert both.search_many(ASKED, 4) == first.search_many(ASKED, 4)
    both.save(tmp_path / "both")
    again = triever.load(tmp_path / "both")
    assert isinstance(again, Answerer)
    assert again.ask_many(ASKED) == both.ask_many(ASKED)
    assert len(again.ask(ASKED[0]).sources) == 2


# Training.


def test_training_changes_the_model_and_fits_from_when_on_it_knows(tmp_path: Path) -> None:
    trained = answerer(SHORT).fit(people(), work=tmp_path / "work")
    told = trained.engine.made_from()
    assert told["trained steps"] == 6
    assert "held-out likelihood" in told
    assert 0 <= told["exact match of held-out questions"] <= 1
    untouched = answerer().fit(people()).engine.reader.texts.model.state_dict()
    learned = trained.engine.reader.texts.model.state_dict()
    assert any(not torch.equal(learned[name], weight) for name, weight in untouched.items())
    again = answerer(SHORT).fit(people(), work=tmp_path / "work")
    assert again.ask(ASKED[0]) == trained.ask(ASKED[0])


@pytest.mark.parametrize("task", ["relevance", "masked"])
def test_every_task_trains(task: str) -> None:
    training = replace(SHORT, task=task, sentences=10, steps=2, rounds=2, at_once=2)
    assert answerer(training).fit(people()).engine.made_from()["trained steps"] == 2


def test_a_batch_is_prompts_of_close_documents_with_an_answer_and_its_end() -> None:
    trained = answerer(SHORT).fit(people())
    reader: CausalReader = trained.engine.reader
    learned, judged = answerer(SHORT).lesson(people(), DocumentStore.of(PEOPLE))
    course = CausalCourse(reader, learned, judged, SHORT, found_by(trained.engine.first, DocumentStore.of(PEOPLE)))
    batches = course.batches(learned, course.close, 0)
    batch, tokenizer = batches[0], reader.texts.model.tokenizer
    asked = {query.text.casefold(): query.answers[0].casefold() for query in learned.queries}
    for ids, mask, length in zip(batch["ids"], batch["mask"], batch["length"], strict=True):
        row = ids[mask.bool()].tolist()
        assert row[-1] == reader.texts.model.end
        prompt, answer = (tokenizer.text(part) for part in (row[: -int(length)], row[-int(length) :]))
        question = prompt.split("question:")[1].split("\n")[0].strip()
        assert asked[question] == answer.strip()
        assert prompt.count(" lives in ") <= 3
        named = question.split()[2]
        assert named in prompt.split("question:")[0].strip().split("\n")[-1], "what BM25 finds first stands last"


@pytest.mark.long
def test_a_causal_reader_learns_to_answer_from_the_right_document() -> None:
    """One document a question and many steps: a model that reads can repeat what stands there."""
    training = ReaderTuning(steps=300, batch=8, close=1, holdout=0.0, learning_rate=3e-3)
    trained = answerer(training, read_documents=1).fit(people())
    answers = [answer.written for answer in trained.ask_many(ASKED)]
    assert sum(text == town for text, town in zip(answers, TOWNS, strict=True)) >= 6


# Mistakes.


def test_mistakes_are_named(model: LanguageModel) -> None:
    with pytest.raises(UsageError, match=r"training.marginal is not there for a causal backbone"):
        answerer(replace(NOTHING, marginal=True), first=Dense(backbone=ENCODER)).fit(people())
    with pytest.raises(UsageError, match=r"is a causal model, whose attention .* triever fit answerer"):
        ReAtt(backbone=SMALL, training=UNTRAINED).fit(people())
    with pytest.raises(UsageError, match=r"reads 80 tokens, but a question and an answer may have"):
        answerer(backbone=f"{SMALL},positions=80").fit(people())
    with pytest.raises(UsageError, match=r"lower training.answer_length"):
        answerer(replace(SHORT, answer_length=500)).fit(people())
    with pytest.raises(UsageError, match=r"reads 160 tokens"):
        new_reader(model, 140, 20, PEOPLE)
