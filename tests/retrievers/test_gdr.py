"""Generative dense retrieval: the contract, both halves against brute force, the dial's two ends, and its training."""

from __future__ import annotations

import gc
import logging
import math
import weakref
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import triever
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import Document
from triever.config import build
from triever.docids.schemes import Atomic, Cluster, Codebook, Scheme, Semantic, Title
from triever.errors import UsageError
from triever.index.vectors import IndexOptions
from triever.models.docid_model import DecoderOptions, reader_of
from triever.retrievers import gdr as module
from triever.retrievers.cluster_search import Clustered
from triever.retrievers.dense import Dense
from triever.retrievers.docid_search import SearchOptions
from triever.retrievers.gdr import GDR, LossWeights
from triever.retrievers.generative import Generative, Lesson
from triever.retrievers.match_fits import AlphaFit
from triever.retrievers.matching import FEATURES, Candidates, MatchOptions, Way
from triever.training.clusters import ClusterBatches, ClusterNegatives
from triever.training.tuning import WATCH, DocidTuning, Tuning
from triever.training.views import ViewOptions

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=600"
NOTHING = DocidTuning(steps=0)
HELD = DocidTuning(steps=0, holdout=0.5)
ALL = SearchOptions(width=200)
RULES = ("sum", "loglinear")
SCHEMES: dict[str, Scheme] = {
    "cluster": Cluster(clusters=4, branch=4),
    "centroids": Cluster(clusters=4),
    "several": Cluster(clusters=4, branch=4, margin=0.5),
    "semantic": Semantic(branch=3, leaf=3),
    "codebook": Codebook(levels=2, bits=2),
    "atomic": Atomic(),
    "title": Title(vocabulary=100),
}


def questions() -> triever.Dataset:
    """The same documents with many queries: words of their texts, from three places."""
    asked = [
        (document.id, words[at : at + 3])
        for document in DOCUMENTS
        for words in [document.text.split()]
        for at in (0, 2, 4)
    ]
    queries = [triever.Query(f"q{number}", " ".join(words)) for number, (_, words) in enumerate(asked) if words]
    qrels = {f"q{number}": {name: 1} for number, (name, words) in enumerate(asked) if words}
    return triever.Dataset.of("questions", DOCUMENTS, queries, {"train": qrels, "test": qrels})


def gdr(scheme: str = "cluster", **options: object) -> GDR:
    return GDR(docids=SCHEMES[scheme], **{"backbone": SMALL, "training": NOTHING} | options)  # ty: ignore[invalid-argument-type]


def engine_of(retriever: triever.Retriever) -> Clustered:
    return retriever._checked().engine


class TestClusters(Contract):
    def make(self) -> triever.Retriever:
        return gdr(search_options=ALL, matching=MatchOptions(alpha=0.1))  # what writes clusters has learned nothing


class TestTrained(Contract):
    """A tuned encoder that is trained on, half of the docid written, and alpha fitted."""

    def make(self) -> triever.Retriever:
        training = DocidTuning(steps=20, batch=8, rounds=2, learning_rate=2e-3, holdout=0.3)
        matching = MatchOptions(depth=1, rule="loglinear", fit=True)
        views = ViewOptions(length=8)
        options = {"training": training, "matching": matching, "views": views, "joint": True}
        return gdr("semantic", vectors=Dense(backbone=SMALL), search_options=ALL, **options)


# Both halves against brute force


def log_probabilities(fitted: GDR, query: str, depth: int | None) -> dict[tuple[int, ...], float]:
    """Of every prefix of every docid, by a forward pass for each and the symbols that exist after each prefix."""
    engine = engine_of(fitted)
    docids = {docid for docid, _ in engine.trie.items()}
    ids = torch.tensor(reader_of(engine.model).tokenizer.ids([query], 64))
    found = {}
    for docid in docids:
        with torch.inference_mode():
            logits = engine.model(ids, torch.ones_like(ids), torch.tensor([docid]))[0]
        total = 0.0
        for place, symbol in enumerate(docid[:depth]):
            there = sorted({other[place] for other in docids if other[:place] == docid[:place] and len(other) > place})
            total += float(logits[place, there].log_softmax(0)[there.index(symbol)])
        found[docid[:depth]] = total
    return found


