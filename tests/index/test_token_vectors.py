"""Late interaction against one product after the other, on random documents and random changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.index import oracle
from tests.index.oracle import broken, save
from triever import artifact
from triever import changes as changes_module
from triever.arrays import starts_of
from triever.errors import ArtifactError, UsageError
from triever.index import checks, token_lists
from triever.index import codec as codec_module
from triever.index import token_vectors as module
from triever.index.token_lists import TokenLists, blocks
from triever.index.token_vectors import TokenIndex, TokenOptions

WIDTH = 3
# Small whole numbers: products are exact in every order of adding, and many are the same.
token = st.lists(st.integers(-2, 2), min_size=WIDTH, max_size=WIDTH)
document = st.lists(token, max_size=5).map(lambda tokens: np.array(tokens, "float32").reshape(-1, WIDTH))
documents = st.lists(document, max_size=12)
questions = st.lists(document, min_size=1, max_size=4)
EVERYTHING = TokenOptions(candidates=0)


def laid_out(listed: list[np.ndarray], width: int = WIDTH) -> tuple[np.ndarray, np.ndarray]:
    """Documents end to end, and where each begins."""
    return np.concatenate([np.zeros((0, width), "float32"), *listed]), starts_of(np.array([len(one) for one in listed]))


def padded(queries: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Queries as one array with a mask; what the mask hides is loud."""
    length = max(map(len, queries))
    array, mask = np.full((len(queries), length, WIDTH), 99.0, "float32"), np.zeros((len(queries), length), bool)
    for row, query in enumerate(queries):
        array[row, : len(query)], mask[row, : len(query)] = query, True
    return array, mask


def same(index: TokenIndex, listed: list[np.ndarray], queries: list[np.ndarray], k: int) -> None:
    """The scores and rows of the obvious way, and nothing behind them."""
    mean = index.options.score == "avgmax"
    assert len(index) == len(listed)
    for scores, rows, query in zip(*index.search(*padded(queries), k), queries, strict=True):
        expected, at = oracle.late_interaction(listed, query, k, mean=mean)
        np.testing.assert_allclose(scores[: len(at)], expected, atol=1e-5)
        np.testing.assert_array_equal(rows[: len(at)], at)
        assert (rows[len(at) :] == -1).all()
        assert np.isneginf(scores[len(at) :]).all()


@given(listed=documents, queries=questions, k=st.integers(1, 14), score=st.sampled_from(["maxsim", "avgmax"]))
def test_scoring_everything_is_the_obvious_way(
    listed: list[np.ndarray], queries: list[np.ndarray], k: int, score: Any
) -> None:
    same(TokenIndex.of(*laid_out(listed), replace(EVERYTHING, score=score)), listed, queries, k)


