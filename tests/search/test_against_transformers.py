"""Search with real models against transformers: its forward pass over every docid, and its `generate`."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.models import causal
from triever.models.cross_decoder import Seq2SeqGenerator
from triever.models.hub import HubSeq2SeqGenerator
from triever.models.t5 import from_transformers
from triever.search.beam import BeamOptions, beam
from triever.search.exact import exact
from triever.search.hits import documents

STOP, VOCABULARY = 1, 40
QUERIES = ["5 6 7 8", "9 10", "11 12 13 14 15 16"]


class Digits:
    """A tokenizer for texts that are numbers already."""

    def __call__(self, texts: list[str], padding_side: str = "right", **_: Any) -> dict[str, torch.Tensor]:
        rows = [[int(word) for word in text.split()] for text in texts]
        longest = max(map(len, rows))
        fill = [[0] * (longest - len(row)) for row in rows]
        left = padding_side == "left"
        ids = [gap + row if left else row + gap for row, gap in zip(rows, fill, strict=True)]
        mask = [
            [0] * len(gap) + [1] * len(row) if left else [1] * len(row) + [0] * len(gap)
            for row, gap in zip(rows, fill, strict=True)
        ]
        return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def docids(count: int, seed: int = 0) -> list[tuple[tuple[int, ...], int]]:
    """Of different lengths, some the beginnings of others but for the stop symbol."""
    chance = random.Random(seed)
    found = {tuple(chance.randrange(2, 6) for _ in range(chance.randrange(1, 5))) for _ in range(count)}
    return [((*docid, STOP), number) for number, docid in enumerate(sorted(found))]


@pytest.fixture(scope="module")
def t5() -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=VOCABULARY, d_model=24, d_kv=8, num_heads=3, d_ff=32, num_layers=2, decoder_start_token_id=0
    )
    model = T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        model.shared.weight.mul_(3)  # else every symbol is as likely as any other
    return model


@pytest.fixture(scope="module")
def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=3
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(30)
    return model


Scores = Callable[[str, tuple[int, ...]], torch.Tensor]


def t5_scores(model: T5ForConditionalGeneration) -> Scores:
    @functools.cache
    def scores(query: str, docid: tuple[int, ...]) -> torch.Tensor:
        batch = Digits()([query])
        return model(**batch, decoder_input_ids=torch.tensor([[0, *docid[:-1]]])).logits[0]

    return scores


def llama_scores(model: LlamaForCausalLM) -> Scores:
    @functools.cache
    def scores(query: str, docid: tuple[int, ...]) -> torch.Tensor:
        ids = Digits()([query])["input_ids"]
        whole = torch.cat([ids, torch.tensor([docid[:-1]], dtype=torch.long)], 1)
        return model(input_ids=whole).logits[0, ids.shape[1] - 1 :]

    return scores


@torch.inference_mode()
def enumerated(scores: Scores, query: str, pairs: list, normalisation: str) -> dict[int, float]:
    """Every document's log-probability, a whole forward pass for each."""
    found = {}
    for docid, number in pairs:
        logits = scores(query, docid)
        total = 0.0
        for depth, symbol in enumerate(docid):
            allowed = {other[depth] for other, _ in pairs if other[:depth] == docid[:depth]}
            over = logits[depth, sorted(allowed)] if normalisation == "trie" else logits[depth]
            total += float(logits[depth, symbol] - over.logsumexp(0))
        found[number] = total
    return found


