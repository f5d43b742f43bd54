"""Tuning a writer: the likelihood of each question as transformers gives it, one by one, and a loss that falls."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.models.causal import save_causal
from triever.errors import UsageError
from triever.models.backbones import Backbone, load_backbone
from triever.models.sampling import framed
from triever.models.tokens import TextTokenizer, Tokens
from triever.queries.writer_tuning import Examples, QuestionBatches, WriterTuning, likelihood, tune
from triever.training.continuations import log_likelihoods, spaced
from triever.training.pairs import Pairs

DOCUMENTS = ["a text", "which is the longest of them all", "", "say it"]
QUESTIONS = ["what?", "which of them is the longest?", "", "how does the text say it, and who", "so?"]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    return load_backbone(str(save_causal(tmp_path_factory.mktemp("causal") / "llama")))


def asking(backbone: Backbone) -> TextTokenizer:
    made = framed(backbone.tokenizer, "", "")
    made.after = backbone.tokenizer.after
    return made


def pairs_and_prompts(backbone: Backbone) -> tuple[Pairs, Tokens]:
    relevant, start = np.array([0, 1, 3, 2, 3, 1]), np.array([0, 1, 3, 4, 5, 6])
    pairs = Pairs(
        [f"q{number}" for number in range(5)], QUESTIONS, relevant, start, np.array([0.3, 0.9, 0.9, 0.9, 0.1])
    )
    return pairs, Tokens.of(DOCUMENTS, framed(backbone.tokenizer, "", "\nQuestion:"), 100)


def examples(backbone: Backbone) -> Examples:
    pairs, prompts = pairs_and_prompts(backbone)
    tokenizer = asking(backbone)
    return Examples(pairs, Tokens.of(map(spaced, QUESTIONS), tokenizer, 12), prompts, tokenizer.pad)


def test_the_likelihood_of_a_question_is_that_of_its_text_alone(backbone: Backbone) -> None:
    some, model = examples(backbone), backbone.causal_module()
    questions, documents = np.array([0, 1, 2, 3, 1]), np.array([0, 1, 2, 3, 3])
    with torch.inference_mode():
        found = log_likelihoods(model, some.batch(questions, documents))
        for place, (question, document) in enumerate(zip(questions, documents, strict=True)):
            prompt, asked = some.prompts[document].tolist(), some.questions[question].tolist()
            labels = torch.tensor([[-100] * len(prompt) + asked])
            alone = model(input_ids=torch.tensor([prompt + asked]), labels=labels).loss * len(asked)
            assert float(found[place]) == pytest.approx(-float(alone), rel=1e-4)


def test_every_question_ends_with_the_token_that_ends_texts(backbone: Backbone) -> None:
    some = examples(backbone)
    end = backbone.tokenizer.number("<|end|>")
    for row in range(len(some)):
        tokens = some.questions[row].tolist()
        assert tokens.index(end) == len(tokens) - 1
        assert len(tokens) <= 12
    assert len(some.questions[3]) == 12, "a long one is cut, and ends all the same"


def test_a_round_asks_every_question_once_before_any_twice(backbone: Backbone) -> None:
    some = examples(backbone)
    batches = QuestionBatches(WriterTuning(steps=10, batch=2), steps=10, round=0, examples=some)
    assert len(batches) == 10
    order = batches._order.ravel()
    assert [sorted(order[low : low + 5]) for low in range(0, 20, 5)] == [[0, 1, 2, 3, 4]] * 4
    again = QuestionBatches(WriterTuning(steps=10, batch=2), steps=10, round=0, examples=some)
    assert all(torch.equal(batches[3][name], again[3][name]) for name in ("ids", "mask", "length"))
    with pytest.raises(IndexError):
        batches[10]


def test_tuning_makes_questions_likelier_and_keeps_the_best_round(backbone: Backbone, tmp_path: Path) -> None:
    pairs, prompts = pairs_and_prompts(backbone)
    model, some = backbone.causal_module(), examples(backbone)
    with torch.no_grad():
        before = likelihood(model, some, 2)
    options = WriterTuning(steps=12, batch=3, rounds=3, learning_rate=3e-3, holdout=0.5, log_every=1)
    trained = tune(model, pairs, prompts, asking(backbone), 12, options, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    losses = [line["parts"]["question"] for line in lines if "parts" in line]
    assert losses[-1] < 0.8 * losses[0]
    judged = [line["evaluation"]["log-likelihood"] for line in lines if "evaluation" in line]
    assert len(judged) == 4  # before the first round, and after each of three
    assert trained.best["log-likelihood"] == max(judged)
    with torch.no_grad():
        assert likelihood(model, some, 2) > before


def test_holding_out_everything_is_refused(backbone: Backbone) -> None:
    pairs, prompts = pairs_and_prompts(backbone)
    with pytest.raises(UsageError, match="held out"):
        tune(backbone.causal_module(), pairs, prompts, asking(backbone), 12, WriterTuning(steps=1, holdout=0.99999))
