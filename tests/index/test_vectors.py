"""Vector indexes against every product in turn and against faiss, on random vectors and random changes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.index import oracle
from tests.index.oracle import broken, save
from triever import artifact
from triever import changes as changes_module
from triever.errors import ArtifactError, MissingExtra, UsageError
from triever.index import checks, finders
from triever.index import vectors as module
from triever.index.vectors import IndexOptions, VectorIndex

WIDTH = 4
# Small whole numbers: products are exact in every order of adding, and many are the same.
vector = st.lists(st.integers(-3, 3), min_size=WIDTH, max_size=WIDTH)


def array(listed: list[list[int]]) -> np.ndarray:
    return np.array(listed, "float32").reshape(-1, WIDTH)


some = st.lists(vector, max_size=24).map(array)
many = st.integers(0, 40).flatmap(lambda size: st.lists(vector, min_size=size, max_size=size)).map(array)
questions = st.lists(vector, min_size=1, max_size=5).map(array)

# All of them look at everything that so few vectors are, so that they have to find the best.
EXACT = {
    "flat": IndexOptions(),
    "half": IndexOptions(dtype="float16"),
    "hnsw": IndexOptions(kind="hnsw", ef_search=500, ef_construction=500),
    "ivfpq": IndexOptions(kind="ivfpq", nbits=4, pq_m=2, nlist=2, nprobe=2, rescore=1000),
}


def same(index: VectorIndex, vectors: np.ndarray, queries: np.ndarray, k: int) -> None:
    """The right scores, at rows that have them; where the search is exact, at the first such rows."""
    scores, rows = index.search(queries, k)
    expected, at = oracle.inner_products(vectors, queries, k)
    assert scores.dtype == np.float32
    assert len(index) == len(vectors)
    np.testing.assert_array_equal(scores, expected)
    if index.finder is None:
        np.testing.assert_array_equal(rows, at)
    for query, found, score in zip(queries, rows, scores, strict=True):
        there = found[found >= 0]
        assert len(set(there)) == len(there) == min(k, len(vectors))
        np.testing.assert_array_equal(vectors[there] @ query, score[: len(there)])


def same_sum(index: VectorIndex, vectors: np.ndarray, queries: np.ndarray) -> None:
    """The sum over every vector, one after the other."""
    expected = [
        np.logaddexp.reduce([float(vector @ query) / 0.5 for vector in vectors] or [-np.inf]) for query in queries
    ]
    np.testing.assert_allclose(index.log_sum_exp(queries, 0.5), expected, atol=1e-9)


@settings(max_examples=150)
@given(vectors=some, queries=questions, k=st.integers(1, 25))
def test_flat_is_every_product_sorted(vectors: np.ndarray, queries: np.ndarray, k: int) -> None:
    same(VectorIndex.of(vectors), vectors, queries, k)


@given(vectors=some, queries=questions, k=st.integers(1, 8))
def test_chunks_change_nothing(vectors: np.ndarray, queries: np.ndarray, k: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for one in (module, checks):
            patch.setattr(one, "CHUNK", 12)  # three vectors
        patch.setattr(module, "QUERIES", 2)
        same(VectorIndex.of(vectors), vectors, queries, k)
        same_sum(VectorIndex.of(vectors), vectors, queries)


def test_flat_is_the_flat_index_of_faiss() -> None:
    vectors, queries = oracle.clustered(3000, 24), oracle.clustered(40, 24, seed=1)
    judge = faiss.IndexFlatIP(24)
    judge.add(vectors)
    expected, at = judge.search(queries, 15)
    scores, rows = VectorIndex.of(vectors).search(queries, 15)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    np.testing.assert_array_equal(rows, at)


def test_half_precision_is_that_of_the_vectors_not_of_the_sums() -> None:
    vectors, queries = oracle.clustered(500, 64), oracle.clustered(5, 64, seed=1)
    scores, rows = VectorIndex.of(vectors, IndexOptions(dtype="float16")).search(queries, 9)
    expected, at = oracle.inner_products(vectors.astype("float16"), queries, 9)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    np.testing.assert_array_equal(rows, at)


# A step adds some vectors, or deletes where the marks say so: mostly few, so that what is left stays masked.
marks = st.lists(st.sampled_from([True, True, False]), min_size=1, max_size=9).map(lambda keep: [True, *keep, False])
steps = st.lists(st.one_of(some, marks), min_size=1, max_size=5)


def kept(marked: list[bool], count: int) -> np.ndarray:
    """The marks, again and again, as a mask of that many rows."""
    return np.resize(np.array(marked), count)


@pytest.mark.parametrize("kind", EXACT)
@given(start=many, changes=steps, queries=questions, k=st.integers(1, 9), annex=st.sampled_from([1000, 3, 0]))
def test_any_adds_and_deletes_equal_a_rebuild(
    kind: str, start: np.ndarray, changes: list[Any], queries: np.ndarray, k: int, annex: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes_module, "ANNEX", annex)
        patch.setattr(finders, "TRAINING", 1)  # sixteen vectors are enough for lists
        index, left = VectorIndex.of(start, EXACT[kind]), start
        for change in changes:
            before, was = index, left
            if isinstance(change, np.ndarray):
                index, left = index.with_added(change), np.concatenate([left, change])
            else:
                keep = kept(change, len(left))
                index, left = index.without(keep), left[keep]
            same(index, left, queries, k)
            same(before, was, queries, k)  # the old value has not changed
        same_sum(index, left, queries)
        np.testing.assert_array_equal(index.vectors(), left)
        rows = np.arange(len(left))[::-2]
        np.testing.assert_array_equal(index.take(rows), left[rows])


def test_the_annex_is_merged_when_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "ANNEX", 10)
    vectors = oracle.clustered(400, 8)
    index = VectorIndex.of(vectors[:320], IndexOptions(kind="hnsw"))
    larger = index.with_added(vectors[320:340])  # a sixteenth of 320 is 20
    assert (len(larger.main), len(larger.annex)) == (320, 20)
    assert larger.finder is index.finder
    merged = larger.with_added(vectors[340:341])
    assert (len(merged.main), len(merged.annex)) == (341, 0)


def test_what_was_deleted_is_taken_out_when_half_is_left() -> None:
    index = VectorIndex.of(oracle.clustered(100, 8), IndexOptions(kind="hnsw"))
    most = index.without(np.arange(100) < 51)
    assert most.finder is index.finder
    half = index.without(np.arange(100) < 50)
    assert (len(half.main), half.changes.alive) == (50, None)


def test_hnsw_finds_most_of_the_nearest() -> None:
    vectors, queries = oracle.clustered(4000, 32), oracle.clustered(100, 32, seed=0)
    exact = VectorIndex.of(vectors).search(queries, 10)[1]
    graph = VectorIndex.of(vectors, IndexOptions(kind="hnsw", hnsw_m=16, ef_construction=80, ef_search=64))
    assert oracle.recall(graph.search(queries, 10)[1], exact) >= 0.95


def test_ivfpq_finds_most_of_the_nearest_once_rescored() -> None:
    vectors, queries = oracle.clustered(4000, 32), oracle.clustered(100, 32, seed=0)
    scores, rows = VectorIndex.of(vectors).search(queries, 10)
    index = VectorIndex.of(vectors, IndexOptions(kind="ivfpq", nbits=4, rescore=200))
    assert index.finder is not None
    found, at = index.search(queries, 10)
    assert oracle.recall(at, rows) >= 0.9
    right = at == rows
    np.testing.assert_allclose(found[right], scores[right], atol=1e-6)
    by_codes = replace(index, options=replace(index.options, rescore=0))
    assert oracle.recall(by_codes.search(queries, 10)[1], rows) < oracle.recall(at, rows)


@pytest.mark.parametrize("options", [IndexOptions(kind="hnsw"), IndexOptions(kind="ivfpq", nbits=4, nprobe=1)])
def test_k_come_back_while_k_are_alive(options: IndexOptions) -> None:
    vectors, queries = oracle.clustered(1000, 16), oracle.clustered(20, 16, seed=0)
    keep = np.arange(1000) % 5 < 3
    index = VectorIndex.of(vectors, options).without(keep)
    assert index.finder is not None
    for k in (10, 599, 700):
        _, rows = index.search(queries, k)
        assert ((rows >= 0).sum(1) == min(k, 600)).all()
        assert rows.max() < 600
    assert all(len(set(row)) == 599 for row in index.search(queries, 599)[1])
    # What lies nearest to a query is deleted: the next ones come instead.
    gone = index.without(~np.isin(np.arange(600), index.search(queries[:1], 100)[1][0]))
    expected = VectorIndex.of(gone.vectors()).search(queries[:1], 5)[1]
    assert oracle.recall(gone.search(queries[:1], 5)[1], expected) > 0.5


def test_too_few_vectors_for_codes_are_compared_one_by_one() -> None:
    vectors = oracle.clustered(300, 16)
    assert VectorIndex.of(vectors, IndexOptions(kind="ivfpq")).finder is None
    assert VectorIndex.of(vectors[:0], IndexOptions(kind="hnsw")).finder is None
    assert finders._list_count(10**6, 0) == 2048
    assert finders._list_count(1000, 4096) == 1000 // 39
    assert finders._piece_count(384, 0) == 96
    assert finders._piece_count(7, 0) == 1


def test_bytes_are_those_of_what_a_search_reads() -> None:
    vectors = oracle.clustered(1000, 16)
    flat, half = VectorIndex.of(vectors), VectorIndex.of(vectors, IndexOptions(dtype="float16"))
    assert (flat.bytes, half.bytes) == (1000 * 16 * 4, 1000 * 16 * 2)
    assert flat.with_added(vectors[:10]).bytes == 1010 * 16 * 4
    lists = VectorIndex.of(vectors, IndexOptions(kind="ivfpq", nbits=4, pq_m=4, nlist=8))
    assert lists.bytes == 1000 * (2 + 8) + 4 * 16 * (8 + 16)
    graph = VectorIndex.of(vectors, IndexOptions(kind="hnsw", hnsw_m=8))
    assert graph.bytes > flat.bytes + 1000 * 4 * 16


@pytest.mark.parametrize("kind", EXACT)
def test_a_saved_index_answers_as_before(kind: str, tmp_path: Path) -> None:
    vectors, queries = oracle.clustered(900, 8), oracle.clustered(9, 8, seed=3)
    keep = np.arange(920) % 3 > 0
    index = VectorIndex.of(vectors, EXACT[kind]).with_added(oracle.clustered(20, 8, seed=5)).without(keep)
    save(index, tmp_path)
    with artifact.read(tmp_path) as snapshot:
        again = VectorIndex.read(snapshot)
    assert isinstance(again.main.array, np.memmap)
    assert (again.finder is None) == (index.finder is None)
    assert len(again) == len(index)
    for one, other in zip(again.search(queries, 12), index.search(queries, 12), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    more = again.with_added(queries).without(np.arange(len(again) + 9) > 50)
    expected = VectorIndex.of(more.vectors()).search(queries, 3)[1]
    assert oracle.recall(more.search(queries, 3)[1], expected) > 0.9


def test_what_was_saved_for_a_gpu_opens_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = oracle.clustered(30, 8)
    index = VectorIndex.of(vectors)
    with monkeypatch.context() as gpu:
        gpu.setattr(torch.cuda, "is_available", lambda: True)
        gpu.setattr(torch.cuda, "device_count", lambda: 1)
        save(replace(index, options=IndexOptions(device="cuda")), tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with artifact.read(tmp_path) as snapshot:
        again = VectorIndex.read(snapshot)
    assert "no CUDA device is here: the cpu is used instead" in caplog.text
    np.testing.assert_array_equal(again.search(vectors, 3)[1], index.search(vectors, 3)[1])
    assert len(again.without(np.arange(30) < 3)) == 3  # which builds it anew
    with pytest.raises(UsageError, match="no CUDA device is here"):
        VectorIndex.of(vectors, IndexOptions(device="cuda"))


def test_arrays_that_would_lead_faiss_astray_are_refused(tmp_path: Path) -> None:
    vectors = oracle.clustered(900, 8)
    graph = VectorIndex.of(vectors, IndexOptions(kind="hnsw", hnsw_m=4))
    lists = VectorIndex.of(vectors, EXACT["ivfpq"])
    assert graph.finder is not None
    assert lists.finder is not None
    levels, neighbours = graph.finder.arrays().values()
    top = int(levels.argmax())  # its links of the highest layer come last
    end = int((4 * (levels[: top + 1].astype(int) + 1)).sum())
    low = int(levels.argmin())
    codes = lists.finder.arrays()
    bad: list[tuple[VectorIndex, dict[str, np.ndarray], str]] = [
        (graph, {"neighbours": broken(neighbours, 0, 900)}, "a link that leads nowhere"),
        (graph, {"neighbours": broken(neighbours, 0, -2)}, "a link that leads nowhere"),
        (graph, {"neighbours": broken(neighbours, end - 1, low)}, "a link to a layer that is not there"),
        (graph, {"neighbours": neighbours[:-1]}, "neighbours of another shape"),
        (graph, {"levels": broken(levels, 0, 0)}, "impossible layers"),
        (graph, {"levels": broken(levels, 0, int(levels[0]) + 1)}, "another number of links"),
        (graph, {"main": vectors[:-1]}, "main of another shape"),
        (graph, {"main": vectors.astype("float64")}, "vectors that are not float32"),
        (lists, {"members": broken(codes["members"], 0, 900)}, "other members in its lists"),
        (lists, {"members": broken(codes["members"], 0, codes["members"][1])}, "other members in its lists"),
        (lists, {"sizes": broken(codes["sizes"], 0, 0)}, "lists of other sizes"),
        (lists, {"codes": codes["codes"].astype("int8")}, "other codes"),
    ]
    for index, changed, problem in bad:
        save(index, tmp_path, **changed)
        with artifact.read(tmp_path) as snapshot, pytest.raises(ArtifactError, match=problem):
            VectorIndex.read(snapshot)


def test_without_faiss_the_line_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    vectors = oracle.clustered(50, 8)
    assert len(VectorIndex.of(vectors).search(vectors[:1], 3)[1][0]) == 3
    with pytest.raises(MissingExtra, match="run: pip install faiss-cpu"):
        VectorIndex.of(vectors, IndexOptions(kind="hnsw"))


def test_mistakes_are_said_in_one_sentence() -> None:
    vectors = oracle.clustered(50, 8)
    index = VectorIndex.of(vectors)
    mistakes = {
        "the vectors have the shape": lambda: VectorIndex.of(vectors[0]),
        "not finite as float32": lambda: VectorIndex.of(np.full((2, 3), np.nan)),
        "not finite as float16": lambda: VectorIndex.of(np.full((2, 3), 1e6), IndexOptions(dtype="float16")),
        "queries have 7 numbers": lambda: index.search(vectors[:, :7], 3),
        "new vectors have 7 numbers": lambda: index.with_added(vectors[:, :7]),
        "k = 0 should be at least 1": lambda: index.search(vectors, 0),
        "temperature = 0 should be above zero": lambda: index.log_sum_exp(vectors, 0),
        "give 50 values, true or false": lambda: index.without(np.ones(49, bool)),
        "did you mean hnsw": lambda: IndexOptions(kind="hnws"),  # type: ignore[invalid-argument-type]
        "nbits = 9": lambda: IndexOptions(nbits=9),
        "ef_search = 0": lambda: IndexOptions(ef_search=0),
        "pq_m = 3 does not divide": lambda: finders._piece_count(8, 3),
    }
    for problem, mistake in mistakes.items():
        with pytest.raises(UsageError, match=problem):
            mistake()
