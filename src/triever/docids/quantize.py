"""Vectors to numbers of clusters: k-means that is plain, balanced, within groups, or residual.

These are short functions of tensors. Centroids are learned on the given device, or else on that of the vectors, and
from a sample if there are very many vectors. All vectors are then read block by block: they may be mapped from a file,
and be of any type. The same seed gives the same result on the same device; devices round differently, so that a vector
between two clusters may fall into either.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import torch
from torch import Tensor

Device: TypeAlias = str | torch.device | None
"""Where to compute; None is the device of the vectors."""

CHUNK = 2**24
"""How many distances are held at once."""
REUSED = 2**22
"""As many as that on a processor: larger arrays are given back to the system and come anew for every block, which can
take longer than to compute them."""
BLOCK = 2**22
"""How many numbers of vectors are held at once, in addition to those from which centroids are learned."""
PER_CENTROID = 256
"""The largest number of vectors for each centroid from which centroids are learned, as in faiss."""
ENOUGH = 2**16
"""Up to this many vectors, centroids are learned from all of them."""
AT_ONCE = 256
"""This many initial centroids are drawn one by one, further ones this many at a time. With more centroids, each round
compares vectors only with the centroids that have moved: the same algorithm in a fraction of the time."""


def nearest(vectors: Tensor, centroids: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The number of the nearest centroid (n,) and the squared distance to it (n,), of all vectors or of `rows`."""
    lengths, twice = centroids.square().sum(1), -2 * centroids.T
    blocks = _blocks(vectors, len(centroids), rows, centroids.device)
    parts = [_nearest(block.to(centroids), twice, lengths) for block in blocks]
    return torch.cat([number for number, _ in parts]), torch.cat([distance for _, distance in parts])


