"""The calibration of retrievers: dense probabilities against a softmax that is written out, and what is told of it."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.retrievers.contract import DOCUMENTS, QUERIES, dataset
from triever import BM25, Dataset, Document, UsageError
from triever.docids.schemes.naive import Naive
from triever.evaluation.calibration_analysis import DENSE, calibration, probable, with_probabilities
from triever.evaluation.compare import compare, measurable
from triever.evaluation.picture import _curves_figure
from triever.index.token_vectors import TokenOptions
from triever.index.vectors import IndexOptions
from triever.models.decoders import DecoderOptions
from triever.retrievers.contextual import Contextual
from triever.retrievers.dense import Dense
from triever.retrievers.generative import Generative
from triever.retrievers.multivector import MultiVector
from triever.training.tuning import DocidTuning, Tuning

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"


@functools.cache
def data() -> Dataset:
    """The questions of a small corpus, some of them to fit on and the others to measure."""
    judged = dataset().qrels("test")
    half = len(judged) // 2
    splits = {"dev": dict([*judged.items()][:half]), "test": dict([*judged.items()][half:])}
    return Dataset.of("small", DOCUMENTS, QUERIES, splits)


@functools.cache
def dense() -> Dense:
    return Dense(backbone=SMALL, training=Tuning(temperature=0.1)).fit(data())


@functools.cache
def generative() -> Generative:
    untrained = DocidTuning(steps=0)
    return Generative(Naive(), backbone=SMALL, training=untrained, decoder=DecoderOptions(rows="symbols")).fit(data())


def test_dense_probabilities_are_a_softmax_over_all_documents() -> None:
    everything = dense().search_many(QUERIES, len(DOCUMENTS))
    few = with_probabilities(dense(), QUERIES, dense().search_many(QUERIES, 3))
    for all_hits, hits in zip(everything, few, strict=True):
        weights = {hit.id: math.exp(hit.score / 0.1) for hit in all_hits}
        wanted = [weights[hit.id] / sum(weights.values()) for hit in hits]
        assert [math.exp(hit.logprob or 0) for hit in hits] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("score", ["maxsim", "avgmax"])
def test_probabilities_of_late_interaction_are_a_softmax_of_what_is_trained_over_all_documents(score: str) -> None:
    options = TokenOptions(score=score, candidates=0)
    late = MultiVector(backbone=SMALL, size=8, training=Tuning(temperature=0.1), index=options).fit(data())
    late.add([Document("later", "Rice is cooked in water until it is soft.")])
    late.delete([DOCUMENTS[0].id])
    everything = late.search_many(QUERIES, len(late))
    few = with_probabilities(late, QUERIES, late.search_many(QUERIES, 3))
    for query, all_hits, hits in zip(QUERIES, everything, few, strict=True):
        tokens = len(late.reading.queries(late.engine.encoder, [query.text])[0]) if score == "maxsim" else 1
        weights = {hit.id: math.exp(hit.score / tokens / 0.1) for hit in all_hits}
        wanted = [weights[hit.id] / sum(weights.values()) for hit in hits]
        assert [math.exp(hit.logprob or 0) for hit in hits] == pytest.approx(wanted, rel=1e-4)
    [(_, searched)] = probable(late.reindexed(candidates=4)).items()
    assert isinstance(searched, MultiVector)
    assert searched.index == options


def test_brier_is_measured_where_scores_can_become_probabilities_and_left_out_elsewhere() -> None:
    measured = compare({"it": dense()}, data(), "test", ["Brier"]).scores["it"]["Brier"]
    assert calibration(dense(), data()).values["ways"][DENSE]["as_it_comes"]["brier"] == pytest.approx(measured.mean)
    asked = ["Success@1", "Brier", "EM"]
    assert measurable(dense(), asked, QUERIES) == measurable(generative(), asked, QUERIES) == ["Success@1", "Brier"]
    assert measurable(BM25().fit(data()), asked, QUERIES) == ["Success@1"]
    assert measurable(BM25().fit(data()), ["Brier"], QUERIES) == ["Brier"], "and is then refused"


def test_dense_retrieval_is_searched_exactly() -> None:
    graph = dense().reindexed(kind="hnsw")
    [(_, searched)] = probable(graph).items()
    assert isinstance(searched, Dense)
    assert searched.index == replace(graph.index, kind="flat") == IndexOptions()
    assert calibration(graph, data()).values["ways"] == calibration(dense(), data()).values["ways"]


def test_models_that_write_docids_by_every_normalisation() -> None:
    assert [*probable(generative())] == ["over trie", "over vocabulary"]
    nodes = Generative(backbone=SMALL, training=DocidTuning(steps=0), decoder=DecoderOptions(rows="nodes")).fit(data())
    assert [*probable(nodes)] == ["over documents", "over trie"]
    titles = Contextual(backbone=SMALL, training=DocidTuning(steps=0)).fit(data())
    for retriever in (generative(), nodes, titles):
        for way in probable(retriever).values():
            for result in way.search_many(QUERIES, len(DOCUMENTS)):
                assert sum(math.exp(hit.logprob or 0) for hit in result) <= 1 + 1e-4
    for method in ("free", "mapped"):
        assert [*probable(generative().searching(method=method))] == ["generative"]


def test_brier_is_the_measure() -> None:
    found = calibration(generative(), data()).values["ways"]
    for name, way in probable(generative()).items():
        measured = compare({"it": way}, data(), "test", ["Brier", "Success@1"]).scores["it"]
        assert found[name]["as_it_comes"]["brier"] == pytest.approx(measured["Brier"].mean)
        assert found[name]["right"] == pytest.approx(measured["Success@1"].mean)


def test_what_is_fitted_and_told(tmp_path: Path) -> None:
    found = calibration(dense(), data(), fit_on="dev", coverage=0.5)
    way = json.loads(json.dumps(found.values))["ways"][DENSE]
    assert way["tempered"]["temperature"] != 1
    assert way["threshold"]["fitted"]["coverage"] >= 0.5
    assert way["threshold"]["measured"]["threshold"] == way["threshold"]["fitted"]["threshold"]
    assert sum(claims["count"] for claims in way["tempered"]["reliability"]) == found.values["questions"]
    assert [part.title.split(",")[0] for part in found.parts] == [
        *("calibration of dense", "reliability", "reliability", "risk and coverage")
    ]
    assert found.parts[-1].lines[-1].startswith("threshold for a coverage of 0.5: ")
    reliability, risk = _curves_figure(found.curves).axes
    _, before, after = reliability.lines
    assert [*before.get_xdata()] == [claims["confidence"] for claims in way["as_it_comes"]["reliability"]]
    assert (before.get_linestyle(), after.get_linestyle()) == ("-", "--")
    [line] = risk.lines
    assert np.asarray(line.get_ydata())[-1] == pytest.approx(1 - way["right"])
    found.plot(tmp_path / "calibration.svg")
    assert (tmp_path / "calibration.svg").exists()


def test_without_another_split_nothing_is_fitted() -> None:
    found = calibration(generative(), data())
    assert {way["tempered"] or way["threshold"] for way in found.values["ways"].values()} == {None}
    assert found.values["asked"] is None
    assert len(found.parts) == 1 + 2 * 2


def test_a_risk_that_no_threshold_keeps() -> None:
    wrong = {query: {"elsewhere": 1} for query in data().qrels("dev")}
    strict = Dataset.of("strict", DOCUMENTS, QUERIES, {"dev": wrong, "test": data().qrels("test")})
    found = calibration(dense(), strict, fit_on="dev", risk=0.2)
    assert found.values["ways"][DENSE]["threshold"] is None
    assert found.parts[-1].lines[-1] == "no threshold has a risk of at most 0.2 on dev"


def test_what_cannot_be_is_said_in_one_sentence() -> None:
    with pytest.raises(UsageError, match="the scores of a bm25 retriever are no probabilities; take a generative or"):
        calibration(BM25().fit(data()), data())
    with pytest.raises(UsageError, match="fitted on 'test' looks better there than it is"):
        calibration(dense(), data(), fit_on="test")
    with pytest.raises(UsageError, match="a risk or a coverage, not both"):
        calibration(dense(), data(), fit_on="dev", risk=0.1, coverage=0.5)
    with pytest.raises(UsageError, match="has to be fitted on some split"):
        calibration(dense(), data(), risk=0.1)
    with pytest.raises(UsageError, match="dve"):
        calibration(dense(), data(), fit_on="dve")


def test_questions_that_are_fitted_on_and_measured_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    calibration(dense(), data(), fit_on="dev")
    assert "looks better than it is" not in caplog.text
    calibration(dense(), data(), "dev+test", fit_on="dev")
    count = len(data().qrels("dev"))
    assert f"{count} questions of dev+test can be found in dev too: what is fitted there looks better" in caplog.text


def test_few_questions_to_fit_on_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    calibration(dense(), data(), fit_on="dev")
    count = len(data().qrels("dev"))
    assert f"may be far off: {count} questions of dev are few to choose them by" in caplog.text


def test_data_of_another_corpus_are_said(caplog: pytest.LogCaptureFixture) -> None:
    judged = data()
    splits = {split: judged.qrels(split) for split in ("dev", "test")}
    calibration(dense(), Dataset.of("other", [*DOCUMENTS, Document("more", "one more text")], QUERIES, splits))
    assert "dense holds other documents than other: its measures are about its own documents" in caplog.text
