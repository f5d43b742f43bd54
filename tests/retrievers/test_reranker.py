"""Reranking: the contract, scores of pairs read one by one, training that helps."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import triever
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import config
from triever.models.backbones import learn_tokenizer
from triever.models.tokens import TextTokenizer, Tokens
from triever.retrievers.bm25 import BM25
from triever.retrievers.reranker import Reranked, joined
from triever.training.pairs import Negatives
from triever.training.tuning import RerankTuning

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
TINY = RerankTuning(steps=40, batch=4, learning_rate=3e-3, holdout=0.0)


class TestReranked(Contract):
    def make(self) -> triever.Retriever:
        return Reranked(backbone=SMALL, training=TINY, depth=5, negatives=Negatives(count=3))


def test_scores_are_those_of_query_and_document_read_together() -> None:
    reranked = Reranked(backbone=SMALL, training=RerankTuning(steps=0)).fit(dataset())
    encoder = reranked._checked().engine.reranker.encoder
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


def test_a_long_document_loses_its_end_and_not_the_query() -> None:
    long = [*DOCUMENTS, triever.Document("long", "tea leaves " * 3000)]
    reranked = Reranked(backbone=SMALL, training=RerankTuning(steps=0), document_length=5000).fit(dataset(long))
    assert "long" in {hit.id for hit in reranked.search("tea leaves", 3)}


def test_the_first_stage_may_be_any_system() -> None:
    values = {"first": {"kind": "fused", "systems": "bm25,bm25"}, "backbone": SMALL, "training": {"steps": 0}}
    reranked = config.build(Reranked, values).fit(dataset())
    assert "tea" in {hit.id for hit in reranked.search("tea leaves", 5)}


def test_a_cross_encoder_without_wrong_candidates_is_refused() -> None:
    with pytest.raises(triever.UsageError, match="learns from wrong candidates"):
        Reranked(negatives=Negatives(count=0))


PIECES = learn_tokenizer(["some words to learn from"], 300)._tokenizer


@settings(max_examples=60)
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
