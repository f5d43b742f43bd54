"""What an explanation shows besides the parts of scores: small records that become plain values, for JSON.

A panel says of what kind it is and what its numbers mean, and holds all that a page needs to draw it. A panel of a new
kind is a record here with its own `to_dict`, and one component of a page.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias, runtime_checkable

from triever.data.records import Result
from triever.data.store import DocumentStore

LINES = 8
"""Lengths of a beam that are printed."""
IN_LINE = 3
"""Prefixes of one length that are printed, besides those of the first hit."""
UNKNOWN = "?"
"""A token of which nothing but its vector is known."""
Outcome: TypeAlias = Literal["kept", "ended", "pruned"]
"""What became of a prefix: others were written behind it, or it became a docid that was ranked, or it was dropped."""


@dataclass(frozen=True)
class Panel(ABC):
    """Something that an explanation shows: what its numbers mean, and the part of a composite that it is from."""

    kind: ClassVar[str]
    about: str
    system: str

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """What it shows, as plain values."""

    @abstractmethod
    def renamed(self, ids: Mapping[str, str]) -> Self:
        """The same for hits with other ids, such as documents in place of their passages."""

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {"kind": self.kind, "system": self.system, "about": self.about, **self.values()}

    def part_of(self, system: str) -> Self:
        """The same as a part of a composite, in which the system that it is from has this name."""
        return replace(self, system=" / ".join(filter(None, [system, self.system])))


@runtime_checkable
class Shows(Protocol):
    """An engine whose explanations have panels."""

    def panels(self, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
        """What there is to see of the search that found these hits when k were asked for."""
        ...


def panels_of(engine: object, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
    """The panels of an engine; none where it has none, or where nothing was found."""
    return engine.panels(store, query, result, k) if isinstance(engine, Shows) and len(result) else ()


def first_panels(
    engine: object, name: str, store: DocumentStore, query: str, candidates: Result, result: Result, k: int
) -> tuple[Panel, ...]:
    """The panels of a part of a composite: of those of its k candidates that are hits of the whole."""
    hits = {hit.id for hit in result}
    chosen = replace(candidates, hits=tuple(hit for hit in candidates if hit.id in hits))
    return tuple(panel.part_of(name) for panel in panels_of(engine, store, query, chosen, k))


# The prefixes of a search


@dataclass(frozen=True)
class BeamPrefix:
    """A prefix that a search has looked at."""

    prefix: tuple[int, ...]
    symbol: str  # the last one, as text
    docid: str  # all of it, as text
    logprob: float
    outcome: Outcome
    ends: bool  # whether it is a whole docid
    documents: int  # that lie below it
    hits: tuple[str, ...]  # those of the result among them
    parent: int | None  # where in the level before it stands what it continues; None is the beginning

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**vars(self), "prefix": list(self.prefix), "hits": list(self.hits)}

    def __str__(self) -> str:
        whole = ", a docid" if self.ends else ""
        return f"{math.exp(min(self.logprob, 0.0)):.3g} {self.docid} ({self.documents:,}{whole})"


@dataclass(frozen=True)
class BeamLevel:
    """What a search did with the prefixes of one length; the most probable of them are shown."""

    length: int
    kept: int
    ended: int
    pruned: int
    prefixes: tuple[BeamPrefix, ...]  # those that are shown, the most probable first

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**vars(self), "prefixes": [prefix.to_dict() for prefix in self.prefixes]}

    def leading(self, hit: str) -> list[BeamPrefix]:
        """The prefixes that lead to a hit and were not pruned."""
        return [prefix for prefix in self.prefixes if hit in prefix.hits and prefix.outcome != "pruned"]

    def line(self, hit: str) -> str:
        """The best prefixes and those that lead to a hit on one line."""
        going, leading = [prefix for prefix in self.prefixes if prefix.outcome != "pruned"], self.leading(hit)
        shown = [prefix for at, prefix in enumerate(going) if at < IN_LINE or prefix in leading]
        texts = (f"{'*' if prefix in leading else ''}{prefix}" for prefix in shown)
        counts = f"{self.kept:,} kept, {self.ended:,} ended, {self.pruned:,} pruned"
        return f"  {self.length}: {', '.join(texts)}; {counts}"


@dataclass(frozen=True)
class Beam(Panel):
    """How docids were written, length by length, and the docid of each hit."""

    kind: ClassVar[str] = "beam"
    method: str
    normalisation: str
    levels: tuple[BeamLevel, ...]
    paths: tuple[tuple[str, tuple[int, ...]], ...]  # (id of a hit, the symbols of its docid)

    def values(self) -> dict[str, Any]:
        """What it shows, as plain values."""
        return {
            "method": self.method,
            "normalisation": self.normalisation,
            "levels": [level.to_dict() for level in self.levels],
            "paths": [{"id": hit, "prefix": list(prefix)} for hit, prefix in self.paths],
        }

    def __str__(self) -> str:
        """The best prefixes of each length up to the end of the first hit's docid, for a terminal."""
        first = self.paths[0][0] if self.paths else ""
        name = " of ".join(filter(None, [self.method, self.system]))
        lines = [f"{name}, the best prefixes of each length with the documents below them; * leads to {first}"]
        levels = [level for level in self.levels if level.leading(first)]
        lines += [level.line(first) for level in levels[:LINES]]
        more = len(levels) - LINES
        return "\n".join([*lines, f"  and {more} more lengths"] if more > 0 else lines)

    def renamed(self, ids: Mapping[str, str]) -> Self:
        """The same for hits with other ids."""
        levels = tuple(
            replace(
                level,
                prefixes=tuple(
                    replace(prefix, hits=tuple(ids[hit] for hit in prefix.hits)) for prefix in level.prefixes
                ),
            )
            for level in self.levels
        )
        return replace(self, levels=levels, paths=tuple((ids[hit], prefix) for hit, prefix in self.paths))


