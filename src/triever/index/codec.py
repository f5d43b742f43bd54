"""Token vectors in few bits: the number of the nearest centroid, and the residual, rounded in each dimension.

Each number of the residual falls into one of 2 ** bits buckets, which hold equally many values of a sample, and is
decoded as the mean of its bucket. With 16 bits the vectors stay float16, and the centroids only serve to find
candidates. Knows nothing about documents.
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
"""The number of buckets for each allowed number of bits."""
MOST_CENTROIDS = 2**16
"""The largest number of centroids: the number of a centroid is stored in two bytes."""
AT_ONCE = 256
"""The largest number of centroids of one k-means, whose seeding takes a pass over the sample for each."""
PER_CENTROID = 32
"""The number of vectors for each centroid from which centroids are learned."""
BUCKET_SAMPLE = 2**16
"""The number of vectors from which buckets are learned."""

ARRAYS = ("centroids", "cutoffs", "weights")
PLAIN = {"bits": int, "unit": bool, "cosine": float}
"""The fields of a codec that are saved besides its arrays."""


@dataclass(frozen=True, eq=False)
class Codec:
    """Encodes vectors as bytes and decodes them."""

    bits: int
    centroids: np.ndarray  # (c, d) float32
    cutoffs: np.ndarray  # (d, 2 ** bits - 1) float32, rising; (d, 0) with 16 bits
    weights: np.ndarray  # (d, 2 ** bits) float32, the mean of each bucket; (d, 0) with 16 bits
    unit: bool  # whether vectors have length one: decoded ones are then normalised
    cosine: float  # the mean cosine between vectors of a sample and their decoded ones
    device: torch.device

    @classmethod
    def learn(cls, vectors: np.ndarray, bits: int, centroids: int, seed: int, device: torch.device) -> Codec:
        """A codec learned from vectors (n, d); 0 `centroids` stands for about four times the square root of n."""
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
        """The number of dimensions of a vector."""
        return self.centroids.shape[1]

    @property
    def packed_width(self) -> int:
        """The number of bytes of an encoded residual; with 16 bits, the number of dimensions."""
        return self.width if self.bits == 16 else -(-self.width * self.bits // 8)

    @property
    def bytes(self) -> int:
        """The bytes of centroids and buckets."""
        return sum(array.nbytes for array in self.arrays())

    def arrays(self) -> list[np.ndarray]:
        """Centroids and buckets."""
        return [self.centroids, self.cutoffs, self.weights]

    def plain(self) -> dict[str, float]:
        """The fields besides the arrays, as JSON values."""
        return {key: getattr(self, key) for key in PLAIN}

    def write(self, writer: Writer, name: str) -> None:
        """Write the arrays into an artifact, in files whose names begin with `name`."""
        for role in ARRAYS:
            writer.array(f"{name}_{role}", getattr(self, role))

    @classmethod
    def read(cls, snapshot: Snapshot, name: str, plain: Mapping[str, Any], device: torch.device) -> Codec:
        """Read a codec from an artifact, memory-mapped; a ValueError says what does not fit."""
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
        """The centroid of each vector (n,) uint16, and its residual (n, packed width) uint8; of 16 bits, float16."""
        numbers = np.empty(len(vectors), np.uint16)
        packed = np.empty((len(vectors), self.packed_width), np.uint8)
        if whole := self.bits == 16:
            packed = vectors.astype(np.float16, copy=False)  # not a copy: a mapped array stays mapped
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
        """(n, packed width) uint8: several buckets in a byte, the first in its lowest bits."""
        bucket = torch.searchsorted(self._edges, rest.T.contiguous(), right=True, out_int32=True).T  # (n, d)
        together = 8 // self.bits
        bucket = torch.nn.functional.pad(bucket, (0, self.packed_width * together - self.width))
        shift = self.bits * torch.arange(together, device=self.device)
        return (bucket.reshape(len(rest), -1, together) << shift).sum(-1).to(torch.uint8)

    def decode(self, numbers: Tensor, packed: Tensor) -> Tensor:
        """The decoded vectors (n, d) float32, on the device of the codec."""
        if self.bits == 16:
            return packed.to(self.device, torch.float32)
        # One look-up decodes all numbers of a byte.
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
        """(packed width * 256,): the numbers of each byte at each position, two or four float32 as one wide element.

        The elements are wide because torch looks up 800,000 of them four times faster than rows of two numbers.
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
    """Two-byte numbers as int64, with which torch can index."""
    return numbers.view(torch.int16).long() & 0xFFFF


