"""Reranking: the contract, scores of pairs read one by one, training that helps."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import triever
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from tests.retrievers.told import Told
from triever import Dataset, Document, Query, config
from triever.engines.reranked import joined
from triever.models.backbones import learn_tokenizer
from triever.models.tokens import TextTokenizer, Tokens
from triever.retriever import Retriever
from triever.retrievers.bm25 import BM25
from triever.retrievers.dense import Dense
from triever.retrievers.multivector import MultiVector
from triever.retrievers.reranker import CandidateBatches, Reranked
from triever.training.pairs import Negatives, pairs_of
from triever.training.tuning import RerankTuning, Tuning

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
TINY = RerankTuning(steps=40, batch=4, learning_rate=3e-3, holdout=0.0)


class TestReranked(Contract):
    filters_as = "no model"

    def make(self) -> triever.Retriever:
        return Reranked(backbone=SMALL, training=TINY, depth=5, negatives=Negatives(count=3))


def test_scores_are_those_of_query_and_document_read_together() -> None:
    reranked = Reranked(backbone=SMALL, training=RerankTuning(steps=0)).fit(dataset())
    encoder = reranked.engine.reranker.encoder
    query = "boiling water for tea leaves"
    texts = {document.id: document.full_text for document in DOCUMENTS}
    result = reranked.search(query, 10)
    assert {hit.id for hit in result} == {hit.id for hit in BM25().fit(dataset()).search(query, 10)}
    for hit in result:
        left, right = encoder.tokenizer.ids([query, texts[hit.id]])
        ids = torch.tensor([left + right[len(encoder.tokenizer.before) :]])
        with torch.inference_mode():
            score = float(encoder(ids, torch.ones_like(ids)))
        assert hit.score == pytest.approx(score, abs=1e-5)


def test_training_puts_the_right_document_first() -> None:
    tuning = RerankTuning(steps=60, batch=4, rounds=2, learning_rate=3e-3, holdout=0.0)
    reranked = Reranked(backbone=SMALL, training=tuning, negatives=Negatives(count=3)).fit(dataset())
    first = [result[0].id for result in reranked.search_many(QUERIES, 1)]
    assert first == ["tea", "bike", "東京", "bread"]


TOPICS = ("amber", "basalt", "cedar", "dune", "ember", "fjord", "glacier", "heather")


def misleading() -> Dataset:
    """For each topic a document that answers, and one that only says the topic's name again and again."""
    good = [Document(f"good {topic}", f"the answer about {topic} is found here") for topic in TOPICS]
    bad = [Document(f"bad {topic}", f"{topic} {topic} {topic} {topic}") for topic in TOPICS]
    queries = [Query(topic, f"tell me of {topic}") for topic in TOPICS]
    return Dataset.of("misleading", [*good, *bad], queries, {"train": {one: {f"good {one}": 1} for one in TOPICS}})


def right(retriever: Retriever, data: Dataset) -> int:
    """How many queries find what is relevant first."""
    found = retriever.search_many(data.queries("train"), 1)
    return sum(result[0].id == f"good {topic}" for result, topic in zip(found, TOPICS, strict=True))


def test_training_makes_it_better_than_its_first_stage() -> None:
    data = misleading()
    tuning = RerankTuning(steps=40, batch=8, learning_rate=3e-3, holdout=0.0)
    reranked = Reranked(backbone=SMALL, training=tuning, negatives=Negatives(count=3)).fit(data)
    assert right(BM25().fit(data), data) == 0
    assert right(reranked, data) == len(TOPICS)


