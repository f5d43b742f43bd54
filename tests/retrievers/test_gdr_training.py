"""How GDR learns: one encoder for both halves, the loss by its formula, and negatives of every kind."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import triever
from tests.retrievers.contract import DOCUMENTS, QUERIES, dataset
from tests.retrievers.gdr_cases import ALL, RULES, SMALL, engine_of, gdr
from triever import Document
from triever.engines.match_scores import MatchOptions
from triever.errors import UsageError
from triever.learning.docid_views import views_of
from triever.learning.docids import Lesson
from triever.models.decoders import DecoderOptions
from triever.retrievers.dense import Dense
from triever.retrievers.gdr import LossWeights
from triever.training.clusters import ClusterBatches, ClusterNegatives
from triever.training.tuning import DocidTuning, Tuning
from triever.training.views import ViewOptions


def test_one_encoder_reads_for_the_decoder_and_for_the_vector() -> None:
    dense = Dense(backbone=SMALL).fit(dataset())
    fitted = gdr(vectors=dense).fit(dataset())
    theirs = dense.engine
    for name, weight in theirs.encoder.state_dict().items():
        assert torch.equal(weight, engine_of(fitted).docids.model.reader.state_dict()[name])
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
    views, _ = views_of(made, engine.docids, data, store, None)
    docids = np.stack([np.pad(engine.docids.docid(row), (0, 9), constant_values=-100)[:9] for row in range(len(store))])
    module, rounds = made._course(Lesson(engine, views, docids, data, store, None))
    batch = rounds(0)[0]
    model = engine.docids.model.eval()
    with torch.no_grad():
        found = made._loss_of_batch(module.eval(), batch)
        reader = model.encoder
        queries = reader(batch["ids"], batch["mask"])
        if joint:
            assert engine.documents is not None
            documents = engine.documents(batch["document_ids"], batch["document_mask"])
        else:
            documents = batch["document_vectors"]
        likelihood = model.loss(batch["ids"], batch["mask"], batch["targets"], -100)
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


@pytest.mark.parametrize("trained", ["vocabulary", "trie"])
@pytest.mark.parametrize("depth", [1, None])
def test_clusters_are_learned_and_searched_over_the_same_symbols(trained: str, depth: int | None) -> None:
    training = DocidTuning(steps=1, batch=6, rounds=1, holdout=0.0, normalisation=trained)  # ty: ignore[invalid-argument-type]
    options = {"matching": MatchOptions(depth=depth), "losses": LossWeights(contrastive=0.0), "search_options": ALL}
    made = gdr("codebook", training=training, **options)
    fitted = made.fit(dataset())
    engine, query = engine_of(fitted), QUERIES[0].text
    model, numbers = engine.docids.model.eval(), range(len(DOCUMENTS))
    [(_, found)] = engine.searcher(depth).candidates([query])
    ids, mask = model.tokenise([query], 64)
    targets = [torch.tensor([engine.docids.docid(number)[:depth]]) for number in numbers]
    loss = made._teaching._loss_for(engine.docids)
    with torch.no_grad():
        losses = [float(loss(model, {"ids": ids, "mask": mask, "targets": one})["likelihood"]) for one in targets]
    assert dict(zip(found.numbers.tolist(), found.mass.tolist(), strict=True)) == pytest.approx(
        {number: -each for number, each in zip(numbers, losses, strict=True)}, abs=1e-4
    )
    other = {"trie": "vocabulary", "vocabulary": "trie"}[trained]
    [(_, unlike)] = engine_of(fitted.searching(normalisation=other)).searcher(depth).candidates([query])
    assert not np.allclose(np.sort(unlike.mass), np.sort(found.mass), atol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "joint"),
    [*itertools.product(["inside", "random", "bm25", "model"], [False, True])],
)
def test_it_learns_from_any_negatives(joint: bool, source: str, tmp_path: Path) -> None:
    by_source = {
        "inside": ClusterNegatives(inside=2, beta=2.0),
        "random": ClusterNegatives(inside=0, count=2, hard=0.0),
        "bm25": ClusterNegatives(inside=0, count=2, source="bm25"),
        "model": ClusterNegatives(inside=1, count=2, source="model"),
    }
    training = DocidTuning(steps=30, batch=8, rounds=2, learning_rate=3e-3, holdout=0.0)
    options = {"training": training, "views": ViewOptions(names=("labelled",)), "search_options": ALL}
    fitted = gdr(negatives=by_source[source], joint=joint, **options).fit(dataset())
    found = [result[0].id for result in fitted.search_many(QUERIES, 1)]
    assert sum(one in ("tea", "bike", "東京", "bread") for one in found) >= 3
    before = gdr().fit(dataset())
    rows = np.arange(len(DOCUMENTS))
    same = np.allclose(engine_of(fitted).below.take(rows), engine_of(before).below.take(rows))
    assert same != joint, "vectors are made anew where the document encoder was trained"
    assert [engine_of(fitted).docids.docid(row) for row in rows] == [
        engine_of(before).docids.docid(row) for row in rows
    ]
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
        views, _ = views_of(made, engine.docids, data, store, None)
        docids = np.stack([engine.docids.docid(row) for row in range(len(store))])
        batches = made._course(Lesson(engine, views, docids, data, store, None)).rounds(0)
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"losses": LossWeights(likelihood=0)}, "raise training.reader"),
        ({"matching": MatchOptions(depth=0)}, "raise training.reader"),
        ({"joint": True}, "leave joint out"),
        ({}, "trains no vectors; set losses.contrastive=0, or raise training.reader"),
    ],
)
def test_a_training_that_teaches_nothing_is_refused(options: dict, message: str) -> None:
    training = DocidTuning(steps=1, batch=6, reader=0.0)
    with pytest.raises(UsageError, match=message):
        gdr(training=training, vectors=Dense(backbone=SMALL), **options).fit(dataset())
    gdr(training=training, **options)._check_training()  # what begins anew learns whatever the share is


def test_a_training_without_any_loss_is_refused() -> None:
    neither = {"matching": MatchOptions(depth=0), "losses": LossWeights(contrastive=0)}
    with pytest.raises(UsageError, match=r"depth = 0 and losses\.contrastive = 0 leave nothing to learn"):
        gdr(training=DocidTuning(steps=1, batch=6), **neither).fit(dataset())


def test_a_reader_may_stay_as_it_is() -> None:
    training = DocidTuning(steps=1, batch=6, rounds=1, reader=0.0, holdout=0.0)
    losses = LossWeights(contrastive=0)
    fitted = gdr(training=training, vectors=Dense(backbone=SMALL), losses=losses).fit(dataset())
    assert len(fitted.search("tea", 3)) == 3


def test_a_tuned_dense_retriever_begins_it() -> None:
    dense = Dense(backbone=SMALL, training=Tuning(steps=4, batch=4, holdout=0.0))
    fitted = gdr(vectors=dense, matching=MatchOptions(depth=0)).fit(dataset())
    assert len(fitted.search("tea", 3)) == 3