def centroid_count(vectors: int, wanted: int) -> int:
    """The wanted number of centroids, or a power of two near four times the square root; never more than vectors."""
    usual = 2 ** round(np.log2(4 * max(1, vectors) ** 0.5))
    return min(wanted or usual, vectors, MOST_CENTROIDS)


def _sample(vectors: np.ndarray, limit: int, seed: int) -> Tensor:
    """(n, d) float32, a sorted random sample of at most `limit` vectors, the same for the same seed."""
    if len(vectors) > limit:
        chosen = np.random.default_rng(seed).choice(len(vectors), limit, replace=False)
        vectors = vectors[np.sort(chosen)]
    return torch.from_numpy(np.array(vectors, np.float32))


def _clustered(vectors: Tensor, k: int, seed: int) -> Tensor:
    """Centroids (k, d): by one k-means if they are few, else by one for groups and one within each group."""
    if k <= AT_ONCE:
        return kmeans(vectors, k, seed=seed) if k else vectors[:0]
    groups = kmeans(vectors, round(k**0.5), seed=seed)
    number, _ = nearest(vectors, groups)
    shares = _shares(torch.bincount(number, minlength=len(groups)), k)
    inside = [vectors[number == group] for group in range(len(groups))]
    centroids = [kmeans(part, share, seed=seed) for part, share in zip(inside, shares, strict=True) if share]
    return _improved(vectors, torch.cat(centroids))


def _shares(counts: Tensor, k: int) -> list[int]:
    """k divided among groups in proportion to their sizes, none above its size."""
    exact = counts.double() * k / counts.sum()
    share = exact.floor().long()
    missing = k - int(share.sum())
    share[(exact - share).argsort(descending=True, stable=True)[:missing]] += 1
    return share.tolist()


def _improved(vectors: Tensor, centroids: Tensor, rounds: int = 3) -> Tensor:
    """Centroids after a few rounds of Lloyd's algorithm over all vectors, across the borders of groups."""
    for _ in range(rounds):
        number, _ = nearest(vectors, centroids)
        count = torch.bincount(number, minlength=len(centroids))[:, None]
        total = torch.zeros_like(centroids).index_add_(0, number, vectors)
        centroids = torch.where(count > 0, total / count.clamp(min=1), centroids)
    return centroids


def _buckets(rest: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Cutoffs (d, 2 ** bits - 1) between equally full buckets of each dimension, and their means (d, 2 ** bits)."""
    buckets = BUCKETS[bits]
    if not buckets or not len(rest):
        return rest.new_zeros(rest.shape[1], max(0, buckets - 1)), rest.new_zeros(rest.shape[1], buckets)
    rising = rest.sort(dim=0).values.T.contiguous()  # (d, n)
    at = torch.arange(1, 2 * buckets, device=rest.device) * len(rest) // (2 * buckets)
    cutoffs, middles = rising[:, at[1::2]].contiguous(), rising[:, at[::2]]
    bucket = torch.searchsorted(cutoffs, rising, right=True)
    count = torch.zeros(len(rising), buckets, device=rest.device).scatter_add_(1, bucket, torch.ones_like(rising))
    total = torch.zeros_like(count).scatter_add_(1, bucket, rising)
    # A bucket is empty if many values are equal; only rounding errors can fall into it.
    return cutoffs, torch.where(count > 0, total / count.clamp(min=1), middles)