def by_one_beam(fitted: GDR, query: str, width: int) -> dict[str, float]:
    """Every document of the best prefixes, one by one, by the formula."""
    engine, store, matching = engine_of(fitted), fitted.documents, fitted.matching
    prefixes = log_probabilities(fitted, query, matching.depth)
    beam = sorted(prefixes, key=lambda one: -prefixes[one])[:width]
    ids = torch.tensor(reader_of(engine.model).tokenizer.ids([query], 64))
    with torch.inference_mode():
        vector = reader_of(engine.model)(ids, torch.ones_like(ids))[0].numpy()
    by_length = {one: prefixes[one] / max(1, len(one)) ** 0.8 for one in beam}
    total = sum(math.exp(value) for value in by_length.values())
    scores = {}
    for row, name in enumerate(store.ids):
        number = int(engine.numbers[row])
        mine = {docid[: matching.depth] for docid, document in engine.trie.items() if document == number} & set(beam)
        if not mine:
            continue
        product = float(vector @ engine.below.take(np.array([number]))[0])
        share = sum(math.exp(by_length[one]) for one in mine) / total
        mass = math.log(sum(math.exp(prefixes[one]) for one in mine))
        if matching.rule == "sum":
            scores[name] = math.tanh(product) + matching.alpha * share
        elif matching.rule == "loglinear":
            scores[name] = product / matching.temperature + matching.alpha * mass
        else:
            rank = 1 + min(beam.index(one) for one in mine)
            features = (product, mass, share, -math.log(rank))
            weights = engine.fitted[matching.way]
            scores[name] = sum(weight * value for weight, value in zip(weights, features, strict=True))
    return scores


def by_brute_force(fitted: GDR, query: str) -> dict[str, float]:
    """The same by wider and wider beams, until all documents are there; what comes later comes behind."""
    width = fitted.search_options.width
    scores = by_one_beam(fitted, query, width)
    while len(scores) < len(fitted):
        width *= 2
        new = {name: score for name, score in by_one_beam(fitted, query, width).items() if name not in scores}
        if new:
            above = max(new.values()) - min(scores.values())
            scores |= {name: score - (above + 1 if above >= 0 else 0) for name, score in new.items()}
    return scores


@pytest.mark.parametrize("rule", [*RULES, "learned"])
@pytest.mark.parametrize(
    ("scheme", "depth", "width"),
    [  # where a beam goes over several lengths it is wide, so that what it finds is what is best
        *(("cluster", None, width) for width in (1, 2, 200)),
        *(("several", None, width) for width in (1, 2, 200)),
        *(("semantic", 1, width) for width in (1, 2, 200)),
        ("codebook", 2, 200),
        ("title", 3, 200),
        ("semantic", None, 200),
    ],
)
def test_the_ranking_is_that_of_all_documents_of_the_best_clusters(
    scheme: str, depth: int | None, width: int, rule: str
) -> None:
    matching = MatchOptions(depth=depth, rule=rule, alpha=0.7)  # ty: ignore[invalid-argument-type]
    options = {"matching": matching, "search_options": SearchOptions(width=width), "training": HELD}
    fitted = gdr(scheme, **options).fit(questions())
    for query in QUERIES[:2]:
        expected = by_brute_force(fitted, query.text)
        result = fitted.search(query, 10)
        assert {hit.id: hit.score for hit in result} == pytest.approx(expected, abs=1e-4)
        first = by_one_beam(fitted, query.text, width)
        assert {hit.id for hit in result[: len(first)]} == first.keys()
        assert bool(result.note) == (len(first) < len(DOCUMENTS))
        assert not fitted.search(query, len(first)).note
        for k in range(1, 10):
            assert fitted.search(query, k)[:k] == result[:k], "whatever is asked for, the order is one"


