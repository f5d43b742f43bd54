"""Docid schemes: ways to give every document a sequence of symbols, and a new one without starting over.

A scheme is a dataclass of options. `fit` gives docids to documents, `place` to one more; each scheme owns
its vocabulary, `width` symbols of it. No docid of a scheme is the beginning of another. Vectors come in
as tensors: nothing here knows a model.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from triever import config
from triever.config import option
from triever.data.records import Document
from triever.docids.quantize import (
    Tree,
    agglomerated,
    balanced_kmeans,
    cluster_tree,
    density_peaks,
    kmeans,
    nearest,
    nearest_few,
    nearest_several,
    residual_codebooks,
    residual_codes,
)
from triever.errors import UsageError
from triever.errors import nearest as closest
from triever.storage import ENTRY, LIST, PLACE, TUPLE, Product, Products, Thing, dict_size, python_bytes, scaled

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer

Docid: TypeAlias = tuple[int, ...]
UNITE = {"agglomerative": agglomerated, "density": density_peaks}
"""The ways to make larger clusters of small ones."""
FINE = 4
"""So many small ones for each of them."""
SEVERAL = 4
"""Clusters that a document may be in, at most."""


class Numbering(Counter[Docid]):
    """How many documents have each beginning of a docid, so that the next one there gets the next number."""

    def next(self, beginning: Docid, most: int) -> int:
        """The number of one more document; after so many it begins again, so that documents share docids."""
        self[beginning] += 1
        return (self[beginning] - 1) % most

    def to_lists(self) -> list[list[Any]]:
        """All of it as plain values; `of_lists` takes them back."""
        return [[list(beginning), count] for beginning, count in self.items()]

    @classmethod
    def of_lists(cls, lists: Iterable[Sequence[Any]]) -> Numbering:
        """What `to_lists` gave."""
        return cls({tuple(beginning): count for beginning, count in lists})

    def products(self, now: int, then: int) -> Products:
        """What it takes with `then` documents in place of `now`."""
        beginnings, symbols = scaled(len(self), now, then), scaled(sum(map(len, self)), now, then)
        return [
            Product(beginnings, "beginnings", TUPLE),
            Product(symbols, "symbols of them", PLACE),
            Product(1, "table of them", dict_size(beginnings, ENTRY)),
        ]


@dataclass(eq=False)
class Scheme(ABC):
    """What every scheme can do."""

    kind: ClassVar[str]
    needs_vectors: ClassVar[bool] = False
    shared: ClassVar[bool] = False
    """Whether new documents have docids that are there already, so that a larger corpus has no more of them."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many symbols there are."""

    @property
    def stop(self) -> int | None:
        """The symbol that ends every docid, where a scheme has one."""
        return None

    @abstractmethod
    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None) -> list[Docid]:
        """A docid for each document; vectors are (documents, d)."""

    @abstractmethod
    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        """A docid for a new document, without changing any other."""

    def others(self, vectors: Tensor | None) -> list[list[Docid]]:
        """For documents (documents, d) that have their docids, docids that they may have besides; [] where none may."""
        return []

    def readable(self, docid: Docid) -> str:
        """The docid for a person."""
        return "-".join(map(str, docid))

    def parse(self, text: str) -> Docid:
        """The docid that `readable` wrote."""
        return tuple(int(part) for part in text.split("-"))

    def symbol(self, symbol: int) -> str:
        """One symbol for a person."""
        return str(symbol)

    @property
    def names_vectors(self) -> bool:
        """Whether its symbols stand for vectors, where it is fitted with any."""
        return False

    def rows(self) -> Tensor | None:
        """(symbols, d) the vectors that the first symbols stand for, where they stand for any."""
        return None

    def stored(self) -> list[Thing]:
        """What takes memory of all that places new documents; a tokenizer's is not known."""
        return []

    def products(self, now: int, then: int) -> Products:
        """The same computed, for `then` documents in place of `now`."""
        return []

    @classmethod
    def of_options(cls, value: Any, where: str) -> Scheme:
        """A scheme that is an option: itself, its name, or a table with its kind."""
        if isinstance(value, Scheme):
            return value
        values = {"kind": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else {}
        kind = values.pop("kind", None)
        if kind not in SCHEMES:
            hint = closest(str(kind), SCHEMES) if kind else f"for example: {where}.kind=semantic"
            raise UsageError(f"{where} = {value!r} names no docid scheme", hint)
        return config.build(SCHEMES[kind], values, where=f"{where}.")

    @abstractmethod
    def write(self, writer: Writer) -> dict[str, Any]:
        """Put what was learned into an artifact; what is not a file is given back."""

    @abstractmethod
    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        """Take it out again."""

    def _vectors(self, vectors: Tensor | None, count: int) -> Tensor:
        if vectors is None or len(vectors) != count:
            have = "none" if vectors is None else len(vectors)
            raise UsageError(f"{self.kind} docids need a vector for each of {count} documents, and have {have}")
        if not count:
            raise UsageError(f"{self.kind} docids need documents to be fitted on, and there are none")
        return vectors.float()

    def _vector(self, vector: Tensor | None, like: Tensor | None) -> Tensor:
        """The vector of one new document, as (1, d), of the size of those (..., d) that were fitted."""
        if like is None:
            raise UsageError(f"the {self.kind} docids are not fitted", "call fit first")
        found = self._vectors(None if vector is None else vector[None], 1).to(like.device)
        if found.shape[1] != like.shape[-1]:
            problem = f"the new vector has {found.shape[1]} numbers, and the fitted ones {like.shape[-1]}"
            raise UsageError(problem, "use the encoder that the docids were fitted with")
        return found


@dataclass(eq=False)
class Atomic(Scheme):
    """One symbol for each document. A new one gets a new symbol, which a model has yet to learn.

    `untrained` has those symbols, each with the symbols of the nearest documents that were fitted: from their rows a
    model may begin (`widened` of a T5). Without vectors it names none.
    """

    kind: ClassVar[str] = "atomic"

    neighbours: int = option(5, "nearest documents whose rows a new document's row is made from")

    untrained: dict[int, list[int]] = field(default_factory=dict, init=False, repr=False)
    _count: int = field(default=0, init=False, repr=False)
    _known: Tensor | None = field(default=None, init=False, repr=False)  # (documents fitted, d)

    def __post_init__(self) -> None:
        config.validate(self)
        if self.neighbours < 1:
            raise UsageError(f"neighbours = {self.neighbours} should be above zero", "the default is 5")

    @property
    def width(self) -> int:
        return self._count

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None) -> list[Docid]:
        # A copy: these are looked at long after the fit, when the caller may have changed theirs.
        self._known = None if vectors is None or not documents else self._vectors(vectors, len(documents)).clone()
        self._count = len(documents)
        self.untrained = {}
        return [(number,) for number in range(self._count)]

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        symbol, near = self._count, self._nearest(vector)
        self._count += 1
        self.untrained[symbol] = near
        return (symbol,)

    def _nearest(self, vector: Tensor | None) -> list[int]:
        """The symbols of the nearest fitted documents; those placed since have no rows worth averaging."""
        if vector is None or self._known is None:
            return []
        return nearest_few(self._vector(vector, self._known)[0], self._known, self.neighbours).tolist()

    @property
    def names_vectors(self) -> bool:
        return True

    def rows(self) -> Tensor | None:
        return self._known

    def stored(self) -> list[Thing]:
        return [] if self._known is None else [self._known]

    def products(self, now: int, then: int) -> Products:
        if self._known is None:
            return []
        count, width = self._known.shape
        return [Product(scaled(count, now, then), "documents", 4 * width, f"vectors of {width} numbers of 4")]

    def apart(self, symbols: Sequence[int], vectors: Tensor) -> Tensor:
        """(symbols, d) how far the vectors of untrained symbols are from the mean of their neighbours'."""
        assert self._known is not None  # else they have no neighbours
        means = torch.stack([self._known[self.untrained[symbol]].mean(0) for symbol in symbols])
        return vectors.to(means) - means

    def write(self, writer: Writer) -> dict[str, Any]:
        if self._known is not None:
            writer.array("docid_vectors", self._known.cpu().numpy())
        return {"count": self._count, "untrained": [[symbol, near] for symbol, near in self.untrained.items()]}

    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        self._count = state["count"]
        self.untrained = {symbol: list(near) for symbol, near in state["untrained"]}
        if snapshot.has("docid_vectors"):
            self._known = torch.tensor(snapshot.array("docid_vectors"))


