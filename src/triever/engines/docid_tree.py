"""The docids of an engine as a tree for a person: what follows a prefix, and which prefixes a search looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triever.arguments import brief, whole
from triever.data.records import Result
from triever.data.store import DocumentStore
from triever.docids.schemes import Docid, Scheme
from triever.docids.walk import Walk
from triever.engines.docid_search import SearchOptions
from triever.engines.panels import Beam, BeamLevel, BeamPrefix
from triever.errors import UsageError
from triever.search.recorder import Recorder, Seen, SeenLevel

SHOWN = 50
"""Prefixes of one length that are shown, besides pruned ones and those that a shown one continues."""
PRUNED = 5
"""Pruned prefixes of one length that are shown."""
NAMED = 5
"""Symbols that an error names."""
ABOUT = {
    "trie": "Probabilities are over the docids that exist: a prefix has that of all docids below it.",
    "vocabulary": "Probabilities are over all symbols, so that some of them go to docids that do not exist.",
    "documents": "Probabilities are over documents: that of a docid is its own, that of a prefix an estimate, which "
    "may be above one.",
}
"""What the numbers of a beam mean, by what they are normalised over."""


@dataclass(frozen=True)
class DocidBranch:
    """A symbol that may follow a prefix; its documents are those whose docids begin so."""

    symbol: int
    text: str
    documents: int
    ends: bool  # whether it ends a docid
    samples: tuple[tuple[str, str], ...]  # (id, title) of some of the documents

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {**vars(self), "samples": _plain(self.samples)}


@dataclass(frozen=True)
class DocidNode:
    """A prefix of docids, and the symbols that may follow it, by their numbers."""

    prefix: tuple[int, ...]
    symbols: tuple[str, ...]  # the same as texts
    docid: str  # all of it as one text
    documents: int
    ends: bool  # whether it is a whole docid: then nothing follows it
    samples: tuple[tuple[str, str], ...]  # (id, title) of some of its documents
    branches: tuple[DocidBranch, ...]  # some of those that there are, from an offset
    total: int  # how many branches there are
    offset: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        lists = {"prefix": list(self.prefix), "symbols": list(self.symbols), "samples": _plain(self.samples)}
        return {**vars(self), **lists, "branches": [branch.to_dict() for branch in self.branches]}


def _plain(samples: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"id": document, "title": title} for document, title in samples]


@dataclass(frozen=True)
class Symbols:
    """How symbols and prefixes are written for a person."""

    scheme: Scheme
    numbered: bool = False  # whether the last symbol of every docid is a number that the scheme does not know

    def text(self, symbol: int, *, ends: bool) -> str:
        """One symbol; the last one of a docid may be a number."""
        return f"number {symbol}" if ends and self.numbered else self.scheme.symbol(symbol)

    def texts(self, prefix: Docid, *, ends: bool) -> tuple[str, ...]:
        """Each symbol of a prefix."""
        last = len(prefix) - 1
        return tuple(self.text(symbol, ends=ends and at == last) for at, symbol in enumerate(prefix))

    def readable(self, prefix: Docid, *, ends: bool) -> str:
        """A whole prefix; schemes write whole docids, so one that has a stop symbol gets it."""
        known = prefix[:-1] if ends and self.numbered else prefix
        stop = self.scheme.stop
        if stop is not None and known[-1:] != (stop,):
            known = (*known, stop)
        return self.scheme.readable(known) if known else ""


@dataclass(frozen=True)
class DocidTree:
    """The docids that exist, how they are written, and which rows of a store have them."""

    walk: Walk
    symbols: Symbols
    rows: Callable[[np.ndarray], np.ndarray]  # from numbers of the trie to rows
    written: Callable[[int], str] | None = None  # how a search names symbols, where it has its own

    def owned_by(self, owners: np.ndarray) -> DocidTree:
        """The same, where rows are those of passages, for the documents that these belong to."""
        return replace(self, rows=lambda numbers: owners[self.rows(numbers)])

    # Browsing

    def node(
        self, store: DocumentStore, prefix: Sequence[int | str], samples: int, offset: int, limit: int
    ) -> DocidNode:
        """A prefix and so many of the symbols that may follow it, from an offset."""
        symbols, here = self._followed(_checked(prefix))
        token, states = self._branches(here, len(symbols))
        shown = slice(offset, offset + limit)
        counts, rows = self._below(torch.cat([here, states[shown]]), samples)
        chosen = sorted({row for below in rows for row in below})
        named = {row: (store.ids[row], title) for row, title in zip(chosen, store.titles(chosen), strict=True)}
        sampled = [tuple(named[row] for row in below) for below in rows]
        over, *ends = self._ends(torch.cat([here, states[shown]]))
        columns = token[shown].tolist(), ends, counts[1:], sampled[1:]
        branches = tuple(
            DocidBranch(symbol, self.symbols.text(symbol, ends=last), count, last, documents)
            for symbol, last, count, documents in zip(*columns, strict=True)
        )
        over = over and bool(symbols)  # of an empty trie nothing ends at the root
        texts, docid = self.symbols.texts(symbols, ends=over), self.symbols.readable(symbols, ends=over)
        return DocidNode(symbols, texts, docid, counts[0], over, sampled[0], branches, len(token), offset)

    def _followed(self, prefix: Sequence[int | str]) -> tuple[Docid, Tensor]:
        """The symbols of a prefix, and its state (1, parts)."""
        symbols: Docid = ()
        state = self.walk.root(1)
        for wanted in prefix:
            symbol = self._named(wanted, symbols, state) if isinstance(wanted, str) else wanted
            after = None if symbol is None else self.walk.child(state, symbol)
            if symbol is None or after is None:
                raise self._unknown(symbols, wanted, state)
            symbols, state = (*symbols, symbol), after
        return symbols, state

    def _named(self, text: str, symbols: Docid, state: Tensor) -> int | None:
        """The first symbol after a prefix that is written so."""
        token, states = self._branches(state, len(symbols))
        texts = self._texts(token, states)
        return int(token[texts.index(text)]) if text in texts else None

    def _texts(self, token: Tensor, states: Tensor) -> list[str]:
        """Symbols (n,) that lead to states (n, parts), as texts."""
        columns = token.tolist(), self._ends(states)
        return [self.symbols.text(symbol, ends=over) for symbol, over in zip(*columns, strict=True)]

    def _unknown(self, symbols: Docid, wanted: int | str, state: Tensor) -> UsageError:
        before = f"after {self.symbols.readable(symbols, ends=False)!r}" if symbols else "at the beginning of docids"
        token, states = self._branches(state, len(symbols))
        if not len(token):
            return UsageError(f"no symbol stands {before}", "browse a shorter prefix")
        more = f" and {len(token) - NAMED:,} more" if len(token) > NAMED else ""
        hint = f"these stand there: {', '.join(map(repr, self._texts(token[:NAMED], states[:NAMED])))}{more}"
        return UsageError(f"the symbol {brief(wanted)} does not stand {before}", hint)

    def _branches(self, state: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """The symbols that may follow a state (1, parts), rising, and the states behind them (n, parts)."""
        children = self.walk.children(state, length)
        exists = children.exists[0]
        token, states = children.token[0][exists], children.state[0][exists]
        order = token.argsort()
        return token[order], states[order]

    def _ends(self, states: Tensor) -> list[bool]:
        return self.walk.ended(states).tolist()

    def _below(self, states: Tensor, samples: int) -> tuple[list[int], list[list[int]]]:
        """How many documents are below each state (n, parts), and the rows of the first of them."""
        which, rows = self._documents(states.cpu().numpy())
        each = np.split(rows, np.searchsorted(which, np.arange(1, len(states))))
        return [len(below) for below in each], [below[:samples].tolist() for below in each]

    def _documents(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The documents below states (n, parts), each once: which state it is below, and its row; both rise."""
        which, numbers = self.walk.documents_of(states)
        rows = self.rows(numbers)
        beyond = int(rows.max(initial=0)) + 1
        which, rows = np.divmod(np.unique(which.astype(np.int64) * beyond + rows), beyond)
        return which, rows

    # What a search looked at

    def beam(
        self, recorder: Recorder, options: SearchOptions, store: DocumentStore, result: Result, *, note: str = ""
    ) -> tuple[Beam, ...]:
        """What a search took down, as a panel; none where it took down nothing."""
        levels = _shown(recorder.levels())
        if not levels:
            return ()
        hits = {store.row(hit.id): hit.id for hit in result}
        parents: dict[Docid, int] = {}
        shown = []
        for level in levels:
            prefixes = self._prefixes(level.prefixes, parents, hits)
            parents = {prefix.prefix: position for position, prefix in enumerate(prefixes)}
            shown.append(BeamLevel(level.length, level.kept, level.ended, level.pruned, prefixes))
        paths = tuple((hit.id, self.symbols.scheme.parse(hit.docid)) for hit in result if hit.docid is not None)
        about = " ".join(filter(None, [ABOUT[options.scored_over], note]))
        return (Beam(about, "", options.method, options.scored_over, tuple(shown), paths),)

    def _prefixes(
        self, seen: Sequence[Seen], parents: dict[Docid, int], hits: dict[int, str]
    ) -> tuple[BeamPrefix, ...]:
        states = np.array([prefix.state for prefix in seen], np.int64)
        which, rows = self._documents(states)
        counts = np.bincount(which, minlength=len(seen)).tolist()
        ends = self._ends(torch.from_numpy(states).to(self.walk.device))
        below: list[list[str]] = [[] for _ in seen]
        for at in np.flatnonzero(np.isin(rows, [*hits])).tolist():
            below[which[at]].append(hits[rows[at]])
        order = {hit: rank for rank, hit in enumerate(hits.values())}
        return tuple(
            BeamPrefix(
                prefix.prefix,
                self._text(prefix.prefix[-1], ends=over),
                self._readable(prefix.prefix, ends=over),
                prefix.logprob,
                prefix.outcome,
                over,
                count,
                tuple(sorted(names, key=lambda name: order[name])),
                parents.get(prefix.prefix[:-1]),
            )
            for prefix, over, count, names in zip(seen, ends, counts, below, strict=True)
        )

    def _text(self, symbol: int, *, ends: bool) -> str:
        return self.written(symbol) if self.written else self.symbols.text(symbol, ends=ends)

    def _readable(self, prefix: Docid, *, ends: bool) -> str:
        return " ".join(map(self.written, prefix)) if self.written else self.symbols.readable(prefix, ends=ends)


def _shown(levels: Sequence[SeenLevel]) -> list[SeenLevel]:
    """Levels with the prefixes that are shown, and all that those continue, so that they form a tree."""
    needed: set[Docid] = set()
    shown = []
    for level in reversed(levels):
        going = [prefix for prefix in level.prefixes if prefix.outcome != "pruned"][:SHOWN]
        gone = [prefix for prefix in level.prefixes if prefix.outcome == "pruned"][:PRUNED]
        chosen = {prefix.prefix for prefix in (*going, *gone)} | needed
        shown.append(replace(level, prefixes=tuple(seen for seen in level.prefixes if seen.prefix in chosen)))
        needed = {prefix.prefix[:-1] for prefix in shown[-1].prefixes}
    return shown[::-1]


def _checked(prefix: object) -> tuple[int | str, ...]:
    """A prefix as a person gives it: numbers of symbols, or their texts."""
    if isinstance(prefix, str | bytes) or not isinstance(prefix, Sequence):
        raise UsageError(f"prefix = {brief(prefix)} should be a list of symbols", "for example: browse([3, 1])")
    return tuple(symbol if isinstance(symbol, str) else whole(symbol, "symbol", 0) for symbol in prefix)
