"""Beam and exact search against enumeration, on random tries with everything that can happen in them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.search.toy import Pair, Row, Toy, brute_force, docid_logprob, log_softmax
from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.errors import UsageError
from triever.search import beam as beam_module
from triever.search import exact as exact_module
from triever.search.beam import BeamOptions, beam
from triever.search.exact import exact
from triever.search.free import free
from triever.search.hits import best, documents
from triever.search.many import search_each

STOP = 3
QUERIES = ["first", "second"]
docids = st.lists(st.integers(0, 2), max_size=3).map(lambda symbols: (*symbols, STOP))
pairs = st.lists(st.tuples(docids, st.integers(0, 7)), min_size=1, max_size=12, unique=True)
one_docid_each = st.lists(docids, min_size=1, max_size=12, unique=True).map(
    lambda found: [(docid, number) for number, docid in enumerate(found)]
)
normalisations = st.sampled_from(["trie", "vocabulary"])
sizes = st.sampled_from([{}, {"WIDTH": 1, "BATCH": 1}, {"WIDTH": 2, "BATCH": 3, "EACH": 2, "APART": 1, "HELD": 2}])
"""How much an exact search does at once; with little it goes through the prefixes of these small tries many times."""


@contextmanager
def at_once(sizes: dict[str, int]) -> Iterator[None]:
    """An exact search does so much at once."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in sizes.items():
            patch.setattr(exact_module, name, value)
        yield


def changed(listed: list[Pair], added: list[Pair], gone: set[int]) -> tuple[Walk, list[Pair]]:
    """A trie that has been added to and deleted from, and what is left in it."""
    fresh = [pair for pair in added if pair not in listed]
    left = [pair for pair in listed + fresh if pair[1] not in gone]
    return Walk(Trie.of(listed).with_added(fresh).without(gone)), left


@given(
    pairs, pairs, st.sets(st.integers(0, 7), max_size=3), normalisations, st.booleans(), st.sampled_from([1, 4, 128])
)
def test_a_wide_beam_equals_enumeration(
    listed: list[Pair], added: list[Pair], gone: set[int], normalisation: str, finish: bool, piece: int
) -> None:
    walk, left = changed(listed, added, gone)
    toy = Toy(STOP + 1)
    options = BeamOptions(width=64, normalisation=normalisation, finish=finish)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_module, "PIECE", piece)  # with little, rests of docids are read in several pieces
        frontier = beam(toy, *toy.prefill(QUERIES), walk, options)
    for query, found in zip(QUERIES, documents(walk, frontier, 100), strict=True):
        expected = brute_force(toy, query, left, normalisation)
        assert {document: math.exp(mass) for document, mass in found} == pytest.approx(expected, abs=1e-4)
        if normalisation == "trie" and left:
            assert sum(math.exp(mass) for _, mass in found) == pytest.approx(1, abs=1e-4)