@dataclass(eq=False)
class Naive(Scheme):
    """The corpus's own id, character by character, and a stop symbol."""

    kind: ClassVar[str] = "naive"
    _letters: list[str] = field(default_factory=list, init=False, repr=False)

    @property
    def width(self) -> int:
        return len(self._letters) + 1

    @property
    def stop(self) -> int:
        return len(self._letters)

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None) -> list[Docid]:
        self._letters = sorted({letter for document in documents for letter in document.id})
        return [self.place(document) for document in documents]

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        number = {letter: at for at, letter in enumerate(self._letters)}
        for letter in document.id:
            if letter not in number:
                problem = (
                    f"the id {document.id!r} has the character {letter!r}, which no document had when this was fitted"
                )
                raise UsageError(problem, "give the document another id, or fit again")
        return (*(number[letter] for letter in document.id), self.stop)

    def readable(self, docid: Docid) -> str:
        return "".join(self._letters[symbol] for symbol in docid[:-1])

    def symbol(self, symbol: int) -> str:
        return self._letters[symbol] if symbol < len(self._letters) else "end"

    def parse(self, text: str) -> Docid:
        return self.place(Document(text, ""))

    def write(self, writer: Writer) -> dict[str, Any]:
        return {"letters": self._letters}

    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        self._letters = list(state["letters"])


