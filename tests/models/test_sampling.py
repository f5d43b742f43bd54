"""Sampling against the slow way: each continuation by itself, the whole text read anew for every token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.models.causal import save_causal
from triever.models.backbones import Backbone, load_backbone
from triever.models.sampling import Sampling, beginning, containing, continued, drawn, framed, left_padded, read
from triever.models.tokens import Tokens

KINDS = ["llama", "gpt2"]  # positions by turning, and by a table


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Backbone]:
    place = tmp_path_factory.mktemp("causal")
    return {kind: load_backbone(str(save_causal(place / kind, kind))) for kind in KINDS}


@pytest.fixture(params=KINDS)
def backbone(request: pytest.FixtureRequest, backbones: dict[str, Backbone]) -> Backbone:
    return backbones[request.param]


def prompts_of(backbone: Backbone, texts: list[str]) -> Tokens:
    return Tokens.of(texts, framed(backbone.tokenizer, "Text: ", "\nQuestion:"), 200)


TEXTS = ["a", "the text, which is the longest of them all by far", "", "say it", "the text"]


@torch.inference_mode()
def slowly(model: Any, prompt: list[int], chance: np.ndarray, how: Sampling) -> list[int]:
    written: list[int] = []
    for number in chance:
        scores = model(input_ids=torch.tensor([[*prompt, *written]])).logits[:, -1]
        written.append(int(drawn(scores, torch.tensor([number]), how)))
        if written[-1] in how.ends:
            break
    return written


@pytest.mark.parametrize("batch", [3, 64])
def test_every_continuation_is_the_one_that_it_would_be_alone(backbone: Backbone, batch: int) -> None:
    model = backbone.causal_module()
    ends = frozenset(range(0, backbone.tokenizer.size, 9))  # so that they end here and there
    how = Sampling(ends, limit=12, top=20, temperature=1.5, batch=batch)
    prompts = prompts_of(backbone, TEXTS)
    chance = np.random.default_rng(0).random((len(TEXTS), 4, 12), np.float32)
    found = continued(model, prompts, chance, how, backbone.tokenizer.pad)
    expected = [
        [slowly(model, prompts[row].tolist(), numbers, how) for numbers in some] for row, some in enumerate(chance)
    ]
    assert found == expected
    lengths = {len(tokens) for some in found for tokens in some}
    assert min(lengths) < 4 < 12 == max(lengths), "some end early, some never"


def test_padding_does_not_change_what_a_model_says(backbone: Backbone) -> None:
    model = backbone.causal_module()
    prompts = prompts_of(backbone, TEXTS)
    with torch.inference_mode():
        texts = left_padded(*prompts.all_padded(backbone.tokenizer.pad))
        together = read(model, *texts, 1).logits[:, -1]
        for row, scores in enumerate(together):
            alone = model(input_ids=torch.tensor([prompts[row].tolist()])).logits[0, -1]
            torch.testing.assert_close(scores, alone, atol=1e-4, rtol=1e-4)


def test_what_was_written_follows_from_the_numbers_whatever_else_is_in_the_batch(backbone: Backbone) -> None:
    model = backbone.causal_module()
    how = Sampling(frozenset({0}), limit=8)
    prompts = prompts_of(backbone, TEXTS)
    chance = np.random.default_rng(1).random((len(TEXTS), 2, 8), np.float32)
    all_of_them = continued(model, prompts, chance, how, 0)
    for row in range(len(TEXTS)):
        assert continued(model, prompts.take([row]), chance[[row]], how, 0) == [all_of_them[row]]


class Plain(torch.nn.Module):
    """A model that always scores every place, as some do."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, past_key_values: Any, use_cache: Any):
        more = {"past_key_values": past_key_values, "use_cache": use_cache}
        return self.inner(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, **more)


def test_models_that_score_every_place_write_the_same(backbones: dict[str, Backbone]) -> None:
    backbone = backbones["llama"]
    model = backbone.causal_module()
    prompts, how = prompts_of(backbone, TEXTS), Sampling(frozenset({0}), limit=5)
    chance = np.random.default_rng(2).random((len(TEXTS), 3, 5), np.float32)
    assert continued(Plain(model), prompts, chance, how, 0) == continued(model, prompts, chance, how, 0)


def test_what_was_read_is_copied_for_each_batch_and_the_model_is_not(backbones: dict[str, Backbone]) -> None:
    class Uncopied(Plain):
        def __deepcopy__(self, _memo: object) -> Any:
            raise AssertionError("a model takes gigabytes")

    model, prompts = backbones["llama"].causal_module(), prompts_of(backbones["llama"], TEXTS)
    chance = np.random.default_rng(3).random((len(TEXTS), 3, 5), np.float32)
    small, whole = (Sampling(frozenset({0}), limit=5, batch=batch) for batch in (2, 64))
    assert continued(Uncopied(model), prompts, chance, small, 0) == continued(model, prompts, chance, whole, 0)


@pytest.mark.parametrize(("top", "temperature"), [(1, 1.0), (3, 1.0), (3, 0.3), (5, 2.5), (50, 1.0)])
def test_tokens_are_drawn_as_often_as_they_are_likely(top: int, temperature: float) -> None:
    scores = torch.tensor([0.3, 2.0, -1.0, 1.5, 0.9])
    count = 20_000
    grid = (torch.arange(count) + 0.5) / count  # every number as often as any other
    how = Sampling(frozenset(), 1, temperature, top)
    tokens = drawn(scores.expand(count, -1), grid, how)
    shares = np.bincount(tokens.numpy(), minlength=5) / count
    best = np.argsort(-scores.numpy())[:top]
    expected = np.zeros(5)
    expected[best] = np.exp(scores.numpy()[best] / temperature)
    np.testing.assert_allclose(shares, expected / expected.sum(), atol=2e-4)


def test_the_largest_number_still_draws_a_token() -> None:
    scores = torch.randn(4, 30)
    almost_one = torch.full((4,), float(np.nextafter(np.float32(1), np.float32(0))))
    tokens = drawn(scores, almost_one, Sampling(frozenset(), 1, top=7))
    assert torch.equal(tokens, scores.topk(7).indices[:, -1])


rows = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=5)


@given(rows)
def test_texts_end_together(some: list[list[int]]) -> None:
    ids, mask = left_padded(*Tokens.from_lists(some).all_padded(9))
    longest = max(map(len, some))
    assert ids.tolist() == [[9] * (longest - len(row)) + row for row in some]
    assert mask.tolist() == [[0] * (longest - len(row)) + [1] * len(row) for row in some]


@given(rows)
def test_a_common_beginning_leaves_a_token_of_every_text(some: list[list[int]]) -> None:
    found = beginning(Tokens.from_lists(some))
    assert all(row[:found] == some[0][:found] and len(row) > found for row in some)
    longer = [row[: found + 1] for row in some]
    if len(some) > 1:
        assert any(row != longer[0] for row in longer) or min(map(len, some)) == found + 1


def test_pieces_with_a_mark_in_them(backbones: dict[str, Backbone]) -> None:
    tokenizer = backbones["llama"].tokenizer
    found = containing(tokenizer, ("\n", "?"))
    assert found == {number for number in range(tokenizer.size) if {*tokenizer.text([number])} & {*"\n?"}}
    assert len(found) >= 2