@pytest.mark.parametrize("seed", range(5))
def test_on_random_corpora_too(seed: int) -> None:
    chance = np.random.default_rng(seed)
    words = [f"word{number}" for number in range(12)]
    texts = [" ".join(chance.choice(words, 5)) for _ in range(int(chance.integers(3, 15)))]
    corpus = triever.Dataset.of("random", [Document(f"d{row}", text) for row, text in enumerate(texts)], [], {})
    method = str(chance.choice(["kmeans", "balanced", "agglomerative", "density"]))
    scheme = Cluster(clusters=int(chance.integers(1, 6)), branch=8, method=method, margin=float(chance.random()))  # ty: ignore[invalid-argument-type]
    matching = MatchOptions(rule=RULES[seed % 2], alpha=float(chance.random()))  # ty: ignore[invalid-argument-type]
    width = SearchOptions(width=int(chance.integers(1, 7)))
    fitted = GDR(docids=scheme, backbone=SMALL, training=NOTHING, matching=matching, search_options=width).fit(corpus)
    for query in (texts[0], "word1 word2"):
        found = {hit.id: hit.score for hit in fitted.search(query, len(texts))}
        assert found == pytest.approx(by_brute_force(fitted, query), abs=1e-4)
        first = fitted.search(query, len(texts) // 2)
        assert {hit.id: hit.score for hit in first} == pytest.approx({hit.id: found[hit.id] for hit in first}, abs=1e-4)


def test_after_changes_too(tmp_path: Path) -> None:
    fitted = gdr("several", search_options=ALL).fit(dataset())
    fitted.delete(["tea", "chess"])
    fitted.add([Document("crater", "Molten rock rises through the crust and erupts as lava.", "Volcanoes")])
    for _ in range(2):
        assert {hit.id: hit.score for hit in fitted.search("molten rock", 10)} == pytest.approx(
            by_brute_force(fitted, "molten rock"), abs=1e-4
        )
        fitted.save(tmp_path / "m")
        fitted = triever.load(tmp_path / "m")
        assert isinstance(fitted, GDR)
    assert isinstance(engine_of(fitted).below.parts[0].array, np.memmap)


def test_the_newest_document_can_be_replaced(tmp_path: Path) -> None:
    fitted = gdr(search_options=ALL).fit(dataset())
    newest = fitted.documents.ids[-1]
    fitted.delete([newest])
    document = Document(newest, "Molten rock rises through the crust and erupts as lava.", "Volcanoes")
    fitted.add([document])
    for _ in range(2):
        engine = engine_of(fitted)
        assert engine.placer is not None
        own = fitted._vectors(engine.placer, engine.reading, [document]).numpy()
        np.testing.assert_allclose(engine.below.take(engine.numbers[-1:]), own, atol=1e-5)
        fitted.save(tmp_path / "m")
        fitted = triever.load(tmp_path / "m")
        assert isinstance(fitted, GDR)


def test_the_authors_rule_needs_vectors_of_length_one() -> None:
    vectors = Dense(backbone=SMALL, unit=False)
    with pytest.raises(UsageError, match="takes the tanh of products"):
        gdr(vectors=vectors).fit(dataset())


def test_more_is_found_than_a_narrow_beam_holds_and_the_result_says_so() -> None:
    fitted = gdr("atomic", search_options=SearchOptions(width=3)).fit(dataset())
    result = fitted.search("boiling water", 8)
    assert len(result) == 8
    assert result.note == "the first 3 are from 3 clusters, those behind them from more"
    assert not fitted.search("boiling water", 3).note
    explanation = fitted.explain("boiling water", 8)
    assert [("found by a wider beam" in dict(parts)) for parts in explanation.parts] == [False] * 3 + [True] * 5
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score, abs=1e-5)


def test_a_hit_shows_the_docid_of_a_cluster_that_was_looked_at() -> None:
    training = DocidTuning(steps=0, seed=1)  # whose favourite is a cluster with others' documents
    fitted = gdr("several", search_options=SearchOptions(width=1), training=training).fit(dataset())
    shown = set()
    for query in QUERIES:
        prefixes = log_probabilities(fitted, query.text, None)
        best = max(prefixes, key=lambda one: prefixes[one])
        members = {number for docid, number in engine_of(fitted).trie.items() if docid == best}
        for hit in fitted.search(query, len(members)):
            assert hit.docid == "-".join(map(str, best))
            shown.add(engine_of(fitted).docid(fitted.documents.row(hit.id)) == best)
    assert shown == {True, False}, "some of them have another docid that comes before it"


def test_no_more_of_a_cluster_is_looked_at_than_can_be_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = gdr(matching=MatchOptions(depth=0)).fit(dataset())
    below, asked = type(engine_of(fitted).below).below, []

    def spied(self: object, *values: object) -> object:
        asked.append(values[3])
        return below(self, *values)  # ty: ignore[invalid-argument-type]

    monkeypatch.setattr(type(engine_of(fitted).below), "below", spied)
    assert len(fitted.search("boiling water", 3)) == 3
    assert asked == [4], "and none a second time"
    twins = [Document(f"twin {number}", "One text for all of them.") for number in range(9)]
    equal = gdr(matching=MatchOptions(depth=0)).fit(dataset(twins))
    vectors = engine_of(equal).below.parts[0].array
    vectors[:] = np.eye(1, vectors.shape[1])  # one number each: sums of several are not rounded alike in all rows
    assert [hit.id for hit in equal.search("text", 3)] == ["twin 8", "twin 7", "twin 6"]
    assert asked == [4, 4, None], "of those that tie, ids decide: all are looked at"


