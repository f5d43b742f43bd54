"""Searching where every node has a row: from queries to the passages that weigh most, and their log-probabilities.

A search follows prefixes to whole docids, or to a depth: then all docids below those that it has reached are compared.
What it reaches is ranked by its own row, with all passages of its document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from triever.arrays import kth_greatest, places, starts_of
from triever.docids.walk import Walk
from triever.engines.docid_search import SearchOptions
from triever.engines.node_docids import Rows
from triever.index.top import shared
from triever.index.trie_vectors import EntryVectors, LookedUp, PrefixEntries
from triever.index.vectors import Vectors
from triever.models.node_rows import NodeGenerator
from triever.search.beam import Frontier, beam
from triever.search.many import ROWS, search_each
from triever.search.recorder import Recorder

FEWEST = 64
"""Docids that it keeps where few documents are wanted."""
AT_ONCE = 2**26
"""Numbers that beams read at once."""
REUSED = 2**22
"""Numbers of rows that are compared at once; more would come anew from the system for every block on a processor."""
SLACK = 1e-3
"""What sums may be off by; generous, as it only decides what is looked at more closely."""


@dataclass(frozen=True)
class Found:
    """Passages that a search has come to for one query."""

    positions: np.ndarray  # (n,)
    logprobs: np.ndarray  # (n,) float64

    def __len__(self) -> int:
        return len(self.positions)

    def taken(self, chosen: np.ndarray) -> Found:
        """Those that are chosen (n, bool)."""
        return Found(self.positions[chosen], self.logprobs[chosen])

    def joined(self, positions: np.ndarray, logprobs: np.ndarray) -> Found:
        """These, and then others."""
        return Found(np.concatenate([self.positions, positions]), np.concatenate([self.logprobs, logprobs]))


@dataclass(frozen=True)
class NodeSearch:
    """Searches by the rows of passages and the sums of rows below prefixes."""

    rows: Rows
    vectors: Vectors  # the rows, where they are compared
    generator: NodeGenerator
    options: SearchOptions  # where nothing is left open
    stops: int | None  # the length of the prefixes below which rows are compared; None if a beam follows whole docids
    recorder: Recorder | None = None  # takes down what the search for a single query does

    def search(self, queries: Sequence[str], k: int) -> list[Found]:
        """The passages of the best documents for each query."""
        find, together = self._all if self.compares_all else self._by_beams, self._together(self.first_width(k))
        return search_each(self.generator, queries, lambda cache, hidden: find(cache, hidden, k), rows=together)

    def counted(self, queries: Sequence[str], k: int) -> int:
        """How many rows of nodes and docids are read for these queries."""
        if self.compares_all:
            return len(self.rows) * len(queries)
        counted: list[int] = []
        replace(self, generator=replace(self.generator, counted=counted)).search(queries, k)
        return sum(counted)

    @property
    def compares_all(self) -> bool:
        """Whether every row is compared: also where a beam would stop at first symbols, and keep all of them."""
        firsts = sum(np.diff(part.levels[1:3]).sum() for part in self.walk.trie.parts)
        keeps_all = self.stops == 1 and firsts <= self.options.beam_width
        return self.options.method == "exact" or self.stops == 0 or bool(keeps_all)

    @property
    def documents(self) -> int:
        """How many documents there are; 1 where there are none, as a share of them is asked for."""
        return int(self.rows.owners[-1]) + 1 if len(self.rows) else 1

    @property
    def walk(self) -> Walk:
        """The trie, where it is searched."""
        return self.generator.walk

    def looked_up(self) -> list[np.ndarray]:
        """Where the rows of docids below prefixes are, which is looked up only if rows are compared there."""
        if self.compares_all or self.stops is None:
            return []
        return [part.rows for part in self._below.parts if isinstance(part, LookedUp)]

    def weights(self, vectors: Tensor) -> Tensor:
        """(queries, passages) the logs of the weights of all docids for the vectors of queries."""
        step = max(1, REUSED // max(len(vectors), self.vectors.array.shape[1]))
        slices = (slice(low, low + step) for low in range(0, len(self.rows), step))
        products = torch.cat([vectors @ self.vectors.read(rows).to(vectors).T for rows in slices], 1)
        return products.mul_(self.generator.scale).add_(self._log_mass)

    @cached_property
    def _log_mass(self) -> Tensor:
        """(passages,) the logs of how much passages count, where they are compared."""
        return shared(self.rows.mass).to(self.walk.device).log()

    # Every row

    def _all(self, cache: Tensor, hidden: Tensor, k: int) -> list[Found]:
        """All passages of the best documents, and of those that tie with the last, by comparing every row."""
        weights = self.weights(hidden).div_(self.options.temperature)
        each = zip(weights, _row_log_sums(weights), self._near(weights, k), strict=True)
        return [self._of_best(_shares(row, total, positions), k) for row, total, positions in each]

    def _near(self, weights: Tensor, k: int) -> list[np.ndarray]:
        """For each query all passages of the documents that may be among the k best, as in `_may_be_best`."""
        most = min(k * self._docids_each, weights.shape[1])
        least = weights.topk(most).values[:, -1:] - float(np.log(self._docids_each)) - SLACK
        query, position = (weights >= least).nonzero().cpu().numpy().T
        each = np.split(position, np.searchsorted(query, np.arange(1, len(weights))))
        return [self._passages_of(np.unique(self.rows.owners[near])) for near in each]

    def _passages_of(self, documents: np.ndarray) -> np.ndarray:
        """The positions of all passages of documents (n,), rising."""
        first, end = (np.searchsorted(self.rows.owners, bound) for bound in (documents, documents + 1))
        return places(first, end - first)

    # By beams

    def first_width(self, k: int) -> int:
        """How many prefixes a beam keeps at first; one that goes to the ends of docids keeps k at least."""
        return max(self.options.beam_width, k) if self.stops is None else self.options.beam_width

    def _together(self, width: int) -> int:
        """How many queries beams of a width are searched for together, so that the rows they read have room."""
        lengths = len(self.walk.trie.parts[0].widest)
        lengths = lengths if self.stops is None else min(lengths, self.stops)
        slots = max((self.walk.slots(length) for length in range(1, lengths)), default=1)
        numbers = width * slots * self.rows.row.shape[1]
        return max(1, min(ROWS, AT_ONCE // max(1, numbers)))

    def _by_beams(self, cache: Tensor, hidden: Tensor, k: int) -> list[Found]:
        """What beams find for queries that were read; a beam to a depth is doubled until it holds enough documents."""
        width = self.first_width(k)
        each = self._beam(cache, hidden, k, width)
        if self.stops is None:
            return each
        while width < len(self.rows) and (short := [at for at, found in enumerate(each) if self._count(found) < k]):
            width, step = 2 * width, self._together(2 * width)
            for part in (short[low : low + step] for low in range(0, len(short), step)):
                wider = self._beam(cache[part], hidden[part], k, width)
                each = [dict(zip(part, wider, strict=True)).get(at, found) for at, found in enumerate(each)]
        return each

    def _count(self, found: Found) -> int:
        """How many documents these passages are of."""
        return len(np.unique(self.rows.owners[found.positions]))

    def _beam(self, cache: Tensor, hidden: Tensor, k: int, width: int) -> list[Found]:
        """The same by one beam that keeps so many prefixes."""
        options = replace(self.options.beam(k), width=width)
        to_depth = {"depth": self.stops, "keep": self.kept(k)}
        frontier = beam(self.generator, cache, hidden, self.walk, options, **to_depth, recorder=self.recorder)
        states, logprobs = frontier.state.cpu().numpy(), frontier.logprob.double().cpu().numpy()
        each = [self._ended(*of_query) for of_query in zip(hidden, states, logprobs, strict=True)]
        if frontier.stopped is not None:
            each = self._with_those_below(hidden, frontier, each, max(FEWEST, 2 * k))
        if self._docids_each == 1 or self.options.normalisation != "documents":
            return each  # no document has other passages, or what was found is no share of what all weigh
        return [self._completed(query, found, k) for query, found in zip(hidden, each, strict=True)]

    def kept(self, k: int) -> int:
        """How many docids a beam keeps, besides the prefixes at which it stops."""
        return max(FEWEST, self._docids_each * k)

    @cached_property
    def _docids_each(self) -> int:
        """How many docids a document has at most."""
        return int(np.bincount(self.rows.owners).max(initial=1))

    def _ended(self, query: Tensor, states: np.ndarray, logprobs: np.ndarray) -> Found:
        """The passages of the docids (n, parts) that a beam has ended with; those of one docid share as rows say."""
        there = logprobs > -np.inf
        which, numbers = self.walk.documents_of(states[there])
        positions, logs = self.rows.places_of(numbers), logprobs[there][which]
        several = np.bincount(which)[which] > 1
        if several.any():
            docid, weights = which[several], self._weights_at(query, positions[several])
            sums = np.full(len(there), -np.inf)
            np.logaddexp.at(sums, docid, weights)
            logs[several] += weights - sums[docid]
        return Found(positions, logs)

    def _weights_at(self, query: Tensor, positions: np.ndarray) -> np.ndarray:
        """(n,) the logs of what passages weigh for the vector of a query, divided by the temperature."""
        held = self.vectors.tensor
        rows = held[torch.from_numpy(positions).to(held.device)].to(query)
        products = (rows @ query).cpu().numpy().astype(np.float64)
        return (self.generator.scale * products + np.log(self.rows.mass[positions])) / self.options.temperature

    def _completed(self, query: Tensor, found: Found, k: int) -> Found:
        """All passages of the k best documents of those that were found, also where the beam did not come."""
        documents = np.unique(self.rows.owners[found.positions])
        new = np.setdiff1d(self._passages_of(documents), found.positions)
        if self.generator.counted is not None:
            self.generator.counted.append(len(new))
        weights = self._weights_at(query, np.concatenate([found.positions, new]))
        # What probabilities are shares of is known from those that were found, and grows by the others.
        everything = _log_sum(weights[: len(found)]) - _log_sum(found.logprobs)
        whole = found.joined(new, weights[len(found) :] - everything)
        grown = np.log1p(np.exp(_log_sum(whole.logprobs[len(found) :])))
        return self._of_best(Found(whole.positions, whole.logprobs - grown), k)

    def _of_best(self, found: Found, k: int) -> Found:
        return found.taken(of_best(found.logprobs, self.rows.owners[found.positions], k))

    @cached_property
    def _below(self) -> EntryVectors:
        """The rows of docids, as they are compared below prefixes."""
        trie = self.walk.trie
        parts = (LookedUp(self.vectors, self.rows.places_of(part.document)) for part in trie.parts)
        return EntryVectors(trie, tuple(parts))

    def _with_those_below(self, hidden: Tensor, frontier: Frontier, each: Sequence[Found], k: int) -> list[Found]:
        """With the passages below the prefixes at which a beam stopped: those of the k best documents of all."""
        assert frontier.stopped is not None  # the caller has seen to it
        assert frontier.weighed is not None  # as in every search by documents
        root = self.generator.weights(hidden, self.walk.root(len(hidden))[:, None])[:, 0]
        states = [[state for state in of_query if max(state) >= 0] for of_query in frontier.stopped.tolist()]
        weighed = zip(each, frontier.weighed.tolist(), (root / self.options.temperature).tolist(), strict=True)
        below = self._below.below(self.walk, hidden, states)
        return [self._with_entries(*of_query, entries, k) for of_query, entries in zip(weighed, below, strict=True)]

    def _with_entries(self, ended: Found, weighed: float, root: float, below: PrefixEntries, k: int) -> Found:
        """The probabilities of passages that a beam came to, and of those below prefixes, among all of them."""
        if self.generator.counted is not None:
            self.generator.counted.append(len(below.numbers))
        there = self.rows.places_of(below.numbers)
        weights = self.generator.scale * below.products.astype(np.float64) + np.log(self.rows.mass[there])
        inside = weights / self.options.temperature - root
        total = np.logaddexp(weighed, _log_sum(inside))
        whole = Found(ended.positions, ended.logprobs + weighed).joined(there, inside)
        return self._of_best(Found(whole.positions, whole.logprobs - total), k)


def _shares(weights: Tensor, total: float, positions: np.ndarray) -> Found:
    """Passages by the logs of all weights (passages,) of one query, as shares of what all weigh together."""
    chosen = weights[torch.from_numpy(positions).to(weights.device)]
    return Found(positions, chosen.double().cpu().numpy() - total)


def _row_log_sums(logs: Tensor) -> np.ndarray:
    """(n,) the logs of the sums of numbers given as logs (n, m), added up in float64 without a copy of all in it."""
    top = logs.amax(1, keepdim=True)
    sums = (logs - top).exp_().sum(1, dtype=torch.float64)
    return (top[:, 0].double() + sums.log()).cpu().numpy()


def _log_sum(logs: np.ndarray) -> float:
    """The log of the sum of numbers given as logs; -inf for none."""
    top = logs.max(initial=-np.inf)
    return float(top + np.log(np.exp(logs - top).sum())) if np.isfinite(top) else -np.inf


def of_best(logprobs: np.ndarray, owners: np.ndarray, k: int) -> np.ndarray:
    """(n,) bool: which passages (n,) are of the k documents with the greatest sums, or of those that tie with them."""
    chosen = _may_be_best(logprobs, owners, k)
    _, document, counts = np.unique(owners[chosen], return_inverse=True, return_counts=True)
    first = starts_of(counts)[:-1]
    by_document = logprobs[chosen][document.argsort(kind="stable")]
    masses = np.logaddexp.reduceat(by_document, first) if len(first) else by_document
    best = np.zeros(len(owners), bool)
    best[chosen] = (masses >= kth_greatest(masses, k))[document]
    return best


def _may_be_best(logprobs: np.ndarray, owners: np.ndarray, k: int) -> np.ndarray:
    """The positions of all passages of documents that may be among the k best: few of many, so the rest is quick.

    If a document has at most m passages, the k * m best passages are of k documents at least. A document whose best
    passage is more than log(m) below all of them weighs less than each of these documents.
    """
    most = int(np.bincount(owners).max(initial=1))
    least = kth_greatest(logprobs, k * most) - np.log(most) - SLACK
    there = np.zeros(owners.max(initial=-1) + 1, bool)
    there[owners[logprobs >= least]] = True
    return np.flatnonzero(there[owners])
