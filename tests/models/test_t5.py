"""Our T5 against transformers' own, on random weights of every member of the family."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import T5Config, T5ForConditionalGeneration

from triever import Document
from triever.docids.schemes import Atomic
from triever.models.cross_decoder import Seq2SeqGenerator
from triever.models.layers import bucket
from triever.models.t5 import T5, T5Shape, from_transformers
from triever.training.loop import TrainOptions, train
from triever.training.views import IGNORED, docid_rows

FAMILY = {
    "t5": {"feed_forward_proj": "relu", "tie_word_embeddings": True},
    "v1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}


def make(kind: str) -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_kv": 8, "num_heads": 3, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 3}
    config = T5Config(vocab_size=50, decoder_start_token_id=0, **sizes, **FAMILY[kind])
    model = T5ForConditionalGeneration(config).eval()
    if kind == "v1.1":  # as its checkpoints have it; transformers ties what it makes from a config
        model.lm_head.weight = torch.nn.Parameter(torch.randn(50, 32))
    with torch.no_grad():  # initial weights hide mistakes: norms of one, biases of nearly nothing
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    ids = torch.randint(1, 50, (4, 170))  # longer than the largest distance
    mask = torch.ones_like(ids)
    mask[1, 100:] = 0
    mask[2, 3:] = 0
    return ids, mask


@pytest.mark.parametrize("kind", FAMILY)
def test_logits_are_those_of_transformers(kind: str) -> None:
    theirs = make(kind)
    ids, mask = batch()
    docids = torch.randint(1, 50, (4, 9))
    with torch.inference_mode():
        expected = theirs(input_ids=ids, attention_mask=mask, labels=docids).logits
        ours = from_transformers(theirs)
        found = ours(ids, mask, docids)
    assert ours.shape.tied == (kind == "t5")
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", FAMILY)
def test_symbol_by_symbol_equals_all_at_once(kind: str) -> None:
    model = from_transformers(make(kind))
    ids, mask = batch()
    docids = torch.randint(1, 50, (8, 6))  # two prefixes for each text
    generator = Seq2SeqGenerator(model, lambda _texts: (ids, mask))
    cache, hidden = generator.prefill(["x"] * 4)
    pair = torch.arange(4).repeat_interleave(2)
    states = [hidden[pair]]
    for at in range(5):
        cache, hidden = generator.extend(cache, pair if at == 0 else torch.arange(8), docids[:, at : at + 1])
        states.append(hidden[:, -1])
    with torch.inference_mode():
        expected = model(ids[pair], mask[pair], docids)
    torch.testing.assert_close(generator.logits(torch.stack(states, 1)), expected, atol=1e-4, rtol=1e-4)


def test_rows_may_be_chosen_in_any_order_and_number() -> None:
    model = from_transformers(make("v1.1"))
    ids, mask = batch()
    generator = Seq2SeqGenerator(model, lambda _texts: (ids, mask))
    cache, _ = generator.prefill(["x"] * 4)
    parents, docids = torch.tensor([0, 0, 0, 1, 3]), torch.randint(1, 50, (5, 4))
    _, hidden = generator.extend(cache, parents, docids)
    with torch.inference_mode():
        expected = model(ids[parents], mask[parents], torch.cat([docids, docids[:, :1]], 1))[:, 1:]
    torch.testing.assert_close(generator.logits(hidden), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize("candidates", [1, 40])  # by themselves, and out of all
def test_candidates_get_the_scores_that_all_symbols_get(kind: str, candidates: int) -> None:
    generator = Seq2SeqGenerator(from_transformers(make(kind)), lambda _texts: batch())
    _, hidden = generator.prefill(["x"] * 4)
    some = torch.randint(0, generator.width, (4, candidates))
    torch.testing.assert_close(generator.logits(hidden, some), generator.logits(hidden).gather(1, some))


def test_a_docid_vocabulary_of_its_own_is_as_wide_as_it_needs() -> None:
    model = T5(
        T5Shape.for_docids(
            vocabulary=100, width=7, d_model=16, d_kv=4, heads=2, d_ff=8, encoder_layers=1, decoder_layers=1
        )
    )
    assert model.output.weight.shape == (7, 16)
    assert model.symbols.weight.shape == (8, 16)  # and the one that starts
    assert model(torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3), torch.zeros(2, 4, dtype=torch.long)).shape == (
        2,
        4,
        7,
    )


def test_buckets_are_those_of_transformers() -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-300, 301)
    for both_ways in (True, False):
        expected = T5Attention._relative_position_bucket(
            distance, bidirectional=both_ways, num_buckets=32, max_distance=128
        )
        assert torch.equal(bucket(distance, 32, 128, both_ways), expected)


@pytest.mark.parametrize("kind", FAMILY)
def test_a_narrowed_vocabulary_keeps_its_scores(kind: str) -> None:
    model = from_transformers(make(kind))
    ids, mask = batch()
    tokens = torch.tensor([7, 3, 21, 40])
    docids = torch.randint(0, 4, (4, 5))
    with torch.inference_mode():
        expected = model(ids, mask, tokens[docids])[..., tokens]
        found = model.narrowed(tokens)(ids, mask, docids)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def docid_model() -> T5:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 4, "heads": 2, "d_ff": 8, "encoder_layers": 1, "decoder_layers": 2}
    return T5(T5Shape.for_docids(vocabulary=50, width=7, **sizes)).eval()


def wide(kind: str) -> T5:
    return docid_model() if kind == "docids" else from_transformers(make(kind))


@pytest.mark.parametrize("kind", [*FAMILY, "docids"])
def test_a_widened_vocabulary_keeps_its_scores_and_adds_means(kind: str) -> None:
    model = wide(kind)
    width, rows = model.shape.width, [[1, 3], [], [6]]
    wider = model.widened(rows)
    assert wider.shape.width == width + 3
    ids, mask = batch()
    docids = torch.randint(0, width, (4, 5))
    with torch.inference_mode():
        expected, found = model(ids, mask, docids), wider(ids, mask, docids)
        again = model.widened([])(ids, mask, docids)
    assert found.shape[2] == width + 3
    assert torch.equal(again, expected)
    # To the last bit but for the order in which a wider matrix product may sum, which is the library's to choose.
    torch.testing.assert_close(found[..., :width], expected, atol=1e-5, rtol=1e-5)
    for table in ("symbols.weight",) if model.shape.tied else ("symbols.weight", "output.weight"):
        assert torch.equal(wider.state_dict()[table][:width], model.state_dict()[table][:width])
    # Scores are linear in the rows: what a new symbol has is the mean of what the named ones have.
    means = [expected[..., [1, 3]].mean(2), expected.mean(2), expected[..., 6]]
    torch.testing.assert_close(found[..., width:], torch.stack(means, 2), atol=1e-4, rtol=1e-4)
    symbols = wider.symbols.weight[width : width + 3]
    torch.testing.assert_close(symbols[0], (model.symbols.weight[1] + model.symbols.weight[3]) / 2)
    torch.testing.assert_close(symbols[1], model.symbols.weight[:width].mean(0))
    assert torch.equal(symbols[2], model.symbols.weight[6])


@pytest.mark.parametrize("kind", [*FAMILY, "docids"])
def test_the_start_symbol_of_a_widened_model_is_the_old_one(kind: str) -> None:
    model = wide(kind)
    wider = model.widened([[0], [1]]).widened([[2]])
    old, new = model.shape.start, wider.shape.start
    assert new == (model.shape.width + 3 if kind == "docids" else old)
    assert len(wider.symbols.weight) == len(model.symbols.weight) + 3
    assert torch.equal(wider.symbols.weight[new], model.symbols.weight[old])


def test_rows_of_new_symbols_may_be_apart_from_the_mean_of_those_named() -> None:
    model = docid_model()
    rows, apart = [[1, 3], [], [6]], torch.randn(3, 16)
    state = torch.get_rng_state()
    wider, plain = model.widened(rows, apart), model.widened(rows)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.allclose(wider.output.weight[7:], plain.output.weight[7:] + apart, atol=1e-6)
    assert torch.equal(wider.output.weight[:7], model.output.weight)
    assert torch.equal(wider.symbols.weight, plain.symbols.weight)


DOCIDS = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=6)


@settings(max_examples=30)
@given(DOCIDS, st.integers(0, 99))
def test_the_loss_is_minus_the_mean_over_rows_of_a_docid_s_log_probability(written: list[list[int]], seed: int) -> None:
    model = docid_model()
    docids = torch.from_numpy(docid_rows(written))
    ids = torch.randint(50, (len(written), 5), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    with torch.inference_mode():
        naive = []
        for row, docid in enumerate(written):
            each = model(ids[[row]], mask[[row]], torch.tensor([docid])).log_softmax(2)[0]
            naive.append(-sum(float(each[place, symbol]) for place, symbol in enumerate(docid)))
        loss = model.loss(ids, mask, docids, IGNORED).item()
        alone = [model.loss(ids[[row]], mask[[row]], docids[[row]], IGNORED).item() for row in range(len(written))]
    assert loss == pytest.approx(sum(naive) / len(naive), rel=1e-4)
    assert loss == pytest.approx(sum(alone) / len(alone), rel=1e-4)


def test_accumulating_batches_of_docids_equals_one_large_batch() -> None:
    chance = torch.Generator().manual_seed(0)
    docids = torch.from_numpy(docid_rows([[1], [2, 3, 4], [5], [6, 0, 1], [2], [3]]))
    ids = torch.randint(50, (6, 5), generator=chance)
    parts = {"ids": ids, "mask": torch.ones_like(ids), "targets": docids}
    halves = [{name: part[places] for name, part in parts.items()} for places in (slice(0, 3), slice(3, 6))]

    def loss(model: T5, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"loss": model.loss(batch["ids"], batch["mask"], batch["targets"], IGNORED)}

    one, two = docid_model(), docid_model()
    train(one, loss, lambda _: [parts], TrainOptions(steps=3, learning_rate=1e-3))
    train(two, loss, lambda _: halves, TrainOptions(steps=3, learning_rate=1e-3, accumulate=2))
    for (name, weight), other in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        torch.testing.assert_close(weight, other, atol=1e-5, rtol=0, msg=name)


def test_widening_by_nothing_changes_nothing_and_shares_nothing() -> None:
    model = docid_model().to(torch.bfloat16)
    same = model.widened([])
    assert same.shape == model.shape
    for (name, weight), other in zip(model.state_dict().items(), same.state_dict().values(), strict=True):
        assert torch.equal(weight, other), name
        assert weight.data_ptr() != other.data_ptr(), name
    assert model.widened([[0, 1]]).output.weight.dtype == torch.bfloat16


def test_new_atomic_documents_are_scored_at_once() -> None:
    documents = [Document(str(number), "") for number in range(7)]
    scheme, model = Atomic(neighbours=2), docid_model()
    scheme.fit(documents, torch.eye(7))
    for vector in (torch.eye(7)[2] + torch.eye(7)[5], torch.eye(7)[0] + torch.eye(7)[1]):
        scheme.place(Document("new", ""), vector)
    wider = model.widened([scheme.untrained[symbol] for symbol in range(model.shape.width, scheme.width)])
    ids, mask = batch()
    with torch.inference_mode():
        scores = wider(ids, mask, torch.zeros(4, 1, dtype=torch.long))
    torch.testing.assert_close(scores[..., 7], scores[..., [2, 5]].mean(2), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(scores[..., 8], scores[..., [0, 1]].mean(2), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("count", [5, 45])  # scored by themselves, and taken from the scores of all
def test_candidates_may_stand_after_several_states_each(count: int) -> None:
    shape = T5Shape.for_docids(30, 200, d_model=16, d_kv=4, heads=4, d_ff=8, encoder_layers=1, decoder_layers=1)
    model = T5(shape).eval()
    generator = Seq2SeqGenerator(model, lambda _: (torch.zeros(1, 1), torch.ones(1, 1)))
    hidden, candidates = torch.randn(3, 4, 16), torch.randint(200, (3, count))
    found = generator.logits(hidden, candidates)
    expected = torch.stack([model.logits(states)[:, some] for states, some in zip(hidden, candidates, strict=True)])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
