"""Encoders against sums written out, and against transformers' own states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.models.test_backbones import KINDS, folders, needs_minilm  # noqa: F401 - a fixture
from triever import artifact
from triever.errors import ArtifactError, UsageError
from triever.models import encoder as encoders
from triever.models import precision
from triever.models.backbones import load_backbone
from triever.models.encoder import Encoder, EncoderShape, encode, encode_tokens, pooled
from triever.models.tokens import Tokens, in_pieces

TEXTS = ["the fox", "who reads this, and why? the quick brown fox", "", "東京", "a lazy dog. " * 3, "numbers 1 2 3"]


@pytest.fixture(params=list(KINDS))
def backbone(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Any:  # noqa: F811 - the fixture
    return load_backbone(str(folders[request.param]))


@pytest.fixture
def scratch() -> Encoder:
    torch.manual_seed(0)
    return Encoder(load_backbone("scratch:hidden=32,layers=2", texts=TEXTS)).eval()


def tokens_of(encoder: Encoder, texts: list[str] = TEXTS) -> Tokens:
    return Tokens.of(texts, encoder.tokenizer, 24)


def test_pooling_is_the_sum_written_out() -> None:
    states = torch.tensor([[[1.0, 2], [3, 4], [9, 9]], [[5, 6], [9, 9], [9, 9]]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert pooled(states, mask, "mean").tolist() == [[2, 3], [5, 6]]
    assert pooled(states, mask, "first").tolist() == [[1, 2], [5, 6]]
    assert pooled(states, mask, "last").tolist() == [[3, 4], [5, 6]]
    broken = torch.full((1, 2, 2), torch.nan)
    for how in ("mean", "first", "last"):
        assert pooled(broken, torch.zeros(1, 2, dtype=torch.int64), how).tolist() == [[0, 0]]


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_vectors_do_not_depend_on_their_batch(backbone: Any, pooling: Any) -> None:
    encoder = Encoder(backbone, EncoderShape(pooling=pooling)).eval()
    tokens = Tokens.of([text for text in TEXTS if text], encoder.tokenizer, 24)
    alone = []
    with torch.inference_mode():
        for row in range(len(tokens)):
            ids, mask = tokens.padded([row], encoder.tokenizer.pad)
            states = encoder.module(input_ids=ids, attention_mask=mask).last_hidden_state[0]
            vector = {"mean": states.mean(0), "first": states[0], "last": states[-1]}[pooling]
            alone.append(vector / vector.norm())
    for batch_tokens in (1, 40, 10_000):
        found = encode(encoder, tokens, batch_tokens=batch_tokens)
        np.testing.assert_allclose(found, torch.stack(alone).numpy(), atol=1e-4)


def test_a_few_texts_have_little_padding_on_a_processor(scratch: Encoder) -> None:
    read: list[int] = []
    scratch.module.register_forward_pre_hook(
        lambda _module, _inputs, named: read.append(named["input_ids"].numel()), with_kwargs=True
    )
    tokens = Tokens.from_lists([[1] * length for length in range(1, 129)])  # 8,256 tokens, from short to long
    encode(scratch, tokens, device="cpu")
    assert tokens.lengths.sum() / sum(read) > 0.8  # 0.67 in one batch


@pytest.mark.parametrize("pieces", [2, 4])
def test_what_is_learned_from_a_batch_does_not_depend_on_its_pieces(
    backbone: Any, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder(backbone).train()
    encoder.module.eval()  # without its dropout, which chance decides
    tokens = Tokens.of(["a lazy dog. " * 3, "the fox", "東京", "who reads this, and why?"], encoder.tokenizer, 24)
    ids, mask = tokens.padded(range(4), encoder.tokenizer.pad)
    weights = torch.randn(4, encoder.size)
    read: list[int] = []
    encoder.module.register_forward_pre_hook(
        lambda _module, _, given: read.append(given["input_ids"].numel()), with_kwargs=True
    )

    def learned(most: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        monkeypatch.setattr(encoders, "PIECES", most)
        encoder.zero_grad()
        vectors = encoder(ids, mask)
        (vectors * weights).sum().backward()
        return vectors.detach(), [one.grad.clone() for one in encoder.parameters() if one.grad is not None]

    whole, gradients = learned(1)
    assert read == [ids.numel()]
    found, theirs = learned(pieces)
    assert len(read) == 1 + len(in_pieces(tokens.lengths, pieces)) > 2
    assert sum(read[1:]) < ids.numel()
    torch.testing.assert_close(found, whole, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(theirs, gradients, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("rows", "device", "most"), [(64, "meta", 2), (256, "meta", 4), (900, "meta", 4), (2, "cpu", 4)]
)
def test_a_gpu_is_given_more_pieces_where_all_of_them_are_large(rows: int, device: str, most: int) -> None:
    assert encoders._most_pieces(torch.empty(rows, 512, device=device)) == most


def test_causal_backbones_pool_the_last_token(backbone: Any) -> None:
    assert Encoder(backbone).shape.pooling == ("last" if backbone.causal else "mean")


@pytest.mark.parametrize(("projection", "tensors"), [("linear", 1), ("two-layer", 4)])
def test_projections(scratch: Encoder, projection: Any, tensors: int) -> None:
    encoder = Encoder(scratch.backbone, EncoderShape(size=8, projection=projection, unit=False)).eval()
    ids, mask = tokens_of(encoder).padded([0, 1])
    with torch.inference_mode():
        expected = encoder.projection(pooled(encoder.states(ids, mask), mask, "mean"))
        found = encoder(ids, mask)
    assert found.shape == (2, 8)
    torch.testing.assert_close(found, expected)
    assert len(list(encoder.projection.parameters())) == tensors


def test_a_projection_learns() -> None:
    encoder = Encoder(
        load_backbone("scratch:hidden=32,layers=1", texts=TEXTS), EncoderShape(size=8, projection="linear")
    )
    encoder(*tokens_of(encoder).padded([0, 1])).sum().backward()
    assert [name for name, parameter in encoder.named_parameters() if parameter.grad is None] == []


def test_token_vectors_have_length_one_or_none(scratch: Encoder) -> None:
    ids, mask = tokens_of(scratch).padded(range(len(TEXTS)))
    with torch.inference_mode():
        vectors = scratch.token_vectors(ids, mask)
        states = functional.normalize(scratch.states(ids, mask), dim=-1)
    assert vectors.shape == (*ids.shape, 32)
    torch.testing.assert_close(vectors.norm(dim=-1), mask.float())
    torch.testing.assert_close(vectors[mask == 1], states[mask == 1])


@pytest.mark.parametrize("batch_tokens", [1, 50, 10_000])
@pytest.mark.parametrize("skip", [True, False])
def test_token_vectors_of_a_corpus(scratch: Encoder, tmp_path: Path, batch_tokens: int, skip: bool) -> None:
    tokens = tokens_of(scratch)
    keep = tokens.keep(scratch.tokenizer.punctuation()) if skip else None
    options: Any = {"keep": keep, "batch_tokens": batch_tokens}
    flat, starts = encode_tokens(scratch, tokens, **options)
    mapped, again = encode_tokens(scratch, tokens, file=tmp_path / "vectors.npy", **options)
    assert flat.dtype == np.float16
    assert starts[-1] == len(flat) == (keep.sum() if keep is not None else len(tokens.flat))
    np.testing.assert_array_equal(mapped, flat)
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), flat)
    np.testing.assert_array_equal(starts, again)
    for row in range(len(tokens)):
        with torch.inference_mode():
            vectors = scratch.token_vectors(*tokens.padded([row]))[0].numpy()
        wanted = vectors if keep is None else vectors[keep[tokens.starts[row] : tokens.starts[row + 1]]]
        np.testing.assert_allclose(flat[starts[row] : starts[row + 1]], wanted, atol=2e-3)


def test_many_rows_cross_the_chunks_of_kept_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "BATCH_ROWS", 3)
    chance = np.random.default_rng(0)
    tokens = Tokens.from_lists([[1] * int(length) for length in chance.integers(0, 4, 20)])
    keep = chance.random(len(tokens.flat)) < 0.5
    counts = [keep[tokens.starts[row] : tokens.starts[row + 1]].sum() for row in range(20)]
    assert encoders._kept_starts(tokens, keep).tolist() == np.concatenate([[0], np.cumsum(counts)]).tolist()


def test_keep_must_be_of_these_tokens(scratch: Encoder) -> None:
    with pytest.raises(UsageError, match="keep has 2 values"):
        encode_tokens(scratch, tokens_of(scratch), keep=np.ones(2, bool))


def test_no_texts_give_no_vectors(scratch: Encoder, tmp_path: Path) -> None:
    tokens = tokens_of(scratch, [])
    assert encode(scratch, tokens).shape == (0, 32)
    for file in (None, tmp_path / "none.npy"):
        flat, starts = encode_tokens(scratch, tokens, file=file)
        assert flat.shape == (0, 32)
        assert starts.tolist() == [0]


def test_a_row_without_tokens_has_finite_vectors(scratch: Encoder) -> None:
    assert np.isfinite(encode(scratch, Tokens.from_lists([[], [1, 5, 2]]))).all()


def test_encoding_does_not_end_training(scratch: Encoder) -> None:
    scratch.train()
    tokens = tokens_of(scratch)
    first, second = encode(scratch, tokens), encode(scratch, tokens)
    np.testing.assert_array_equal(first, second)  # no dropout
    assert scratch.training


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # on a processor without bfloat16
def test_half_precision_is_near(scratch: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tokens_of(scratch)
    expected = encode(scratch, tokens)
    monkeypatch.setattr(precision, "fast_dtype", lambda _device: torch.bfloat16)
    found = encode(scratch, tokens, device="cpu")
    assert found.dtype == np.float32
    assert ((found * expected).sum(1) > 0.99).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_texts_that_are_too_long_are_refused(folders: dict[str, Path]) -> None:  # noqa: F811 - the fixture
    encoder = Encoder(load_backbone(str(folders["bert"])))
    tokens = Tokens.of(["fox " * 25_000], encoder.tokenizer, 65)
    with pytest.raises(UsageError, match=r"a text has 65 tokens, but .* reads at most 64"):
        encode(encoder, tokens)
    assert encode(encoder, Tokens.of(["fox " * 25_000], encoder.tokenizer, 64)).shape == (1, 32)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 8}, "needs a projection"),
        ({"size": -1}, "size = -1 should not be negative"),
        ({"pooling": "max"}, "is not one of the choices"),
    ],
)
def test_shapes_that_do_not_fit(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EncoderShape(**values)


def put(encoder: Encoder, folder: Path) -> artifact.Snapshot:
    with artifact.writing(folder) as writer:
        encoders.write(encoder, writer)
        writer.commit("toy", {}, {}, "")
    return artifact.read(folder)


def test_an_encoder_comes_back_from_an_artifact(backbone: Any, tmp_path: Path) -> None:
    encoder = Encoder(backbone, EncoderShape(size=8, projection="two-layer"))
    expected = encode(encoder, tokens_of(encoder))
    chance = torch.random.get_rng_state()
    with put(encoder, tmp_path / "model") as snapshot:
        again = encoders.read(snapshot)
    assert torch.equal(torch.random.get_rng_state(), chance)
    assert again.backbone.folder is None  # so nothing outside the artifact was read
    assert again.shape == encoder.shape
    assert not again.training
    np.testing.assert_array_equal(encode(again, tokens_of(again)), expected)


def test_weights_that_do_not_fit_are_refused(scratch: Encoder, tmp_path: Path) -> None:
    with put(scratch, tmp_path / "model"), artifact.writing(tmp_path / "model") as writer:
        encoders.write(scratch, writer)
        writer.tensors("encoder_weights", {"module.strange": torch.zeros(2)})
        writer.commit("toy", {}, {}, "")
    with (
        artifact.read(tmp_path / "model") as snapshot,
        pytest.raises(ArtifactError, match="is not a valid saved encoder"),
    ):
        encoders.read(snapshot)


@needs_minilm
def test_minilm_is_what_sentence_transformers_makes_of_it() -> None:
    from transformers import AutoModel, AutoTokenizer

    from triever.models import weights

    folder = weights.find("minilm")
    texts = ["How do I sort a list?", "Sorting a sequence in place", "東京は日本の首都", "long " * 400]
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        states = model(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None].float()
    expected = functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1).numpy()
    encoder = Encoder(load_backbone("minilm"))
    found = encode(encoder, Tokens.of(texts, encoder.tokenizer, 256), batch_tokens=300)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found[0] @ found[1] > 0.4 > found[0] @ found[2]
