"""Vectors to numbers: k-means, flat, hierarchical and residual, on whichever device the vectors are on.

Short functions of tensors. The same seed gives the same result on the same device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

CHUNK = 2**24
"""So many distances are held at once."""


def nearest(vectors: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """The number of the nearest centroid (n,) and the squared distance to it (n,)."""
    lengths = centroids.square().sum(1)
    rows = max(1, CHUNK // len(centroids))
    found = [(lengths - 2 * part @ centroids.T).min(1) for part in vectors.split(rows)]
    distance = torch.cat([one.values for one in found]) + vectors.square().sum(1)
    return torch.cat([one.indices for one in found]), distance.clamp(min=0)


def nearest_few(vector: Tensor, vectors: Tensor, k: int) -> Tensor:
    """The numbers of the k vectors nearest to one (d,), nearest first; all where there are fewer."""
    distance = torch.cdist(vector[None], vectors, compute_mode="donot_use_mm_for_euclid_dist")[0]
    return distance.topk(min(k, len(vectors)), largest=False).indices


def kmeans(vectors: Tensor, k: int, *, seed: int = 0, rounds: int = 20) -> Tensor:
    """Centroids (k, d) of Lloyd's algorithm; where fewer than k vectors differ, some are the same.

    Starts far apart (k-means++), and a cluster that loses all its vectors takes the one farthest from its own.
    """
    vectors = vectors.float()
    centroids = _spread_out(vectors, k, seed)
    for _ in range(rounds):
        number, distance = nearest(vectors, centroids)
        moved = _means(vectors, number, centroids)
        empty = (torch.bincount(number, minlength=k) == 0).nonzero()[:, 0]
        if len(empty):
            far = distance.argsort(descending=True)[: len(empty)]
            moved[empty[: len(far)]] = vectors[far]
        if torch.equal(moved, centroids):
            break
        centroids = moved
    return centroids


def kmeans_within(vectors: Tensor, lengths: Tensor, start: Tensor, *, rounds: int = 300) -> tuple[Tensor, Tensor]:
    """Lloyd's algorithm inside each of many groups at once: centroids (groups, k, d), and each vector's number (n,).

    Vectors of a group lie together, lengths (groups,) of them, none of which is 0. It begins with centroids (groups, k,
    d), see `spread_within`, and goes on until no vector moves: what it gives, given as `start`, comes back as it is.
    NaN is a centroid that nobody is near.
    """
    vectors, centroids = vectors.float(), start.float()
    owner = _owner(lengths)
    number = _nearest_within(vectors, owner, centroids)
    for _ in range(rounds):
        centroids = _means_within(vectors, owner, number, centroids)
        before, number = number, _nearest_within(vectors, owner, centroids)
        if torch.equal(number, before):
            break
    return centroids, number


def spread_within(vectors: Tensor, lengths: Tensor, chance: Tensor) -> Tensor:
    """(groups, k, d) vectors of each group, each chosen with a chance that grows with its distance from those before.

    chance (k, n) are numbers between 0 and 1. The largest of log-weights with Gumbel noise is a choice by weight: so
    all groups choose at once.
    """
    vectors, owner = vectors.float(), _owner(lengths)
    distance = torch.full((len(vectors),), torch.inf, device=vectors.device)
    chosen: list[Tensor] = []
    for noise in -chance.log().neg().log():
        weight = distance.log() if chosen else torch.zeros_like(distance)
        chosen.append(vectors[_largest_within(weight + noise, owner, len(lengths))])
        distance = torch.minimum(distance, (vectors - chosen[-1][owner]).square().sum(1))
    return torch.stack(chosen, 1)


def _owner(lengths: Tensor) -> Tensor:
    """(n,) the group of each vector."""
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)


def _nearest_within(vectors: Tensor, owner: Tensor, centroids: Tensor) -> Tensor:
    """(n,) the nearest centroid of each vector's own group; NaN is farther than all."""
    distances = [(vectors - centroids[owner, at]).square().sum(1) for at in range(centroids.shape[1])]
    return torch.stack(distances, 1).nan_to_num(torch.inf).argmin(1)


def _means_within(vectors: Tensor, owner: Tensor, number: Tensor, centroids: Tensor) -> Tensor:
    groups, k, size = centroids.shape
    cluster = owner * k + number
    order = cluster.argsort(stable=True)
    count = torch.bincount(cluster, minlength=groups * k)
    # Segments of sorted vectors and not scattered additions, whose order, and so whose rounding, is chance on a GPU.
    total = torch.segment_reduce(vectors[order], "sum", lengths=count)  # ty: ignore[missing-attribute]
    return (total / count[:, None]).view(groups, k, size)  # 0 / 0 where nobody is