@pytest.fixture(scope="module")
def systems(t5: T5ForConditionalGeneration, llama: LlamaForCausalLM) -> dict[str, tuple[Any, Scores]]:
    def tokenise(texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        batch = Digits()(texts)
        return batch["input_ids"], batch["attention_mask"]

    of_t5 = t5_scores(t5)
    return {
        "our t5": (Seq2SeqGenerator(from_transformers(t5), tokenise), of_t5),
        "any seq2seq": (HubSeq2SeqGenerator(t5, Digits()), of_t5),
        "any causal": (causal.CausalGenerator(causal.from_transformers(llama), tokenise), llama_scores(llama)),
    }


@pytest.mark.parametrize("normalisation", ["trie", "vocabulary"])
@pytest.mark.parametrize("finish", [True, False])
@pytest.mark.parametrize("name", ["our t5", "any seq2seq", "any causal"])
def test_a_wide_beam_equals_enumeration(systems: Any, name: str, finish: bool, normalisation: str) -> None:
    generator, scores = systems[name]
    pairs = docids(30)
    walk = Walk(Trie.of(pairs))
    options = BeamOptions(width=64, normalisation=normalisation, finish=finish)
    frontier = beam(generator, *generator.prefill(QUERIES), walk, options)
    for query, found in zip(QUERIES, documents(walk, frontier, 100), strict=True):
        assert dict(found) == pytest.approx(enumerated(scores, query, pairs, normalisation), abs=1e-4)


@pytest.mark.parametrize("normalisation", ["trie", "vocabulary"])
@pytest.mark.parametrize("name", ["our t5", "any causal"])
def test_exact_equals_enumeration(systems: Any, name: str, normalisation: str) -> None:
    generator, scores = systems[name]
    pairs = docids(40, seed=1)
    walk = Walk(Trie.of(pairs))
    for query, result in zip(
        QUERIES, exact(generator, *generator.prefill(QUERIES), walk, 5, normalisation=normalisation), strict=True
    ):
        truth = enumerated(scores, query, pairs, normalisation)
        best = sorted(truth.items(), key=lambda one: -one[1])[:5]
        assert result.certified
        assert [number for number, _ in result.documents] == [number for number, _ in best]
        assert [mass for _, mass in result.documents] == pytest.approx([mass for _, mass in best], abs=1e-4)


def generated(model: Any, query: str, pairs: list, width: int, normalisation: str) -> list[tuple[int, float]]:
    """The same search by transformers' own `generate`, its callback over a dict of prefixes."""
    following: dict[tuple[int, ...], set[int]] = {}
    for docid, _ in pairs:
        for depth in range(len(docid)):
            following.setdefault(docid[:depth], set()).add(docid[depth])
    out = model.generate(
        **Digits()([query]),
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=10,
        length_penalty=0.0,
        early_stopping=False,
        prefix_allowed_tokens_fn=lambda _batch, ids: sorted(following.get(tuple(ids[1:].tolist()), {STOP})),
        renormalize_logits=normalisation == "trie",
        return_dict_in_generate=True,
        output_scores=True,
        do_sample=False,
    )
    numbers = dict(pairs)
    rows = [tuple(one for one in row[1:].tolist() if one != 0) for row in out.sequences]
    return [(numbers[row], score) for row, score in zip(rows, out.sequences_scores.tolist(), strict=True)]


@pytest.mark.parametrize("normalisation", ["trie", "vocabulary"])
@pytest.mark.parametrize("width", [3, 6])
def test_a_beam_equals_generate(t5: Any, width: int, normalisation: str) -> None:
    """On docids of one length, where `generate` is right: its pool and ours see the same candidates."""
    chance = random.Random(3)
    bodies = sorted({tuple(chance.randrange(2, 8) for _ in range(4)) for _ in range(60)})
    pairs = [((*body, STOP), number) for number, body in enumerate(bodies)]
    generator = HubSeq2SeqGenerator(t5, Digits())
    walk = Walk(Trie.of(pairs))
    options = BeamOptions(width=width, normalisation=normalisation, finish=False)
    frontier = beam(generator, *generator.prefill(QUERIES), walk, options)
    for query, found in zip(QUERIES, documents(walk, frontier, width), strict=True):
        expected = generated(t5, query, pairs, width, normalisation)
        assert [number for number, _ in found] == [number for number, _ in expected]
        assert [mass for _, mass in found] == pytest.approx([score for _, score in expected], abs=1e-4)
