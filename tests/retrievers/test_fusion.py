"""Fusion: the contract, formulas done by hand, weights that are fitted, nested options."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import triever
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from tests.retrievers.told import Told
from triever import Dataset, Document, Query, config
from triever.retriever import Retriever
from triever.retrievers.bm25 import BM25
from triever.retrievers.dense import Dense
from triever.retrievers.fusion import GRID, Fused
from triever.retrievers.multivector import MultiVector
from triever.retrievers.reranker import Reranked
from triever.training.tuning import RerankTuning, Tuning

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"


class TestScores(Contract):
    filters_as = "no model"

    def make(self) -> triever.Retriever:
        return Fused(systems=(BM25(), Dense(backbone=SMALL)))


class TestRanks(Contract):
    filters_as = "no model"

    def make(self) -> triever.Retriever:
        return Fused(systems=(BM25(k1=0.9), BM25(b=0.1)), method="rrf", weights=(2.0, 1.0))


class TestNested(Contract):
    filters_as = "no model"

    def make(self) -> triever.Retriever:
        inner = Fused(systems=(BM25(), BM25(b=0.1)), depth=3, weights=(3.0, 1.0))
        return Fused(systems=(inner, BM25(k1=0.5)), depth=2)


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


PLACES = [f"d{number:02}" for number in range(12)]
SCORES = st.dictionaries(st.sampled_from(PLACES), st.integers(0, 6).map(float), min_size=0, max_size=12)


def told(documents: Sequence[str] = PLACES, answers: Mapping[str, str] | None = None) -> Dataset:
    """Documents without a content; each query's text is its id."""
    queries = [Query(query, query) for query in answers or {}]
    qrels = {"train": {query: {document: 1} for query, document in (answers or {}).items()}}
    return Dataset.of("told", [Document(one, "") for one in documents], queries, qrels if queries else None)


def between_nought_and_one(scores: Mapping[str, float]) -> dict[str, float]:
    high, low = max(scores.values(), default=0), min(scores.values(), default=0)
    return {one: 1 - (high - score) / (1.01 * (high - low)) if high > low else 1 for one, score in scores.items()}


def best(scores: Mapping[str, float]) -> list[str]:
    return sorted(sorted(scores, reverse=True), key=lambda one: -scores[one])


@given(
    st.lists(SCORES, min_size=1, max_size=3),
    st.lists(st.sampled_from([0.2, 0.5, 1.0, 3.0]), min_size=3, max_size=3),
    st.sampled_from(["rrf", "scores"]),
    st.integers(1, 13),
)
def test_the_first_hits_do_not_depend_on_how_many_are_asked_for(
    several: list[dict[str, float]], weights: list[float], method: str, depth: int
) -> None:
    options: Any = {"method": method, "depth": depth, "weights": tuple(weights[: len(several)])}
    fused = Fused(systems=tuple(Told({"q": one}) for one in several), **options).fit(told())
    whole = fused.search("q", 12)
    for k in range(1, 12):
        assert fused.search("q", k).hits == whole[:k]
    assert {hit.id for hit in whole} == set().union(*several), "whatever a system finds is listed"
    assert [hit.score for hit in whole] == sorted((hit.score for hit in whole), reverse=True)
    explained = fused.explain("q", 12)
    for hit, parts in zip(explained.result, explained.parts, strict=True):
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score)


@given(SCORES, SCORES, st.integers(1, 13))
def test_scores_of_the_first_hits_are_scaled_and_added(one: dict, two: dict, depth: int) -> None:
    fused = Fused(systems=(Told({"q": one}), Told({"q": two})), depth=depth, weights=(0.75, 0.25)).fit(told())
    expected: dict[str, float] = {}
    for weight, scores in ((0.75, one), (0.25, two)):
        for document, value in between_nought_and_one({key: scores[key] for key in best(scores)[:depth]}).items():
            expected[document] = expected.get(document, 0) + weight * value
    found = fused.search("q", 12)
    assert {hit.id: hit.score for hit in found[: len(expected)]} == pytest.approx(expected)


def test_what_is_found_further_down_follows_by_turns() -> None:
    one = {"d01": 9.0, "d02": 8.0, "d03": 7.0, "d04": 6.0}
    two = {"d01": 9.0, "d05": 8.0, "d04": 7.0, "d06": 6.0}
    fused = Fused(systems=(Told({"q": one}), Told({"q": two})), depth=1).fit(told())
    assert [hit.id for hit in fused.search("q", 12)] == ["d01", "d02", "d05", "d03", "d04", "d06"]
    explained = fused.explain("q", 3)
    assert [name for name, _ in explained.parts[0]] == ["told 1", "told 2"]
    assert [name for name, _ in explained.parts[2]] == ["found behind the first 1"]


