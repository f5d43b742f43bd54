"""Larger clusters from small ones: clusters of k-means are merged until k are left.

These are functions of centroids and of the number of vectors of each, on their device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from triever.docids.quantize import CHUNK


def agglomerated(centroids: Tensor, sizes: Tensor, k: int) -> Tensor:
    """(m,) clusters 0 to k - 1 of centroids (m, d) with `sizes` vectors each (m,).

    The two whose union adds the least to the squared distances from means (Ward's rule) are merged, until k are left.
    """
    weight = sizes.float().clamp(min=1)
    owner = torch.arange(len(centroids), device=centroids.device)
    cost = _union_costs(centroids.float(), weight)
    lowest, partner = cost.min(1)
    for _ in range(len(centroids) - k):
        smallest = lowest.argmin()
        first, second = sorted((int(smallest), int(partner[smallest])))
        united = _united_costs(cost, weight, first, second)
        weight[first] += weight[second]
        owner[owner == second] = first
        stale = (partner == first) | (partner == second)
        stale[second] = True
        cost[second] = cost[:, second] = torch.inf
        cost[first] = cost[:, first] = united
        lowest[stale], partner[stale] = cost[stale].min(1)
        nearer = united < lowest
        lowest, partner = torch.where(nearer, united, lowest), torch.where(nearer, first, partner)
    return owner.unique(return_inverse=True)[1]


def _union_costs(centroids: Tensor, weight: Tensor) -> Tensor:
    """(m, m) the cost of merging each pair of clusters."""
    cost = torch.empty(len(centroids), len(centroids), device=centroids.device)
    for rows in _row_blocks(centroids):
        shared = weight[rows, None] * weight / (weight[rows, None] + weight)
        cost[rows] = shared * torch.cdist(centroids[rows], centroids).square()
    return cost.fill_diagonal_(torch.inf)


def _united_costs(cost: Tensor, weight: Tensor, first: int, second: int) -> Tensor:
    """(m,) the cost of merging the union of two clusters with each other cluster, by the formula of Lance and Williams.

    It is infinite for the two themselves, and for clusters that are gone.
    """
    either = (weight[first] + weight) * cost[first] + (weight[second] + weight) * cost[second]
    return (either - weight * cost[first, second]) / (weight[first] + weight[second] + weight)


def density_peaks(centroids: Tensor, sizes: Tensor, k: int) -> Tensor:
    """(m,) clusters 0 to k - 1 of centroids (m, d) with `sizes` vectors each (m,), by density (Rodriguez and Laio).

    The k centroids that are dense and far from all denser ones begin clusters; each other one joins the cluster of its
    nearest denser centroid.
    """
    centroids = centroids.float()
    density = _density(centroids, sizes.float())
    order = density.argsort(descending=True, stable=True)
    apart, leader = _nearest_before(centroids[order])
    cluster = [-1] * len(order)
    for number, centroid in enumerate((density[order] * apart).topk(k).indices.tolist()):  # the densest is among them
        cluster[centroid] = number
    for centroid, denser in enumerate(leader.tolist()):
        cluster[centroid] = cluster[centroid] if cluster[centroid] >= 0 else cluster[denser]
    return torch.empty_like(order).scatter_(0, order, torch.tensor(cluster, device=order.device))


def _density(centroids: Tensor, sizes: Tensor) -> Tensor:
    """(m,) the number of vectors around each centroid, weighted by distance relative to the mean nearest distance."""
    closest = []
    for rows in _row_blocks(centroids):
        apart = torch.cdist(centroids[rows], centroids)
        apart[torch.arange(len(rows), device=rows.device), rows] = torch.inf
        closest.append(apart.min(1).values)
    near = torch.cat(closest).nan_to_num(posinf=1).mean().clamp(min=1e-12)  # how far apart neighbours are
    parts = (torch.cdist(centroids[rows], centroids) for rows in _row_blocks(centroids))
    return torch.cat([(sizes * (-(apart / near).square()).exp()).sum(1) for apart in parts])


def _nearest_before(centroids: Tensor) -> tuple[Tensor, Tensor]:
    """(m,) the distance of each centroid to the nearest one before it, infinite for the first; and (m,) its number."""
    closest, positions = [], torch.arange(len(centroids), device=centroids.device)
    for rows in _row_blocks(centroids):
        apart = torch.cdist(centroids[rows], centroids).masked_fill_(positions >= rows[:, None], torch.inf)
        closest.append(apart.min(1))
    return torch.cat([block.values for block in closest]), torch.cat([block.indices for block in closest])


def _row_blocks(centroids: Tensor) -> tuple[Tensor, ...]:
    """The numbers of all rows of a distance matrix, in blocks that can be held at once."""
    count = len(centroids)
    return torch.arange(count, device=centroids.device).split(max(1, CHUNK // max(1, count)))
