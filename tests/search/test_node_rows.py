"""Rows for nodes against enumeration: the softmax over the rows of all docids."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.models.node_rows import NodeGenerator, NodeSums, Steering
from triever.search.beam import BeamOptions, beam
from triever.search.hits import documents
from triever.search.scores import Normalisation

SIZE, SCALE = 4, 5.0
WIDTHS = st.sampled_from([1, 2, 30])
docids = st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3).map(tuple), min_size=1, max_size=20, unique=True)


def row(number: int) -> Tensor:
    """The row of a docid, a vector of length one that depends on its number alone."""
    vector = torch.randn(SIZE, generator=torch.Generator().manual_seed(number))
    return vector / vector.norm()


def rows_of(numbers: list[int]) -> Tensor:
    return torch.stack([torch.zeros(SIZE), *map(row, numbers)])[1:]


def mass(number: int) -> Tensor:
    """How much a docid counts."""
    return torch.tensor((1.0, 0.1, 3.0)[number % 3])


def mass_of(numbers: list[int]) -> Tensor:
    return torch.stack([torch.zeros(()), *map(mass, numbers)])[1:]


def weight(query: Tensor, number: int) -> Tensor:
    """The log of what a docid weighs for a query."""
    return SCALE * query @ row(number) + mass(number).log()


def read(queries: list[str]) -> Tensor:
    return torch.stack([row(1000 + len(query)) for query in queries])


def generator_of(trie: Trie) -> NodeGenerator:
    parts = zip(trie.parts, trie.alive, strict=True)
    numbers = ((part, part.document.tolist(), alive) for part, alive in parts)
    sums = [NodeSums.of(part, rows_of(listed), mass_of(listed), alive) for part, listed, alive in numbers]
    return NodeGenerator(read, Walk(trie), sums, SCALE, Steering(), 3)


class TrueSums(NodeGenerator):
    """Weighs prefixes by all docids below them, as an estimate is to come near."""

    def weights(self, hidden: Tensor, state: Tensor) -> Tensor:
        below = [[self.walk.documents(node.tolist()) for node in nodes] for nodes in state]
        each = [
            [
                torch.stack([weight(query, number) for number in numbers]).logsumexp(0)
                if numbers
                else torch.tensor(-torch.inf)
                for numbers in nodes
            ]
            for query, nodes in zip(hidden, below, strict=True)
        ]
        return torch.stack([torch.stack(nodes) for nodes in each])


def softmax(query: str, numbers: list[int]) -> dict[int, float]:
    """The probability of every docid, by its row alone."""
    weights = torch.stack([weight(read([query])[0], number) for number in numbers])
    return dict(zip(numbers, weights.softmax(0).tolist(), strict=True))


def changed(listed: list[tuple[int, ...]], first: int, gone: set[int]) -> tuple[Trie, list[int]]:
    """A trie to which all docids but the first few were added later, and from which some are deleted."""
    pairs = [(docid, number) for number, docid in enumerate(listed)]
    trie = Trie.of(pairs[:first] or pairs[:1])
    trie = trie.with_added(pairs[max(first, 1) :]) if len(pairs) > max(first, 1) else trie
    left = [number for number in range(len(listed)) if number not in gone]
    return trie.without(gone & set(range(len(listed)))), left


@given(docids, st.integers(1, 20), st.sets(st.integers(0, 19), max_size=5))
def test_a_wide_beam_gives_the_softmax_over_docids(listed: list[tuple[int, ...]], first: int, gone: set[int]) -> None:
    trie, left = changed(listed, first, gone)
    if not left:
        return
    generator = generator_of(trie)
    options = BeamOptions(width=64, normalisation="documents")
    frontier = beam(generator, *generator.prefill(["one", "three"]), generator.walk, options)
    for query, found in zip(["one", "three"], documents(generator.walk, frontier, 100), strict=True):
        probabilities = {number: math.exp(logprob) for number, logprob in found}
        assert probabilities == pytest.approx(softmax(query, left), abs=1e-4)
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-4)


@given(docids, st.integers(1, 20), st.sampled_from(["trie", "documents"]))
def test_with_true_sums_both_normalisations_are_the_softmax_over_docids(
    listed: list[tuple[int, ...]], first: int, normalisation: Normalisation
) -> None:
    trie, left = changed(listed, first, set())
    plain = generator_of(trie)
    generator = TrueSums(plain.read, plain.walk, plain.sums, SCALE, Steering(), 3)
    frontier = beam(generator, *generator.prefill(["one"]), generator.walk, BeamOptions(64, normalisation))
    found = {number: math.exp(mass) for number, mass in documents(generator.walk, frontier, 100)[0]}
    assert found == pytest.approx(softmax("one", left), abs=1e-4)


@given(docids, st.integers(1, 20), st.sets(st.integers(0, 19), max_size=5), st.integers(1, 3))
def test_whatever_the_beam_hits_exist_and_are_ordered_by_their_rows(
    listed: list[tuple[int, ...]], first: int, gone: set[int], width: int
) -> None:
    trie, left = changed(listed, first, gone)
    generator = generator_of(trie)
    options = BeamOptions(width=width, normalisation="documents")
    found = documents(generator.walk, beam(generator, *generator.prefill(["one"]), generator.walk, options), 100)[0]
    numbers = [number for number, _ in found]
    assert set(numbers) <= set(left)
    assert bool(numbers) == bool(left)
    expected = softmax("one", left) if left else {}
    assert [expected[number] for number in numbers] == sorted((expected[number] for number in numbers), reverse=True)


@given(
    docids, st.integers(1, 20), st.sets(st.integers(0, 19), max_size=5), st.integers(0, 4), st.sampled_from([1, 2, 30])
)
def test_to_a_depth_docids_are_weighed_and_prefixes_are_kept_apart(
    listed: list[tuple[int, ...]], first: int, gone: set[int], depth: int, width: int
) -> None:
    trie, left = changed(listed, first, gone)
    if not left:
        return
    generator = generator_of(trie)
    options, walk = BeamOptions(width=width, normalisation="documents"), generator.walk
    cache, hidden = generator.prefill(["one", "three"])
    frontier = beam(generator, cache, hidden, walk, options, depth=depth, keep=100)
    weighed = documents(walk, frontier, 100)
    stopped = [[]] * 2 if frontier.stopped is None else frontier.stopped.tolist()
    assert frontier.weighed is not None
    for at, query in enumerate(["one", "three"]):
        below = [set(walk.documents(state)) for state in stopped[at] if max(state) >= 0]
        assert len(below) <= width
        assert all(len(numbers) > 1 for numbers in below if depth and walk.trie.changes.none), (
            "others are weighed already"
        )
        prefixes = [{listed[number][:depth] for number in numbers} for numbers in below]
        assert all(len(prefix) == 1 for prefix in prefixes)
        ended = {number: math.exp(logprob) for number, logprob in weighed[at]}
        assert not set.union(set(), *below) & ended.keys()
        assert ended == pytest.approx(softmax(query, [*ended]) if ended else {}, abs=1e-4)
        root = float(generator.weights(hidden, walk.root(2)[:, None])[at, 0])
        true = [float(weight(hidden[at], number)) for number in ended]
        total = float(np.logaddexp.reduce(true, initial=-np.inf)) if true else -math.inf
        assert float(frontier.weighed[at]) == pytest.approx(total - root, abs=1e-3)
        if width >= 3**depth:  # wide enough for all prefixes
            assert set.union(set(), *below) | ended.keys() == set(left)


@given(docids, st.integers(1, 20), st.sets(st.integers(0, 19), max_size=5))
def test_changes_weigh_the_same_as_a_rebuild(listed: list[tuple[int, ...]], first: int, gone: set[int]) -> None:
    trie, left = changed(listed, first, gone)
    if not left:
        return
    after, rebuilt = generator_of(trie), generator_of(Trie.of([(listed[number], number) for number in left]))
    hidden = read(["one"])
    for docid in {listed[number][:length] for number in left for length in (0, 1, 2)}:
        weights = [each.weights(hidden, state_of(each.walk, docid)[None]) for each in (after, rebuilt)]
        torch.testing.assert_close(*weights, atol=1e-4, rtol=1e-4)


def state_of(walk: Walk, prefix: tuple[int, ...]) -> Tensor:
    state = walk.root(1)
    for depth, symbol in enumerate(prefix):
        children = walk.children(state, depth)
        at = int(((children.token[0] == symbol) & children.exists[0]).int().argmax())
        state = children.state[:, at]
    return state


def test_an_estimate_is_the_sum_where_rows_are_spread_evenly() -> None:
    """Rows around a mean in all directions alike: the sum of their weights is what a mean and a spread say."""
    chance = torch.Generator().manual_seed(0)
    rows = row(1) + 0.1 * torch.randn(20_000, SIZE, generator=chance)
    trie = Trie.of([((0, number), number) for number in range(len(rows))] + [((1, 0), len(rows))])
    each = torch.cat([rows, row(2)[None]])[torch.from_numpy(np.asarray(trie.parts[0].document))]
    generator = NodeGenerator(
        read, Walk(trie), [NodeSums.of(trie.parts[0], each, torch.ones(len(each)), None)], SCALE, Steering(1, 1), 2
    )
    children = generator.walk.children(generator.walk.root(1), 0)
    estimate = generator.weights(read(["one"]), children.state)[0, 0]
    true = (SCALE * rows @ read(["one"])[0]).logsumexp(0)
    assert float(estimate) == pytest.approx(float(true), abs=0.02)
    blind = NodeGenerator(read, Walk(trie), generator.sums, SCALE, Steering(1, 0), 2)
    without_spread = float(blind.weights(read(["one"]), children.state)[0, 0])
    assert abs(without_spread - float(true)) > 2 * abs(float(estimate) - float(true))
