"""Rows of nodes searched in fixed shapes, so that a GPU can record a search once and replay it.

Every row is compared with every query in one product, and so is the mean of every prefix: reading all of them once
takes less time than gathering those that many beams want. A beam then only looks up what prefixes weigh, and what it
reaches is a mask over passages. `NodeSearch` is the slow and obvious version; the hits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from triever.engines.node_docids import Rows
from triever.engines.node_search import FEWEST, Found, NodeSearch
from triever.models.node_rows import node_weights
from triever.models.row_model import log_sums
from triever.search.many import batches_of, power_of_two
from triever.search.recorded import Recorded
from triever.search.steady_search import ROWS, filled_up, on_host

ROOM = 2**27
"""The most log-probabilities of passages or nodes that are there at once."""
NOTHING = -1e300
"""The log of what is not there; unlike -inf it can be subtracted from itself."""

IdsAndMask: TypeAlias = tuple[Tensor, Tensor]
"""The tokens of texts and their mask, (texts, length) each."""


@dataclass(frozen=True)
class QueryReader:
    """Reads queries in two steps, of which a GPU records the second."""

    tokenise: Callable[[Sequence[str]], IdsAndMask]
    vectors: Callable[[Tensor, Tensor], Tensor]  # from ids and mask to (queries, d)
    longest: int  # the most tokens of a text that it reads; 0 if there is no end


def can_be_steady(search: NodeSearch) -> bool:
    """Whether a search can be made in fixed shapes."""
    options, parts = search.options, search.walk.parts
    # What was added later lies in a trie of its own until both are merged, and is searched step by step.
    in_one = len(parts) == 1 and parts[0].nodes > 1
    by_beams = options.method == "beam" and not options.backoff and options.normalisation == "documents" and in_one
    there = search.vectors.tensor.device.type == search.vectors.device.type
    return (search.compares_all or by_beams) and there and 0 < len(search.rows) <= ROOM


class SteadyNodes:
    """`SteadyNodes(search, reader).search(queries, k)`: one for each engine, to be used again."""

    def __init__(self, search: NodeSearch, reader: QueryReader, *, record: bool = True) -> None:
        self.plain, self.reader = search, reader
        self.recorded, self.record = Recorded(), record
        self.again = 0  # queries that were searched again, step by step

    @torch.inference_mode()
    def search(self, queries: Sequence[str], k: int) -> list[Found]:
        """All passages of the k best documents for each query, as far as the search has come to them."""
        found: dict[int, Found | None] = {}
        for batch in batches_of(queries, self._together()):
            tokens = self.reader.tokenise([queries[number] for number in batch])
            found |= zip(batch.tolist(), self.search_tokens(*tokens, k), strict=True)
        left = [number for number, query_found in found.items() if query_found is None]
        if left:
            self.again += len(left)
            found |= zip(left, self.plain.search([queries[number] for number in left], k), strict=True)
        return [query_found for _, query_found in sorted(found.items()) if query_found is not None]

    @torch.inference_mode()
    def search_tokens(self, ids: Tensor, mask: Tensor, k: int) -> list[Found | None]:
        """The same of tokens (queries, length); None where only a search step by step can tell."""
        queries, device = len(ids), self.plain.walk.device
        ids, mask = (tensor.to(device) for tensor in filled_up(ids, mask, self.reader.longest))

        def searched(ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
            return self.best_of(self.reader.vectors(ids, mask), k)

        with self.recorded.lock:  # buffers are shared
            tensors = self.recorded((ids.shape, k), searched, (ids, mask)) if self.record else searched(ids, mask)
            masses, positions, logprobs = (column[:queries].numpy() for column in on_host(tensors))
        rows = zip(self._unsure(masses, k).tolist(), positions[:, :k], logprobs[:, :k], strict=True)
        return [None if is_unsure else _found(*columns) for is_unsure, *columns in rows]

    def _unsure(self, masses: np.ndarray, k: int) -> np.ndarray:
        """(queries,) where another document ties with the last one, or where a wider beam has to look for more."""
        last, behind = masses[:, :k][:, -1:], masses[:, k:]
        ties = ((behind == last) & (last > -np.inf)).any(1)
        plain = self.plain
        if plain.compares_all or plain.stops is None or plain.first_width(k) >= len(plain.rows):
            return ties
        return ties | ((masses[:, :k] > -np.inf).sum(1) < k)

    def _together(self) -> int:
        """How many queries are searched together, so that what all of them hold has room."""
        nodes = 0 if self.plain.compares_all else self._prefixes.nodes
        return power_of_two(max(1, min(ROWS, ROOM // max(len(self.plain.rows), nodes))))

    # On the device, where the host waits for nothing

    def best_of(self, vectors: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """The k best documents for vectors (queries, d), and one more where there is one.

        Their log-probabilities (queries, n), the positions of their passages (queries, n, most) and the
        log-probabilities of these; -inf where there is nothing.
        """
        passages, documents = self._passages, self.plain.documents
        weights = self.plain.weights(vectors)  # (queries, passages)
        logs = (weights / self.plain.options.temperature).double()
        sums = passages.sums(logs)
        if self.plain.compares_all:
            total = sums.logsumexp(1)
        else:
            chosen, total = self._reached(vectors, weights, logs, k)
            sums = sums.masked_fill(~chosen, -torch.inf)
        best, document = (sums - total[:, None]).topk(min(k + 1, documents), dim=1)
        position, there = passages.of(document)
        each = logs.gather(1, position.flatten(1)).view_as(position) - total[:, None, None]
        return best, position, each.masked_fill(~(there & (best > -torch.inf)[..., None]), -torch.inf)

    def _reached(self, vectors: Tensor, weights: Tensor, logs: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Which documents (queries, documents) a beam has come to, and the log of all that it has come to (queries,).

        As in `NodeSearch`, all passages of a document count that has one among those that are kept.
        """
        passages, prefixes, documents = self._passages, self._prefixes, self.plain.documents
        pool, stopped, total = self._beam(self._node_logs(vectors, weights), k)
        found = prefixes.below(pool)
        if stopped is not None:
            inside = prefixes.below(stopped)
            total = torch.logaddexp(total, logs.masked_fill(~inside, -torch.inf).logsumexp(1))
            found |= inside
        if passages.lone:
            return found, total
        masses = passages.sums(logs.masked_fill(~found, NOTHING))
        chosen = masses > NOTHING / 2
        if stopped is not None:
            chosen &= masses >= masses.topk(min(max(FEWEST, 2 * k), documents), dim=1).values[:, -1:]
        new = chosen[:, passages.owners] & ~found
        return chosen, torch.logaddexp(total, logs.masked_fill(~new, -torch.inf).logsumexp(1))

    def _node_logs(self, vectors: Tensor, weights: Tensor) -> Tensor:
        """(queries, nodes) the logs of what nodes weigh, divided by the temperature."""
        prefixes, generator, temperature = self._prefixes, self.plain.generator, self.plain.options.temperature
        nearness = vectors @ prefixes.totals.T / prefixes.count.clamp(min=1)
        known = prefixes.spread, prefixes.count, prefixes.mass
        inner = node_weights(nearness, *known, generator.scale, generator.steering) / temperature
        inner = inner.masked_fill(prefixes.count == 0, -torch.inf)
        own = weights[:, prefixes.ended] / temperature
        if prefixes.leaf_of is not None:
            own = log_sums(own, prefixes.leaf_of, len(prefixes.leaves))
        nodes = torch.full((len(vectors), prefixes.nodes), -torch.inf, device=own.device)
        return nodes.index_copy_(1, prefixes.inner, inner).index_copy_(1, prefixes.leaves, own)

    def _beam(self, node_logs: Tensor, k: int) -> tuple[Tensor, Tensor | None, Tensor]:
        """The best leaves (queries, n), the prefixes at which it stops, and the log of what all leaves weigh together.

        0, the root, stands for none.
        """
        prefixes, plain = self._prefixes, self.plain
        width = plain.first_width(k)
        keep = max(width, plain.kept(k))
        node = torch.zeros(len(node_logs), 1, dtype=torch.long, device=node_logs.device)
        there = torch.ones_like(node, dtype=torch.bool)
        pool, kept = node, torch.full_like(node_logs[:, :1], -torch.inf)
        weighed = kept[:, 0].double()
        for depth in range(prefixes.depth):
            child, is_child = prefixes.children(node, there, depth)
            logs, is_leaf = node_logs.gather(1, child).masked_fill(~is_child, -torch.inf), prefixes.leaf[child]
            ended = logs.masked_fill(~is_leaf, -torch.inf)
            weighed = torch.logaddexp(weighed, ended.double().logsumexp(1))
            kept, at = (both := torch.cat([kept, ended], 1)).topk(min(keep, both.shape[1]), dim=1)
            pool = torch.cat([pool, child], 1).gather(1, at)
            best, at = logs.masked_fill(is_leaf, -torch.inf).topk(min(width, logs.shape[1]), dim=1)
            node, there = child.gather(1, at), best > -torch.inf
        stopped = None if plain.stops is None else torch.where(there, node, 0)
        return torch.where(kept > -torch.inf, pool, 0), stopped, weighed

    @cached_property
    def _passages(self) -> _Passages:
        return _Passages(self.plain.rows, self.plain.walk.device)

    @cached_property
    def _prefixes(self) -> _Prefixes:
        return _Prefixes(self.plain)


