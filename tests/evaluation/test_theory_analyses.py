"""Analyses of what theory says of saved models, against scores and sums that are written out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import triever
from tests.retrievers.contract import DOCUMENTS, QRELS, QUERIES, dataset
from triever import (
    BM25,
    Dataset,
    DecoderOptions,
    Dense,
    DocidTuning,
    Document,
    Generative,
    MultiVector,
    Retriever,
    Semantic,
    UsageError,
)
from triever.engines.nodes import NodeEngine
from triever.evaluation.all_scores import all_scores
from triever.evaluation.finding import Finding
from triever.evaluation.normalisation import normalisation
from triever.evaluation.posterior import ESTIMATES, NodesOfQuestions, posterior
from triever.evaluation.rank import rank
from triever.theory.posterior import sibling_shares

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=300"


@pytest.fixture(scope="module")
def dense() -> Dense:
    return Dense(backbone=SMALL).fit(dataset())


@pytest.fixture(scope="module")
def late() -> MultiVector:
    return MultiVector(backbone=SMALL, size=16).fit(dataset())


@pytest.fixture(scope="module")
def nodes() -> Generative:
    options = {"docids": Semantic(branch=2, leaf=2), "decoder": DecoderOptions(rows="nodes")}
    return Generative(backbone=SMALL, training=DocidTuning(steps=0), **options).fit(dataset())


@pytest.mark.parametrize("kind", ["dense", "late"])
def test_scores_are_those_of_searches(kind: str, request: pytest.FixtureRequest) -> None:
    retriever: Retriever = request.getfixturevalue(kind)
    table = all_scores(retriever, dataset(), "test", most=3)
    ids = [*retriever.documents.ids]
    if kind == "late":  # documents without tokens have no score
        ids = [ids[row] for row in np.flatnonzero(retriever.engine.index.lengths)]
    for query, scores, positive in zip(QUERIES, table.scores, table.positive, strict=False):
        hits = {hit.id: hit.score for hit in retriever.search(query, len(DOCUMENTS))}
        assert dict(zip(ids, scores, strict=True)) == pytest.approx({doc_id: hits[doc_id] for doc_id in ids}, abs=1e-5)
        assert ids[positive] in QRELS[query.id]
    assert table.scores.shape == (3, len(ids))


def test_a_sample_has_the_relevant_documents(dense: Dense) -> None:
    whole = all_scores(dense, dataset(), "test", most=9)
    part = all_scores(dense, dataset(), "test", most=9, documents=5)
    assert part.scores.shape == (4, 5)
    for at in range(4):
        assert part.scores[at, part.positive[at]] == pytest.approx(whole.scores[at, whole.positive[at]])


def test_gaps_of_a_dense_model(dense: Dense, tmp_path: Path) -> None:
    found = normalisation(dense, dataset(), "test", draws=400)
    [row] = found.values["gaps"]  # ten documents: eight can be drawn
    assert row["candidates"] == 8
    assert row["bound"] == pytest.approx(math.log(10 / 8))
    assert row["drawn"] >= row["bound"] - 0.05
    assert row["bound_with_positive"] - 0.05 <= row["with_positive"] <= found.values["loss"]
    assert found.values["temperature"] == dense.training.temperature
    scores = all_scores(dense, dataset(), "test", most=200)
    by_hand = [
        math.log(np.exp(row / 0.5).sum()) - row[at] / 0.5
        for row, at in zip(scores.scores, scores.positive, strict=True)
    ]
    assert normalisation(dense, dataset(), "test", temperature=0.5).values["loss"] == pytest.approx(np.mean(by_hand))
    found.plot(tmp_path / "gaps.svg")


def test_the_tail_of_a_dense_model_ends_with_its_vectors() -> None:
    many = [Document(f"d{number}", f"{number} wolves and {number % 7} bears") for number in range(40)]
    asked = [replace(QUERIES[0], id=f"q{number}", text=f"bears {number % 7} {number}") for number in range(40)]
    data = Dataset.of("many", many, asked, {"test": {query.id: {"d0": 1} for query in asked}})
    narrow = Dense(backbone=SMALL, size=4).fit(data)
    found = rank(narrow, data, "test").values
    assert (found["width"], found["questions"], found["documents"]) == (4, 40, 40)
    assert found["rank"] <= 4
    assert [row["size"] for row in found["sizes"]] == [1, 2, 4, 8, 16, 32]
    for row in found["sizes"][2:]:
        assert row["error"] == pytest.approx(0, abs=1e-5)
        assert row["right_first"] == found["right_first"]
    late = MultiVector(backbone=SMALL, size=4).fit(data)
    assert rank(late, data, "test").values["rank"] > 4


def test_any_relevant_document_may_come_first() -> None:
    many = [Document(f"d{number}", f"{number} wolves and {number % 7} bears") for number in range(40)]
    asked = [replace(QUERIES[0], id=f"q{number}", text=f"bears {number % 7} {number}") for number in range(40)]
    judged = {f"q{at}": {f"d{number}": 1 for number in range(at % 3, 40, 3)} for at in range(40)}
    data = Dataset.of("many", many, asked, {"test": judged})
    model = Dense(backbone=SMALL, size=16).fit(data)
    found = rank(model, data, "test").values
    report = triever.compare({"dense": model}, data, measures=["Success@1"])
    assert found["right_first"] == pytest.approx(report.scores["dense"]["Success@1"].mean)
    assert 0 < found["right_first"] < 1


def test_estimates_are_those_that_lead_a_search(nodes: Generative) -> None:
    engine, texts = nodes.engine, [query.text for query in QUERIES]
    assert isinstance(engine, NodeEngine)
    weighed = NodesOfQuestions.of(engine, texts)
    assert engine.steering == ESTIMATES["as a search is led"]
    found = posterior(nodes, dataset(), "test").values
    exact = weighed.exact(0)
    probabilities = np.exp(exact.documents())
    hits = nodes.searching(method="exact").search(QUERIES[0], len(DOCUMENTS))
    owners = np.array([nodes.documents.ids[owner] for owner in engine.rows.owners])
    for hit in hits:
        assert probabilities[owners == hit.id].sum() == pytest.approx(math.exp(hit.score), abs=1e-4)
    state = np.arange(weighed.arrays.nodes)[None, :, None]
    states = engine.walk.root(1).new_tensor(state)
    by_search = engine.generator.weights(weighed.vectors[:1], states)[0].double().numpy()
    given = sibling_shares(weighed.arrays, by_search)
    led = weighed.compared(weighed.exact(0), 0)["as a search is led"]
    assert led["divergence"] == pytest.approx(exact.divergence(given), abs=1e-3)
    for estimate in found["estimates"].values():
        assert sum(estimate["by_length"]) == pytest.approx(estimate["divergence"], abs=1e-6)
    assert found["docids"] == len(engine.rows)


@pytest.mark.parametrize("analysis", [normalisation, rank, posterior])
def test_other_systems_are_refused(analysis: Callable[..., Finding]) -> None:
    with pytest.raises(UsageError, match="make one with: triever fit"):
        analysis(BM25().fit(dataset()), dataset(), "test")


def test_what_cannot_be_measured_is_refused(dense: Dense) -> None:
    with pytest.raises(UsageError, match="not above zero; for example: --temperature"):
        normalisation(dense, dataset(), "test", temperature=0.0)
    few = Dense(backbone=SMALL).fit(dataset(DOCUMENTS[:4]))
    with pytest.raises(UsageError, match="the model holds 4 documents, fewer than the 8 that are drawn"):
        normalisation(few, dataset(DOCUMENTS[:4]), "test")
    others = Dense(backbone=SMALL).fit(dataset(DOCUMENTS[4:7]))
    with pytest.raises(UsageError, match="holds no relevant document of any question"):
        rank(others, dataset(), "test")
