"""One vector for each document, searched by inner product: exactly, through a graph, or through short codes.

Knows nothing about models or text: documents are rows. Callers who want the cosine give vectors of length
one. An index never changes; adding and deleting give new indexes that share the old arrays, and rows are always
numbered as if the index had been built from the remaining vectors.

    flat     every vector is compared, in chunks, on the CPU or on a CUDA device
    hnsw     a graph of near neighbours (faiss), walked from far to near
    ivfpq    vectors as short codes in lists (faiss), some of which are searched for a query

Added vectors are in an annex that is searched exactly; deleted ones are masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from triever import config
from triever.artifact import RESAVE
from triever.changes import Changes
from triever.errors import ArtifactError, UsageError
from triever.index.checks import at_least, checked, mask_of, same_width
from triever.index.finders import FINDERS, Finder
from triever.index.options import IndexOptions
from triever.index.top import CHUNK, Running, ScoresAndRows, filled, merged, nothing, ordered, resident, stacked
from triever.memory_parts import Product, Products, Stored, Thing
from triever.models.precision import device_of
from triever.progress import phase
from triever.validation import require, require_finite

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer

QUERIES = 1024
"""The number of queries that are compared with a chunk of vectors at once."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """An array of vectors, and its tensor on the device of a search."""

    array: np.ndarray  # (n, d) float32 or float16
    device: torch.device

    def __len__(self) -> int:
        return len(self.array)

    @cached_property
    def tensor(self) -> Tensor:
        """(n, d), on the device if there is room."""
        return resident(self.array, self.device)

    def read(self, span: slice) -> Tensor:
        """(n, d) a slice of the vectors, on the device."""
        return self.tensor[span].to(self.device, torch.float32)

    def search(self, queries: np.ndarray, k: int, alive: np.ndarray | None) -> ScoresAndRows:
        """The k greatest inner products with the living vectors (n,), and their positions."""
        k = min(k, len(self))
        several = np.split(queries, range(QUERIES, len(queries), QUERIES))
        return stacked(self._search(part, k, alive) for part in several)

    def _search(self, queries: np.ndarray, k: int, alive: np.ndarray | None) -> ScoresAndRows:
        running = Running(len(queries), k, self.device)
        for first, scores in self._scored(queries, alive):
            running.add(scores, first)
        return running.result()

    def log_sum_exp(self, queries: np.ndarray, temperature: float, alive: np.ndarray | None) -> np.ndarray:
        """(queries,) the log of the sum of exp(inner product / temperature) over the living vectors (n,)."""
        several = np.split(queries, range(QUERIES, len(queries), QUERIES))
        return np.concatenate([self._log_sum_exp(part, temperature, alive) for part in several])

    def _log_sum_exp(self, queries: np.ndarray, temperature: float, alive: np.ndarray | None) -> np.ndarray:
        total = torch.full((len(queries),), -torch.inf, dtype=torch.float64, device=self.device)
        for _, scores in self._scored(queries, alive):
            total = torch.logaddexp(total, (scores.double() / temperature).logsumexp(1))
        return total.cpu().numpy()

    def _scored(self, queries: np.ndarray, alive: np.ndarray | None) -> Iterator[tuple[int, Tensor]]:
        """The inner products with a chunk of vectors after the other, and where it begins; -inf for deleted vectors."""
        query = torch.from_numpy(queries).to(self.device)
        mask = None if alive is None else torch.from_numpy(~alive).to(self.device)
        rows = max(1, CHUNK // max(len(queries), self.array.shape[1]))
        for first in range(0, len(self), rows):
            scores = query @ self.tensor[first : first + rows].to(self.device, torch.float32).T
            if mask is not None:
                scores.masked_fill_(mask[first : first + rows], -torch.inf)
            yield first, scores

    def products(self, queries: np.ndarray, places: np.ndarray) -> np.ndarray:
        """The inner products of each query with the vectors at its places (queries, k); -inf where the place is -1."""
        scores = np.full(places.shape, -np.inf, np.float32)
        step = max(1, CHUNK // max(1, places.shape[1] * self.array.shape[1]))
        for first in range(0, len(queries), step):
            part = slice(first, first + step)
            near = torch.from_numpy(np.maximum(places[part], 0)).to(self.tensor.device)
            rows = self.tensor[near].to(self.device, torch.float32)  # (queries, k, d)
            products = torch.einsum("qd,qkd->qk", torch.from_numpy(queries[part]).to(self.device), rows)
            scores[part] = np.where(places[part] < 0, -np.inf, products.cpu().numpy())
        return scores


@dataclass(frozen=True, eq=False)
class VectorIndex:
    """Vectors by row: `VectorIndex.of(vectors, IndexOptions()).search(queries, k=10)`."""

    options: IndexOptions
    main: Vectors  # in the finder
    annex: Vectors  # added later
    changes: Changes
    finder: Finder | None  # None if every vector is compared

    @classmethod
    @phase("building an index of vectors")
    def of(cls, vectors: np.ndarray, options: IndexOptions | None = None) -> VectorIndex:
        """Build an index of vectors (n, d). A mapped array of the right type is not copied."""
        options = options or IndexOptions()
        device, array = device_of(options.device), checked(vectors, options.dtype)
        finder = FINDERS[options.kind].build(array, options) if options.kind in FINDERS else None
        return cls(options, Vectors(array, device), Vectors(array[:0], device), Changes(len(array)), finder)

    def __len__(self) -> int:
        return len(self.changes)

    @property
    def width(self) -> int:
        """The number of dimensions of a vector."""
        return self.main.array.shape[1]

    @property
    def built_from(self) -> int:
        """How many vectors it was built from, deleted ones included."""
        return len(self.main)

    def about(self) -> dict[str, Any]:
        """What has to be known of it as a shard."""
        return {"rows": len(self), "width": self.width, "options": self.options}

    @property
    def bytes(self) -> int:
        """The bytes that a search reads: vectors, graph or codes, masks.

        Rescoring reads only a few of the stored vectors, which may stay on the disk, and are not counted.
        """
        main = self.main.array.nbytes if self.finder is None else self.finder.bytes
        return main + sum(array.nbytes for array in self._changed())

    def stored(self) -> Stored:
        """What takes memory, by part."""
        changes: list[Thing] = [*self._changed()]
        if self.finder is None:
            return {"vectors": [self.main.array], "changes": changes}
        return {self.finder.part: [self.finder.bytes], "stored vectors": [self.main.array], "changes": changes}

    def _changed(self) -> list[np.ndarray]:
        """The arrays besides the main part."""
        return [self.annex.array, *self.changes.arrays(), *([self.changes.slot_of] if self.changes.arrays() else [])]

    @property
    def _rescore(self) -> int:
        return self.options.rescore if self.options.kind == "ivfpq" else 0

    def vectors(self) -> np.ndarray:
        """The vectors by row (n, d), as a rebuild would take them."""
        if self.changes.none:
            return self.main.array
        both = zip((self.main, self.annex), self.changes.masks, strict=True)
        return np.concatenate([part.array if mask is None else part.array[mask] for part, mask in both])

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The vectors (m, d) of rows (m,)."""
        rows = np.asarray(rows, np.int64)
        slots = rows if self.changes.alive is None else self.changes.slot_of[rows]
        taken = np.empty((len(slots), self.width), self.main.array.dtype)
        added = slots >= len(self.main)
        taken[~added] = self.main.array[slots[~added]]
        taken[added] = self.annex.array[slots[added] - len(self.main)]
        return taken

    def rebuilt(self, options: IndexOptions) -> VectorIndex:
        """The same vectors in an index with other options."""
        return VectorIndex.of(self.vectors(), options)

    def search(self, queries: np.ndarray, k: int) -> ScoresAndRows:
        """The scores (q, k) and rows (q, k) of the best vectors for each query (q, d), best first.

        Only if there are fewer than k vectors, the rest are -inf and -1. Of equal scores the smaller row comes first.
        """
        wanted = self._wanted(queries)
        at_least("k", k, 1)
        if not len(wanted) or not self.changes.slots:
            return nothing(len(wanted), k)
        main, annex = self._search_main(wanted, k), self._search_annex(wanted, k)
        scores, places = merged(main, annex, k)
        return scores, self.changes.rows(places)

    def log_sum_exp(self, queries: np.ndarray, temperature: float) -> np.ndarray:
        """(q,) the log of the sum of exp(score / temperature) over all vectors, whatever the kind of the index.

        With it a score becomes the log-probability of a softmax over everything: score / temperature - log_sum_exp.
        """
        wanted = self._wanted(queries)
        if not temperature > 0:
            raise UsageError(f"temperature = {temperature} should be above zero", "scores are divided by it")
        both = zip((self.main, self.annex), self.changes.masks, strict=True)
        return np.logaddexp(*(part.log_sum_exp(wanted, temperature, alive) for part, alive in both))

    def _wanted(self, queries: np.ndarray) -> np.ndarray:
        """The vectors of queries, checked; a copy: torch wants writable arrays."""
        wanted = np.array(checked(queries, "float32"))
        if wanted.shape[1] != self.width:
            raise UsageError(
                f"queries have {wanted.shape[1]} numbers, but vectors {self.width}", "use one encoder for both"
            )
        return wanted

    def _search_annex(self, queries: np.ndarray, k: int) -> ScoresAndRows:
        scores, places = self.annex.search(queries, k, self.changes.masks[1])
        return scores, np.where(places < 0, -1, places + len(self.main))

    def _search_main(self, queries: np.ndarray, k: int) -> ScoresAndRows:
        alive = self.changes.masks[0]
        living = len(self.main) if alive is None else int(alive.sum())
        if self.finder is None or not living:
            return self.main.search(queries, k, alive)
        scores, places = self._search_finder(self.finder, queries, min(k, living), alive)
        short = (places >= 0).sum(1) < min(k, living)
        if short.any():  # unreachable vectors of the graph, or short lists: search all
            scores[short], places[short] = self.main.search(queries[short], min(k, living), alive)
        return scores, places

    def _search_finder(self, finder: Finder, queries: np.ndarray, k: int, alive: np.ndarray | None) -> ScoresAndRows:
        if not self._rescore:
            return finder.search(queries, k, alive)
        _, places = finder.search(queries, min(max(k, self._rescore), len(self.main)), alive)
        scores = self.main.products(queries, places)
        by = ordered(torch.from_numpy(scores), torch.from_numpy(places))
        return filled(by[0].numpy(), by[1].numpy(), k)

    def with_added(self, vectors: np.ndarray) -> VectorIndex:
        """An index with these vectors too, in the last rows. The main part stays until the annex has grown."""
        new = checked(vectors, self.options.dtype)
        same_width(new, self.width)
        if not len(new):
            return self
        changes = self.changes.added(len(new))
        if changes.due:
            return VectorIndex.of(np.concatenate([self.vectors(), new]), self.options)
        annex = Vectors(np.concatenate([self.annex.array, new]), self.annex.device)
        return replace(self, annex=annex, changes=changes)

    def without(self, keep: np.ndarray) -> VectorIndex:
        """An index of the rows that are kept (n,) bool. It is rebuilt when less than half is left."""
        keep = mask_of(keep, len(self))
        if keep.all():
            return self
        smaller = replace(self, changes=self.changes.kept(keep))
        return VectorIndex.of(smaller.vectors(), self.options) if smaller.changes.due else smaller

    def among(self, keep: np.ndarray) -> VectorIndex:
        """An index of the rows that are kept (n,) bool, for searches alone: few of them are all compared."""
        smaller = replace(self, changes=self.changes.kept(mask_of(keep, len(self))))
        return VectorIndex.of(smaller.vectors(), replace(self.options, kind="flat")) if smaller.changes.due else smaller

    def write(self, writer: Writer, name: str = "vectors") -> None:
        """Write the index into an artifact, in files whose names begin with `name`.

        Exact indexes are written without deleted vectors. The others keep these, masked, until the next rebuild:
        removing them would take a rebuild now. Each shard has an index of its own, built of its vectors.
        """
        if writer.bounds:
            vectors = self.vectors()
            for shard, rows in zip(writer.in_shards(), writer.bounds.row_slices(), strict=True):
                VectorIndex.of(vectors[rows], self.options).write(shard, name)
            return
        compact = self if self.finder else VectorIndex.of(self.vectors(), self.options)
        arrays = {"main": compact.main.array, "annex": compact.annex.array}
        if compact.changes.alive is not None:
            arrays["alive"] = compact.changes.alive
        arrays |= compact.finder.arrays() if compact.finder else {}
        for role, array in arrays.items():
            writer.array(f"{name}_{role}", array)
        state = {"options": config.to_dict(self.options), "arrays": {key: list(arrays[key].shape) for key in arrays}}
        writer.json(f"{name}_state", state)

    @classmethod
    def read(cls, snapshot: Snapshot, name: str = "vectors", device: str | None = None) -> VectorIndex:
        """Read an index from an artifact, memory-mapped, for `device` or its old device; for cpu if that is missing."""
        state = snapshot.json(f"{name}_state")
        try:
            options = config.build(IndexOptions, state["options"] | ({"device": device} if device else {}))
            where = device_of(options.device, opening=True)
            if options.device != "auto":
                options = replace(options, device=str(where))  # the device of a rebuild after changes
            arrays = {role: snapshot.array(f"{name}_{role}") for role in state["arrays"]}
            _check_stored(arrays, state["arrays"], options)
            finder = _read_finder(arrays, options)
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{snapshot.path}: the index {name!r} {error}", RESAVE) from error
        main, annex = Vectors(arrays["main"], where), Vectors(arrays["annex"], where)
        return cls(options, main, annex, Changes(len(main), len(annex), arrays.get("alive")), finder)


