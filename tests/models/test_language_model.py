"""Causal models that continue prompts: against a loop without a cache, and against attention that gives its weights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from tests.models.causal import save_causal
from tests.models.whole_words import followers
from triever.errors import UsageError
from triever.models import last_attention, sampling
from triever.models.backbones import Backbone, load_backbone
from triever.models.language_model import LanguageModel, end_of, new_language_model
from triever.models.sampling import left_padded
from triever.models.tokens import TextTokenizer, Tokens

KINDS = ["llama", "qwen2", "gpt2"]
TEXTS = ["a", "the text, which is the longest of them all by far", "say it", "the text"]
LIMIT = 10


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Backbone]:
    place = tmp_path_factory.mktemp("causal")
    return {kind: load_backbone(str(save_causal(place / kind, kind))) for kind in KINDS}


@pytest.fixture(params=KINDS)
def backbone(request: pytest.FixtureRequest, backbones: dict[str, Backbone]) -> Backbone:
    return backbones[request.param]


def prompts_of(backbone: Backbone) -> Tokens:
    return Tokens.from_lists(backbone.tokenizer.ids(TEXTS, special=False))


def padded(backbone: Backbone) -> tuple[Tensor, Tensor]:
    return left_padded(*prompts_of(backbone).all_padded(backbone.tokenizer.pad))


@torch.inference_mode()
def slowly(module: Any, prompt: list[int], end: int) -> tuple[list[int], float]:
    """The likeliest tokens without any cache, and their log-probability as the loss of transformers has it."""
    written: list[int] = []
    while len(written) < LIMIT and end not in written:
        written.append(int(module(input_ids=torch.tensor([[*prompt, *written]])).logits[0, -1].argmax()))
    labels = torch.tensor([[-100] * len(prompt) + written])
    loss = module(input_ids=torch.tensor([[*prompt, *written]]), labels=labels).loss
    return [token for token in written if token != end], -float(loss) * len(written)


@pytest.mark.parametrize("ends", ["as it does", "soon"])
def test_what_is_written_is_what_a_loop_without_a_cache_writes(backbone: Backbone, ends: str) -> None:
    model, plain = new_language_model(backbone), backbone.causal_module()
    if ends == "soon":  # some of them end, at different places, and are carried no further
        written = [slowly(plain, row, model.end)[0] for row in backbone.tokenizer.ids(TEXTS, special=False)]
        model.end = max((token for row in written for token in row), key=[*written[1], *written[3]].count)
    found = model.continued(*padded(backbone), LIMIT)
    expected = [slowly(plain, prompts_of(backbone)[row].tolist(), model.end) for row in range(len(TEXTS))]
    assert found.tokens == [tokens for tokens, _ in expected]
    assert found.logprobs.tolist() == pytest.approx([logprob for _, logprob in expected], rel=1e-3, abs=1e-4)
    assert ends != "soon" or any(len(tokens) < LIMIT for tokens in found.tokens)


@torch.inference_mode()
def slowly_standing(module: Any, prompt: list[int], end: int, tokenizer: TextTokenizer) -> list[int]:
    """The likeliest tokens without any cache, of those that stand in the prompt behind each other as whole words."""
    written: list[int] = []
    while len(written) < LIMIT:
        scores = module(input_ids=torch.tensor([[*prompt, *written]])).logits[0, -1]
        may = [end if token is None else token for token in followers(written, [prompt], tokenizer)]
        best = max(sorted(may), key=lambda token: float(scores[token]))
        if best == end:
            break
        written.append(best)
    return written


def test_word_for_word_only_what_stands_in_a_text_is_written(backbone: Backbone) -> None:
    model, plain = new_language_model(backbone), backbone.causal_module()
    ids, mask = padded(backbone)
    found = model.continued(ids, mask, LIMIT, mask.bool())
    rows = [prompts_of(backbone)[row].tolist() for row in range(len(TEXTS))]
    assert found.tokens == [slowly_standing(plain, row, model.end, model.tokenizer) for row in rows]
    assert found.tokens != model.continued(ids, mask, LIMIT).tokens
    nothing = model.continued(ids, mask, LIMIT, torch.zeros_like(mask, dtype=torch.bool))
    assert nothing.tokens == [[] for _ in TEXTS]


@torch.inference_mode()
def test_attention_is_that_of_the_last_layer_where_weights_are_given(backbone: Backbone) -> None:
    model, theirs = new_language_model(backbone), backbone.causal_module()
    theirs.set_attn_implementation("eager")  # ty: ignore[call-non-callable]
    attention = model.continued(*padded(backbone), 1).attention
    assert attention.sum(1).tolist() == pytest.approx([1.0] * len(TEXTS), abs=1e-5)
    for row, weights in enumerate(attention):
        prompt = prompts_of(backbone)[row].tolist()
        alone = theirs(input_ids=torch.tensor([prompt]), output_attentions=True).attentions[-1][0, :, -1].mean(0)
        torch.testing.assert_close(weights[-len(prompt) :], alone, atol=1e-5, rtol=1e-4)
        assert not weights[: -len(prompt)].any()


@torch.inference_mode()
def test_padding_on_the_left_gives_what_attention_with_weights_gives(backbone: Backbone) -> None:
    ids, mask = padded(backbone)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    theirs = backbone.causal_module()
    theirs.set_attn_implementation("eager")  # ty: ignore[call-non-callable]
    expected = theirs(input_ids=ids, attention_mask=mask, position_ids=positions, output_attentions=True)
    model = LanguageModel(backbone, backbone.causal_module())
    with last_attention.noticed() as seen:
        scores = sampling.step(model.module, ids, mask).scores
    assert seen.latest is not None
    torch.testing.assert_close(seen.latest.weights(), expected.attentions[-1][:, :, -1].mean(1), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(scores, expected.logits[:, -1], atol=1e-4, rtol=1e-4)


def test_attention_is_not_rounded_where_a_model_reads_in_half_precision() -> None:
    chance = torch.Generator().manual_seed(0)
    query, keys = (
        torch.randn(2, 4, 8, generator=chance).bfloat16(),
        torch.randn(2, 2, 6, 8, generator=chance).bfloat16(),
    )
    added = torch.zeros(2, 1, 6).masked_fill(torch.arange(6) < 2, -torch.inf)
    with torch.autocast("cpu", torch.bfloat16):
        allowed = last_attention.LastToken(query, keys, torch.arange(6).expand(2, 1, 6) >= 2, 0.5).weights()
    assert allowed.dtype == torch.float32
    torch.testing.assert_close(allowed, last_attention.LastToken(query, keys, added, 0.5).weights())
    scores = [query[:, head].float() @ keys[:, head // 2].float().transpose(1, 2) for head in range(4)]
    each = [(torch.stack([of[row, row] for row in range(2)]) * 0.5 + added[:, 0]).softmax(1) for of in scores]
    torch.testing.assert_close(allowed, torch.stack(each).mean(0))


def test_threads_that_share_a_model_see_their_own_attention(backbones: dict[str, Backbone]) -> None:
    backbone = backbones["llama"]
    model = new_language_model(backbone)
    texts = [torch.tensor([prompts_of(backbone)[row].tolist()]) for row in range(len(TEXTS))] * 8
    alone = [model.continued(ids, torch.ones_like(ids), 2).attention for ids in texts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda ids: model.continued(ids, torch.ones_like(ids), 2).attention, texts))
    assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(alone, together, strict=True))


def test_a_model_that_does_not_say_what_it_looks_at_is_refused(backbones: dict[str, Backbone]) -> None:
    theirs = transformers.BloomConfig(vocab_size=backbones["llama"].tokenizer.size, hidden_size=32, n_layer=1, n_head=2)
    config = transformers.BloomForCausalLM(theirs).config.to_dict()
    bloom = Backbone("bloom", "a test", "none", backbones["llama"].tokenizer, config)
    with pytest.raises(UsageError, match="bloom does not say what it looks at"):
        new_language_model(bloom)


def test_a_scratch_backbone_may_be_causal() -> None:
    backbone = load_backbone("scratch:causal=true,hidden=32,layers=1,heads=2,vocabulary=300", texts=["some words"])
    assert backbone.causal
    assert backbone.hidden == 32
    assert new_language_model(backbone, 3).end == end_of(backbone)
    again = new_language_model(backbone, 3).state_dict()
    assert all(torch.equal(part, again[name]) for name, part in new_language_model(backbone, 3).state_dict().items())
    with pytest.raises(UsageError, match="without layers"):
        load_backbone("scratch:causal=true,layers=0", texts=["some words"])
