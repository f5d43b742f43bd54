"""Search over the texts of tokens that have several ids, against the sum over every path of ids."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.toy import Pair, Toy, log_softmax
from triever.docids.contextual_vocabulary import IdWalk, Vocabulary
from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.models.contextual_generator import ContextualGenerator
from triever.search.beam import BeamOptions, beam
from triever.search.exact import exact
from triever.search.hits import documents
from triever.search.paths import path_scores

STOP = 3
QUERIES = ["first", "second"]
titles = st.lists(
    st.lists(st.integers(0, 2), max_size=3).map(lambda symbols: (*symbols, STOP)), min_size=1, max_size=10, unique=True
).map(lambda found: [(title, number) for number, title in enumerate(found)])
counts = st.lists(st.integers(1, 3), min_size=3, max_size=3)


def vocabulary(several: list[int]) -> Vocabulary:
    """So many ids for each symbol, those of the last symbol first, and one for the end."""
    count = np.array([*several, 1])
    order = np.array([2, STOP, 0, 1])
    start = np.empty(4, np.int64)
    start[order] = np.cumsum(count[order]) - count[order]
    return Vocabulary(start, count, torch.zeros(count.sum(), 1))


def ids_of(made: Vocabulary, symbol: int) -> range:
    return range(made.start[symbol], made.start[symbol] + made.count[symbol])


def path_masses(toy: Toy, made: Vocabulary, query: str, title: tuple[int, ...]) -> list[float]:
    """The probability of every path of ids that spells a title, each symbol over the whole vocabulary."""
    return [
        math.exp(sum(log_softmax(toy.scores(query, path[:depth]))[one] for depth, one in enumerate(path)))
        for path in itertools.product(*(ids_of(made, symbol) for symbol in title))
    ]


def generator(made: Vocabulary, **options: Any) -> tuple[Toy, ContextualGenerator]:
    toy = Toy(len(made))
    return toy, ContextualGenerator(toy, made, **options)


@given(titles, counts, st.booleans())
def test_with_all_paths_a_title_has_the_sum_over_them(listed: list[Pair], several: list[int], finish: bool) -> None:
    made = vocabulary(several)
    toy, over = generator(made, paths=100, negligible=0)
    walk = Walk(Trie.of(listed))
    options = BeamOptions(width=64, normalisation="vocabulary", finish=finish)
    frontier = beam(over, *over.prefill(QUERIES), walk, options)
    for query, found in zip(QUERIES, documents(walk, frontier, 100), strict=True):
        expected = {number: sum(path_masses(toy, made, query, title)) for title, number in listed}
        assert {number: math.exp(mass) for number, mass in found} == pytest.approx(expected, rel=2e-4, abs=1e-7)


@given(titles, counts, st.integers(1, 4), st.booleans())
def test_with_few_paths_it_has_no_more_and_at_least_the_best_that_is_followed(
    listed: list[Pair], several: list[int], paths: int, finish: bool
) -> None:
    made = vocabulary(several)
    toy, over = generator(made, paths=paths)
    walk = Walk(Trie.of(listed))
    options = BeamOptions(width=64, normalisation="vocabulary", finish=finish)
    frontier = beam(over, *over.prefill(QUERIES), walk, options)
    for query, found in zip(QUERIES, documents(walk, frontier, 100), strict=True):
        assert len(found) == len(listed)
        for number, mass in found:
            expected = path_masses(toy, made, query, listed[number][0])
            assert 0 < math.exp(mass) <= sum(expected) * 1.0002 + 1e-7


@given(titles, counts, st.sampled_from(["trie", "vocabulary"]))
def test_a_beam_by_ids_meets_every_path(listed: list[Pair], several: list[int], normalisation: Any) -> None:
    made = vocabulary(several)
    toy = Toy(len(made))
    walk = IdWalk(Trie.of(listed), made)
    frontier = beam(toy, *toy.prefill(QUERIES), walk, BeamOptions(width=400, normalisation=normalisation))
    for query, states, masses in zip(QUERIES, frontier.state.tolist(), frontier.logprob.exp().tolist(), strict=True):
        found: dict[int, list[float]] = {}
        for state, mass in zip(states, masses, strict=True):
            if mass > 0:
                found.setdefault(walk.documents(state)[0], []).append(mass)
        if normalisation == "trie":
            assert sum(map(sum, found.values())) == pytest.approx(1, abs=1e-3)
            continue
        for title, number in listed:
            expected = sorted(path_masses(toy, made, query, title))
            assert sorted(found[number]) == pytest.approx(expected, rel=2e-4, abs=1e-7)


@settings(max_examples=30)
@given(titles, counts, st.sampled_from(["trie", "vocabulary"]))
def test_exact_search_and_explanations_agree_with_a_wide_beam(
    listed: list[Pair], several: list[int], normalisation: Any
) -> None:
    made = vocabulary(several)
    _, over = generator(made, paths=100, negligible=0)
    walk = Walk(Trie.of(listed))
    cache, hidden = over.prefill(QUERIES)
    frontier = beam(over, cache, hidden, walk, BeamOptions(width=64, normalisation=normalisation))
    certified = exact(over, cache, hidden, walk, 100, normalisation=normalisation)
    for found, result in zip(documents(walk, frontier, 100), certified, strict=True):
        assert dict(found) == pytest.approx(dict(result.documents), abs=2e-4)
        if normalisation == "trie":
            assert sum(math.exp(mass) for _, mass in found) == pytest.approx(1, abs=1e-3)
    first = dict(documents(walk, frontier, 100)[0])
    for title, number in listed:
        one, alone = over.prefill(QUERIES[:1])
        scores, _ = path_scores(over, one, alone, walk, title, normalisation)
        assert sum(scores) == pytest.approx(first[number], abs=2e-4)


def test_what_is_lost_is_all_that_is_missing() -> None:
    made = vocabulary([3, 3, 2])
    toy, over = generator(made, paths=2)
    cache, hidden = over.prefill(["first"])
    assert over.logits(hidden).exp().sum() == pytest.approx(1)
    assert over.logits(hidden)[0, -1].exp() == pytest.approx(0, abs=1e-6)
    _, states = over.extend(cache, torch.tensor([0]), torch.tensor([[1, 0]]))
    all_of_them = over.logits(states)
    assert all_of_them.shape == (1, 2, 5)
    assert all_of_them.exp().sum(-1).tolist() == [pytest.approx([1.0, 1.0])]
    kept = sorted(path_masses(toy, made, "first", (1,)))[1:]
    assert 1 - all_of_them[0, 0, -1].exp() == pytest.approx(
        sum(kept) / sum(path_masses(toy, made, "first", (1,))), rel=1e-3
    )
    some = over.logits(states[:, 0], torch.tensor([[2, 0]]))
    assert some.tolist()[0] == pytest.approx(all_of_them[0, 0, [2, 0]].tolist(), abs=1e-4)


@given(titles, counts, st.integers(1, 4), st.integers(1, 4))
def test_an_exact_search_counts_what_it_does_not_follow(
    listed: list[Pair], several: list[int], paths: int, k: int
) -> None:
    made = vocabulary(several)
    toy, over = generator(made, paths=paths)
    walk = Walk(Trie.of(listed))
    certified = exact(over, *over.prefill(QUERIES), walk, k, normalisation="vocabulary")
    for query, result in zip(QUERIES, certified, strict=True):
        truth = {number: sum(path_masses(toy, made, query, title)) for title, number in listed}
        found = dict(result.documents)
        assert all(math.exp(mass) <= truth[number] * 1.0002 + 1e-7 for number, mass in found.items())
        others = [mass for number, mass in truth.items() if number not in found]
        assert max(others, default=0) <= math.exp(result.bound) * 1.0002 + 1e-7
        if result.certified:
            assert min(truth[number] for number in found) >= max(others, default=0) * 0.9998 - 1e-7


def test_a_search_that_does_not_follow_enough_is_not_certain_and_says_why() -> None:
    made = vocabulary([3, 3, 2])
    listed = [((first, second, STOP), 3 * first + second) for first in range(3) for second in range(3)]
    walk = Walk(Trie.of(listed))
    results = {}
    for paths in (1, 100):
        _, over = generator(made, paths=paths)
        results[paths] = exact(over, *over.prefill(QUERIES), walk, 3, normalisation="vocabulary")[0]
    assert results[100].certified
    assert not results[1].certified
    assert "not followed" in str(results[1])
    assert results[1].lost > -math.inf
