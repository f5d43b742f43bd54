"""Quantizers against faiss and against the obvious way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.marks import quick
from triever.docids import quantize, unite
from triever.docids.cluster_tree import Tree, cluster_tree
from triever.docids.quantize import (
    admitted,
    balanced_kmeans,
    kmeans,
    nearest,
    nearest_several,
    residual_codebooks,
    residual_codes,
    sampled,
)
from triever.docids.unite import agglomerated, density_peaks
from triever.index.top import shared


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
    faiss = pytest.importorskip("faiss")
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


@pytest.mark.long
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
    faiss = pytest.importorskip("faiss")
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


def noisy(count: int = 1000, size: int = 128) -> torch.Tensor:
    """Unit vectors of which two levels of codes leave little but noise, as those of real documents do."""
    chance = torch.Generator().manual_seed(0)
    centres = torch.randn(30, size, generator=chance)[torch.randint(30, (count,), generator=chance)]
    noise = torch.randn(count, size, generator=chance) * torch.linspace(0.2, 1.5, count)[:, None]
    return torch.nn.functional.normalize(centres + noise, dim=1)


def commonest(codes: torch.Tensor) -> list[float]:
    """The share of the commonest code at each level."""
    return [float(torch.bincount(level).max()) / len(level) for level in codes.T]


def test_balanced_codebooks_use_their_codes_where_plain_ones_collapse() -> None:
    vectors = noisy()
    codes = {}
    for balanced in (False, True):
        books = residual_codebooks(vectors, 4, 64, balanced=balanced)
        codes[balanced] = residual_codes(vectors, books)
    assert max(commonest(codes[False])) > 0.5
    assert max(commonest(codes[True])) < 0.15
    different = {balanced: len(set(map(tuple, rows.tolist()))) for balanced, rows in codes.items()}
    assert different[False] < 900 < 950 < different[True]


@pytest.mark.parametrize("seed", [0, 3])
def test_balanced_codebooks_are_those_of_the_obvious_way(seed: int) -> None:
    vectors = clustered(300, 10)
    books = residual_codebooks(vectors, 3, 8, seed=seed, balanced=True)
    rest = vectors.clone()
    for level, book in enumerate(books):
        assert torch.equal(book, balanced_kmeans(rest, 8, seed=seed + level)[0])
        for row, vector in enumerate(rest):
            squared = [float((vector - one).square().sum()) for one in book]
            rest[row] = vector - book[squared.index(min(squared))]
    codes = residual_codes(vectors, books)
    rebuilt = torch.stack([books[level][codes[:, level]] for level in range(3)]).sum(0)
    torch.testing.assert_close(vectors - rebuilt, rest, atol=1e-5, rtol=1e-5)


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


def separated(count: int, centres: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors in heaps that no two ways to cluster can see differently, and the heap of each."""
    chance = torch.Generator().manual_seed(seed)
    heap = torch.randint(centres, (count,), generator=chance)
    return 100 * torch.randn(centres, 8, generator=chance)[heap] + torch.randn(count, 8, generator=chance), heap