def test_rests_of_like_length_are_read_together_and_those_of_a_query_side_by_side() -> None:
    walk = Walk(Trie.of([((number // 3, number % 3, *[1] * number, STOP), number) for number in range(9)]))
    read: list[tuple[list[str], int]] = []

    class Watched(Toy):
        def extend(self, cache: list[Row], parents: Tensor, tokens: Tensor) -> tuple[list[Row], Tensor]:
            read.append(([cache[parent][0] for parent in parents.tolist()], tokens.numel()))
            return super().extend(cache, parents, tokens)

    found = {}
    for piece in (128, 1):
        read.clear()
        toy = Watched(STOP + 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(beam_module, "PIECE", piece)
            frontier = beam(toy, *toy.prefill(QUERIES), walk, BeamOptions(64, "vocabulary"))
        found[piece] = documents(walk, frontier, 10), sum(count for _, count in read)
        assert all(queries == sorted(queries) for queries, _ in read)
    for whole, pieces in zip(found[128][0], found[1][0], strict=True):
        assert dict(pieces) == pytest.approx(dict(whole), abs=1e-5)
    assert found[1][1] < found[128][1]


@given(pairs, pairs, st.sets(st.integers(0, 7), max_size=3), normalisations, st.integers(1, 4), st.booleans())
def test_whatever_the_beam_hits_are_valid(
    listed: list[Pair], added: list[Pair], gone: set[int], normalisation: str, width: int, finish: bool
) -> None:
    walk, left = changed(listed, added, gone)
    toy = Toy(STOP + 1)
    frontier = beam(toy, *toy.prefill(QUERIES), walk, BeamOptions(width, normalisation, finish=finish))
    for found in documents(walk, frontier, 5):
        numbers = [document for document, _ in found]
        assert len(set(numbers)) == len(numbers) <= 5
        assert set(numbers) <= {document for _, document in left}
        assert all(math.isfinite(mass) for _, mass in found)
        assert bool(numbers) == bool(left)


@given(pairs, pairs, st.sets(st.integers(0, 7), max_size=3), normalisations, st.integers(1, 4), sizes)
def test_exact_equals_enumeration_with_its_certificate(
    listed: list[Pair], added: list[Pair], gone: set[int], normalisation: str, k: int, sizes: dict[str, int]
) -> None:
    walk, left = changed(listed, added, gone)
    toy = Toy(STOP + 1)
    with at_once(sizes):
        results = exact(toy, *toy.prefill(QUERIES), walk, k, normalisation=normalisation)
    for query, result in zip(QUERIES, results, strict=True):
        expected = brute_force(toy, query, left, normalisation)
        assert result.certified
        masses = sorted(expected.values(), reverse=True)
        assert len(result.documents) == min(k, len(expected))
        for document, mass in result.documents:
            assert math.exp(mass) <= expected[document] + 1e-6
            assert expected[document] >= masses[min(k, len(masses)) - 1] - 1e-6, "not one of the best"


@given(one_docid_each, normalisations, st.sampled_from([0.5, 3.0]), st.booleans())
def test_a_temperature_divides_every_score(
    listed: list[Pair], normalisation: str, temperature: float, finish: bool
) -> None:
    walk, toy = Walk(Trie.of(listed)), Toy(STOP + 1)
    divided = Toy(STOP + 1, sharpness=toy.sharpness / temperature)
    expected = brute_force(divided, "q", listed, normalisation)
    options = BeamOptions(64, normalisation, temperature, finish=finish)
    certified = exact(toy, *toy.prefill(["q"]), walk, 20, normalisation=normalisation, temperature=temperature)
    beamed = documents(walk, beam(toy, *toy.prefill(["q"]), walk, options), 20)
    for found in (beamed[0], certified[0].documents):
        assert {document: math.exp(mass) for document, mass in found} == pytest.approx(expected, abs=1e-4)


@given(one_docid_each, normalisations, st.integers(1, 4), sizes)
def test_exact_scores_are_true_with_one_docid_each(
    listed: list[Pair], normalisation: str, k: int, sizes: dict[str, int]
) -> None:
    walk, toy = Walk(Trie.of(listed)), Toy(STOP + 1)
    with at_once(sizes):
        result = exact(toy, *toy.prefill(["q"]), walk, k, normalisation=normalisation)[0]
    expected = brute_force(toy, "q", listed, normalisation)
    best = sorted(expected.items(), key=lambda one: -one[1])[:k]
    assert [math.exp(mass) for _, mass in result.documents] == pytest.approx([mass for _, mass in best], abs=1e-5)


@given(pairs, st.sets(st.integers(0, 7), max_size=3), normalisations, st.integers(1, 4), st.integers(1, 9), sizes)
def test_queries_searched_together_find_what_each_finds_alone(
    listed: list[Pair], gone: set[int], normalisation: str, k: int, together: int, sizes: dict[str, int]
) -> None:
    walk, _ = changed(listed, [], gone)
    toy, queries = Toy(STOP + 1), ["first", "second", "third", "fourth"]
    with at_once(sizes):
        alone = [exact(toy, *toy.prefill([query]), walk, k, normalisation=normalisation)[0] for query in queries]
    with at_once({**sizes, "TOGETHER": together}):
        found = exact(toy, *toy.prefill(queries), walk, k, normalisation=normalisation)
    for one, other in zip(alone, found, strict=True):
        assert [document for document, _ in other.documents] == [document for document, _ in one.documents]
        assert [mass for _, mass in other.documents] == pytest.approx([mass for _, mass in one.documents], abs=1e-5)
        assert (other.certified, other.opened) == (one.certified, one.opened)


def test_queries_are_opened_together_and_as_few_as_their_children_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [((first, second), 3 * first + second) for first in range(3) for second in range(3)]
    walk, toy, passes = Walk(Trie.of(listed)), Toy(3), []
    children = walk.children
    monkeypatch.setattr(walk, "children", lambda state, depth: passes.append(len(state)) or children(state, depth))
    exact(toy, *toy.prefill(["a", "b", "c", "d"]), walk, 2)
    assert passes[0] == 4, "the beginnings of all queries"
    passes.clear()
    monkeypatch.setattr(exact_module, "CHILDREN", 7)
    exact(toy, *toy.prefill(["a", "b", "c", "d"]), walk, 2)
    assert passes[:2] == [2, 2], "of which each has three children"


def test_a_spent_budget_is_said_with_a_bound_that_holds() -> None:
    listed = [
        ((first, second, third), 9 * first + 3 * second + third)
        for first in range(3)
        for second in range(3)
        for third in range(3)
    ]
    walk, toy = Walk(Trie.of(listed)), Toy(3, sharpness=0.1)
    result = exact(toy, *toy.prefill(["q"]), walk, 3, budget=5)[0]
    assert not result.certified
    assert "budget spent after 5 prefixes" in str(result)
    masses = brute_force(toy, "q", listed, "trie")
    others = [mass for document, mass in masses.items() if document not in dict(result.documents)]
    assert math.log(max(others)) <= result.bound + 1e-6


@given(pairs, normalisations, st.integers(1, 4), st.integers(1, 6), sizes)
def test_whatever_the_budget_no_other_document_is_above_the_bound(
    listed: list[Pair], normalisation: str, k: int, budget: int, sizes: dict[str, int]
) -> None:
    walk, toy = Walk(Trie.of(listed)), Toy(STOP + 1, sharpness=0.5)
    with at_once(sizes):
        result = exact(toy, *toy.prefill(["q"]), walk, k, budget=budget, normalisation=normalisation)[0]
    assert result.opened <= budget
    for document, mass in brute_force(toy, "q", listed, normalisation).items():
        assert document in dict(result.documents) or math.log(mass) <= result.bound + 1e-6


class Counting(Walk):
    """A walk that counts the docids whose documents it is asked for."""

    asked = 0

    def documents_of(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.asked += len(states)
        return super().documents_of(states)


def wide_pairs(shared: int) -> list[Pair]:
    """A thousand docids of one symbol, so many of them with a second document, and some of two symbols."""
    short = [((symbol,), symbol) for symbol in range(1000)]
    second = [((symbol,), 1000 + symbol) for symbol in range(shared)]
    long = [((1000 + symbol, last), 2000 + 2 * symbol + last) for symbol in range(100) for last in range(2)]
    return short + second + long


def wide_masses(toy: Toy, listed: list[Pair], normalisation: str) -> dict[int, float]:
    """Log-probabilities by the definition, each softmax computed once: plain enumeration is quadratic."""
    logs: dict[tuple[int, ...], dict[int, float]] = {}
    sharing = Counter(docid for docid, _ in listed)
    follow: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for docid in sharing:
        for depth, symbol in enumerate(docid):
            follow[docid[:depth]].add(symbol)
    for prefix, symbols in follow.items():
        scores = toy.scores("q", prefix)
        over = sorted(symbols) if normalisation == "trie" else range(toy.width)
        logs[prefix] = dict(zip(over, log_softmax([scores[one] for one in over]), strict=True))
    return {
        document: sum(logs[docid[:depth]][symbol] for depth, symbol in enumerate(docid)) - math.log(sharing[docid])
        for docid, document in listed
    }


@pytest.mark.parametrize("normalisation", ["trie", "vocabulary"])
@pytest.mark.parametrize("sharpness", [0.3, 4.0])
@pytest.mark.parametrize("shared", [0, 700])
def test_exact_on_a_wide_trie_looks_at_few_of_its_documents(
    shared: int, sharpness: float, normalisation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Toy, "scores", cache(Toy.scores))
    listed = wide_pairs(shared)
    walk, toy = Counting(Trie.of(listed)), Toy(1100, sharpness)
    result = exact(toy, *toy.prefill(["q"]), walk, 5, normalisation=normalisation)[0]
    truth = wide_masses(toy, listed, normalisation)
    best = sorted(truth, key=lambda document: (-truth[document], document))
    assert result.certified
    assert [document for document, _ in result.documents] == best[:5]
    assert [mass for _, mass in result.documents] == pytest.approx([truth[one] for one in best[:5]], abs=1e-4)
    assert truth[best[5]] <= result.bound + 1e-4
    assert 0 < walk.asked <= (5 + 1) * result.opened


def test_exact_finds_what_is_too_unlikely_for_a_probability() -> None:
    """Log-probabilities of long docids under `vocabulary` go far below what exp can hold."""
    listed = [((*((number + at) % 5 for at in range(220)), STOP), number) for number in range(4)]
    walk, toy = Walk(Trie.of(listed)), Toy(200)
    result = exact(toy, *toy.prefill(["q"]), walk, 2, normalisation="vocabulary")[0]
    found = documents(walk, beam(toy, *toy.prefill(["q"]), walk, BeamOptions(10, "vocabulary")), 2)[0]
    assert result.certified
    assert found[-1][1] < -1000
    assert [document for document, _ in result.documents] == [document for document, _ in found]
    assert [mass for _, mass in result.documents] == pytest.approx([mass for _, mass in found], rel=1e-5)


WRONG_TURN = [((first, second), 4 * first + second) for first in range(4) for second in range(4)]


def test_backing_off_recovers_an_early_wrong_turn() -> None:
    walk, toy = Walk(Trie.of(WRONG_TURN)), Toy(4, sharpness=1.0)
    queries = [f"query {number}" for number in range(40)]
    truth = [max(found := brute_force(toy, query, WRONG_TURN, "trie"), key=found.get) for query in queries]

    def right(backoff: int) -> int:
        frontier = beam(toy, *toy.prefill(queries), walk, BeamOptions(width=1, backoff=backoff))
        return sum(one[0][0] == best for one, best in zip(documents(walk, frontier, 1), truth, strict=True))

    assert right(0) < right(1) <= right(3) == len(queries)


def test_a_depth_gives_prefixes() -> None:
    walk, toy = Walk(Trie.of(WRONG_TURN)), Toy(4)
    frontier = beam(toy, *toy.prefill(["q"]), walk, BeamOptions(width=4), depth=1)
    total = brute_force(toy, "q", WRONG_TURN, "trie")
    for state, logprob in zip(frontier.state[0].tolist(), frontier.logprob[0].tolist(), strict=True):
        below = walk.documents(state)
        assert len(below) == 4
        assert math.exp(logprob) == pytest.approx(sum(total[document] for document in below), abs=1e-5)
    whole = beam(toy, *toy.prefill(["q"]), walk, BeamOptions(width=4), depth=0)
    assert sorted(walk.documents(whole.state[0, 0].tolist())) == list(range(16))


def test_length_and_temperature() -> None:
    listed = [((0, STOP), 0), ((1, 1, 1, STOP), 1)]
    walk, toy = Walk(Trie.of(listed)), Toy(STOP + 1)
    plain = beam(toy, *toy.prefill(["q"]), walk, BeamOptions(normalisation="vocabulary"))
    expected = {number: docid_logprob(toy, "q", docid, listed, "vocabulary") for docid, number in listed}
    assert dict(documents(walk, plain, 2)[0]) == pytest.approx(expected, abs=1e-4)
    fair = beam(toy, *toy.prefill(["q"]), walk, BeamOptions(normalisation="vocabulary", length_penalty=1.0))
    order = sorted(listed, key=lambda pair: expected[pair[1]] / len(pair[0]), reverse=True)
    assert [number for number, _ in documents(walk, fair, 2)[0]] == [number for _, number in order]
    assert dict(documents(walk, fair, 2)[0]) == pytest.approx(expected, abs=1e-4)
    flat = beam(toy, *toy.prefill(["q"]), walk, BeamOptions(temperature=1e6))
    assert [math.exp(mass) for _, mass in documents(walk, flat, 2)[0]] == pytest.approx([0.5, 0.5], abs=1e-3)


@pytest.mark.parametrize("bad", [{"width": 0}, {"temperature": 0.0}, {"backoff": -1}])
def test_bad_options_are_refused(bad: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(bad))):
        BeamOptions(**bad)


def test_nothing_left_gives_nothing() -> None:
    walk, toy = Walk(Trie.of([((1,), 0)]).without([0])), Toy(2)
    assert documents(walk, beam(toy, *toy.prefill(["q"]), walk), 3) == [[]]
    assert exact(toy, *toy.prefill(["q"]), walk, 3)[0].documents == []


def test_ties_go_to_the_smaller_number() -> None:
    walk = Walk(Trie.of([((0,), 5), ((0,), 2), ((0,), 9)]))
    toy = Toy(1)
    assert [number for number, _ in documents(walk, beam(toy, *toy.prefill(["q"]), walk), 2)[0]] == [2, 5]
    assert torch.tensor(
        [mass for _, mass in documents(walk, beam(toy, *toy.prefill(["q"]), walk), 3)[0]]
    ).exp().sum() == pytest.approx(1)


shared_docids = st.lists(docids, min_size=1, max_size=14).map(
    lambda found: [(docid, number) for number, docid in enumerate(found)]
)


@given(shared_docids, normalisations, st.integers(1, 15))
def test_documents_that_tie_with_the_last_are_there_if_asked_for(
    listed: list[Pair], normalisation: str, k: int
) -> None:
    walk, toy = Walk(Trie.of(listed)), Toy(STOP + 1)
    frontier = beam(toy, *toy.prefill(["q"]), walk, BeamOptions(64, normalisation))
    truth = brute_force(toy, "q", listed, normalisation)
    least = sorted(truth.values(), reverse=True)[: min(k, len(truth))][-1]
    tied = {document for document, mass in truth.items() if mass > least - 1e-9}
    assert {document for document, _ in documents(walk, frontier, k, ties=True)[0]} == tied
    certified = exact(toy, *toy.prefill(["q"]), walk, k, normalisation=normalisation, ties=True)[0]
    assert {document for document, _ in certified.documents} == tied
    assert len(documents(walk, frontier, k)[0]) == min(k, len(truth))
    if normalisation == "vocabulary":
        written = free(toy, *toy.prefill(["q"]), walk, BeamOptions(400)).documents(k, ties=True)[0][0]
        assert {document for document, _ in written} == tied


few_masses = st.dictionaries(st.integers(0, 20), st.sampled_from([-1.0, -2.0, -3.5, -math.inf]))


@given(few_masses, st.integers(1, 9), st.booleans())
def test_the_best_are_those_of_a_sort(masses: dict[int, float], k: int, ties: bool) -> None:
    order = sorted(masses, key=lambda number: (-masses[number], number))
    kept = [number for number in order if len(order) <= k or masses[number] >= masses[order[k - 1]]]
    assert best(masses, k, ties=ties) == [(number, masses[number]) for number in (kept if ties else order[:k])]


@settings(max_examples=20)
@given(st.lists(st.text("ab ", max_size=9), max_size=9), st.integers(1, 4))
def test_many_queries_in_batches_are_each_by_itself(prompts: list[str], rows: int) -> None:
    walk, toy = Walk(Trie.of(WRONG_TURN)), Toy(4)
    wide = BeamOptions(width=4)
    together = search_each(
        toy, prompts, lambda cache, hidden: documents(walk, beam(toy, cache, hidden, walk, wide, keep=3), 3), rows=rows
    )
    assert len(together) == len(prompts)
    for prompt, found in zip(prompts, together, strict=True):
        alone = documents(walk, beam(toy, *toy.prefill([prompt]), walk, BeamOptions(width=4)), 3)[0]
        assert [document for document, _ in found] == [document for document, _ in alone]
        assert [mass for _, mass in found] == pytest.approx([mass for _, mass in alone])