# The two ends of the dial


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_without_a_symbol_it_is_dense_retrieval(scheme: str, rule: str) -> None:
    dense = Dense(backbone=SMALL, pooling="first", query_prefix="asked: ", document_prefix="a: ").fit(dataset())
    matching = MatchOptions(depth=0, rule=rule, alpha=1.0)  # ty: ignore[invalid-argument-type]
    fitted = gdr(scheme, vectors=dense, matching=matching).fit(dataset())
    for result, expected in zip(fitted.search_many(QUERIES, 10), dense.search_many(QUERIES, 10), strict=True):
        assert [hit.id for hit in result] == [hit.id for hit in expected]
        cosines = [math.atanh(hit.score - 1) if rule == "sum" else hit.score * 0.05 for hit in result]
        assert cosines == pytest.approx([hit.score for hit in expected], abs=1e-4)


def test_as_much_of_a_query_is_read_as_the_dense_retriever_reads(tmp_path: Path) -> None:
    long = [f"{query.text} " * 30 + end for query in QUERIES for end in ("tides", "castling", "bread")]
    dense = Dense(backbone=SMALL, query_length=70).fit(dataset())
    depth = MatchOptions(depth=0, rule="loglinear")
    gdr(vectors=dense, matching=depth).fit(dataset()).save(tmp_path / "m")
    fitted = triever.load(tmp_path / "m")
    for result, expected in zip(fitted.search_many(long, 10), dense.search_many(long, 10), strict=True):
        assert [hit.id for hit in result] == [hit.id for hit in expected]
        assert [hit.score * 0.05 for hit in result] == pytest.approx([hit.score for hit in expected], abs=1e-5)
    other = gdr(vectors=dense, matching=depth, query_length=20).fit(dataset())
    assert other.search(long[0], 10) == other.search(long[1], 10), "what was asked for is done"
    assert fitted.search(long[0], 10) != other.search(long[0], 10)
    assert gdr()._query_length == Generative(backbone=SMALL)._query_length


@pytest.mark.parametrize("scheme", ["semantic", "codebook", "atomic", "title"])
def test_with_the_whole_docid_it_is_generative_retrieval(scheme: str) -> None:
    training = DocidTuning(steps=4, batch=8, rounds=1, holdout=0.0)
    options = {"backbone": SMALL, "training": training, "search_options": ALL, "views": ViewOptions(length=8)}
    written = Generative(docids=SCHEMES[scheme], **options).fit(dataset())  # ty: ignore[invalid-argument-type]
    decides = MatchOptions(rule="loglinear", alpha=1.0, temperature=1e9)
    both = gdr(scheme, matching=decides, losses=LossWeights(contrastive=0), **options).fit(dataset())
    for result, expected in zip(both.search_many(QUERIES, 10), written.search_many(QUERIES, 10), strict=True):
        assert [hit.id for hit in result] == [hit.id for hit in expected]
        assert [hit.score for hit in result] == pytest.approx([hit.score for hit in expected], abs=1e-4)
        assert [hit.docid for hit in result] == [hit.docid for hit in expected]


def test_the_depth_of_a_model_that_has_learned_whole_docids_is_a_dial() -> None:
    fitted = gdr("semantic", search_options=ALL).fit(dataset())
    for depth in (None, 2, 1, 0):
        turned = fitted.searched_with({"matching": {"depth": depth}})
        assert {hit.id: hit.score for hit in turned.search("boiling water", 10)} == pytest.approx(
            by_brute_force(turned, "boiling water"), abs=1e-4
        )
    training = DocidTuning(steps=1, batch=4, rounds=1, holdout=0.0)
    short = gdr("semantic", matching=MatchOptions(depth=1), training=training).fit(dataset())
    assert len(short.searched_with({"matching": {"depth": 0}}).search("tea", 3)) == 3
    for depth in (2, None):
        with pytest.raises(UsageError, match="has learned to write 1 symbols of docids"):
            short.searched_with({"matching": {"depth": depth}}).search("tea")


# Rules


@pytest.mark.parametrize("rule", [*RULES, "learned"])
def test_parts_of_an_explanation_add_up_to_the_score(rule: str) -> None:
    matching = MatchOptions(rule=rule, alpha=0.3)  # ty: ignore[invalid-argument-type]
    fitted = gdr("several", matching=matching, training=HELD).fit(questions())
    explanation = fitted.explain("boiling water", 5)
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert tuple(name for name, _ in parts) == (FEATURES if rule == "learned" else ("vector", "cluster"))
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score, abs=1e-6)


