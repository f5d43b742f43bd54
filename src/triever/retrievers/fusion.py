"""Several retrievers as one: their rankings are joined by reciprocal ranks or by scores, weighted.

The weights can be fitted on queries that were held out. Every part learns, takes and drops the same documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from triever import artifact, config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.errors import UsageError
from triever.retrievers.base import Parts, Retriever
from triever.retrievers.bm25 import BM25
from triever.training.pairs import Pairs, held_out, pairs_of

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
    tune: str = option("", "fit the weights on held-out queries of this split instead")
    holdout: float = option(0.05, "the share of that split that is held out; the same as the systems were trained with")
    depth: int = option(100, "how many hits each system brings")

    def __post_init__(self) -> None:
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
        if not self.tune or len(engines) == 1:
            return engine
        _, held = held_out(pairs_of(dataset, self.tune, store), self.holdout)
        if not len(held):
            problem = f"no query of {self.tune} is held out at a share of {self.holdout}"
            raise UsageError(problem, "raise holdout")
        return Fusion(engines, self._fitted(engine, store, held))

    def _fitted(self, engine: Fusion, store: DocumentStore, held: Pairs) -> tuple[float, ...]:
        """The weights, of a grid, with the best mean reciprocal rank; each is set in turn until none moves."""
        parts = self._parts(engine, store, held.texts, self.depth)
        relevant = [{store.ids[row] for row in held.of(query)} for query in range(len(held))]

        def quality(weights: tuple[float, ...]) -> float:
            return float(
                np.mean([_reciprocal(_joined(one, weights), good) for one, good in zip(parts, relevant, strict=True)])
            )

        weights = engine.weights
        best = quality(weights)
        for _ in range(len(weights)):
            before = weights
            for at in range(len(weights)):
                for share in GRID:
                    tried = _with_share(weights, at, float(share))
                    if (found := quality(tried)) > best + 1e-9:
                        best, weights = found, tried
            if weights == before:
                break
        return weights

    def _with_added(self, engine: Fusion, documents: Sequence[Document]) -> Fusion:
        added = (system._with_added(one, documents) for system, one in self._pairs(engine))
        return Fusion(tuple(added), engine.weights)

    def _without(self, engine: Fusion, keep: np.ndarray) -> Fusion:
        return Fusion(tuple(system._without(one, keep) for system, one in self._pairs(engine)), engine.weights)

    def _pairs(self, engine: Fusion) -> zip[tuple[Retriever, Any]]:
        return zip(self.systems, engine.engines, strict=True)

    def _parts(
        self, engine: Fusion, store: DocumentStore, queries: Sequence[str], k: int
    ) -> list[list[Mapping[str, float]]]:
        """For each query, what each system gives to each document it finds, between 0 and 1."""
        depth = min(max(self.depth, k), len(store))
        found = [system._search(one, store, queries, depth) for system, one in self._pairs(engine)]
        value = _reciprocal_ranks if self.method == "rrf" else _scaled
        return [[value(result) for result in results] for results in zip(*found, strict=True)]

    def _search(self, engine: Fusion, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        parts = self._parts(engine, store, queries, k)
        return [Result(_joined(one, engine.weights)[:k]) for one in parts]

    def _explain(self, engine: Fusion, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        parts = self._parts(engine, store, [query], len(result))[0]
        names = [f"{system.kind} {number}" for number, system in enumerate(self.systems, 1)]
        return tuple(
            tuple(
                (name, weight * part[hit.id])
                for name, weight, part in zip(names, engine.weights, parts, strict=True)
                if hit.id in part
            )
            for hit in result
        )

    def _made_from(self, engine: Fusion) -> dict[str, Any]:
        parts = [system._made_from(one).get("weights") for system, one in self._pairs(engine)]
        named = {"weights": "; ".join(dict.fromkeys(part for part in parts if part))} if any(parts) else {}
        return named | {"shares": [round(weight, 4) for weight in engine.weights]}

    def _index_bytes(self, engine: Fusion) -> int:
        return sum(system._index_bytes(one) for system, one in self._pairs(engine))

    def _write(self, engine: Fusion, writer: artifact.Writer) -> dict[str, Any]:
        state: dict[str, Any] = {"weights": list(engine.weights)}
        for number, (system, one) in enumerate(self._pairs(engine)):
            state[f"system{number}"] = system._write(one, writer.inside(f"system{number}"))
        return state

    def _read(self, snapshot: artifact.Snapshot) -> Fusion:
        engines = [system._read(snapshot.inside(f"system{number}")) for number, system in enumerate(self.systems)]
        return Fusion(tuple(engines), tuple(snapshot.state["weights"]))


def _with_share(weights: tuple[float, ...], at: int, share: float) -> tuple[float, ...]:
    """Weights that sum to one, one of them given; the others keep their proportions.

    >>> _with_share((0.5, 0.25, 0.25), 0, 0.8)
    (0.8, 0.1, 0.1)
    """
    others = sum(weights) - weights[at]
    rest = len(weights) - 1
    spread = [(1 - share) * (one / others if others else 1 / rest) for one in weights]
    return tuple(share if number == at else round(one, 6) for number, one in enumerate(spread))


def _reciprocal_ranks(result: Result) -> dict[str, float]:
    return {hit.id: (RRF + 1) / (RRF + rank) for rank, hit in enumerate(result, 1)}


def _scaled(result: Result) -> dict[str, float]:
    """Scores between 0 and 1: the best hit has 1, and the last one a little, since it was found."""
    if not len(result):
        return {}
    high, low = result[0].score, result[-1].score
    span = (high - low) * 1.01
    return {hit.id: 1 - (high - hit.score) / span if span > 0 else 1.0 for hit in result}


def _joined(parts: Sequence[Mapping[str, float]], weights: Sequence[float]) -> tuple[Hit, ...]:
    total: dict[str, float] = {}
    for part, weight in zip(parts, weights, strict=True):
        for document, value in part.items():
            total[document] = total.get(document, 0.0) + weight * value
    return ranked(Hit(document, score) for document, score in total.items())


def _reciprocal(hits: Sequence[Hit], relevant: set[str]) -> float:
    return next((1 / rank for rank, hit in enumerate(hits, 1) if hit.id in relevant), 0.0)