@dataclass(eq=False)
class Semantic(Scheme):
    """The way down a tree of clusters, then the place inside the last one: near documents share prefixes."""

    kind: ClassVar[str] = "semantic"
    needs_vectors: ClassVar[bool] = True

    branch: int = option(10, "clusters inside a cluster")
    leaf: int = option(100, "documents that a cluster may hold without being split")
    positions: bool = option(False, "let a symbol at each depth be a symbol of its own (2D semantic)")
    seed: int = option(0, "another seed, other clusters")

    _tree: Tree | None = field(default=None, init=False, repr=False)
    _held: Numbering = field(default_factory=Numbering, init=False, repr=False)
    _depth: int = field(default=1, init=False, repr=False)
    _mean: Tensor | None = field(default=None, init=False, repr=False)  # (d,) of all vectors

    def __post_init__(self) -> None:
        config.validate(self)
        if self.branch < 2 or self.leaf < 1:
            raise UsageError(f"branch = {self.branch}, leaf = {self.leaf}", "branch is at least 2, leaf at least 1")

    @property
    def _symbols(self) -> int:
        return max(self.branch, self.leaf)

    @property
    def width(self) -> int:
        return self._symbols * (self._depth if self.positions else 1)

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None) -> list[Docid]:
        found = self._vectors(vectors, len(documents))
        self._mean = found.mean(0)
        self._tree = cluster_tree(found, self.branch, self.leaf, seed=self.seed)
        self._held = Numbering()
        paths = self._paths(found)
        self._depth = 1 + max(map(len, paths), default=0)
        return [self._numbered(path) for path in paths]

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        return self._numbered(self._paths(self._vector(vector, self._mean))[0])

    def _paths(self, vectors: Tensor) -> list[Docid]:
        return self._tree.paths(vectors) if self._tree else [() for _ in vectors]

    def _numbered(self, path: Docid) -> Docid:
        """The next place in a cluster."""
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

    def write(self, writer: Writer) -> dict[str, Any]:
        if self._tree:
            centroids, children = self._tree.arrays()
            writer.array("docid_centroids", centroids)
            writer.array("docid_children", children)
        if self._mean is not None:
            writer.array("docid_mean", self._mean.cpu().numpy())
        return {"held": self._held.to_lists(), "depth": self._depth}

    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        self._held = Numbering.of_lists(state["held"])
        self._depth = state["depth"]
        self._mean = torch.tensor(snapshot.array("docid_mean")) if snapshot.has("docid_mean") else None
        if snapshot.has("docid_centroids"):
            self._tree = Tree.of_arrays(snapshot.array("docid_centroids"), snapshot.array("docid_children"))