@given(listed=documents, queries=questions, k=st.integers(1, 5))
def test_chunks_change_nothing(listed: list[np.ndarray], queries: list[np.ndarray], k: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for one in (module, token_lists, checks):
            patch.setattr(one, "CHUNK", 12)
        patch.setattr(module, "QUERY_TOKENS", 4)
        same(TokenIndex.of(*laid_out(listed), EVERYTHING), listed, queries, k)
        few = TokenIndex.of(*laid_out(listed), TokenOptions(candidates=len(listed), probes=100))
        same(few, listed, queries, k)


def with_near_tokens(listed: list[np.ndarray], query: np.ndarray, count: int) -> set[int]:
    """The documents with a token that is among the `count` nearest of a token of the query; the first of equal ones."""
    owners = [row for row, tokens in enumerate(listed) for _ in tokens]
    flat, _ = laid_out(listed)
    return {owners[at] for token in query for at in np.argsort(-(flat @ token), kind="stable")[:count]}


@given(listed=documents, queries=questions, count=st.integers(1, 6))
def test_documents_with_the_nearest_tokens_are_scored_and_no_others(
    listed: list[np.ndarray], queries: list[np.ndarray], count: int
) -> None:
    index = TokenIndex.of(*laid_out(listed), TokenOptions(tokens=count))
    for query in queries:
        near = with_near_tokens(listed, query, count)
        _, rows = index.search(*padded([query]), 1)
        expected, at = oracle.late_interaction(listed, query, len(listed) + 1, mean=False)
        best = [row for row in at if row in near][:1]
        assert rows[0].tolist() == (best or [-1])
        if len(query):
            everything, _ = index.search(*padded([query]), max(1, len(listed)))
            assert np.isfinite(everything).sum() == len(expected), "more tokens count where too few documents are found"


@given(listed=documents, queries=questions)
def test_candidates_that_leave_nothing_out_change_nothing(listed: list[np.ndarray], queries: list[np.ndarray]) -> None:
    """One candidate less than documents, of which one is empty: all that could be left out has nothing to say."""
    listed = [*listed, np.zeros((0, WIDTH), "float32")]
    options = TokenOptions(candidates=max(1, len(listed) - 1), probes=100)
    same(TokenIndex.of(*laid_out(listed), options), listed, queries, max(1, len(listed) - 1))


# A step adds some documents, or deletes where the marks say so: mostly few, so that what is left stays masked.
marks = st.lists(st.sampled_from([True, True, False]), min_size=1, max_size=7).map(lambda keep: (True, *keep, False))
steps = st.lists(st.one_of(st.lists(document, min_size=1, max_size=6), marks), min_size=1, max_size=4)


def changed(index: TokenIndex, listed: list[np.ndarray], change: Any) -> tuple[TokenIndex, list[np.ndarray]]:
    if isinstance(change, list):
        return index.with_added(*laid_out(change)), [*listed, *change]
    keep = np.resize(np.array(change), len(listed))
    return index.without(keep), [one for one, stays in zip(listed, keep, strict=True) if stays]


@pytest.mark.parametrize("bits", [16, 4])
@given(
    listed=st.lists(document, min_size=8, max_size=20).filter(lambda listed: any(map(len, listed))),
    changes=steps,
    queries=questions,
    k=st.integers(1, 4),
    annex=st.sampled_from([1000, 3, 0]),
    candidates=st.sampled_from([1, 3, 0]),
)
def test_any_adds_and_deletes_equal_a_rebuild_with_the_same_centroids(
    bits: int, listed: list[np.ndarray], changes: list[Any], queries: list, k: int, annex: int, candidates: int
) -> None:
    options = TokenOptions(bits=bits, candidates=candidates, probes=1, centroids=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes_module, "ANNEX", annex)
        index, left = TokenIndex.of(*laid_out(listed), options), listed
        codec = index.codec
        for change in changes:
            before, was = index, index.search(*padded(queries), k)
            index, left = changed(index, left, change)
            rebuilt = TokenIndex.of(*laid_out(left), options, codec)
            equal(index.search(*padded(queries), k), rebuilt.search(*padded(queries), k))
            equal(before.search(*padded(queries), k), was)  # the old value has not changed
        np.testing.assert_array_equal(index.lengths, [len(one) for one in left])
        if bits == 16 and candidates == 0:
            same(index, left, queries, k)


def equal(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> None:
    np.testing.assert_array_equal(one[1], other[1])
    np.testing.assert_allclose(one[0], other[0], atol=1e-5)


def test_k_come_back_while_k_have_tokens() -> None:
    chance = np.random.default_rng(0)
    listed = [oracle.unit(chance.normal(size=(4, WIDTH))) for _ in range(300)]
    listed[::10] = [np.zeros((0, WIDTH), "float32")] * 30
    index = TokenIndex.of(*laid_out(listed), TokenOptions(candidates=1, probes=1)).without(np.arange(300) < 290)
    _, rows = index.search(listed[1][None, :1], None, 250)
    assert (rows >= 0).sum() == 250
    assert not (rows[rows >= 0] % 10 == 0).any(), "a document without tokens"


def test_the_rough_score_is_that_of_listed_tokens_and_at_least_the_last_centroid() -> None:
    flat, starts = oracle.token_corpus(80)
    index = TokenIndex.of(flat, starts, TokenOptions(centroids=64))
    numbers, query = index.main.part.numbers, oracle.token_queries(flat, starts, 1, length=3)[0]
    fits = query @ index.codec.centroids.T
    probed = [sorted(range(64), key=lambda centroid, row=row: -row[centroid])[:3] for row in fits]
    looked_into = {centroid for near in probed for centroid in near}
    expected = {}
    for row, (begin, end) in enumerate(pairwise(starts)):
        tokens = [flat[place] for place in range(begin, end) if numbers[place] in looked_into]
        if tokens:
            expected[row] = sum(
                max(float(row_fits[near[-1]]), *(float(word @ token) for token in tokens))
                for word, row_fits, near in zip(query, fits, probed, strict=True)
            )
    places, rough = index._listed(torch.from_numpy(query), torch.from_numpy(fits), 3)
    assert places.tolist() == list(expected)
    assert len(expected) < 80
    np.testing.assert_allclose(rough.numpy(), list(expected.values()), atol=2e-3)  # the index has half precision


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(6, 8))
def test_lists_hold_every_token_once_and_in_order(numbers: list[int], centroids: int) -> None:
    part = TokenLists.of(
        np.array([0, len(numbers)]), np.array(numbers, np.uint16), np.zeros((len(numbers), 1)), centroids
    )
    lists = [part.listed[begin:end].tolist() for begin, end in pairwise(part.list_starts)]
    assert lists == [[place for place, one in enumerate(numbers) if one == number] for number in range(centroids)]


def test_where_every_document_is_scored_no_clusters_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    kmeans = codec_module.kmeans
    monkeypatch.setattr(
        codec_module, "kmeans", lambda vectors, k, **more: asked.append(k) or kmeans(vectors, k, **more)
    )
    flat, starts = oracle.token_corpus(60)
    for options, most in ((EVERYTHING, 1), (TokenOptions(), 128), (replace(EVERYTHING, bits=4), 128)):
        asked.clear()
        index = TokenIndex.of(flat, starts, options)
        assert (max(asked), len(index.codec.centroids)) == (most, most)
    assert len(TokenIndex.of(flat, starts, replace(EVERYTHING, centroids=7)).codec.centroids) == 7


@pytest.mark.long
def test_candidates_are_the_right_ones_with_the_options_as_they_are() -> None:
    flat, starts = oracle.token_corpus(2000)
    queries = oracle.token_queries(flat, starts, 40)
    index = TokenIndex.of(flat, starts)
    exact = replace(index, options=EVERYTHING).search(queries, None, 10)[1]
    assert oracle.recall(index.search(queries, None, 10)[1], exact) >= 0.9


@pytest.mark.long
@pytest.mark.parametrize("bits", [16, 4, 2])
def test_what_centroids_cannot_tell_apart_is_found(bits: int) -> None:
    """Where candidates were ranked by their centroids, .61 of these documents were found."""
    flat, starts, queries = oracle.families(3000)
    index = TokenIndex.of(flat, starts, TokenOptions(bits=bits, candidates=30, centroids=256))
    exact = replace(index, options=EVERYTHING).search(queries[:40], None, 10)[1]
    assert oracle.recall(index.search(queries[:40], None, 10)[1], exact) >= 0.95


def test_half_precision_is_that_of_the_vectors_not_of_the_sums() -> None:
    flat, starts = oracle.token_corpus(60)
    queries = oracle.token_queries(flat, starts, 3)
    scores, rows = TokenIndex.of(flat, starts, EVERYTHING).search(queries, None, 10)
    kept = [flat[begin:end].astype("float16") for begin, end in pairwise(starts)]
    whole = [flat[begin:end] for begin, end in pairwise(starts)]
    for query, score, found in zip(queries, scores, rows, strict=True):
        expected, at = oracle.late_interaction(kept, query, 10)
        np.testing.assert_allclose(score, expected, atol=1e-5)
        assert found.tolist() == at
        np.testing.assert_allclose(score, oracle.late_interaction(whole, query, 10)[0], atol=1e-2)


@pytest.mark.parametrize("bits", [16, 4, 2])
def test_a_search_scores_as_score_does(bits: int) -> None:
    flat, starts = oracle.token_corpus(400)
    query = oracle.token_queries(flat, starts, 1)
    index = TokenIndex.of(flat, starts, TokenOptions(bits=bits, candidates=50)).without(np.arange(400) % 9 > 0)
    scores, rows = index.search(query, None, 20)
    np.testing.assert_allclose(index.score(query[0], rows[0]), scores[0], atol=1e-5)
    assert (
        index.score(torch.from_numpy(query[0]), rows[0, ::-1]).tolist() == index.score(query[0], rows[0])[::-1].tolist()
    )


def test_matches_say_which_token_fits_and_how_well() -> None:
    listed = [np.eye(3)[[0, 1]], np.zeros((0, 3)), np.eye(3)[[2, 1, 1]]]
    index = TokenIndex.of(*laid_out(listed[:2]), EVERYTHING).with_added(*laid_out(listed[2:]))
    query = np.array([[0, 2, 0], [0, 0, 3], [1, 0, 0]], "float32")
    tokens, fits = index.matches(query, 2)
    assert tokens.tolist() == [1, 0, 0]  # of equal ones the first
    assert fits.tolist() == [2, 3, 0]
    assert fits.sum() == index.score(query, np.array([2]))[0]
    tokens, fits = index.matches(query, 1)
    assert tokens.tolist() == [-1, -1, -1]
    assert np.isneginf(fits).all()
    assert np.isneginf(index.score(query, np.array([1, 1]))).all()


@pytest.mark.parametrize("bits", [16, 4, 2])
def test_without_tokens_there_are_no_hits(bits: int) -> None:
    nothing = np.zeros((0, WIDTH), "float32")
    empty = TokenIndex.of(nothing, np.zeros(1), replace(EVERYTHING, bits=bits))
    blank = TokenIndex.of(nothing, np.zeros(5), TokenOptions(candidates=1, bits=bits))
    query = np.ones((1, 2, WIDTH), "float32")
    for index in (empty, blank, blank.without(np.arange(4) > 2)):
        assert index.search(query, None, 2)[1].tolist() == [[-1, -1]]
    assert blank.matches(query[0], 1)[0].tolist() == [-1, -1]
    left = TokenIndex.of(*laid_out([query[0], nothing, nothing]), blank.options).without(np.arange(3) > 0)
    assert left.search(query, None, 2)[1].tolist() == [[-1, -1]]
    grown = blank.with_added(*laid_out([np.ones((2, WIDTH)), np.zeros((1, WIDTH))]))
    assert grown.search(query, None, 3)[1].tolist() == [[4, 5, -1]]
    assert grown.search(query, np.zeros((1, 2)), 3)[1].tolist() == [[-1, -1, -1]]
    assert grown.search(query[:0], None, 3)[1].shape == (0, 3)
    assert grown.search(query[:, :0], None, 3)[1].tolist() == [[-1, -1, -1]]


def test_the_annex_is_merged_when_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "ANNEX", 2)
    flat, starts = oracle.token_corpus(60)
    index = TokenIndex.of(flat, starts)
    one = flat[:3], np.array([0, 3])
    larger = index.with_added(*one).with_added(*one).with_added(*one)  # a sixteenth of 60 is 3
    assert (len(larger.main), len(larger.annex)) == (60, 3)
    assert larger.main is index.main
    merged = larger.with_added(*one)
    assert (len(merged.main), len(merged.annex)) == (64, 0)
    assert len(index.without(np.arange(60) < 30).main) == 30
    assert index.without(np.arange(60) < 31).main is index.main