def same_groups(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the same are together, whatever the numbers of their groups are."""
    return torch.equal(one[:, None] == one, other[:, None] == other)


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are drawn, blocks are small and centroids are placed together, as with very many vectors."""
    for name, value in {"ENOUGH": 50, "PER_CENTROID": 20, "AT_ONCE": 4, "CHUNK": 200, "BLOCK": 300}.items():
        monkeypatch.setattr(quantize, name, value)
    monkeypatch.setattr(unite, "CHUNK", 200)


@pytest.mark.usefixtures("few_are_many")
def test_a_sample_is_a_part_of_all_vectors_and_the_same_each_time() -> None:
    vectors = torch.arange(1000.0)[:, None]
    found = sampled(vectors, 10, seed=3)[:, 0]
    assert len(found) == len(found.unique()) == 200
    assert torch.equal(found, found.sort().values), "in the order in which a file is read"
    assert torch.equal(found, sampled(vectors, 10, seed=3)[:, 0])
    assert not torch.equal(found, sampled(vectors, 10, seed=4)[:, 0])
    assert len(sampled(vectors, 1)) == 50
    assert sampled(vectors[:200], 10).data_ptr() == vectors.data_ptr(), "all of few vectors are not copied"
    rows = torch.arange(500, 600)
    assert set(sampled(vectors, 1, rows=rows)[:, 0].tolist()) <= set(range(500, 600))
    assert torch.equal(sampled(vectors, 10, rows=rows), vectors[500:600])


@pytest.mark.usefixtures("few_are_many")
def test_a_tree_from_samples_has_leaves_of_at_most_the_size_asked_for() -> None:
    vectors = clustered(2000, 30)
    tree = cluster_tree(vectors, branch=3, leaf=100)
    assert tree is not None
    paths = Counter(tree.paths(vectors))
    assert max(paths.values()) <= 100
    assert max(map(len, paths)) > 3, "samples are drawn on the way down, too"


@pytest.mark.parametrize("centres", [3, 9])
def test_clusters_that_are_apart_are_found_from_a_sample(centres: int, few_are_many: None) -> None:
    vectors, heap = separated(2000, centres)
    assert len(sampled(vectors, centres)) < 200
    assert same_groups(nearest(vectors, kmeans(vectors, centres))[0], heap)
    for balanced in (False, True):
        book = residual_codebooks(vectors, 1, centres, balanced=balanced)
        assert same_groups(residual_codes(vectors, book)[:, 0], heap)
    tree = cluster_tree(vectors, centres, leaf=1500)
    assert tree is not None
    assert same_groups(torch.tensor(tree.paths(vectors))[:, 0], heap)


def test_balanced_clusters_from_a_sample_have_their_share_of_all(few_are_many: None) -> None:
    heap = torch.arange(1200) % 6
    vectors = 100 * torch.eye(6)[heap] + torch.randn(1200, 6, generator=torch.Generator().manual_seed(0))
    assert same_groups(balanced_kmeans(vectors, 6)[1], heap)
    lopsided = balanced_kmeans(clustered(1201, 3), 8)[1]
    assert int(torch.bincount(lopsided, minlength=8).max()) == 151


@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 5), st.sampled_from([torch.float16, torch.float64]))
def test_blocks_give_what_all_at_once_would(count: int, k: int, seed: int, dtype: torch.dtype) -> None:
    torch.manual_seed(seed)
    vectors, centroids = torch.randn(count, 3).to(dtype), torch.randn(k, 3)
    some = torch.randperm(count)[: count // 2]
    every = torch.cdist(vectors.float(), centroids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantize, "CHUNK", 20)
        patch.setattr(quantize, "BLOCK", 11)  # three vectors
        assert torch.equal(nearest(vectors, centroids)[0], every.argmin(1))
        assert torch.equal(nearest(vectors, centroids, some)[0], every[some].argmin(1))
        assert torch.equal(nearest_several(vectors, centroids, 1)[0][:, 0], every.argmin(1))
        assert torch.equal(residual_codes(vectors, centroids[None])[:, 0], every.argmin(1))
        torch.testing.assert_close(quantize.mean(vectors), vectors.float().mean(0))


@given(st.integers(2, 60), st.integers(2, 12), st.integers(0, 20))
def test_who_follows_what_moved_finds_the_nearest_again(count: int, k: int, seed: int) -> None:
    torch.manual_seed(seed)
    vectors, centroids = torch.randn(count, 3), torch.randn(k, 3)
    before, moved = nearest(vectors, centroids), torch.rand(k) < 0.4
    moved[0] = True
    centroids[moved] += torch.randn(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantize, "AT_ONCE", 0)
        number, distance = quantize._nearest_again(vectors, centroids, moved, before)
    expected = nearest(vectors, centroids)
    assert torch.equal(number, expected[0])
    torch.testing.assert_close(distance, expected[1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_few_centroids_begin_one_by_one_as_they_always_did(seed: int) -> None:
    vectors, chance = clustered(1500, 30), torch.Generator().manual_seed(seed)
    chosen = [int(torch.randint(1500, (1,), generator=chance))]
    while len(chosen) < 40:
        squared = torch.stack([(vectors - vectors[one]).square().sum(1) for one in chosen]).min(0).values
        at = torch.rand((), generator=chance, dtype=torch.float64) * squared.double().sum()
        chosen.append(int((squared.double().cumsum(0) < at).sum()))
    assert torch.equal(quantize._spread_out(vectors, 40, seed), vectors[chosen])


@pytest.mark.parametrize("seed", range(3))
def test_many_centroids_are_those_of_the_obvious_algorithm(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantize, "AT_ONCE", 5)
    vectors = clustered(1500, 30)
    expected = quantize._spread_out(vectors, 40, seed)
    for _ in range(20):
        number = torch.cdist(vectors, expected).argmin(1)
        expected = torch.stack([vectors[number == one].mean(0) for one in range(40)])
    torch.testing.assert_close(kmeans(vectors, 40, seed=seed), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("times", quick(600, of=[600, 3000]))
def test_centroids_that_are_placed_together_are_as_far_apart_as_one_by_one(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against all orders in which four of six could be chosen, each by its squared distance from those before."""
    places = [0.0, 1.0, 1.5, 4.0, 7.0, 7.25]
    expected: Counter[frozenset[float]] = Counter()
    for order in permutations(places, 4):
        chance = 1 / 6
        for at in range(1, 4):
            squared = {place: min((place - one) ** 2 for one in order[:at]) for place in places}
            chance *= squared[order[at]] / sum(squared.values())
        expected[frozenset(order)] += chance
    assert sum(expected.values()) == pytest.approx(1)
    monkeypatch.setattr(quantize, "AT_ONCE", 2)
    vectors = torch.tensor(places)[:, None]
    found = Counter(frozenset(quantize._spread_out(vectors, 4, seed)[:, 0].tolist()) for seed in range(times))
    for some, chance in expected.items():
        assert found[some] / times == pytest.approx(chance, abs=4 * (chance / times) ** 0.5)


@pytest.mark.parametrize(("count", "different"), [(1, 1), (30, 30), (500, 500), (700, 4), (900, 1)])
def test_more_centroids_than_vectors_that_differ(count: int, different: int) -> None:
    vectors = torch.randn(different, 4, generator=torch.Generator().manual_seed(0))[torch.arange(count) % different]
    centroids = kmeans(vectors, 600)
    assert centroids.shape == (600, 4)
    assert error(vectors, centroids) < 1e-3


@pytest.mark.parametrize("united", [agglomerated, density_peaks])
def test_distances_between_clusters_are_looked_at_block_by_block(
    united: Callable[..., torch.Tensor], few_are_many: None
) -> None:
    vectors, heap = separated(60, 7)
    assert same_groups(united(vectors, torch.ones(60), 7), heap)
    centroids = clustered(90, 10)
    found = united(centroids, torch.ones(90), 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unite, "CHUNK", 2**24)
        assert torch.equal(united(centroids, torch.ones(90), 12), found)


@pytest.mark.parametrize("dtype", quick("float16", of=["float32", "float16"]))
def test_vectors_may_be_mapped_from_a_file(dtype: str, tmp_path: Path, few_are_many: None) -> None:
    np.save(tmp_path / "v.npy", clustered(1000, 12).numpy().astype(dtype))
    mapped = shared(np.load(tmp_path / "v.npy", mmap_mode="r"))
    held = mapped.clone()

    def made(vectors: torch.Tensor) -> list[torch.Tensor]:
        tree = cluster_tree(vectors, 4, leaf=10, seed=1)
        assert tree is not None
        books = torch.cat([residual_codebooks(vectors, 2, 8, seed=1, balanced=each) for each in (False, True)])
        paths = torch.tensor([(*path, *[0] * 20)[:20] for path in tree.paths(vectors)])
        return [kmeans(vectors, 9), *balanced_kmeans(vectors, 9), books, residual_codes(vectors, books), paths]

    assert all(torch.equal(one, other) for one, other in zip(made(mapped), made(held), strict=True))
    assert torch.equal(mapped, held), "nothing was written to it"