@dataclass(eq=False)
class Codebook(Scheme):
    """Residual quantization: a symbol from each codebook, then one that tells equal codes apart."""

    kind: ClassVar[str] = "codebook"
    needs_vectors: ClassVar[bool] = True

    levels: int = option(6, "how many codebooks")
    bits: int = option(8, "the logarithm of their size")
    positions: bool = option(True, "let each codebook have symbols of its own, which then stand for its vectors")
    seed: int = option(0, "another seed, other codebooks")

    _books: Tensor | None = field(default=None, init=False, repr=False)
    _held: Numbering = field(default_factory=Numbering, init=False, repr=False)

    def __post_init__(self) -> None:
        config.validate(self)
        if not (1 <= self.levels <= 32 and 1 <= self.bits <= 16):
            raise UsageError(f"levels = {self.levels}, bits = {self.bits}", "levels go up to 32 and bits up to 16")

    @property
    def _size(self) -> int:
        return 2**self.bits

    @property
    def width(self) -> int:
        return self._size * (self.levels + 1) if self.positions else self._size

    @property
    def names_vectors(self) -> bool:
        return self.positions

    def rows(self) -> Tensor | None:
        return self._books.flatten(0, 1) if self._books is not None and self.positions else None

    @property
    def collision_rate(self) -> float:
        """The share of documents whose code another one has too."""
        total = sum(self._held.values())
        return sum(count for count in self._held.values() if count > 1) / total if total else 0.0

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None) -> list[Docid]:
        found = self._vectors(vectors, len(documents))
        self._books = residual_codebooks(found, self.levels, self._size, seed=self.seed)
        self._held = Numbering()
        return self._numbered(residual_codes(found, self._books).tolist())

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        found = self._vector(vector, self._books)
        assert self._books is not None  # `_vector` saw to it
        return self._numbered(residual_codes(found, self._books).tolist())[0]

    def _numbered(self, codes: Iterable[Sequence[int]]) -> list[Docid]:
        docids: list[Docid] = [(*code, self._held.next(code, self._size)) for code in map(tuple, codes)]
        if not self.positions:
            return docids
        return [tuple(place * self._size + symbol for place, symbol in enumerate(docid)) for docid in docids]

    def stored(self) -> list[Thing]:
        return [*([] if self._books is None else [self._books]), python_bytes(self._held)]

    def products(self, now: int, then: int) -> Products:
        width = 0 if self._books is None else self._books.shape[2]
        books = Product(self.levels, "codebooks", 4 * self._size * width, f"{self._size} vectors")
        return [books, *self._held.products(now, then)]

    def write(self, writer: Writer) -> dict[str, Any]:
        if self._books is not None:
            writer.array("docid_codebooks", self._books.cpu().numpy())
        return {"held": self._held.to_lists()}

    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        self._held = Numbering.of_lists(state["held"])
        self._books = torch.tensor(snapshot.array("docid_codebooks"))


