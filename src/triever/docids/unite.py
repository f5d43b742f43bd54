"""Larger clusters out of small ones: what k-means found is united until as many are left as are wanted.

Functions of centroids and of how many vectors each has, on whichever device they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from triever.docids.quantize import CHUNK


def agglomerated(centroids: Tensor, sizes: Tensor, k: int) -> Tensor:
    """(m,) clusters 0 to k - 1 of centroids (m, d) of so many vectors each (m,).

    The two whose union adds the least to the squared distances from means (Ward's rule) become one, until k are left.
    """
    weight = sizes.float().clamp(min=1)
    owner = torch.arange(len(centroids), device=centroids.device)
    cost = _union_costs(centroids.float(), weight)
    least, partner = cost.min(1)
    for _ in range(len(centroids) - k):
        first = least.argmin()
        one, other = sorted((int(first), int(partner[first])))
        united = _united_costs(cost, weight, one, other)
        weight[one] += weight[other]
        owner[owner == other] = one
        stale = (partner == one) | (partner == other)
        stale[other] = True
        cost[other] = cost[:, other] = torch.inf
        cost[one] = cost[:, one] = united
        least[stale], partner[stale] = cost[stale].min(1)
        nearer = united < least
        least, partner = torch.where(nearer, united, least), torch.where(nearer, one, partner)
    return owner.unique(return_inverse=True)[1]


def _union_costs(centroids: Tensor, weight: Tensor) -> Tensor:
    """(m, m) what uniting each cluster with each other one would add."""
    cost = torch.empty(len(centroids), len(centroids), device=centroids.device)
    for rows in _row_blocks(centroids):
        shared = weight[rows, None] * weight / (weight[rows, None] + weight)
        cost[rows] = shared * torch.cdist(centroids[rows], centroids).square()
    return cost.fill_diagonal_(torch.inf)


def _united_costs(cost: Tensor, weight: Tensor, one: int, other: int) -> Tensor:
    """(m,) what uniting the union of two clusters with each other one would add: from what either would (Lance and
    Williams), infinitely much for themselves and for those that are gone."""
    either = (weight[one] + weight) * cost[one] + (weight[other] + weight) * cost[other]
    return (either - weight * cost[one, other]) / (weight[one] + weight[other] + weight)


def density_peaks(centroids: Tensor, sizes: Tensor, k: int) -> Tensor:
    """(m,) clusters 0 to k - 1 of centroids (m, d) of so many vectors each (m,), by density (Rodriguez and Laio).

    The k that are dense and far from all that are denser begin clusters; the others follow their nearest denser one.
    """
    centroids = centroids.float()
    density = _density(centroids, sizes.float())
    order = density.argsort(descending=True, stable=True)
    apart, leader = _nearest_before(centroids[order])
    cluster = [-1] * len(order)
    for number, one in enumerate((density[order] * apart).topk(k).indices.tolist()):  # the densest is among them
        cluster[one] = number
    for one, other in enumerate(leader.tolist()):
        cluster[one] = cluster[one] if cluster[one] >= 0 else cluster[other]
    return torch.empty_like(order).scatter_(0, order, torch.tensor(cluster, device=order.device))


def _density(centroids: Tensor, sizes: Tensor) -> Tensor:
    """(m,) how many vectors are around each centroid, counted by how near they are as neighbours go."""
    closest = []
    for rows in _row_blocks(centroids):
        apart = torch.cdist(centroids[rows], centroids)
        apart[torch.arange(len(rows), device=rows.device), rows] = torch.inf
        closest.append(apart.min(1).values)
    near = torch.cat(closest).nan_to_num(posinf=1).mean().clamp(min=1e-12)  # how far apart neighbours are
    parts = (torch.cdist(centroids[rows], centroids) for rows in _row_blocks(centroids))
    return torch.cat([(sizes * (-(apart / near).square()).exp()).sum(1) for apart in parts])


def _nearest_before(centroids: Tensor) -> tuple[Tensor, Tensor]:
    """(m,) how far each is from the nearest of those before it, and which that is; infinitely for the first."""
    found, places = [], torch.arange(len(centroids), device=centroids.device)
    for rows in _row_blocks(centroids):
        apart = torch.cdist(centroids[rows], centroids).masked_fill_(places >= rows[:, None], torch.inf)
        found.append(apart.min(1))
    return torch.cat([one.values for one in found]), torch.cat([one.indices for one in found])


def _row_blocks(centroids: Tensor) -> tuple[Tensor, ...]:
    """The rows of a table of all distances between them, as many at a time as may be held."""
    count = len(centroids)
    return torch.arange(count, device=centroids.device).split(max(1, CHUNK // max(1, count)))