def test_sizes_are_as_computed() -> None:
    flat, starts = oracle.token_corpus(200)
    tokens, sizes = len(flat), {}
    for bits in (16, 4, 2):
        index = TokenIndex.of(flat, starts, TokenOptions(bits=bits, centroids=64))
        part, codec = index.main.part, 64 * 32 * 4 + (0 if bits == 16 else 32 * 4 * (2 ** (bits + 1) - 1))
        assert part.packed.nbytes == tokens * 32 * bits // 8
        lists = 8 * 65 + 4 * tokens
        assert index.bytes == tokens * (2 + 4 * bits) + 8 * 201 + lists + codec
        assert index.info()["bytes"] == index.bytes
        sizes[bits] = index.bytes
    assert sizes[16] > sizes[4] > sizes[2]


@pytest.mark.parametrize("bits", [16, 4, 2])
def test_a_saved_index_answers_as_before(bits: int, tmp_path: Path) -> None:
    flat, starts = oracle.token_corpus(300)
    queries = oracle.token_queries(flat, starts, 8)
    more, more_starts = oracle.token_corpus(20, seed=7)
    index = TokenIndex.of(flat, starts, TokenOptions(bits=bits, candidates=30, score="avgmax"))
    index = index.with_added(more, more_starts).without(np.arange(320) % 4 > 0)
    save(index, tmp_path)
    with artifact.read(tmp_path) as snapshot:
        again = TokenIndex.read(snapshot)
    assert isinstance(again.main.part.packed, np.memmap)
    assert again.changes.alive is None
    assert again.options == index.options
    equal(again.search(queries, None, 12), index.search(queries, None, 12))
    assert again.info()["cosine"] == index.info()["cosine"]
    keep = np.arange(260) > 20
    equal(
        again.with_added(more, more_starts).without(keep).search(queries, None, 5),
        index.with_added(more, more_starts).without(keep).search(queries, None, 5),
    )


