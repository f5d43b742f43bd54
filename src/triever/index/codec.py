"""Token vectors in few bits: the number of the nearest centroid, and what is left, rounded in each dimension.

What is left after the centroid falls into 2 ** bits buckets that hold equally many values of a sample; a value
comes back as the mean of its bucket. With 16 bits the vectors stay as they are, as float16, and the centroids
only serve to find candidates. Knows nothing about documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from triever.docids.quantize import kmeans, nearest
from triever.index.top import CHUNK, shared
from triever.validation import require, require_finite

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer

BUCKETS = {16: 0, 4: 16, 2: 4}
"""How many buckets there are for each number of bits that vectors may have."""
MOST_CENTROIDS = 2**16
"""The number of a centroid is kept in two bytes."""
AT_ONCE = 256
"""Up to so many centroids are found at once; the seeding of k-means takes a pass over the sample for each."""
PER_CENTROID = 32
"""So many vectors are taken for each centroid to learn them from."""
BUCKET_SAMPLE = 2**16
"""So many vectors are taken to learn the buckets from."""

ARRAYS = ("centroids", "cutoffs", "weights")
PLAIN = {"bits": int, "unit": bool, "cosine": float}
"""What is saved of a codec besides its arrays."""


@dataclass(frozen=True, eq=False)
class Codec:
    """How vectors become bytes and come back."""

    bits: int
    centroids: np.ndarray  # (c, d) float32
    cutoffs: np.ndarray  # (d, 2 ** bits - 1) float32, rising; (d, 0) with 16 bits
    weights: np.ndarray  # (d, 2 ** bits) float32, the mean of each bucket; (d, 0) with 16 bits
    unit: bool  # whether the vectors had length one: then they have it again when they come back
    cosine: float  # between vectors of a sample and what comes back, the mean
    device: torch.device

    @classmethod
    def learn(cls, vectors: np.ndarray, bits: int, centroids: int, seed: int, device: torch.device) -> Codec:
        """From vectors (n, d); `centroids` may be 0 for about four times the root of n."""
        count = centroid_count(len(vectors), centroids)
        learned = _clustered(_sample(vectors, PER_CENTROID * count, seed).to(device), count, seed)
        sample = _sample(vectors, BUCKET_SAMPLE, seed + 1).to(device)
        rest = sample - learned[nearest(sample, learned)[0]] if len(sample) else sample
        cutoffs, weights = _buckets(rest, bits)
        unit = bool(((sample.norm(dim=1) - 1).abs() < 0.01).all())
        made = [part.cpu().numpy() for part in (learned, cutoffs, weights)]
        codec = cls(bits, *made, unit, 1.0, device)
        return replace(codec, cosine=codec._cosine(sample))

    def _cosine(self, sample: Tensor) -> float:
        if not len(sample):
            return 1.0
        numbers, packed = self.encode(sample.cpu().numpy())
        back = self.decode(shared(numbers), shared(packed))
        return float(torch.nn.functional.cosine_similarity(sample, back).mean())

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return self.centroids.shape[1]

    @property
    def packed_width(self) -> int:
        """How many bytes, or with 16 bits how many numbers, hold what is left of a vector."""
        return self.width if self.bits == 16 else -(-self.width * self.bits // 8)

    @property
    def bytes(self) -> int:
        """Of centroids and buckets."""
        return sum(array.nbytes for array in self.arrays())

    def arrays(self) -> list[np.ndarray]:
        """Centroids and buckets."""
        return [self.centroids, self.cutoffs, self.weights]

    def plain(self) -> dict[str, Any]:
        """What there is besides the arrays, as plain values."""
        return {key: getattr(self, key) for key in PLAIN}

    def write(self, writer: Writer, name: str) -> None:
        """Put the arrays into an artifact, in files whose names begin with `name`."""
        for role in ARRAYS:
            writer.array(f"{name}_{role}", getattr(self, role))

    @classmethod
    def read(cls, snapshot: Snapshot, name: str, plain: Mapping[str, Any], device: torch.device) -> Codec:
        """Take it out of an artifact, memory-mapped; a ValueError says what does not fit."""
        values: dict[str, Any] = {key: kind(plain[key]) for key, kind in PLAIN.items()}
        codec = cls(**values, **{role: snapshot.array(f"{name}_{role}") for role in ARRAYS}, device=device)
        require(codec.bits in BUCKETS, "has an impossible number of bits")
        buckets = BUCKETS[codec.bits]
        require(codec.centroids.ndim == 2 and len(codec.centroids) <= MOST_CENTROIDS, "has other centroids")
        require(codec.cutoffs.shape == (codec.width, max(0, buckets - 1)), "has other cutoffs")
        require(codec.weights.shape == (codec.width, buckets), "has other weights")
        require(all(getattr(codec, role).dtype == np.float32 for role in ARRAYS), "has a codec of another type")
        for role in ARRAYS:
            require_finite(getattr(codec, role), role)
        return codec

    def encode(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The centroid of each vector (n,) uint16, and the rest (n, packed width) uint8, or as they are float16."""
        numbers = np.empty(len(vectors), np.uint16)
        packed = np.empty((len(vectors), self.packed_width), np.uint8)
        if whole := self.bits == 16:
            packed = vectors.astype(np.float16, copy=False)  # the array itself is kept, and a mapped one stays mapped
        rows = max(1, CHUNK // self.width)
        for first in range(0, len(vectors), rows):
            part = slice(first, first + rows)
            chunk = torch.from_numpy(np.array(vectors[part], np.float32)).to(self.device)
            number, _ = nearest(chunk, self.centers)
            numbers[part] = number.cpu().numpy()
            if not whole:
                packed[part] = self._pack(chunk - self.centers[number]).cpu().numpy()
        return numbers, packed

    def _pack(self, rest: Tensor) -> Tensor:
        """Several buckets to a byte, the first in its lowest bits: (n, packed width) uint8."""
        bucket = torch.searchsorted(self._edges, rest.T.contiguous(), right=True, out_int32=True).T  # (n, d)
        together = 8 // self.bits
        bucket = torch.nn.functional.pad(bucket, (0, self.packed_width * together - self.width))
        shift = self.bits * torch.arange(together, device=self.device)
        return (bucket.reshape(len(rest), -1, together) << shift).sum(-1).to(torch.uint8)

    def decode(self, numbers: Tensor, packed: Tensor) -> Tensor:
        """The vectors again (n, d) float32, on the device of the codec."""
        if self.bits == 16:
            return packed.to(self.device, torch.float32)
        # One look-up for each byte gives all the numbers in it.
        base = 256 * torch.arange(packed.shape[1], dtype=torch.int32, device=self.device)
        places = packed.to(self.device, torch.int32) + base
        rest = self._table.index_select(0, places.view(-1)).view(torch.float32)
        rest = rest.view(len(packed), self.packed_width * 8 // self.bits)[:, : self.width]
        vectors = rest + self.centers.index_select(0, wide(numbers).to(self.device))
        return torch.nn.functional.normalize(vectors, dim=1) if self.unit else vectors

    @cached_property
    def centers(self) -> Tensor:
        """The centroids on the device (c, d)."""
        return shared(self.centroids).to(self.device)

    @cached_property
    def _edges(self) -> Tensor:
        """The cutoffs on the device (d, 2 ** bits - 1)."""
        return shared(self.cutoffs).to(self.device)

    @cached_property
    def _table(self) -> Tensor:
        """(packed width * 256,): what a byte at a place means, two or four float32 as one wide element.

        Wide elements, because torch finds 800,000 of these four times faster than as many rows of two numbers.
        """
        together = 8 // self.bits
        weights = np.zeros((self.packed_width * together, 2**self.bits), np.float32)
        weights[: self.width] = self.weights
        bucket = np.arange(256)[:, None] >> (self.bits * np.arange(together)) & (2**self.bits - 1)  # (256, together)
        by_place = weights.reshape(self.packed_width, together, -1)
        table = by_place[:, np.arange(together)[None], bucket]  # (packed width, 256, together)
        whole = np.float64 if together == 2 else np.complex128
        return torch.from_numpy(np.ascontiguousarray(table).reshape(-1).view(whole)).to(self.device)


def wide(numbers: Tensor) -> Tensor:
    """Two-byte numbers as torch can index with them."""
    return numbers.view(torch.int16).long() & 0xFFFF


def centroid_count(vectors: int, wanted: int) -> int:
    """As many as asked for, or a power of two near four times the root; never more than vectors."""
    usual = 2 ** round(np.log2(4 * max(1, vectors) ** 0.5))
    return min(wanted or usual, vectors, MOST_CENTROIDS)


def _sample(vectors: np.ndarray, most: int, seed: int) -> Tensor:
    """At most so many of the vectors, (n, d) float32, the same each time."""
    if len(vectors) > most:
        chosen = np.random.default_rng(seed).choice(len(vectors), most, replace=False)
        vectors = vectors[np.sort(chosen)]
    return torch.from_numpy(np.array(vectors, np.float32))


def _clustered(vectors: Tensor, k: int, seed: int) -> Tensor:
    """Centroids (k, d): at once where they are few, else first some groups, then centroids in each of them."""
    if k <= AT_ONCE:
        return kmeans(vectors, k, seed=seed) if k else vectors[:0]
    groups = kmeans(vectors, round(k**0.5), seed=seed)
    number, _ = nearest(vectors, groups)
    share = _shares(torch.bincount(number, minlength=len(groups)), k)
    inside = [vectors[number == group] for group in range(len(groups))]
    few = [kmeans(part, one, seed=seed) for part, one in zip(inside, share, strict=True) if one]
    return _improved(vectors, torch.cat(few))


def _shares(counts: Tensor, k: int) -> list[int]:
    """k divided among groups as their sizes are, none above its size."""
    exact = counts.double() * k / counts.sum()
    share = exact.floor().long()
    missing = k - int(share.sum())
    share[(exact - share).argsort(descending=True, stable=True)[:missing]] += 1
    return share.tolist()


def _improved(vectors: Tensor, centroids: Tensor, rounds: int = 3) -> Tensor:
    """Lloyd's algorithm, some rounds of it: the borders between groups give way."""
    for _ in range(rounds):
        number, _ = nearest(vectors, centroids)
        count = torch.bincount(number, minlength=len(centroids))[:, None]
        total = torch.zeros_like(centroids).index_add_(0, number, vectors)
        centroids = torch.where(count > 0, total / count.clamp(min=1), centroids)
    return centroids


def _buckets(rest: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """In each dimension, cutoffs (d, 2 ** bits - 1) between equally full buckets, and these' means (d, 2 ** bits)."""
    buckets = BUCKETS[bits]
    if not buckets or not len(rest):
        return rest.new_zeros(rest.shape[1], max(0, buckets - 1)), rest.new_zeros(rest.shape[1], buckets)
    rising = rest.sort(dim=0).values.T.contiguous()  # (d, n)
    at = torch.arange(1, 2 * buckets, device=rest.device) * len(rest) // (2 * buckets)
    cutoffs, middles = rising[:, at[1::2]].contiguous(), rising[:, at[::2]]
    bucket = torch.searchsorted(cutoffs, rising, right=True)
    count = torch.zeros(len(rising), buckets, device=rest.device).scatter_add_(1, bucket, torch.ones_like(rising))
    total = torch.zeros_like(count).scatter_add_(1, bucket, rising)
    # A bucket is empty where many values are the same; nothing will ever fall into it but rounding errors.
    return cutoffs, torch.where(count > 0, total / count.clamp(min=1), middles)
