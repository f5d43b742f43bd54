"""Cluster-adaptive negatives: they come from where they should, and the loss is its formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from triever.docids.trie import Paths
from triever.errors import UsageError
from triever.models.tokens import Tokens
from triever.training.clusters import (
    ClusterBatches,
    ClusterNegatives,
    FixedVectors,
    Texts,
    cluster_numbers,
    cluster_sizes,
)
from triever.training.losses import contrastive
from triever.training.pairs import Pairs
from triever.training.views import Generated, Labelled, View, ViewBatches

CLUSTER = np.array([0] * 12 + [1] * 3 + [2])  # large, small, and of one document
COUNT = len(CLUSTER)
SAME = np.array([*range(COUNT - 1), COUNT - 1])
PAIRS = Pairs(["a", "b", "c"], ["a", "b", "c"], np.array([0, 1, 2, 12, 15]), np.array([0, 3, 4, 5]), np.ones(3))
"""One query of the large cluster with three answers, one of the small one, one of the cluster of one."""


def tokens(count: int) -> Tokens:
    return Tokens.from_lists([[1, 5 + row, 2] for row in range(count)])


def batches(
    negatives: ClusterNegatives, mined: dict[str, np.ndarray] | None = None, same: np.ndarray = SAME
) -> ClusterBatches:
    views: dict[str, View] = {
        "labelled": Labelled(PAIRS, tokens(3)),
        "generated": Generated(tokens(2), np.array([13, 15])),
    }
    docids = np.stack([CLUSTER, np.arange(COUNT)], 1)
    made = ViewBatches(views, [3, 2], docids, batch=5, steps=30, seed=1)
    vectors = np.random.default_rng(0).normal(size=(COUNT, 4))
    return ClusterBatches(made, FixedVectors(lambda rows: vectors[rows]), CLUSTER, same, negatives, mined or {})


def told(made: ClusterBatches, step: int) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """The documents of a batch's texts, what is relevant to each, and the negatives of each."""
    drawn = made.views.drawn(step)
    own = np.concatenate([one.rows for one in drawn])
    relevant = [rows for one in drawn for rows in one.relevant()]
    chance = np.random.default_rng((made.views.seed, made.views.round, step, 1))
    return own, relevant, made.negatives_of(drawn, own, relevant, chance)


def test_negatives_inside_are_others_of_the_same_cluster_and_never_relevant() -> None:
    made = batches(ClusterNegatives(inside=10))
    seen = set()
    for step in range(len(made)):
        own, relevant, negatives = told(made, step)
        for row, right, wrong in zip(own, relevant, negatives, strict=True):
            others = set(np.flatnonzero(CLUSTER[row] == CLUSTER)) - set(right)
            inside = wrong[: min(10, len(others))]
            assert set(inside) <= others
            assert len(set(inside)) == len(inside)
            if row < 12:
                seen |= set(inside)
    assert seen == set(range(3, 12)), "all that may be drawn are drawn, sooner or later"


def test_a_cluster_of_one_falls_back_to_random_documents() -> None:
    made = batches(ClusterNegatives(inside=4))
    drawn = [wrong for step in range(len(made)) for row, _, wrong in zip(*told(made, step), strict=True) if row == 15]
    assert len(np.unique(np.concatenate(drawn))) > COUNT // 2


def test_copies_of_what_is_relevant_are_no_negatives() -> None:
    same = np.where(np.isin(np.arange(COUNT), [12, 13]), 99, np.arange(COUNT))
    made = batches(ClusterNegatives(inside=2), same=same)
    for step in range(10):
        for row, _, wrong in zip(*told(made, step), strict=True):
            assert row != 12 or wrong[0] == 14


