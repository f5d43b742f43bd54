"""Quantizers against faiss and against the obvious way."""

from __future__ import annotations

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triever.docids.quantize import (
    Tree,
    admitted,
    agglomerated,
    balanced_kmeans,
    cluster_tree,
    density_peaks,
    kmeans,
    nearest,
    nearest_several,
    residual_codebooks,
    residual_codes,
)


def clustered(count: int, centres: int, seed: int = 0) -> torch.Tensor:
    """Vectors around some centres, as those of real documents are."""
    chance = np.random.default_rng(seed)
    means = chance.normal(size=(centres, 16)) * 2
    return torch.from_numpy(
        (means[chance.integers(0, centres, count)] + chance.normal(size=(count, 16))).astype("float32")
    )


def error(vectors: torch.Tensor, centroids: torch.Tensor) -> float:
    return float(nearest(vectors, centroids)[1].sum())


@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 5))
def test_nearest_is_the_obvious_nearest(count: int, k: int, seed: int) -> None:
    torch.manual_seed(seed)
    vectors, centroids = torch.randn(count, 3), torch.randn(k, 3)
    expected = torch.cdist(vectors, centroids).square().min(1)
    number, distance = nearest(vectors, centroids)
    torch.testing.assert_close(distance, expected.values, atol=1e-4, rtol=1e-4)
    assert torch.equal(number, expected.indices)


@pytest.mark.parametrize("k", [4, 32])
def test_kmeans_is_as_good_as_that_of_faiss(k: int) -> None:
    vectors = clustered(4000, 40)
    judge = faiss.Kmeans(16, k, niter=20, seed=1)
    judge.train(vectors.numpy())
    assert error(vectors, kmeans(vectors, k)) <= 1.05 * error(vectors, torch.from_numpy(judge.centroids))


def test_kmeans_is_the_same_each_time_and_survives_few_different_vectors() -> None:
    vectors = clustered(300, 5)
    assert torch.equal(kmeans(vectors, 6, seed=3), kmeans(vectors, 6, seed=3))
    same = torch.ones(20, 4)
    assert error(same, kmeans(same, 5)) == 0
    assert kmeans(torch.randn(3, 4), 5).shape == (5, 4)


def leaves(tree: Tree, vectors: torch.Tensor) -> dict[tuple[int, ...], int]:
    counts: dict[tuple[int, ...], int] = {}
    for vector in vectors:
        path = tree.paths(vector[None])[0]
        counts[path] = counts.get(path, 0) + 1
    return counts


def test_a_tree_has_leaves_of_at_most_the_size_asked_for() -> None:
    vectors = clustered(1500, 30)
    tree = cluster_tree(vectors, branch=5, leaf=20)
    assert tree is not None
    counts = leaves(tree, vectors)
    assert max(counts.values()) <= 20
    assert sum(counts.values()) == 1500
    assert max(max(path) for path in counts) < 5
    paths = set(counts)
    assert not any(path[:depth] in paths for path in paths for depth in range(1, len(path))), "a leaf inside a leaf"


def test_vectors_that_are_the_same_stay_together() -> None:
    assert cluster_tree(torch.ones(50, 4), branch=3, leaf=10) is not None
    assert cluster_tree(torch.ones(5, 4), branch=3, leaf=10) is None


def test_residual_codes_are_as_good_as_those_of_faiss() -> None:
    vectors = clustered(3000, 60)
    books = residual_codebooks(vectors, levels=3, size=16)
    codes = residual_codes(vectors, books)
    assert codes.shape == (3000, 3)
    rebuilt = sum(books[level][codes[:, level]] for level in range(3))
    judge = faiss.ResidualQuantizer(16, 3, 4)
    judge.max_beam_size = 1  # greedy, as ours
    judge.train(vectors.numpy())
    theirs = torch.from_numpy(judge.decode(judge.compute_codes(vectors.numpy())))
    assert float((vectors - rebuilt).square().sum()) <= 1.05 * float((vectors - theirs).square().sum())


