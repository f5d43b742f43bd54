"""A beam over clusters, and the documents inside them: what GDR searches, without what it learns.

Where the clusters of a beam hold too few documents, a beam of twice the width is asked too, and so on; what it finds
comes behind what was found before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

import numpy as np
import torch
from torch import Tensor

from triever.docids.schemes import Docid
from triever.docids.trie import Paths
from triever.index.trie_vectors import TrieVectors
from triever.models.encoder import Encoder
from triever.models.matching import MatchingGenerator
from triever.retrievers.base import Parts
from triever.retrievers.docid_search import SearchOptions
from triever.retrievers.matching import Candidates, Ranking, Scoring, Way, best_of, candidates
from triever.retrievers.writing import Writing
from triever.search.beam import Frontier, beam
from triever.search.many import ROWS, read_together
from triever.storage import Product, Products, Stored, Thing, weight_products, weights_in

WIDER = "found by a wider beam"
"""The name of what a score was moved by, so that it comes behind those that were found before."""
PREFIXES = 2**16
"""Beginnings of docids that the beams of all queries hold at once, or those of one query alone."""
TOGETHER = 1024
"""Queries that look into clusters together, so that those who look into the same one are compared with it at once."""


@dataclass(frozen=True, kw_only=True)
class Clustered(Writing):
    """A model that writes clusters, and the vectors of the documents in them."""

    below: TrieVectors
    documents: Encoder | None = None  # what makes vectors, where it is not what places documents
    fitted: Mapping[Way, tuple[float, ...]] = field(default_factory=dict)  # weights by what they were fitted for
    taught: int | None = None  # how many symbols of docids it has learned to write; None is no limit

    @cached_property
    def single(self) -> bool:
        """Whether no document has several docids."""
        return len(self.trie) == len(self.numbers)

    def docid_of(self, entry: int) -> Docid:
        """The docid of an entry of the trie, all its parts end to end."""
        return tuple(self._entries.flat[self._entries.start[entry] : self._entries.start[entry + 1]].tolist())

    def listed(self) -> list[Thing]:
        entries = self._entries
        return [entries.flat, entries.start, entries.document, *(part.parent for part in self.trie.parts)]

    def stored(self) -> Stored:
        parts, below = super().stored(), self.below.stored()
        parts["changes"] += below.pop("changes")
        parts["placer"] += weights_in(self.documents)
        parts["docids"] += [] if self.single else [self.below.several]
        return {**parts, **below}

    def products(self, now: int, then: int) -> dict[str, Products]:
        parts, shape = super().products(now, then), self.trie_shape(now, then)
        parts["placer"] = weight_products(weights_in(self.placer, self.documents))
        parts["docids"] = shape.path_products(ordered=False)
        if not self.single:
            parts["docids"].append(Product(shape.entries, "entries", 1, "whether its document has others"))
        return {**parts, "cluster vectors": self.below.products(shape.entries)}

    @cached_property
    def _entries(self) -> Paths:
        return reduce(Paths.joined, [part.paths() for part in self.trie.parts])


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

    engine: Clustered
    generator: MatchingGenerator
    options: SearchOptions
    depth: int | None

    def best(self, queries: Sequence[str], scoring: Scoring, k: int) -> list[Ranking]:
        """For each query the k best documents, and all that tie with the last."""
        width = self.options.width
        found = self._best(queries, scoring, k, width)
        short = _short(enumerate(found), k, width)
        while short:
            width *= 2
            wider = self._best([queries[query] for query in short], scoring, k, width)
            for query, more in zip(short, wider, strict=True):
                found[query] = found[query].followed_by(more)
            short = _short(((query, found[query]) for query in short), k, width)
        return found

    def _best(self, queries: Sequence[str], scoring: Scoring, k: int, width: int) -> list[Ranking]:
        """The same by a beam of one width, which may find fewer."""
        found: dict[int, Ranking] = {}
        # One more than is wanted of each cluster shows that no other can be among the first.
        each = k + 1 if scoring.rising else None
        for batch, seen in self._seen(queries, width):
            for query, one, some in zip(batch, seen, self._inside(seen, each), strict=True):
                best = best_of(some, scoring, k)
                if best is None:  # more of them tie
                    [every] = self._inside([one])
                    best = best_of(every, scoring, k)
                assert best is not None  # nothing was left out
                found[query] = best
        return [found[query] for query in range(len(queries))]

    def candidates(self, queries: Sequence[str]) -> Iterator[tuple[int, Candidates]]:
        """For each query, in any order, its place and all documents of its clusters."""
        for batch, seen in self._seen(queries, self.options.width):
            yield from zip(batch, self._inside(seen), strict=True)

    def compared(self, queries: Sequence[str], k: int) -> list[int]:
        """For each query how many vectors its own is compared with until there are k hits, by all beams together."""
        spans, width, wanted = self.engine.walk.spans, self.options.width, min(k, len(self.engine.numbers))
        found, left = [0] * len(queries), list(range(len(queries)))
        while left:
            short = []
            for batch, seen in self._seen([queries[query] for query in left], width):
                for query, one in zip([left[place] for place in batch], seen, strict=True):
                    found[query] += sum(part.stop - part.start for state in one.states for _, part in spans(state))
                    short += [query] if len(one.states) >= width and self._documents(one) < wanted else []
            left, width = sorted(short), 2 * width
        return found

    def _documents(self, seen: Seen) -> int:
        """How many documents the clusters of a query hold: none twice, and none that was deleted."""
        return len({number for state in seen.states for number in self.engine.walk.documents(state)})

    def explained(self, query: str, scoring: Scoring, scores: Mapping[int, float]) -> dict[int, Parts]:
        """What the scores of documents, by their numbers, are made of in the first beam that has each."""
        width, more = self.options.width, True
        parts: dict[int, Parts] = {}
        while len(parts) < len(scores) and more:
            [(_, seen)] = self._seen([query], width)
            [found] = self._inside(seen)
            left = {number: scores[number] for number in scores if number not in parts}
            parts |= _parts(found, scoring, left, is_wider=width > self.options.width)
            width, more = 2 * width, found.clusters >= width
        return {number: parts.get(number, ((WIDER, score),)) for number, score in scores.items()}

    def _seen(self, queries: Sequence[str], width: int) -> Iterator[tuple[list[int], list[Seen]]]:
        """Some queries after the other: their places, and what a beam of this width found for them."""
        # Lengths count in the rule `sum`: so a prefix that is alone goes on to its depth like all others.
        options = replace(self.options.beam(1), width=width, finish=False)
        # A wider beam takes no more memory, and one that is asked to be very wide reads few queries at once.
        rows = max(1, min(ROWS * self.options.width, PREFIXES) // width)
        places: list[int] = []
        seen: list[Seen] = []
        for batch, cache, hidden in read_together(self.generator, queries, rows):
            frontier = beam(self.generator, cache, hidden, self.engine.walk, options, depth=self.depth)
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
        engine, vectors = self.engine, torch.stack([one.vector for one in seen])
        always = None if each is None or engine.single else engine.below.several
        found = engine.below.below(engine.walk, vectors, [one.states for one in seen], each, always)
        for below, one in zip(found, seen, strict=True):
            yield candidates(below, one.logprob, one.length, single=engine.single)


def _one_by_one(vectors: Tensor, frontier: Frontier) -> list[Seen]:
    """What was found for each query, without the places in which nothing is."""
    # All come from a GPU at once: to wait for it query by query takes longer than the search.
    columns = (frontier.state, frontier.logprob.double(), frontier.length, frontier.logprob.isfinite())
    found = zip(vectors, *(column.cpu().numpy() for column in columns), strict=True)
    return [
        Seen(vector, state[there].tolist(), logprob[there], length[there])
        for vector, state, logprob, length, there in found
    ]


def _parts(found: Candidates, scoring: Scoring, scores: Mapping[int, float], *, is_wider: bool) -> dict[int, Parts]:
    """What the scores of those documents that were found are made of, and what they were moved by."""
    names, columns = zip(*scoring.parts(found).items(), strict=True)
    lines = np.flatnonzero(np.isin(found.numbers, [*scores]))
    explained = {}
    for number, *weights in zip(*(column[lines].tolist() for column in (found.numbers, *columns)), strict=True):
        moved = ((WIDER, scores[number] - sum(weights)),) if is_wider else ()
        explained[number] = (*zip(names, weights, strict=True), *moved)
    return explained


def _short(found: Iterable[tuple[int, Ranking]], k: int, width: int) -> list[int]:
    """The queries that have fewer than k documents, though a beam that is wider than this may find more."""
    return [query for query, one in found if len(one) < k and one.clusters >= width]
