"""Late interaction: the contract, scores by brute force, compression, explanations that add up."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import triever
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever.index.token_vectors import TokenOptions
from triever.retrievers.multivector import MultiVector
from triever.training.pairs import Negatives
from triever.training.tuning import Tuning

SMALL = "scratch:hidden=64,layers=1,heads=2,vocabulary=600"


class TestMultiVector(Contract):
    def make(self) -> triever.Retriever:
        return MultiVector(backbone=SMALL, size=32)


class TestCompressed(Contract):
    def make(self) -> triever.Retriever:
        return MultiVector(backbone=SMALL, size=32, index=TokenOptions(bits=4, score="avgmax"))


def naive(retriever: MultiVector, query: str, document: str, *, punctuation: bool) -> float:
    """One text at a time, one token at a time."""
    encoder = retriever._checked().engine.encoder
    skipped = set() if punctuation else set(encoder.tokenizer.punctuation())
    with torch.inference_mode():
        vectors = []
        for text in (query, document):
            ids = torch.tensor(encoder.tokenizer.ids([text], 256))
            states = encoder.module(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
            found = encoder.projection(states)
            vectors.append((found / found.norm(dim=1, keepdim=True)).numpy())
    kept = [number not in skipped for number in encoder.tokenizer.ids([document], 256)[0]]
    return float(sum(max(float(one @ other) for other in vectors[1][kept]) for one in vectors[0]))


@pytest.mark.parametrize("punctuation", [True, False])
def test_scores_are_sums_of_best_matches(punctuation: bool) -> None:
    retriever = MultiVector(backbone=SMALL, size=32, punctuation=punctuation).fit(dataset())
    texts = {document.id: document.full_text for document in DOCUMENTS}
    for query in QUERIES:
        for hit in retriever.search(query, 10):
            expected = naive(retriever, query.text, texts[hit.id], punctuation=punctuation)
            assert hit.score == pytest.approx(expected, abs=0.02)  # vectors are kept in 16 bits


@pytest.mark.parametrize("score", ["maxsim", "avgmax"])
def test_parts_of_an_explanation_add_up_to_the_score(score: str) -> None:
    retriever = MultiVector(backbone=SMALL, index=TokenOptions(score=score)).fit(dataset())
    explanation = retriever.explain("boiling water, boiling water", 3)
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score, abs=1e-2)


def test_queries_may_be_filled_up_with_masks() -> None:
    plain, filled = (MultiVector(backbone=SMALL, augment=augment, query_length=16) for augment in (False, True))
    encoder = filled.fit(dataset())._checked().engine.encoder
    tokens = filled._query_tokens(encoder, ["tea", "boiling water"])
    assert tokens.lengths.tolist() == [16, 16]
    assert set(tokens[0].tolist()[-5:]) == {encoder.tokenizer.number("[MASK]")}
    assert plain.fit(dataset()).search("tea")[0].score < filled.search("tea")[0].score


def test_training_finds_what_it_was_shown() -> None:
    tuning = Tuning(steps=40, batch=4, rounds=2, learning_rate=2e-3, holdout=0.0)
    negatives = Negatives(count=1, source="model", depth=5)
    trained = MultiVector(backbone=SMALL, size=32, training=tuning, negatives=negatives).fit(dataset())
    first = [result[0].id for result in trained.search_many(QUERIES, 1)]
    assert first == ["tea", "bike", "東京", "bread"]


def test_fewer_bits_are_fewer_bytes() -> None:
    sizes = []
    for bits in (16, 4, 2):
        engine = MultiVector(backbone=SMALL, size=32, index=TokenOptions(bits=bits)).fit(dataset())._checked().engine
        sizes.append(engine.index.info()["bytes"])
    assert np.all(np.diff(sizes) < 0)
