"""How a training went on held-out queries about documents that training queries are about, and about others."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

import pytest

import triever
from tests.retrievers.contract import DOCUMENTS
from tests.retrievers.gdr_cases import questions
from triever import (
    GDR,
    Cluster,
    Contextual,
    DecoderOptions,
    Dense,
    DocidTuning,
    Generative,
    MultiVector,
    Reranked,
    RerankTuning,
    SearchOptions,
    Semantic,
    Tuning,
    ViewOptions,
)
from triever.evaluation.compare import search_all
from triever.evaluation.seen import seen
from triever.training.pairs import held_out, pairs_of

TINY = "scratch:hidden=16,layers=1,heads=2,vocabulary=600"
SHARE = 0.5
DOCIDS = {
    "backbone": TINY,
    "training": DocidTuning(steps=4, batch=8, rounds=2, holdout=SHARE, encoder_steps=4),
    "views": ViewOptions(names=("labelled",)),
    "search_options": SearchOptions(width=100),
}
ENCODER = {"backbone": TINY, "training": Tuning(steps=4, batch=8, rounds=2, holdout=SHARE)}
SYSTEMS: dict[str, Callable[[], triever.Retriever]] = {
    "symbols": lambda: Generative(docids=Semantic(branch=3, leaf=3), **DOCIDS),
    "nodes": lambda: Generative(docids=Semantic(branch=3, leaf=3), decoder=DecoderOptions(rows="nodes"), **DOCIDS),
    "gdr": lambda: GDR(docids=Cluster(clusters=4, branch=4), **DOCIDS),
    "contextual": lambda: Contextual(**DOCIDS),
    "dense": lambda: Dense(**ENCODER),
    "multivector": lambda: MultiVector(**ENCODER),
}


def groups(data: triever.Dataset, retriever: triever.Retriever) -> dict[str, list[tuple[str, set[str]]]]:
    """Held-out queries with the ids of their documents: those that share one with a training query, and others."""
    relevant = {query: set(grades) for query, grades in data.qrels("train").items()}
    train, held = (pairs.ids for pairs in held_out(pairs_of(data, "train", retriever.documents), SHARE))
    known = set().union(*(relevant[query] for query in train))
    texts = {query.id: query.text for query in data.queries("train")}
    asked = {query: (texts[query], relevant[query]) for query in held}
    return {
        "seen": [asked[query] for query in held if known & relevant[query]],
        "unseen": [asked[query] for query in held if not known & relevant[query]],
    }


def mean_reciprocal_rank(retriever: triever.Retriever, asked: list[tuple[str, set[str]]]) -> float:
    ranks = [
        next((1 / rank for rank, hit in enumerate(retriever.search(text, 10), 1) if hit.id in right), 0.0)
        for text, right in asked
    ]
    return fmean(ranks)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_card_tells_both_groups_apart(name: str) -> None:
    data = questions()
    fitted = SYSTEMS[name]().fit(data)
    made, asked = fitted.engine.made_from(), groups(data, fitted)
    assert all(len(group) >= 3 for group in asked.values()), "each group has something to tell"
    for group, queries in asked.items():
        assert made[f"held-out RR@10 {group}"] == pytest.approx(mean_reciprocal_rank(fitted, queries), abs=1e-3)
        assert f"| held-out RR@10 {group} | {made[f'held-out RR@10 {group}']} |" in fitted.card


@pytest.mark.parametrize(
    ("decoder", "advice"),
    [("nodes", "or a lower training.learning_rate, or a teacher"), ("vectors", "or a lower training.learning_rate")],
)
def test_a_training_that_does_not_beat_its_start_says_what_to_try(
    decoder: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    training = DocidTuning(steps=4, batch=8, rounds=2, holdout=SHARE, encoder_steps=4, learning_rate=1.0)
    rows = DecoderOptions(rows=decoder)  # ty: ignore[invalid-argument-type]
    fitted = Generative(decoder=rows, **DOCIDS | {"training": training}).fit(questions())
    made = fitted.engine.made_from()
    assert made["best step"] == 0
    [warning] = [record.getMessage() for record in caplog.records if "as good as the first" in record.getMessage()]
    assert f": RR@10 was {made['held-out RR@10']:.3f} at the start, then 0." in warning
    assert warning.endswith(advice)


def test_a_reranker_tells_them_apart_too() -> None:
    data = questions()
    training = RerankTuning(steps=2, batch=4, rounds=1, holdout=SHARE)
    fitted = Reranked(first=triever.BM25(), backbone=TINY, training=training, depth=5).fit(data)
    made, asked = fitted.engine.made_from(), groups(data, fitted)
    total = sum(len(queries) * made[f"held-out RR@10 {group}"] for group, queries in asked.items())
    assert made["held-out RR@10"] == pytest.approx(total / sum(map(len, asked.values())), abs=1e-3)


def test_without_judged_queries_among_its_views_every_document_is_unseen() -> None:
    options = DOCIDS | {"views": ViewOptions(names=("chunks",), length=8)}
    made = Generative(docids=Semantic(branch=3, leaf=3), **options).fit(questions()).engine.made_from()
    assert "held-out RR@10 seen" not in made
    assert made["held-out RR@10 unseen"] == made["held-out RR@10"]


def test_written_queries_make_no_document_seen() -> None:
    data = questions().with_expansions({document.id: ["what is it about"] for document in DOCUMENTS})
    options = DOCIDS | {"views": ViewOptions(names=("labelled", "generated"))}
    fitted = Generative(docids=Semantic(branch=3, leaf=3), **options).fit(data)
    made, asked = fitted.engine.made_from(), groups(data, fitted)
    assert made["held-out RR@10 unseen"] == pytest.approx(mean_reciprocal_rank(fitted, asked["unseen"]), abs=1e-3)


@pytest.mark.parametrize("name", ["symbols", "nodes"])
def test_the_analysis_reads_systems_that_write_docids(name: str) -> None:
    asked = questions()
    qrels = asked.qrels("train")
    parts = {"train": [*qrels][:6], "test": [*qrels][3:]}
    queries = asked.queries("train")
    data = triever.Dataset.of(
        "parts", DOCUMENTS, queries, {part: {query: qrels[query] for query in ids} for part, ids in parts.items()}
    )
    fitted = SYSTEMS[name]().fit(data)
    runs = {name: search_all(fitted, [query for query in queries if query.id in parts["test"]], 10)}
    scores = seen(runs, data, "test", "Success@1").values["scores"][name]
    known = {document for query in parts["train"] for document in qrels[query]}
    for group, about in (("seen", True), ("unseen", False)):
        ids = [query for query in parts["test"] if bool(known & {*qrels[query]}) is about]
        firsts = [runs[name][query][0].id in qrels[query] for query in ids]
        assert scores[group]["mean"] == pytest.approx(fmean(firsts))


@pytest.mark.parametrize(
    ("training", "said"),
    [
        (
            {"holdout": 0.01},
            "none of 25 training queries are held out (training.holdout=0.01), so the step",
        ),
        ({"holdout": 0.1}, "of 25 training queries are held out (training.holdout=0.1)"),
        ({"holdout": SHARE}, ""),
        ({"holdout": 0.0}, ""),
        ({"holdout": 0.1, "keep": "last"}, ""),
    ],
)
def test_it_is_said_where_few_queries_choose_the_step(
    training: dict[str, object], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    Dense(backbone=TINY, training=Tuning(steps=1, batch=8, rounds=1, **training)).fit(questions())
    told = [record.getMessage() for record in caplog.records if "held out" in record.getMessage()]
    assert len(told) == bool(said)
    assert said in "".join(told)


def test_one_training_query_is_told_as_one(caplog: pytest.LogCaptureFixture) -> None:
    data = questions()
    [(query, grades), *_] = data.qrels("train").items()
    alone = triever.Dataset.of("alone", [*data.documents()], [*data.queries("train")], {"train": {query: grades}})
    Dense(backbone=TINY, training=Tuning(steps=1, batch=8, rounds=1, holdout=0.01)).fit(alone)
    assert "none of 1 training query is held out (training.holdout=0.01)" in caplog.text
