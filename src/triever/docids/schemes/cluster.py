"""Cluster docids: a fixed number of clusters, each with one docid for all its documents."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from triever import config
from triever.config import option
from triever.data.records import Document
from triever.docids.quantize import (
    Device,
    admitted,
    balanced_kmeans,
    distances,
    kmeans,
    means,
    nearest,
    nearest_several,
)
from triever.docids.schemes.base import ALIKE, Coding, Docid, Scheme, is_docid
from triever.docids.schemes.semantic import Semantic
from triever.docids.unite import agglomerated, density_peaks
from triever.errors import UsageError
from triever.memory_parts import LIST, NUMBER, OWN_NUMBERS, PLACE, TUPLE, Product, Products, Thing, python_bytes
from triever.printable import count_of
from triever.validation import Json, require, require_list

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer

UNITE = {"agglomerative": agglomerated, "density": density_peaks}
"""The ways to merge small clusters."""
FINE = 4
"""The number of small clusters for each merged one."""
SEVERAL = 4
"""The largest number of clusters of one document."""
LOOKED_AT = 1000
"""The number of vectors that are checked for length one."""

_log = logging.getLogger("triever")


@dataclass(eq=False)
class Cluster(Scheme):
    """A fixed number of clusters, however large the corpus; all documents of a cluster share its docid."""

    kind: ClassVar[str] = "cluster"
    needs_vectors: ClassVar[bool] = True
    shared: ClassVar[bool] = True

    clusters: int = option(1000, "number of clusters")
    branch: int = option(
        0, "symbols at each step of a docid; 0: a docid is one symbol, which stands for the cluster's centroid"
    )
    method: Literal["kmeans", "balanced", "agglomerative", "density"] = option(
        "kmeans",
        "kmeans; balanced: clusters of equal size; agglomerative or density: small clusters are merged",
    )
    margin: float = option(
        0.0,
        "a document also joins other clusters that are farther than its own by at most this fraction of the distance; "
        "balanced clusters stay of equal size",
    )
    seed: int = option(0, "seed of the clustering")

    _centroids: Tensor | None = field(default=None, init=False, repr=False)
    _codes: list[Docid] = field(default_factory=list, init=False, repr=False)  # of each centroid; several may share one
    _unit: bool = field(default=False, init=False, repr=False)  # whether vectors have length one

    def __post_init__(self) -> None:
        config.validate(self)
        if self.clusters < 1 or self.branch < 0 or self.branch == 1 or self.margin < 0:
            values = f"clusters = {self.clusters}, branch = {self.branch}, margin = {self.margin}"
            hint = "set clusters to 1 or more, branch to 0 or to 2 or more, and margin to 0 or more"
            raise UsageError(f"a value is too small: {values}", hint)

    @property
    def width(self) -> int:
        return self.branch or 1 + max((code[0] for code in self._codes), default=self.clusters - 1)

    @property
    def single(self) -> bool:
        return not self.branch

    @property
    def names_vectors(self) -> bool:
        return self.single

    @property
    def coding(self) -> Coding:
        remedy = ALIKE if self.method == "balanced" else "set method=balanced for the docids"
        return Coding(self.branch or self.clusters, remedy)

    def rows(self) -> Tensor | None:
        if self._centroids is None or not self.single:
            return None
        rows = means(self._centroids, torch.tensor([code[0] for code in self._codes]), self.width)
        # Otherwise queries would prefer small tight clusters, whose means are longer.
        return functional.normalize(rows, dim=1) if self._unit else rows

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None, device: Device = None) -> list[Docid]:
        checked = self._vectors(vectors, len(documents))
        self._unit = bool((checked[:LOOKED_AT].float().norm(dim=1) - 1).abs().max() < 0.01)
        count = min(self.clusters, len(checked))
        centroids, cluster, number = self._clustered(checked, count, device)
        self._centroids, cluster = centroids.cpu(), cluster.cpu()
        if count == len(checked) > 1:
            self._tell_of_few_documents(count, len(cluster[number.cpu()].unique()))
        codes = self._coded(means(self._centroids, cluster, count))
        self._codes = [codes[number] for number in cluster.tolist()]
        return [self._codes[centroid] for centroid in number.tolist()]

    def _tell_of_few_documents(self, documents: int, clusters: int) -> None:
        """Say what clusters there are where there are no more documents than should be."""
        outcome = "each becomes its own cluster"
        if clusters < documents:
            outcome = f"they make {count_of(clusters, 'cluster')}, since those whose vectors are equal share one"
        message = "docids.clusters = %s, but there are only %s documents: %s"
        _log.warning(message, f"{self.clusters:,}", f"{documents:,}", outcome)

    def _coded(self, means: Tensor) -> list[Docid]:
        """A docid for each cluster, by the means of their centroids (clusters, d)."""
        if self.single:
            return [(cluster,) for cluster in range(len(means))]
        # Coded as documents would be: near clusters share prefixes.
        coder = Semantic(self.branch, leaf=self.branch, seed=self.seed)
        return coder.fit([Document(str(cluster), "") for cluster in range(len(means))], means)

    def _clustered(self, vectors: Tensor, count: int, device: Device) -> tuple[Tensor, Tensor, Tensor]:
        """Centroids (m, d), the cluster that each belongs to (m,), and the centroid of each vector (n,)."""
        if self.method == "balanced":
            centroids, number = balanced_kmeans(vectors, count, seed=self.seed, device=device)
            return centroids, torch.arange(count), number
        unite = UNITE.get(self.method)
        small = min(FINE * count, len(vectors)) if unite else count
        centroids = kmeans(vectors, small, seed=self.seed, device=device)
        number = nearest(vectors, centroids)[0]
        sizes = torch.bincount(number, minlength=len(centroids))
        return centroids, unite(centroids, sizes, count) if unite else torch.arange(count), number

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        row = self._vector(vector, self._centroids)
        assert self._centroids is not None  # `_vector` has checked it
        return self._codes[int(nearest(row, self._centroids)[0])]

    def others(self, vectors: Tensor | None, docids: Sequence[Docid] | None = None) -> list[list[Docid]]:
        if not self.margin or vectors is None or self._centroids is None:
            return []
        number, distance = nearest_several(vectors, self._centroids, SEVERAL)
        if self.method == "balanced" and docids is not None:
            near = self._shared_out(vectors, number, distance, docids)
        else:
            near = distance <= (1 + self.margin) * distance[:, :1]
        listed = zip(number.tolist(), near.tolist(), strict=True)
        return [[self._codes[centroid] for centroid, is_near in zip(*row, strict=True) if is_near] for row in listed]

    def _shared_out(self, vectors: Tensor, number: Tensor, distance: Tensor, docids: Sequence[Docid]) -> Tensor:
        """(documents, near) bool, which of the nearest clusters a document joins besides its own, nearest first.

        The margin is relative to the distance of its own cluster, which need not be the nearest. No cluster gets more
        than its share of all memberships, so that clusters stay balanced.
        """
        assert self._centroids is not None
        number_of = {code: at for at, code in enumerate(self._codes)}
        centroid_of = torch.tensor([number_of[docid] for docid in docids])
        reach = (1 + self.margin) * distances(vectors, self._centroids, centroid_of).sqrt()
        asks = (distance <= reach[:, None]) & (number != centroid_of[:, None])
        asks &= asks.cumsum(1) < SEVERAL
        share = -(-(len(centroid_of) + int(asks.sum())) // len(self._centroids))
        room = share - torch.bincount(centroid_of, minlength=len(self._centroids))
        return asks.masked_scatter(asks, admitted(number[asks], distance[asks], room))

    def stored(self) -> list[Thing]:
        return [*([] if self._centroids is None else [self._centroids]), python_bytes(self._codes)]

    def products(self, now: int, then: int) -> Products:
        count, width = (0, 0) if self._centroids is None else self._centroids.shape
        codes = set(self._codes)  # several centroids may have one
        return [
            Product(count, "centroids", 4 * width, f"{width} numbers of 4"),
            Product(len(codes), "clusters", TUPLE),
            Product(sum(map(len, codes)), "symbols of them", PLACE),
            Product(sum(symbol >= OWN_NUMBERS for code in codes for symbol in code), "large ones of these", NUMBER),
            Product(len(self._codes), "places of them", PLACE),
            Product(1, "list of them", LIST),
        ]

    def write(self, writer: Writer) -> dict[str, Json]:
        if self._centroids is not None:
            writer.array("docid_centroids", self._centroids.cpu().numpy())
        return {"codes": [list(code) for code in self._codes], "unit": self._unit}

    def read(self, snapshot: Snapshot, state: dict[str, Json]) -> None:
        known: dict[Docid, Docid] = {}  # equal docids are one object, as after `fit`
        codes = require_list(state, "codes")
        require(all(code and is_docid(code) for code in codes), "its clusters have no docids")
        self._codes = [known.setdefault(code, code) for code in map(tuple, codes)]
        self._centroids = self._read_vectors(snapshot, "docid_centroids", len(self._codes), None)
        self._unit = state.get("unit") is True  # earlier versions did not normalise rows
