"""Fusion: the contract, formulas done by hand, weights that are fitted, nested options."""

from __future__ import annotations

import pytest

import triever
from tests.retrievers.contract import QUERIES, Contract, dataset
from triever import config
from triever.retrievers.bm25 import BM25
from triever.retrievers.dense import Dense
from triever.retrievers.fusion import Fused

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"


class TestScores(Contract):
    def make(self) -> triever.Retriever:
        return Fused(systems=(BM25(), Dense(backbone=SMALL)))


class TestRanks(Contract):
    def make(self) -> triever.Retriever:
        return Fused(systems=(BM25(k1=0.9), BM25(b=0.1)), method="rrf", weights=(2.0, 1.0))


def test_reciprocal_ranks_are_added_as_written() -> None:
    one, two = BM25(k1=0.5), Dense(backbone=SMALL)
    fused = Fused(systems=(one, two), method="rrf", weights=(0.7, 0.3)).fit(dataset())
    parts = [system.fit(dataset()).search(QUERIES[0], 10) for system in (one, two)]
    expected: dict[str, float] = {}
    for weight, result in zip((0.7, 0.3), parts, strict=True):
        for rank, hit in enumerate(result, 1):
            expected[hit.id] = expected.get(hit.id, 0) + weight * 61 / (60 + rank)
    found = {hit.id: hit.score for hit in fused.search(QUERIES[0], 10)}
    assert found == pytest.approx(expected)


def test_scores_are_put_between_nought_and_one_and_explained() -> None:
    fused = Fused(systems=(BM25(), Dense(backbone=SMALL))).fit(dataset())
    explanation = fused.explain(QUERIES[0], 5)
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert 0 <= hit.score <= 1
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score)


def test_fitted_weights_choose_the_better_system() -> None:
    # Untrained vectors of two numbers are next to chance here, and BM25 is right on every question.
    poor = Dense(backbone="scratch:hidden=2,layers=1,heads=1,vocabulary=400")
    fused = Fused(systems=(poor, BM25()), tune="train", holdout=1.0).fit(dataset())
    alone = BM25().fit(dataset())
    asked = [query.text for query in QUERIES]
    assert [result[0].id for result in fused.search_many(asked, 1)] == [r[0].id for r in alone.search_many(asked, 1)]
    weights = fused._checked().engine.weights
    assert sum(weights) == pytest.approx(1)
    assert weights[1] >= weights[0]


def test_options_of_nested_systems_come_back() -> None:
    fused = Fused(systems=(BM25(k1=0.9), Dense(backbone=SMALL)))
    plain = config.to_dict(fused)
    assert [one["kind"] for one in plain["systems"]] == ["bm25", "dense"]
    assert config.to_dict(config.build(Fused, plain)) == plain
    assert [type(one) for one in config.build(Fused, {"systems": "bm25,bm25"}).systems] == [BM25, BM25]


def test_a_fitted_system_is_not_fitted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = BM25().fit(dataset())
    monkeypatch.setattr(BM25, "_learn", lambda *_: pytest.fail("learned again"))
    assert Fused(systems=(ready,)).fit(dataset()).search("tea leaves", 1)[0].id == "tea"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"systems": ()}, "a fusion needs systems"),
        ({"systems": "bm25,bm26"}, "no system named 'bm26'"),
        ({"systems": "bm25", "weights": (1.0, 2.0)}, "1 systems and 2 weights"),
        ({"systems": "bm25", "weights": (-1.0,)}, "should not be negative"),
        ({"systems": [{"k1": 2}]}, "does not say which system"),
        ({"depth": 0}, "depth is above 0"),
    ],
)
def test_mistakes_are_said(options: dict, message: str) -> None:
    with pytest.raises(triever.UsageError, match=message):
        config.build(Fused, options)
