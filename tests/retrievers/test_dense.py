"""Dense retrieval: the contract, scores by brute force, training that helps, explanations that add up."""

from __future__ import annotations

import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import triever
from tests.marks import quick
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import disk_arrays
from triever.index.vectors import IndexOptions, VectorIndex
from triever.learning import encoders as encoding
from triever.retrievers.dense import Dense
from triever.training.pairs import Negatives
from triever.training.tuning import Tuning

SMALL = "scratch:hidden=64,layers=1,heads=2,vocabulary=600"
LEARN = Tuning()  # as it comes: random vectors for words find equal words already


class TestDense(Contract):
    def make(self) -> triever.Retriever:
        return Dense(backbone=SMALL, training=LEARN)


class TestGraph(Contract):
    def make(self) -> triever.Retriever:
        return Dense(backbone=SMALL, training=LEARN, index=IndexOptions(kind="hnsw"))


class TestCodes(Contract):
    def make(self) -> triever.Retriever:
        return Dense(backbone=SMALL, training=LEARN, index=IndexOptions(kind="ivfpq", rescore=100))


def test_scores_are_cosines_of_the_vectors() -> None:
    dense = Dense(backbone=SMALL).fit(dataset())
    engine = dense.engine
    texts = [document.full_text for document in DOCUMENTS] + [query.text for query in QUERIES]
    with torch.inference_mode():
        vectors = []
        for text in texts:  # one at a time: no padding, no batches
            ids = torch.tensor(engine.encoder.tokenizer.ids([text], 256))
            state = engine.encoder.module(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
            vectors.append((state.mean(0) / state.mean(0).norm()).numpy())
    documents, queries = np.stack(vectors[: len(DOCUMENTS)]), np.stack(vectors[len(DOCUMENTS) :])
    for result, expected in zip(dense.search_many(QUERIES, 10), queries @ documents.T, strict=True):
        found = {hit.id: hit.score for hit in result}
        assert [found[document.id] for document in DOCUMENTS] == pytest.approx(expected.tolist(), abs=1e-4)


def test_parts_of_an_explanation_add_up_to_the_score() -> None:
    explanation = Dense(backbone=SMALL).fit(dataset()).explain("boiling water, boiling water", 3)
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score, abs=1e-4)
        assert len(dict(parts)) == len(parts)


def test_an_explanation_fetches_only_the_vectors_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = Dense(backbone=SMALL).fit(dataset())
    dense.delete(["coffee", "tides"])
    dense.add([triever.Document("kettle", "Boiling water in a kettle.")])
    monkeypatch.setattr(VectorIndex, "vectors", lambda _: pytest.fail("all of them were copied"))
    explanation = dense.explain("boiling water", 9)
    assert {"kettle", "tea", "empty"} <= {hit.id for hit in explanation.result}
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score, abs=1e-4)


def test_no_queries_have_no_results() -> None:
    dense = Dense(backbone=SMALL).fit(dataset())
    assert dense.engine.search(dense.documents, [], 5) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize("options", [{"device": "cuda"}, {"index": IndexOptions(device="cuda")}], ids=str)
def test_a_device_that_is_not_here_is_said_before_anything_is_learned(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "load_backbone", lambda *_, **__: pytest.fail("something was learned"))
    with pytest.raises(triever.UsageError, match="device = 'cuda', but no CUDA device is here; use device=cpu"):
        Dense(backbone=SMALL, **options).fit(dataset())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_what_was_saved_for_a_gpu_works_without_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dense = Dense(backbone=SMALL).fit(dataset())
    dense.device = "cuda"  # as a machine with one would have saved it
    dense.index = replace(dense.index, device="cuda")
    dense.save(tmp_path / "model")
    again = triever.load(tmp_path / "model")
    assert caplog.text.count("device = 'cuda', but no CUDA device is here: the cpu is used instead") == 2
    assert again.search_many(QUERIES, 5) == dense.search_many(QUERIES, 5)
    again.delete([document.id for document in DOCUMENTS[:6]])  # of more than half: the index is built anew
    again.add(DOCUMENTS[:1])
    assert again.explain("boiling water for tea leaves", 1).result[0].id == "tea"
    again.save(tmp_path / "model")
    for one in (again, triever.load(tmp_path / "model")):
        assert one.card.count("| device | cuda |") == 1, "a machine with a GPU will use it again"


@pytest.mark.parametrize("source", quick("model", of=["bm25", "model"]))
def test_training_finds_what_it_was_shown(source: str) -> None:
    tuning = Tuning(steps=30, batch=4, rounds=3, learning_rate=2e-3, holdout=0.0)
    negatives = Negatives(count=2, source=source, hard=0.5, depth=5)
    trained = Dense(backbone=SMALL, training=tuning, negatives=negatives).fit(dataset())
    first = [result[0].id for result in trained.search_many(QUERIES, 1)]
    assert first == ["tea", "bike", "東京", "bread"]


def test_a_projection_gives_vectors_of_its_size() -> None:
    dense = Dense(backbone=SMALL, size=24, pooling="first", unit=False).fit(dataset())
    assert dense.engine.index.width == 24
    assert all(len(parts) == 1 for parts in dense.explain("tea", 2).parts)


def test_blending_all_the_way_leaves_the_backbone_as_it_came() -> None:
    plain = Dense(backbone=SMALL).fit(dataset())
    blended = Dense(backbone=SMALL, training=Tuning(steps=5, batch=4, holdout=0.0, blend=1.0)).fit(dataset())
    assert plain.search_many(QUERIES, 5) == blended.search_many(QUERIES, 5)


def test_a_missing_split_is_said() -> None:
    with pytest.raises(triever.UsageError, match="no split 'trian'; did you mean train"):
        Dense(backbone=SMALL, training=Tuning(steps=1, split="trian")).fit(dataset())


def test_the_card_says_whose_weights_and_how_the_training_went(tmp_path: Path) -> None:
    tuning = Tuning(steps=2, batch=2, holdout=0.5)
    dense = Dense(backbone=SMALL, training=tuning).fit(dataset())
    dense.save(tmp_path / "model")
    for card in (dense.card, triever.load(tmp_path / "model").card):
        assert "Weights: nothing pretrained" in card
        assert "| trained steps | 2 |" in card
        assert "held-out RR@10" in card


def test_vectors_for_which_memory_is_too_small_lie_in_a_file_and_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = Dense(backbone=SMALL).fit(dataset())
    monkeypatch.setattr(disk_arrays, "IN_MEMORY", 64)
    mapped = Dense(backbone=SMALL).fit(dataset(), work=tmp_path / "work")
    assert isinstance(mapped.engine.index.vectors().base, np.memmap | mmap.mmap)
    assert mapped.search_many(QUERIES, 5) == in_memory.search_many(QUERIES, 5)
    mapped.save(tmp_path / "model")
    assert triever.load(tmp_path / "model").search_many(QUERIES, 5) == in_memory.search_many(QUERIES, 5)