def mean_rank(fitted: GDR, values: dict) -> float:
    """The mean reciprocal rank of the held-out queries, searched in some way."""
    held = fitted._held_out(questions(), fitted.documents)
    found = fitted.searched_with({"matching": values}).search_many(held.texts, 10)
    right = [{fitted.documents.ids[row] for row in held.of(query)} for query in range(len(held))]
    ranks = [
        next((1 / rank for rank, hit in enumerate(result, 1) if hit.id in some), 0.0)
        for result, some in zip(found, right, strict=True)
    ]
    return sum(ranks) / len(ranks)


def test_alpha_is_fitted_on_held_out_queries(tmp_path: Path) -> None:
    fitted = gdr(matching=MatchOptions(fit=True, alpha=0.4), training=HELD, search_options=ALL).fit(questions())
    [alpha] = engine_of(fitted).fitted[Way("sum", None, None)]
    others = (0.0, 0.1, 0.4, 1.0, 3.0, 10.0)
    best = mean_rank(fitted, {"fit": False, "alpha": alpha})
    assert all(best >= mean_rank(fitted, {"fit": False, "alpha": value}) - 1e-9 for value in others)
    fitted.save(tmp_path / "m")
    kept = engine_of(triever.load(tmp_path / "m")).fitted
    assert kept == engine_of(fitted).fitted
    assert kept[Way("sum", 1, None)] == (alpha,), "a whole docid is one symbol here"
    assert f"| alpha | {alpha} |" in fitted.card
    with pytest.raises(UsageError, match=r"no query of train is held out; raise training\.holdout"):
        gdr(matching=MatchOptions(fit=True), training=DocidTuning(steps=0, holdout=0.0)).fit(questions())


def test_what_was_fitted_for_another_way_to_match_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    matching = MatchOptions(fit=True, rule="loglinear", alpha=0.4)
    fitted = gdr("semantic", matching=matching, training=HELD, search_options=ALL).fit(questions())
    ways = {*engine_of(fitted).fitted}
    rules = [("sum", None), ("loglinear", 0.05), ("learned", None)]
    assert ways == {Way(rule, depth, one) for depth in (1, 2, 3, None) for rule, one in rules}
    for depth in (1, 2):
        chosen = engine_of(fitted).fitted[Way("loglinear", depth, 0.05)][0]
        best = mean_rank(fitted, {"depth": depth, "fit": False, "alpha": chosen})
        assert best == pytest.approx(mean_rank(fitted, {"depth": depth}))
        assert all(best >= mean_rank(fitted, {"depth": depth, "fit": False, "alpha": one}) - 1e-9 for one in (0.0, 1.0))
    with caplog.at_level(logging.WARNING, "triever"):
        for same in ({"alpha": 0.9}, {"depth": 1}, {"depth": 0}, {"fit": False, "temperature": 0.1}, {"rule": "sum"}):
            fitted.searched_with({"matching": same})
        assert not caplog.text
        other = fitted.searched_with({"matching": {"temperature": 0.1}})
        assert other._scoring(engine_of(other)).weights == (0.4,)
        assert "no alpha was fitted for rule" in caplog.text
        assert "the given one is used, 0.4" in caplog.text
    for rule in ("sum", "learned"):
        other = fitted.searched_with({"matching": {"rule": rule}})
        assert other._scoring(engine_of(other)).weights == engine_of(fitted).fitted[Way(rule, None, None)]
    assert fitted._scoring(engine_of(fitted)).weights == engine_of(fitted).fitted[matching.way]


def test_a_round_is_judged_with_the_alpha_that_suits_it() -> None:
    training = replace(HELD, steps=1)  # with the model as it comes
    matching = MatchOptions(fit=True, rule="loglinear", alpha=1000.0)
    made = gdr(matching=matching, training=training, search_options=ALL, views=ViewOptions(names=("chunks",)))
    fitted = made.fit(questions())
    engine, held = engine_of(fitted), made._held_out(questions(), fitted.documents)
    judged = made._quality(replace(engine, fitted={}), fitted.documents, held)
    assert judged[WATCH] == pytest.approx(mean_rank(fitted, {"fit": True}))
    assert judged[WATCH] > mean_rank(fitted, {"fit": False})


