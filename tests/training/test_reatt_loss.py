"""The loss of retrieval as attention: its formulas done naively, where gradients go, and gradients piece by piece."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.models.tiny_reatt import FORMS, answers, questions, texts, tiny, tokenizer
from triever.models.reatt import PairStates, ReadPairs, ReAttModel
from triever.models.tokens import Tokens
from triever.training.loop import TrainOptions, train
from triever.training.losses import distillation
from triever.training.reatt_batches import answer_rows, reading_batch
from triever.training.reatt_loss import BatchTexts, RandomState, ReadTwice, ReAttLoss

every_form = pytest.mark.parametrize("form", FORMS)
CLOSE_ROWS = [[5, 2], [7, 5], [9, -1]]
"""Three questions: document 5 is close to two of them, and the last question has but one close document."""
LENGTHS = {5: 9, 2: 3, 7: 12, 9: 7, -1: 2}


def batch(lengths: dict[int, int] = LENGTHS) -> dict[str, Tensor]:
    query_ids, query_mask = questions()
    ids, mask = texts([*lengths.values()], 2)
    order = {row: number for number, row in enumerate(lengths)}
    close = torch.tensor([[order[row] for row in rows] for rows in CLOSE_ROWS])
    rows = torch.tensor(CLOSE_ROWS)
    return {
        "query_ids": query_ids,
        "query_mask": query_mask,
        "document_ids": ids[close],
        "document_mask": mask[close] * (rows >= 0)[:, :, None],
        "document_rows": rows,
        "answers": answers(),
    }


def read_together(model: ReAttModel, found: BatchTexts, asked: Tensor, held: Tensor) -> PairStates:
    """Every question of a batch with its close documents."""
    ids = found.query_ids, found.document_ids[found.close]
    return model.encode_pairs(asked, found.query_mask, held[found.close], found.document_mask[found.close], ids)


def gradients(model: ReAttModel, losses: dict[str, Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    sum(value for name, value in losses.items() if not name.startswith("_")).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


# Formulas


@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 6)),
    seed=st.integers(0, 1000),
    hidden=st.lists(st.booleans(), min_size=24, max_size=24),
)
def test_the_divergence_is_its_formula(shape: tuple[int, int], seed: int, hidden: list[bool]) -> None:
    chance = torch.Generator().manual_seed(seed)
    scores = 5 * torch.randn(shape, generator=chance, dtype=torch.float64)
    compared = ~torch.tensor(hidden[: shape[0] * shape[1]]).view(shape)
    raw = torch.rand(shape, generator=chance, dtype=torch.float64) * compared
    raw[:, 0] = 0  # a document that is compared, or not, and has no target
    target = raw / raw.sum(1, keepdim=True).clamp(min=1e-300)
    total = 0.0
    for row in range(shape[0]):
        columns = [column for column in range(shape[1]) if compared[row, column]]
        mass = sum(math.exp(scores[row, column]) for column in columns)
        for column in columns:
            wanted = float(target[row, column])
            if wanted:
                total += wanted * (math.log(wanted) - math.log(math.exp(scores[row, column]) / mass))
    assert float(distillation(scores, target, compared)) == pytest.approx(total / shape[0], abs=1e-9)


def test_no_gradient_flows_into_the_target_of_a_divergence() -> None:
    scores, target = torch.randn(2, 3, requires_grad=True), torch.rand(2, 3, requires_grad=True)
    distillation(scores, target.softmax(1), torch.ones(2, 3, dtype=torch.bool)).backward()
    assert target.grad is None
    assert scores.grad is not None


def test_each_document_stands_once_in_a_batch_and_others_are_random() -> None:
    found = BatchTexts.of(batch())
    lengths = found.document_mask.sum(1).tolist()
    assert lengths == [12, 9, 7, 3, 0]  # documents 7, 5, 9 and 2, and what stands for none
    assert found.close.tolist() == [[1, 3], [0, 1], [2, 4]]
    whole = batch()
    for question in range(3):
        for column in range(2):
            ids = found.document_ids[found.close[question, column]]
            if CLOSE_ROWS[question][column] >= 0:
                assert torch.equal(ids, whole["document_ids"][question, column])
    assert found.is_there.tolist() == [True, True, True, True, False]
    assert found.is_close.tolist() == [
        [False, True, False, True, False],
        [True, True, False, False, False],
        [False, False, True, False, False],
    ]


@every_form
def test_random_documents_have_exactly_zero_target_and_close_ones_share_everything(form: str) -> None:
    model = tiny(form).model
    found = BatchTexts.of(batch())
    held = model.document_states(found.document_ids, found.document_mask)
    asked = model.query_states(found.query_ids, found.query_mask)
    pairs = read_together(model, found, asked, held)
    target = model.document_attention(model.read(pairs), 2)
    assert pairs.states.requires_grad
    assert not target.requires_grad
    spread = found.spread(target)
    assert (spread[~found.is_close] == 0).all()
    torch.testing.assert_close(spread.sum(1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(spread[2, 2], torch.ones((), dtype=torch.float64))


@every_form
@pytest.mark.parametrize("in_batch", [True, False])
def test_the_loss_is_its_parts_done_question_by_question(form: str, in_batch: bool) -> None:
    model = tiny(form).model
    with torch.no_grad():
        model.head_logits.copy_(torch.tensor([0.001, 0.0, -0.001]))
    given_batch = batch()
    losses = ReAttLoss(alpha=8.0, in_batch=in_batch)(model, given_batch)
    answer, divergence = 0.0, 0.0
    with torch.no_grad():
        documents = {row: text(given_batch, row) for row in (2, 5, 7, 9)}
        for question in range(3):
            asked_mask = given_batch["query_mask"][question : question + 1]
            asked = model.query_states(given_batch["query_ids"][question : question + 1], asked_mask)
            close = [row for row in CLOSE_ROWS[question] if row >= 0]
            pairs = [pair_alone(model, asked, asked_mask, documents[row]) for row in close]
            read = model.decoder.looked_up(torch.cat(pairs, 1), torch.ones(1, sum(pair.shape[1] for pair in pairs)))
            asked_ids = given_batch["query_ids"][question : question + 1, : int(asked_mask.sum())]
            ids = torch.cat([part for row in close for part in (asked_ids, documents[row])], 1)
            read = ReadPairs(read.layers, read.mask, ids=ids)
            row_answer = given_batch["answers"][question : question + 1]
            answer += float(-model.answer_logprobs(read, row_answer).sum() / (row_answer >= 0).sum()) / 3
            shares = model.decoder.first_text_scores(read).softmax(2)[0].split([pair.shape[1] for pair in pairs], 1)
            target = dict(zip(close, [float(share.sum(1).mean()) for share in shares], strict=True))
            scores = {row: relevance_alone(model, asked, asked_mask, documents[row]) for row in documents}
            compared = list(documents) if in_batch else close
            mass = sum(math.exp(scores[row]) for row in compared)
            for row, share in target.items():
                divergence += share * (math.log(share) - math.log(math.exp(scores[row]) / mass)) / 3
    assert float(losses["answer"].detach()) == pytest.approx(answer, abs=1e-6)
    assert float(losses["adjustment"].detach()) == pytest.approx(8 * divergence, abs=1e-5)


def text(given_batch: dict[str, Tensor], row: int) -> Tensor:
    place = (given_batch["document_rows"] == row).nonzero()[0]
    return given_batch["document_ids"][*place][given_batch["document_mask"][*place].bool()][None]


def pair_alone(model: ReAttModel, asked: Tensor, mask: Tensor, ids: Tensor) -> Tensor:
    length = int(mask.sum())
    held = model.document_states(ids, torch.ones_like(ids))
    states, _ = model.encoder.pair_states(asked[:, :length], mask[:, :length], held, torch.ones_like(ids))
    return states


def relevance_alone(model: ReAttModel, asked: Tensor, mask: Tensor, ids: Tensor) -> float:
    queries = model.encoder.queries(asked)[0, :, : int(mask.sum())]
    keys = model.encoder.keys(model.document_states(ids, torch.ones_like(ids)))[0]
    each = [(queries[head] @ keys[head].T).max(1).values.mean() for head in range(3)]
    return float(sum(weight * score for weight, score in zip(model.head_weights, each, strict=True)))


# Where gradients go


def parts(model: ReAttModel, names: Any) -> set[str]:
    """Parts of the model that these parameters belong to."""
    layer = "encoder.text.layers." if "encoder.text.norm.weight" in dict(model.named_parameters()) else ""
    layer = layer or "encoder.reader.encoder.layer."
    kinds = set()
    for name in names:
        if name.startswith(layer):
            number = int(name.removeprefix(layer).split(".")[0])
            kinds.add(
                "below" if number < model.encoder.apart else "border" if number == model.encoder.apart else "above"
            )
        else:
            kinds.add(name.split(".")[0])
    return kinds


@every_form
def test_the_adjustment_teaches_only_what_retrieves(form: str) -> None:
    model = tiny(form).model
    with torch.no_grad():
        model.head_logits.copy_(torch.tensor([0.001, 0.0, -0.001]))
    losses = ReAttLoss()(model, batch())
    given_back = gradients(model, {"adjustment": losses["adjustment"]})
    moved = {name for name, gradient in given_back.items() if gradient.abs().sum() > 0}
    assert parts(model, moved) >= {"below", "border", "head_logits"}
    assert "above" not in parts(model, moved)
    assert "decoder" not in parts(model, moved)  # no gradient flows through the target
    at_border = {name for name in moved if parts(model, [name]) == {"border"}}
    assert all(any(word in name for word in (".q.", ".k.", "query", "key", "attention_norm")) for name in at_border)
    assert given_back["head_logits"].abs().min() > 0


@every_form
def test_the_answer_teaches_everything_but_the_choice_of_heads(form: str) -> None:
    model = tiny(form).model
    given_back = gradients(model, ReAttLoss(alpha=0.0)(model, batch()))
    assert "adjustment" not in ReAttLoss(alpha=0.0)(model, batch())
    moved = {name for name, gradient in given_back.items() if gradient.abs().sum() > 0}
    assert parts(model, moved) >= {"below", "border", "above", "decoder"}
    assert "head_logits" not in given_back


@every_form
def test_the_target_is_a_constant_to_the_gradients(form: str) -> None:
    model = tiny(form).model
    found = BatchTexts.of(batch())
    ours = gradients(model, {"adjustment": ReAttLoss(alpha=1.0)(model, batch())["adjustment"]})
    held = model.document_states(found.document_ids, found.document_mask)
    asked = model.query_states(found.query_ids, found.query_mask)
    with torch.no_grad():
        pairs = read_together(model, found, asked, held)
        target = found.spread(model.document_attention(model.read(pairs), 2)).clone()
    scores = model.weighed(model.relevance(asked, found.query_mask, held, found.document_mask))[:, :4]
    expected = gradients(model, {"by hand": -(target[:, :4] * scores.log_softmax(1)).sum(1).mean()})
    assert ours.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-9, atol=1e-12)


# Piece by piece


@every_form
@pytest.mark.parametrize("at_once", [1, 2, 3])
@pytest.mark.parametrize("settings", [{}, {"alpha": 0.0}, {"in_batch": False}], ids=str)
def test_gradients_in_pieces_are_those_of_the_whole_batch(form: str, at_once: int, settings: dict[str, Any]) -> None:
    model = tiny(form).model
    with torch.no_grad():
        model.head_logits.copy_(torch.tensor([0.001, 0.0, -0.001]))
    whole, pieces = ReAttLoss(**settings)(model, batch()), ReAttLoss(at_once=at_once, **settings)(model, batch())
    assert whole.keys() == pieces.keys()
    for name, value in whole.items():
        torch.testing.assert_close(pieces[name], value, rtol=1e-9, atol=1e-12)
    expected, found = gradients(model, whole), gradients(model, pieces)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-8, atol=1e-12)


@every_form
def test_with_dropout_both_readings_of_a_text_drop_the_same(form: str) -> None:
    one = tiny(form, dropout=0.3)
    model = one.model.train()
    lengths = dict.fromkeys(LENGTHS, 8)  # of one length, so that as many random numbers are drawn below
    torch.manual_seed(5)
    losses = ReAttLoss(alpha=2.0, at_once=1)(model, batch(lengths))
    behind = torch.rand(1)
    found = gradients(model, losses)

    torch.manual_seed(5)
    expected_losses, expected = whole_with_dropout(model, BatchTexts.of(batch(lengths)), 2.0)
    assert torch.equal(behind, torch.rand(1))  # what comes next is not drawn twice either
    for name, value in expected_losses.items():
        torch.testing.assert_close(losses[name], value, rtol=1e-9, atol=1e-12)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-8, atol=1e-12)


def whole_with_dropout(
    model: ReAttModel, found: BatchTexts, alpha: float
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The same, with all of the graph in memory: texts are read in the same order, each once."""
    asked = [model.query_states(ids[None, :length], mask[None, :length]) for ids, mask, length in rows_of(found)]
    asked = [torch.nn.functional.pad(states, (0, 0, 0, 6 - states.shape[1])) for states in asked]
    pieces = zip(found.document_ids.split(2), found.document_mask.split(2), strict=True)
    held = [model.document_states(ids[:, : longest(mask)], mask[:, : longest(mask)]) for ids, mask in pieces]
    held = torch.cat([torch.nn.functional.pad(states, (0, 0, 0, 8 - states.shape[1])) for states in held])
    losses, targets = [], []
    for question in range(3):
        close = found.close[question : question + 1]
        mask = found.query_mask[question : question + 1]
        ids = found.query_ids[question : question + 1], found.document_ids[close]
        read = model.read(model.encode_pairs(asked[question], mask, held[close], found.document_mask[close], ids))
        losses.append(model.answer_loss(read, found.answers[question : question + 1])[0])
        targets.append(model.document_attention(read, 2))
    scores = model.weighed(model.relevance(torch.cat(asked), found.query_mask, held, found.document_mask))
    compared = found.is_there.expand(3, -1)
    adjustment = alpha * distillation(scores, found.spread(torch.cat(targets)), compared)
    parts_of_loss = {"answer": torch.stack(losses).mean(), "adjustment": adjustment}
    return parts_of_loss, gradients(model, parts_of_loss)


