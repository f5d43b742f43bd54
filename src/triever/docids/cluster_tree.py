"""Hierarchical k-means: a tree of clusters, and the way of every vector down to its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from triever.docids.quantize import Device, kmeans, nearest, sampled
from triever.validation import INDICES, require, require_array


@dataclass
class Tree:
    """Clusters inside clusters: the centroids of this one's children, and the children that go on."""

    centroids: Tensor  # (branch, d)
    children: dict[int, Tree]

    def paths(self, vectors: Tensor, rows: Tensor | None = None) -> list[tuple[int, ...]]:
        """For each vector (n, d), or each of some rows, the numbers of the nearest clusters on the way down."""
        if not len(vectors if rows is None else rows):
            return []
        number = nearest(vectors, self.centroids, rows)[0]
        found: list[tuple[int, ...]] = [(one,) for one in number.tolist()]
        for child, tree in self.children.items():
            inside = (number == child).nonzero()[:, 0]
            below = tree.paths(vectors, inside if rows is None else rows[inside])
            for row, rest in zip(inside.tolist(), below, strict=True):
                found[row] += rest
        return found

    def cpu(self) -> Tree:
        """The same tree in the memory of the processor."""
        return Tree(self.centroids.cpu(), {number: child.cpu() for number, child in self.children.items()})

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
        """The tree that `arrays` wrote; a ValueError if they are none."""
        clusters, branch, _ = centroids.shape
        require_array(inside, "docid_children", INDICES, (clusters, branch))
        listed = inside[inside >= 0]
        # Every cluster but the first lies inside one that comes before it, in the order of both: there is no circle.
        behind = (inside < 0) | (inside > np.arange(clusters)[:, None])
        whole = clusters > 0 and behind.all() and np.array_equal(listed, np.arange(1, clusters))
        require(whole, "the clusters are no tree")
        trees = [cls(torch.tensor(one), {}) for one in centroids]
        for tree, row in zip(trees, inside, strict=True):
            tree.children = {number: trees[at] for number, at in enumerate(row.tolist()) if at >= 0}
        return trees[0]


def cluster_tree(vectors: Tensor, branch: int, leaf: int, *, seed: int = 0, device: Device = None) -> Tree | None:
    """Hierarchical k-means: clusters of more than `leaf` vectors are clustered again. None if none is needed."""
    return _tree(vectors, None, branch, leaf, seed, device) if len(vectors) > leaf else None


def _tree(vectors: Tensor, rows: Tensor | None, branch: int, leaf: int, seed: int, device: Device) -> Tree:
    """The tree of all vectors, or of some rows."""
    count = len(vectors if rows is None else rows)
    some = sampled(vectors, branch, seed=seed, device=device, rows=rows)
    if len(some) == count:
        vectors, rows = some, None
    centroids = kmeans(some, branch, seed=seed)
    number, _ = nearest(vectors, centroids, rows)
    children = {}
    for one in range(branch):
        inside = (number == one).nonzero()[:, 0]
        # Vectors that are all the same can be clustered for ever: they stay together.
        if leaf < len(inside) < count:
            below = inside if rows is None else rows[inside]
            children[one] = _tree(vectors, below, branch, leaf, seed + 1, device)
    return Tree(centroids, children)
