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


def nearest_several(vectors: Tensor, centroids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The numbers of the k nearest centroids (n, k), nearest first, and the distances to them (n, k)."""
    rows, k = max(1, CHUNK // len(centroids)), min(k, len(centroids))
    found = [torch.cdist(part, centroids).topk(k, largest=False) for part in vectors.split(rows)]
    return torch.cat([one.indices for one in found]), torch.cat([one.values for one in found])


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


def balanced_kmeans(vectors: Tensor, k: int, *, seed: int = 0, rounds: int = 5) -> tuple[Tensor, Tensor]:
    """Centroids (k, d), and the number of each vector's (n,): none has more than a k-th of them, rounded up."""
    vectors = vectors.float()
    centroids = kmeans(vectors, k, seed=seed)
    number = _shared_out(vectors, centroids)
    for _ in range(rounds):
        centroids = _means(vectors, number, centroids)
        number = _shared_out(vectors, centroids)
    return centroids, number


def _shared_out(vectors: Tensor, centroids: Tensor) -> Tensor:
    """(n,) a centroid for each vector, none above its share: the nearest ask first, and who is refused asks elsewhere.

    Where some are refused a centroid is full, so this ends.
    """
    room = torch.full((len(centroids),), -(-len(vectors) // len(centroids)), device=vectors.device)
    number = torch.full((len(vectors),), -1, device=vectors.device)
    while len(left := (number < 0).nonzero()[:, 0]):
        free = (room > 0).nonzero()[:, 0]
        asked, distance = nearest(vectors[left], centroids[free])
        order = distance.argsort(stable=True)
        order = order[asked[order].argsort(stable=True)]  # centroid by centroid, the nearest first
        counts = torch.bincount(asked, minlength=len(free))
        rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[asked[order]]
        taken = order[rank < room[free][asked[order]]]
        number[left[taken]] = free[asked[taken]]
        room -= torch.bincount(free[asked[taken]], minlength=len(centroids))
    return number


def agglomerated(centroids: Tensor, sizes: Tensor, k: int) -> Tensor:
    """(m,) clusters 0 to k - 1 of centroids (m, d) of so many vectors each (m,).

    The two whose union adds the least to the squared distances from means (Ward's rule) become one, until k are left.
    """
    means, weight = centroids.float().clone(), sizes.float().clamp(min=1)
    owner = torch.arange(len(means), device=means.device)
    cost = torch.stack([_ward(means, weight, one) for one in range(len(means))])
    least, partner = cost.min(1)
    for _ in range(len(means) - k):
        one = int(least.argmin())
        other = int(partner[one])
        total = weight[one] + weight[other]
        means[one] = (means[one] * weight[one] + means[other] * weight[other]) / total
        weight[one] = total
        weight[other] = torch.inf  # so that nobody is near to it
        owner[owner == other] = one
        stale = (partner == one) | (partner == other)
        stale[other] = True
        cost[other] = cost[:, other] = torch.inf
        cost[one] = cost[:, one] = _ward(means, weight, one)
        least[stale], partner[stale] = cost[stale].min(1)
        nearer = cost[:, one] < least
        least, partner = torch.where(nearer, cost[:, one], least), torch.where(nearer, one, partner)
    return owner.unique(return_inverse=True)[1]


def density_peaks(centroids: Tensor, sizes: Tensor, k: int) -> Tensor:
    """(m,) clusters 0 to k - 1 of centroids (m, d) of so many vectors each (m,), by density (Rodriguez and Laio).

    The k that are dense and far from all that are denser begin clusters; the others follow their nearest denser one.
    """
    distance = torch.cdist(centroids.float(), centroids.float())
    others = distance + torch.diag(torch.full((len(distance),), torch.inf, device=distance.device))
    near = others.min(1).values.nan_to_num(posinf=1).mean().clamp(min=1e-12)  # how far apart neighbours are
    density = (sizes.float() * (-(distance / near).square()).exp()).sum(1)
    order = density.argsort(descending=True, stable=True)
    denser = torch.ones_like(distance, dtype=torch.bool).tril(-1)  # row by row, the densest first
    apart, leader = distance[order][:, order].masked_fill(~denser, torch.inf).min(1)
    cluster = [-1] * len(order)
    for number, one in enumerate((density[order] * apart).topk(k).indices.tolist()):  # the densest is among them
        cluster[one] = number
    for one, other in enumerate(leader.tolist()):
        cluster[one] = cluster[one] if cluster[one] >= 0 else cluster[other]
    return torch.empty_like(order).scatter_(0, order, torch.tensor(cluster, device=order.device))


def _ward(means: Tensor, weight: Tensor, one: int) -> Tensor:
    """(m,) what uniting one cluster with each of the others would add; those that are gone weigh infinitely much."""
    shared = weight * weight[one] / (weight + weight[one])
    cost = torch.where(weight.isinf(), torch.inf, shared * (means - means[one]).square().sum(1))
    cost[one] = torch.inf
    return cost


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

    def stored(self) -> list[Tensor]:
        """The centroids of this one and of all inside it."""
        return [self.centroids, *(one for child in self.children.values() for one in child.stored())]

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