def _nearest(vectors: Tensor, twice: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    distance, number = (vectors @ twice).add_(lengths).min(1)
    return number, (distance + vectors.square().sum(1)).clamp(min=0)


def _blocks(
    vectors: Tensor, width: int = 1, rows: Tensor | None = None, device: torch.device | None = None
) -> Iterable[Tensor]:
    """All vectors, or those of `rows`, in blocks that can be held together with `width` numbers for each vector.

    These numbers are on the device, if it is not that of the vectors.
    """
    size = _at_once(vectors, width, device)
    return vectors.split(size) if rows is None else (vectors[chunk] for chunk in rows.to(vectors.device).split(size))


def _at_once(vectors: Tensor, width: int = 1, device: torch.device | None = None) -> int:
    held = min(CHUNK, REUSED) if (device or vectors.device).type == "cpu" else CHUNK
    return max(1, min(held // width, BLOCK // vectors.shape[1]))


def all_finite(vectors: Tensor) -> bool:
    """Whether all numbers of all vectors are finite."""
    return all(bool(part.isfinite().all()) for part in _blocks(vectors))


def mean(vectors: Tensor) -> Tensor:
    """(d,) the mean of all vectors."""
    return torch.stack([part.float().sum(0) for part in _blocks(vectors)]).sum(0) / len(vectors)


def sampled(vectors: Tensor, k: int, *, seed: int = 0, device: Device = None, rows: Tensor | None = None) -> Tensor:
    """The vectors from which k centroids are learned, as float32 on the device: all vectors, or all of `rows`.

    If there are too many, it is a sorted random sample, of PER_CENTROID vectors for each centroid, at least ENOUGH.
    """
    count, limit = len(vectors if rows is None else rows), max(PER_CENTROID * k, ENOUGH)
    if count > limit:
        chosen = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:limit].sort().values
        rows = chosen if rows is None else rows[chosen.to(rows.device)]
    held = vectors if rows is None else vectors[rows.to(vectors.device)]
    return held.to(vectors.device if device is None else device, torch.float32)


def nearest_several(vectors: Tensor, centroids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The numbers of the k nearest centroids (n, k), nearest first, and the distances to them (n, k)."""
    k = min(k, len(centroids))
    parts = (part.to(centroids) for part in _blocks(vectors, len(centroids), device=centroids.device))
    closest = [torch.cdist(part, centroids).topk(k, largest=False) for part in parts]
    return torch.cat([block.indices for block in closest]), torch.cat([block.values for block in closest])


def nearest_few(vector: Tensor, vectors: Tensor, k: int) -> Tensor:
    """The numbers of the k vectors nearest to a vector (d,), nearest first; all if there are fewer."""
    distance = torch.cdist(vector[None], vectors, compute_mode="donot_use_mm_for_euclid_dist")[0]
    return distance.topk(min(k, len(vectors)), largest=False).indices


def kmeans(vectors: Tensor, k: int, *, seed: int = 0, rounds: int = 20, device: Device = None) -> Tensor:
    """Centroids (k, d) of Lloyd's algorithm; if fewer than k vectors are distinct, some centroids are equal.

    It starts from k-means++, and moves the centroid of an empty cluster to the vector farthest from its centroid.
    """
    vectors = sampled(vectors, k, seed=seed, device=device)
    centroids, assigned = _spread_out(vectors, k, seed), None
    moved = torch.ones(k, dtype=torch.bool, device=vectors.device)
    for _ in range(rounds):
        assigned = _nearest_again(vectors, centroids, moved, assigned)
        better = _improved(vectors, centroids, *assigned)
        moved = (better != centroids).any(1)
        if not moved.any():
            break
        centroids = better
    return centroids


def _improved(vectors: Tensor, centroids: Tensor, number: Tensor, distance: Tensor) -> Tensor:
    """The mean of each cluster; the centroid of an empty one moves to the vector farthest from its centroid."""
    better = _moved(vectors, number, centroids)
    empty = (torch.bincount(number, minlength=len(centroids)) == 0).nonzero()[:, 0]
    if len(empty):
        far = distance.argsort(descending=True)[: len(empty)]
        better[empty[: len(far)]] = vectors[far]
    return better


def _nearest_again(
    vectors: Tensor, centroids: Tensor, moved: Tensor, before: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """The result of `nearest`, made faster by the result `before` some of the centroids moved: (k,) bool.

    A vector that is no farther from its centroid than before is compared only with the centroids that moved; a vector
    that is farther is compared with all.
    """
    if before is None or len(centroids) <= AT_ONCE:
        return nearest(vectors, centroids)
    number, distance = (array.clone() for array in before)
    led = moved[number].nonzero()[:, 0]
    now = distances(vectors, centroids, number[led], led)
    lost = torch.zeros_like(number, dtype=torch.bool)
    lost[led] = now > distance[led]
    distance[led] = now
    anew, rest = lost.nonzero()[:, 0], (~lost).nonzero()[:, 0]
    number[anew], distance[anew] = nearest(vectors, centroids, anew)
    moved_numbers = moved.nonzero()[:, 0]
    other, near = nearest(vectors, centroids[moved_numbers], rest)
    closer = near < distance[rest]
    number[rest[closer]], distance[rest[closer]] = moved_numbers[other[closer]], near[closer]
    return number, distance


def distances(vectors: Tensor, centroids: Tensor, number: Tensor, rows: Tensor | None = None) -> Tensor:
    """(n,) the squared distance of each vector, or each of `rows`, to the centroid of its number (n,)."""
    each = zip(_blocks(vectors, rows=rows), number.split(_at_once(vectors)), strict=True)
    return torch.cat([(part.to(centroids) - centroids[part_numbers]).square_().sum(1) for part, part_numbers in each])


def balanced_kmeans(
    vectors: Tensor, k: int, *, seed: int = 0, rounds: int = 5, device: Device = None
) -> tuple[Tensor, Tensor]:
    """Centroids (k, d), and the cluster of each vector (n,): none has more than n / k vectors, rounded up."""
    sample = sampled(vectors, k, seed=seed, device=device)
    centroids = kmeans(sample, k, seed=seed)
    number = _shared_out(sample, centroids)
    for _ in range(rounds):
        centroids = _moved(sample, number, centroids)
        number = _shared_out(sample, centroids)
    return centroids, number if len(sample) == len(vectors) else _shared_out(vectors, centroids)


def _shared_out(vectors: Tensor, centroids: Tensor) -> Tensor:
    """(n,) a centroid for each vector, none above its share: each takes the nearest vectors, the others go elsewhere.

    Whenever vectors are refused, a centroid has become full, so this ends.
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
    """(n,) bool, whether a vector is admitted to the cluster it asks for (n,): the nearest, while there is room."""
    order = distance.argsort(stable=True)
    order = order[asked[order].argsort(stable=True)]  # cluster by cluster, the nearest first
    counts = torch.bincount(asked, minlength=len(room))
    rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[asked[order]]
    return torch.zeros_like(asked, dtype=torch.bool).index_put_((order,), rank < room[asked[order]])


def kmeans_within(vectors: Tensor, lengths: Tensor, start: Tensor, *, rounds: int = 300) -> tuple[Tensor, Tensor]:
    """Lloyd's algorithm inside each of many groups at once: centroids (groups, k, d), and each vector's number (n,).

    Vectors of a group lie together; lengths (groups,) are the sizes of the groups, none of which is 0. It begins with
    centroids `start` (groups, k, d), see `spread_within`, and goes on until no vector moves: its own result as `start`
    comes back unchanged. The centroid of an empty cluster is NaN.
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
    """(groups, k, d) initial centroids by k-means++: vectors drawn in proportion to their distance from those before.

    `chance` (k, n) has random numbers between 0 and 1. The maximum of log-weights with Gumbel noise is a draw by
    weight, so that all groups draw at once.
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
    """(n,) the nearest centroid of each vector in its group; NaN counts as infinitely far."""
    distances = [(vectors - centroids[owner, at]).square().sum(1) for at in range(centroids.shape[1])]
    return torch.stack(distances, 1).nan_to_num(torch.inf).argmin(1)


def _means_within(vectors: Tensor, owner: Tensor, number: Tensor, centroids: Tensor) -> Tensor:
    groups, k, size = centroids.shape
    return means(vectors, owner * k + number, groups * k).view(groups, k, size)


def _largest_within(values: Tensor, owner: Tensor, groups: int) -> Tensor:
    """(groups,) the position of each group's largest value, the first of equal ones."""
    largest = torch.full((groups,), -torch.inf, device=values.device).scatter_reduce(0, owner, values, "amax")
    position = torch.arange(len(values), device=values.device)
    hit = torch.where(values == largest[owner], position, len(values))
    return torch.full((groups,), len(values), device=values.device).scatter_reduce(0, owner, hit, "amin")


def means(vectors: Tensor, number: Tensor, count: int) -> Tensor:
    """(count, d) the mean of the vectors (n, d) of each number (n,); NaN where there is none."""
    return _sums(vectors, number, count) / torch.bincount(number, minlength=count)[:, None]


def _moved(vectors: Tensor, number: Tensor, old: Tensor) -> Tensor:
    """(clusters, d) the means of clusters; the centroid of an empty one stays where it was."""
    new = means(vectors, number, len(old))
    return torch.where(new.isnan(), old, new)


def _sums(vectors: Tensor, number: Tensor, count: int) -> Tensor:
    """(count, d) the sum of the vectors of each number."""
    if vectors.device.type == "cpu":
        return torch.zeros(count, vectors.shape[1]).index_add_(0, number, vectors)
    # Segments of sorted vectors, because scattered additions have a random order, and so random rounding, on a GPU.
    lengths = torch.bincount(number, minlength=count)
    order = number.argsort(stable=True)
    return torch.segment_reduce(vectors[order], "sum", lengths=lengths)  # ty: ignore[missing-attribute]


def _spread_out(vectors: Tensor, k: int, seed: int) -> Tensor:
    """(k, d) initial centroids by k-means++: vectors drawn in proportion to their distance from those before."""
    chance = torch.Generator().manual_seed(seed)
    chosen = [int(torch.randint(len(vectors), (1,), generator=chance))]
    distance = _distances_to(vectors, vectors[chosen[0]])
    while len(chosen) < min(k, AT_ONCE):
        chosen += _drawn(distance, 1, chance).tolist()
        distance = torch.minimum(distance, _distances_to(vectors, vectors[chosen[-1]]))
    while len(chosen) < k:
        drawn = _drawn(distance, min(AT_ONCE, k - len(chosen)), chance).to(vectors.device)
        kept = drawn[_one_by_one(vectors[drawn], distance[drawn], chance).to(drawn.device)]
        chosen += kept.tolist()
        distance = torch.minimum(distance, nearest(vectors, vectors[kept])[1])
    return vectors[chosen]


def _distances_to(vectors: Tensor, vector: Tensor) -> Tensor:
    """(n,) squared distances to one vector (d,)."""
    return torch.cat([(part - vector).square_().sum(1) for part in _blocks(vectors)])


def _drawn(distance: Tensor, count: int, chance: torch.Generator) -> Tensor:
    """(count,) rows, drawn in proportion to their distances (n,)."""
    total = distance.cpu().double().cumsum(0)  # not on a GPU, which rounds such sums at random
    at = torch.rand(count, generator=chance, dtype=torch.float64) * total[-1]
    return torch.searchsorted(total, at).clamp(max=len(total) - 1)


def _one_by_one(vectors: Tensor, distance: Tensor, chance: torch.Generator) -> Tensor:
    """The numbers of the vectors to keep of those that were drawn together, so that all seem drawn one by one.

    Each is kept with the probability that remains of its distance (n,) after those kept before it. The kept ones have
    the same distribution as if each had been drawn by the distances from all before it.
    """
    between = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist").square().cpu()
    left, bar = distance.cpu(), torch.rand(len(vectors), generator=chance) * distance.cpu()
    kept = []
    for candidate in range(len(vectors)):
        if not bar[candidate] > left[candidate]:  # written so that the first of NaNs is kept too, and the caller ends
            kept.append(candidate)
            left = torch.minimum(left, between[candidate])
    return torch.tensor(kept)


def residual_codebooks(
    vectors: Tensor, levels: int, size: int, *, seed: int = 0, device: Device = None, balanced: bool = False
) -> Tensor:
    """Codebooks (levels, size, d): each quantizes the residuals of those before.

    With `balanced`, centroids are the means of equally many residuals. Those of plain k-means collapse: what two levels
    leave over is much like noise, and most of it is nearest to the one centroid in its middle. Of 4,496 MiniLM vectors
    94% have the same one of 256 codes at level 4; balanced, the commonest has 0.5%.
    """
    rest = sampled(vectors, size, seed=seed, device=device).clone()
    books = []
    for level in range(levels):
        book = balanced_kmeans(rest, size, seed=seed + level)[0] if balanced else kmeans(rest, size, seed=seed + level)
        # From the nearest centroid, which need not be the one that a balanced assignment gives. Codes that are balanced
        # themselves gain little (the commonest has 0.4% instead of 0.7%), lie farther from their vectors (a squared
        # error of .249 instead of .243), and a new vector would get another code than an old one that equals it.
        for part in _blocks(rest, size):
            part -= book[nearest(part, book)[0]]
        books.append(book)
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