# Tokens that match


@dataclass(frozen=True)
class HitMatches:
    """What the tokens of a query and of one document add to its score."""

    id: str
    query: tuple[float, ...]  # what each token of the query adds
    document: tuple[str, ...]  # the tokens of the document, in their order; those that were read
    weights: tuple[float, ...]  # what each of them adds
    links: tuple[tuple[int, int, float], ...]  # (token of the query, token of the document, what both add)
    rest: float = 0.0  # what the score has besides the tokens of the document, such as rounding

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        lists = {name: list(getattr(self, name)) for name in ("query", "document", "weights")}
        return {"id": self.id, **lists, "links": [list(link) for link in self.links], "rest": self.rest}


@dataclass(frozen=True)
class Matches(Panel):
    """Which tokens of a query fit which tokens of each hit."""

    kind: ClassVar[str] = "matches"
    query: tuple[str, ...]  # the tokens of the query, in their order
    hits: tuple[HitMatches, ...]

    def values(self) -> dict[str, Any]:
        """What it shows, as plain values."""
        return {"query": list(self.query), "hits": [hit.to_dict() for hit in self.hits]}

    def renamed(self, ids: Mapping[str, str]) -> Self:
        """The same for hits with other ids."""
        return replace(self, hits=tuple(replace(hit, id=ids[hit.id]) for hit in self.hits))


def matched(hit: str, positions: Sequence[int], scores: Sequence[float], document: Sequence[str]) -> HitMatches:
    """The matches of a hit whose score adds up, for each token of a query, its score with one token of the document.

    `positions` has where that token stands in the document, -1 where nothing fits.
    """
    pairs = [*zip(positions, scores, strict=True)]
    # A stranger's artifact may hold other texts than those that its vectors were made from.
    tokens = (*document, *[UNKNOWN] * (max(positions, default=-1) + 1 - len(document)))
    weights = [0.0] * len(tokens)
    for position, score in pairs:
        if position >= 0:
            weights[position] += score
    links = tuple((at, position, score) for at, (position, score) in enumerate(pairs) if position >= 0)
    query = tuple(score if position >= 0 else 0.0 for position, score in pairs)
    return HitMatches(hit, query, tokens, tuple(weights), links)