def test_copies_of_what_is_relevant_are_not_wrong() -> None:
    data = misleading()
    copies = [replace(document, id=f"copy of {document.id}") for document in data.documents()]
    qrels = {"train": data.qrels("train")}
    twice = Dataset.of("twice", [*data.documents(), *copies], data.queries("train"), qrels)
    tuning = RerankTuning(steps=1, batch=8)
    reranked = Reranked(backbone=SMALL, training=tuning, negatives=Negatives(count=9, depth=3)).fit(twice)
    held = reranked._checked()
    candidates = reranked._candidates(held.engine, held.store, pairs_of(twice, "train", held.store))
    batches = CandidateBatches(tuning, 30, 0, candidates, held.engine.reranker, reranked.negatives)
    for query, topic in enumerate(TOPICS):
        for chance in range(30):
            row = batches._row(query, np.random.default_rng(chance))
            ids = [held.store.ids[one] for one in row]
            assert ids[0] == f"good {topic}"
            assert not {f"good {topic}", f"copy of good {topic}"} & {*ids[1:]}


def test_held_out_queries_choose_the_best_round() -> None:
    tuning = RerankTuning(steps=4, batch=2, rounds=2, holdout=0.5)
    card = Reranked(backbone=SMALL, training=tuning).fit(misleading()).card
    assert "| held-out RR@10 |" in card
    assert "| best step |" in card


def test_an_untrained_cross_encoder_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "triever"):
        Reranked(backbone=SMALL, training=RerankTuning(steps=0)).fit(dataset())
    assert "its order of the hits means nothing" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "triever"):
        Reranked(backbone=SMALL, training=RerankTuning(steps=1, holdout=0.0)).fit(dataset())
    assert not caplog.text


@pytest.mark.parametrize("steps", [0, 2])
def test_queries_and_documents_fit_into_a_small_backbone(steps: int) -> None:
    small = "scratch:hidden=32,layers=1,heads=2,vocabulary=500,positions=16"
    tuning = RerankTuning(steps=steps, batch=4, holdout=0.0)
    reranked = Reranked(backbone=small, training=tuning, query_length=64, document_length=64).fit(dataset())
    engine = reranked.engine.reranker
    tokens = engine.query_tokens(["boiling water for tea leaves " * 20, "tea"])
    assert tokens.lengths.tolist()[0] == 8, "half of it is for the document"
    pairs = joined(tokens, np.zeros(10, int), engine.documents, np.arange(10), engine.encoder.tokenizer, 16)
    assert pairs.lengths.max() == 16
    scores = {hit.id: hit.score for hit in reranked.search("boiling water for tea leaves " * 20, 3)}
    assert len(scores) == len(set(scores.values())) == 3, "what the documents say still counts"


def test_hits_behind_those_that_are_read_are_explained_as_what_they_are() -> None:
    reranked = Reranked(backbone=SMALL, training=RerankTuning(steps=0), depth=1).fit(dataset())
    found = BM25().fit(dataset()).search("boiling water", 3)
    explanation = reranked.explain("boiling water", 3)
    assert [hit.id for hit in explanation.result] == [hit.id for hit in found]
    assert [parts[0][0] for parts in explanation.parts] == [
        "cross-encoder",
        "first stage's order",
        "first stage's order",
    ]
    assert [parts[0][1] for parts in explanation.parts] == [hit.score for hit in explanation.result]


@pytest.mark.parametrize("first", [MultiVector(backbone=SMALL, size=8), BM25(), Told()])
def test_no_queries_are_no_trouble(first: Retriever) -> None:
    tuning = RerankTuning(steps=1, batch=2, holdout=0.0)  # so that no query is held out
    reranked = Reranked(first=first, backbone=SMALL, training=tuning).fit(dataset())
    assert reranked.engine.search(reranked.documents, [], 3) == []
    assert reranked.search_many([]) == []