class _Passages:
    """Which passages documents have, as tensors on the device: those of a document lie together."""

    def __init__(self, rows: Rows, device: torch.device) -> None:
        count = np.bincount(rows.owners)
        self.documents, self.most, self.lone = len(count), int(count.max()), bool(count.max() == 1)
        arrays = rows.owners, count, count.cumsum() - count
        self.owners, self._count, self._first = (torch.from_numpy(array).to(device) for array in arrays)
        self._slot = torch.arange(self.most, device=device)

    def sums(self, logs: Tensor) -> Tensor:
        """(queries, documents) the logs of what the passages (queries, passages) of each document weigh together."""
        return logs if self.lone else log_sums(logs, self.owners, self.documents)

    def of(self, document: Tensor) -> tuple[Tensor, Tensor]:
        """The positions of passages (..., most) of documents (...), and which of them there are."""
        position = (self._first[document][..., None] + self._slot).clamp(max=len(self.owners) - 1)
        return position, self._slot < self._count[document][..., None]


class _Prefixes:
    """The nodes of a trie of one part as tensors on the device, down to where a beam stops."""

    def __init__(self, search: NodeSearch) -> None:
        rows, device = search.rows, search.walk.device
        [arrays], [alive], [sums] = search.walk.trie.parts, search.walk.trie.alive, search.generator.sums
        self._levels, self._widest = arrays.levels, arrays.widest
        deepest = len(self._levels) - 2
        self.depth = deepest if search.stops is None else min(search.stops, deepest)
        self.nodes = self._levels[self.depth + 1]
        parent, is_leaf = np.asarray(arrays.parent), np.asarray(arrays.leaf)[: self.nodes]

        living = np.arange(arrays.entries) if alive is None else np.flatnonzero(alive)
        node = np.empty(len(rows), np.int64)  # of each passage
        node[rows.places_of(np.asarray(arrays.document)[living])] = np.asarray(arrays.leaf_of_entry())[living]
        ended = np.flatnonzero(node < self.nodes)
        ended = ended[node[ended].argsort(kind="stable")]
        leaves, leaf_of = np.unique(node[ended], return_inverse=True)
        while (deep := node >= self.nodes).any():
            node[deep] = parent[node[deep]]

        def tensor(array: np.ndarray) -> Tensor:
            return torch.from_numpy(np.array(array)).to(device)

        self.leaf, self.inner = tensor(is_leaf), tensor(np.flatnonzero(~is_leaf))
        self.totals, self.spread = sums.total[self.inner], sums.spread[self.inner]
        self.count, self.mass = sums.count[self.inner], sums.mass[self.inner]
        self.ended, self.leaves = tensor(ended), tensor(leaves)  # passages of docids that end there, and their nodes
        self.leaf_of = tensor(leaf_of) if len(leaves) < len(ended) else None  # where several have one docid
        self._node = tensor(node)
        self._child = tensor(np.asarray(arrays.child)[: self.nodes + 1]).long()
        self._parent = tensor(parent[: self.nodes]).long()

    def children(self, node: Tensor, there: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """The children (queries, C) of nodes (queries, n) of this depth that are there, and which of them there are.

        Either so many of each node as the one with most of them has, or all nodes of the next depth: what is less.
        """
        low, high, slots = self._levels[depth + 1], self._levels[depth + 2], self._widest[depth]
        if node.shape[1] * slots < high - low:
            begin, slot = self._child[node][..., None], torch.arange(slots, device=node.device)
            inside = (slot < self._child[node + 1][..., None] - begin) & there[..., None]
            return torch.where(inside, begin + slot, 0).flatten(1), inside.flatten(1)
        every = torch.arange(low, high, device=node.device).expand(len(node), -1)
        if not depth:
            return every, torch.ones_like(every, dtype=torch.bool)
        return every, self._marked(torch.where(there, node, 0))[:, self._parent[low:high]]

    def below(self, node: Tensor) -> Tensor:
        """(queries, passages) bool: which passages are at or below one of the nodes (queries, n); 0 is none."""
        return self._marked(node)[:, self._node]

    def _marked(self, node: Tensor) -> Tensor:
        """(queries, nodes) bool: which nodes are among these (queries, n), but for the root."""
        marked = torch.zeros(len(node), self.nodes, dtype=torch.bool, device=node.device)
        marked.scatter_(1, node, True)
        marked[:, :1].zero_()
        return marked


def _found(positions: np.ndarray, logprobs: np.ndarray) -> Found:
    """The passages of one query's documents."""
    there = logprobs > -np.inf
    return Found(positions[there], logprobs[there])