def test_each_level_quantizes_what_is_left() -> None:
    vectors = clustered(400, 10)
    books = residual_codebooks(vectors, levels=2, size=8)
    codes = residual_codes(vectors, books)
    first = nearest(vectors, books[0])[0]
    second = nearest(vectors - books[0][first], books[1])[0]
    assert torch.equal(codes, torch.stack([first, second], 1))


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 5))
def test_balanced_clusters_have_their_share_at_most(count: int, k: int, seed: int) -> None:
    torch.manual_seed(seed)
    centroids, number = balanced_kmeans(torch.randn(count, 3), k, seed=seed)
    assert centroids.shape == (k, 3)
    assert int(torch.bincount(number, minlength=k).max()) <= -(-count // k)
    assert number.min() >= 0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=15),
    st.lists(st.integers(0, 5), min_size=4, max_size=4),
)
def test_the_nearest_get_the_places_that_a_cluster_has(asking: list, room: list) -> None:
    asked = torch.tensor([cluster for cluster, _ in asking], dtype=torch.long)
    distance = torch.tensor([float(far) for _, far in asking])
    found = admitted(asked, distance, torch.tensor(room))
    for cluster, places in enumerate(room):
        who = sorted((far, row) for row, (one, far) in enumerate(asking) if one == cluster)
        assert [row for _, row in who if found[row]] == [row for _, row in who[:places]]


def test_balanced_clusters_are_not_much_worse_than_others() -> None:
    vectors = clustered(2000, 20)
    centroids, number = balanced_kmeans(vectors, 20)
    own = float((vectors - centroids[number]).square().sum())
    assert own <= 1.3 * error(vectors, kmeans(vectors, 20))


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 5))
def test_clusters_are_united_as_the_obvious_way_unites_them(count: int, k: int, seed: int) -> None:
    torch.manual_seed(seed)
    centroids, sizes, k = torch.randn(count, 3), torch.randint(1, 5, (count,)), min(k, count)
    groups = [[one] for one in range(count)]

    def cost(some: list[int]) -> float:
        weight = sizes[some].float()[:, None]
        mean = (centroids[some] * weight).sum(0) / weight.sum()
        return float((weight * (centroids[some] - mean).square()).sum())

    while len(groups) > k:
        places = [(i, j) for i in range(len(groups)) for j in range(i)]
        i, j = min(places, key=lambda one: cost(groups[one[0]] + groups[one[1]]) - sum(cost(groups[at]) for at in one))
        groups[j] += groups.pop(i)
    found = agglomerated(centroids, sizes, k)
    assert sorted(sorted(group) for group in groups) == sorted(
        (found == one).nonzero()[:, 0].tolist() for one in range(k)
    )


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 5))
def test_dense_places_begin_clusters_and_all_others_follow(count: int, k: int, seed: int) -> None:
    torch.manual_seed(seed)
    centroids, k = torch.randn(count, 3), min(k, count)
    found = density_peaks(centroids, torch.ones(count), k)
    assert found.unique().tolist() == list(range(k))
    assert density_peaks(torch.zeros(count, 3), torch.ones(count), k).unique().tolist() == list(range(k))


def test_density_finds_what_is_dense() -> None:
    around = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    vectors = torch.cat([centre + 0.5 * torch.randn(30, 2, generator=torch.manual_seed(0)) for centre in around])
    found = density_peaks(vectors, torch.ones(90), 3)
    assert all(len(found[first : first + 30].unique()) == 1 for first in (0, 30, 60))


def test_the_nearest_few_are_in_order() -> None:
    vectors, centroids = torch.randn(7, 3), torch.randn(5, 3)
    number, distance = nearest_several(vectors, centroids, 3)
    every = torch.cdist(vectors, centroids)
    assert torch.equal(number, every.argsort(1)[:, :3])
    torch.testing.assert_close(distance, every.sort(1).values[:, :3])
    assert nearest_several(vectors, centroids, 9)[0].shape == (7, 5)