def test_mined_ones_are_for_the_views_that_were_mined_for_and_others_are_random() -> None:
    judged, written = np.array([[7, 8, -1], [3, -1, -1], [4, 5, 6]]), np.array([[1, 2, -1], [0, 9, 10]])
    for mined in ({"labelled": judged}, {"generated": written}, {"labelled": judged, "generated": written}):
        made = batches(ClusterNegatives(inside=0, count=2), mined)
        drawn_for: dict[str, list[int]] = {"labelled": [], "generated": []}
        for step in range(30):
            rows = iter(told(made, step)[2])
            for one in made.views.drawn(step):
                for example, wrong in zip(one.examples, rows, strict=False):
                    drawn_for[one.name] += wrong.tolist()
                    if one.name in mined:
                        there = mined[one.name][example]
                        there = there[there >= 0]
                        assert set(wrong[: len(there)]) <= set(there)
        for name, drawn in drawn_for.items():
            assert name in mined or len(set(drawn)) > COUNT // 2


def test_a_batch_is_made_from_its_number_alone_and_holds_what_the_loss_needs() -> None:
    made = batches(ClusterNegatives(inside=3, beta=2.5))
    one, again = made[4], batches(ClusterNegatives(inside=3, beta=2.5))[4]
    assert all(torch.equal(one[name], again[name]) for name in one)
    own, relevant, negatives = told(made, 4)
    documents = np.concatenate([own, negatives.ravel()])
    assert one["document_vectors"].shape == (5 + 5 * 3, 4)
    for text, (row, right) in enumerate(zip(own, relevant, strict=True)):
        assert one["excluded"][text].tolist() == [document in right for document in documents]
        together = [CLUSTER[document] == CLUSTER[row] for document in documents]
        assert one["weights"][text].tolist() == [2.5 if there else 1.0 for there in together]
    with pytest.raises(IndexError):
        made[30]


def test_documents_that_are_learned_come_as_tokens() -> None:
    found = Texts(tokens(4), pad=0)(np.array([2, 0]))
    assert found["document_ids"].tolist() == [[1, 7, 2], [1, 5, 2]]
    assert found["document_mask"].tolist() == [[1, 1, 1]] * 2


def test_the_loss_with_weights_is_its_formula() -> None:
    torch.manual_seed(0)
    scores, positive = torch.randn(3, 7), torch.tensor([0, 1, 2])
    weights = torch.rand(3, 7) + 0.5
    excluded = torch.rand(3, 7) < 0.3
    each = []
    for query in range(3):
        right = math.exp(scores[query, query])
        wrong = sum(
            float(weights[query, document]) * math.exp(scores[query, document])
            for document in range(7)
            if document != query and not excluded[query, document]
        )
        each.append(-math.log(right / (right + wrong)))
    assert float(contrastive(scores, positive, excluded, weights)) == pytest.approx(sum(each) / 3, abs=1e-5)
    ones = torch.ones_like(weights)
    assert torch.allclose(contrastive(scores, positive, excluded, ones), contrastive(scores, positive, excluded))


def test_clusters_are_docids_that_are_equal() -> None:
    assert cluster_numbers(np.array([[1, 2], [0, 3], [1, 2]])).tolist() == [1, 0, 1]
    assert cluster_numbers(np.empty((3, 0), np.int64)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("depth", [0, 1, 2, None])
def test_a_document_counts_in_every_cluster_that_it_is_in(depth: int | None) -> None:
    entries = [((0, 1, 5), 3), ((0, 2), 3), ((0, 1, 5), 4), ((1, 1), 3), ((1, 1), 9), ((2, 0), 0)]
    expected: dict[tuple[int, ...], set[int]] = {}
    for docid, document in entries:
        expected.setdefault(docid[:depth], set()).add(document)
    assert sorted(cluster_sizes(Paths.of(entries), depth)) == sorted(map(len, expected.values()))


@pytest.mark.parametrize("options", [{"inside": -1}, {"beta": 0.0}, {"source": "guess"}])
def test_mistakes_are_refused(options: dict) -> None:
    with pytest.raises(UsageError, match="negatives"):
        ClusterNegatives(**options)