@pytest.mark.parametrize(
    ("tuning", "message"),
    [
        (RerankTuning(holdout=0.999999), "all training queries are held out; lower training.holdout"),
        (RerankTuning(split="trian"), "no split 'trian'; did you mean train"),
    ],
)
def test_queries_are_looked_for_before_anything_is_learned(
    tuning: RerankTuning, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BM25, "learn", lambda *_: pytest.fail("too late"))
    with pytest.raises(triever.UsageError, match=message):
        Reranked(backbone=SMALL, training=tuning).fit(dataset())
    with pytest.raises(triever.UsageError, match="no split 'dev'"):
        first = Dense(backbone=SMALL, training=Tuning(steps=1, split="dev"))
        Reranked(first=first, backbone=SMALL, training=RerankTuning(steps=0)).fit(dataset())


def test_a_backbone_that_is_not_there_is_said_before_anything_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BM25, "learn", lambda *_: pytest.fail("too late"))
    with pytest.raises(triever.UsageError, match="scratch"):
        Reranked(backbone="scrach").fit(dataset())


def test_a_saved_folder_is_a_first_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, Any] = {"backbone": SMALL, "training": {"steps": 0}}
    dense = Dense(backbone=SMALL).fit(dataset())
    dense.save(tmp_path / "first")
    expected = config.build(Reranked, {**values, "first": dense}).fit(dataset()).search_many(QUERIES, 5)
    monkeypatch.setattr(Dense, "learn", lambda *_: pytest.fail("learned again"))
    folder: Any = str(tmp_path / "first")
    made = Reranked(first=folder, backbone=SMALL, training=RerankTuning(steps=0))
    words = config.build(Reranked, {**values, **config.assignments([f"first={folder}"])})
    for reranked in (made, words):
        assert type(reranked.first) is Dense
        assert reranked.fit(dataset()).search_many(QUERIES, 5) == expected
    made.save(tmp_path / "both")
    assert triever.load(tmp_path / "both").search_many(QUERIES, 5) == expected


def test_a_long_document_loses_its_end_and_not_the_query() -> None:
    long = [*DOCUMENTS, triever.Document("long", "tea leaves " * 3000)]
    reranked = Reranked(backbone=SMALL, training=RerankTuning(steps=0), document_length=5000).fit(dataset(long))
    assert "long" in {hit.id for hit in reranked.search("tea leaves", 3)}


def test_the_first_stage_may_be_any_system() -> None:
    values = {"first": {"kind": "fused", "systems": "bm25,bm25"}, "backbone": SMALL, "training": {"steps": 0}}
    reranked = config.build(Reranked, values).fit(dataset())
    assert "tea" in {hit.id for hit in reranked.search("tea leaves", 5)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"negatives": Negatives(count=0)}, "needs negatives to learn"),
        (
            {"negatives": Negatives(count=2, source="model")},
            "has no effect: the first stage finds the negatives; leave",
        ),
        ({"depth": 0}, "depth = 0 should be above zero"),
        ({"query_length": 2}, "set both to 3 or more"),
        ({"document_length": 0}, "set both to 3 or more"),
    ],
)
def test_mistakes_are_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(triever.UsageError, match=message):
        Reranked(**options)


PIECES = learn_tokenizer(["some words to learn from"], 300)._tokenizer


@given(st.integers(4, 30), st.randoms(use_true_random=False))
def test_pairs_are_joined_as_one_by_one(longest: int, chance: random.Random) -> None:
    tokenizer = TextTokenizer(PIECES, pad=0, before=[1], after=[2, 3])
    queries, documents = (
        Tokens.from_lists([[1, *chance.choices(range(9, 99), k=chance.randrange(most)), 2, 3] for _ in range(4)])
        for most in (3, 40)
    )
    query, rows = (np.array(chance.choices(range(4), k=6)) for _ in range(2))
    found = joined(queries, query, documents, rows, tokenizer, longest)
    for place, (one, row) in enumerate(zip(query, rows, strict=True)):
        left, right = queries[one].tolist(), documents[row].tolist()[1:]
        room = max(0, longest - len(left))
        if len(right) > room:
            right = [*right[: max(0, room - 2)], *[2, 3][-room:]] if room else []
        assert found[place].tolist() == left + right
