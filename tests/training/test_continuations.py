"""Answers that a causal model learns: the loss of transformers, and the same gradients some prompts at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.models.causal import save_causal
from triever.models.backbones import load_backbone
from triever.models.language_model import LanguageModel, new_language_model
from triever.training.continuations import AnswerLoss, continuation_batch

PROMPTS = [[5, 6, 7, 8], [9], [10, 11], [12, 13, 14], [15, 16]]
ANSWERS = [[20, 21, 0], [22, 0], [0], [23, 24, 25, 0], [26, 0]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder: Path = tmp_path_factory.mktemp("causal")
    return new_language_model(load_backbone(str(save_causal(folder / "llama"))))


def gradients(model: LanguageModel, loss: AnswerLoss) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    value = loss(model, continuation_batch(PROMPTS, ANSWERS, 1))["answer"]
    value.backward()
    return float(value.detach()), {
        name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None
    }


def test_only_answers_are_learned_and_each_counts_as_much(model: LanguageModel) -> None:
    expected = []
    for prompt, answer in zip(PROMPTS, ANSWERS, strict=True):
        labels = torch.tensor([[-100] * len(prompt) + answer])
        expected.append(float(model.module(input_ids=torch.tensor([prompt + answer]), labels=labels).loss.detach()))
    loss, _ = gradients(model, AnswerLoss())
    assert loss == pytest.approx(sum(expected) / len(expected), rel=1e-4)


def test_some_prompts_at_a_time_give_the_same_gradients(model: LanguageModel) -> None:
    whole, expected = gradients(model, AnswerLoss())
    pieces, found = gradients(model, AnswerLoss(at_once=2))
    assert pieces == pytest.approx(whole, rel=1e-5)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        assert float(AnswerLoss(at_once=2)(model, continuation_batch(PROMPTS, ANSWERS, 1))["answer"]) == pytest.approx(
            whole
        )
