"""Weights chosen by held-out queries: the best of a grid by brute force, and a softmax by its formula."""

from __future__ import annotations

import math

import numpy as np
import pytest

from triever.engines.match_fits import (
    ALPHAS,
    RIDGE,
    AlphaFit,
    LearnedFit,
    fit_for,
    learned_weights,
    nearest_of_each,
)
from triever.engines.match_scores import FEATURES, Candidates, MatchOptions, Scoring
from triever.ranks import reciprocal_rank_by

COUNT = 30


def found(seed: int, count: int = COUNT) -> Candidates:
    """Documents of five clusters, by chance."""
    chance = np.random.default_rng(seed)
    logprob = np.sort(np.log(chance.dirichlet(np.ones(5))))[::-1]
    places = np.concatenate([np.arange(5), chance.integers(5, size=count - 5)])
    shares = np.exp(logprob)[places]
    products = np.round(chance.uniform(-1, 1, count), 1)  # so that ties happen
    nothing = np.zeros(count, bool)
    return Candidates(np.arange(count), np.arange(count), products, places, logprob[places], shares, nothing, 5)


def test_ties_do_not_make_an_alpha_look_good() -> None:
    right = np.arange(4) == 2
    assert reciprocal_rank_by(np.ones(4), right) == 1 / 4
    assert reciprocal_rank_by(np.array([1.0, 1.0, 1.5, 1.0]), right) == 1


@pytest.mark.parametrize("rule", ["sum", "loglinear"])
@pytest.mark.parametrize("seed", range(5))
def test_the_alpha_is_the_best_of_all_that_are_tried(rule: str, seed: int) -> None:
    chance = np.random.default_rng(seed)
    queries = [(found(100 * seed + number), chance.integers(COUNT + 5, size=2)) for number in range(8)]
    fit = AlphaFit(MatchOptions(rule=rule, alpha=0.4))  # ty: ignore[invalid-argument-type]
    for one in queries:
        fit.see(*one)

    def quality(alpha: float) -> float:
        total = 0.0
        for one, relevant in queries:
            scores = Scoring(rule, (alpha,), 0.05).scores(one)
            inside = [number for number in relevant.tolist() if number < COUNT]
            if inside:
                best = max(scores[inside])
                total += 1 / (1 + sum(scores[row] >= best for row in range(COUNT) if row not in inside))
        return total

    best = max(quality(alpha) for alpha in (0.4, *ALPHAS))
    first = next(alpha for alpha in (0.4, *ALPHAS) if quality(alpha) == pytest.approx(best, abs=1e-9))
    assert fit.weights() == (first,)


def test_without_anything_found_the_given_alpha_stays_and_the_vector_decides(caplog: pytest.LogCaptureFixture) -> None:
    for fit, expected in ((fit_for(MatchOptions(alpha=0.4)), (0.4,)), (LearnedFit(), (1.0, 0.0, 0.0, 0.0))):
        fit.see(found(0), np.array([COUNT + 1]))
        assert fit.weights() == expected
    assert "only the vectors score documents" in caplog.text


def test_the_nearest_of_each_cluster_are_kept_and_what_is_relevant() -> None:
    one = found(3)
    kept = set(nearest_of_each(one, 2).tolist())
    for place in range(5):
        members = np.flatnonzero(one.places == place)
        nearest = sorted(one.products[members].tolist(), reverse=True)[:2]
        assert sorted((one.products[row] for row in kept & set(members.tolist())), reverse=True) == nearest
    fit = LearnedFit()
    farthest = int(one.products.argmin())
    fit.see(one, np.array([farthest]))
    assert [right.sum() for right in fit._right] == [1]
    assert len(fit._features[0]) <= 5 * 10 + 1
    assert isinstance(fit_for(MatchOptions(rule="learned")), LearnedFit)


def loss(weights: np.ndarray, features: list[np.ndarray], right: list[np.ndarray]) -> float:
    """The formula, query by query and candidate by candidate, with the weights for features of spread one."""
    spread = np.concatenate([one - one.mean(0) for one in features]).std(0)
    total = 0.0
    for rows, is_right in zip(features, right, strict=True):
        terms = [math.exp(sum(float(w) * float(x) for w, x in zip(weights, row, strict=True))) for row in rows]
        total -= math.log(sum(term for term, good in zip(terms, is_right, strict=True) if good) / sum(terms))
    return total / len(features) + RIDGE * float(((weights * spread) ** 2).sum())


def queries_by(weights: tuple[float, ...], count: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Candidates of which one is right, drawn by the softmax of true weights."""
    chance = np.random.default_rng(seed)
    features = [chance.normal(size=(12, len(weights))) * (0.2, 3.0, 0.1, 1.0) for _ in range(count)]
    gumbel = [-np.log(-np.log(chance.random(12))) for _ in features]
    chosen = [int((one @ weights + noise).argmax()) for one, noise in zip(features, gumbel, strict=True)]
    return features, [np.arange(12) == one for one in chosen]


def test_learned_weights_make_the_loss_as_small_as_it_gets() -> None:
    features, right = queries_by((5.0, 0.4, 0.0, 1.0), 40, seed=1)
    weights = np.array(learned_weights(features, right))
    least = loss(weights, features, right)
    for feature in range(len(FEATURES)):
        for step in (-0.05, 0.05):
            other = weights.copy()
            other[feature] += step / (0.2, 3.0, 0.1, 1.0)[feature]
            assert loss(other, features, right) > least
    assert learned_weights(features, right) == tuple(weights.tolist()), "always the same"


def test_what_is_noise_is_not_listened_to() -> None:
    true = (8.0, 0.5, 0.0, 1.5)
    features, right = queries_by(true, 600, seed=2)
    weights = np.array(learned_weights(features, right))
    spread = np.array([0.2, 3.0, 0.1, 1.0])
    assert np.abs(weights - true) @ np.diag(spread) == pytest.approx(np.zeros(4), abs=0.2)
    assert abs(weights[2] * spread[2]) < 0.1 * abs(weights[0] * spread[0])
    constant = [np.where(np.arange(4) == 1, 7.0, one) for one in features]
    assert learned_weights(constant, right)[1] == 0.0, "what never differs says nothing"