class _Before:
    """A writer of indexes as they were at first: each centroid listed the documents that have a token there."""

    bounds = None

    def __init__(self, writer: artifact.Writer, part: TokenLists) -> None:
        self.writer, self.json = writer, writer.json
        owner = np.repeat(np.arange(len(part)), np.diff(part.starts))
        lists = [np.unique(owner[part.listed[begin:end]]) for begin, end in pairwise(part.list_starts)]
        self.members = np.concatenate(lists).astype(np.int32)
        self.list_starts = starts_of(np.array([len(one) for one in lists]))

    def array(self, role: str, values: np.ndarray) -> None:
        others = {"tokens_listed": ("tokens_members", self.members), "tokens_list_starts": (role, self.list_starts)}
        self.writer.array(*others.get(role, (role, values)))


def test_an_index_with_lists_of_documents_still_opens(tmp_path: Path) -> None:
    flat, starts = oracle.token_corpus(300)
    queries = oracle.token_queries(flat, starts, 8)
    index = TokenIndex.of(flat, starts, TokenOptions(bits=4, candidates=30))
    with artifact.writing(tmp_path) as writer:
        index.write(_Before(writer, index.main.part))  # type: ignore[invalid-argument-type]
        writer.commit("index", {}, {}, "test")
    with artifact.read(tmp_path) as snapshot:
        again = TokenIndex.read(snapshot)
    equal(again.search(queries, None, 12), index.search(queries, None, 12))
    np.testing.assert_array_equal(again.main.part.listed, index.main.part.listed)


