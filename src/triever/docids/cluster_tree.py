"""Hierarchical k-means: a tree of clusters, and for each vector the path to its cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from triever.docids.quantize import Device, kmeans, nearest, sampled
from triever.validation import INDICES, require, require_array


@dataclass
class Tree:
    """Clusters inside clusters: the centroids of the children, and those children that are divided again."""

    centroids: Tensor  # (branch, d)
    children: dict[int, Tree]

    def paths(self, vectors: Tensor, rows: Tensor | None = None) -> list[tuple[int, ...]]:
        """For each vector (n, d), or for each of `rows`, the numbers of the nearest clusters from the root down."""
        if not len(vectors if rows is None else rows):
            return []
        number = nearest(vectors, self.centroids, rows)[0]
        paths: list[tuple[int, ...]] = [(cluster,) for cluster in number.tolist()]
        for child, tree in self.children.items():
            inside = (number == child).nonzero()[:, 0]
            below = tree.paths(vectors, inside if rows is None else rows[inside])
            for row, rest in zip(inside.tolist(), below, strict=True):
                paths[row] += rest
        return paths

    def cpu(self) -> Tree:
        """The same tree in the memory of the processor."""
        return Tree(self.centroids.cpu(), {number: child.cpu() for number, child in self.children.items()})

    def stored(self) -> list[Tensor]:
        """The centroids of this tree and of all trees inside it."""
        return [self.centroids, *(centroids for child in self.children.values() for centroids in child.stored())]

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Centroids (clusters, branch, d), and the number of each child that is divided (clusters, branch), else -1."""
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
        """The tree from the result of `arrays`; a ValueError if the arrays are no tree."""
        clusters, branch, _ = centroids.shape
        require_array(inside, "docid_children", INDICES, (clusters, branch))
        listed = inside[inside >= 0]
        # Every cluster but the first lies inside an earlier one, in order: there is no circle.
        behind = (inside < 0) | (inside > np.arange(clusters)[:, None])
        whole = clusters > 0 and behind.all() and np.array_equal(listed, np.arange(1, clusters))
        require(whole, "the clusters are no tree")
        trees = [cls(torch.tensor(cluster_centroids), {}) for cluster_centroids in centroids]
        for tree, row in zip(trees, inside, strict=True):
            tree.children = {number: trees[at] for number, at in enumerate(row.tolist()) if at >= 0}
        return trees[0]


def cluster_tree(vectors: Tensor, branch: int, leaf: int, *, seed: int = 0, device: Device = None) -> Tree | None:
    """Hierarchical k-means: clusters of more than `leaf` vectors are divided again. None without any such cluster."""
    return _tree(vectors, None, branch, leaf, seed, device) if len(vectors) > leaf else None


def _tree(vectors: Tensor, rows: Tensor | None, branch: int, leaf: int, seed: int, device: Device) -> Tree:
    """The tree of all vectors, or of those of `rows`."""
    count = len(vectors if rows is None else rows)
    sample = sampled(vectors, branch, seed=seed, device=device, rows=rows)
    if len(sample) == count:
        vectors, rows = sample, None
    centroids = kmeans(sample, branch, seed=seed)
    clusters, _ = nearest(vectors, centroids, rows)
    children = {}
    for cluster in range(branch):
        inside = (clusters == cluster).nonzero()[:, 0]
        # Equal vectors cannot be divided: they stay together.
        if leaf < len(inside) < count:
            below = inside if rows is None else rows[inside]
            children[cluster] = _tree(vectors, below, branch, leaf, seed + 1, device)
    return Tree(centroids, children)
