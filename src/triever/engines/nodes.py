"""Docids whose every node has a row: documents are found by following the heaviest prefixes to the nearest rows.

A document has several docids, see `node_docids`; its probability is the sum of theirs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from triever import config
from triever.arrays import kth_greatest
from triever.artifact import Snapshot, Writer
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.docids.code_use import code_facts
from triever.docids.schemes import Docid, Scheme
from triever.docids.trie import Paths, Trie
from triever.docids.walk import Walk
from triever.engines.base import Parts
from triever.engines.docid_search import SearchOptions
from triever.engines.docid_tree import DocidTree, Symbols
from triever.engines.docids import Reading
from triever.engines.hits import together
from triever.engines.node_docids import Rows, is_numbered, numbered, passage_vectors, width_of
from triever.engines.node_search import Found, NodeSearch
from triever.engines.panels import Panel
from triever.engines.steady_nodes import IdsAndMask, QueryReader, SteadyNodes, can_be_steady
from triever.index.vectors import Vectors
from triever.memory_parts import Product, Products, Stored, scaled, weight_products, weights_in
from triever.models import encoder as encoders
from triever.models.encoder import Encoder, encode, reading_on, source_of
from triever.models.node_rows import NodeGenerator, NodeSums, Steering
from triever.models.tokens import Tokens
from triever.search.paths import path_scores
from triever.search.recorder import Recorder
from triever.validation import require, require_array, require_finite, require_table

WIDTH = 100
"""Prefixes that a beam keeps where nothing is set: looking at one is a product of two vectors."""


@dataclass(frozen=True)
class NodeEngine:
    """An encoder that reads queries, the docids of passages, and their rows."""

    reader: Encoder
    placer: Encoder  # which reads documents
    rows: Rows
    scheme: Scheme
    trie: Trie
    scale: float
    reading: Reading
    query_length: int
    limit: int  # passages of a document, at most, besides its whole text
    options: SearchOptions
    steering: Steering = field(default_factory=Steering)
    passage_mass: float = 1.0  # how much a passage counts beside a whole text
    trained: Mapping[str, Any] = field(default_factory=dict)
    depth: int | None = None  # symbols of docids that a beam follows before rows are compared; None: all

    # Searching

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The documents whose docids weigh most."""
        return [*self._results(store, (self._steady or self._searching).search(queries, k), k)]

    @cached_property
    def _steady(self) -> SteadyNodes | None:
        return self.made_steady() if self.options.records_on(self.reader.device) else None

    def made_steady(self) -> SteadyNodes | None:
        """A new search in fixed shapes, if it can be made in them."""
        if not can_be_steady(self._searching):
            return None
        reader, length = self.reader.eval(), self.reader.at_most(self.query_length)

        def tokenise(queries: Sequence[str]) -> IdsAndMask:
            return self._tokens(queries).all_padded(reader.tokenizer.pad)

        def vectors(ids: Tensor, mask: Tensor) -> Tensor:
            with reading_on(reader.device):
                return reader(ids, mask).float()

        return SteadyNodes(self._searching, QueryReader(tokenise, vectors, length))

    def _results(self, store: DocumentStore, found: Sequence[Found], k: int) -> Iterator[Result]:
        """The k best documents for each query, each with the docid of its passage that weighs most."""
        best = [self._best(query_found, k) for query_found in found]
        ids = together([rows for rows, *_ in best], store.ids.of)
        docids = together([positions for *_, positions in best], self._docids_of)
        certificate = f"exact: {len(self.rows)} rows compared" if self._searching.compares_all else ""
        for (_, masses, _), names, written in zip(best, ids, docids, strict=True):
            hits = zip(names, masses.tolist(), map(self._readable, written), strict=True)
            yield Result(ranked(Hit(name, mass, docid, mass) for name, mass, docid in hits)[:k], "", certificate)

    def _best(self, found: Found, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows of the k best documents and of those that tie with the last, which ids decide.

        With them what they weigh, and where the passage of each is that weighs most.
        """
        owners = self.rows.owners[found.positions]
        order = np.lexsort((found.positions, found.logprobs, owners))  # the heaviest passage of a document comes last
        owners, positions, logprobs = owners[order], found.positions[order], found.logprobs[order]
        first = np.flatnonzero(np.diff(owners, prepend=-1))
        heaviest = np.append(first[1:], len(owners))[: len(first)] - 1
        masses = np.logaddexp.reduceat(logprobs, first) if len(first) else logprobs
        best = masses >= kth_greatest(masses, k)
        return owners[heaviest][best], masses[best], positions[heaviest][best]

    def compared(self, queries: Sequence[str], k: int) -> float:
        """How many rows of nodes and docids are read for a query, as a share of the documents."""
        return self._searching.counted(queries, k) / max(1, len(queries)) / self._searching.documents

    @cached_property
    def _searching(self) -> NodeSearch:
        return NodeSearch(self.rows, self._row_vectors, self.generator, self.search_options, self.stops)

    @property
    def stops(self) -> int | None:
        """The length of the prefixes below which rows are compared; None if a beam goes to the ends of docids.

        What tells passages with the docid of one cluster apart is no symbol of it.
        """
        return self.deepest if self.depth is None and is_numbered(self.scheme) else self.depth

    @cached_property
    def deepest(self) -> int:
        """How many symbols docids have at most."""
        longest = int(np.diff(self._paths.start).max(initial=0))
        return max(0, longest - is_numbered(self.scheme))

    def _readable(self, docid: Docid) -> str:
        return self.scheme.readable(docid[:-1] if is_numbered(self.scheme) else docid)

    @property
    def search_options(self) -> SearchOptions:
        """How docids are searched, where nothing is left open."""
        return replace(self.options.following("documents"), width=self.options.width or WIDTH)

    @cached_property
    def walk(self) -> Walk:
        """The trie on the device of what reads."""
        return Walk(self.trie, self.reader.device)

    @cached_property
    def sums(self) -> list[NodeSums]:
        """What nodes weigh, for each part of the trie."""
        return [
            NodeSums.of(part, self._rows_of(part.document), self._mass_of(part.document), alive)
            for part, alive in zip(self.trie.parts, self.trie.alive, strict=True)
        ]

    def _rows_of(self, numbers: np.ndarray) -> Tensor:
        """(numbers, d) the rows of passages by their numbers; zeros for those that are deleted."""
        at = self.rows.places_of(numbers)
        rows = torch.from_numpy(self.rows.row[at].astype(np.float32))
        rows[torch.from_numpy(self.rows.numbers[at] != numbers)] = 0.0
        return rows.to(self.reader.device)

    def _mass_of(self, numbers: np.ndarray) -> Tensor:
        """(numbers,) how much passages count, by their numbers; anything for those that are deleted."""
        return torch.from_numpy(self.rows.mass[self.rows.places_of(numbers)]).to(self.reader.device)

    @cached_property
    def _row_vectors(self) -> Vectors:
        """The rows, where they are compared."""
        return Vectors(self.rows.row, self.reader.device)

    @cached_property
    def generator(self) -> NodeGenerator:
        """What leads a search."""
        return NodeGenerator(
            self.vectors, self.walk, self.sums, self.scale, self.steering, self._width, self.options.temperature
        )

    @property
    def _width(self) -> int:
        return width_of(self.scheme, self.rows.numbers)

    def vectors(self, queries: Sequence[str]) -> Tensor:
        """(queries, d) the vectors of queries."""
        return torch.from_numpy(encode(self.reader, self._tokens(queries))).to(self.reader.device)

    def _tokens(self, queries: Sequence[str]) -> Tokens:
        texts = (self.reading.query_prefix + query for query in queries)
        return Tokens.of(texts, self.reader.tokenizer, self.reader.at_most(self.query_length))

    def docid(self, position: int) -> Docid:
        """The docid of a passage."""
        return self._docids_of(np.array([position]))[0]

    def _docids_of(self, positions: np.ndarray) -> list[Docid]:
        """The docids of passages."""
        return self._paths.at(self._entries[positions])

    @cached_property
    def _paths(self) -> Paths:
        return self.trie.paths()

    @cached_property
    def _entries(self) -> np.ndarray:
        """(passages,) where in the paths the docid of each passage is."""
        order = self._paths.document.argsort(kind="stable")
        return order[np.searchsorted(self._paths.document, self.rows.numbers, sorter=order)]

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """What each symbol of a document's best docid adds to its weight, its other docids, and all documents."""
        if not len(result):
            return ()
        generator = self.generator
        cache, hidden = generator.prefill([query])
        weights = self._searching.weights(hidden)[0].cpu().numpy() / self.options.temperature
        return tuple(self._explained(generator, cache, hidden, weights, store, hit) for hit in result)

    def panels(self, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
        """The prefixes that the search looked at, where it does not compare every row."""
        recorder = Recorder()
        replace(self._searching, recorder=recorder).search([query], k)
        note = "" if self.stops is None else "Below the last prefixes that were kept, every row was compared."
        return self.docid_tree().beam(recorder, self.search_options, store, result, note=note)

    def docid_tree(self) -> DocidTree:
        """The docids of passages as a tree to look at."""
        rows, symbols = self.rows, Symbols(self.scheme, is_numbered(self.scheme))
        return DocidTree(self.walk, symbols, lambda numbers: rows.owners[rows.places_of(numbers)])

    def _explained(
        self,
        generator: NodeGenerator,
        cache: Tensor,
        hidden: Tensor,
        weights: np.ndarray,
        store: DocumentStore,
        hit: Hit,
    ) -> Parts:
        low, high = np.searchsorted(self.rows.owners, [store.row(hit.id), store.row(hit.id) + 1])
        position = low + int(weights[low:high].argmax())
        docid, options = self.docid(position), self.search_options
        scores, _ = path_scores(generator, cache, hidden, self.walk, docid, options.scored_over, options.temperature)
        written = len(docid) - is_numbered(self.scheme)
        written = written if self.stops is None else min(self.stops, written)
        names = [f"{place}: {self.scheme.symbol(symbol)}" for place, symbol in enumerate(docid[:written], 1)]
        parts: Parts = tuple(zip(names, scores[:written], strict=True))
        parts += (("row", sum(scores[written:])),) if written < len(docid) else ()
        others = float(np.logaddexp.reduce(weights[low:high]) - weights[position])
        parts += (("other docids", others),) if others else ()
        rest = hit.score - sum(weight for _, weight in parts)
        return (*parts, ("all documents", rest)) if abs(rest) > 1e-9 else parts

    # Changing

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With docids for more documents, and rows that are the vectors of their passages."""
        row, owners = passage_vectors(self.placer, self.reading, documents, self.limit)
        scheme = copy.deepcopy(self.scheme)
        texts = [documents[owner] for owner in owners]
        placed = [scheme.place(text, vector) for text, vector in zip(texts, torch.from_numpy(row), strict=True)]
        first = int(self.rows.numbers[-1]) + 1 if len(self.rows) else 0
        numbers = np.arange(first, first + len(placed))
        docids = numbered(scheme, placed, numbers)
        before = len(store) - len(documents)
        mass = np.where(np.diff(owners, prepend=-1) > 0, 1.0, self.passage_mass).astype(np.float32)
        rows = self.rows.joined(Rows(row.astype(np.float16), owners + before, numbers, mass))
        trie = self.trie.with_added(zip(docids, numbers.tolist(), strict=True))
        return replace(self, scheme=scheme, rows=rows, trie=trie)

    def without(self, keep: np.ndarray) -> Self:
        """Without some of its documents."""
        gone = self.rows.numbers[~keep[self.rows.owners]]
        return replace(self, rows=self.rows.taken(keep), trie=self.trie.without(gone.tolist()))

    # Memory

    def stored(self) -> Stored:
        """All that it holds, by what it is for."""
        paths = self._paths
        listed = [paths.flat, paths.start, paths.document, self._entries, *(part.parent for part in self.trie.parts)]
        sums = [tensor for part in self.sums for tensor in part.stored()]
        return {
            "weights": [*weights_in(self.reader)],
            "docid rows": [self.rows.row, *sums],
            **self.trie.stored(),
            "walk": [*self.walk.stored(), *(part.leaves for part in self.walk.parts), *self._searching.looked_up()],
            "docids": listed,
            "numbers": [self.rows.numbers, self.rows.owners, self.rows.mass],
            "placer": [*weights_in(self.placer)],
            "placing": self.scheme.stored(),
        }

    def products(self, now: int, then: int) -> dict[str, Products]:
        """How many bytes the same takes for so many documents."""
        shape = self.trie.shape(self._width).among(now, then, fixed=False)
        count, width = scaled(len(self.rows), now, then), self.rows.row.shape[1]
        nodes = scaled(sum(part.nodes for part in self.trie.parts), now, then)
        rows = [
            Product(count, "docids", 2 * width, f"rows of {width} numbers of 2"),
            Product(nodes, "nodes", 4 * (width + 5), f"sums of {width} numbers of 4, and five more"),
        ]
        looked_up = [Product(count, "docids", 8, "position of its row")] if self._searching.looked_up() else []
        return {
            "weights": weight_products(weights_in(self.reader)),
            "docid rows": rows,
            "trie": shape.products(),
            "walk": [*shape.walk_products(), Product(count + 1, "docids", 8), *looked_up],
            "docids": shape.path_products(),
            "numbers": [Product(count, "docids", 20)],
            "placer": weight_products(weights_in(self.placer)),
            "placing": self.scheme.products(now, then),
        }

    # Keeping

    def made_from(self) -> dict[str, Any]:
        """The backbone, how the training went, and how docids use their symbols."""
        codes = code_facts(self.trie, self.scheme, ranked=True)
        return {"weights": source_of(self.reader), **self.trained, **codes}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact."""
        encoders.write(self.reader, writer, "reader")
        encoders.write(self.placer, writer, "placer")
        self.trie.write(writer)
        writer.array("node_rows", self.rows.row)
        writer.array("node_owners", self.rows.owners)
        writer.array("node_numbers", self.rows.numbers)
        writer.array("node_mass", self.rows.mass)
        state = {"docids": self.scheme.write(writer), "trained": dict(self.trained), "reading": asdict(self.reading)}
        weighed = {"scale": self.scale, "limit": self.limit, "passage_mass": self.passage_mass, **asdict(self.steering)}
        return {**state, "nodes": weighed}


def read(
    snapshot: Snapshot, scheme: Scheme, options: SearchOptions, place: torch.device, query_length: int
) -> NodeEngine:
    """The engine of an artifact, with docids by a scheme of these options; a ValueError if its parts do not fit."""
    scheme = copy.deepcopy(scheme)
    scheme.read(snapshot, require_table(snapshot.state, "docids"))
    reader, placer = (encoders.read(snapshot, role).to(place) for role in ("reader", "placer"))
    row = require_array(snapshot.array("node_rows"), "node_rows", ("float16",), (None, reader.size))
    row = require_finite(row, "node_rows")
    owners, numbers = (
        require_array(snapshot.array(name), name, ("int64",), (len(row),)) for name in ("node_owners", "node_numbers")
    )
    mass = require_finite(
        require_array(snapshot.array("node_mass"), "node_mass", ("float32",), (len(row),)), "node_mass"
    )
    require((np.asarray(mass) > 0).all(), "how much its passages count is not above zero")
    require((np.diff(numbers) > 0).all() and (numbers[:1] >= 0).all(), "the numbers of its passages do not rise")
    present = np.unique(owners)
    require((np.diff(owners) >= 0).all(), "the documents of its passages do not rise")
    require(np.array_equal(present, np.arange(snapshot.rows)), "its passages are not those of its documents")
    trie = Trie.read(snapshot, width_of(scheme, numbers), numbers)
    require(scheme.has_symbols(_symbols(scheme, trie)), "a docid has a symbol that its scheme does not know")
    values = {"passage_mass": 1.0, **require_table(snapshot.state, "nodes")}  # which older artifacts do not have
    numbers_there = {"scale", "limit", "passage_mass", "sharpness", "spread"}
    is_number = all(type(value) in (int, float) and math.isfinite(value) for value in values.values())
    require(set(values) == numbers_there and is_number, "what its nodes are weighed by is not there")
    require(values["passage_mass"] > 0, "how much its passages count is not above zero")
    reading = config.build(Reading, require_table(snapshot.state, "reading"))
    return NodeEngine(
        reader,
        placer,
        Rows(np.asarray(row), np.asarray(owners), np.asarray(numbers), np.asarray(mass)),
        scheme,
        trie,
        float(values["scale"]),
        reading,
        query_length,
        int(values["limit"]),
        options,
        Steering(float(values["sharpness"]), float(values["spread"])),
        float(values["passage_mass"]),
        require_table(snapshot.state, "trained"),
    )


def _symbols(scheme: Scheme, trie: Trie) -> np.ndarray:
    """The symbols that a scheme has given; a ValueError if a docid does not end with the number of its passage."""
    if not is_numbered(scheme):
        return trie.symbols()
    paths = trie.paths()
    last = paths.start[1:] - 1
    require(np.array_equal(paths.flat[last], paths.document), "a docid does not end with the number of its passage")
    return np.unique(np.delete(paths.flat, last))
