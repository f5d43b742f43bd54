"""One score of clusters and vectors: each rule is its formula, whatever is left out, and what comes later is behind."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.engines.match_scores import (
    Candidates,
    MatchOptions,
    ScoredCandidates,
    Scoring,
    Way,
    beam_shares,
    best_of,
    candidates,
    weights_for,
)
from triever.errors import UsageError
from triever.index.trie_vectors import PrefixEntries

SCORINGS = {
    "sum": Scoring("sum", (0.7,)),
    "loglinear": Scoring("loglinear", (3.0,), temperature=0.1),
    "learned": Scoring("learned", (2.0, 0.5, -1.0, 0.25)),
    "flat": Scoring("learned", (0.0, 0.5, -1.0, 0.25)),
    "falling": Scoring("learned", (-1.0, 0.0, 0.0, 0.0)),
}


def below_of(lines: list[tuple[int, int]], products: dict[int, float]) -> PrefixEntries:
    """What lies below prefixes, from (document, prefix) pairs and the product of each document."""
    numbers, places = (np.array(column, np.int64) for column in zip(*lines, strict=True))
    found = np.array([products[number] for number in numbers.tolist()], np.float32)
    return PrefixEntries(numbers, found, places, np.arange(len(lines)), np.zeros(len(lines), bool))


def ranking(numbers: list[int], scores: list[float], clusters: int = 1) -> ScoredCandidates:
    return ScoredCandidates(np.array(numbers), np.array(numbers), np.array(scores), clusters)


def test_each_rule_is_its_formula_and_several_clusters_are_added_up() -> None:
    # Document 7 is in two clusters, in one of them by two docids.
    below = below_of([(7, 1), (3, 0), (7, 0), (7, 1)], {7: 0.5, 3: -0.25})
    logprob, length = np.log([0.5, 0.2, 0.1]), np.array([2, 3, 3])
    parts = [math.exp(math.log(0.5) / 2**0.8), *(math.exp(math.log(one) / 3**0.8) for one in (0.2, 0.1))]
    shares = [part / sum(parts) for part in parts]
    assert beam_shares(logprob, length).tolist() == pytest.approx(shares)
    found = candidates(below, logprob, length)
    assert found.numbers.tolist() == [3, 7]
    assert found.places.tolist() == [0, 0], "the best cluster of each"
    assert found.entries.tolist() == [1, 2], "and the docid by which it is there"
    both = shares[0] + shares[1]
    expected = {
        "sum": [math.tanh(-0.25) + 0.7 * shares[0], math.tanh(0.5) + 0.7 * both],
        "loglinear": [-0.25 / 0.1 + 3 * math.log(0.5), 0.5 / 0.1 + 3 * math.log(0.7)],
        "learned": [-0.5 + 0.5 * math.log(0.5) - shares[0], 1.0 + 0.5 * math.log(0.7) - both],
    }
    for rule, scores in expected.items():
        assert SCORINGS[rule].scores(found).tolist() == pytest.approx(scores, abs=1e-6)
        assert sum(SCORINGS[rule].parts(found).values()).tolist() == pytest.approx(scores, abs=1e-6)


def test_the_rank_of_a_cluster_is_its_place_in_the_beam() -> None:
    below = below_of([(0, 0), (1, 1), (2, 2)], {0: 0.0, 1: 0.0, 2: 0.0})
    found = candidates(below, np.log([0.5, 0.3, 0.2]), np.array([1, 1, 1]), single=True)
    assert found.features[:, 3].tolist() == pytest.approx([-math.log(1), -math.log(2), -math.log(3)])


halves = st.integers(-4, 4).map(lambda one: one / 8)  # so that ties happen


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=20),
    st.lists(halves, min_size=10, max_size=10),
    st.integers(1, 12),
    st.sampled_from([*SCORINGS]),
)
def test_the_best_are_those_of_the_obvious_way(lines: list, products: list, k: int, rule: str) -> None:
    scoring, logprob, length = SCORINGS[rule], np.log([0.4, 0.3, 0.2, 0.1]), np.array([1, 2, 2, 1])
    below = below_of(lines, dict(enumerate(products)))
    single = len({number for number, _ in lines}) == len(lines)
    found = candidates(below, logprob, length)
    assert found.numbers.tolist() == sorted({number for number, _ in lines})
    scores = dict(zip(found.numbers.tolist(), scoring.scores(found).tolist(), strict=True))
    unsorted = candidates(below, logprob, length, single=single)
    assert dict(zip(unsorted.numbers.tolist(), scoring.scores(unsorted).tolist(), strict=True)) == scores
    best = best_of(unsorted, scoring, k)
    assert best is not None
    least = sorted(scores.values(), reverse=True)[min(k, len(scores)) - 1]
    expected = {number: score for number, score in scores.items() if score >= least}
    assert dict(zip(best.numbers.tolist(), best.scores.tolist(), strict=True)) == expected


@given(st.lists(halves, min_size=1, max_size=12), st.integers(1, 5), st.sampled_from([*SCORINGS]))
def test_what_was_left_out_is_not_missed(products: list, k: int, rule: str) -> None:
    """Of two clusters only the k + 1 nearest are there: that is enough, or it is said that it is not."""
    scoring, logprob, length = SCORINGS[rule], np.log([0.6, 0.4]), np.array([1, 1])
    lines = [(number, number % 2) for number in range(len(products))]
    whole = below_of(lines, dict(enumerate(products)))
    by_product = sorted(range(len(lines)), key=lambda line: -products[line])
    kept = [[line for line in by_product if line % 2 == place] for place in (0, 1)]
    cut = np.array([line for some in kept for line in some[: k + 1]])
    last = np.array([at == k and len(some) > k + 1 for some in kept for at, _ in enumerate(some[: k + 1])])
    part = PrefixEntries(whole.numbers[cut], whole.products[cut], whole.places[cut], whole.entries[cut], last)
    exact = best_of(candidates(whole, logprob, length, single=True), scoring, k)
    found = best_of(candidates(part, logprob, length, single=True), scoring, k)
    assert exact is not None
    if found is not None and scoring.rising:
        assert sorted(found.numbers.tolist()) == sorted(exact.numbers.tolist())
    if found is None:
        assert last.any()
    elif scoring is SCORINGS["flat"]:
        assert not last.any() or len(exact) <= k, "where nearness counts nothing all of a cluster tie"


def test_what_a_wider_beam_finds_comes_behind() -> None:
    first = ranking([4, 2], [0.5, 0.75], clusters=2)
    wider = first.followed_by(ranking([1, 2, 3], [0.9, 0.1, 0.7], clusters=4))
    assert wider.numbers.tolist() == [4, 2, 1, 3]
    assert wider.scores.tolist() == pytest.approx([0.5, 0.75, -0.5, -0.7]), "the others keep their distances"
    assert (wider.clusters, wider.note) == (4, "the first 2 are from 2 clusters, those behind them from more")
    last = wider.followed_by(ranking([5], [-3.0], clusters=8))
    assert last.scores.tolist()[-1] == -3.0, "what is below anyway stays as it is"
    assert last.note == wider.note
    assert first.followed_by(ranking([2], [9.0])).scores.tolist() == [0.5, 0.75]
    level = first.followed_by(ranking([7], [0.5]))
    assert level.scores.tolist()[-1] == -0.5, "where scores tie, ids would decide"


def test_weights_are_those_that_were_fitted_for_the_way_it_is_searched() -> None:
    fitted = {Way("sum", 2, None): (0.3,), Way("loglinear", None, 0.05): (0.6,)}
    given = MatchOptions(fit=True, alpha=9.0, depth=2, temperature=0.3)
    assert weights_for(given, fitted) == (0.3,), "the temperature is none of this rule"
    assert weights_for(replace(given, fit=False), fitted) == (9.0,)
    assert weights_for(replace(given, depth=None), fitted) == (9.0,)
    assert weights_for(replace(given, rule="loglinear", depth=None), fitted) == (9.0,)
    assert weights_for(replace(given, rule="loglinear", depth=None, temperature=0.05), fitted) == (0.6,)
    with pytest.raises(UsageError, match="no weights were learned for rule learned with whole docids"):
        weights_for(MatchOptions(rule="learned"), fitted)
    assert str(MatchOptions(rule="loglinear", depth=3).way) == "rule loglinear with depth 3 and temperature 0.05"


def test_nothing_is_ranked_where_nothing_is() -> None:
    nothing = PrefixEntries(*(np.empty(0, dtype) for dtype in (np.int64, np.float32, np.int64, np.int64, bool)))
    found = candidates(nothing, np.log([0.5]), np.array([1]))
    assert isinstance(found, Candidates)
    best = best_of(found, SCORINGS["sum"], 3)
    assert best is not None
    assert len(best) == 0
