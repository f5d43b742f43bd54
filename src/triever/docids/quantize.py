"""Vectors to numbers: k-means, flat, balanced, inside of groups, and residual.

Short functions of tensors. Centroids are learned on a device that may be named, or else where the vectors are, and from
a sample where vectors are very many. All vectors are then read block by block: they may be mapped from a file, and be
of any type. The same seed gives the same result on the same device; another one rounds in another way, so that a vector
between two clusters may be in the other one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import torch
from torch import Tensor

Device: TypeAlias = str | torch.device | None
"""Where to count; None is where the vectors are."""

CHUNK = 2**24
"""So many distances are held at once."""
BLOCK = 2**22
"""And so many numbers of vectors, beside those that centroids are learned from."""
PER_CENTROID = 256
"""From so many vectors for each centroid are centroids learned at most, as in faiss."""
ENOUGH = 2**16
"""But from all vectors, where there are no more than so many."""
AT_ONCE = 256
"""So many centroids begin one by one. More begin so many at a time, and in each round vectors look only where something
has moved: the same algorithm, which then takes a fraction of the time."""


def nearest(vectors: Tensor, centroids: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The number of the nearest centroid (n,) and the squared distance to it (n,), of all vectors or of some rows."""
    lengths, twice = centroids.square().sum(1), -2 * centroids.T
    found = [_nearest(part.to(centroids), twice, lengths) for part in _blocks(vectors, len(centroids), rows)]
    return torch.cat([number for number, _ in found]), torch.cat([distance for _, distance in found])


