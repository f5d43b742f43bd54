"""The contextual vocabulary, against what can be written out by hand and against k-means one group at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from triever.docids import contextual_vocabulary
from triever.docids.contextual_vocabulary import Vocabulary, build_vocabulary
from triever.docids.quantize import kmeans_within, nearest, spread_within

STOP = 4


def test_a_vocabulary_that_can_be_written_out_by_hand() -> None:
    """Five titles, three tokens: one in two clear meanings, one that is rare, and one that occurs once."""
    symbols = np.array([2, 0, 2, 1, 2, 0, 2])
    states = np.array([[0.0, 0], [5, 5], [0, 2], [7, 7], [10, 0], [6, 6], [10, 4]], np.float32)
    plain = {STOP: torch.tensor([-1.0, -1])}
    made, ids = build_vocabulary(symbols, states, plain, width=5, k=2)
    assert made.count.tolist() == [2, 1, 2, 0, 1]
    assert made.start[[0, 1, 2, STOP]].tolist() == [0, 2, 3, 5]
    assert made.rows[:3].tolist() == [[5, 5], [6, 6], [7, 7]]
    assert sorted(made.rows[3:5].tolist()) == [[0, 1], [10, 2]]
    assert made.rows[5].tolist() == [-1, -1]
    assert made.symbol.tolist() == [0, 0, 1, 2, 2, STOP]
    low = 3 if made.rows[3].tolist() == [0, 1] else 4
    high = 7 - low
    assert ids.tolist() == [low, 0, low, 2, high, 1, high]


def test_new_occurrences_go_to_the_nearest_id_of_their_symbol_and_new_symbols_get_one() -> None:
    rows = torch.tensor([[0.0, 0], [10, 0], [0, 1]])
    made = Vocabulary(np.array([0, 2, 0]), np.array([2, 1, 0]), rows)
    symbols, states = np.array([0, 1, 2, 0, 2]), np.array([[9.0, 1], [9, 1], [4, 4], [1, 1], [6, 6]], np.float32)
    larger, ids = made.placed(symbols, states)
    assert ids.tolist() == [1, 2, 3, 0, 3]
    assert larger.rows[3].tolist() == [5, 5]
    assert larger.rows[:3].equal(rows)
    assert len(made) == 3, "the old one stays"
    assert larger.symbol.tolist() == [0, 0, 1, 2]


@st.composite
def occurring(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    symbols = np.array(draw(st.lists(st.integers(0, 5), min_size=1, max_size=60)))
    chance = np.random.default_rng(draw(st.integers(0, 100)))
    few = draw(st.booleans())
    states = chance.integers(0, 3, (len(symbols), 2)) if few else chance.normal(size=(len(symbols), 3))
    return symbols, states.astype(np.float32)


@given(occurring(), st.integers(1, 4))
def test_every_id_is_the_mean_of_its_occurrences_each_of_which_is_nearest_to_it(
    some: tuple[np.ndarray, np.ndarray], k: int
) -> None:
    symbols, states = some
    made, ids = build_vocabulary(symbols, states, {}, width=6, k=k)
    assert (made.symbol[ids] == symbols).all()
    assert np.unique(ids).tolist() == list(range(len(made))), "nobody has no occurrence"
    for number in range(len(made)):
        np.testing.assert_allclose(made.rows[number], states[ids == number].mean(0), atol=1e-5)
    for symbol in np.unique(symbols):
        here = symbols == symbol
        assert made.count[symbol] <= (k if here.sum() > k else here.sum())
        if here.sum() <= k:
            assert made.rows_of(symbol).numpy().tolist() == states[here].tolist()
            continue
        own = torch.from_numpy(states[here])
        distance = nearest(own, made.rows_of(symbol))[1]
        assert torch.allclose(distance, (own - made.rows[ids[here]]).square().sum(1), atol=1e-4)


@settings(max_examples=30)
@given(occurring(), st.integers(1, 4))
def test_the_same_states_give_the_same_vocabulary_to_the_last_bit(some: tuple[np.ndarray, np.ndarray], k: int) -> None:
    first, ids = build_vocabulary(*some, {}, width=6, k=k)
    again, same = build_vocabulary(*some, {}, width=6, k=k, before=first)
    assert again.rows.equal(first.rows)
    assert (same == ids).all()
    assert (again.start == first.start).all()


@settings(max_examples=30)
@given(occurring(), st.integers(1, 4), st.integers(1, 20))
def test_little_memory_changes_nothing(some: tuple[np.ndarray, np.ndarray], k: int, slab: int) -> None:
    whole, ids = build_vocabulary(*some, {}, width=6, k=k, seed=3)
    placed = whole.placed(*some)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contextual_vocabulary, "SLAB", max(slab, int(np.bincount(some[0]).max())))
        parts, same = build_vocabulary(*some, {}, width=6, k=k, seed=3)
        patch.setattr(contextual_vocabulary, "SLAB", slab)
        assert (whole.placed(*some)[1] == placed).all()
    assert parts.rows.equal(whole.rows)
    assert (same == ids).all()


def test_a_symbol_with_too_many_occurrences_is_learned_from_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contextual_vocabulary, "SLAB", 50)
    chance = np.random.default_rng(0)
    states = np.concatenate([chance.normal(at, 0.1, (100, 2)) for at in (0, 10)]).astype(np.float32)
    made, ids = build_vocabulary(np.zeros(200, np.int64), states, {}, width=1, k=2)
    assert len(made) == 2
    assert len(set(ids[:100])) == len(set(ids[100:])) == 1
    assert ids[0] != ids[150]


def test_groups_are_clustered_as_one_by_one() -> None:
    """Where each group has clear clusters, all find them, each alone or together."""
    chance: Any = np.random.default_rng(1)
    centres = chance.normal(scale=50, size=(7, 3, 4))
    vectors = torch.from_numpy((centres[:, :, None] + chance.normal(size=(7, 3, 20, 4))).reshape(-1, 4)).float()
    lengths = torch.full((7,), 60)
    start = spread_within(vectors, lengths, torch.rand(3, len(vectors), generator=torch.Generator().manual_seed(0)))
    assert all(
        (start[group, at] == vectors[group * 60 : (group + 1) * 60]).all(1).any()
        for group in range(7)
        for at in range(3)
    )
    centroids, number = kmeans_within(vectors, lengths, start)
    for group in range(7):
        own = number[group * 60 : (group + 1) * 60].view(3, 20)
        assert (own == own[:, :1]).all()
        assert len(own[:, 0].unique()) == 3
        for at in range(3):
            mean = vectors[group * 60 + at * 20 : group * 60 + (at + 1) * 20].mean(0)
            torch.testing.assert_close(centroids[group, own[at, 0]], mean)
