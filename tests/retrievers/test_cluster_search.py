"""The search of clusters by itself, over more documents than a model has read: what is cut is never missed."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from tests.index.test_trie_vectors import slices_compared
from tests.retrievers.contract import QUERIES, dataset
from tests.retrievers.gdr_cases import SMALL, engine_of
from triever.docids.schemes import Cluster
from triever.docids.trie import Trie
from triever.engines import clusters
from triever.engines.clusters import ClusterEngine, ClusterSearch
from triever.engines.docid_search import SearchOptions
from triever.engines.match_scores import ScoredCandidates, Scoring
from triever.index.trie_vectors import TrieVectors
from triever.retrievers.gdr import GDR
from triever.training.tuning import DocidTuning

COUNT = 150
TEXTS = [query.text for query in QUERIES]
SCORINGS = [
    Scoring("sum", (5.0,)),
    Scoring("loglinear", (30.0,), 0.05),
    Scoring("learned", (1.0, 2.0, 8.0, 0.5)),
    Scoring("learned", (-1.0, 2.0, 8.0, 0.5)),
]


@pytest.fixture(scope="module")
def small() -> GDR:
    return GDR(docids=Cluster(clusters=8, branch=3), backbone=SMALL, training=DocidTuning(steps=0)).fit(dataset())


def with_documents(engine: ClusterEngine, several: bool) -> ClusterEngine:
    """The engine over random vectors, in the same clusters; of every third document in two."""
    chance = np.random.default_rng(int(several))
    codes = sorted({docid for docid, _ in engine.docids.trie.items()})
    entries = [(codes[chance.integers(len(codes))], number) for number in range(COUNT)]
    entries += [(codes[chance.integers(len(codes))], number) for number in range(0, COUNT, 3) if several]
    trie, vectors = Trie.of(dict.fromkeys(entries)), chance.normal(size=(COUNT, 32)).astype(np.float32)
    vectors = vectors.round(1) / 10  # so that some tie
    numbers = np.arange(COUNT)
    docids = replace(engine.docids, trie=trie, numbers=numbers)
    return replace(engine, docids=docids, below=TrieVectors.of(trie, numbers, vectors))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("depth", [0, 1, None])
@pytest.mark.parametrize("scoring", SCORINGS, ids=["sum", "loglinear", "learned", "falling"])
def test_the_best_are_the_best_of_all_in_the_beam(
    small: GDR, scoring: Scoring, depth: int | None, several: bool
) -> None:
    engine = with_documents(engine_of(small), several)
    assert engine.single != several
    searcher = replace(engine.searcher(depth), options=SearchOptions(width=4))
    every = dict(searcher.candidates(TEXTS))
    assert [*sorted(every)] == [*range(len(TEXTS))]
    for k in (1, 3, 10):
        for query, found in enumerate(searcher.best(TEXTS, scoring, k)):
            scores = scoring.scores(every[query])
            least = np.sort(scores)[-k]
            expected = dict(zip(every[query].numbers[scores >= least].tolist(), scores[scores >= least], strict=True))
            assert dict(zip(found.numbers.tolist(), found.scores.tolist(), strict=True)) == pytest.approx(expected)
            assert all(
                (engine.docid_of(entry), number) in set(engine.docids.trie.items())
                for entry, number in zip(found.entries.tolist(), found.numbers.tolist(), strict=True)
            )


def queries_read(searcher: ClusterSearch, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many queries are read at once, each time from now on."""
    read, sizes = type(searcher.generator).prefill, []

    def spied(self: object, prompts: list[str]) -> object:
        sizes.append(len(prompts))
        return read(self, prompts)  # ty: ignore[invalid-argument-type]

    monkeypatch.setattr(type(searcher.generator), "prefill", spied)
    return sizes