def test_what_was_saved_for_a_gpu_opens_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    flat, starts = oracle.token_corpus(30)
    queries = oracle.token_queries(flat, starts, 3)
    index = TokenIndex.of(flat, starts)
    save(replace(index, options=replace(index.options, device="cuda")), tmp_path)
    with artifact.read(tmp_path) as snapshot:
        again = TokenIndex.read(snapshot)
    assert "no CUDA device is here: the cpu is used instead" in caplog.text
    equal(again.search(queries, None, 5), index.search(queries, None, 5))
    assert len(again.rebuilt(replace(again.options, bits=4))) == 30
    with pytest.raises(UsageError, match="no CUDA device is here"):
        TokenIndex.of(flat, starts, TokenOptions(device="cuda"))


def test_arrays_that_lead_outside_are_refused(tmp_path: Path) -> None:
    flat, starts = oracle.token_corpus(50)
    index = TokenIndex.of(flat, starts, TokenOptions(bits=4, centroids=16))
    part = index.main.part
    bad = [
        ({"numbers": broken(part.numbers, 0, 16)}, "a token without a centroid"),
        ({"listed": broken(part.listed, 0, len(flat))}, "lists a token that is not there"),
        ({"listed": broken(part.listed, 0, -1)}, "lists a token that is not there"),
        ({"listed": part.listed[1:]}, "other lists"),
        ({"starts": broken(part.starts, -1, 1)}, "other borders"),
        ({"starts": broken(part.starts, 3, 10**6)}, "other borders"),
        ({"list_starts": broken(part.list_starts, 3, -5)}, "other borders"),
        ({"packed": part.packed[:, 1:]}, "other vectors"),
        ({"packed": part.packed[1:]}, "other vectors"),
        ({"weights": index.codec.weights[1:]}, "other weights"),
        ({"centroids": index.codec.centroids[1:]}, "a token without a centroid|other lists"),
        ({"centroids": index.codec.centroids.astype("float64")}, "another type"),
    ]
    for changes, problem in bad:
        save(index, tmp_path, **changes)
        with artifact.read(tmp_path) as snapshot, pytest.raises(ArtifactError, match=problem):
            TokenIndex.read(snapshot)


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 12))
def test_blocks_are_all_documents_in_order_and_not_too_large(lengths: list[int], most: int) -> None:
    found = list(blocks(torch.tensor(lengths, dtype=torch.long), most))
    assert [place for block in found for place in range(block.start, block.stop)] == list(range(len(lengths)))
    assert all(sum(lengths[block]) <= most or block.stop - block.start == 1 for block in found)


