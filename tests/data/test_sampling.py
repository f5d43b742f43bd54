"""Samples: larger ones contain smaller ones, and every query that is kept can be answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.data.datasets import Dataset, sample
from triever.data.records import Document, Query
from triever.errors import UsageError

GRADES = st.dictionaries(st.integers(0, 24).map("d{}".format), st.integers(0, 2), max_size=4)
QRELS = st.dictionaries(st.integers(0, 9).map("q{}".format), GRADES)


def dataset(splits: dict[str, dict[str, dict[str, int]]], documents: int = 20) -> Dataset:
    """Twenty documents; judgements may name some that are not there."""
    queries = [Query(f"q{n}", f"question {n}") for n in range(10)]
    return Dataset.of("x", [Document(f"d{n}", f"text {n}") for n in range(documents)], queries, splits)


def ids(data: Dataset) -> list[str]:
    return [document.id for document in data.documents()]


@given(dev=QRELS, test=QRELS, small=st.integers(1, 25), more=st.integers(0, 25), seed=st.integers(0, 3))
def test_samples_are_nested_and_their_queries_whole(
    dev: dict[str, dict[str, int]], test: dict[str, dict[str, int]], small: int, more: int, seed: int
) -> None:
    data = dataset({"dev": dev, "test": test})
    one, two = sample(data, small, seed), sample(data, small + more, seed)
    assert len(ids(one)) == min(small, 20)
    assert set(ids(one)) <= set(ids(two)) <= set(ids(data))
    assert ids(two) == [name for name in ids(data) if name in set(ids(two))], "in the order of the corpus"
    for split, qrels in (("dev", dev), ("test", test)):
        assert set(one.qrels(split)) <= set(two.qrels(split))
        for query, judged in two.qrels(split).items():
            existing = {name for name, grade in qrels[query].items() if grade > 0 and name in ids(data)}
            assert existing == {name for name, grade in judged.items() if grade > 0} != set()
        assert {query.id for query in two.queries(split)} == set(two.qrels(split))


def test_what_is_judged_comes_first() -> None:
    data = dataset({"test": {f"q{n}": {f"d{2 * n}": 1} for n in range(10)}})
    assert ids(sample(data, 10)) == [f"d{n}" for n in range(0, 20, 2)]
    assert len(sample(data, 4).queries("test")) == 4
    assert ids(sample(data, 4, seed=0)) == ids(sample(data, 4, seed=0)) != ids(sample(data, 4, seed=1))


def test_only_the_chosen_splits_count() -> None:
    data = dataset({"dev": {"q0": {"d0": 1}}, "test": {"q1": {"d1": 1}}})
    cut = sample(data, 1, splits=["test"])
    assert (cut.splits, ids(cut)) == (("test",), ["d1"])


@given(dev=QRELS, test=QRELS, count=st.integers(1, 20), seed=st.integers(0, 3))
def test_splits_can_come_first(
    dev: dict[str, dict[str, int]], test: dict[str, dict[str, int]], count: int, seed: int
) -> None:
    data = dataset({"dev": dev, "test": test})
    cut, alone = sample(data, count, seed, first=["dev"]), sample(data, count, seed, splits=["dev"])
    assert ids(cut) == ids(alone), "as if there were no other split"
    assert cut.qrels("dev") == alone.qrels("dev")
    for query, judged in test.items():
        there = {name for name, grade in judged.items() if grade > 0 and name in ids(data)}
        assert (query in cut.qrels("test")) == (bool(there) and there <= set(ids(cut)))


def test_a_corpus_without_queries_can_be_cut() -> None:
    data = Dataset.of("x", [Document(f"d{n}", "") for n in range(10)])
    assert len(ids(sample(data, 3))) == 3
    assert set(ids(sample(data, 3))) < set(ids(sample(data, 7)))


def test_nothing_is_no_sample() -> None:
    with pytest.raises(UsageError, match="should be above zero"):
        sample(dataset({}), 0)


def test_splits_without_judgements_are_kept_whole() -> None:
    documents = [Document(f"d{n}", "") for n in range(9)]
    asked = {"eval": [Query("q8", "a")], "extra": [Query("q9", "b")]}
    data = Dataset.of("x", documents, [Query("q1", "c")], {"test": {"q1": {"d1": 1}}}, asked)
    cut = sample(data, 2)
    assert cut.splits == ("test", "eval", "extra")
    assert [[query.id for query in cut.queries(split)] for split in cut.splits] == [["q1"], ["q8"], ["q9"]]
    assert [cut.is_judged(split) for split in cut.splits] == [True, False, False]
