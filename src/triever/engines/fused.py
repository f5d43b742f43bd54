"""Several engines whose hits are joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np

from triever.artifact import Snapshot, Writer
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.engines.base import Engine, Parts, among, docid_tree_of
from triever.engines.panels import Panel, first_panels
from triever.memory_parts import Products, Stored, inside
from triever.validation import require, require_numbers

if TYPE_CHECKING:
    from triever.engines.docid_tree import DocidTree

RRF = 60
"""The constant of reciprocal-rank fusion: how little the very first ranks differ."""

T = TypeVar("T")


@dataclass(frozen=True)
class Joining:
    """How hits are joined: `Joining("scores", depth=100)`."""

    method: Literal["rrf", "scores"]
    depth: int  # hits of each engine that are joined

    def values(self, results: Iterable[Result]) -> list[dict[str, float]]:
        """What each engine gives to each document that it brings, between 0 and 1, however many are asked for."""
        value = _reciprocal_ranks if self.method == "rrf" else _scaled
        return [value(result[: self.depth]) for result in results]


@dataclass(frozen=True)
class FusedEngine:
    """Engines by name, and what each of them counts for."""

    names: tuple[str, ...]
    engines: tuple[Engine, ...]
    weights: tuple[float, ...]
    joining: Joining

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The hits of all engines, joined."""
        return [_noted(self._order(results)[:k], results) for results in self.results(store, queries, k)]

    def results(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[tuple[Result, ...]]:
        """For each query, what each engine finds."""
        if not queries:
            return []
        depth = min(max(self.joining.depth, k), len(store))
        return list(zip(*(engine.search(store, queries, depth) for engine in self.engines), strict=True))

    def _order(self, results: Sequence[Result]) -> tuple[Hit, ...]:
        """The first hits joined, and the others behind them."""
        first = _joined(self.joining.values(results), self.weights)
        return (*first, *_behind(first, [result[self.joining.depth :] for result in results]))

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """What each engine gives."""
        values = self.joining.values(self.results(store, [query], len(result))[0])
        parts = list(zip(self.names, zip(self.weights, values, strict=True), strict=True))
        return tuple(
            tuple((name, weight * value[hit.id]) for name, (weight, value) in parts if hit.id in value)
            or ((f"found behind the first {self.joining.depth}", hit.score),)
            for hit in result
        )

    def panels(self, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
        """What there is to see of how each engine found these hits."""
        depth = min(max(self.joining.depth, k), len(store))
        [results] = self.results(store, [query], k)
        each = zip(self.names, self.engines, results, strict=True)
        return tuple(
            panel
            for name, engine, candidates in each
            for panel in first_panels(engine, name, store, query, candidates, result, depth)
        )

    def docid_tree(self) -> DocidTree | None:
        """The docids of the first engine that has some."""
        return next(filter(None, map(docid_tree_of, self.engines)), None)

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With more documents in each."""
        return replace(self, engines=tuple(engine.with_added(documents, store) for engine in self.engines))

    def without(self, keep: np.ndarray) -> Self:
        """Without some of the rows of each."""
        return replace(self, engines=tuple(engine.without(keep) for engine in self.engines))

    def among(self, keep: np.ndarray) -> Self:
        """With some of the rows of each, for searches alone."""
        return replace(self, engines=tuple(among(engine, keep) for engine in self.engines))

    def stored(self) -> Stored:
        """What each holds."""
        return _by_name(self._named(engine.stored() for engine in self.engines))

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed."""
        return _by_name(self._named(engine.products(now, then) for engine in self.engines))

    def _named(self, each: Iterable[T]) -> Iterator[tuple[str, T]]:
        """What there is of each engine, with its name."""
        return zip(self.names, each, strict=True)

    def made_from(self) -> dict[str, Any]:
        """Whose weights all of them have, and what each counts for."""
        parts = [engine.made_from().get("weights") for engine in self.engines]
        named = {"weights": "; ".join(dict.fromkeys(part for part in parts if part))} if any(parts) else {}
        return named | {"shares": [round(weight, 4) for weight in self.weights]}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put all of them into an artifact."""
        state: dict[str, Any] = {"weights": list(self.weights)}
        for number, engine in enumerate(self.engines):
            state[part_name(number)] = engine.write(writer.inside(part_name(number)))
        return state


def part_name(number: int) -> str:
    """What an engine of a fusion is called in its artifact."""
    return f"system{number}"


def read_weights(snapshot: Snapshot, count: int) -> tuple[float, ...]:
    """What each engine of an artifact counts for."""
    weights = require_numbers(snapshot.state.get("weights"), "weights", count)
    require(min(weights) >= 0, "its weights are negative")
    return weights


def _by_name(parts: Iterable[tuple[str, Mapping[str, T]]]) -> dict[str, T]:
    return {part: things for name, system_parts in parts for part, things in inside(name, system_parts).items()}


def _noted(hits: tuple[Hit, ...], results: Sequence[Result]) -> Result:
    """The joined hits; where there are none, with what the engines say about that."""
    return Result(hits, note="" if hits else "; ".join(dict.fromkeys(result.note for result in results if result.note)))


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
    lowest = min((hit.score for hit in first), default=0.0)
    return [Hit(document, lowest - position) for position, document in enumerate(dict.fromkeys(turns), 1)]