@dataclass(eq=False)
class Cluster(Scheme):
    """A fixed number of clusters, however large the corpus; all documents of one share its docid."""

    kind: ClassVar[str] = "cluster"
    needs_vectors: ClassVar[bool] = True
    shared: ClassVar[bool] = True

    clusters: int = option(1000, "how many")
    branch: int = option(10, "symbols at each step of a docid")
    method: Literal["kmeans", "balanced", "agglomerative", "density"] = option(
        "kmeans",
        "kmeans; balanced, none much larger than another; agglomerative or density, small ones that are united",
    )
    margin: float = option(
        0.0, "a document is in other clusters too that are farther than its own by at most this share of the distance"
    )
    seed: int = option(0, "another seed, other clusters")

    _centroids: Tensor | None = field(default=None, init=False, repr=False)
    _codes: list[Docid] = field(default_factory=list, init=False, repr=False)  # of each centroid; several may share one

    def __post_init__(self) -> None:
        config.validate(self)
        if self.clusters < 1 or self.branch < 2 or self.margin < 0:
            problem = f"clusters = {self.clusters}, branch = {self.branch}, margin = {self.margin}"
            raise UsageError(problem, "at least 1, 2 and 0")

    @property
    def width(self) -> int:
        return self.branch

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None) -> list[Docid]:
        found = self._vectors(vectors, len(documents))
        count = min(self.clusters, len(found))
        self._centroids, cluster, number = self._clustered(found, count)
        means = torch.stack([self._centroids[cluster == one].mean(0) for one in range(count)])
        # Clusters are coded as documents would be: near ones share the beginnings of their docids.
        coder = Semantic(self.branch, leaf=self.branch, seed=self.seed)
        codes = coder.fit([Document(str(one), "") for one in range(count)], means)
        self._codes = [codes[one] for one in cluster.tolist()]
        return [self._codes[one] for one in number.tolist()]

    def _clustered(self, vectors: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Centroids (m, d), the cluster that each belongs to (m,), and the centroid of each vector (n,)."""
        if self.method == "balanced":
            centroids, number = balanced_kmeans(vectors, count, seed=self.seed)
            return centroids, torch.arange(count), number
        unite = UNITE.get(self.method)
        centroids = kmeans(vectors, min(FINE * count, len(vectors)) if unite else count, seed=self.seed)
        number = nearest(vectors, centroids)[0]
        sizes = torch.bincount(number, minlength=len(centroids))
        return centroids, unite(centroids, sizes, count) if unite else torch.arange(count), number

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        found = self._vector(vector, self._centroids)
        assert self._centroids is not None  # `_vector` saw to it
        return self._codes[int(nearest(found, self._centroids)[0])]

    def others(self, vectors: Tensor | None) -> list[list[Docid]]:
        if not self.margin or vectors is None or self._centroids is None:
            return []
        number, distance = nearest_several(vectors.float().to(self._centroids.device), self._centroids, SEVERAL)
        near = distance <= (1 + self.margin) * distance[:, :1]
        listed = zip(number.tolist(), near.tolist(), strict=True)
        return [[self._codes[one] for one, there in zip(*row, strict=True) if there] for row in listed]

    def stored(self) -> list[Thing]:
        return [*([] if self._centroids is None else [self._centroids]), python_bytes(self._codes)]

    def products(self, now: int, then: int) -> Products:
        count, width = (0, 0) if self._centroids is None else self._centroids.shape
        codes = set(self._codes)  # several centroids may have one
        return [
            Product(count, "centroids", 4 * width, f"{width} numbers of 4"),
            Product(len(codes), "clusters", TUPLE),
            Product(sum(map(len, codes)), "symbols of them", PLACE),
            Product(len(self._codes), "places of them", PLACE),
            Product(1, "list of them", LIST),
        ]

    def write(self, writer: Writer) -> dict[str, Any]:
        if self._centroids is not None:
            writer.array("docid_centroids", self._centroids.cpu().numpy())
        return {"codes": [list(code) for code in self._codes]}

    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        self._codes = [tuple(code) for code in state["codes"]]
        self._centroids = torch.tensor(snapshot.array("docid_centroids"))


@dataclass(eq=False)
class Title(Scheme):
    """The title as word pieces, and a stop symbol. Equal titles share a docid, and one may begin another.

    With a backbone's tokenizer, symbol i is the backbone's token i, and the stop symbol comes after the last.
    """

    kind: ClassVar[str] = "title"

    vocabulary: int = option(8000, "word pieces at most; they are learned from the titles")
    tokenizer: str = option("", "a folder or tokenizer.json whose pieces to use; empty learns them from the titles")
    most: int = option(64, "pieces of a title that its docid has; titles that begin alike for so long share one")

    _given: Any = field(default=None, init=False, repr=False)  # a tokenizer
    _pieces: tuple[Any, int] | None = field(default=None, init=False, repr=False)  # a tokenizer, the stop symbol

    def __post_init__(self) -> None:
        config.validate(self)
        if not 100 <= self.vocabulary <= 10**7:
            problem = f"vocabulary = {self.vocabulary} should be from 100 to 10,000,000"
            raise UsageError(problem, "the default is 8000")
        if self.most < 1:
            raise UsageError(f"most = {self.most} leaves nothing of a title", "the default is 64")

    @classmethod
    def by(cls, tokenizer: Any, most: int = 64) -> Title:
        """Titles as the pieces of a tokenizer that is there already."""
        made = cls(most=most)
        made._given = tokenizer
        return made

    @property
    def width(self) -> int:
        return self.stop + 1

    @property
    def stop(self) -> int:
        return self._fitted[1]

    @property
    def _fitted(self) -> tuple[Any, int]:
        if self._pieces is None:
            raise UsageError("the word pieces are not learned", "call fit first")
        return self._pieces

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None) -> list[Docid]:
        names = [_name(document) for document in documents]
        self._pieces = _with_stop(self._given or self._found(names))
        tokenizer, stop = self._pieces
        encoded = tokenizer.encode_batch(names, add_special_tokens=False)
        return [(*encoding.ids[: self.most], stop) for encoding in encoded]

    def _found(self, names: Sequence[str]) -> Any:
        return load_pieces(self.tokenizer) if self.tokenizer else learn_pieces(names, self.vocabulary)

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        tokenizer, stop = self._fitted
        return (*tokenizer.encode(_name(document), add_special_tokens=False).ids[: self.most], stop)

    def readable(self, docid: Docid) -> str:
        tokenizer, _ = self._fitted
        return " ".join(_escaped(tokenizer.id_to_token(symbol)) for symbol in docid[:-1])

    def symbol(self, symbol: int) -> str:
        tokenizer, stop = self._fitted
        return "end" if symbol == stop else tokenizer.id_to_token(symbol)

    def parse(self, text: str) -> Docid:
        tokenizer, stop = self._fitted
        pieces = [_unescaped(piece) for piece in text.split(" ")] if text else []
        symbols = [tokenizer.token_to_id(piece) for piece in pieces]
        if None in symbols:
            strange = pieces[symbols.index(None)]
            raise UsageError(f"{strange!r} is not one of the word pieces", "write the docid as it was shown")
        return (*symbols, stop)

    def write(self, writer: Writer) -> dict[str, Any]:
        # A file of its own: a backbone's tokenizer has megabytes, and every change rewrites the manifest.
        writer.json("docid_pieces", json.loads(self._fitted[0].to_str()))
        return {}

    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        from tokenizers import Tokenizer

        self._pieces = _with_stop(Tokenizer.from_str(json.dumps(snapshot.json("docid_pieces"))))


def _with_stop(tokenizer: Any) -> tuple[Any, int]:
    """The symbol behind the last piece; not their number, as the ids of some tokenizers have gaps."""
    return tokenizer, 1 + max(tokenizer.get_vocab().values(), default=-1)


def _escaped(piece: str) -> str:
    r"""Some tokenizers have pieces with spaces, which are what stands between pieces here.

    >>> _escaped("a b"), _unescaped(r"a\_b")
    ('a\\_b', 'a b')
    """
    return piece.replace("\\", r"\\").replace(" ", r"\_")


def _unescaped(piece: str) -> str:
    return re.sub(r"\\(.)", lambda hit: " " if hit[1] == "_" else hit[1], piece)


def _name(document: Document) -> str:
    return document.title or document.id


def learn_pieces(titles: Sequence[str], vocabulary: int) -> Any:
    """A WordPiece tokenizer of these titles, always the same; what it has never seen becomes a piece that says so."""
    from tokenizers import models

    # The trainer numbers letters within words as its hash table has them, which is by chance, and of equally frequent
    # pairs it joins those with the smallest numbers. Letters in an order of ours leave nothing to chance.
    letters = _trained([UNKNOWN], titles, 0).get_vocab().keys() - {UNKNOWN}
    pieces = _trained([UNKNOWN, *sorted(letters)], titles, vocabulary).get_vocab()
    # Made anew: to the trained one, every letter is a special token, which is a piece wherever it stands.
    tokenizer = _splitter()
    tokenizer.model = models.WordPiece(vocab=pieces, unk_token=UNKNOWN)
    return tokenizer


def _trained(first: Sequence[str], titles: Sequence[str], vocabulary: int) -> Any:
    """A tokenizer with these pieces, all letters, and then the most frequent pieces while there is room."""
    from tokenizers import trainers

    tokenizer = _splitter()
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=list(first), show_progress=False)
    tokenizer.train_from_iterator(titles, trainer)
    return tokenizer


def _splitter() -> Any:
    """A tokenizer that knows what words are, and no pieces yet."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def load_pieces(path: str) -> Any:
    """The tokenizer of a file, or of a folder's tokenizer.json, that gives all pieces of a title and no others."""
    from tokenizers import Tokenizer

    file = Path(path, "tokenizer.json") if Path(path).is_dir() else Path(path)
    hint = "name a tokenizer.json or a folder with one, as save_pretrained of a transformers tokenizer writes it"
    if not file.is_file():
        raise UsageError(f"tokenizer = {path!r}: there is no file {file}", hint)
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # what it raises has no other type
        raise UsageError(f"tokenizer = {path!r}: {file} is not a tokenizer: {error}", hint) from error
    tokenizer.no_padding()  # some files ask for both
    tokenizer.no_truncation()
    return tokenizer


UNKNOWN = "[UNK]"

SCHEMES: dict[str, type[Scheme]] = {
    scheme.kind: scheme for scheme in (Atomic, Cluster, Codebook, Naive, Semantic, Title)
}