def mean_reciprocal_rank(fused: Retriever, answers: Mapping[str, str]) -> float:
    found = [[hit.id for hit in fused.search(query, 100)] for query in answers]
    return sum(
        1 / (1 + ids.index(document)) if document in ids else 0
        for ids, document in zip(found, answers.values(), strict=True)
    ) / len(answers)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(SCORES, SCORES, st.sampled_from(PLACES)), min_size=1, max_size=5),
    st.sampled_from(["rrf", "scores"]),
)
def test_fitted_weights_are_the_best_of_the_grid(
    several: list[tuple[dict[str, float], dict[str, float], str]], method: Any
) -> None:
    answers = {f"q{number}": document for number, (_, _, document) in enumerate(several)}
    systems = tuple(Told({f"q{number}": one[at] for number, one in enumerate(several)}) for at in (0, 1))
    data = told(answers=answers)
    fused = Fused(systems=systems, method=method, tune="train", holdout=1.0).fit(data)
    tried = [(float(share), round(1 - float(share), 6)) for share in GRID]
    quality = {
        weights: mean_reciprocal_rank(Fused(systems=systems, method=method, weights=weights).fit(data), answers)
        for weights in tried
    }
    fitted = fused.engine.weights
    highest = [weights for weights in tried if quality[weights] >= max(quality.values()) - 1e-9]
    assert fitted in highest
    assert mean_reciprocal_rank(fused, answers) == pytest.approx(max(quality.values()))
    assert fitted == ((0.5, 0.5) if (0.5, 0.5) in highest else highest[0]), "equal ones where nothing is better"


def test_fitted_weights_are_better_than_equal_ones_where_a_part_is_noise() -> None:
    answers = {f"q{number}": PLACES[number] for number in range(6)}
    good = Told({query: {document: 1.0, "d10": 0.9, "d11": 0.0} for query, document in answers.items()})
    noise = Told({query: {"d10": 1.0, "d11": 0.5} for query in answers})
    data = told(answers=answers)
    equal = Fused(systems=(noise, good)).fit(data)
    fitted = Fused(systems=(noise, good), tune="train", holdout=1.0).fit(data)
    assert mean_reciprocal_rank(equal, answers) == 0.5
    assert mean_reciprocal_rank(fitted, answers) == 1.0
    three = Fused(systems=(noise, good, noise), tune="train", holdout=1.0).fit(data)
    assert mean_reciprocal_rank(three, answers) == 1.0


def test_nothing_is_found_for_no_queries() -> None:
    fused = Fused(systems=(Told(), MultiVector(backbone=SMALL, size=8))).fit(dataset())
    assert fused.engine.search(fused.documents, [], 3) == []


def test_a_query_without_hits_says_why() -> None:
    fused = Fused(systems=(BM25(), BM25(language="none"))).fit(Dataset.of("x", [Document("a", "zebra")]))
    assert fused.search("xylophone").note == "no word of the query is in the corpus"


def test_options_of_nested_systems_come_back() -> None:
    fused = Fused(systems=(BM25(k1=0.9), Dense(backbone=SMALL)))
    plain = config.to_dict(fused)
    assert [one["kind"] for one in plain["systems"]] == ["bm25", "dense"]
    assert config.to_dict(config.build(Fused, plain)) == plain
    assert [type(one) for one in config.build(Fused, {"systems": "bm25,bm25"}).systems] == [BM25, BM25]


def test_every_fusion_has_its_own_default() -> None:
    assert Fused().systems[0] is not Fused().systems[0]
    assert Reranked().first is not Reranked().first
    assert config.to_dict(config.build(Reranked, {"first": {"k1": "0.9"}}).first)["k1"] == 0.9


def test_a_fitted_system_is_not_fitted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = BM25().fit(dataset())
    monkeypatch.setattr(BM25, "learn", lambda *_: pytest.fail("learned again"))
    assert Fused(systems=(ready,)).fit(dataset()).search("tea leaves", 1)[0].id == "tea"


@pytest.mark.parametrize("make", [str, Path])
def test_saved_folders_are_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    data = dataset().with_expansions({"tides": ["ebb and flow"]})
    systems = (BM25().fit(data), Dense(backbone=SMALL).fit(data))
    expected = Fused(systems=systems).fit(data).search_many(QUERIES, 5)
    for name, system in zip(("one", "two"), systems, strict=True):
        system.save(tmp_path / name)
    for kind in (BM25, Dense):
        monkeypatch.setattr(kind, "learn", lambda *_: pytest.fail("learned again"))
    folders = [make(tmp_path / name) for name in ("one", "two")]
    fused = Fused(systems=tuple(folders)).fit(data)
    assert fused.search_many(QUERIES, 5) == expected
    words = config.assignments([f"systems={tmp_path / 'one'},{tmp_path / 'two'}"])
    assert config.build(Fused, words).fit(data).search_many(QUERIES, 5) == expected
    fused.save(tmp_path / "both")
    assert triever.load(tmp_path / "both").search_many(QUERIES, 5) == expected
    assert Fused(systems=(str(tmp_path / "both"),)).fit(data).search("ebb", 1)[0].id == "tides"  # ty: ignore


def test_a_system_of_other_documents_is_fitted_anew_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    other = BM25().fit(dataset(DOCUMENTS[3:]))
    with caplog.at_level(logging.WARNING, "triever"):
        fused = Fused(systems=(other,)).fit(dataset())
    assert fused.search("tea leaves", 1)[0].id == "tea"
    assert "the fitted bm25 is fitted again" in caplog.text
    assert "differ from those of contract" in caplog.text


