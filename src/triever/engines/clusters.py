"""A beam over clusters, and the documents inside them: what GDR searches, without what it learns.

Where the clusters of a beam hold too few documents, a beam of twice the width is asked too, and so on; what it finds
comes behind what was found before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from triever.artifact import Snapshot, Writer
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.docids.schemes import Docid
from triever.docids.trie import Paths
from triever.engines.base import Parts
from triever.engines.docid_search import SearchOptions
from triever.engines.docid_tree import DocidTree
from triever.engines.docids import Docids, vectors_of
from triever.engines.match_scores import (
    FEATURES,
    Candidates,
    MatchOptions,
    ScoredCandidates,
    Scoring,
    Way,
    best_of,
    candidates,
    weights_for,
)
from triever.engines.panels import Panel
from triever.engines.steady_clusters import SteadyClusters, can_be_steady
from triever.errors import UsageError
from triever.index.trie_shards import ShardedTrieVectors
from triever.index.trie_vectors import TrieVectors
from triever.memory_parts import Product, Products, Stored, weight_products, weights_in
from triever.models import encoder as encoders
from triever.models.cross_decoder import CrossDecoder
from triever.models.encoder import Encoder
from triever.models.even_decoder import Even
from triever.models.vector_generator import VectorGenerator
from triever.search.beam import Frontier, beam
from triever.search.many import ROWS, read_together
from triever.search.recorder import Recorder
from triever.training.clusters import cluster_sizes
from triever.validation import require, require_count, require_list, require_numbers

DOCUMENTS = "document_encoder"
"""The name under which a document encoder is in an artifact."""
WIDER = "found by a wider beam"
"""The name of what a score was moved by, so that it comes behind those that were found before."""
PREFIXES = 2**16
"""Beginnings of docids that the beams of all queries hold at once, or those of one query alone."""
TOGETHER = 1024
"""Queries that look into clusters together, so that those who look into the same one are compared with it at once."""


@dataclass(frozen=True)
class ClusterEngine:
    """A model that writes clusters, the vectors of the documents in them, and how both are searched."""

    docids: Docids[CrossDecoder]
    below: TrieVectors | ShardedTrieVectors
    options: SearchOptions
    matching: MatchOptions
    documents: Encoder | None = None  # what makes vectors, where it is not what places documents
    fitted: Mapping[Way, tuple[float, ...]] = field(default_factory=dict)  # weights by what they were fitted for
    taught: int | None = None  # how many symbols of docids it has learned to write; None is no limit

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The nearest documents in the clusters that the model writes."""
        searcher = self._steady or self.searcher(self.matching.depth)
        scored_per_query = searcher.best(queries, self.scoring, k)
        return [self._ranked(store, scored, k) for scored in scored_per_query]

    @cached_property
    def _steady(self) -> SteadyClusters | None:
        return self.made_steady() if self.options.records_on(self.docids.model.device) else None

    def made_steady(self) -> SteadyClusters | None:
        """A new search in fixed shapes, if it can be made in them."""
        searcher, steady = self.searcher(self.matching.depth), self.docids.made_steady(self.options)
        generator, walk, below = steady and steady.generator, self.docids.walk, self.below
        even = isinstance(generator, Even)
        if not even or not self.single or not isinstance(below, TrieVectors) or not can_be_steady(walk, below):
            return None
        return SteadyClusters(searcher, generator, self.docids.model.encoder, walk, below)

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """What each part of the rule gives to each hit."""
        scores = {int(self.docids.numbers[store.row(hit.id)]): hit.score for hit in result}
        return tuple(self.searcher(self.matching.depth).explained(query, self.scoring, scores).values())

    def panels(self, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
        """The beginnings of clusters that the search looked at, by the beam that has all hits."""
        searcher, recorder = self.searcher(self.matching.depth), Recorder()
        scores = {int(self.docids.numbers[store.row(hit.id)]): hit.score for hit in result}
        replace(searcher, recorder=recorder).explained(query, self.scoring, scores)
        note = "Documents are ranked by their vectors and clusters inside of the clusters that ended."
        return self.docids.tree().beam(recorder, searcher.options, store, result, note=note)

    def docid_tree(self) -> DocidTree:
        """The clusters as a tree to look at."""
        return self.docids.tree()

    def searcher(self, depth: int | None) -> ClusterSearch:
        """What searches with so many symbols of docids written."""
        self._check_depth()
        model = self.docids.model
        generator = VectorGenerator(model, model.tokeniser(*self.docids.queries))
        return ClusterSearch(self, generator, self.options.following(self.docids.normalisation), depth)

    @property
    def scoring(self) -> Scoring:
        """How clusters and vectors make a score."""
        matching = self.matching
        return Scoring(matching.rule, weights_for(matching, self.fitted), matching.temperature)

    @property
    def deepest(self) -> int:
        """How many symbols of docids it can write: all, or as many as it was taught."""
        return int(np.diff(self.docids.trie.paths().start).max()) if self.taught is None else self.taught

    def _check_depth(self) -> None:
        """Refuse to have more written than was learned."""
        wanted, taught = self.matching.depth, self.taught
        if taught is not None and (wanted is None or wanted > taught):
            depth = "unset (whole docids)" if wanted is None else f"{wanted}"
            problem = f"matching.depth is {depth}, but the model has learned to write only {taught} symbols of a docid"
            raise UsageError(problem, f"set matching.depth to {taught} or less, or fit the model again")

    def _ranked(self, store: DocumentStore, candidates: ScoredCandidates, k: int) -> Result:
        rows = np.searchsorted(self.docids.numbers, candidates.numbers).tolist()
        entry = {
            store.ids[row]: entry_number for row, entry_number in zip(rows, candidates.entries.tolist(), strict=True)
        }
        # Without a logprob: that of a cluster is no probability of a document.
        best = ranked(Hit(name, score) for name, score in zip(entry, candidates.scores.tolist(), strict=True))
        readable = self.docids.scheme.readable
        hits = (Hit(hit.id, hit.score, readable(self.docid_of(entry[hit.id]))) for hit in best[:k])
        return Result(tuple(hits), note=candidates.note)

    def docid_of(self, entry: int) -> Docid:
        """The docid of an entry of the trie, all its parts end to end."""
        return tuple(self._entries.flat[self._entries.start[entry] : self._entries.start[entry + 1]].tolist())

    @cached_property
    def single(self) -> bool:
        """Whether no document has several docids."""
        return len(self.docids.trie) == len(self.docids.numbers)

    @cached_property
    def _entries(self) -> Paths:
        return reduce(Paths.joined, [part.paths() for part in self.docids.trie.parts])

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With more documents, each in its cluster, and their vectors."""
        vectors = self.docids.vectors(documents)
        if vectors is None:
            problem = "clusters hold given vectors, and there is nothing that makes such of a new document"
            raise UsageError(problem, "fit again with vectors of all documents")
        larger = self.docids.placed(documents, vectors)
        if self.documents is not None:  # clusters are those of the placer, and vectors are not
            vectors = vectors_of(self.documents, self.docids.reading, documents)
        new = larger.numbers[len(self.docids.numbers) :], vectors.numpy()
        return replace(self, docids=larger, below=self.below.moved(larger.trie, new))

    def without(self, keep: np.ndarray) -> Self:
        """Without some of its rows."""
        smaller = self.docids.without(keep)
        return replace(self, docids=smaller, below=self.below.moved(smaller.trie))

    def stored(self) -> Stored:
        """What writes clusters, and the vectors in them."""
        entries, below = self._entries, self.below.stored()
        lookup = [entries.flat, entries.start, entries.document, *(part.parent for part in self.docids.trie.parts)]
        parts = self.docids.stored([*lookup, *([] if self.single else [self.below.several])])
        parts["changes"] += below.pop("changes")
        parts["placer"] += weights_in(self.documents)
        return {**parts, **below}

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed."""
        parts, shape = self.docids.products(now, then), self.docids.trie_shape(now, then)
        parts["placer"] = weight_products(weights_in(self.docids.placer, self.documents))
        parts["docids"] = shape.path_products(ordered=False)
        if not self.single:
            parts["docids"].append(Product(shape.entries, "entries", 1, "whether its document has others"))
        return {**parts, "cluster vectors": self.below.products(shape.entries)}

    def made_from(self) -> dict[str, Any]:
        """The backbone, how the training went, how large clusters are, and what they count for."""
        clusters = cluster_sizes(self.docids.trie.paths(), self.matching.depth)
        size = {
            "clusters": len(clusters),
            "documents of the largest cluster": int(clusters.max(initial=0)),
            "parameters": sum(weight.numel() for weight in self.docids.model.parameters()),
            "bytes of the trie": self.docids.trie.bytes,
            "bytes of vectors": self.below.bytes,
        }
        return {**self.docids.made_from(ranked=True), **size, **self._weights_told()}

    def _weights_told(self) -> dict[str, Any]:
        if self.matching.rule != "learned":
            return {"alpha": weights_for(self.matching, self.fitted)[0]}
        learned = self.fitted.get(self.matching.way, ())
        return {"learned weights": {name: round(weight, 4) for name, weight in zip(FEATURES, learned, strict=False)}}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact."""
        self.below.write(writer)
        if self.documents is not None:
            encoders.write(self.documents, writer, DOCUMENTS)
        fitted = [[*way, weights] for way, weights in self.fitted.items()]
        return {**self.docids.write(writer), "fitted": fitted, "taught": self.taught}


def read(
    snapshot: Snapshot, docids: Docids[CrossDecoder], options: SearchOptions, matching: MatchOptions
) -> ClusterEngine:
    """The engine of an artifact whose docids have been read."""
    device, state = docids.model.device, snapshot.state
    documents = encoders.read(snapshot, DOCUMENTS).to(device) if snapshot.has(DOCUMENTS) else None
    opened = ShardedTrieVectors.opened if snapshot.shards else TrieVectors.read
    below = opened(snapshot, docids.trie, device)
    # Earlier ones do not say for which depth their alphas were fitted, and so have none.
    fitted = dict(map(_read_way, require_list(state, "fitted")))
    taught = None if state.get("taught") is None else require_count(state, "taught")
    return ClusterEngine(docids, below, options, matching, documents, fitted, taught)


def _read_way(value: Any) -> tuple[Way, tuple[float, ...]]:
    require(isinstance(value, list) and len(value) == len(Way._fields) + 1, "its fitted weights are no lists")
    *way, weights = value
    rule, depth, temperature = way
    whole = isinstance(rule, str) and (depth is None or type(depth) is int)
    require(whole and isinstance(temperature, int | float | None), "its fitted weights are of no way to match")
    return Way(rule, depth, temperature), require_numbers(weights, "fitted weights")


@dataclass(frozen=True)
class Seen:
    """A query that was read: its vector, and the prefixes that a beam found for it, best first."""

    vector: Tensor  # (d,)
    states: list[list[int]]
    logprob: np.ndarray  # (prefixes,)
    length: np.ndarray  # (prefixes,)


@dataclass(frozen=True)
class ClusterSearch:
    """An engine, what reads and writes for it, and how many symbols are written."""

    engine: ClusterEngine
    generator: VectorGenerator
    options: SearchOptions
    depth: int | None
    recorder: Recorder | None = None  # takes down what the search for a single query does

    def best(self, queries: Sequence[str], scoring: Scoring, k: int) -> list[ScoredCandidates]:
        """For each query the k best documents, and all that tie with the last."""
        width = self.options.beam_width
        scored = self._best(queries, scoring, k, width)
        short = _short(enumerate(scored), k, width)
        while short:
            width *= 2
            wider = self._best([queries[query] for query in short], scoring, k, width)
            for query, more in zip(short, wider, strict=True):
                scored[query] = scored[query].followed_by(more)
            short = _short(((query, scored[query]) for query in short), k, width)
        return scored

    def _best(self, queries: Sequence[str], scoring: Scoring, k: int, width: int) -> list[ScoredCandidates]:
        """The same by a beam of one width, which may find fewer."""
        scored: dict[int, ScoredCandidates] = {}
        # One more than is wanted of each cluster shows that no other can be among the first.
        each = k + 1 if scoring.rising else None
        for batch, seen in self._seen(queries, width):
            for query, query_seen, nearest in zip(batch, seen, self._inside(seen, each), strict=True):
                best = best_of(nearest, scoring, k)
                if best is None:  # more of them tie
                    [every] = self._inside([query_seen])
                    best = best_of(every, scoring, k)
                assert best is not None  # nothing was left out
                scored[query] = best
        return [scored[query] for query in range(len(queries))]

    def candidates(self, queries: Sequence[str]) -> Iterator[tuple[int, Candidates]]:
        """For each query, in any order, its place and all documents of its clusters."""
        for batch, seen in self._seen(queries, self.options.beam_width):
            yield from zip(batch, self._inside(seen), strict=True)

    def compared(self, queries: Sequence[str], k: int) -> list[int]:
        """For each query how many vectors its own is compared with until there are k hits, by all beams together."""
        docids, width = self.engine.docids, self.options.beam_width
        spans, wanted = docids.walk.spans, min(k, len(docids.numbers))
        counts, left = [0] * len(queries), list(range(len(queries)))
        while left:
            short = []
            for batch, seen in self._seen([queries[query] for query in left], width):
                for query, query_seen in zip([left[position] for position in batch], seen, strict=True):
                    counts[query] += sum(
                        part.stop - part.start for state in query_seen.states for _, part in spans(state)
                    )
                    short += [query] if len(query_seen.states) >= width and self._documents(query_seen) < wanted else []
            left, width = sorted(short), 2 * width
        return counts

    def _documents(self, seen: Seen) -> int:
        """How many documents the clusters of a query hold: none twice, and none that was deleted."""
        return len({number for state in seen.states for number in self.engine.docids.walk.documents(state)})

    def explained(self, query: str, scoring: Scoring, scores: Mapping[int, float]) -> dict[int, Parts]:
        """What the scores of documents, by their numbers, are made of in the first beam that has each."""
        width, more = self.options.beam_width, True
        parts: dict[int, Parts] = {}
        while len(parts) < len(scores) and more:
            [(_, seen)] = self._seen([query], width)
            [all_candidates] = self._inside(seen)
            left = {number: scores[number] for number in scores if number not in parts}
            parts |= _parts(all_candidates, scoring, left, is_wider=width > self.options.beam_width)
            width, more = 2 * width, all_candidates.clusters >= width
        return {number: parts.get(number, ((WIDER, score),)) for number, score in scores.items()}

    def _seen(self, queries: Sequence[str], width: int) -> Iterator[tuple[list[int], list[Seen]]]:
        """Some queries after the other: their places, and what a beam of this width found for them."""
        # Lengths count in the rule `sum`: so a prefix that is alone goes on to its depth like all others.
        options = replace(self.options.beam(1), width=width, finish=False)
        # A wider beam takes no more memory, and one that is asked to be very wide reads few queries at once.
        rows = max(1, min(ROWS * self.options.beam_width, PREFIXES) // width)
        places: list[int] = []
        seen: list[Seen] = []
        for batch, cache, hidden in read_together(self.generator, queries, rows):
            walk, recorder = self.engine.docids.walk, self.recorder
            frontier = beam(self.generator, cache, hidden, walk, options, depth=self.depth, recorder=recorder)
            places += batch.tolist()
            seen += _one_by_one(cache.vectors, frontier)
            if len(places) >= TOGETHER:
                yield places, seen
                places, seen = [], []
        if places:
            yield places, seen

    def _inside(self, seen: Sequence[Seen], each: int | None = None) -> Iterator[Candidates]:
        """For each query the documents of its clusters: all, or so many of each that are nearest.

        Of those in several clusters all: they may be first by what these give them together.
        """
        engine, vectors = self.engine, torch.stack([query_seen.vector for query_seen in seen])
        always = None if each is None or engine.single else engine.below.several
        documents = engine.below.below(
            engine.docids.walk, vectors, [query_seen.states for query_seen in seen], each, always
        )
        for below, query_seen in zip(documents, seen, strict=True):
            yield candidates(below, query_seen.logprob, query_seen.length, single=engine.single)


def _one_by_one(vectors: Tensor, frontier: Frontier) -> list[Seen]:
    """What was found for each query, without the places in which nothing is."""
    # All come from a GPU at once: to wait for it query by query takes longer than the search.
    columns = (frontier.state, frontier.logprob.double(), frontier.length, frontier.logprob.isfinite())
    rows = zip(vectors, *(column.cpu().numpy() for column in columns), strict=True)
    return [
        Seen(vector, state[there].tolist(), logprob[there], length[there])
        for vector, state, logprob, length, there in rows
    ]


def _parts(
    candidates: Candidates, scoring: Scoring, scores: Mapping[int, float], *, is_wider: bool
) -> dict[int, Parts]:
    """What the scores of those documents that were found are made of, and what they were moved by."""
    names, columns = zip(*scoring.parts(candidates).items(), strict=True)
    lines = np.flatnonzero(np.isin(candidates.numbers, [*scores]))
    explained = {}
    for number, *weights in zip(*(column[lines].tolist() for column in (candidates.numbers, *columns)), strict=True):
        moved = ((WIDER, scores[number] - sum(weights)),) if is_wider else ()
        explained[number] = (*zip(names, weights, strict=True), *moved)
    return explained


def _short(candidates_of_queries: Iterable[tuple[int, ScoredCandidates]], k: int, width: int) -> list[int]:
    """The queries that have fewer than k documents, though a beam that is wider than this may find more."""
    return [query for query, scored in candidates_of_queries if len(scored) < k and scored.clusters >= width]
