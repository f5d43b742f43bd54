"""Prefixes that share what was read, judged by transformers' own pass over each text and all that follows it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.models.bloom import BloomConfig, BloomForCausalLM

from triever.models import causal
from triever.models.causal import CausalDecoder, CausalGenerator, CopyingGenerator
from triever.models.prompt_tree import rows_of

VOCABULARY = 30
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
TEXTS = [[5, 6, 7, 8], [9], [11, 12, 13, 14, 15, 16, 17]]


@functools.cache
def language_model(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4, n_positions=64))
    elif kind == "bloom":
        model = BloomForCausalLM(BloomConfig(vocab_size=VOCABULARY, hidden_size=16, n_layer=2, n_head=4))
    else:
        config, form = {
            "llama": (LlamaConfig(**SIZES), LlamaForCausalLM),
            "qwen2": (Qwen2Config(**SIZES), Qwen2ForCausalLM),
            "mistral": (MistralConfig(**SIZES, sliding_window=12), MistralForCausalLM),
        }[kind]
        model = form(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


@functools.cache
def decoder(kind: str) -> CausalDecoder:
    return causal.from_transformers(language_model(kind))


def tokenise(texts: list[str]) -> tuple[Tensor, Tensor]:
    rows = [[int(word) for word in text.split()] for text in texts]
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    mask = torch.tensor([[*[1] * len(row), *[0] * (longest - len(row))] for row in rows])
    return ids, mask


def prompts(texts: list[list[int]]) -> list[str]:
    return [" ".join(map(str, text)) for text in texts]


@torch.inference_mode()
def scores(kind: str, whole: list[int], count: int) -> Tensor:
    """transformers' own scores of what follows each of the last `count` tokens."""
    return language_model(kind)(input_ids=torch.tensor([whole])).logits[0, -count:]


@st.composite
def growths(draw: st.DrawFn) -> list[tuple[list[int], list[list[int]]]]:
    """Some steps: which prefixes go on, some dropped and some repeated, and by which symbols."""
    steps, rows = [], len(TEXTS)
    for _ in range(draw(st.integers(1, 4))):
        parents = sorted(draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=7)))
        count = draw(st.integers(1, 3))
        symbol = st.lists(st.integers(0, VOCABULARY - 1), min_size=count, max_size=count)
        steps.append((parents, [draw(symbol) for _ in parents]))
        rows = len(parents)
    return steps


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
@settings(max_examples=8, deadline=None)
@given(steps=growths())
def test_prefixes_score_as_transformers_scores_the_text_and_all_that_follows(kind: str, steps: Any) -> None:
    model = decoder(kind)
    sharing, copying = CausalGenerator(model, tokenise), CopyingGenerator(model, tokenise)
    tree, hidden = sharing.prefill(prompts(TEXTS))
    cache, copied = copying.prefill(prompts(TEXTS))
    torch.testing.assert_close(hidden, copied)
    written = [list(text) for text in TEXTS]
    for parents, symbols in steps:
        rows, tokens = torch.tensor(parents), torch.tensor(symbols)
        before = [layer.keys.clone() for layer in tree.past.layers]
        grown, states = sharing.extend(tree, rows, tokens)
        assert all(torch.equal(layer.keys, old) for layer, old in zip(tree.past.layers, before, strict=True))
        tree, (cache, copied) = grown, copying.extend(cache, rows, tokens)
        torch.testing.assert_close(states, copied, atol=1e-4, rtol=1e-4)
        written = [[*written[parent], *added] for parent, added in zip(parents, symbols, strict=True)]
        for row, whole in enumerate(written):
            truth = scores(kind, whole, tokens.shape[1])
            torch.testing.assert_close(sharing.logits(states)[row], truth, atol=1e-4, rtol=1e-4)


def test_a_text_is_held_once_whatever_follows_it_and_what_is_not_followed_is_dropped() -> None:
    generator = CausalGenerator(decoder("llama"), tokenise)
    tree, _ = generator.prefill(prompts([[5, 6, 7, 8]]))
    tree, _ = generator.extend(tree, torch.zeros(20, dtype=torch.long), torch.arange(20)[:, None])
    assert tree.past.layers[0].keys.shape[0] == 1
    assert tree.past.layers[0].keys.shape[2] == 4 + 20
    tree, states = generator.extend(tree, torch.tensor([3]), torch.tensor([[9]]))
    assert tree.past.layers[0].keys.shape[2] == 4 + 1 + 1
    truth = scores("llama", [5, 6, 7, 8, 3, 9], 1)
    torch.testing.assert_close(generator.logits(states)[0], truth, atol=1e-4, rtol=1e-4)


def test_some_of_the_texts_that_were_read_go_on_alone() -> None:
    generator = CausalGenerator(decoder("gpt2"), tokenise)
    tree, _ = generator.prefill(prompts(TEXTS))
    fewer = generator.only(tree, torch.tensor([2, 0]))
    assert rows_of(fewer.past) == 2
    _, states = generator.extend(fewer, torch.tensor([0, 1]), torch.tensor([[1], [2]]))
    for row, whole in enumerate(([*TEXTS[2], 1], [*TEXTS[0], 2])):
        torch.testing.assert_close(generator.logits(states)[row], scores("gpt2", whole, 1), atol=1e-4, rtol=1e-4)


def test_prefixes_side_by_side_may_be_more_than_a_sliding_window_has_room_for() -> None:
    generator = CausalGenerator(decoder("mistral"), tokenise)
    tree, _ = generator.prefill(prompts([[5, 6, 7, 8]]))
    _, states = generator.extend(tree, torch.zeros(20, dtype=torch.long), torch.arange(20)[:, None])
    torch.testing.assert_close(generator.logits(states)[0], scores("mistral", [5, 6, 7, 8, 0], 1), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("kind", "form"), [("llama", CausalGenerator), ("bloom", CopyingGenerator)])
def test_a_model_that_heeds_no_mask_has_a_copy_for_every_prefix(kind: str, form: type) -> None:
    model = decoder(kind)
    generator = model.writing(tokenise)
    assert type(generator) is form
    cache, _ = generator.prefill(prompts(TEXTS))
    _, states = generator.extend(cache, torch.tensor([1, 1]), torch.tensor([[3], [4]]))
    torch.testing.assert_close(generator.logits(states)[1, 0], scores(kind, [*TEXTS[1], 4], 1)[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "form"), [("llama", CausalGenerator), ("gpt2", CausalGenerator), ("bloom", CopyingGenerator)]
)
def test_layers_may_compute_in_bfloat16_and_what_is_scored_stays_in_float32(kind: str, form: type) -> None:
    exact, rounded = form(decoder(kind), tokenise), form(decoder(kind), tokenise, torch.bfloat16)
    (tree, hidden), (fast, near) = exact.prefill(prompts(TEXTS)), rounded.prefill(prompts(TEXTS))
    rows, symbols = torch.tensor([0, 0, 2]), torch.tensor([[3, 4], [5, 6], [7, 8]])
    states, close = exact.extend(tree, rows, symbols)[1], rounded.extend(fast, rows, symbols)[1]
    for whole, other in ((hidden, near), (states, close)):
        assert other.dtype == torch.float32
        assert 0 < float((other - whole).norm()) < 0.05 * float(whole.norm())