def test_a_fit_does_not_keep_what_it_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Candidates]] = []

    class Forgetful(AlphaFit):
        def see(self, found: Candidates, relevant: np.ndarray) -> None:
            alive.append(weakref.ref(found))
            super().see(found, relevant)
            gc.collect()
            assert len({id(one()) for one in alive} - {id(None)}) <= 2  # each is seen by a fit for every rule

    sums = MatchOptions(fit=True)
    monkeypatch.setattr(module, "fit_for", lambda _matching: Forgetful(sums))
    gdr(matching=MatchOptions(fit=True), training=HELD, search_options=ALL).fit(questions())
    assert len(alive) > 2


@pytest.mark.parametrize(
    ("holdout", "split", "is_refused"),
    [(0.0, "train", True), (0.29, "test+train", True), (0.3, "train", False), (0.0, "test", False)],
)
@pytest.mark.parametrize("matching", [MatchOptions(fit=True), MatchOptions(rule="learned"), MatchOptions()])
def test_the_score_is_not_fitted_on_queries_that_the_vectors_learned(
    holdout: float, split: str, is_refused: bool, matching: MatchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = Dense(backbone=SMALL, training=Tuning(steps=1, batch=2, holdout=holdout, split=split))
    made = gdr(vectors=dense, matching=matching, training=DocidTuning(steps=0, holdout=0.3))
    monkeypatch.setattr(Dense, "_learn", lambda *_: pytest.fail("too late"))
    if is_refused and matching.fits:
        said = rf"learns queries of train .*holdout is {holdout}, training.holdout 0.3; hold out as many"
        with pytest.raises(UsageError, match=said):
            made.fit(questions())
    else:
        data = questions()
        made._check_early(data, triever.data.store.DocumentStore.of(data.documents()))


def test_weights_are_learned_at_each_evaluation_of_a_training() -> None:
    training = DocidTuning(steps=2, batch=6, rounds=2, holdout=0.5)
    fitted = gdr(matching=MatchOptions(rule="learned"), training=training, search_options=ALL).fit(questions())
    assert any(engine_of(fitted).fitted[Way("learned", None, None)])
    assert "| held-out RR@10 |" in fitted.card


def test_what_is_learned_is_kept_and_told(tmp_path: Path) -> None:
    fitted = gdr(matching=MatchOptions(rule="learned", depth=1), training=HELD, search_options=ALL).fit(questions())
    weights = engine_of(fitted).fitted[Way("learned", 1, None)]
    assert len(weights) == len(FEATURES)
    assert "'log P of the cluster': " in fitted.card
    fitted.save(tmp_path / "m")
    again = triever.load(tmp_path / "m")
    assert engine_of(again).fitted == engine_of(fitted).fitted
    assert again.search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)
    other = again.searched_with({"matching": {"depth": 0}})
    assert "| learned weights | {} |" in other.card
    with pytest.raises(UsageError, match="no weights were learned for rule learned with depth 0; fit it with that"):
        other.search("tea")
    with pytest.raises(UsageError, match=r"matching\.rule = learned, and no query of train is held out"):
        gdr(matching=MatchOptions(rule="learned"), training=DocidTuning(steps=0, holdout=0.0)).fit(questions())


# Learning


def test_one_encoder_reads_for_the_decoder_and_for_the_vector() -> None:
    dense = Dense(backbone=SMALL).fit(dataset())
    fitted = gdr(vectors=dense).fit(dataset())
    theirs = dense._checked().engine
    for name, weight in theirs.encoder.state_dict().items():
        assert torch.equal(weight, engine_of(fitted).model.reader.state_dict()[name])
    assert np.allclose(engine_of(fitted).below.take(np.arange(len(DOCUMENTS))), theirs.index.vectors())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("joint", [False, True])
def test_the_loss_is_its_parts_by_the_formula(rule: str, joint: bool) -> None:
    losses = LossWeights(likelihood=0.5, contrastive=2.0)
    options = {"matching": MatchOptions(rule=rule), "losses": losses, "joint": joint}  # ty: ignore[invalid-argument-type]
    training = DocidTuning(steps=1, batch=6, rounds=1, holdout=0.0)
    decoder = DecoderOptions(dropout=0.0)
    made = gdr(training=training, negatives=ClusterNegatives(inside=3, beta=2.0), decoder=decoder, **options)
    data = dataset()
    fitted = made.fit(data)
    engine, store = engine_of(fitted), fitted.documents
    views, _ = made._views(engine, data, store, None)
    docids = np.stack([np.pad(engine.docid(row), (0, 9), constant_values=-100)[:9] for row in range(len(store))])
    batch = made._taught(Lesson(engine, views, docids, data, store, None))(0)[0]
    model = engine.model.eval()
    with torch.no_grad():
        found = made._loss_of_batch(model, batch)
        reader = reader_of(model)
        queries = reader(batch["ids"], batch["mask"])
        if joint:
            documents = model.get_submodule("document_encoder")(batch["document_ids"], batch["document_mask"])
        else:
            documents = batch["document_vectors"]
        likelihood = model.loss(batch["ids"], batch["mask"], batch["docids"], -100)
    each = []
    for text in range(len(queries)):
        terms = []
        for document in range(len(documents)):
            product = float(queries[text] @ documents[document])
            score = (math.tanh(product) if rule == "sum" else product) / 0.05
            weight = 1.0 if document == text else float(batch["weights"][text, document])
            if document == text or not batch["excluded"][text, document]:
                terms.append(weight * math.exp(score))
            if document == text:
                right = math.exp(score)
        each.append(-math.log(right / sum(terms)))
    assert float(found["contrastive"]) == pytest.approx(2.0 * sum(each) / len(each), rel=1e-3)
    assert float(found["likelihood"]) == pytest.approx(0.5 * float(likelihood), rel=1e-4)
    model._modules.pop("document_encoder", None)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("source", ["inside", "random", "bm25", "model"])
