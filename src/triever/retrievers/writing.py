"""What a generative retriever holds: a model that writes, the docids that exist, and what names new documents.

How it is taught is `generative`'s, how it is searched `docid_search`'s; here is what it takes in memory, and on disk.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from triever import artifact, config
from triever.docids.schemes import Atomic, Docid, Scheme
from triever.docids.trie import Paths, Trie, TrieShape
from triever.docids.walk import Walk
from triever.models import docid_model
from triever.models import encoder as encoders
from triever.models.encoder import Encoder
from triever.models.t5 import T5, laid_out, split_rows
from triever.storage import Product, Products, Stored, Thing, scaled, weight_products, weights_in
from triever.validation import require, require_array, require_table


@dataclass(frozen=True)
class Reading:
    """How the encoder that docids were made with reads texts; new documents and queries are read the same way."""

    query_prefix: str = ""
    document_prefix: str = ""
    document_length: int = 256


@dataclass(frozen=True)
class Writing:
    """A model that writes docids, the docids that exist, and what gives docids to new documents."""

    model: T5
    scheme: Scheme
    trie: Trie
    numbers: np.ndarray  # (documents,) under which number each row is in the trie, rising
    placer: Encoder | None  # whose vectors the scheme places new documents by
    trained: Mapping[str, Any] = field(default_factory=dict)
    reading: Reading = Reading()

    @cached_property
    def walk(self) -> Walk:
        """The trie on the model's device."""
        return Walk(self.trie, self.model.device)

    def docid(self, number: int) -> Docid:
        """The docid of a document by its number."""
        paths, order = self._paths
        entry = order[np.searchsorted(paths.document, number, sorter=order)]
        return tuple(paths.flat[paths.start[entry] : paths.start[entry + 1]].tolist())

    def listed(self) -> list[Thing]:
        """All that docids are looked up in."""
        paths, order = self._paths
        return [paths.flat, paths.start, paths.document, order, *(part.parent for part in self.trie.parts)]

    @cached_property
    def _paths(self) -> tuple[Paths, np.ndarray]:
        """All docids end to end, and in which order their documents rise."""
        paths = self.trie.paths()
        return paths, paths.document.argsort(kind="stable")

    def without(self, keep: np.ndarray) -> Writing:
        """The same without some of its rows."""
        return replace(self, trie=self.trie.without(self.numbers[~keep].tolist()), numbers=self.numbers[keep])

    # Memory

    def stored(self) -> Stored:
        """All that it holds, by what it is for."""
        rows, others = split_rows(self.model)
        return {
            "weights": [*others],
            "docid rows": [*rows],
            **self.trie.stored(),
            "walk": self.walk.stored(),
            "docids": self.listed(),
            "numbers": [self.numbers],
            "placer": [*weights_in(self.placer)],
            "placing": self.scheme.stored(),
        }

    def products(self, now: int, then: int) -> dict[str, Products]:
        """How many bytes the same takes for so many documents, by what is known of those that there are now."""
        shape = self.trie_shape(now, then)
        return {
            "weights": weight_products(split_rows(self.model)[1]),
            "docid rows": self.row_products(now, then),
            "trie": shape.products(),
            "walk": shape.walk_products(),
            "docids": shape.path_products(),
            "numbers": [Product(then, "documents", 8)],
            "placer": weight_products(weights_in(self.placer)),
            "placing": self.scheme.products(now, then),
        }

    def trie_shape(self, now: int, then: int) -> TrieShape:
        """How large the trie is then."""
        scheme = self.scheme
        shape = self.trie.shape(scaled(scheme.width, now, then) if isinstance(scheme, Atomic) else scheme.width)
        return shape.among(now, then, fixed=scheme.shared)

    def row_products(self, now: int, then: int) -> Products:
        """Rows that symbols are written with, and rows that they are read as: only atomic docids have more and more."""
        shape = self.model.shape
        row = 4 * shape.d_model, f"{shape.d_model} numbers of 4"
        if self.scheme.single:
            grows = isinstance(self.scheme, Atomic)
            count, what = (scaled(shape.width, now, then), "documents") if grows else (shape.width, "clusters")
            return [Product(count, what, *row), Product(1, "beginning", *row)]
        read = Product(max(shape.width, shape.start + 1), "symbols that are read", *row)
        return [read] if shape.tied else [Product(shape.width, "symbols that are written", *row), read]

    # Keeping

    def write(self, writer: artifact.Writer) -> dict[str, Any]:
        """Put it into an artifact; what is returned belongs into its state."""
        docid_model.write(self.model, writer)
        self.trie.write(writer)
        writer.array("docid_numbers", self.numbers)
        if self.placer:
            encoders.write(self.placer, writer, "placer")
        state = {"docids": self.scheme.write(writer), "trained": dict(self.trained)}
        return {**state, "reading": asdict(self.reading)}

    @staticmethod
    def read(snapshot: artifact.Snapshot, scheme: Scheme, place: torch.device) -> Writing:
        """What an artifact holds, with docids by a scheme of these options."""
        scheme = copy.deepcopy(scheme)
        scheme.read(snapshot, require_table(snapshot.state, "docids"))
        model = docid_model.read(snapshot).to(place)
        placer = encoders.read(snapshot, "placer").to(place) if snapshot.has("placer") else None
        numbers = require_array(snapshot.array("docid_numbers"), "docid_numbers", ("int64",), (snapshot.documents,))
        require((numbers[1:] > numbers[:-1]).all() and (numbers[:1] >= 0).all(), "its documents' numbers do not rise")
        trie = Trie.read(snapshot, scheme.width, numbers)
        require(scheme.stop is None or trie.ends_with(scheme.stop), "a docid does not end with the stop symbol")
        require(scheme.has_symbols(trie.symbols()), "a docid has a symbol that its scheme does not know")
        reading = config.build(Reading, require_table(snapshot.state, "reading"))  # earlier ones read without prefixes
        trained = require_table(snapshot.state, "trained")
        return Writing(laid_out(model), scheme, trie, np.asarray(numbers), placer, trained, reading)

    def fields(self) -> dict[str, Any]:
        """What it is made of, for one that is made of more."""
        return {one.name: getattr(self, one.name) for one in fields(Writing)}


def entries_of(
    docids: Sequence[Docid], others: Sequence[Sequence[Docid]], numbers: Iterable[int]
) -> Iterator[tuple[Docid, int]]:
    """Every docid with the number of its document; some documents have others besides."""
    for at, (docid, number) in enumerate(zip(docids, numbers, strict=True)):
        yield docid, number
        for other in dict.fromkeys(others[at] if others else ()):
            if other != docid:
                yield other, number