def longest(mask: Tensor) -> int:
    return max(1, int(mask.sum(1).max()))


def rows_of(found: BatchTexts) -> list[tuple[Tensor, Tensor, int]]:
    masks = found.query_mask
    return [(ids, mask, int(mask.sum())) for ids, mask in zip(found.query_ids, masks, strict=True)]


def test_dropout_would_be_noticed() -> None:
    model = tiny("bert", dropout=0.3).model.train()
    ids, mask = questions()
    twice = ReadTwice(model.query_states, ids, mask, 2)
    assert not torch.allclose(twice.states, ReadTwice(model.query_states, ids, mask, 2).states)
    state = RandomState.now(torch.device("cpu"))
    first = torch.rand(2)
    state.set()
    assert torch.equal(first, torch.rand(2))


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # where a processor has no bfloat16 of its own
@every_form
def test_lower_precision_loses_no_gradient_on_the_way(form: str) -> None:
    model = tiny(form).model.float()
    found = []
    for at_once in (0, 1):
        with torch.autocast("cpu", torch.bfloat16):
            losses = ReAttLoss(at_once=at_once)(model, batch())
        found.append(gradients(model, losses))
    whole, pieces = found
    assert whole.keys() == pieces.keys()
    wrong = sum(float((pieces[name] - gradient).square().sum()) for name, gradient in whole.items())
    assert wrong < 0.1**2 * sum(float(gradient.square().sum()) for gradient in whole.values())
    for name, gradient in whole.items():
        assert pieces[name].norm() > 0.3 * gradient.norm(), name