def test_it_learns_from_any_negatives(joint: bool, source: str, tmp_path: Path) -> None:
    by_source = {
        "inside": ClusterNegatives(inside=2, beta=2.0),
        "random": ClusterNegatives(inside=0, count=2, hard=0.0),
        "bm25": ClusterNegatives(inside=0, count=2, source="bm25"),
        "model": ClusterNegatives(inside=1, count=2, source="model"),
    }
    training = DocidTuning(steps=60, batch=8, rounds=2, learning_rate=3e-3, holdout=0.0)
    options = {"training": training, "views": ViewOptions(names=("labelled",)), "search_options": ALL}
    fitted = gdr(negatives=by_source[source], joint=joint, **options).fit(dataset())
    found = [result[0].id for result in fitted.search_many(QUERIES, 1)]
    assert sum(one in ("tea", "bike", "東京", "bread") for one in found) >= 3
    before = gdr().fit(dataset())
    rows = np.arange(len(DOCUMENTS))
    same = np.allclose(engine_of(fitted).below.take(rows), engine_of(before).below.take(rows))
    assert same != joint, "vectors are made anew where the document encoder was trained"
    assert [engine_of(fitted).docid(row) for row in rows] == [engine_of(before).docid(row) for row in rows]
    fitted.save(tmp_path / "m")
    again = triever.load(tmp_path / "m")
    assert again.search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)
    for one in (fitted, again):
        one.add([Document("crater", "Molten rock.", "Volcanoes")])
    assert again.search("lava", 5) == fitted.search("lava", 5)


@pytest.mark.parametrize("source", ["bm25", "model"])
def test_hard_negatives_are_mined_for_written_queries_too(source: str) -> None:
    data = dataset().with_expansions({"tides": ["the king of the sea", "water that moves"], "tea": ["leaves in water"]})
    training = DocidTuning(steps=1, batch=6, rounds=1, holdout=0.0)
    for wanted in (True, False):
        negatives = ClusterNegatives(inside=0, count=2, depth=4, source=source, generated=wanted)
        made = gdr(training=training, negatives=negatives)
        fitted = made.fit(data)
        engine, store = engine_of(fitted), fitted.documents
        views, _ = made._views(engine, data, store, None)
        docids = np.stack([engine.docid(row) for row in range(len(store))])
        batches = made._taught(Lesson(engine, views, docids, data, store, None))(0)
        assert isinstance(batches, ClusterBatches)
        assert {name: len(rows) for name, rows in batches.mined.items()} == (
            {"labelled": 4, "generated": 3} if wanted else {"labelled": 4}
        )
        own = [store.row(name) for name in ("tea", "tides", "tides")]
        for row, hard in zip(own, batches.mined.get("generated", ()), strict=wanted):
            assert row not in hard
            assert (hard >= 0).any()


def test_a_training_that_was_interrupted_goes_on_to_the_same(tmp_path: Path) -> None:
    options = {"joint": True, "negatives": ClusterNegatives(inside=2)}
    training = DocidTuning(steps=4, batch=8, rounds=2, holdout=0.0)
    whole = gdr(training=training, **options).fit(dataset(), work=tmp_path / "w").search_many(QUERIES, 5)
    assert gdr(training=training, **options).fit(dataset(), work=tmp_path / "w").search_many(QUERIES, 5) == whole


def test_nothing_but_the_dense_half_can_be_trained() -> None:
    training = DocidTuning(steps=3, batch=8, rounds=1, holdout=0.0)
    fitted = gdr(matching=MatchOptions(depth=0), training=training).fit(dataset())
    assert len(fitted.search("tea", 3)) == 3


