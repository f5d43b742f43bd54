"""Docids whose every node has a row: documents are found by following the heaviest prefixes to the nearest rows.

A document has one docid for its whole text, one for each of its passages, and one for each question that it is known to
answer; its probability is the sum of theirs. They are all called passages here. A search follows prefixes to whole
docids, or to a depth: then all docids below those that it has reached are compared.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from triever import config
from triever.arrays import places, starts_of
from triever.artifact import Snapshot, Writer
from triever.data.passages import passages
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.docids.code_use import code_use
from triever.docids.schemes import Atomic, Docid, Scheme
from triever.docids.trie import Paths, Trie
from triever.docids.walk import Walk
from triever.engines.base import Parts
from triever.engines.docid_search import SearchOptions
from triever.engines.docids import Reading
from triever.index.top import shared
from triever.index.trie_vectors import EntryVectors, LookedUp, PrefixEntries
from triever.index.vectors import Vectors
from triever.memory_parts import Product, Products, Stored, scaled, weight_products, weights_in
from triever.models import encoder as encoders
from triever.models.encoder import Encoder, encode, source_of
from triever.models.node_rows import NodeGenerator, NodeSums, Steering
from triever.models.row_model import log_sums
from triever.models.tokens import Tokens
from triever.search.beam import Frontier, beam
from triever.search.hits import documents as found_numbers
from triever.search.many import ROWS, search_each
from triever.search.paths import path_scores
from triever.validation import require, require_array, require_finite, require_table

FEWEST = 64
"""Docids that it keeps where few documents are wanted."""
AT_ONCE = 2**26
"""Numbers that are read or computed at once."""


@dataclass(frozen=True)
class Rows:
    """The docids of passages, and the row of each: passage i is that of document owners[i]."""

    row: np.ndarray  # (passages, d) float16
    owners: np.ndarray  # (passages,) the document of each, rising
    numbers: np.ndarray  # (passages,) under which number each is in the trie, rising
    mass: np.ndarray  # (passages,) float32, how much each counts

    def __len__(self) -> int:
        return len(self.owners)

    def taken(self, keep: np.ndarray) -> Rows:
        """Those of the documents that are kept (documents, bool), which move up."""
        chosen = keep[self.owners]
        owners = (np.cumsum(keep) - 1)[self.owners[chosen]]
        return Rows(self.row[chosen], owners, self.numbers[chosen], self.mass[chosen])

    def joined(self, other: Rows) -> Rows:
        """These, and then others."""
        names = [one.name for one in fields(self)]
        return Rows(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))


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
    trained: Mapping[str, Any] = field(default_factory=dict)
    depth: int | None = None  # symbols of docids that a beam follows before rows are compared; None: all

    # Searching

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The documents whose docids weigh most."""
        return [self._result(store, logprobs, k) for logprobs in self._found(self.generator, queries, k)]

    def _found(self, generator: NodeGenerator, queries: Sequence[str], k: int) -> list[dict[int, float]]:
        """For each query, the log-probabilities of the passages that are found, by their positions."""
        find, rows = self._all if self._compares_all else self._by_beams, self._together(self._first_width(k))
        return search_each(generator, queries, lambda cache, hidden: find(generator, cache, hidden, k), rows=rows)

    @property
    def _compares_all(self) -> bool:
        return self.options.method == "exact" or self.depth == 0

    @property
    def stops(self) -> int | None:
        """The length of the prefixes below which rows are compared; None if a beam goes to the ends of docids.

        What tells passages with the docid of one cluster apart is no symbol of it.
        """
        return self.deepest if self.depth is None and is_numbered(self.scheme) else self.depth

    @cached_property
    def deepest(self) -> int:
        """How many symbols docids have at most."""
        longest = int(np.diff(self._paths[0].start).max(initial=0))
        return max(0, longest - is_numbered(self.scheme))

    def _first_width(self, k: int) -> int:
        """How many prefixes a beam keeps at first; one that goes to the ends of docids keeps k at least."""
        return max(self.options.width, k) if self.stops is None else self.options.width

    def _by_beams(self, generator: NodeGenerator, cache: Tensor, hidden: Tensor, k: int) -> list[dict[int, float]]:
        """The same for queries that were read; a beam to a depth is doubled until it holds enough documents."""
        width = self._first_width(k)
        each = self._beam(generator, cache, hidden, k, width)
        if self.stops is None:
            return each
        while width < len(self.rows) and (short := [at for at, found in enumerate(each) if self._count(found) < k]):
            width, step = 2 * width, self._together(2 * width)
            for part in (short[low : low + step] for low in range(0, len(short), step)):
                wider = self._beam(generator, cache[part], hidden[part], k, width)
                each = [dict(zip(part, wider, strict=True)).get(at, found) for at, found in enumerate(each)]
        return each

    def _count(self, logprobs: Mapping[int, float]) -> int:
        """How many documents these passages are of."""
        return len(np.unique(self.rows.owners[[*logprobs]]))

    def _beam(
        self, generator: NodeGenerator, cache: Tensor, hidden: Tensor, k: int, width: int
    ) -> list[dict[int, float]]:
        """The same by one beam that keeps so many prefixes."""
        kept = max(FEWEST, self._docids_each * k)
        options = replace(self.search_options.beam(k), width=width)
        frontier = beam(generator, cache, hidden, self.walk, options, depth=self.stops, keep=kept)
        listed = found_numbers(self.walk, frontier, kept)
        each = [{self._position(number): logprob for number, logprob in found} for found in listed]
        if any(sums.shared for sums in self.sums) or len(self.sums) > 1:
            each = [self._told_apart(*pair) for pair in zip(hidden, each, strict=True)]
        if frontier.stopped is not None:
            each = self._with_those_below(generator, hidden, frontier, each, max(FEWEST, 2 * k))
        if self._docids_each == 1 or self.search_options.normalisation != "documents":
            return each  # no document has other passages, or what was found is no share of what all weigh
        pairs = zip(hidden.cpu().numpy(), each, strict=True)
        return [self._completed(generator, query, logprobs, k) for query, logprobs in pairs]

    def _completed(
        self, generator: NodeGenerator, query: np.ndarray, logprobs: Mapping[int, float], k: int
    ) -> dict[int, float]:
        """All passages of the k best documents of those that were found, also where the beam did not come."""
        found, known = np.fromiter(logprobs, np.int64), np.fromiter(logprobs.values(), np.float64)
        documents = np.unique(self.rows.owners[found])
        first, end = (np.searchsorted(self.rows.owners, bound) for bound in (documents, documents + 1))
        new = np.setdiff1d(places(first, end - first), found)
        if generator.counted is not None:
            generator.counted.append(len(new))
        positions = np.concatenate([found, new])
        products = self.rows.row[positions].astype(np.float32) @ query
        weights = (self.scale * products + np.log(self.rows.mass[positions])) / self.options.temperature
        # What probabilities are shares of is known from those that were found, and grows by the others.
        everything = _log_sum(weights[: len(found)]) - _log_sum(known)
        logs = np.concatenate([known, weights[len(found) :] - everything])
        logs -= np.log1p(np.exp(_log_sum(logs[len(found) :])))
        chosen = of_best(logs, self.rows.owners[positions], k)
        return dict(zip(positions[chosen].tolist(), logs[chosen].tolist(), strict=True))

    def _with_those_below(
        self, generator: NodeGenerator, hidden: Tensor, frontier: Frontier, each: Sequence[dict[int, float]], k: int
    ) -> list[dict[int, float]]:
        """With the passages below the prefixes at which a beam stopped: those of the k best documents of all."""
        assert frontier.stopped is not None  # the caller has seen to it
        assert frontier.weighed is not None  # as in every search by documents
        root = generator.weights(hidden, self.walk.root(len(hidden))[:, None])[:, 0]
        states = [[state for state in of_query if max(state) >= 0] for of_query in frontier.stopped.tolist()]
        weighed = zip(each, frontier.weighed.tolist(), (root / self.options.temperature).tolist(), strict=True)
        below = self._below.below(self.walk, hidden, states)
        return [
            self._joined(generator, *of_query, entries, k) for of_query, entries in zip(weighed, below, strict=True)
        ]

    def _joined(
        self,
        generator: NodeGenerator,
        ended: Mapping[int, float],
        weighed: float,
        root: float,
        below: PrefixEntries,
        k: int,
    ) -> dict[int, float]:
        """The probabilities of passages that a beam came to, and of those below prefixes, among all of them."""
        if generator.counted is not None:
            generator.counted.append(len(below.numbers))
        there = np.searchsorted(self.rows.numbers, below.numbers)
        weights = self.scale * below.products.astype(np.float64) + np.log(self.rows.mass[there])
        inside = weights / self.options.temperature - root
        total = np.logaddexp(weighed, _log_sum(inside))
        positions = np.concatenate([np.array([*ended], np.int64), there])
        logprobs = np.concatenate([np.array([*ended.values()]) + weighed, inside]) - total
        chosen = of_best(logprobs, self.rows.owners[positions], k)
        return dict(zip(positions[chosen].tolist(), logprobs[chosen].tolist(), strict=True))

    def _told_apart(self, query: Tensor, logprobs: dict[int, float]) -> dict[int, float]:
        """The same, where passages that share a docid share its probability as their own rows say."""
        by_docid: dict[Docid, list[int]] = defaultdict(list)
        for position in logprobs:
            by_docid[self.docid(position)].append(position)
        for positions in by_docid.values():
            if len(positions) > 1:
                rows = torch.from_numpy(self.rows.row[positions].astype(np.float32)).to(query)
                mass = torch.from_numpy(self.rows.mass[positions]).to(query)
                weights = (self.scale * (rows @ query) + mass.log()) / self.options.temperature
                shares = weights.log_softmax(0).tolist()
                total = float(np.logaddexp.reduce([logprobs[position] for position in positions]))
                logprobs |= {position: total + share for position, share in zip(positions, shares, strict=True)}
        return logprobs

    def _position(self, number: int) -> int:
        return int(np.searchsorted(self.rows.numbers, number))

    def _all(self, generator: NodeGenerator, cache: Tensor, hidden: Tensor, k: int) -> list[dict[int, float]]:
        """The same by comparing every row: all passages of the best documents, and of those that tie with the last."""
        weights = (self.weights(hidden) / self.options.temperature).double()
        logprobs = weights.log_softmax(1)
        owners = torch.from_numpy(self.rows.owners).to(weights.device)
        masses = log_sums(logprobs, owners, self._documents)
        lowest = masses.topk(min(k, self._documents)).values[:, -1:]
        chosen = (masses >= lowest)[:, owners]
        return [
            dict(zip(kept.nonzero()[:, 0].tolist(), row[kept].tolist(), strict=True))
            for kept, row in zip(chosen, logprobs, strict=True)
        ]

    def compared(self, queries: Sequence[str], k: int) -> float:
        """How many rows of nodes and docids are read for a query, as a share of the documents."""
        if self._compares_all:
            return len(self.rows) / self._documents
        generator = replace(self.generator, counted=[])
        self._found(generator, queries, k)
        return sum(generator.counted or []) / max(1, len(queries)) / self._documents

    @property
    def _documents(self) -> int:
        return int(self.rows.owners[-1]) + 1 if len(self.rows) else 1

    @cached_property
    def _docids_each(self) -> int:
        """How many docids a document has at most."""
        return int(np.bincount(self.rows.owners).max(initial=1))

    def _together(self, width: int) -> int:
        """How many queries beams of a width are searched for together, so that the rows they read have room."""
        lengths = len(self.trie.parts[0].widest)
        lengths = lengths if self.stops is None else min(lengths, self.stops)
        slots = max((self.walk.slots(length) for length in range(1, lengths)), default=1)
        numbers = width * slots * self.reader.size
        return max(1, min(ROWS, AT_ONCE // max(1, numbers)))

    def weights(self, vectors: Tensor) -> Tensor:
        """(queries, passages) the logs of the weights of all docids for the vectors of queries."""
        step = max(1, AT_ONCE // max(1, len(vectors)))
        slices = (slice(low, low + step) for low in range(0, len(self.rows), step))
        products = torch.cat([vectors @ self._row_vectors.read(rows).to(vectors).T for rows in slices], 1)
        return self.scale * products + shared(self.rows.mass).to(vectors).log()

    def _result(self, store: DocumentStore, logprobs: Mapping[int, float], k: int) -> Result:
        best: dict[int, tuple[float, int]] = {}
        masses: dict[int, float] = {}
        for position, logprob in logprobs.items():
            row = int(self.rows.owners[position])
            masses[row] = float(np.logaddexp(masses.get(row, -math.inf), logprob))
            best[row] = max(best.get(row, (-math.inf, -1)), (logprob, position))
        hits = ranked(Hit(store.ids[row], mass, logprob=mass) for row, mass in masses.items())[:k]
        named = (replace(hit, docid=self._readable(best[store.row(hit.id)][1])) for hit in hits)
        certificate = f"exact: {len(self.rows)} rows compared" if self._compares_all else ""
        return Result(tuple(named), "", certificate)

    def _readable(self, position: int) -> str:
        docid = self.docid(position)
        return self.scheme.readable(docid[:-1] if is_numbered(self.scheme) else docid)

    @property
    def search_options(self) -> SearchOptions:
        """How docids are searched, where nothing is left open."""
        return self.options.following("documents")

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
        at = self._positions(numbers)
        rows = torch.from_numpy(self.rows.row[at].astype(np.float32))
        rows[torch.from_numpy(self.rows.numbers[at] != numbers)] = 0.0
        return rows.to(self.reader.device)

    def _mass_of(self, numbers: np.ndarray) -> Tensor:
        """(numbers,) how much passages count, by their numbers; anything for those that are deleted."""
        return torch.from_numpy(self.rows.mass[self._positions(numbers)]).to(self.reader.device)

    def _positions(self, numbers: np.ndarray) -> np.ndarray:
        """(numbers,) the positions of passages by their numbers; those of others for the ones that are deleted."""
        return np.searchsorted(self.rows.numbers, numbers).clip(max=max(0, len(self.rows) - 1))

    @cached_property
    def _below(self) -> EntryVectors:
        """The rows of docids, as they are compared below prefixes."""
        parts = (LookedUp(self._row_vectors, self._positions(part.document)) for part in self.trie.parts)
        return EntryVectors(self.trie, tuple(parts))

    @cached_property
    def _row_vectors(self) -> Vectors:
        """The rows, where they are compared."""
        return Vectors(self.rows.row, self.reader.device)

    @cached_property
    def generator(self) -> NodeGenerator:
        """What leads a search."""
        return NodeGenerator(self.vectors, self.walk, self.sums, self.scale, self.steering, self._width)

    @property
    def _width(self) -> int:
        return width_of(self.scheme, self.rows.numbers)

    def vectors(self, queries: Sequence[str]) -> Tensor:
        """(queries, d) the vectors of queries."""
        texts = (self.reading.query_prefix + query for query in queries)
        tokens = Tokens.of(texts, self.reader.tokenizer, self.reader.at_most(self.query_length))
        return torch.from_numpy(encode(self.reader, tokens)).to(self.reader.device)

    def docid(self, position: int) -> Docid:
        """The docid of a passage."""
        paths, order = self._paths
        entry = order[np.searchsorted(paths.document, int(self.rows.numbers[position]), sorter=order)]
        return tuple(paths.flat[paths.start[entry] : paths.start[entry + 1]].tolist())

    @cached_property
    def _paths(self) -> tuple[Paths, np.ndarray]:
        paths = self.trie.paths()
        return paths, paths.document.argsort(kind="stable")

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """What each symbol of a document's best docid adds to its weight, its other docids, and all documents."""
        generator = self.generator
        cache, hidden = generator.prefill([query])
        weights = self.weights(hidden)[0].cpu().numpy() / self.options.temperature
        return tuple(self._explained(generator, cache, hidden, weights, store, hit) for hit in result)

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
        mass = np.ones(len(row), np.float32)
        rows = self.rows.joined(Rows(row.astype(np.float16), owners + before, numbers, mass))
        trie = self.trie.with_added(zip(docids, numbers.tolist(), strict=True))
        return replace(self, scheme=scheme, rows=rows, trie=trie)

    def without(self, keep: np.ndarray) -> Self:
        """Without some of its documents."""
        gone = self.rows.numbers[~keep[self.rows.owners]]
        return replace(self, rows=self.rows.taken(keep), trie=self.trie.without(gone.tolist()))

    # Memory

    @property
    def _looked_up(self) -> list[np.ndarray]:
        """Where the rows of docids below prefixes are, which is looked up only if rows are compared there."""
        if self._compares_all or self.stops is None:
            return []
        return [part.rows for part in self._below.parts if isinstance(part, LookedUp)]

    def stored(self) -> Stored:
        """All that it holds, by what it is for."""
        paths, order = self._paths
        listed = [paths.flat, paths.start, paths.document, order, *(part.parent for part in self.trie.parts)]
        sums = [tensor for part in self.sums for tensor in part.stored()]
        return {
            "weights": [*weights_in(self.reader)],
            "docid rows": [self.rows.row, *sums],
            **self.trie.stored(),
            "walk": [*self.walk.stored(), *(part.leaves for part in self.walk.parts), *self._looked_up],
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
            Product(nodes, "nodes", 4 * (width + 3), f"sums of {width} numbers of 4, and three more"),
        ]
        looked_up = [Product(count, "docids", 8, "position of its row")] if self._looked_up else []
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
        use = code_use(self.trie, self.scheme)
        return {"weights": source_of(self.reader), **self.trained, **(use.facts(ranked=True) if use else {})}

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
        return {**state, "nodes": {"scale": self.scale, "limit": self.limit, **asdict(self.steering)}}


def is_numbered(scheme: Scheme) -> bool:
    """Whether a scheme may give one docid to many vectors: then the number of a passage stands behind its docid."""
    return scheme.shared or not (scheme.needs_vectors or isinstance(scheme, Atomic))


def numbered(scheme: Scheme, docids: Sequence[Docid], numbers: np.ndarray) -> Sequence[Docid]:
    """Docids for passages with these numbers: those of a scheme, each of which is the docid of few."""
    if not is_numbered(scheme):
        return docids
    return [(*docid, number) for docid, number in zip(docids, numbers.tolist(), strict=True)]


def fitted_trie(
    scheme: Scheme, documents: Sequence[Document], owners: np.ndarray, rows: Tensor, device: torch.device
) -> Trie:
    """The trie of the docids that a scheme gives to passages with these rows (passages, d), of documents `owners`."""
    docids = scheme.fit([documents[owner] for owner in owners], rows, device)
    numbers = np.arange(len(docids))
    return Trie.of(zip(numbered(scheme, docids, numbers), numbers.tolist(), strict=True))


def width_of(scheme: Scheme, numbers: np.ndarray) -> int:
    """How many symbols the docids of passages with these numbers may have."""
    return max(scheme.width, int(numbers[-1:].max(initial=-1)) + 1) if is_numbered(scheme) else scheme.width


def _log_sum(logs: np.ndarray) -> float:
    """The log of the sum of numbers given as logs; -inf for none."""
    return float(np.logaddexp.reduce(logs, dtype=np.float64, initial=-np.inf))


def of_best(logprobs: np.ndarray, owners: np.ndarray, k: int) -> np.ndarray:
    """(n,) bool: which passages (n,) are of the k documents with the greatest sums, or of those that tie with them."""
    _, document, counts = np.unique(owners, return_inverse=True, return_counts=True)
    first = starts_of(counts)[:-1]
    masses = np.logaddexp.reduceat(logprobs[document.argsort(kind="stable")], first) if len(first) else logprobs
    lowest = np.partition(masses, len(masses) - k)[len(masses) - k] if len(masses) > k else -np.inf
    return (masses >= lowest)[document]


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
    require(np.array_equal(present, np.arange(snapshot.documents)), "its passages are not those of its documents")
    trie = Trie.read(snapshot, width_of(scheme, numbers), numbers)
    require(scheme.has_symbols(_symbols(scheme, trie)), "a docid has a symbol that its scheme does not know")
    values = dict(require_table(snapshot.state, "nodes"))
    numbers_there = {"scale", "limit", "sharpness", "spread"}
    is_number = all(type(value) in (int, float) and math.isfinite(value) for value in values.values())
    require(set(values) == numbers_there and is_number, "what its nodes are weighed by is not there")
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


def passage_vectors(
    encoder: Encoder,
    reading: Reading,
    documents: Iterable[Document],
    limit: int,
    whole: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors (passages, d) of whole texts and of their passages, and the number of each one's document.

    `whole` (documents, d) has the vectors of whole texts, where they are known.
    """
    owners: list[int] = []

    def texts() -> Iterable[str]:
        for number, document in enumerate(documents):
            whole_text = (document.full_text,) if whole is None else ()
            for text in (*whole_text, *passages(document, limit)):
                owners.append(number)
                yield reading.document_prefix + text

    tokens = Tokens.of(texts(), encoder.tokenizer, encoder.at_most(reading.document_length))
    vectors, of_documents = encode(encoder, tokens), np.array(owners, np.int64)
    if whole is None:
        return vectors, of_documents
    of_documents = np.concatenate([np.arange(len(whole)), of_documents])
    order = of_documents.argsort(kind="stable")
    return np.concatenate([whole, vectors])[order], of_documents[order]
