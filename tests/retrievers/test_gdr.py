"""Generative dense retrieval: the contract, both halves against brute force, the dial's two ends, and what it keeps."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import triever
from tests.marks import quick
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from tests.retrievers.gdr_cases import ALL, HELD, NOTHING, RULES, SCHEMES, SMALL, engine_of, gdr, questions
from triever import Document
from triever.config import build
from triever.docids.schemes import Cluster
from triever.engines.docid_search import SearchOptions
from triever.engines.docids import vectors_of
from triever.engines.match_scores import MatchOptions
from triever.errors import UsageError
from triever.index.vectors import IndexOptions
from triever.retrievers.dense import Dense
from triever.retrievers.gdr import GDR, LossWeights
from triever.retrievers.generative import Generative
from triever.training.tuning import DocidTuning
from triever.training.views import ViewOptions


class TestClusters(Contract):
    def make(self) -> triever.Retriever:
        return gdr(search_options=ALL, matching=MatchOptions(alpha=0.1))  # what writes clusters has learned nothing


@pytest.mark.long
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
    """Of every prefix of every docid, by a forward pass for each, over the symbols that the search is told of."""
    engine = engine_of(fitted)
    docids = {docid for docid, _ in engine.docids.trie.items()}
    ids = torch.tensor(engine.docids.model.encoder.tokenizer.ids([query], 64))
    found = {}
    for docid in docids:
        with torch.inference_mode():
            logits = engine.docids.model(ids, torch.ones_like(ids), torch.tensor([docid]))[0]
        total = 0.0
        for place, symbol in enumerate(docid[:depth]):
            there = sorted({other[place] for other in docids if other[:place] == docid[:place] and len(other) > place})
            if fitted.search_options.following(engine.docids.normalisation).normalisation == "vocabulary":
                there = list(range(logits.shape[1]))
            total += float(logits[place, there].log_softmax(0)[there.index(symbol)])
        found[docid[:depth]] = total
    return found


def by_one_beam(fitted: GDR, query: str, width: int) -> dict[str, float]:
    """Every document of the best prefixes, one by one, by the formula."""
    engine, store, matching = engine_of(fitted), fitted.documents, fitted.matching
    prefixes = log_probabilities(fitted, query, matching.depth)
    beam = sorted(prefixes, key=lambda one: -prefixes[one])[:width]
    ids = torch.tensor(engine.docids.model.encoder.tokenizer.ids([query], 64))
    with torch.inference_mode():
        vector = engine.docids.model.encoder(ids, torch.ones_like(ids))[0].numpy()
    by_length = {one: prefixes[one] / max(1, len(one)) ** 0.8 for one in beam}
    total = sum(math.exp(value) for value in by_length.values())
    scores = {}
    for row, name in enumerate(store.ids):
        number = int(engine.docids.numbers[row])
        mine = {docid[: matching.depth] for docid, document in engine.docids.trie.items() if document == number} & set(
            beam
        )
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
    width = fitted.search_options.beam_width
    scores = by_one_beam(fitted, query, width)
    while len(scores) < len(fitted):
        width *= 2
        new = {name: score for name, score in by_one_beam(fitted, query, width).items() if name not in scores}
        if new:
            above = max(new.values()) - min(scores.values())
            scores |= {name: score - (above + 1 if above >= 0 else 0) for name, score in new.items()}
    return scores


BEAMS = [  # where a beam goes over several lengths it is wide, so that what it finds is what is best
    *(("cluster", None, width) for width in (1, 2, 200)),
    *(("several", None, width) for width in (1, 2, 200)),
    *(("semantic", 1, width) for width in (1, 2, 200)),
    ("codebook", 2, 200),
    ("title", 3, 200),
    ("semantic", None, 200),
]


@pytest.mark.parametrize(
    ("scheme", "depth", "width", "rule"),
    quick(
        ("cluster", None, 2, "sum"),
        ("several", None, 200, "loglinear"),
        ("semantic", 1, 1, "learned"),
        ("title", 3, 200, "sum"),
        of=[(*beam, rule) for beam in BEAMS for rule in (*RULES, "learned")],
    ),
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
        assert engine.docids.placer is not None
        own = vectors_of(engine.docids.placer, engine.docids.reading, [document]).numpy()
        np.testing.assert_allclose(engine.below.take(engine.docids.numbers[-1:]), own, atol=1e-5)
        fitted.save(tmp_path / "m")
        fitted = triever.load(tmp_path / "m")
        assert isinstance(fitted, GDR)


def test_the_authors_rule_needs_vectors_of_length_one() -> None:
    vectors = Dense(backbone=SMALL, unit=False)
    with pytest.raises(UsageError, match=r"matching\.rule = sum needs vectors of length one"):
        gdr(vectors=vectors).fit(dataset())
    fitted = gdr(vectors=vectors, matching=MatchOptions(rule="loglinear")).fit(dataset())
    with pytest.raises(UsageError, match=r"matching\.rule = sum needs vectors of length one"):
        fitted.searched_with({"matching": {"rule": "sum"}})


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
        members = {number for docid, number in engine_of(fitted).docids.trie.items() if docid == best}
        for hit in fitted.search(query, len(members)):
            assert hit.docid == "-".join(map(str, best))
            shown.add(engine_of(fitted).docids.docid(fitted.documents.row(hit.id)) == best)
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
    assert gdr().read_length == Generative(backbone=SMALL).read_length


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
        with pytest.raises(UsageError, match="has learned to write only 1 symbols of a docid"):
            short.searched_with({"matching": {"depth": depth}}).search("tea")


# What it keeps


def test_memory_is_told_and_vectors_are_stored_as_the_dense_retriever_stores_them() -> None:
    dense = Dense(backbone=SMALL, index=IndexOptions(dtype="float16"))
    fitted = gdr(vectors=dense).fit(dataset())
    engine = engine_of(fitted)
    assert engine.below.bytes == len(DOCUMENTS) * 32 * 2
    assert fitted.index_bytes == engine.below.bytes + engine.docids.trie.bytes
    for what in ("clusters | 4", "documents of the largest cluster", "bytes of vectors | 640", "bytes of the trie"):
        assert f"| {what} |" in fitted.card or f"| {what}" in fitted.card


def test_the_card_tells_of_clusters_as_they_are_now() -> None:
    fitted = gdr("centroids").fit(dataset())
    fitted.add(Document(f"more-{number}", DOCUMENTS[0].text) for number in range(20))
    sizes = Counter(docid for docid, _ in engine_of(fitted).docids.trie.items())
    assert max(sizes.values()) > 20
    assert f"| documents of the largest cluster | {max(sizes.values())} |" in fitted.card
    assert f"| clusters | {len(sizes)} |" in fitted.card
    fitted.delete([*fitted.documents.ids])
    assert "| clusters | 0 |" in fitted.card
    assert fitted.compared(["tea"]) == 0


def test_a_document_at_a_boundary_is_found_by_each_of_its_clusters() -> None:
    fitted = gdr("several", search_options=SearchOptions(width=1)).fit(dataset())
    engine = engine_of(fitted)
    docids: dict[int, int] = {}
    for _, number in engine.docids.trie.items():
        docids[number] = docids.get(number, 0) + 1
    assert max(docids.values()) > 1
    assert len(engine.docids.numbers) == len(DOCUMENTS)
    # A vector that occurs twice is compared twice, which dense retrieval does not do.
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
    assert set(engine_of(fitted).docids.trie.items()) == expected
    largest = max(Counter(docid for docid, _ in expected).values())
    assert largest > max(Counter(docids).values())
    assert f"| documents of the largest cluster | {largest} |" in fitted.card


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"matching": {"rule": "product"}}, "sum"),
        ({"matching": {"depth": -1}}, "depth and alpha to 0 or more"),
        ({"matching": {"temperature": 0}}, "above 0"),
        ({"losses": {"likelihood": 0, "contrastive": 0}}, "at least one above 0"),
        ({"search_options": {"method": "exact"}}, "gdr searches clusters by a beam only"),
        ({"training": {"add_steps": 5}}, "gdr adds documents without training"),
        ({"negatives": {"inside": -1}}, "inside to 0 or more"),
        ({"vectors": "bm25"}, "dense"),
        ({"docids": {"kind": "cluster", "method": "kmean"}}, "kmeans"),
    ],
)
def test_a_mistake_is_one_sentence_that_helps(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(GDR, options)
