"""The exact probabilities along a trie, against sums over all documents below a prefix."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever import UsageError
from triever.docids.trie import Trie
from triever.theory.posterior import TriePosterior, sibling_shares

STOP = 9
Pairs = list[tuple[tuple[int, ...], int]]


@st.composite
def tries(draw: st.DrawFn) -> tuple[Pairs, np.ndarray]:
    """Docids that end with a stop symbol, some shared, some documents with several, and a score for each document."""
    docids = draw(st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=12))
    documents = draw(st.integers(1, len(docids)))
    pairs = {((*docid, STOP), at % documents) for at, docid in enumerate(docids)}
    score = st.floats(-6, 6) | st.just(-math.inf)
    scores = draw(st.lists(score, min_size=documents, max_size=documents).filter(lambda each: max(each) > -math.inf))
    return sorted(pairs), np.array(scores)


def weights(pairs: Pairs, scores: np.ndarray) -> list[float]:
    several = [sum(document == other for _, other in pairs) for _, document in pairs]
    return [math.exp(scores[document]) / count for (_, document), count in zip(pairs, several, strict=True)]


@given(tries())
def test_what_follows_a_prefix_is_the_share_of_all_below(given_: tuple[Pairs, np.ndarray]) -> None:
    pairs, scores = given_
    posterior = TriePosterior.of(Trie.of(pairs), scores)
    each = weights(pairs, scores)
    for prefix in {docid[:length] for docid, _ in pairs for length in range(len(docid) + 1)}:
        below = {at for at, (docid, _) in enumerate(pairs) if docid[: len(prefix)] == prefix and docid != prefix}
        shares: dict[int, float] = {}
        for at in below:
            symbol = pairs[at][0][len(prefix)]
            shares[symbol] = shares.get(symbol, 0.0) + each[at]
        whole = sum(shares.values())
        if shares and not whole:
            continue  # nothing below has any weight, so nothing is said of what follows
        assert posterior.following(prefix) == pytest.approx({one: share / whole for one, share in shares.items()})
    assert posterior.following((7,)) == {}


@given(tries())
def test_docids_written_along_it_have_the_probabilities_of_their_documents(given_: tuple[Pairs, np.ndarray]) -> None:
    pairs, scores = given_
    posterior = TriePosterior.of(Trie.of(pairs), scores)
    softmax = np.exp(scores) / np.exp(scores).sum()
    assert np.exp(posterior.documents()) == pytest.approx(softmax)
    written: dict[tuple[int, ...], float] = {}
    for docid, _ in pairs:  # the same by following symbols one by one
        steps = (posterior.following(docid[:place])[symbol] for place, symbol in enumerate(docid))
        written[docid] = math.prod(steps)
        of_docid = sum(
            weight for (other, _), weight in zip(pairs, weights(pairs, scores), strict=True) if other == docid
        )
        assert written[docid] == pytest.approx(of_docid / np.exp(scores).sum())
    assert sum(written.values()) == pytest.approx(1.0)


@given(tries(), st.integers(0, 99))
def test_divergences_of_nodes_add_up_to_that_of_docids(given_: tuple[Pairs, np.ndarray], seed: int) -> None:
    pairs, scores = given_
    posterior = TriePosterior.of(Trie.of(pairs), scores)
    assert posterior.divergence(posterior.log_conditional) == pytest.approx(0, abs=1e-12)
    other = sibling_shares(posterior.arrays, np.random.default_rng(seed).normal(size=posterior.arrays.nodes))
    reached = np.zeros(posterior.arrays.nodes)
    np.add.at(reached, posterior.arrays.parent[1:], np.exp(other[1:]))
    assert reached[~posterior.arrays.leaf] == pytest.approx(1.0)
    exact, model = (_docids(posterior, pairs, conditional) for conditional in (posterior.log_conditional, other))
    by_hand = sum(math.exp(log) * (log - model[docid]) for docid, log in exact.items() if log > -math.inf)
    assert posterior.divergence(other) == pytest.approx(by_hand, abs=1e-9)
    if np.isfinite(scores).all():  # else a model may give probability to documents that weigh nothing
        assert np.exp(posterior.documents(other)).sum() == pytest.approx(1.0)


def _docids(posterior: TriePosterior, pairs: Pairs, conditional: np.ndarray) -> dict[tuple[int, ...], float]:
    """The log-probability of each docid by conditional probabilities of nodes."""
    paths = [docid for docid, _ in Trie.of(pairs).items()]
    found = {}
    for entry, leaf in enumerate(posterior.arrays.leaf_of_entry().tolist()):
        log, node = 0.0, leaf
        while node > 0:
            log, node = log + conditional[node], int(posterior.arrays.parent[node])
        found[paths[entry]] = log
    return found


def test_what_was_added_and_deleted_counts_too() -> None:
    trie = Trie.of([((0, number, STOP), number) for number in range(8)]).with_added([((1, STOP), 8)]).without([3])
    scores = np.linspace(-1, 1, 9)
    kept = [number for number in range(9) if number != 3]
    softmax = np.exp(scores[kept]) / np.exp(scores[kept]).sum()
    posterior = TriePosterior.of(trie, scores)
    assert np.exp(posterior.documents())[kept] == pytest.approx(softmax)
    assert posterior.documents()[3] == -np.inf
    assert posterior.following(()) == pytest.approx({0: 1 - softmax[-1], 1: softmax[-1]})


def test_a_trie_without_documents_has_nothing_that_follows() -> None:
    posterior = TriePosterior.of(Trie.of([]), np.zeros(0))
    assert posterior.following(()) == {}
    assert len(posterior.documents()) == 0


def test_a_document_without_a_score_is_refused() -> None:
    with pytest.raises(UsageError, match="the trie has the document 4"):
        TriePosterior.of(Trie.of([((0,), 4)]), np.zeros(2))
