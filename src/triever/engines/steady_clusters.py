"""A beam over clusters and the documents inside them in fixed shapes, so that a GPU can record it once and replay it.

Every vector is compared with every query in one product, and what its cluster gives is looked up beside it: nothing
goes to the host but the documents. `ClusterSearch` is the slow and obvious version; the hits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from triever.docids.walk import Walk
from triever.engines.docid_search import SearchOptions
from triever.engines.match_scores import SHORTER, ScoredCandidates, Scoring
from triever.index.trie_vectors import TrieVectors
from triever.models.encoder import Encoder
from triever.models.even_decoder import Even
from triever.search.beam import BeamOptions, Frontier
from triever.search.many import batches_of, power_of_two
from triever.search.steady_search import Begun, Key, SteadySearch, filled_up

ROOM = 2**27
"""The most scores of documents that are there at once."""
AT_ONCE = 2**26
"""The most numbers of vectors that are read at once."""


class StepByStep(Protocol):
    """A search of clusters that is not in fixed shapes."""

    @property
    def options(self) -> SearchOptions:
        """How clusters are searched."""
        ...

    @property
    def depth(self) -> int | None:
        """How many symbols of docids are written; None: all."""
        ...

    def best(self, queries: Sequence[str], scoring: Scoring, k: int) -> list[ScoredCandidates]:
        """For each query the k best documents, and all that tie with the last."""
        ...


def can_be_steady(walk: Walk, below: TrieVectors) -> bool:
    """Whether clusters can be searched in fixed shapes; the caller sees to it that no document is in two of them."""
    if len(below.parts) > 1:  # as documents were added
        return False
    [vectors], [part] = below.parts, walk.parts
    there = vectors.tensor.device.type == vectors.device.type
    return there and part.nodes > 1 and 0 < len(vectors) <= ROOM


class SteadyClusters(SteadySearch):
    """`SteadyClusters(search, generator, encoder, walk, below).best(queries, scoring, k)`, to be used again.

    The encoder makes vectors of the states of queries. `below` are the vectors of documents.
    """

    generator: Even

    def __init__(
        self,
        search: StepByStep,
        generator: Even,
        encoder: Encoder,
        walk: Walk,
        below: TrieVectors,
        *,
        record: bool = True,
    ) -> None:
        super().__init__(generator, walk, record=record)
        self.plain, self.depth, self.encoder, self.below = search, search.depth, encoder, below
        self.alone = 0  # queries that were searched step by step

    @torch.inference_mode()
    def best(self, queries: Sequence[str], scoring: Scoring, k: int) -> list[ScoredCandidates]:
        """For each query the k best documents, and all that tie with the last."""
        # Lengths count in the rule `sum`: so a prefix that is alone goes on to its depth like all others.
        options = replace(self.plain.options.beam(1), width=self.plain.options.beam_width, finish=False)
        rows = power_of_two(max(1, min(self.together(options), ROOM // len(self._clusters.alive))))
        found: dict[int, ScoredCandidates | None] = {}
        for batch in batches_of(queries, rows):
            ids, mask = self.generator.tokenise([queries[number] for number in batch])
            found |= zip(batch.tolist(), self.best_of_tokens(ids, mask, options, scoring, k), strict=True)
        left = [number for number, candidates in found.items() if candidates is None]
        if left:
            self.alone += len(left)
            found |= zip(left, self.plain.best([queries[number] for number in left], scoring, k), strict=True)
        return [candidates for _, candidates in sorted(found.items()) if candidates is not None]

    @torch.inference_mode()
    def best_of_tokens(
        self, ids: Tensor, mask: Tensor, options: BeamOptions, scoring: Scoring, k: int
    ) -> list[ScoredCandidates | None]:
        """The same of tokens (queries, length); None where only a search step by step can tell."""
        queries = len(ids)
        ids, mask = filled_up(ids, mask, self.generator.longest)
        key = Key(len(ids), ids.shape[1], options, options.width, (scoring, k))
        scores, entries, clusters = (column[:queries].numpy() for column in self.searched(key, ids, mask))
        last, behind = scores[:, :k][:, -1:], scores[:, k:]
        unsure = ((behind == last) & (last > -np.inf)).any(1)  # as others tie with the last one
        unsure |= ((scores[:, :k] > -np.inf).sum(1) < k) & (clusters >= options.width)  # as a wider beam finds more
        numbers = np.asarray(self.walk.trie.parts[0].document)
        rows = zip(unsure.tolist(), scores[:, :k], entries[:, :k], clusters.tolist(), strict=True)
        return [None if is_unsure else _scored(numbers, *columns) for is_unsure, *columns in rows]

    # On the device, where the host waits for nothing

    def begun(self, ids: Tensor, mask: Tensor, rows: int = 0) -> Begun:
        """What is read of tokens, for the decoder and for the vectors of queries."""
        states = self.generator.states(ids, mask)
        vectors = self.encoder.vectors(states.float(), mask)
        return Begun(*self.generator.begin(states, mask, rows), vectors)

    def results(self, key: Key, begun: Begun, frontier: Frontier) -> tuple[Tensor, ...]:
        """The best scores (queries, n), one more than are wanted, their entries, and the number of clusters."""
        assert isinstance(key.asked, tuple)  # as `best_of_tokens` asks
        assert begun.vectors is not None  # which were read
        scoring, k = key.asked
        there = frontier.logprob > -torch.inf
        given = self._given(scoring, frontier, there)
        scores = self._nearness(scoring, begun.vectors) + self._clusters.below(frontier.state, there, given)
        best, entry = scores.topk(min(k + 1, scores.shape[1]), dim=1)
        return best, entry, there.sum(1)

    def _nearness(self, scoring: Scoring, queries: Tensor) -> Tensor:
        """(queries, entries) float64: what vectors give, -inf where an entry is deleted."""
        [vectors] = self.below.parts
        step = max(1, AT_ONCE // vectors.array.shape[1])
        slices = (slice(low, low + step) for low in range(0, len(vectors), step))
        products = torch.cat([queries.float() @ vectors.read(span).T for span in slices], 1).double()
        if scoring.rule == "sum":
            near = products.tanh()
        else:
            near = products * scoring.weights[0] if scoring.rule == "learned" else products / scoring.temperature
        return near.masked_fill(~self._clusters.alive, -torch.inf)

    def _given(self, scoring: Scoring, frontier: Frontier, there: Tensor) -> Tensor:
        """(queries, prefixes) float64: what the clusters of a beam give to their documents, see `Scoring.parts`."""
        logprob = frontier.logprob.double()
        if scoring.rule == "loglinear":
            return logprob * scoring.weights[0]
        by_length = logprob / self._clusters.lengths(frontier.state).clamp(min=1).double() ** SHORTER
        share = by_length.masked_fill(~there, -torch.inf).softmax(1)
        if scoring.rule == "sum":
            return share * scoring.weights[0]
        _, mass, shares, rank = scoring.weights
        place = torch.arange(logprob.shape[1], dtype=torch.float64, device=logprob.device)
        return mass * logprob + shares * share - rank * place.log1p()

    @cached_property
    def _clusters(self) -> _Clusters:
        return _Clusters(self.walk, self.depth)


class _Clusters:
    """Below which prefix each entry of a trie of one part lies, as tensors on the device."""

    def __init__(self, walk: Walk, depth: int | None) -> None:
        [arrays], [alive], [self._part] = walk.trie.parts, walk.trie.alive, walk.parts
        device, levels = walk.device, np.array(arrays.levels)
        deepest = len(levels) - 2
        self.nodes = int(levels[(deepest if depth is None else min(depth, deepest)) + 1])
        node, parent = np.array(arrays.leaf_of_entry()), np.asarray(arrays.parent)
        length = np.searchsorted(levels, np.arange(self.nodes), side="right") - 1  # of prefixes, and then of docids
        ended = node < self.nodes
        docid = np.searchsorted(levels, node[ended], side="right") - 1 + np.diff(arrays.tail_start)[ended]
        length[node[ended]] = docid if depth is None else np.minimum(docid, depth)
        while (deep := node >= self.nodes).any():
            node[deep] = parent[node[deep]]
        self._node, self._length = torch.from_numpy(node).to(device), torch.from_numpy(length).to(device)
        self.alive = torch.from_numpy(np.ones(len(node), bool) if alive is None else np.array(alive)).to(device)

    def lengths(self, state: Tensor) -> Tensor:
        """(queries, prefixes) how many symbols the prefixes of a beam have; anything where there is none."""
        return self._length[self._part.node_of(state[..., 0]).clamp(0, self.nodes - 1)]

    def below(self, state: Tensor, there: Tensor, given: Tensor) -> Tensor:
        """(queries, entries) what the prefix above each entry is given, -inf where there is none."""
        node = torch.where(there, self._part.node_of(state[..., 0]), self.nodes)
        each = given.new_full((len(given), self.nodes + 1), -torch.inf).scatter_(1, node, given)
        return each[:, self._node]


def _scored(numbers: np.ndarray, scores: np.ndarray, entries: np.ndarray, clusters: int) -> ScoredCandidates:
    """The documents of one query."""
    there = scores > -np.inf
    return ScoredCandidates(numbers[entries[there]], entries[there], scores[there], clusters)