def _nearest(vectors: Tensor, twice: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    distance, number = (vectors @ twice).add_(lengths).min(1)
    return number, (distance + vectors.square().sum(1)).clamp(min=0)


def _blocks(vectors: Tensor, beside: int = 1, rows: Tensor | None = None) -> Iterable[Tensor]:
    """All vectors, or those of some rows, as many at a time as may be held with so many numbers beside each."""
    size = _at_once(vectors, beside)
    return vectors.split(size) if rows is None else (vectors[some] for some in rows.to(vectors.device).split(size))


def _at_once(vectors: Tensor, beside: int = 1) -> int:
    return max(1, min(CHUNK // beside, BLOCK // vectors.shape[1]))


def all_finite(vectors: Tensor) -> bool:
    """Whether no number of any vector is NaN or infinite."""
    return all(bool(part.isfinite().all()) for part in _blocks(vectors))


def mean(vectors: Tensor) -> Tensor:
    """(d,) of all vectors."""
    return torch.stack([part.float().sum(0) for part in _blocks(vectors)]).sum(0) / len(vectors)


def sampled(vectors: Tensor, k: int, *, seed: int = 0, device: Device = None, rows: Tensor | None = None) -> Tensor:
    """What k centroids are learned from, float32 on the device: all vectors, or all of some rows, while they are few.

    Else it is a sample by chance, of PER_CENTROID vectors for each centroid and of no fewer than ENOUGH.
    """
    count, most = len(vectors if rows is None else rows), max(PER_CENTROID * k, ENOUGH)
    if count > most:
        chosen = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most].sort().values
        rows = chosen if rows is None else rows[chosen.to(rows.device)]
    held = vectors if rows is None else vectors[rows.to(vectors.device)]
    return held.to(vectors.device if device is None else device, torch.float32)


def nearest_several(vectors: Tensor, centroids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The numbers of the k nearest centroids (n, k), nearest first, and the distances to them (n, k)."""
    k = min(k, len(centroids))
    parts = (part.to(centroids) for part in _blocks(vectors, len(centroids)))
    found = [torch.cdist(part, centroids).topk(k, largest=False) for part in parts]
    return torch.cat([one.indices for one in found]), torch.cat([one.values for one in found])


def nearest_few(vector: Tensor, vectors: Tensor, k: int) -> Tensor:
    """The numbers of the k vectors nearest to one (d,), nearest first; all where there are fewer."""
    distance = torch.cdist(vector[None], vectors, compute_mode="donot_use_mm_for_euclid_dist")[0]
    return distance.topk(min(k, len(vectors)), largest=False).indices


def kmeans(vectors: Tensor, k: int, *, seed: int = 0, rounds: int = 20, device: Device = None) -> Tensor:
    """Centroids (k, d) of Lloyd's algorithm; where fewer than k vectors differ, some are the same.

    Starts far apart (k-means++), and a cluster that loses all its vectors takes the one farthest from its own.
    """
    vectors = sampled(vectors, k, seed=seed, device=device)
    centroids, found = _spread_out(vectors, k, seed), None
    moved = torch.ones(k, dtype=torch.bool, device=vectors.device)
    for _ in range(rounds):
        found = _nearest_again(vectors, centroids, moved, found)
        better = _improved(vectors, centroids, *found)
        moved = (better != centroids).any(1)
        if not moved.any():
            break
        centroids = better
    return centroids


def _improved(vectors: Tensor, centroids: Tensor, number: Tensor, distance: Tensor) -> Tensor:
    """Each centroid in the middle of its vectors; one without any takes the vector that is farthest from its own."""
    better = _moved(vectors, number, centroids)
    empty = (torch.bincount(number, minlength=len(centroids)) == 0).nonzero()[:, 0]
    if len(empty):
        far = distance.argsort(descending=True)[: len(empty)]
        better[empty[: len(far)]] = vectors[far]
    return better


def _nearest_again(
    vectors: Tensor, centroids: Tensor, moved: Tensor, before: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """`nearest`, where it is known what it was before some of the centroids (k,) moved.

    Who is no farther from its own than before has none to look at but those that moved: all others are where they were.
    """
    if before is None or len(centroids) <= AT_ONCE:
        return nearest(vectors, centroids)
    number, distance = (one.clone() for one in before)
    led = moved[number].nonzero()[:, 0]
    now = distances(vectors, centroids, number[led], led)
    lost = torch.zeros_like(number, dtype=torch.bool)
    lost[led] = now > distance[led]
    distance[led] = now
    anew, rest = lost.nonzero()[:, 0], (~lost).nonzero()[:, 0]
    number[anew], distance[anew] = nearest(vectors, centroids, anew)
    others = moved.nonzero()[:, 0]
    other, near = nearest(vectors, centroids[others], rest)
    closer = near < distance[rest]
    number[rest[closer]], distance[rest[closer]] = others[other[closer]], near[closer]
    return number, distance


def distances(vectors: Tensor, centroids: Tensor, number: Tensor, rows: Tensor | None = None) -> Tensor:
    """(n,) the squared distance of each vector, or each of some rows, to the centroid of its number (n,)."""
    each = zip(_blocks(vectors, rows=rows), number.split(_at_once(vectors)), strict=True)
    return torch.cat([(part.to(centroids) - centroids[own]).square_().sum(1) for part, own in each])


def balanced_kmeans(
    vectors: Tensor, k: int, *, seed: int = 0, rounds: int = 5, device: Device = None
) -> tuple[Tensor, Tensor]:
    """Centroids (k, d), and the number of each vector's (n,): none has more than a k-th of them, rounded up."""
    some = sampled(vectors, k, seed=seed, device=device)
    centroids = kmeans(some, k, seed=seed)
    number = _shared_out(some, centroids)
    for _ in range(rounds):
        centroids = _moved(some, number, centroids)
        number = _shared_out(some, centroids)
    return centroids, number if len(some) == len(vectors) else _shared_out(vectors, centroids)


def _shared_out(vectors: Tensor, centroids: Tensor) -> Tensor:
    """(n,) a centroid for each vector, none above its share: the nearest ask first, and who is refused asks elsewhere.

    Where some are refused a centroid is full, so this ends.
    """
    room = torch.full((len(centroids),), -(-len(vectors) // len(centroids)), device=centroids.device)
    number = torch.full((len(vectors),), -1, device=centroids.device)
    while len(left := (number < 0).nonzero()[:, 0]):
        free = (room > 0).nonzero()[:, 0]
        asked, distance = nearest(vectors, centroids[free], left)
        taken = admitted(asked, distance, room[free])
        number[left[taken]] = free[asked[taken]]
        room -= torch.bincount(free[asked[taken]], minlength=len(centroids))
    return number


def admitted(asked: Tensor, distance: Tensor, room: Tensor) -> Tensor:
    """(n,) bool, who gets a place in the cluster that it asks for (n,): the nearest, as long as that has room."""
    order = distance.argsort(stable=True)
    order = order[asked[order].argsort(stable=True)]  # cluster by cluster, the nearest first
    counts = torch.bincount(asked, minlength=len(room))
    rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[asked[order]]
    return torch.zeros_like(asked, dtype=torch.bool).index_put_((order,), rank < room[asked[order]])


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
    return means(vectors, owner * k + number, groups * k).view(groups, k, size)


def _largest_within(values: Tensor, owner: Tensor, groups: int) -> Tensor:
    """(groups,) where each group's largest value is, the first of equal ones."""
    most = torch.full((groups,), -torch.inf, device=values.device).scatter_reduce(0, owner, values, "amax")
    place = torch.arange(len(values), device=values.device)
    hit = torch.where(values == most[owner], place, len(values))
    return torch.full((groups,), len(values), device=values.device).scatter_reduce(0, owner, hit, "amin")


def means(vectors: Tensor, number: Tensor, count: int) -> Tensor:
    """(count, d) the mean of the vectors (n, d) of each number (n,); not a number where there is none."""
    return _sums(vectors, number, count) / torch.bincount(number, minlength=count)[:, None]


def _moved(vectors: Tensor, number: Tensor, old: Tensor) -> Tensor:
    """(clusters, d) the means of clusters; what nobody is in stays where it was."""
    found = means(vectors, number, len(old))
    return torch.where(found.isnan(), old, found)


def _sums(vectors: Tensor, number: Tensor, count: int) -> Tensor:
    """(count, d) the sum of the vectors of each number."""
    if vectors.device.type == "cpu":
        return torch.zeros(count, vectors.shape[1]).index_add_(0, number, vectors)
    # Segments of sorted vectors and not scattered additions, whose order, and so whose rounding, is chance on a GPU.
    lengths = torch.bincount(number, minlength=count)
    order = number.argsort(stable=True)
    return torch.segment_reduce(vectors[order], "sum", lengths=lengths)  # ty: ignore[missing-attribute]


def _spread_out(vectors: Tensor, k: int, seed: int) -> Tensor:
    """k of the vectors, each chosen with a chance that grows with its distance from those before."""
    chance = torch.Generator().manual_seed(seed)
    chosen = [int(torch.randint(len(vectors), (1,), generator=chance))]
    distance = _distances_to(vectors, vectors[chosen[0]])
    while len(chosen) < min(k, AT_ONCE):
        chosen += _drawn(distance, 1, chance).tolist()
        distance = torch.minimum(distance, _distances_to(vectors, vectors[chosen[-1]]))
    while len(chosen) < k:
        some = _drawn(distance, min(AT_ONCE, k - len(chosen)), chance).to(vectors.device)
        kept = some[_one_by_one(vectors[some], distance[some], chance).to(some.device)]
        chosen += kept.tolist()
        distance = torch.minimum(distance, nearest(vectors, vectors[kept])[1])
    return vectors[chosen]


def _distances_to(vectors: Tensor, one: Tensor) -> Tensor:
    """(n,) squared."""
    return torch.cat([(part - one).square_().sum(1) for part in _blocks(vectors)])


def _drawn(distance: Tensor, count: int, chance: torch.Generator) -> Tensor:
    """(count,) rows, each by a chance that is its share of all distances (n,)."""
    total = distance.cpu().double().cumsum(0)  # not on a GPU, which rounds such sums by chance
    at = torch.rand(count, generator=chance, dtype=torch.float64) * total[-1]
    return torch.searchsorted(total, at).clamp(max=len(total) - 1)


def _one_by_one(vectors: Tensor, distance: Tensor, chance: torch.Generator) -> Tensor:
    """Which of some vectors that were drawn together would have been drawn one after the other.

    One is kept with the chance that its distance (n,) leaves it beside those kept before it. What is kept has the same
    distribution as if each had been drawn by the distances from all before it.
    """
    between = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist").square().cpu()
    left, bar = distance.cpu(), torch.rand(len(vectors), generator=chance) * distance.cpu()
    kept = []
    for one in range(len(vectors)):
        if not bar[one] > left[one]:  # so that even of NaN the first is kept, and this ends
            kept.append(one)
            left = torch.minimum(left, between[one])
    return torch.tensor(kept)


def residual_codebooks(vectors: Tensor, levels: int, size: int, *, seed: int = 0, device: Device = None) -> Tensor:
    """Codebooks (levels, size, d): each quantizes what the ones before have left."""
    rest = sampled(vectors, size, seed=seed, device=device).clone()
    books = []
    for level in range(levels):
        books.append(kmeans(rest, size, seed=seed + level))
        for part in _blocks(rest, size):
            part -= books[-1][nearest(part, books[-1])[0]]
    return torch.stack(books)


def residual_codes(vectors: Tensor, codebooks: Tensor) -> Tensor:
    """The code of each vector: (n, levels) numbers."""
    return torch.cat([_codes(part.to(codebooks), codebooks) for part in _blocks(vectors, codebooks.shape[1])])


def _codes(rest: Tensor, codebooks: Tensor) -> Tensor:
    codes = []
    for book in codebooks:
        number, _ = nearest(rest, book)
        rest = rest - book[number]
        codes.append(number)
    return torch.stack(codes, 1)