def test_expansions_count_for_those_who_read_them(caplog: pytest.LogCaptureFixture) -> None:
    systems = (BM25(), BM25(expand=False), Dense(backbone=SMALL))
    ready = tuple(system.fit(dataset()) for system in systems)
    data = dataset().with_expansions({"tides": ["ebb and flow"]})
    with caplog.at_level(logging.WARNING, "triever"):
        engines = Fused(systems=ready).fit(data).engine.engines
    assert caplog.text.count("fitted again") == 1
    assert [one is system.engine for one, system in zip(engines, ready, strict=True)] == [False, True, True]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "triever"):
        found = Fused(systems=(Fused(systems=ready).fit(dataset()),)).fit(data).search("ebb", 1)
    assert found[0].id == "tides"
    assert caplog.text.count("the fitted fused is fitted again") == 1


def dense(holdout: float, split: str = "train") -> Dense:
    return Dense(backbone=SMALL, training=Tuning(steps=1, batch=2, holdout=holdout, split=split))


def reranked(first: Retriever, holdout: float) -> Reranked:
    return Reranked(first=first, backbone=SMALL, training=RerankTuning(steps=1, batch=2, holdout=holdout))


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        (dense(0.0), "dense"),
        (dense(0.29), "dense"),
        (reranked(BM25(), 0.0), "reranked"),
        (reranked(dense(0.1), 0.3), "dense"),
        (Fused(systems=(BM25(), reranked(Fused(systems=(dense(0.1),)), 0.3))), "dense"),
    ],
)
def test_weights_are_not_fitted_on_queries_that_a_system_learns(
    system: Retriever, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BM25, "learn", lambda *_: pytest.fail("too late"))
    with pytest.raises(
        triever.UsageError, match=f"{kind} is trained on queries of train that the weights are fitted on"
    ):
        Fused(systems=(BM25(), system), tune="train", holdout=0.3).fit(dataset())


def test_that_is_known_where_several_splits_are_learned() -> None:
    fused = Fused(systems=(BM25(), dense(0.0, split="dev+train")), tune="train+test", holdout=0.3)
    with pytest.raises(triever.UsageError, match="dense is trained on queries of train that the weights are fitted on"):
        fused._check_holdouts()


def test_that_is_known_of_a_saved_system_too(tmp_path: Path) -> None:
    dense(0.0).fit(dataset()).save(tmp_path / "dense")
    with pytest.raises(triever.UsageError, match=r"its training.holdout is 0.0, the fusion's holdout is 0.3; set"):
        Fused(systems=("bm25", str(tmp_path / "dense")), tune="train", holdout=0.3).fit(dataset())  # ty: ignore


def test_what_is_held_out_may_be_tuned_on() -> None:
    for system in (dense(0.5), dense(0.0, split="test"), Dense(backbone=SMALL, training=Tuning(holdout=0.0))):
        Fused(systems=(BM25(), system), tune="train", holdout=0.5)._check_holdouts()
    fused = Fused(systems=(BM25(), dense(0.5)), tune="train", holdout=0.5).fit(dataset())
    assert sum(fused.engine.weights) == pytest.approx(1)


@pytest.mark.parametrize(
    ("fused", "message"),
    [
        (Fused(systems=(BM25(), BM25()), tune="trian"), "no split 'trian'; did you mean train"),
        (Fused(systems=(BM25(), BM25()), tune="train", holdout=1e-9), "holds out no query of train"),
        (Fused(systems=(BM25(), dense(0.0, split="trian"))), "no split 'trian'; did you mean train"),
        (Fused(systems=(BM25(), dense(0.999999))), "all training queries are held out; lower training.holdout"),
        (Fused(systems=(BM25(), Fused(systems=(BM25(), BM25()), tune="dev"))), "no split 'dev'"),
    ],
)
def test_queries_are_looked_for_before_anything_is_learned(
    fused: Fused, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BM25, "learn", lambda *_: pytest.fail("too late"))
    with pytest.raises(triever.UsageError, match=message):
        fused.fit(dataset())


def test_a_card_tells_weights_of_models_from_those_of_systems() -> None:
    card = Fused(systems=(Dense(backbone=SMALL), BM25()), weights=(2.0, 1.0)).fit(dataset()).card
    assert "| weights | [2.0, 1.0] |" in card
    assert "| model weights | nothing pretrained (licence: none: random weights) |" in card
    assert "Weights: nothing pretrained" in card


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"systems": ()}, "a fusion needs at least one system"),
        ({"systems": "bm25,bm26"}, "no system named 'bm26'"),
        ({"systems": "bm25", "weights": (1.0, 2.0)}, "there are 1 systems but 2 weights"),
        ({"systems": "bm25", "weights": (-1.0,)}, "should not be negative"),
        ({"systems": [{"k1": 2}]}, "does not name a system"),
        ({"depth": 0}, "set depth to 1 or more"),
    ],
)
def test_mistakes_are_said(options: dict, message: str) -> None:
    with pytest.raises(triever.UsageError, match=message):
        config.build(Fused, options)