def test_mistakes_are_said_in_one_sentence() -> None:
    flat, starts = oracle.token_corpus(20)
    index = TokenIndex.of(flat, starts)
    query = flat[:4]
    mistakes = {
        "starts do not divide the": lambda: TokenIndex.of(flat, starts[:-1]),
        "give starts that rise": lambda: TokenIndex.of(flat, np.array([0, 5, 3, len(flat)])),
        "not finite as float16": lambda: TokenIndex.of(np.full_like(flat, 1e6), starts),
        "the queries have the shape": lambda: index.search(query, None, 3),
        "the mask has the shape": lambda: index.search(query[None], np.ones((1, 3)), 3),
        "some query vectors are not finite": lambda: index.search(np.full((1, 2, 32), np.nan), None, 3),
        "k = 0 should be at least 1": lambda: index.search(query[None], None, 0),
        "give rows from 0 to 19": lambda: index.score(query, np.array([20])),
        "a row is outside the index": lambda: index.matches(query, -1),
        "give 20 values, true or false": lambda: index.without(np.ones(19, bool)),
        "new vectors have 31 numbers": lambda: index.with_added(flat[:, 1:], starts),
        "bits = 3 is not one of the choices": lambda: TokenOptions(bits=3),
        "probes = 0": lambda: TokenOptions(probes=0),
        "candidates = -1": lambda: TokenOptions(candidates=-1),
        "centroids = 70000": lambda: TokenOptions(centroids=70000),
    }
    for problem, mistake in mistakes.items():
        with pytest.raises(UsageError, match=problem):
            mistake()