# What it keeps


def test_memory_is_told_and_vectors_are_stored_as_the_dense_retriever_stores_them() -> None:
    dense = Dense(backbone=SMALL, index=IndexOptions(dtype="float16"))
    fitted = gdr(vectors=dense).fit(dataset())
    engine = engine_of(fitted)
    assert engine.below.bytes == len(DOCUMENTS) * 32 * 2
    assert fitted.index_bytes == engine.below.bytes + engine.trie.bytes
    for what in ("clusters | 4", "documents of the largest cluster", "bytes of vectors | 640", "bytes of the trie"):
        assert f"| {what} |" in fitted.card or f"| {what}" in fitted.card


def test_a_document_at_a_boundary_is_found_by_each_of_its_clusters() -> None:
    fitted = gdr("several", search_options=SearchOptions(width=1)).fit(dataset())
    engine = engine_of(fitted)
    docids: dict[int, int] = {}
    for _, number in engine.trie.items():
        docids[number] = docids.get(number, 0) + 1
    assert max(docids.values()) > 1
    assert len(engine.numbers) == len(DOCUMENTS)
    # A vector that is there twice is compared twice, which dense retrieval does not do.
    everything = fitted.searching(width=200).compared([query.text for query in QUERIES])
    assert everything == sum(docids.values()) / len(DOCUMENTS) > 1


@pytest.mark.parametrize("method", ["kmeans", "balanced"])
def test_a_document_at_a_boundary_counts_in_all_its_clusters(method: str) -> None:
    scheme = Cluster(clusters=4, branch=4, method=method, margin=1.0)  # ty: ignore[invalid-argument-type]
    fitted = GDR(docids=scheme, backbone=SMALL, training=NOTHING).fit(dataset())
    vectors = torch.from_numpy(engine_of(fitted).below.take(np.arange(len(DOCUMENTS))))
    docids = scheme.fit(DOCUMENTS, vectors)
    more = scheme.others(vectors, docids)
    expected = {(docid, row) for row, own in enumerate(docids) for docid in (own, *more[row])}
    assert set(engine_of(fitted).trie.items()) == expected
    largest = max(Counter(docid for docid, _ in expected).values())
    assert largest > max(Counter(docids).values())
    assert f"| documents of the largest cluster | {largest} |" in fitted.card


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"matching": {"rule": "product"}}, "sum"),
        ({"matching": {"depth": -1}}, "not negative"),
        ({"matching": {"temperature": 0}}, "above 0"),
        ({"losses": {"likelihood": 0, "contrastive": 0}}, "one is above 0"),
        ({"search_options": {"method": "exact"}}, "searched by a beam"),
        ({"training": {"add_steps": 5}}, "matched without training"),
        ({"negatives": {"inside": -1}}, "not negative"),
        ({"vectors": "bm25"}, "dense"),
        ({"docids": {"kind": "cluster", "method": "kmean"}}, "kmeans"),
    ],
)
def test_a_mistake_is_one_sentence_that_helps(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(GDR, options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"losses": LossWeights(likelihood=0)}, "raise training.reader"),
        ({"matching": MatchOptions(depth=0)}, "raise training.reader"),
        ({"joint": True}, "leave joint out"),
        ({}, "lets no vector learn; set losses.contrastive=0, or raise training.reader"),
    ],
)
def test_a_training_that_teaches_nothing_is_refused(options: dict, message: str) -> None:
    training = DocidTuning(steps=1, batch=6, reader=0.0)
    with pytest.raises(UsageError, match=message):
        gdr(training=training, vectors=Dense(backbone=SMALL), **options).fit(dataset())
    gdr(training=training, **options)._check_training()  # what begins anew learns whatever the share is


def test_a_reader_may_stay_as_it_is() -> None:
    training = DocidTuning(steps=1, batch=6, rounds=1, reader=0.0, holdout=0.0)
    losses = LossWeights(contrastive=0)
    fitted = gdr(training=training, vectors=Dense(backbone=SMALL), losses=losses).fit(dataset())
    assert len(fitted.search("tea", 3)) == 3


def test_a_tuned_dense_retriever_begins_it() -> None:
    dense = Dense(backbone=SMALL, training=Tuning(steps=4, batch=4, holdout=0.0))
    fitted = gdr(vectors=dense, matching=MatchOptions(depth=0)).fit(dataset())
    assert len(fitted.search("tea", 3)) == 3
