"""Docid schemes: ways to give every document a sequence of symbols, and a new one without starting over.

A scheme is a dataclass of options. `fit` gives docids to documents, `place` to one more; each scheme owns
its vocabulary, `width` symbols of it. No docid of a scheme is the beginning of another. Vectors come in
as tensors: nothing here knows a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from triever import config
from triever.config import option
from triever.data.records import Document
from triever.docids.quantize import Tree, cluster_tree, kmeans, nearest, residual_codebooks, residual_codes
from triever.errors import UsageError

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer

Docid: TypeAlias = tuple[int, ...]


@dataclass(eq=False)
class Scheme(ABC):
    """What every scheme can do."""

    kind: ClassVar[str]
    needs_vectors: ClassVar[bool] = False

    @property
    @abstractmethod
    def width(self) -> int:
        """How many symbols there are."""

    @abstractmethod
    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None) -> list[Docid]:
        """A docid for each document; vectors are (documents, d)."""

    @abstractmethod
    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        """A docid for a new document, without changing any other."""

    def readable(self, docid: Docid) -> str:
        """The docid for a person."""
        return "-".join(map(str, docid))

    def parse(self, text: str) -> Docid:
        """The docid that `readable` wrote."""
        return tuple(int(part) for part in text.split("-"))

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
        return vectors.float()

    def _vector(self, vector: Tensor | None) -> Tensor:
        """The vector of one new document, as (1, d)."""
        return self._vectors(None if vector is None else vector[None], 1)


@dataclass(eq=False)
class Atomic(Scheme):
    """One symbol for each document. A new one gets a new symbol, which a model has yet to learn."""

    kind: ClassVar[str] = "atomic"
    _count: int = field(default=0, init=False, repr=False)

    @property
    def width(self) -> int:
        return self._count

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None) -> list[Docid]:
        self._count = len(documents)
        return [(number,) for number in range(self._count)]

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        self._count += 1
        return (self._count - 1,)

    def write(self, writer: Writer) -> dict[str, Any]:
        return {"count": self._count}

    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        self._count = state["count"]


@dataclass(eq=False)
class Naive(Scheme):
    """The corpus's own id, character by character, and a stop symbol."""

    kind: ClassVar[str] = "naive"
    _letters: list[str] = field(default_factory=list, init=False, repr=False)

    @property
    def width(self) -> int:
        return len(self._letters) + 1

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
        return (*(number[letter] for letter in document.id), len(self._letters))

    def readable(self, docid: Docid) -> str:
        return "".join(self._letters[symbol] for symbol in docid[:-1])

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
    _held: Counter[Docid] = field(default_factory=Counter, init=False, repr=False)
    _depth: int = field(default=1, init=False, repr=False)

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
        self._tree = cluster_tree(found, self.branch, self.leaf, seed=self.seed)
        self._held = Counter()
        paths = [self._path(vector) for vector in found]
        self._depth = 1 + max(map(len, paths), default=0)
        return [self._numbered(path) for path in paths]

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        return self._numbered(self._path(self._vector(vector)[0]))

    def _path(self, vector: Tensor) -> Docid:
        return self._tree.path(vector) if self._tree else ()

    def _numbered(self, path: Docid) -> Docid:
        """The next place in a cluster; one that is full begins again, so that documents share docids."""
        docid = (*path, self._held[path] % self.leaf)
        self._held[path] += 1
        if not self.positions:
            return docid
        return tuple(depth * self._symbols + symbol for depth, symbol in enumerate(docid))

    def write(self, writer: Writer) -> dict[str, Any]:
        if self._tree:
            centroids, children = self._tree.arrays()
            writer.array("docid_centroids", centroids)
            writer.array("docid_children", children)
        held = [[list(path), count] for path, count in self._held.items()]
        return {"held": held, "depth": self._depth}

    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        self._held = Counter({tuple(path): count for path, count in state["held"]})
        self._depth = state["depth"]
        if "docid_centroids" in snapshot.manifest.files:
            self._tree = Tree.of_arrays(snapshot.array("docid_centroids"), snapshot.array("docid_children"))


@dataclass(eq=False)
class Codebook(Scheme):
    """Residual quantization: a symbol from each codebook, then one that tells equal codes apart."""

    kind: ClassVar[str] = "codebook"
    needs_vectors: ClassVar[bool] = True

    levels: int = option(6, "how many codebooks")
    bits: int = option(8, "the logarithm of their size")
    seed: int = option(0, "another seed, other codebooks")

    _books: Tensor | None = field(default=None, init=False, repr=False)
    _held: Counter[Docid] = field(default_factory=Counter, init=False, repr=False)

    def __post_init__(self) -> None:
        config.validate(self)
        if not (1 <= self.levels <= 32 and 1 <= self.bits <= 16):
            raise UsageError(f"levels = {self.levels}, bits = {self.bits}", "levels go up to 32 and bits up to 16")

    @property
    def width(self) -> int:
        return 2**self.bits

    @property
    def collision_rate(self) -> float:
        """The share of documents whose code another one has too."""
        total = sum(self._held.values())
        return sum(count for count in self._held.values() if count > 1) / total if total else 0.0

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None) -> list[Docid]:
        found = self._vectors(vectors, len(documents))
        self._books = residual_codebooks(found, self.levels, self.width, seed=self.seed)
        self._held = Counter()
        return self._numbered(residual_codes(found, self._books).tolist())

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        found = self._vector(vector)
        if self._books is None:
            raise UsageError("the codebooks are not fitted", "call fit first")
        return self._numbered(residual_codes(found, self._books).tolist())[0]

    def _numbered(self, codes: Iterable[Sequence[int]]) -> list[Docid]:
        docids = []
        for code in map(tuple, codes):
            docids.append((*code, self._held[code] % self.width))
            self._held[code] += 1
        return docids

    def write(self, writer: Writer) -> dict[str, Any]:
        if self._books is not None:
            writer.array("docid_codebooks", self._books.cpu().numpy())
        return {"held": [[list(code), count] for code, count in self._held.items()]}

    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        self._held = Counter({tuple(code): count for code, count in state["held"]})
        self._books = torch.tensor(snapshot.array("docid_codebooks"))


