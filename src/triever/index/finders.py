"""Approximate searches by faiss: a graph of neighbours, and lists of short codes.

They are saved as plain arrays that are checked before faiss gets them, not in faiss's own format: its reader trusts
its input (offsets behind the end of an array, names of other files to open), and an artifact may come from a
stranger. This way the vectors of the graph are also on the disk once, not twice.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from triever.arrays import starts_of
from triever.errors import MissingExtra, UsageError
from triever.index.options import IndexOptions
from triever.index.top import CHUNK, ScoresAndRows, filled
from triever.memory_parts import Product, Products
from triever.validation import require, require_array, require_finite

TRAINING = 39
"""The number of vectors for each centroid that faiss needs for training; with fewer, no lists are made."""


def faiss_library() -> Any:
    """The package faiss, or an error that says how to install it."""
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise MissingExtra("an index of kind hnsw or ivfpq, or a file of faiss,", "pip install faiss-cpu") from error


class Finder(Protocol):
    """Finds the vectors near a query, by their positions among those it was built from."""

    arrays_of: ClassVar[tuple[str, ...]]
    part: ClassVar[str]
    """Its name as a part of memory."""

    @property
    def index(self) -> Any:
        """The index of faiss."""
        ...

    @classmethod
    def build(cls, vectors: np.ndarray, options: IndexOptions) -> Self | None:
        """A finder for vectors (n, d); None if there are too few."""
        ...

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], vectors: np.ndarray, options: IndexOptions) -> Self:
        """The finder from the result of `arrays`; a ValueError says what is wrong with it."""
        ...

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that are saved besides the vectors."""
        ...

    def search(self, queries: np.ndarray, k: int, alive: np.ndarray | None) -> ScoresAndRows:
        """Scores and positions for each query, of living vectors only; perhaps fewer than k."""
        ...

    @property
    def bytes(self) -> int:
        """The bytes in memory."""
        ...

    @classmethod
    def products(cls, count: int, width: int, options: IndexOptions) -> Products | None:
        """The bytes in memory, computed for `count` vectors; None if there are too few."""
        ...


def chunks(vectors: np.ndarray) -> Iterator[np.ndarray]:
    """The vectors as float32, in chunks, so that a mapped array is never in memory twice."""
    rows = max(1, CHUNK // vectors.shape[1])
    for first in range(0, len(vectors), rows):
        yield np.ascontiguousarray(vectors[first : first + rows], np.float32)


def _selector(alive: np.ndarray | None) -> dict[str, object]:
    return {} if alive is None else {"sel": faiss_library().IDSelectorBitmap(np.packbits(alive, bitorder="little"))}


@dataclass(frozen=True)
class Graph:
    """A graph of near neighbours in layers (HNSW)."""

    arrays_of: ClassVar[tuple[str, ...]] = ("levels", "neighbours")
    part: ClassVar[str] = "graph"
    index: Any
    options: IndexOptions

    @classmethod
    def build(cls, vectors: np.ndarray, options: IndexOptions) -> Graph | None:
        """A graph of the vectors, inserted one after the other; None without vectors."""
        if not len(vectors):
            return None
        graph = cls._empty(vectors.shape[1], options)
        for part in chunks(vectors):
            graph.index.add(part)
        return graph

    @classmethod
    def _empty(cls, width: int, options: IndexOptions) -> Graph:
        faiss = faiss_library()
        index = faiss.IndexHNSWFlat(width, options.hnsw_m, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = options.ef_construction
        index.hnsw.efSearch = options.ef_search  # for whoever writes it to a file: searches here say it each time
        return cls(index, options)

    def arrays(self) -> dict[str, np.ndarray]:
        """The number of layers of each vector (n,), and all neighbours end to end, -1 for unused links."""
        faiss, hnsw = faiss_library(), self.index.hnsw
        return {"levels": faiss.vector_to_array(hnsw.levels), "neighbours": faiss.vector_to_array(hnsw.neighbors)}

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], vectors: np.ndarray, options: IndexOptions) -> Graph:
        """The graph from its arrays, over the same vectors."""
        levels = np.ascontiguousarray(arrays["levels"], np.int32)
        neighbours = np.ascontiguousarray(arrays["neighbours"], np.int32)
        offsets = _graph_offsets(levels, neighbours, len(vectors), options.hnsw_m)
        graph, faiss = cls._empty(vectors.shape[1], options), faiss_library()
        hnsw = graph.index.hnsw
        for name, values in (("levels", levels), ("offsets", offsets), ("neighbors", neighbours)):
            faiss.copy_array_to_vector(values, getattr(hnsw, name))
        hnsw.entry_point, hnsw.max_level = int(levels.argmax()), int(levels.max()) - 1
        for part in chunks(vectors):
            graph.index.storage.add(part)
        graph.index.ntotal = len(vectors)
        return graph

    def search(self, queries: np.ndarray, k: int, alive: np.ndarray | None) -> ScoresAndRows:
        """Walk the graph; deleted vectors are passed through, but not returned."""
        wide = max(k, self.options.ef_search)
        params = faiss_library().SearchParametersHNSW(efSearch=wide, **_selector(alive))
        return filled(*self.index.search(queries, k, params=params), k)

    @property
    def bytes(self) -> int:
        """The bytes of the graph and of its own copy of the vectors."""
        hnsw, vectors = self.index.hnsw, faiss_library().downcast_index(self.index.storage).codes.size()
        return vectors + 4 * hnsw.levels.size() + 8 * hnsw.offsets.size() + 4 * hnsw.neighbors.size()

    @classmethod
    def products(cls, count: int, width: int, options: IndexOptions) -> Products | None:
        """The bytes of a graph; one of every m vectors, at random, is in the next layer too."""
        if not count:
            return None
        m = options.hnsw_m
        return [
            Product(count, "vectors", 4 * width, f"{width} numbers of 4"),
            Product(count, "vectors", 4 * 2 * m, f"{2 * m} links of 4"),
            Product(round(count / (m - 1)), "places in upper layers", 4 * m, f"{m} links of 4"),
            Product(count, "vectors", 12, "layers, where its links begin"),
            Product(1, "end", 8),
        ]


