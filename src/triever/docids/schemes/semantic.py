"""Semantic docids: the path down a tree of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from triever import config
from triever.config import option
from triever.data.records import Document
from triever.docids.cluster_tree import Tree, cluster_tree
from triever.docids.quantize import Device, mean
from triever.docids.schemes.base import ALIKE, Coding, Docid, Numbering, Scheme
from triever.errors import UsageError
from triever.memory_parts import Product, Products, Thing, python_bytes, scaled
from triever.validation import Json, require_count

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer


@dataclass(eq=False)
class Semantic(Scheme):
    """The path down a tree of clusters, then a number inside the last one: near documents share prefixes."""

    kind: ClassVar[str] = "semantic"
    needs_vectors: ClassVar[bool] = True

    branch: int = option(10, "number of clusters into which a cluster is divided")
    leaf: int = option(100, "clusters with more documents than this are divided")
    positions: bool = option(False, "give each depth its own symbols (2D semantic)")
    seed: int = option(0, "seed of the clustering")

    _tree: Tree | None = field(default=None, init=False, repr=False)
    _held: Numbering = field(default_factory=Numbering, init=False, repr=False)
    _depth: int = field(default=1, init=False, repr=False)
    _mean: Tensor | None = field(default=None, init=False, repr=False)  # (d,) of all vectors

    def __post_init__(self) -> None:
        config.validate(self)
        if self.branch < 2 or self.leaf < 1:
            problem = f"a value is too small: branch = {self.branch}, leaf = {self.leaf}"
            raise UsageError(problem, "set branch to 2 or more, and leaf to 1 or more")

    @property
    def _symbols(self) -> int:
        return max(self.branch, self.leaf)

    @property
    def width(self) -> int:
        return self._symbols * (self._depth if self.positions else 1)

    @property
    def coding(self) -> Coding:
        return Coding(self.branch, ALIKE, numbered=True)

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None, device: Device = None) -> list[Docid]:
        checked = self._vectors(vectors, len(documents))
        self._mean = mean(checked).cpu()
        self._tree = cluster_tree(checked, self.branch, self.leaf, seed=self.seed, device=device)
        self._held = Numbering()
        paths = self._paths(checked)
        self._tree = self._tree.cpu() if self._tree else None  # new documents come one by one
        self._depth = 1 + max(map(len, paths), default=0)
        return [self._numbered(path) for path in paths]

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        return self._numbered(self._paths(self._vector(vector, self._mean))[0])

    def _paths(self, vectors: Tensor) -> list[Docid]:
        return self._tree.paths(vectors) if self._tree else [() for _ in vectors]

    def _numbered(self, path: Docid) -> Docid:
        """The docid with the next number in a cluster."""
        docid = (*path, self._held.next(path, self.leaf))
        if not self.positions:
            return docid
        return tuple(depth * self._symbols + symbol for depth, symbol in enumerate(docid))

    def stored(self) -> list[Thing]:
        centroids = self._tree.stored() if self._tree else []
        return [*centroids, *([] if self._mean is None else [self._mean]), python_bytes(self._held)]

    def products(self, now: int, then: int) -> Products:
        width = 0 if self._mean is None else len(self._mean)
        trees = scaled(len(self._tree.stored()) if self._tree else 0, now, then)
        centroids = Product(trees, "clusters of clusters", 4 * self.branch * width, f"{self.branch} centroids")
        return [centroids, Product(1, "mean", 4 * width), *self._held.products(now, then)]

    def write(self, writer: Writer) -> dict[str, Json]:
        if self._tree:
            centroids, children = self._tree.arrays()
            writer.array("docid_centroids", centroids)
            writer.array("docid_children", children)
        if self._mean is not None:
            writer.array("docid_mean", self._mean.cpu().numpy())
        return {"held": self._held.to_lists(), "depth": self._depth}

    def read(self, snapshot: Snapshot, state: dict[str, Json]) -> None:
        self._held = Numbering.of_lists(state["held"])
        self._depth = require_count(state, "depth", 1)
        self._mean = self._read_vectors(snapshot, "docid_mean", None) if snapshot.has("docid_mean") else None
        if snapshot.has("docid_centroids"):
            width = None if self._mean is None else len(self._mean)
            centroids = self._read_vectors(snapshot, "docid_centroids", None, self.branch, width)
            self._tree = Tree.of_arrays(centroids.numpy(), snapshot.array("docid_children"))