@dataclass(eq=False)
class Cluster(Scheme):
    """A fixed number of clusters, however large the corpus; all documents of one share its docid."""

    kind: ClassVar[str] = "cluster"
    needs_vectors: ClassVar[bool] = True

    clusters: int = option(1000, "how many")
    branch: int = option(10, "symbols at each step of a docid")
    seed: int = option(0, "another seed, other clusters")

    _centroids: Tensor | None = field(default=None, init=False, repr=False)
    _codes: list[Docid] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        config.validate(self)
        if self.clusters < 1 or self.branch < 2:
            raise UsageError(f"clusters = {self.clusters}, branch = {self.branch}", "at least 1 and 2")

    @property
    def width(self) -> int:
        return self.branch

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None) -> list[Docid]:
        found = self._vectors(vectors, len(documents))
        count = min(self.clusters, len(found))
        self._centroids = kmeans(found, count, seed=self.seed)
        # Clusters are coded as documents would be: near ones share the beginnings of their docids.
        coder = Semantic(self.branch, leaf=self.branch, seed=self.seed)
        self._codes = coder.fit([Document(str(number), "") for number in range(count)], self._centroids)
        return [self._codes[number] for number in nearest(found, self._centroids)[0].tolist()]

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        found = self._vector(vector)
        if self._centroids is None:
            raise UsageError("the clusters are not fitted", "call fit first")
        return self._codes[int(nearest(found, self._centroids)[0])]

    def write(self, writer: Writer) -> dict[str, Any]:
        if self._centroids is not None:
            writer.array("docid_centroids", self._centroids.cpu().numpy())
        return {"codes": [list(code) for code in self._codes]}

    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        self._codes = [tuple(code) for code in state["codes"]]
        self._centroids = torch.tensor(snapshot.array("docid_centroids"))


@dataclass(eq=False)
class Title(Scheme):
    """The title as word pieces, and a stop symbol. Equal titles share a docid, and one may begin another."""

    kind: ClassVar[str] = "title"

    vocabulary: int = option(8000, "word pieces at most; they are learned from the titles")

    _pieces: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        config.validate(self)
        if self.vocabulary < 100:
            raise UsageError(f"vocabulary = {self.vocabulary} is too small", "use at least 100, the default is 8000")

    @property
    def width(self) -> int:
        return self._tokenizer.get_vocab_size() + 1

    @property
    def _tokenizer(self) -> Any:
        if self._pieces is None:
            raise UsageError("the word pieces are not learned", "call fit first")
        return self._pieces

    def fit(self, documents: Sequence[Document], vectors: Tensor | None = None) -> list[Docid]:
        self._pieces = learn_pieces([_name(document) for document in documents], self.vocabulary)
        found = self._pieces.encode_batch([_name(document) for document in documents])
        return [(*encoding.ids, self.width - 1) for encoding in found]

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        return (*self._tokenizer.encode(_name(document)).ids, self.width - 1)

    def readable(self, docid: Docid) -> str:
        pieces = [self._tokenizer.id_to_token(symbol) for symbol in docid[:-1]]
        return " ".join(pieces)

    def parse(self, text: str) -> Docid:
        return (*(self._tokenizer.token_to_id(piece) for piece in text.split(" ")), self.width - 1)

    def write(self, writer: Writer) -> dict[str, Any]:
        return {"pieces": self._tokenizer.to_str()}

    def read(self, snapshot: Snapshot, state: dict[str, Any]) -> None:
        from tokenizers import Tokenizer

        self._pieces = Tokenizer.from_str(state["pieces"])


def _name(document: Document) -> str:
    return document.title or document.id


def learn_pieces(titles: Sequence[str], vocabulary: int) -> Any:
    """A WordPiece tokenizer of these titles; what it has never seen becomes one piece that says so."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=[UNKNOWN], show_progress=False)
    tokenizer.train_from_iterator(titles, trainer)
    return tokenizer


UNKNOWN = "[UNK]"

SCHEMES: dict[str, type[Scheme]] = {
    scheme.kind: scheme for scheme in (Atomic, Cluster, Codebook, Naive, Semantic, Title)
}
