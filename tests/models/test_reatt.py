"""Retrieval as attention, held to the modules of transformers and to plain loops."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.models.test_backbones import needs_minilm
from tests.models.tiny_reatt import (
    DOCUMENTS,
    FORMS,
    QUERY_LENGTH,
    QUESTIONS,
    Tiny,
    answers,
    documents,
    hooked,
    questions,
    texts,
    tiny,
    tokenizer,
)
from tests.models.whole_words import followers
from triever.errors import UsageError
from triever.models import reatt, split_encoder
from triever.models.backbones import load_backbone
from triever.models.bert import COPIED
from triever.models.late_interaction import late_scores
from triever.models.reatt import PairStates, ReAttModel, ReAttShape, new_reatt
from triever.models.split_encoder import joined
from triever.models.tokens import Tokens

CLOSE = {"rtol": 2e-5, "atol": 2e-5}  # transformers norms the states of T5 in single precision
every_form = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(autouse=True)
def no_gradients() -> Any:
    """Here nothing learns; gradients have a file of their own."""
    with torch.no_grad():
        yield


def by_head(projected: Tensor, heads: int) -> Tensor:
    rows, length, _ = projected.shape
    return projected.view(rows, length, heads, -1).transpose(1, 2)


# Retrieval attention


@every_form
@pytest.mark.parametrize("apart", [0, 1, 2])
def test_queries_and_keys_are_those_in_the_modules_of_transformers(form: str, apart: int) -> None:
    one = tiny(form, apart)
    model, projections = one.model, one.their_projections(apart)
    ids, mask = questions()
    query, _ = hooked(projections, lambda: one.their_states(ids, mask))
    ours = model.encoder.queries(model.query_states(ids, mask))
    here = mask.bool()[:, None].expand(-1, model.encoder.heads, -1)
    torch.testing.assert_close(ours[here], by_head(query, model.encoder.heads)[here], **CLOSE)
    ids, mask = documents()
    positions = QUERY_LENGTH + torch.arange(ids.shape[1])[None].expand_as(ids)
    _, key = hooked(projections, lambda: one.their_states(ids, mask, positions))
    ours = model.encoder.keys(model.document_states(ids, mask))
    here = mask.bool()[:, None].expand(-1, model.encoder.heads, -1)
    torch.testing.assert_close(ours[here], by_head(key, model.encoder.heads)[here], **CLOSE)


@every_form
def test_vectors_are_those_of_the_head_that_counts_most(form: str) -> None:
    model = tiny(form).model
    model.head_logits.copy_(torch.tensor([0.0, -0.5, 0.3]))
    assert model.retrieval_head == 2
    ids, mask = documents()
    keys = model.document_keys(ids, mask)
    assert keys.shape == (4, 12, model.encoder.head_size)
    expected = model.encoder.keys(model.document_states(ids, mask))[:, 2] * mask[:, :, None]
    torch.testing.assert_close(keys, expected, **CLOSE)
    asked = model.query_vectors(*questions())
    expected = model.encoder.queries(model.query_states(*questions()))[:, 2] * questions()[1][:, :, None]
    torch.testing.assert_close(asked, expected, **CLOSE)


@every_form
def test_keys_of_a_document_depend_on_nothing_else(form: str) -> None:
    model = tiny(form).model
    ids, mask = documents()
    together = model.document_keys(ids, mask)
    for row, length in enumerate(DOCUMENTS):
        alone = model.document_keys(ids[row : row + 1, :length], mask[row : row + 1, :length])
        torch.testing.assert_close(together[row, :length], alone[0], **CLOSE)
    garbage = torch.where(mask.bool(), ids, 99)
    torch.testing.assert_close(model.document_keys(garbage, mask), together, **CLOSE)


def naive_relevance(queries: Tensor, query_lengths: list[int], keys: Tensor, key_lengths: list[int]) -> list[Any]:
    """Equation 1 of the paper for one head, product by product."""
    table = []
    for query, asked in zip(queries.tolist(), query_lengths, strict=True):
        row = []
        for key, held in zip(keys.tolist(), key_lengths, strict=True):
            best = [
                max(sum(a * b for a, b in zip(query[i], key[j], strict=True)) for j in range(held))
                for i in range(asked)
            ]
            row.append(sum(best) / asked)
        table.append(row)
    return table


@every_form
def test_relevance_is_the_formula_done_naively(form: str) -> None:
    model = tiny(form).model
    asked, held = model.query_states(*questions()), model.document_states(*documents())
    relevance = model.relevance(asked, questions()[1], held, documents()[1])
    queries, keys = model.encoder.queries(asked), model.encoder.keys(held)
    for head in range(3):
        expected = naive_relevance(queries[:, head], QUESTIONS, keys[:, head], DOCUMENTS)
        torch.testing.assert_close(relevance[head], torch.tensor(expected, dtype=torch.float64), **CLOSE)
    weights = [0.2, 0.5, 0.3]
    model.head_logits.copy_(torch.tensor(weights).log() * model.shape.temperature)
    expected = sum(weight * relevance[head] for head, weight in enumerate(weights))
    torch.testing.assert_close(model.weighed(relevance), expected, rtol=1e-6, atol=1e-6)


@given(
    lengths=st.tuples(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.lists(st.integers(1, 7), min_size=1)),
    more=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_avg_max_leaves_padding_out_whatever_the_shapes(
    lengths: tuple[list[int], list[int]], more: tuple[int, int]
) -> None:
    chance = torch.Generator().manual_seed(sum(lengths[0]) + 31 * sum(lengths[1]))
    vectors, masks = [], []
    for counts, padding in zip(lengths, more, strict=True):
        longest = max(counts) + padding
        vectors.append(torch.randn(len(counts), longest, 3, generator=chance, dtype=torch.float64))
        masks.append((torch.arange(longest) < torch.tensor(counts)[:, None]).long())
    scores = late_scores(vectors[0], masks[0], vectors[1], masks[1], mean=True)
    expected = naive_relevance(vectors[0], lengths[0], vectors[1], lengths[1])
    torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64), **CLOSE)


@every_form
def test_texts_that_are_read_by_their_length_are_read_alike(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = tiny(form)
    ids, mask = documents()
    states, pairs = one.model.document_states(ids, mask), encoded_pairs(one)
    monkeypatch.setattr(split_encoder, "PIECE", 1)
    seen: list[int] = []
    passed = type(one.model.encoder).passed
    monkeypatch.setattr(
        type(one.model.encoder),
        "passed",
        lambda self, states, *rest: seen.append(states.shape[1]) or passed(self, states, *rest),
    )
    here = mask.bool()
    torch.testing.assert_close(one.model.document_states(ids, mask)[here], states[here], **CLOSE)
    assert seen == sorted(DOCUMENTS, reverse=True), "each document by itself, and no longer than it is"
    again = encoded_pairs(one)
    here = pairs.mask.bool()
    torch.testing.assert_close(again.states[here], pairs.states[here], **CLOSE)


def test_relevance_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("bert").model
    asked, held = model.query_states(*questions()), model.document_states(*documents())
    whole = model.relevance(asked, questions()[1], held, documents()[1])
    monkeypatch.setattr(reatt, "PRODUCTS", 1)
    torch.testing.assert_close(model.relevance(asked, questions()[1], held, documents()[1]), whole, **CLOSE)


@every_form
def test_tokens_that_begin_and_end_a_text_count_like_all_others(form: str) -> None:
    model = tiny(form).model
    framed, plain = ([[1, 20, 21, 2]], [[20, 21]])
    scores = []
    for rows in (framed, plain):
        ids = torch.tensor(rows)
        asked = model.query_states(ids, torch.ones_like(ids))
        queries = model.encoder.queries(asked)
        assert queries.shape[2] == len(rows[0])
        relevance = model.relevance(asked, torch.ones_like(ids), model.document_states(*documents()), documents()[1])
        keys = model.encoder.keys(model.document_states(*documents()))
        scores.append((relevance[0], naive_relevance(queries[:, 0], [len(rows[0])], keys[:, 0], DOCUMENTS)))
    for ours, naive in scores:
        torch.testing.assert_close(ours, torch.tensor(naive, dtype=torch.float64), **CLOSE)
    assert not torch.allclose(scores[0][0], scores[1][0])


def test_a_low_temperature_leaves_one_head_and_an_empty_document_is_never_relevant() -> None:
    model = tiny("t5").model
    torch.testing.assert_close(model.head_weights, torch.full((3,), 1 / 3, dtype=torch.float64))
    model.head_logits.copy_(torch.tensor([0.0, 0.02, -0.01]))
    assert model.head_weights[1] > 1 - 1e-8
    ids, mask = documents()
    mask[1] = 0
    asked, held = model.query_states(*questions()), model.document_states(ids, mask)
    scores = model.weighed(model.relevance(asked, questions()[1], held, mask))
    assert scores[:, 1].tolist() == [-torch.inf] * 3
    assert scores[:, [0, 2, 3]].isfinite().all()


# Reading together


def pair(one: Tiny, question: int, document: int) -> tuple[Tensor, Tensor]:
    """A question with a document directly behind it, as one text, and the places of both."""
    asked, held = questions()[0][question, : QUESTIONS[question]], documents()[0][document, : DOCUMENTS[document]]
    places = torch.cat([torch.arange(len(asked)), QUERY_LENGTH + torch.arange(len(held))])
    return torch.cat([asked, held])[None], places[None]


def encoded_pairs(one: Tiny) -> PairStates:
    """Every question with every document."""
    (asked, asked_mask), (held, held_mask) = questions(), documents()
    states = one.model.document_states(held, held_mask)
    return one.model.encode_pairs(
        one.model.query_states(asked, asked_mask),
        asked_mask,
        states[None].expand(3, -1, -1, -1),
        held_mask[None].expand(3, -1, -1),
        (asked, held[None].expand(3, -1, -1)),
    )


@every_form
def test_the_split_encoder_with_all_attention_allowed_is_the_plain_one(form: str) -> None:
    one = tiny(form, apart=0)
    pairs = encoded_pairs(one)
    for question, asked in enumerate(QUESTIONS):
        for document, held in enumerate(DOCUMENTS):
            ids, places = pair(one, question, document)
            expected = one.their_states(ids, torch.ones_like(ids), places)[0]
            assert pairs.mask[question, document].sum() == asked + held
            torch.testing.assert_close(pairs.states[question, document, : asked + held], expected, **CLOSE)


@every_form
@pytest.mark.parametrize("apart", [1, 2])
def test_below_the_border_attention_between_query_and_document_is_off_and_above_on(form: str, apart: int) -> None:
    one = tiny(form, apart)
    pairs = encoded_pairs(one)
    for question, document in [(0, 2), (1, 0), (2, 3)]:
        length = QUESTIONS[question]
        ids, places = pair(one, question, document)
        is_query = torch.arange(ids.shape[1]) < length
        blocks = torch.zeros(1, 1, ids.shape[1], ids.shape[1], dtype=torch.float64)
        blocks.masked_fill_(is_query[:, None] != is_query, torch.finfo(torch.float64).min)

        def masked(_module: Any, inputs: tuple[Any, ...], blocks: Tensor = blocks) -> tuple[Any, ...]:
            return (inputs[0], blocks, *inputs[2:])

        hooks = [block.register_forward_pre_hook(masked) for block in one.their_blocks[:apart]]
        expected = one.their_states(ids, torch.ones_like(ids), places)[0]
        for hook in hooks:
            hook.remove()
        torch.testing.assert_close(pairs.states[question, document, : ids.shape[1]], expected, **CLOSE)


@given(lengths=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=5))
def test_two_texts_are_joined_without_a_gap(lengths: list[tuple[int, int]]) -> None:
    first, second = (torch.arange(len(lengths) * size).view(len(lengths), size) + 1 for size in (4, 5))
    masks = [(torch.arange(size) < torch.tensor(lengths)[:, [part]]).long() for part, size in enumerate((4, 5))]
    states, mask = joined(first[:, :, None].double(), masks[0], second[:, :, None].double() + 100, masks[1])
    for row, (left, right) in enumerate(lengths):
        expected = [*first[row, :left].tolist(), *(second[row, :right] + 100).tolist()]
        assert states[row, mask[row].bool(), 0].tolist() == expected
        assert mask[row].tolist() == [1] * len(expected) + [0] * (mask.shape[1] - len(expected))


# Fusion in the decoder


@pytest.mark.parametrize("form", ["t5", "t5-v1.1"])
def test_with_one_document_the_decoder_is_that_of_transformers(form: str) -> None:
    one = tiny(form)
    pairs = encoded_pairs(one)
    single = PairStates(pairs.states[:, :1], pairs.mask[:, :1])
    out = one.theirs(
        encoder_outputs=(single.states[:, 0],), attention_mask=single.mask[:, 0], labels=answers(), return_dict=True
    )
    expected = out.logits.log_softmax(2).gather(2, answers().clamp(min=0)[:, :, None])[:, :, 0]
    ours = one.model.answer_logprobs(one.model.read(single), answers())
    torch.testing.assert_close(ours, expected * (answers() >= 0), **CLOSE)
    by_question = one.model.answer_loss(one.model.read(single), answers())
    counts = (answers() >= 0).sum(1)
    torch.testing.assert_close((by_question * counts).sum() / counts.sum(), out.loss, **CLOSE)


def their_bert_decoder(model: reatt.ReAttModel) -> Any:
    """A decoder of transformers with the weights of ours."""
    sizes = {key: value for key, value in model.backbone.config.items() if key in transformers.BertConfig().to_dict()}
    sizes |= {"is_decoder": True, "add_cross_attention": True, "attn_implementation": "eager"}
    theirs = transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False).double().eval()
    ours, weights = model.decoder.state_dict(), theirs.state_dict()
    cross = {"self.query": "cross.q", "self.key": "cross.k", "self.value": "cross.v"}
    cross |= {"output.dense": "cross.o", "output.LayerNorm": "cross_norm"}
    names = COPIED | {f"crossattention.{name}": new for name, new in cross.items()}
    for layer in range(3):
        for name, new in names.items():
            for part in ("weight", "bias"):
                weights[f"encoder.layer.{layer}.{name}.{part}"] = ours[f"layers.{layer}.{new}.{part}"]
    weights["embeddings.word_embeddings.weight"] = ours["symbols.weight"]
    weights["embeddings.position_embeddings.weight"] = ours["entry.places.weight"]
    weights["embeddings.token_type_embeddings.weight"] = torch.zeros(2, 24)
    for part in ("weight", "bias"):
        weights[f"embeddings.LayerNorm.{part}"] = ours[f"entry.norm.{part}"]
    theirs.load_state_dict(weights)
    return theirs


def test_a_decoder_copied_from_bert_is_that_of_transformers() -> None:
    one = tiny("bert")
    for parameter in one.model.decoder.parameters():  # so that new attention to the text counts
        parameter.add_(torch.randn_like(parameter) * 0.1)
    pairs = encoded_pairs(one)
    begin = torch.full((3, 1), one.model.decoder.shape.start)
    before = torch.cat([begin, answers().clamp(min=0)[:, :-1]], 1)
    states = their_bert_decoder(one.model)(
        input_ids=before, encoder_hidden_states=pairs.states[:, 0], encoder_attention_mask=pairs.mask[:, 0]
    ).last_hidden_state
    scores = states @ one.model.encoder.words.weight.T
    expected = scores.log_softmax(2).gather(2, answers().clamp(min=0)[:, :, None])[:, :, 0]
    ours = one.model.answer_logprobs(one.model.read(PairStates(pairs.states[:, :1], pairs.mask[:, :1])), answers())
    torch.testing.assert_close(ours, expected * (answers() >= 0), **CLOSE)


def test_a_word_is_written_or_copied_by_the_attention_to_it() -> None:
    """The oracle: attention as transformers tells it, and the probability of each token added up place by place."""
    one = tiny("bert-copying")
    for parameter in one.model.decoder.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)
    pairs = encoded_pairs(one)
    assert pairs.ids is not None
    given = answers()
    given[0, 0], given[2, 1] = documents()[0][1, 2], questions()[0][2, 1]  # some that stand in a text
    begin = torch.full((3, 1), one.model.decoder.shape.start)
    out = their_bert_decoder(one.model)(
        input_ids=torch.cat([begin, given.clamp(min=0)[:, :-1]], 1),
        encoder_hidden_states=pairs.states.flatten(1, 2),
        encoder_attention_mask=pairs.mask.flatten(1, 2),
        output_attentions=True,
    )
    shares = out.cross_attentions[-1].mean(1)
    chances = (out.last_hidden_state @ one.model.encoder.words.weight.T).softmax(2)
    gates = one.model.copying(out.last_hidden_state).sigmoid()[:, :, 0]  # ty: ignore[call-non-callable]
    ours = one.model.answer_logprobs(one.model.read(pairs), given)
    texts, copied = pairs.ids.flatten(1, 2).tolist(), 0
    for row, at in (given >= 0).nonzero().tolist():
        token = int(given[row, at])
        places = [place for place, other in enumerate(texts[row]) if other == token]
        seen = sum(float(shares[row, at, place]) for place in places)
        copied += bool(seen)
        expected = float((1 - gates[row, at]) * chances[row, at, token] + gates[row, at] * max(seen, reatt.LEAST))
        assert float(ours[row, at]) == pytest.approx(math.log(expected), abs=1e-6)
    assert copied >= 2


def test_a_model_that_copies_has_to_know_what_it_has_read() -> None:
    one = tiny("bert-copying")
    pairs = encoded_pairs(one)
    with pytest.raises(ValueError, match="needs the ids"):
        one.model.answer_loss(one.model.read(PairStates(pairs.states, pairs.mask)), answers())


def test_several_documents_are_one_long_text_to_the_decoder() -> None:
    one = tiny("t5")
    pairs = encoded_pairs(one)
    flat, mask = pairs.states.flatten(1, 2), pairs.mask.flatten(1, 2)
    out = one.theirs(encoder_outputs=(flat,), attention_mask=mask, labels=answers())
    expected = out.logits.log_softmax(2).gather(2, answers().clamp(min=0)[:, :, None])[:, :, 0]
    ours = one.model.answer_logprobs(one.model.read(pairs), answers())
    torch.testing.assert_close(ours, expected * (answers() >= 0), **CLOSE)


# Target attention


@every_form
def test_target_attention_is_that_of_transformers_summed_naively(form: str) -> None:
    one = tiny(form)
    pairs = encoded_pairs(one)
    flat, mask = pairs.states.flatten(1, 2), pairs.mask.flatten(1, 2)
    if one.is_t5:
        decoder, extra = one.theirs, {"encoder_outputs": (flat,), "attention_mask": mask}
        begin = {"decoder_input_ids": torch.zeros(3, 1, dtype=torch.long)}
    else:
        for parameter in one.model.decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        decoder, extra = their_bert_decoder(one.model), {"encoder_hidden_states": flat, "encoder_attention_mask": mask}
        begin = {"input_ids": torch.full((3, 1), one.model.decoder.shape.start)}
    shares = decoder(**begin, **extra, output_attentions=True).cross_attentions[-1]
    target = one.model.document_attention(one.model.read(pairs), 4)
    length = pairs.states.shape[2]
    for question in range(3):
        for document in range(4):
            tokens = [
                float(shares[question, head, 0, document * length + place])
                for head in range(3)
                for place in range(length)
            ]
            assert float(target[question, document]) == pytest.approx(sum(tokens) / 3, abs=1e-6)
    torch.testing.assert_close(target.sum(1), torch.ones(3, dtype=torch.float64))


@every_form
def test_a_document_that_is_not_there_gets_no_attention_and_changes_no_answer(form: str) -> None:
    one = tiny(form)
    model = one.model
    pairs = encoded_pairs(one)
    (asked, asked_mask), (held, held_mask) = questions(), documents()
    held_mask[2] = 0
    states = model.document_states(held, held_mask)
    assert states.isfinite().all()
    fewer = model.encode_pairs(
        model.query_states(asked, asked_mask),
        asked_mask,
        states[None].expand(3, -1, -1, -1),
        held_mask[None].expand(3, -1, -1),
        (asked, held[None].expand(3, -1, -1)),
    )
    target = model.document_attention(model.read(fewer), 4)
    assert target[:, 2].tolist() == [0.0] * 3
    assert pairs.ids is not None
    kept = PairStates(pairs.states[:, [0, 1, 3]], pairs.mask[:, [0, 1, 3]], pairs.ids[:, [0, 1, 3]])
    torch.testing.assert_close(target[:, [0, 1, 3]], model.document_attention(model.read(kept), 3), **CLOSE)
    ours, expected = (model.answer_logprobs(model.read(read), answers()) for read in (fewer, kept))
    torch.testing.assert_close(ours, expected, **CLOSE)


def test_questions_without_any_document_have_a_target_of_nothing() -> None:
    model = tiny("bert").model
    asked, mask = questions()
    states = model.document_states(*documents())[:2][None].expand(3, -1, -1, -1)
    none = torch.zeros(states.shape[:3], dtype=torch.long)
    read = model.read(model.encode_pairs(model.query_states(asked, mask), mask, states, none))
    assert model.document_attention(read, 2).tolist() == [[0.0, 0.0]] * 3
    assert model.answer_loss(read, answers()).isfinite().all()


# Writing


@every_form
def test_what_is_written_is_what_a_loop_without_a_cache_writes(form: str) -> None:
    one = tiny(form)
    model = one.model
    read = model.read(encoded_pairs(one))
    first = model.generate(read, 6).tokens
    lengths = set()
    for end in (model.end, first[0][2], first[1][1]):  # the last two end an answer early
        model.end = end
        written = model.generate(read, 6)
        for question in range(3):
            alone = read.of(torch.tensor([question]))
            tokens, total = slow_answer(model, alone, 6)
            lengths.add(len(tokens))
            assert written.tokens[question] == [token for token in tokens if token != end]
            assert float(written.logprobs[question]) == pytest.approx(total, abs=1e-6)
            scored = model.answer_logprobs(alone, torch.tensor([tokens]))
            assert float(scored.sum()) == pytest.approx(total, abs=1e-6)
    assert 6 in lengths
    assert len(lengths) > 1


def slow_answer(model: reatt.ReAttModel, read: Any, limit: int) -> tuple[list[int], float]:
    """The likeliest token after the other, with all that was written read anew for each."""
    tokens: list[int] = []
    total = 0.0
    while len(tokens) < limit and (not tokens or tokens[-1] != model.end):
        before = torch.tensor([[model.decoder.shape.start, *tokens]])
        if model.copying is None:
            states, _ = model.decoder.decode(before, None, read)
            scores = model.decoder.logits(states[0, -1]).log_softmax(0)
        else:
            states, _, shares = model.decoder.decode_attending(before, None, read)
            gate = float(model.copying(states[0, -1]).sigmoid())
            chances = model.decoder.logits(states[0, -1]).softmax(0) * (1 - gate)
            for place, token in enumerate(read.ids[0].tolist()):
                chances[token] += gate * shares[0, -1, place]
            scores = chances.log()
        total += float(scores.max())
        tokens.append(int(scores.argmax()))
    return tokens, total


@given(seed=st.integers(0, 200), empty=st.lists(st.booleans(), min_size=4, max_size=4))
@settings(max_examples=8)
def test_word_for_word_the_likeliest_answer_that_stands_in_a_document_is_written(seed: int, empty: list[bool]) -> None:
    """The oracle: at every step all places are looked up where an answer of whole words may stand."""
    one = copying_model()
    chance = torch.Generator().manual_seed(seed)
    (asked, asked_mask), (_, held_mask) = questions(), documents()
    pieces = ("Ġ", "a", "b", "Ġw", ",", "$", "5", "(")  # few, so that they come again
    numbers = torch.tensor([one.model.tokenizer.number(piece) for piece in pieces])
    held = numbers[torch.randint(0, len(pieces), held_mask.shape, generator=chance)] * held_mask
    held_mask = held_mask * (~torch.tensor(empty)).long()[:, None]
    states = one.model.document_states(held, held_mask)[None].expand(3, -1, -1, -1)
    given_ids = asked, held[None].expand(3, -1, -1)
    pairs = one.model.encode_pairs(
        one.model.query_states(asked, asked_mask), asked_mask, states, held_mask[None].expand(3, -1, -1), given_ids
    )
    read = one.model.read(pairs)
    written = one.model.generate(read, 5, word_for_word=True)
    texts = [row[mask.bool()].tolist() for row, mask in zip(held, held_mask, strict=True)]
    for question in range(3):
        tokens: list[int] = []
        while len(tokens) < 5:
            behind = followers(tokens, texts, one.model.tokenizer)
            may = [one.model.end if token is None else token for token in behind]
            each = [(next_logprob(one.model, read, question, tokens, token), token) for token in may]
            best = max(each)[1]
            if best == one.model.end:
                break
            tokens.append(best)
        assert written.tokens[question] == tokens


def next_logprob(model: reatt.ReAttModel, read: reatt.ReadPairs, question: int, tokens: list[int], token: int) -> float:
    alone = read.of(torch.tensor([question]))
    return float(model.answer_logprobs(alone, torch.tensor([[*tokens, token]]))[0, -1])


@functools.cache
def copying_model() -> Tiny:
    return tiny("bert-copying")


# Making


def test_words_are_one_table_for_reading_and_writing() -> None:
    for form in FORMS:
        model = tiny(form).model
        assert model.decoder.symbols.weight is model.encoder.words.weight
        assert model.decoder.shape.tied == (form != "t5-v1.1")


@pytest.mark.parametrize(("layers", "apart"), [(1, 0), (2, 1), (6, 1)])
def test_one_layer_of_bert_reads_apart_and_half_of_t5(layers: int, apart: int) -> None:
    backbone = load_backbone(f"scratch:hidden=16,layers={layers},heads=2,vocabulary=300", texts=["some words"])
    model = new_reatt(backbone, ReAttShape())
    assert model.encoder.apart == model.shape.apart == apart
    assert new_reatt(backbone, ReAttShape(apart=0)).encoder.apart == 0
    assert tiny("t5", apart=None).model.shape.apart == 2, "of its four layers"


def test_a_model_that_was_saved_without_a_number_has_half_of_its_layers_apart() -> None:
    backbone = load_backbone("scratch:hidden=16,layers=6,heads=2,vocabulary=300", texts=["some words"])
    new = new_reatt(backbone, ReAttShape())
    old = ReAttModel(backbone, replace(new.shape, apart=None), new.decoder.shape)
    assert old.encoder.apart == 3


def test_scratch_makes_a_model_that_follows_from_its_seed() -> None:
    backbone = load_backbone("scratch:hidden=16,layers=2,heads=2,vocabulary=300", texts=["some words", "more words"])
    shape = ReAttShape(query_length=5)
    with pytest.raises(UsageError, match="leaves no layer"):
        new_reatt(backbone, ReAttShape(apart=2))
    models = [new_reatt(backbone, shape, seed).state_dict() for seed in (0, 0, 1)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    assert not all(torch.equal(models[0][name], models[2][name]) for name in models[0])
    model = new_reatt(backbone, shape)
    assert not model.training
    with pytest.raises(UsageError, match="a query has 6 tokens"):
        model.query_states(*texts([6], 0))
    with pytest.raises(UsageError, match="a document has 508 tokens"):
        model.document_states(*texts([508], 0))


@pytest.mark.parametrize("form", ["t5", "t5-v1.1"])
def test_any_t5_can_be_named_by_its_folder(form: str, tmp_path: Path) -> None:
    theirs = tiny(form).theirs.float()
    theirs.save_pretrained(tmp_path)
    tokenizer().inner.save(str(tmp_path / "tokenizer.json"))
    model = new_reatt(load_backbone(str(tmp_path)), ReAttShape(apart=0))
    assert model.decoder.shape.tied == (form == "t5")
    ids, mask = questions()
    held = model.document_states(*documents())[:3]
    pairs = model.encode_pairs(model.query_states(ids, mask), mask, held[:, None], documents()[1][:3, None])
    ours = model.answer_logprobs(model.read(pairs), answers())
    whole = [torch.cat([ids[row, : QUESTIONS[row]], documents()[0][row, : DOCUMENTS[row]]]) for row in range(3)]
    joint = torch.nn.utils.rnn.pad_sequence(whole, batch_first=True)
    joint_mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in whole], batch_first=True)
    scores = theirs(input_ids=joint, attention_mask=joint_mask, labels=answers()).logits.log_softmax(2)
    expected = scores.gather(2, answers().clamp(min=0)[:, :, None])[:, :, 0]
    torch.testing.assert_close(ours, expected * (answers() >= 0), rtol=1e-4, atol=1e-4)


@needs_minilm
def test_minilm_reads_as_it_does_and_its_layers_write() -> None:
    backbone = load_backbone("minilm")
    model = new_reatt(backbone, ReAttShape(apart=0, query_length=16))
    asked, held = (
        Tokens.of([text], backbone.tokenizer, 16).padded([0])
        for text in ("Who wrote Hamlet?", "Hamlet is a tragedy by William Shakespeare.")
    )
    pairs = model.encode_pairs(
        model.query_states(*asked), asked[1], model.document_states(*held)[:, None], held[1][:, None]
    )
    positions = torch.cat([torch.arange(asked[0].shape[1]), 16 + torch.arange(held[0].shape[1])])[None]
    ids = torch.cat([asked[0], held[0]], 1)
    theirs: Any = backbone.encoder_module()
    expected = theirs(input_ids=ids, attention_mask=torch.ones_like(ids), position_ids=positions).last_hidden_state
    torch.testing.assert_close(pairs.states[0, :1], expected, rtol=1e-4, atol=1e-4)
    copied = model.decoder.state_dict()["layers.5.own.q.weight"]
    assert torch.equal(copied, theirs.state_dict()["encoder.layer.5.attention.self.query.weight"])


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"query_length": 0}, {"dropout": 1.0}, {"apart": -1}])
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    backbone = load_backbone("scratch:hidden=16,layers=2,heads=2,vocabulary=300", texts=["some words"])
    with pytest.raises(UsageError):
        new_reatt(backbone, ReAttShape(**wrong))


def test_a_backbone_of_another_kind_is_refused() -> None:
    one = tiny("bert")
    causal = load_backbone("scratch:hidden=16,layers=2,heads=2,vocabulary=300", texts=["some words"])
    object.__setattr__(causal, "config", {**causal.config, "model_type": "gpt2"})
    with pytest.raises(UsageError, match="neither a T5 nor a BERT"):
        new_reatt(causal)
    with pytest.raises(UsageError, match="leaves a document no place"):
        new_reatt(one.model.backbone, ReAttShape(query_length=40))