def vector_products(count: int, width: int, options: IndexOptions) -> dict[str, Products]:
    """The bytes of an index of `count` vectors, by part."""
    number = {"float32": 4, "float16": 2}[options.dtype]
    vectors = [Product(count, "vectors", number * width, f"{width} numbers of {number}")]
    finder = FINDERS.get(options.kind)
    finder_products = finder.products(count, width, options) if finder else None
    return (
        {finder.part: finder_products, "stored vectors": vectors}
        if finder and finder_products
        else {"vectors": vectors}
    )


def _check_stored(arrays: dict[str, np.ndarray], shapes: dict[str, list[int]], options: IndexOptions) -> None:
    """Raise a ValueError unless the arrays are those that the state describes, and fit each other."""
    for role, array in arrays.items():
        require(list(array.shape) == shapes[role], f"has {role} of another shape")
    main, annex, alive = arrays["main"], arrays["annex"], arrays.get("alive")
    require(main.ndim == 2 and annex.ndim == 2 and main.shape[1] == annex.shape[1] > 0, "has vectors of two widths")
    require(main.dtype == annex.dtype == options.dtype, f"has vectors that are not {options.dtype}")
    stored = (len(main) + len(annex),)
    require(alive is None or (alive.shape == stored and alive.dtype == bool), "has another mask")
    for name, vectors in (("main", main), ("annex", annex)):
        require_finite(vectors, name)


def _read_finder(arrays: dict[str, np.ndarray], options: IndexOptions) -> Finder | None:
    kind = FINDERS.get(options.kind)
    if kind is None or not set(kind.arrays_of) & set(arrays):
        return None  # exact, or too small for anything else when it was saved
    return kind.of_arrays({role: arrays[role] for role in kind.arrays_of}, arrays["main"], options)
