"""Pairs and their batches: negatives come from where they should, and what is relevant is never one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import triever
from triever import Document, Query
from triever.data.store import DocumentStore
from triever.models.tokens import Tokens
from triever.training.losses import contrastive
from triever.training.opinions import LABELLED, Opinions, Teaching
from triever.training.pairs import (
    TAUGHT,
    Negatives,
    PairBatches,
    Pairs,
    hard_negatives,
    held_out,
    pairs_of,
    text_numbers,
    written_pairs,
)

DOCUMENTS = [Document(f"d{number}", f"text {number}") for number in range(30)]


def made(queries: int = 20) -> Pairs:
    asked = [Query(f"q{number}", f"question {number}") for number in range(queries)]
    qrels = {
        f"q{number}": {f"d{number}": 1, f"d{(number + 3) % 30}": 2, "gone": 1, "d29": 0} for number in range(queries)
    }
    data = triever.Dataset.of("pairs", DOCUMENTS, asked, {"train": qrels})
    return pairs_of(data, "train", DocumentStore.of(DOCUMENTS))


def numbered(count: int) -> Tokens:
    """Text i is the one token i."""
    return Tokens.from_lists([[number] for number in range(count)])


def batches(pairs: Pairs, **more: object) -> PairBatches:
    settings = {"mined": None, "negatives": Negatives(), "batch": 8, "steps": 5, "seed": 0} | more
    return PairBatches(pairs, numbered(len(pairs)), numbered(30), **settings)


def test_pairs_have_what_is_relevant_and_there() -> None:
    pairs = made()
    assert len(pairs) == 20
    assert pairs.of(4).tolist() == [4, 7]


def test_pairs_of_several_splits_are_those_of_each() -> None:
    asked = [Query(f"q{number}", f"question {number}") for number in range(4)]
    qrels = {split: {f"q{at}": {f"d{at}": 1}, f"q{at + 1}": {f"d{at + 9}": 1}} for split, at in (("a", 0), ("b", 2))}
    data, store = triever.Dataset.of("pairs", DOCUMENTS, asked, qrels), DocumentStore.of(DOCUMENTS)
    one, other, both = (pairs_of(data, split, store) for split in ("a", "b", "a+b"))
    assert both.ids == one.ids + other.ids
    assert both.relevant.tolist() == [*one.relevant, *other.relevant]
    with pytest.raises(triever.UsageError, match="pairs has no split 'aa'; did you mean a"):
        pairs_of(data, "b+aa", store)


def test_the_same_queries_are_held_out_whatever_stands_beside_them() -> None:
    train, held = held_out(made(20), 0.4)
    assert sorted(train.ids + held.ids) == sorted(made(20).ids)
    fewer = held_out(made(10), 0.4)[1]
    assert set(fewer.ids) == set(held.ids) & set(made(10).ids)
    assert held_out(made(), 0.0)[1].ids == []
    assert held_out(made(), 1.0)[0].ids == []
    assert not len(held_out(written_pairs(DocumentStore.of([Document("d", "text", expansions=("why",))])), 1.0)[1])


def asked_about(relevant: Mapping[str, Sequence[str]], *, reverse: bool = False) -> Pairs:
    """Queries with these relevant documents, in a store with others."""
    documents = sorted({document for ids in relevant.values() for document in ids} | {"other"}, reverse=reverse)
    store = DocumentStore.of(Document(document, "text") for document in documents)
    qrels = {query: dict.fromkeys(ids, 1) for query, ids in relevant.items()}
    queries = [Query(query, "question") for query in sorted(relevant, reverse=reverse)]
    return pairs_of(triever.Dataset.of("pairs", store, queries, {"train": qrels}), "train", store)


def questions(prefix: str, relevant: int, documents: int = 1500, each: int = 2) -> dict[str, list[str]]:
    """So many queries about each document, and about so many documents each."""
    chance = np.random.default_rng(relevant)
    orders = [chance.permutation(documents) for _ in range(each)]
    return {
        f"{prefix}q{turn * documents + at}": [f"{prefix}d{order[(at + more) % documents]}" for more in range(relevant)]
        for turn, order in enumerate(orders)
        for at in range(documents)
    }


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3, 4, 40]), st.floats(0.02, 0.6))
def test_about_the_share_is_held_out_however_many_documents_are_relevant(
    number: int, relevant: int, share: float
) -> None:
    asked = questions(str(number), relevant, documents=800 if relevant < 40 else 100)
    held = held_out(asked_about(asked), share)[1]
    expected = 1 - (1 - share) ** 1.5 if relevant == 3 else share
    assert expected <= 1.5 * share
    draws = len(asked) / (2 * relevant if relevant <= 3 else 1)  # queries about one document are held out together
    assert len(held) / len(asked) == pytest.approx(expected, abs=6 * (share * (1 - share) / draws) ** 0.5)


def number_of(text: str, kind: bytes = b"") -> float:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6, person=kind).digest()) / 2**48


@given(st.integers(0, 10**6), st.integers(1, 5), st.floats(0.05, 0.5), st.floats(0, 1))
def test_held_out_documents_take_their_queries_with_them(number: int, relevant: int, share: float, part: float) -> None:
    asked = questions(str(number), relevant, documents=60)
    half = 1 - (1 - share) ** 0.5  # two draws of this are the share
    drawn = {f"{number}d{at}" for at in range(60) if number_of(f"{number}d{at}", b"document") < half}
    by_document = {query for query, documents in asked.items() if not drawn.isdisjoint(documents)}
    by_id = {query for query in asked if number_of(query) < (share if relevant > 3 else half)}
    expected = {1: by_document | by_id, 2: by_document, 3: by_document}.get(relevant, by_id)
    held = set(held_out(asked_about(asked), share)[1].ids)
    assert held == expected
    assert set(held_out(asked_about(asked), share * part)[1].ids) <= held
    assert set(held_out(asked_about(asked, reverse=True), share)[1].ids) == held


def test_half_of_the_held_out_questions_are_about_documents_that_training_does_not_ask_about() -> None:
    asked = questions("half", 1, documents=2000, each=8)
    train, held = held_out(asked_about(asked), 0.1)
    known = {asked[query][0] for query in train.ids}
    unseen = sum(asked[query][0] not in known for query in held.ids)
    assert 0.4 < unseen / len(held) < 0.6


def test_a_query_with_many_relevant_documents_is_held_out_by_its_own_id_alone() -> None:
    asked = questions("many", 5, documents=200)
    others = {query: [f"other {document}" for document in documents] for query, documents in asked.items()}
    held, too = (held_out(asked_about(relevant), 0.3)[1].ids for relevant in (asked, others))
    assert held == too


@given(st.sets(st.integers(0, 29)))
def test_queries_are_about_documents_if_one_of_them_is_relevant(documents: set[int]) -> None:
    pairs = made()
    about = pairs.about(np.array(sorted(documents), np.int64))
    assert about.tolist() == [not documents.isdisjoint(pairs.of(query).tolist()) for query in range(len(pairs))]
    assert pairs.take(np.empty(0, np.int64)).about(np.arange(3)).tolist() == []


@settings(max_examples=25)
@given(st.integers(1, 25), st.integers(0, 4), st.floats(0, 1), st.integers(0, 3))
def test_batches_hold_what_they_should(batch: int, count: int, hard: float, seed: int) -> None:
    pairs = made()
    negatives = Negatives(count=count, hard=hard, depth=4)
    mined = np.full((20, 4), -1)
    mined[:, :2] = np.arange(20)[:, None] + np.array([5, 6])  # two wrong hits for each query
    rounds = batches(pairs, mined=mined, negatives=negatives, batch=batch, seed=seed)
    for step in range(len(rounds)):
        found = rounds[step]
        queries, documents = found["query_ids"][:, 0].tolist(), found["document_ids"][:, 0].tolist()
        size = min(batch, 20)
        assert len(set(queries)) == len(queries) == size
        assert len(documents) == size * (1 + count)
        for place, query in enumerate(queries):
            assert documents[place] in pairs.of(query), "the positive is relevant"
            own = documents[size + place * count : size + (place + 1) * count]
            expected = min(2, negatives.mined)
            assert sum(one in (query + 5, query + 6) for one in own) >= expected, "mined ones come first"
            relevant = [one in pairs.of(query) for one in documents]
            assert found["excluded"][place].tolist() == relevant


def test_a_batch_depends_on_its_number_alone() -> None:
    one, two = batches(made()), batches(made())
    for step in (3, 0, 4):
        assert all(one[step][name].equal(two[step][name]) for name in one[step])
    assert not one[0]["query_ids"].equal(batches(made(), round=1)[0]["query_ids"])
    with pytest.raises(IndexError):
        one[5]


def test_every_query_has_its_turn() -> None:
    rounds = batches(made(), batch=5, steps=4)
    seen = [query for step in range(4) for query in rounds[step]["query_ids"][:, 0].tolist()]
    assert sorted(seen) == list(range(20))


def test_hard_negatives_are_the_first_hits_that_are_not_relevant() -> None:
    pairs = made(2)
    found = hard_negatives([[0, 9, 3, 8, 7], [4]], pairs, Negatives(depth=3))
    assert found.tolist() == [[9, 8, 7], [-1, -1, -1]]
    assert hard_negatives([[0, 9, 8, 7], [6]], pairs, Negatives(depth=2, skip=2)).tolist() == [[8, 7], [-1, -1]]
    assert hard_negatives([[9, -1, 8], [-1]], pairs, Negatives(depth=3)).tolist() == [[9, 8, -1], [-1, -1, -1]]


@given(st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=12))
def test_copies_and_only_they_have_the_same_number(texts: list[list[int]]) -> None:
    numbers = text_numbers(Tokens.from_lists(texts))
    assert len(numbers) == len(texts)
    for one, text in zip(numbers, texts, strict=True):
        assert [number == one for number in numbers] == [other == text for other in texts]


def test_a_few_more_hits_than_negatives_are_searched() -> None:
    assert Negatives(depth=50, skip=3).searched(1000) == 50 + 3 + 20
    assert Negatives(depth=50, skip=3).searched(60) == 60


def test_copies_of_what_is_relevant_are_no_hard_negatives() -> None:
    pairs = made(2)  # 0 and 3 are relevant to the first query, 1 and 4 to the second
    same = np.arange(30)
    same[[20, 21]], same[22] = same[3], same[8]  # copies of what is relevant, and of what is not
    found = hard_negatives([[20, 0, 9, 21, 22, 8], [20, 4, 9]], pairs, Negatives(depth=4), same)
    assert found.tolist() == [[9, 22, 8, -1], [20, 9, -1, -1]]
    assert hard_negatives([[20, 9], []], pairs, Negatives(depth=2)).tolist() == [[20, 9], [-1, -1]]


@settings(max_examples=25)
@given(st.integers(1, 20), st.integers(0, 3), st.integers(0, 3))
def test_copies_of_what_is_relevant_are_excluded(batch: int, count: int, seed: int) -> None:
    pairs = made()
    texts = [number % 5 for number in range(30)]  # many copies, in the batch and among what is drawn
    documents = Tokens.from_lists([[text] for text in texts])
    chosen = {"negatives": Negatives(count=count), "mined": None, "batch": batch, "steps": 3, "seed": seed}
    rounds = PairBatches(pairs, numbered(20), documents, same=text_numbers(documents), **chosen)
    for step in range(3):
        found = rounds[step]
        for place, query in enumerate(found["query_ids"][:, 0].tolist()):
            relevant = {texts[row] for row in pairs.of(query)}
            expected = [text in relevant for text in found["document_ids"][:, 0].tolist()]
            assert found["excluded"][place].tolist() == expected
            assert expected[place], "its own positive is there"
    assert pairs.of(4).tolist() == [4, 7], "what was judged stays as it is"


def naive_loss(scores: np.ndarray, documents: list[int], pairs: Pairs, queries: list[int], options: Negatives) -> float:
    """The mean surprise at the positives, query by query and document by document.

    A batch holds the positives, then the negatives of each query, then those of all. A query meets its positive, and
    of the others those that are not relevant: all of them, or its own and those of all.
    """
    size, losses = len(queries), []
    for place, query in enumerate(queries):
        own = range(size + place * options.count, size + (place + 1) * options.count)
        of_all = range(len(documents) - options.shared, len(documents))
        met = range(len(documents)) if options.in_batch else [*own, *of_all]
        wrong = [column for column in met if documents[column] not in pairs.of(query)]
        others = np.exp(scores[place, wrong]).sum() if wrong else 0.0
        losses.append(np.log(np.exp(scores[place, place]) + others) - scores[place, place])
    return float(np.mean(losses))


@settings(max_examples=40)
@given(st.integers(1, 20), st.integers(0, 3), st.sampled_from([0, 1, 7, 30]), st.booleans(), st.integers(0, 3))
def test_a_query_meets_its_own_negatives_those_of_all_and_where_they_count_those_of_others(
    batch: int, count: int, shared: int, in_batch: bool, seed: int
) -> None:
    assume(in_batch or count or shared)
    pairs, options = made(), Negatives(count=count, hard=0.0, shared=shared, in_batch=in_batch)
    rounds = batches(pairs, negatives=options, batch=batch, seed=seed)
    plain = batches(pairs, negatives=Negatives(count=count, hard=0.0), batch=batch, seed=seed)
    for step in range(2):
        found = rounds[step]
        queries, documents = found["query_ids"][:, 0].tolist(), found["document_ids"][:, 0].tolist()
        before = plain[step]["document_ids"][:, 0].tolist()
        assert documents[: len(before)] == before, "what a batch holds without shared ones stays the same"
        assert len(set(documents[len(before) :])) == shared, "those of all are different"
        scores = np.random.default_rng(seed).normal(size=(len(queries), len(documents)))
        loss = contrastive(torch.from_numpy(scores), found["positive"], found["excluded"])
        assert float(loss) == pytest.approx(naive_loss(scores, documents, pairs, queries, options), abs=1e-5)


def test_taught_documents_of_others_do_not_count_without_the_batch() -> None:
    pairs, options = made(), Negatives(count=1, shared=4, in_batch=False)
    taught = batches(pairs, negatives=options, teaching=Teaching({LABELLED: opinions(12, 0)}, 1.0))[0]
    size, columns = 8, taught["candidates"]
    assert sorted(columns[:, 1:].flatten().tolist()) == [*range(2 * size, 2 * size + size * TAUGHT)]
    for place in range(size):
        met = (~taught["excluded"][place]).nonzero()[:, 0].tolist()
        assert set(met) <= {size + place, *range(len(taught["document_ids"]) - 4, len(taught["document_ids"]))}


def opinions(found: int, seed: int) -> Opinions:
    """Of 20 questions: for each so many of 30 documents, in any order, with scores."""
    chance = np.random.default_rng(seed)
    rows = np.zeros((20, 12), np.int32)
    scores = np.full((20, 12), -np.inf, np.float32)
    rows[:, :found] = chance.permuted(np.tile(np.arange(30), (20, 1)), axis=1)[:, :found]
    scores[:, :found] = -np.sort(-chance.normal(size=(20, found)), axis=1)
    return Opinions(rows, scores)


@settings(max_examples=25)
@given(st.integers(1, 25), st.integers(0, 2), st.sampled_from([0, 1, 5, 12]), st.integers(0, 3))
def test_a_taught_batch_has_documents_of_the_teacher_which_are_no_negatives(
    batch: int, count: int, found: int, seed: int
) -> None:
    pairs, known, size = made(), opinions(found, seed), min(batch, 20)
    options = {"negatives": Negatives(count=count), "batch": batch, "seed": seed}
    plain, rounds = batches(pairs, **options), batches(pairs, **options, teaching=Teaching({LABELLED: known}, 0.7))
    for step in range(len(rounds)):
        taught, before = rounds[step], plain[step]
        queries, documents = taught["query_ids"][:, 0].tolist(), taught["document_ids"][:, 0].tolist()
        assert documents[: size * (1 + count)] == before["document_ids"][:, 0].tolist(), "the others are the same"
        assert len(documents) == size * (1 + count + TAUGHT)
        columns = taught["candidates"].tolist()
        assert sorted(column for own in columns for column in own[1:]) == [*range(size * (1 + count), len(documents))]
        for place, query in enumerate(queries):
            hits = zip(known.rows[query].tolist(), known.scores[query].tolist(), strict=True)
            scores = {row: score for row, score in hits if score > -np.inf}
            own = [documents[column] for column in columns[place]]
            assert columns[place][0] == place, "the positive is the first"
            others = [row for row in own[1:] if row != own[0]]
            assert len(set(others)) == len(others) == min(TAUGHT, len(scores.keys() - {own[0]}))
            logs = taught["taught"][place].tolist()
            told = [(row, log) for row, log in zip(own, logs, strict=True) if log > -np.inf]
            assert {row for row, _ in told} == scores.keys() & set(own)
            for (row, log), (other, second) in pairwise(told):
                assert log - second == pytest.approx((scores[row] - scores[other]) / 0.7, abs=1e-4)
            relevant = set(pairs.of(query).tolist()) | set(own)
            assert taught["excluded"][place].tolist() == [row in relevant for row in documents]


def test_all_that_a_teacher_found_has_its_turn() -> None:
    pairs, known = made(), opinions(12, 0)
    rounds = batches(pairs, steps=60, batch=20, teaching=Teaching({LABELLED: known}, 1.0))
    seen: list[set[int]] = [set() for _ in range(20)]
    for step in range(60):
        batch = rounds[step]
        for place, query in enumerate(batch["query_ids"][:, 0].tolist()):
            seen[query] |= set(batch["document_ids"][:, 0][batch["candidates"][place, 1:]].tolist())
    assert [rows & set(known.rows[query].tolist()) for query, rows in enumerate(seen)] == [
        set(rows.tolist()) for rows in known.rows
    ]


@pytest.mark.parametrize(
    "options",
    [{"count": -1}, {"hard": 1.5}, {"source": "luck"}, {"depth": 0}, {"skip": -1}, {"shared": -1}, {"in_batch": False}],
    ids=str,
)
def test_mistakes_are_said(options: dict) -> None:
    with pytest.raises(triever.UsageError, match="negatives"):
        Negatives(**options)


def test_more_shared_documents_than_there_are_and_systems_that_share_none_are_said() -> None:
    with pytest.raises(triever.UsageError, match=r"negatives\.shared = 31, but there are 30 documents"):
        Negatives(shared=31).check(30)
    Negatives(shared=30).check(30)
    for options in ({"shared": 2}, {"in_batch": False, "count": 3}):
        with pytest.raises(triever.UsageError, match="have no effect"):
            triever.ClusterNegatives(**options)
        with pytest.raises(triever.UsageError, match="have no effect"):
            triever.Reranked(negatives=Negatives(**{"count": 3, **options}))


def test_a_split_without_relevant_documents_is_said() -> None:
    data = triever.Dataset.of("empty", DOCUMENTS, [Query("q", "x")], {"train": {"q": {"gone": 1}}})
    with pytest.raises(triever.UsageError, match="no query of empty's train has a relevant document"):
        pairs_of(data, "train", DocumentStore.of(DOCUMENTS))