def test_a_wide_beam_reads_fewer_queries_at_once(small: GDR, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = with_documents(engine_of(small), several=False)
    searcher = replace(engine.searcher(None), options=SearchOptions(width=2))
    sizes = queries_read(searcher, monkeypatch)
    found = searcher.best(["tea"] * 100, SCORINGS[0], COUNT)
    assert all(len(one) == COUNT for one in found)
    assert max(sizes) == sizes[0] == 64
    assert sizes[-1] <= 64 * 2 // 8


def test_what_wider_beams_compare_counts_too(small: GDR) -> None:
    engine = engine_of(small)
    searcher = replace(engine.searcher(1), options=SearchOptions(width=1))
    alone, [first] = searcher.compared(["tea"], 1), searcher.compared(["tea"], 1)
    more = searcher.compared(["tea"], first + 1)
    assert alone == [first]
    assert more[0] > 2 * first, "the same clusters again, and others"
    assert searcher.compared(["tea", "bread"], COUNT)[0] == searcher.compared(["tea"], COUNT)[0]


@pytest.mark.parametrize("k", [1, 40, COUNT, 10 * COUNT])
def test_as_much_is_compared_as_a_search_compares(small: GDR, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where documents are in several clusters and some were deleted, what a beam holds is less than its entries."""
    engine = with_documents(engine_of(small), several=True)
    trie = engine.docids.trie.without(set(range(0, COUNT, 2)))
    numbers = np.arange(1, COUNT, 2)
    docids = replace(engine.docids, trie=trie, numbers=numbers)
    engine = replace(engine, docids=docids, below=engine.below.moved(trie))
    searcher = replace(engine.searcher(None), options=SearchOptions(width=1))
    expected = searcher.compared(["tea"], k)
    sizes = slices_compared(monkeypatch)
    searcher.best(["tea"], Scoring("loglinear", (0.0,), 1.0), min(k, len(numbers)))
    assert sum(sizes) == expected[0]


def test_a_very_wide_beam_reads_few_queries_at_once(small: GDR, monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = replace(engine_of(small).searcher(None), options=SearchOptions(width=50))
    monkeypatch.setattr(clusters, "PREFIXES", 100)
    assert [len(batch) for batch, _ in searcher._seen(TEXTS, 50)] == [len(TEXTS)]
    sizes = queries_read(searcher, monkeypatch)
    searcher.compared(TEXTS, 1)
    assert max(sizes) == 2


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("depth", [0, 1, None])
def test_what_is_compared_is_what_the_clusters_of_the_beam_hold(small: GDR, depth: int | None, several: bool) -> None:
    engine = with_documents(engine_of(small), several)
    searcher = replace(engine.searcher(depth), options=SearchOptions(width=2))
    beginnings = [docid[:depth] for docid, _ in engine.docids.trie.items()]
    held = {one: beginnings.count(one) for one in beginnings}
    all_compared = searcher.compared(TEXTS, 1)
    for query, found in searcher.candidates(TEXTS):
        entries, compared = set(found.entries.tolist()), all_compared[query]
        visited = {engine.docid_of(entry)[:depth] for entry in entries}
        assert compared >= len(entries), query
        if not several:  # else one may be in a cluster that is the best of no document
            assert compared == sum(held[one] for one in visited), query
        if depth == 0:
            assert compared == len(beginnings), query


@pytest.mark.parametrize("depth", [0, 1, 2, None])
@pytest.mark.parametrize("scoring", SCORINGS, ids=["sum", "loglinear", "learned", "falling"])
def test_fixed_shapes_find_what_a_search_step_by_step_finds(small: GDR, scoring: Scoring, depth: int | None) -> None:
    engine = with_documents(engine_of(small), several=False)
    chance = np.random.default_rng(0)
    vectors = chance.normal(size=(COUNT, 32)).astype(np.float32)  # of which none tie
    trie = engine.docids.trie.without(range(0, COUNT, 7))
    numbers = np.setdiff1d(np.arange(COUNT), range(0, COUNT, 7))
    docids, below = replace(engine.docids, trie=trie, numbers=numbers), TrieVectors.of(trie, np.arange(COUNT), vectors)
    matching = replace(engine.matching, depth=depth)
    engine = replace(engine, docids=docids, below=below, options=SearchOptions(width=3), matching=matching)
    steady, plain = engine.made_steady(), engine.searcher(depth)
    assert steady is not None
    expected = [_listed(scored) for scored in plain.best(TEXTS, scoring, 5)]
    for _ in range(2):  # measured, then planned
        assert [_listed(scored) for scored in steady.best(TEXTS, scoring, 5)] == expected
    assert steady.alone == 0 or depth != 0


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, None])
def test_a_gpu_replays_what_it_has_recorded(small: GDR, depth: int | None) -> None:
    engine = with_documents(engine_of(small), several=False)
    vectors = np.random.default_rng(0).normal(size=(COUNT, 32)).astype(np.float32)
    docids = replace(engine.docids, model=copy.deepcopy(engine.docids.model).cuda())
    below = TrieVectors.of(docids.trie, np.arange(COUNT), vectors, "cuda")
    matching = replace(engine.matching, depth=depth)
    engine = replace(engine, docids=docids, below=below, options=SearchOptions(width=3), matching=matching)
    steady, plain = engine.made_steady(), engine.searcher(depth)
    assert steady is not None
    for texts in (TEXTS, TEXTS, TEXTS, TEXTS[::-1]):
        ours, theirs = (searcher.best(texts, SCORINGS[0], 5) for searcher in (steady, plain))
        for scored, expected in zip(ours, theirs, strict=True):
            assert set(scored.numbers) == set(expected.numbers)
            assert sorted(scored.scores) == pytest.approx(sorted(expected.scores), abs=1e-3)
    assert len(steady.recorded) >= 1
    assert not steady.recorded.broken


def test_where_documents_tie_or_are_few_it_goes_step_by_step(small: GDR) -> None:
    engine = replace(with_documents(engine_of(small), several=False), options=SearchOptions(width=1))
    steady, plain = engine.made_steady(), engine.searcher(engine.matching.depth)
    assert steady is not None
    expected = [_listed(scored) for scored in plain.best(TEXTS, SCORINGS[0], 60)]
    assert [_listed(scored) for scored in steady.best(TEXTS, SCORINGS[0], 60)] == expected
    assert steady.alone == len(TEXTS)


def test_a_document_in_two_clusters_is_searched_step_by_step(small: GDR) -> None:
    assert with_documents(engine_of(small), several=True).made_steady() is None


def _listed(scored: ScoredCandidates) -> list[tuple[int, int, float]]:
    """Documents, entries and scores, best first."""
    rows = zip(scored.numbers.tolist(), scored.entries.tolist(), scored.scores.round(4).tolist(), strict=True)
    return sorted(rows, key=lambda row: (-row[2], row[0]))
