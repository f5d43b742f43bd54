"""Several retrievers as one: their rankings are joined by reciprocal ranks or by scores, weighted.

The weights can be fitted on queries that were held out. Every part learns, takes and drops the same documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from triever import artifact, config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.engines.base import Engine
from triever.engines.fused import FusedEngine, Joining, part_name, read_weights
from triever.errors import UsageError
from triever.retriever import Retriever, learned_by
from triever.retrievers.bm25 import BM25
from triever.training.pairs import Pairs, held_out, pairs_of

GRID = (0, 0.02, 0.05, *np.arange(1, 10) / 10, 0.95, 0.98, 1)
"""The shares that a fit tries for each part, in turn."""


@dataclass(eq=False)
class Fused(Retriever[FusedEngine]):
    """A fusion: `Fused(systems=(BM25(), Dense()), tune="train")`."""

    kind: ClassVar[str] = "fused"
    gives_probabilities: ClassVar[bool] = False

    systems: tuple[Retriever[Any], ...] = option(
        (BM25(),), "what is joined, by name or as tables with kind and options"
    )
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
            raise UsageError("a fusion needs at least one system", "for example: systems=bm25,dense")
        if self.weights and len(self.weights) != len(self.systems):
            raise UsageError(
                f"there are {len(self.systems)} systems but {len(self.weights)} weights", "give one weight for each"
            )
        if min(self.weights, default=1) < 0 or (self.weights and not any(self.weights)):
            raise UsageError(
                f"weights = {self.weights} should not be negative or all zero", "for example: weights=1,0.5"
            )
        if self.depth < 1 or not 0 < self.holdout <= 1:
            problem = f"a value is out of range: depth = {self.depth}, holdout = {self.holdout}"
            raise UsageError(problem, "set depth to 1 or more, and holdout above 0 and up to 1")

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> FusedEngine:
        """Learn all systems, and what each counts for."""
        engines = tuple(
            system.engine_for(dataset, store, work / part_name(number) if work else None)
            for number, system in enumerate(self.systems)
        )
        engine = self._joined(engines, self.weights or tuple(1 / len(engines) for _ in engines))
        if not self._tunes:
            return engine
        return replace(engine, weights=self._fitted(engine, store, self._asked(dataset, store)))

    def _joined(self, engines: tuple[Engine, ...], weights: tuple[float, ...]) -> FusedEngine:
        names = tuple(f"{system.kind} {number}" for number, system in enumerate(self.systems, 1))
        return FusedEngine(names, engines, weights, Joining(self.method, self.depth))

    def read(self, snapshot: artifact.Snapshot) -> FusedEngine:
        """The engines of an artifact."""
        engines = tuple(system.read(snapshot.inside(part_name(number))) for number, system in enumerate(self.systems))
        return self._joined(engines, read_weights(snapshot, len(engines)))

    def tuned(self, engine: FusedEngine, documents: Sequence[Document], store: DocumentStore) -> FusedEngine:
        """With each of its engines tuned on new documents, where its system wants that."""
        pairs = zip(self.systems, engine.engines, strict=True)
        return replace(engine, engines=tuple(system.tuned(member, documents, store) for system, member in pairs))

    @property
    def members(self) -> tuple[Retriever[Any], ...]:
        """The systems that are joined."""
        return self.systems

    @property
    def _tunes(self) -> bool:
        return bool(self.tune) and len(self.systems) > 1

    def lessons(self, dataset: Dataset, store: DocumentStore) -> dict[str, Any]:
        if self._tunes:
            self._check_holdouts()
            self._asked(dataset, store)
        return super().lessons(dataset, store)

    def _check_holdouts(self) -> None:
        """Refuse systems that learn the queries on which the weights are to be fitted."""
        if conflict := learned_by(self.systems, self.tune, self.holdout):
            system, split = conflict
            problem = f"{system.kind} is trained on queries of {split} that the weights are fitted on"
            details = f"its training.holdout is {system.tuning.holdout}, the fusion's holdout is {self.holdout}"
            raise UsageError(f"{problem}: {details}", "set training.holdout to the fusion's holdout or more")

    def _asked(self, dataset: Dataset, store: DocumentStore) -> Pairs:
        """The queries on which the weights are fitted."""
        _, held = held_out(pairs_of(dataset, self.tune, store), self.holdout)
        if not len(held):
            problem = f"holdout = {self.holdout} holds out no query of {self.tune}"
            raise UsageError(problem, "raise holdout")
        return held

    def _fitted(self, engine: FusedEngine, store: DocumentStore, held: Pairs) -> tuple[float, ...]:
        """The weights, of a grid, with the best mean reciprocal rank; each is set in turn until none moves."""
        values = [engine.joining.values(results) for results in engine.results(store, held.texts, self.depth)]
        relevant = [{store.ids[row] for row in held.of(query)} for query in range(len(held))]
        brought = _Brought.of(values, relevant)
        weights = engine.weights
        best = brought.quality(weights)
        for _ in range(len(weights)):
            before = weights
            for at in range(len(weights)):
                for share in GRID:
                    tried = _with_share(weights, at, float(share))
                    if (quality := brought.quality(tried)) > best + 1e-9:
                        best, weights = quality, tried
            if weights == before:
                break
        return weights


def _with_share(weights: tuple[float, ...], at: int, share: float) -> tuple[float, ...]:
    """Weights that sum to one, one of them given; the others keep their proportions.

    >>> _with_share((0.5, 0.25, 0.25), 0, 0.8)
    (0.8, 0.1, 0.1)
    """
    other_sum = sum(weights) - weights[at]
    rest = len(weights) - 1
    spread = [(1 - share) * (weight / other_sum if other_sum else 1 / rest) for weight in weights]
    return tuple(share if number == at else round(weight, 6) for number, weight in enumerate(spread))


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
        counts = [len(ids) for ids in documents]
        table = [
            [part.get(document, 0.0) for part in parts]
            for parts, ids in zip(values, documents, strict=True)
            for document in ids
        ]
        good = [document in right for ids, right in zip(documents, relevant, strict=True) for document in ids]
        start = np.cumsum([0, *counts])[:-1][np.array(counts) > 0]
        given = np.array(table, np.float64).reshape(sum(counts), -1).T if table else np.empty((0, 0))
        return cls(given, np.array(good, bool), start, len(values))

    def quality(self, weights: Sequence[float]) -> float:
        """The mean reciprocal rank of the first relevant document; equal ones stay in their order."""
        if not self.relevant.any():
            return 0.0
        total = sum(weight * part for weight, part in zip(weights, self.values, strict=True))
        best = self._each(np.maximum, np.where(self.relevant, total, -np.inf))
        position = np.arange(len(total))
        first = self._each(np.minimum, np.where(self.relevant & (total == best), position, len(position)))
        before = (total > best) | ((total == best) & (position < first))
        ranks = 1 + np.add.reduceat(before, self.start, dtype=np.int64)
        has_relevant = np.logical_or.reduceat(self.relevant, self.start)
        return float(np.sum(1 / ranks[has_relevant]) / self.queries)

    def _each(self, reduce: np.ufunc, entries: np.ndarray) -> np.ndarray:
        """(entries,) the least or the most of each query, for every entry of it."""
        lengths = np.diff([*self.start, len(entries)])
        return np.repeat(reduce.reduceat(entries, self.start), lengths)
