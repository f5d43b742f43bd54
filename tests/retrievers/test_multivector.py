"""Late interaction: the contract, scores by brute force, compression, explanations that add up."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

import triever
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import disk_arrays
from triever.index.token_vectors import TokenOptions
from triever.retrievers.multivector import MultiVector
from triever.training.pairs import Negatives
from triever.training.tuning import Tuning

SMALL = "scratch:hidden=64,layers=1,heads=2,vocabulary=600"


class TestMultiVector(Contract):
    def make(self) -> triever.Retriever:
        return MultiVector(backbone=SMALL, size=32)


class TestCompressed(Contract):
    def make(self) -> triever.Retriever:
        return MultiVector(backbone=SMALL, size=32, index=TokenOptions(bits=4, score="avgmax"))


def naive(retriever: MultiVector, query: str, document: str, *, punctuation: bool) -> float:
    """One text at a time, one token at a time."""
    encoder = retriever.engine.encoder
    skipped = set() if punctuation else set(encoder.tokenizer.punctuation())
    with torch.inference_mode():
        vectors = []
        for text in (query, document):
            ids = torch.tensor(encoder.tokenizer.ids([text], 256))
            states = encoder.module(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
            found = encoder.projection(states)
            vectors.append((found / found.norm(dim=1, keepdim=True)).numpy())
    kept = [number not in skipped for number in encoder.tokenizer.ids([document], 256)[0]]
    return float(sum(max(float(one @ other) for other in vectors[1][kept]) for one in vectors[0]))


@pytest.mark.parametrize(("punctuation", "projection"), [(True, "linear"), (False, "two-layer")])
def test_scores_are_sums_of_best_matches(punctuation: bool, projection: Literal["linear", "two-layer"]) -> None:
    retriever = MultiVector(backbone=SMALL, size=32, punctuation=punctuation, projection=projection).fit(dataset())
    assert len([*retriever.engine.encoder.projection.modules()]) == (1 if projection == "linear" else 4)
    texts = {document.id: document.full_text for document in DOCUMENTS}
    for query in QUERIES:
        for hit in retriever.search(query, 10):
            expected = naive(retriever, query.text, texts[hit.id], punctuation=punctuation)
            assert hit.score == pytest.approx(expected, abs=0.02)  # vectors are kept in 16 bits


@pytest.mark.parametrize("score", ["maxsim", "avgmax"])
def test_parts_of_an_explanation_add_up_to_the_score(score: str) -> None:
    retriever = MultiVector(backbone=SMALL, index=TokenOptions(score=score)).fit(dataset())
    explanation = retriever.explain("boiling water, boiling water", 3)
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score, abs=1e-2)


def test_no_queries_have_no_results() -> None:
    for index in (TokenOptions(), TokenOptions(candidates=2)):
        late = MultiVector(backbone=SMALL, size=32, index=index).fit(dataset())
        assert late.engine.search(late.documents, [], 5) == []


@pytest.mark.parametrize("bits", [16, 4])
def test_vectors_for_which_memory_is_too_small_are_laid_into_a_file(
    bits: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders: list[Any] = []
    nameless = disk_arrays.nameless

    def spied(folder: Any, *more: Any) -> np.ndarray:
        folders.append(folder)
        return nameless(folder, *more)

    def fitted(work: Path) -> MultiVector:
        tuning = Tuning(steps=2, batch=4, rounds=2, holdout=0.3)
        negatives = Negatives(count=1, source="model")
        late = MultiVector(backbone=SMALL, size=32, index=TokenOptions(bits=bits), training=tuning, negatives=negatives)
        return late.fit(dataset(), work=work)

    monkeypatch.setattr(disk_arrays, "nameless", spied)
    in_memory = fitted(tmp_path / "one")
    assert not folders
    monkeypatch.setattr(disk_arrays, "IN_MEMORY", 2000)
    mapped = fitted(tmp_path / "other")
    assert set(folders) == {tmp_path / "other"}
    assert len(folders) >= 3, "for the index, and for what is mined before both rounds"
    assert {path.name for path in (tmp_path / "other").iterdir()} == {
        path.name for path in (tmp_path / "one").iterdir()
    }
    assert mapped.search_many(QUERIES, 5) == in_memory.search_many(QUERIES, 5)
    if bits == 16:
        packed = mapped.engine.index.main.part.packed
        assert isinstance(packed.base, np.memmap | mmap.mmap)
    mapped.save(tmp_path / "model")
    assert triever.load(tmp_path / "model").search_many(QUERIES, 5) == in_memory.search_many(QUERIES, 5)


def test_a_disk_without_room_for_the_vectors_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(disk_arrays, "IN_MEMORY", 0)
    monkeypatch.setattr(disk_arrays.os, "posix_fallocate", raise_full, raising=False)
    with pytest.raises(triever.DataError, match=r"GiB cannot be stored in .*No space left"):
        MultiVector(backbone=SMALL).fit(dataset(), work=tmp_path)


def raise_full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_what_was_saved_for_a_gpu_works_without_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    late = MultiVector(backbone=SMALL, size=32).fit(dataset())
    late.device = "cuda"  # as a machine with one would have saved it
    late.save(tmp_path / "model")
    again = triever.load(tmp_path / "model")
    assert caplog.text.count("device = 'cuda', but no CUDA device is here: the cpu is used instead") == 1
    assert again.search_many(QUERIES, 5) == late.search_many(QUERIES, 5)
    again.delete([document.id for document in DOCUMENTS[:6]])
    again.add(DOCUMENTS[:1])
    assert again.search("boiling water for tea leaves", 1)[0].id == "tea"
    assert isinstance(again, MultiVector)
    assert len(again.reindexed(bits=4)) == 5
    with pytest.raises(triever.UsageError, match="no CUDA device is here"):
        MultiVector(backbone=SMALL, device="cuda").fit(dataset())


def test_queries_may_be_filled_up_with_masks() -> None:
    plain, filled = (MultiVector(backbone=SMALL, augment=augment, query_length=16) for augment in (False, True))
    encoder = filled.fit(dataset()).engine.encoder
    tokens = filled.reading.queries(encoder, ["tea", "boiling water"])
    assert tokens.lengths.tolist() == [16, 16]
    assert set(tokens[0].tolist()[-5:]) == {encoder.tokenizer.number("[MASK]")}
    assert plain.fit(dataset()).search("tea")[0].score < filled.search("tea")[0].score


def test_training_finds_what_it_was_shown() -> None:
    tuning = Tuning(steps=40, batch=4, rounds=2, learning_rate=2e-3, holdout=0.0)
    negatives = Negatives(count=1, source="model", depth=5)
    trained = MultiVector(backbone=SMALL, size=32, training=tuning, negatives=negatives).fit(dataset())
    first = [result[0].id for result in trained.search_many(QUERIES, 1)]
    assert first == ["tea", "bike", "東京", "bread"]


def test_fewer_bits_are_fewer_bytes() -> None:
    sizes = []
    for bits in (16, 4, 2):
        engine = MultiVector(backbone=SMALL, size=32, index=TokenOptions(bits=bits)).fit(dataset()).engine
        sizes.append(engine.index.info()["bytes"])
    assert np.all(np.diff(sizes) < 0)
