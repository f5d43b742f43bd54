"""Batches of examples against a loop that walks through them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.training.epochs import chance_of, epoch_batches

small = st.integers(1, 9)


@given(count=small, size=st.integers(0, 9), steps=small, round_=st.integers(0, 3), seed=st.integers(0, 5))
def test_all_rounds_are_one_series(count: int, size: int, steps: int, round_: int, seed: int) -> None:
    series: list[int] = []
    while len(series) < (round_ + 1) * steps * size:
        number = len(series) // count
        series += np.random.default_rng((seed, 3, number)).permutation(count).tolist()
    batches = [series[batch * size :][:size] for batch in range(round_ * steps, (round_ + 1) * steps)]
    assert epoch_batches(count, size, steps, round_, seed, 3).tolist() == batches


@given(count=small, size=small, steps=small, round_=st.integers(0, 3), seed=st.integers(0, 5))
def test_each_round_begins_anew_with_whole_batches(count: int, size: int, steps: int, round_: int, seed: int) -> None:
    size = min(size, count)
    chance, batches = np.random.default_rng((seed, round_)), []
    while len(batches) < steps:
        order = chance.permutation(count).tolist()
        batches += [order[begin : begin + size] for begin in range(0, count - size + 1, size)]
    assert epoch_batches(count, size, steps, round_, seed, anew=True).tolist() == batches[:steps]


def test_what_a_seed_draws_stays_as_it_was() -> None:
    """Results were measured with these orders."""
    assert epoch_batches(5, 3, 3, 2, 7, 1).tolist() == [[2, 1, 2], [0, 1, 3], [4, 1, 3]]
    assert epoch_batches(5, 3, 3, 2, 7, anew=True).tolist() == [[0, 2, 1], [1, 0, 2], [1, 4, 3]]


def test_a_step_has_its_own_chance() -> None:
    assert chance_of(2, 3, 5, 1).integers(100) == np.random.default_rng((5, 1, 2)).integers(100)
    for step in (-1, 3):
        with pytest.raises(IndexError):
            chance_of(step, 3, 5, 1)