def test_no_more_is_read_at_once_than_was_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("bert").model
    sizes: dict[str, list[int]] = {"query_states": [], "document_states": [], "encode_pairs": []}
    for name, seen in sizes.items():
        method = getattr(ReAttModel, name)

        def counted(self: ReAttModel, first: Tensor, *rest: Tensor, method: Any = method, seen: Any = seen) -> Any:
            seen.append(len(first))
            return method(self, first, *rest)

        monkeypatch.setattr(ReAttModel, name, counted)
    ReAttLoss(at_once=1)(model, batch())
    # Three questions with two documents each, of which five differ; each text is read twice, each pair once.
    assert sizes == {"query_states": [1] * 6, "document_states": [2, 2, 1] * 2, "encode_pairs": [1] * 3}


def test_a_frozen_part_gets_no_gradient() -> None:
    model = tiny("bert").model
    for parameter in model.encoder.parameters():
        parameter.requires_grad_(False)
    expected, found = (gradients(model, ReAttLoss(at_once=at_once)(model, batch())) for at_once in (0, 2))
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-8, atol=1e-12)


def test_the_loop_trains_with_pieces_as_with_whole_batches() -> None:
    model = tiny("t5").model.float()
    options = TrainOptions(steps=6, learning_rate=3e-3, warmup=0.0, keep="last", evaluate_every=0)
    ends = []
    for at_once in (0, 2):
        trained = copy.deepcopy(model)
        before = float(ReAttLoss(alpha=1.0)(trained, batch())["answer"].detach())
        train(trained, ReAttLoss(alpha=1.0, at_once=at_once), lambda _round: [batch()] * 6, options, device="cpu")
        ends.append(float(ReAttLoss(alpha=1.0)(trained, batch())["answer"].detach()))
        assert ends[-1] < 0.8 * before
    assert ends[0] == pytest.approx(ends[1], rel=1e-3)


# Batches


def test_batches_hold_questions_their_documents_and_answers() -> None:
    pieces = tokenizer()
    held = Tokens.from_lists([[1, 10, 2], [1, 11, 12, 2], [1, 13, 2]])
    asked = Tokens.from_lists([[1, 20, 2], [1, 21, 22, 2]])
    rows = answer_rows(["a few words", "with"], pieces, 5)
    assert rows.shape[1] <= 5
    end = pieces.after[-1]
    assert [row[row >= 0][-1] for row in rows] == [end, end]
    made = reading_batch(asked, np.array([1, 0]), held, np.array([[2, 1], [0, -1]]), rows, pad=0)
    assert made["query_ids"].tolist() == [[1, 21, 22, 2], [1, 20, 2, 0]]
    assert made["document_ids"][0].tolist() == [[1, 13, 2, 0], [1, 11, 12, 2]]
    assert made["document_mask"].sum(2).tolist() == [[3, 4], [3, 0]]
    assert made["document_rows"].tolist() == [[2, 1], [0, -1]]
    assert torch.equal(made["answers"], torch.from_numpy(rows))
