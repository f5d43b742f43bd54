"""What a generative retriever is taught: which texts, with which docids, how often and how fast."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from unittest import mock

import pytest
import torch

import triever
from tests.retrievers.contract import DOCUMENTS, QUERIES, dataset
from tests.retrievers.test_generative import VOLCANO, engine_of, generative
from triever import Document, Query
from triever.data.store import DocumentStore
from triever.docids.schemes import Atomic, Docid
from triever.engines.base import Engine
from triever.learning.docids import reciprocal_ranks
from triever.models.tokens import TextTokenizer
from triever.retrievers import generative as module
from triever.retrievers.dense import Dense
from triever.retrievers.generative import Generative
from triever.training.pairs import Pairs
from triever.training.tuning import DocidTuning
from triever.training.views import IGNORED, ViewOptions

TINY = "scratch:hidden=16,layers=1,heads=2,vocabulary=600"
PLAIN = DocidTuning(steps=1, batch=8, rounds=1, learning_rate=1e-3, warmup=0.0, clip=0.0, weight_decay=0.0, holdout=0.0)
Lesson = tuple[tuple[int, ...], Docid]


def tiny(scheme: str = "semantic", **options: object) -> Generative:
    return generative(scheme, **{"backbone": TINY} | options)


@contextmanager
def lessons() -> Iterator[list[list[Lesson]]]:
    """The batches that are learned from, each as texts without padding with the docids that they are to give."""
    batches: list[list[Lesson]] = []

    def heard(model: torch.nn.Module, batch: dict) -> dict:
        texts = [tuple(ids[mask.bool()].tolist()) for ids, mask in zip(batch["ids"], batch["mask"], strict=True)]
        docids = [tuple(row[row != IGNORED].tolist()) for row in batch["targets"]]
        batches.append(list(zip(texts, docids, strict=True)))
        return loss(model, batch)

    loss = module.likelihood
    with mock.patch.object(module, "likelihood", heard):
        yield batches


def tokenizer_of(retriever: Generative) -> TextTokenizer:
    return engine_of(retriever).model.encoder.tokenizer


def pieces(tokens: list[int], tokenizer: TextTokenizer) -> set[tuple[int, ...]]:
    """Every piece of a text, between what stands around every text."""
    before, after = tuple(tokenizer.before), tuple(tokenizer.after)
    inner = tokens[len(before) : len(tokens) - len(after)]
    ends = range(len(inner) + 1)
    return {(*before, *inner[first:last], *after) for first in ends for last in ends[first:]}


def test_new_documents_are_taught_in_half_of_each_batch_and_old_ones_in_the_other_each_with_its_docid() -> None:
    expanded = dataset().with_expansions({"tides": ["ebb and flow"], "bread": ["how to bake"]})
    fitted = tiny(views=ViewOptions(length=8), training=DocidTuning(steps=0, batch=16, add_steps=6)).fit(expanded)
    fitted.delete(["tea"])  # so that rows are not numbers
    new = [VOLCANO, Document("salt", "The sea leaves it behind when it dries.", "Salt", ("what is left of the sea",))]
    with lessons() as batches:
        fitted.add(new)
    tokenizer, engine = tokenizer_of(fitted), engine_of(fitted)
    of_docid: dict[Docid, set[tuple[int, ...]]] = {}
    for document, number in zip(fitted.documents, engine.numbers.tolist(), strict=True):
        texts = [document.full_text, *document.expansions]
        all_pieces = set(chain.from_iterable(pieces(ids, tokenizer) for ids in tokenizer.ids(texts)))
        of_docid.setdefault(engine.docid(number), set()).update(all_pieces)
    added = {engine.docid(number) for number in engine.numbers[-2:].tolist()}
    assert len(of_docid) == len(fitted), "none shares its docid"
    assert len(batches) == 6
    for batch in batches:
        assert sum(docid in added for _, docid in batch) == 8
        for text, docid in batch:
            assert text in of_docid[docid]
    assert {docid for batch in batches for _, docid in batch} == set(of_docid), "all of them had their turn"


def test_views_are_drawn_as_often_as_their_weights_say() -> None:
    views = ViewOptions(names=("labelled", "chunks"), weights=(3, 1))
    with lessons() as batches:
        fitted = tiny(views=views, query_length=5, training=PLAIN).fit(dataset())
    queries = {tuple(ids) for ids in tokenizer_of(fitted).ids([query.text for query in QUERIES], 5)}
    assert [sum(text in queries for text, _ in batch) for batch in batches] == [6]


def test_the_first_view_of_a_document_is_its_beginning() -> None:
    views = ViewOptions(names=("first",), length=6)
    with lessons() as batches:
        fitted = tiny(views=views, training=DocidTuning(steps=10, batch=10, rounds=1)).fit(dataset())
    beginnings = tokenizer_of(fitted).ids([document.full_text for document in DOCUMENTS], 6)
    expected = {(tuple(ids), engine_of(fitted).docid(row)) for row, ids in enumerate(beginnings)}
    assert len(expected) == len(DOCUMENTS)
    assert all(set(batch) == expected for batch in batches)


def test_queries_that_are_held_out_are_judged_in_every_round_and_never_learned() -> None:
    queries = [Query(f"q{number}", f"number{number}") for number in range(20)]
    judged = {query.id: {"tea": 1} for query in queries}
    data = triever.Dataset.of("many", DOCUMENTS, queries, {"train": judged})
    training = DocidTuning(steps=12, batch=8, accumulate=2, rounds=2, holdout=0.4)
    asked: list[set[str]] = []

    def heard(engine: Engine, store: DocumentStore, held: Pairs) -> list[float]:
        asked.append(set(held.texts))
        return reciprocal_ranks(engine, store, held)

    with lessons() as batches, mock.patch("triever.learning.docids.reciprocal_ranks", heard):
        fitted = tiny(views=ViewOptions(names=("labelled",)), training=training).fit(data)
    tokens = dict(zip(map(tuple, tokenizer_of(fitted).ids([one.text for one in queries])), queries, strict=True))
    learned = {tokens[text].text for batch in batches for text, _ in batch}
    assert len(batches) == 12 * 2
    assert len(asked) == 1 + 2, "before the first round, and after each"
    for some in asked:
        assert some
        assert learned
        assert not some & learned
        assert some | learned == {query.text for query in queries}


def test_the_reader_moves_by_its_share_of_a_step() -> None:
    dense = Dense(backbone=TINY).fit(dataset())
    training = replace(PLAIN, reader=0.25)
    before, after = (
        engine_of(tiny(vectors=dense, training=one).fit(dataset())).model.state_dict()
        for one in (DocidTuning(steps=0), training)
    )
    # The first step of AdamW moves every weight by the whole learning rate, whatever its gradient is.
    moved = {name: float((after[name] - weight).abs().max()) for name, weight in before.items()}
    for is_reader, rate in ((True, 0.25e-3), (False, 1e-3)):
        moves = [move for name, move in moved.items() if name.startswith("reader.") == is_reader]
        assert max(moves) == pytest.approx(rate, rel=0.01)


def test_accumulating_equals_one_large_batch() -> None:
    data, loss = dataset(DOCUMENTS[:8]), module.likelihood

    def scores(batch: int, accumulate: int) -> dict[str, float]:
        training = replace(PLAIN, steps=4, batch=batch, accumulate=accumulate)
        made = tiny(views=ViewOptions(names=("first",)), training=training)
        with mock.patch.object(module, "likelihood", lambda model, batch: loss(model.eval(), batch)):  # without dropout
            return {hit.id: hit.score for hit in made.fit(data).search(QUERIES[0], 8)}

    whole = scores(6, 1)
    assert scores(3, 2) == pytest.approx(whole, abs=1e-4)
    assert scores(3, 1) != pytest.approx(whole, abs=1e-3)


@pytest.mark.parametrize("scheme", ["atomic", "semantic"])
def test_an_add_changes_nothing_of_what_is_searched_meanwhile(scheme: str) -> None:
    fitted = tiny(scheme, training=DocidTuning(steps=0, batch=4, learning_rate=0.01, add_steps=3)).fit(dataset())
    old, before = copy.copy(fitted), fitted.search_many(QUERIES, 10)
    with mock.patch.object(module, "likelihood", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        fitted.add([VOLCANO])
    assert fitted.search_many(QUERIES, 10) == before
    fitted.add([VOLCANO])
    assert old.search_many(QUERIES, 10) == before
    old.add([VOLCANO])  # it is placed as by the first add, of which this one knows nothing
    assert old.search_many(QUERIES, 11) == fitted.search_many(QUERIES, 11) != before


def test_retrievers_that_are_made_with_one_scheme_have_their_own() -> None:
    scheme = Atomic()
    many, few = (Generative(docids=scheme, backbone=TINY, training=DocidTuning(steps=0)) for _ in range(2))
    many.fit(dataset())
    few.fit(dataset(DOCUMENTS[:4]))
    many.add([VOLCANO])
    assert engine_of(many).docid(len(DOCUMENTS)) == (len(DOCUMENTS),)