def _largest_within(values: Tensor, owner: Tensor, groups: int) -> Tensor:
    """(groups,) where each group's largest value is, the first of equal ones."""
    most = torch.full((groups,), -torch.inf, device=values.device).scatter_reduce(0, owner, values, "amax")
    place = torch.arange(len(values), device=values.device)
    hit = torch.where(values == most[owner], place, len(values))
    return torch.full((groups,), len(values), device=values.device).scatter_reduce(0, owner, hit, "amin")


def _means(vectors: Tensor, number: Tensor, old: Tensor) -> Tensor:
    count = torch.bincount(number, minlength=len(old))
    total = torch.zeros_like(old).index_add_(0, number, vectors)
    return torch.where(count[:, None] > 0, total / count.clamp(min=1)[:, None], old)


def _spread_out(vectors: Tensor, k: int, seed: int) -> Tensor:
    """k of the vectors, each chosen with a chance that grows with its distance from those before."""
    chance = torch.Generator().manual_seed(seed)
    chosen = [int(torch.randint(len(vectors), (1,), generator=chance))]
    distance = (vectors - vectors[chosen[0]]).square().sum(1)
    for _ in range(k - 1):
        total = distance.double().cumsum(0)
        at = torch.rand((), generator=chance, dtype=torch.float64).to(total.device) * total[-1]
        chosen.append(min(int(torch.searchsorted(total, at)), len(vectors) - 1))
        distance = torch.minimum(distance, (vectors - vectors[chosen[-1]]).square().sum(1))
    return vectors[chosen].clone()


@dataclass
class Tree:
    """Clusters inside clusters: the centroids of this one's children, and the children that go on."""

    centroids: Tensor  # (branch, d)
    children: dict[int, Tree]

    def paths(self, vectors: Tensor) -> list[tuple[int, ...]]:
        """For each vector (n, d) the numbers of the nearest clusters on the way down."""
        if not len(vectors):
            return []
        number = nearest(vectors.float(), self.centroids)[0]
        found: list[tuple[int, ...]] = [(one,) for one in number.tolist()]
        for child, tree in self.children.items():
            inside = (number == child).nonzero()[:, 0]
            for row, rest in zip(inside.tolist(), tree.paths(vectors[inside]), strict=True):
                found[row] += rest
        return found

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Centroids (clusters, branch, d), and which cluster is inside each child (clusters, branch), -1 for none."""
        trees: list[Tree] = [self]
        inside: list[np.ndarray] = []
        for tree in trees:  # grows while it is read
            row = np.full(len(self.centroids), -1)
            for number, child in tree.children.items():
                row[number] = len(trees)
                trees.append(child)
            inside.append(row)
        return np.stack([tree.centroids.cpu().numpy() for tree in trees]), np.stack(inside)

    @classmethod
    def of_arrays(cls, centroids: np.ndarray, inside: np.ndarray) -> Tree:
        """The tree that `arrays` wrote."""
        trees = [cls(torch.tensor(one), {}) for one in centroids]
        for tree, row in zip(trees, inside, strict=True):
            tree.children = {number: trees[at] for number, at in enumerate(row.tolist()) if at >= 0}
        return trees[0]


def cluster_tree(vectors: Tensor, branch: int, leaf: int, *, seed: int = 0, sample: int = 100_000) -> Tree | None:
    """Hierarchical k-means: clusters of more than `leaf` vectors are clustered again. None if none is needed.

    Centroids come from a sample where there are more than ten times as many vectors.
    """
    if len(vectors) <= leaf:
        return None
    return _tree(vectors.float(), branch, leaf, seed, sample)


def _tree(vectors: Tensor, branch: int, leaf: int, seed: int, sample: int) -> Tree:
    centroids = kmeans(_sampled(vectors, sample, seed), branch, seed=seed)
    number, _ = nearest(vectors, centroids)
    children = {}
    for one in range(branch):
        inside = vectors[number == one]
        # Vectors that are all the same can be clustered for ever: they stay together.
        if len(inside) > leaf and len(inside) < len(vectors):
            children[one] = _tree(inside, branch, leaf, seed + 1, sample)
    return Tree(centroids, children)


def _sampled(vectors: Tensor, sample: int, seed: int) -> Tensor:
    if len(vectors) <= 10 * sample:
        return vectors
    chosen = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(seed))[:sample]
    return vectors[chosen.to(vectors.device)]


def residual_codebooks(vectors: Tensor, levels: int, size: int, *, seed: int = 0) -> Tensor:
    """Codebooks (levels, size, d): each quantizes what the ones before have left."""
    rest = vectors.float()
    books = []
    for level in range(levels):
        book = kmeans(rest, size, seed=seed + level)
        rest = rest - book[nearest(rest, book)[0]]
        books.append(book)
    return torch.stack(books)


def residual_codes(vectors: Tensor, codebooks: Tensor) -> Tensor:
    """The code of each vector: (n, levels) numbers."""
    rest, codes = vectors.float(), []
    for book in codebooks:
        number, _ = nearest(rest, book)
        rest = rest - book[number]
        codes.append(number)
    return torch.stack(codes, 1)
