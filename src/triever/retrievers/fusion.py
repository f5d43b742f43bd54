"""Several retrievers as one: their rankings are joined by reciprocal ranks or by scores, weighted.

The weights can be fitted on queries that were held out. Every part learns, takes and drops the same documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from triever import artifact, config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.errors import UsageError
from triever.retrievers.base import Parts, Retriever, learned_by
from triever.retrievers.bm25 import BM25
from triever.storage import Products, Stored, inside
from triever.training.pairs import Pairs, held_out, pairs_of
from triever.validation import require, require_numbers

T = TypeVar("T")

RRF = 60
"""The constant of reciprocal-rank fusion: how little the very first ranks differ."""

GRID = (0, 0.02, 0.05, *np.arange(1, 10) / 10, 0.95, 0.98, 1)
"""The shares that a fit tries for each part, in turn."""


@dataclass(frozen=True)
class Fusion:
    """The engines of the parts, and what each part counts for."""

    engines: tuple[Any, ...]
    weights: tuple[float, ...]


@dataclass(eq=False)
class Fused(Retriever):
    """A fusion: `Fused(systems=(BM25(), Dense()), tune="train")`."""

    kind: ClassVar[str] = "fused"

    systems: tuple[Retriever, ...] = option((BM25(),), "what is joined, by name or as tables with kind and options")
    method: Literal["rrf", "scores"] = option("scores", "join reciprocal ranks (rrf), or scores put between 0 and 1")
    weights: tuple[float, ...] = option((), "what each system counts for; all the same where nothing is said")
    tune: str = option("", "fit the weights on held-out queries of this split, or of several (a+b), instead")
    holdout: float = option(
        0.05, "the share of that split that is held out; no more than the systems hold out in training"
    )
    depth: int = option(
        100, "how many hits of each system are joined; what is found further down follows behind them, by turns"
    )

    def __post_init__(self) -> None:
        if self.systems is type(self).systems:  # one object for all fusions, and a retriever holds documents
            self.systems = (BM25(),)
        config.validate(self)
        if not self.systems:
            raise UsageError("a fusion needs systems", "for example: systems=bm25,dense")
        if self.weights and len(self.weights) != len(self.systems):
            raise UsageError(f"{len(self.systems)} systems and {len(self.weights)} weights", "give one weight for each")
        if min(self.weights, default=1) < 0 or (self.weights and not any(self.weights)):
            raise UsageError(f"weights = {self.weights} should not be negative", "and one should be above zero")
        if self.depth < 1 or not 0 < self.holdout <= 1:
            raise UsageError(f"depth = {self.depth}, holdout = {self.holdout}", "depth is above 0, holdout up to 1")

    def _learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> Fusion:
        engines = tuple(
            system._engine_for(dataset, store, work / f"system{number}" if work else None)
            for number, system in enumerate(self.systems)
        )
        equal = tuple(1 / len(engines) for _ in engines)
        engine = Fusion(engines, self.weights or equal)
        return Fusion(engines, self._fitted(engine, store, self._asked(dataset, store))) if self._tunes else engine

    def _members(self) -> tuple[Retriever, ...]:
        return self.systems

    @property
    def _tunes(self) -> bool:
        return bool(self.tune) and len(self.systems) > 1

    def _lessons(self, dataset: Dataset, store: DocumentStore) -> dict[str, Any]:
        if self._tunes:
            self._check_holdouts()
            self._asked(dataset, store)
        return super()._lessons(dataset, store)

    def _check_holdouts(self) -> None:
        """Refuse systems that learn the queries on which the weights are to be fitted."""
        if found := learned_by(self.systems, self.tune, self.holdout):
            system, split = found
            problem = f"{system.kind} learns queries of {split} that the weights are fitted on"
            said = f"its training.holdout is {system._training.holdout}, the fusion's holdout {self.holdout}"
            raise UsageError(f"{problem}: {said}", "hold out as many queries in training as in the fusion, or more")

    def _asked(self, dataset: Dataset, store: DocumentStore) -> Pairs:
        """The queries on which the weights are fitted."""
        _, held = held_out(pairs_of(dataset, self.tune, store), self.holdout)
        if not len(held):
            problem = f"no query of {self.tune} is held out at a share of {self.holdout}"
            raise UsageError(problem, "raise holdout")
        return held

    def _fitted(self, engine: Fusion, store: DocumentStore, held: Pairs) -> tuple[float, ...]:
        """The weights, of a grid, with the best mean reciprocal rank; each is set in turn until none moves."""
        values = [self._values(results) for results in self._found(engine, store, held.texts, self.depth)]
        relevant = [{store.ids[row] for row in held.of(query)} for query in range(len(held))]
        brought = _Brought.of(values, relevant)
        weights = engine.weights
        best = brought.quality(weights)
        for _ in range(len(weights)):
            before = weights
            for at in range(len(weights)):
                for share in GRID:
                    tried = _with_share(weights, at, float(share))
                    if (found := brought.quality(tried)) > best + 1e-9:
                        best, weights = found, tried
            if weights == before:
                break
        return weights

    def _with_added(self, engine: Fusion, documents: Sequence[Document], store: DocumentStore) -> Fusion:
        added = (system._with_added(one, documents, store) for system, one in self._pairs(engine))
        return Fusion(tuple(added), engine.weights)

    def _without(self, engine: Fusion, keep: np.ndarray) -> Fusion:
        return Fusion(tuple(system._without(one, keep) for system, one in self._pairs(engine)), engine.weights)

    def _pairs(self, engine: Fusion) -> zip[tuple[Retriever, Any]]:
        return zip(self.systems, engine.engines, strict=True)

    def _found(self, engine: Fusion, store: DocumentStore, queries: Sequence[str], k: int) -> list[tuple[Result, ...]]:
        """For each query, what each system finds."""
        if not queries:
            return []
        depth = min(max(self.depth, k), len(store))
        found = [system._search(one, store, queries, depth) for system, one in self._pairs(engine)]
        return list(zip(*found, strict=True))

    def _values(self, results: Iterable[Result]) -> list[dict[str, float]]:
        """What each system gives to each document that it brings, between 0 and 1, however many are asked for."""
        value = _reciprocal_ranks if self.method == "rrf" else _scaled
        return [value(result[: self.depth]) for result in results]

    def _search(self, engine: Fusion, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        found = self._found(engine, store, queries, k)
        return [Result(self._order(results, engine.weights)[:k]) for results in found]

    def _order(self, results: Sequence[Result], weights: Sequence[float]) -> tuple[Hit, ...]:
        """The first hits joined, and the others behind them."""
        first = _joined(self._values(results), weights)
        return (*first, *_behind(first, [result[self.depth :] for result in results]))

    def _explain(self, engine: Fusion, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        values = self._values(self._found(engine, store, [query], len(result))[0])
        parts = list(self._named(zip(engine.weights, values, strict=True)))
        return tuple(
            tuple((name, weight * value[hit.id]) for name, (weight, value) in parts if hit.id in value)
            or ((f"found behind the first {self.depth}", hit.score),)
            for hit in result
        )

    def _made_from(self, engine: Fusion) -> dict[str, Any]:
        parts = [system._made_from(one).get("weights") for system, one in self._pairs(engine)]
        named = {"weights": "; ".join(dict.fromkeys(part for part in parts if part))} if any(parts) else {}
        return named | {"shares": [round(weight, 4) for weight in engine.weights]}

    def _stored(self, engine: Fusion) -> Stored:
        parts = (system._stored(one) for system, one in self._pairs(engine))
        return {part: things for name, own in self._named(parts) for part, things in inside(name, own).items()}

    def _computed(self, engine: Fusion, now: int, then: int) -> dict[str, Products]:
        parts = (system._computed(one, now, then) for system, one in self._pairs(engine))
        return {part: sums for name, own in self._named(parts) for part, sums in inside(name, own).items()}

    def _named(self, each: Iterable[T]) -> Iterator[tuple[str, T]]:
        """What there is of each system, with what the system is called."""
        return zip((f"{system.kind} {number}" for number, system in enumerate(self.systems, 1)), each, strict=True)

    def _write(self, engine: Fusion, writer: artifact.Writer) -> dict[str, Any]:
        state: dict[str, Any] = {"weights": list(engine.weights)}
        for number, (system, one) in enumerate(self._pairs(engine)):
            state[f"system{number}"] = system._write(one, writer.inside(f"system{number}"))
        return state

    def _read(self, snapshot: artifact.Snapshot) -> Fusion:
        engines = [system._read(snapshot.inside(f"system{number}")) for number, system in enumerate(self.systems)]
        weights = require_numbers(snapshot.state.get("weights"), "weights", len(engines))
        require(min(weights) >= 0, "its weights are negative")
        return Fusion(tuple(engines), weights)


def _with_share(weights: tuple[float, ...], at: int, share: float) -> tuple[float, ...]:
    """Weights that sum to one, one of them given; the others keep their proportions.

    >>> _with_share((0.5, 0.25, 0.25), 0, 0.8)
    (0.8, 0.1, 0.1)
    """
    others = sum(weights) - weights[at]
    rest = len(weights) - 1
    spread = [(1 - share) * (one / others if others else 1 / rest) for one in weights]
    return tuple(share if number == at else round(one, 6) for number, one in enumerate(spread))


def _reciprocal_ranks(hits: Sequence[Hit]) -> dict[str, float]:
    return {hit.id: (RRF + 1) / (RRF + rank) for rank, hit in enumerate(hits, 1)}


def _scaled(hits: Sequence[Hit]) -> dict[str, float]:
    """Scores between 0 and 1: the best hit has 1, and the last one a little, since it was found."""
    if not hits:
        return {}
    high, low = hits[0].score, hits[-1].score
    span = (high - low) * 1.01
    return {hit.id: 1 - (high - hit.score) / span if span > 0 else 1.0 for hit in hits}


def _joined(parts: Sequence[Mapping[str, float]], weights: Sequence[float]) -> tuple[Hit, ...]:
    total: dict[str, float] = {}
    for part, weight in zip(parts, weights, strict=True):
        for document, value in part.items():
            total[document] = total.get(document, 0.0) + weight * value
    return ranked(Hit(document, score) for document, score in total.items())


def _behind(first: Sequence[Hit], others: Sequence[Sequence[Hit]]) -> list[Hit]:
    """What the systems find further down, by turns: an order that stays when more is asked for."""
    seen = {hit.id for hit in first}
    turns = (hit.id for rank in zip_longest(*others) for hit in rank if hit and hit.id not in seen)
    least = min((hit.score for hit in first), default=0.0)
    return [Hit(document, least - place) for place, document in enumerate(dict.fromkeys(turns), 1)]


@dataclass(frozen=True)
class _Brought:
    """What the parts bring for many queries, end to end: a fit asks a hundred times for the quality of all."""

    values: np.ndarray  # (parts, entries), a query's entries side by side, equal ones in the order of `ranked`
    relevant: np.ndarray  # (entries,)
    start: np.ndarray  # (queries with entries,) where each begins
    queries: int

    @classmethod
    def of(cls, values: Sequence[Sequence[Mapping[str, float]]], relevant: Sequence[set[str]]) -> _Brought:
        """For each query what each part gives to documents, and which of them are relevant."""
        documents = [sorted({document for part in parts for document in part}, reverse=True) for parts in values]
        counts = [len(some) for some in documents]
        table = [
            [part.get(document, 0.0) for part in parts]
            for parts, some in zip(values, documents, strict=True)
            for document in some
        ]
        good = [document in right for some, right in zip(documents, relevant, strict=True) for document in some]
        start = np.cumsum([0, *counts])[:-1][np.array(counts) > 0]
        given = np.array(table, np.float64).reshape(sum(counts), -1).T if table else np.empty((0, 0))
        return cls(given, np.array(good, bool), start, len(values))

    def quality(self, weights: Sequence[float]) -> float:
        """The mean reciprocal rank of the first relevant document; equal ones stay in their order."""
        if not self.relevant.any():
            return 0.0
        total = sum(weight * part for weight, part in zip(weights, self.values, strict=True))
        best = self._each(np.maximum, np.where(self.relevant, total, -np.inf))
        place = np.arange(len(total))
        first = self._each(np.minimum, np.where(self.relevant & (total == best), place, len(place)))
        before = (total > best) | ((total == best) & (place < first))
        ranks = 1 + np.add.reduceat(before, self.start, dtype=np.int64)
        found = np.logical_or.reduceat(self.relevant, self.start)
        return float(np.sum(1 / ranks[found]) / self.queries)

    def _each(self, reduce: np.ufunc, entries: np.ndarray) -> np.ndarray:
        """(entries,) the least or the most of each query, for every entry of it."""
        lengths = np.diff([*self.start, len(entries)])
        return np.repeat(reduce.reduceat(entries, self.start), lengths)