def _graph_offsets(levels: np.ndarray, neighbours: np.ndarray, count: int, m: int) -> np.ndarray:
    """The offsets of the neighbours of each vector (n + 1,); a ValueError if a link leads outside.

    A vector has 2m neighbours in the lowest layer and m in each of its other layers.
    """
    require(levels.shape == (count,) and neighbours.ndim == 1, "has another number of vectors")
    require(1 <= levels.min(initial=1) <= levels.max(initial=1) < 64, "has impossible layers")
    slots = m * (levels.astype(np.int64) + 1)
    offsets = starts_of(slots)
    require(len(neighbours) == offsets[-1], "has another number of links")
    require(-1 <= neighbours.min(initial=0) <= neighbours.max(initial=-1) < count, "has a link that leads nowhere")
    high = np.flatnonzero(levels > 1)  # few vectors; links of the upper layers must lead to vectors of those layers
    inside = np.arange(m * (int(levels.max(initial=1)) + 1))[None] < slots[high, None]
    where = (offsets[high, None] + np.arange(inside.shape[1]))[inside]
    layer = np.broadcast_to(np.maximum(np.arange(inside.shape[1]) // m - 1, 0), inside.shape)[inside]
    target = neighbours[where]
    require((levels[target[target >= 0]] > layer[target >= 0]).all(), "has a link to a layer that is not there")
    return offsets.astype(np.uint64)


@dataclass(frozen=True)
class Lists:
    """Vectors as short codes in lists of near vectors (IVF-PQ). Scores are those of the codes."""

    arrays_of: ClassVar[tuple[str, ...]] = ("coarse", "codebooks", "sizes", "members", "codes")
    part: ClassVar[str] = "codes"
    index: Any
    options: IndexOptions

    @classmethod
    def build(cls, vectors: np.ndarray, options: IndexOptions) -> Lists | None:
        """Lists and codes, learned from the vectors and filled with them; None if there are too few to learn from."""
        if len(vectors) < TRAINING << options.nbits:
            return None
        made = cls._empty(vectors.shape[1], _list_count(len(vectors), options.nlist), options)
        made.index.train(np.ascontiguousarray(_sample(vectors, 256 * max(made.index.nlist, 256)), np.float32))
        for part in chunks(vectors):
            made.index.add(part)
        return made

    @classmethod
    def _empty(cls, width: int, lists: int, options: IndexOptions) -> Lists:
        faiss = faiss_library()
        quantizer = faiss.IndexFlatIP(width)
        pieces = _piece_count(width, options.pq_m)
        index = faiss.IndexIVFPQ(quantizer, width, lists, pieces, options.nbits, faiss.METRIC_INNER_PRODUCT)
        index.nprobe = _probes(lists, options)
        return cls(index, options)

    def arrays(self) -> dict[str, np.ndarray]:
        """Centroids of lists and codes; and all lists end to end, with their members and codes."""
        faiss, index = faiss_library(), self.index
        sizes = np.array([index.invlists.list_size(number) for number in range(index.nlist)], np.int64)
        ids = [_copied(faiss, index.invlists.get_ids(number), int(size)) for number, size in enumerate(sizes)]
        width = index.code_size
        codes = [
            _copied(faiss, index.invlists.get_codes(number), int(size) * width) for number, size in enumerate(sizes)
        ]
        return {
            "coarse": index.quantizer.reconstruct_n(0, index.nlist),  # (lists, d)
            "codebooks": faiss.vector_to_array(index.pq.centroids),  # (2 ** nbits * d,)
            "sizes": sizes,  # (lists,)
            "members": np.concatenate(ids),  # (n,)
            "codes": np.concatenate(codes).reshape(-1, width),  # (n, bytes)
        }

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], vectors: np.ndarray, options: IndexOptions) -> Lists:
        """The lists from their arrays."""
        sizes, members, codes = (np.asarray(arrays[name]) for name in ("sizes", "members", "codes"))
        count, width = vectors.shape
        made, faiss = cls._empty(width, len(sizes), options), faiss_library()
        index = made.index
        require(len(sizes) and arrays["coarse"].shape == (len(sizes), width), "has another number of lists")
        require(arrays["codebooks"].shape == (width << options.nbits,), "has other codebooks")
        for name in ("coarse", "codebooks"):
            require_finite(require_array(arrays[name], name, ("float32",), arrays[name].shape), name)
        require(codes.shape == (count, index.code_size) and codes.dtype == np.uint8, "has other codes")
        require(sizes.min(initial=0) >= 0 and sizes.sum() == count, "has lists of other sizes")
        require(np.array_equal(np.sort(members), np.arange(count)), "has other members in its lists")
        index.quantizer.add(np.ascontiguousarray(arrays["coarse"], np.float32))
        faiss.copy_array_to_vector(np.ascontiguousarray(arrays["codebooks"], np.float32), index.pq.centroids)
        index.is_trained, index.ntotal = True, count
        ends = np.cumsum(sizes)
        for number in np.flatnonzero(sizes).tolist():
            inside = slice(int(ends[number] - sizes[number]), int(ends[number]))
            ids = np.ascontiguousarray(members[inside], np.int64)
            part = np.ascontiguousarray(codes[inside])
            index.invlists.add_entries(number, len(ids), faiss.swig_ptr(ids), faiss.swig_ptr(part))
        return made

    def search(self, queries: np.ndarray, k: int, alive: np.ndarray | None) -> ScoresAndRows:
        """Search the lists nearest to each query."""
        nprobe = _probes(self.index.nlist, self.options)
        params = faiss_library().SearchParametersIVF(nprobe=nprobe, **_selector(alive))
        return filled(*self.index.search(queries, k, params=params), k)

    @property
    def bytes(self) -> int:
        """The bytes of codes, members and centroids."""
        lists, coarse = self.index.invlists, faiss_library().downcast_index(self.index.quantizer).codes.size()
        return lists.compute_ntotal() * (lists.code_size + 8) + coarse + 4 * self.index.pq.centroids.size()

    @classmethod
    def products(cls, count: int, width: int, options: IndexOptions) -> Products | None:
        """The bytes of codes and members of the lists, of their centroids, and of those of the codes."""
        if count < TRAINING << options.nbits:
            return None
        pieces, bits = _piece_count(width, options.pq_m), options.nbits
        return [
            Product(count, "vectors", -(-pieces * bits // 8), f"{pieces} codes of {bits} bits"),
            Product(count, "vectors", 8, "member"),
            Product(_list_count(count, options.nlist), "lists", 4 * width, f"{width} numbers of 4"),
            Product(2**bits, "codewords", 4 * width, f"{width} numbers of 4"),
        ]


def _probes(lists: int, options: IndexOptions) -> int:
    """How many of the lists are searched for a query."""
    return min(options.nprobe or max(8, lists // 32), lists)


def _copied(faiss: Any, pointer: object, count: int) -> np.ndarray:
    """A copy of an array of faiss."""
    return faiss.rev_swig_ptr(pointer, count).copy()


def _list_count(vectors: int, wanted: int) -> int:
    """The wanted number of lists, or a power of two near four times the square root; fewer if there are few vectors."""
    usual = 2 ** int(np.log2(4 * vectors**0.5))
    return max(1, min(wanted or usual, vectors // TRAINING))


def _piece_count(width: int, wanted: int) -> int:
    """The number of codes of a vector, each of which stands for equally many dimensions."""
    divisors = [pieces for pieces in range(1, width + 1) if width % pieces == 0]
    if not wanted:
        return max(pieces for pieces in divisors if pieces <= max(1, width // 4))
    if wanted not in divisors:
        raise UsageError(f"pq_m = {wanted} does not divide the width of the vectors, {width}", f"use one of {divisors}")
    return wanted


def _sample(vectors: np.ndarray, limit: int) -> np.ndarray:
    """A sorted random sample of at most `limit` vectors, always the same."""
    if len(vectors) <= limit:
        return vectors
    return vectors[np.sort(np.random.default_rng(0).choice(len(vectors), limit, replace=False))]


FINDERS: dict[str, type[Finder]] = {"hnsw": Graph, "ivfpq": Lists}
