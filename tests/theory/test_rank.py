"""Ranks of matrices of scores, against vectors whose products they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.theory.normalisation import log_sum
from triever.theory.rank import best_of_rank, circle, half_circle, max_sim, summed_channels, tail_errors

SIZES = st.integers(1, 4)


@given(st.integers(1, 8), st.integers(1, 8), SIZES, SIZES, st.integers(0, 9))
def test_scores_of_summed_channels_have_rank_c_times_r_at_most(m: int, n: int, r: int, c: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    queries, documents = chance.normal(size=(c, m, r)), chance.normal(size=(c, n, r))
    scores = summed_channels(queries, documents)
    by_hand = sum(queries[at] @ documents[at].T for at in range(c))
    assert scores == pytest.approx(by_hand)
    assert np.linalg.matrix_rank(scores) == min(m, n, c * r)
    assert tail_errors(scores)[min(m, n, c * r) :] == pytest.approx(0, abs=1e-7)


@given(st.integers(2, 7), st.integers(2, 7), st.integers(0, 9))
def test_no_vectors_of_a_size_come_nearer_than_the_tail(m: int, n: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    scores = chance.normal(size=(m, n))
    errors = tail_errors(scores)
    norm = np.linalg.norm(scores)
    for rank, error in enumerate(errors):
        assert np.linalg.norm(scores - best_of_rank(scores, rank)) / norm == pytest.approx(error, abs=1e-7)
        # Alternating least squares is another way to vectors of this size, and cannot be better.
        left = chance.normal(size=(m, rank))
        for _ in range(20):
            right = np.linalg.lstsq(left, scores, rcond=None)[0]
            left = np.linalg.lstsq(right.T, scores.T, rcond=None)[0].T
        assert np.linalg.norm(scores - left @ right) / norm >= error - 1e-7


@pytest.mark.parametrize("count", [5, 12, 40])
def test_max_sim_has_no_such_bound(count: int) -> None:
    """Two tokens of two numbers, and a matrix of any rank: c * r would be 4."""
    x = half_circle(count)
    scores = max_sim(x[:, None], np.stack([x, -x], 1))
    assert scores == pytest.approx(np.abs(x @ x.T))
    assert np.linalg.matrix_rank(scores) == count
    assert np.linalg.matrix_rank(x @ x.T) == 2


@given(st.integers(0, 9))
def test_max_sim_token_by_token(seed: int) -> None:
    chance = np.random.default_rng(seed)
    queries, documents = chance.normal(size=(3, 2, 4)), chance.normal(size=(5, 6, 4))
    by_hand = [[sum(max(t @ u for u in document) for t in query) for document in documents] for query in queries]
    assert max_sim(queries, documents) == pytest.approx(np.array(by_hand))


def test_two_numbers_are_enough_for_one_relevant_document_each() -> None:
    """The tail is about scores, and says little of ranks or probabilities: the identity has full rank."""
    x, n = circle(50), 50
    assert tail_errors(np.eye(n))[2] == pytest.approx(np.sqrt(1 - 2 / n))
    scores = x @ x.T
    assert (scores.argmax(1) == np.arange(n)).all()
    sharp = scores / 1e-4
    assert np.exp(np.diag(sharp) - log_sum(sharp)) == pytest.approx(1.0, abs=1e-6)


def test_a_matrix_of_zeros_has_no_tail() -> None:
    assert tail_errors(np.zeros((2, 3))).tolist() == [0.0, 0.0, 0.0]
