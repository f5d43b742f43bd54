"""The exact probabilities of symbols behind the prefixes of a trie, from a weight for every document.

A prefix weighs as much as all documents below it together, and a symbol's probability behind it is the share of what
lies below both. So docids that are written symbol by symbol have exactly the probabilities of their documents (appendix
C of the paper). It needs the weights of all documents for each query; a model has to do with less, and can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from triever.docids.trie import Arrays, Trie
from triever.errors import UsageError


@dataclass(frozen=True)
class TriePosterior:
    """What follows prefixes: `TriePosterior.of(trie, scores).following((3,))`.

    A node stands for a prefix that several documents share, or for a docid with its tail; see `docids.trie`.
    """

    arrays: Arrays
    log_weight: np.ndarray  # (nodes,) the log of what lies at and below each node
    log_entry: np.ndarray  # (entries,) the log of what each pair of a docid and a document weighs

    @classmethod
    def of(cls, trie: Trie, scores: np.ndarray) -> TriePosterior:
        """From a score (documents,) for each document of the trie by its number; a document weighs exp(score).

        Scores may be the logs of probabilities, and -inf where that is zero. A document with several docids weighs the
        same at each of them, and its score in all.
        """
        return cls.of_arrays(trie.compact().parts[0], scores)

    @classmethod
    def of_arrays(cls, arrays: Arrays, scores: np.ndarray) -> TriePosterior:
        """The same from the arrays of a trie of one part, of which nothing was deleted."""
        document = np.asarray(arrays.document, np.int64)
        if document.max(initial=-1) >= len(scores):
            problem = f"there are {len(scores)} scores, but the trie has the document {document.max()}"
            raise UsageError(problem, "give one for each number of a document")
        log_entry = np.asarray(scores, np.float64)[document] - np.log(np.bincount(document)[document])
        return cls(arrays, node_sums(arrays, log_entry), log_entry)

    @cached_property
    def log_conditional(self) -> np.ndarray:
        """(nodes,) the log-probability of each node behind the prefix of its parent; 0 for the root."""
        shares = _share(self.log_weight, self.log_weight[np.maximum(self.arrays.parent, 0)])
        shares[0] = 0.0
        return shares

    @cached_property
    def log_reach(self) -> np.ndarray:
        """(nodes,) the log-probability that a docid which is drawn begins with the prefix of each node."""
        return _share(self.log_weight, self.log_weight[0])

    def following(self, prefix: Sequence[int]) -> Mapping[int, float]:
        """The probability of each symbol that may follow a prefix; nothing where no docid goes on.

        >>> trie = Trie.of([((0, 0), 0), ((0, 1), 1), ((2, 1), 2)])
        >>> TriePosterior.of(trie, np.log([0.1, 0.3, 0.6])).following((0,))
        {0: 0.25, 1: 0.75}
        """
        node, rest = self._node(prefix)
        if node is None:
            return {}
        low, high = int(self.arrays.child[node]), int(self.arrays.child[node + 1])
        if low < high:
            probabilities = np.exp(self.log_conditional[low:high]).round(12).tolist()
            return dict(zip(self.arrays.token[low:high].tolist(), probabilities, strict=True))
        tail = self._tail(node)
        return {tail[len(rest)]: 1.0} if len(rest) < len(tail) and tail[: len(rest)] == rest else {}

    def documents(self, log_conditional: np.ndarray | None = None) -> np.ndarray:
        """(documents,) the log-probability of each document if its docid is written symbol by symbol.

        That is done by these conditional probabilities, or by given ones (nodes,), such as those of a model. Documents
        that share a docid share its probability by what they weigh. -inf for numbers that no document has.
        """
        given = self.log_conditional if log_conditional is None else log_conditional
        leaf = self.arrays.leaf_of_entry()
        log_entry = path_sums(self.arrays, given)[leaf] + _share(self.log_entry, self.log_weight[leaf])
        documents = np.full(int(self.arrays.document.max(initial=-1)) + 1, -np.inf)
        np.logaddexp.at(documents, self.arrays.document, log_entry)
        return documents

    def divergences(self, log_conditional: np.ndarray) -> np.ndarray:
        """(nodes,) the divergence KL(exact || given) of what follows each prefix, in nats; 0 where docids end.

        Weighted by `log_reach` they add up to the divergence of the two distributions over docids.
        """
        parent = self.arrays.parent[1:]
        exact = self.log_conditional[1:]
        likely = np.exp(exact)
        with np.errstate(invalid="ignore"):
            each = np.where(likely > 0, likely * (exact - np.asarray(log_conditional)[1:]), 0.0)
        return np.bincount(parent, each, minlength=self.arrays.nodes) if len(parent) else np.zeros(self.arrays.nodes)

    def divergence(self, log_conditional: np.ndarray) -> float:
        """KL(exact || given) of the distributions over docids, in nats."""
        reach, apart = np.exp(self.log_reach), self.divergences(log_conditional)
        return float(np.sum(np.where(reach > 0, reach * apart, 0.0)))

    def _node(self, prefix: Sequence[int]) -> tuple[int | None, list[int]]:
        """The node of a prefix, and which of its symbols lie in a tail below that."""
        node = 0
        for place, symbol in enumerate(prefix):
            low, high = int(self.arrays.child[node]), int(self.arrays.child[node + 1])
            if low == high:
                return node, [*map(int, prefix[place:])]
            at = low + int(np.searchsorted(self.arrays.token[low:high], symbol))
            if at == high or self.arrays.token[at] != symbol:
                return None, []
            node = at
        return node, []

    def _tail(self, leaf: int) -> list[int]:
        entry = int(self.arrays.first[leaf])
        if entry >= self.arrays.entries:  # the root of an empty trie
            return []
        return self.arrays.tail[self.arrays.tail_start[entry] : self.arrays.tail_start[entry + 1]].tolist()


def node_sums(arrays: Arrays, log_entry: np.ndarray) -> np.ndarray:
    """(nodes,) the logs of the sums of what lies at and below nodes, from the logs for entries (entries,)."""
    log_weight = np.full(arrays.nodes, -np.inf)
    if not arrays.entries:
        return log_weight
    leaves = np.flatnonzero(arrays.leaf)
    leaves = leaves[np.argsort(arrays.first[leaves], kind="stable")]  # every entry is at one of them
    log_weight[leaves] = np.logaddexp.reduceat(log_entry, arrays.first[leaves])
    for low, high in reversed([*zip(arrays.levels, arrays.levels[1:], strict=False)]):
        inner = low + np.flatnonzero(~arrays.leaf[low:high])
        if len(inner):
            below = slice(int(arrays.child[inner[0]]), int(arrays.child[high]))
            log_weight[inner] = np.logaddexp.reduceat(log_weight[below], arrays.child[inner] - below.start)
    return log_weight


def path_sums(arrays: Arrays, values: np.ndarray) -> np.ndarray:
    """(nodes,) the sums of values (nodes,) along the paths from the root, which counts too."""
    sums = np.array(values, np.float64)
    for low, high in zip(arrays.levels[1:], arrays.levels[2:], strict=False):
        sums[low:high] += sums[arrays.parent[low:high]]
    return sums


def sibling_shares(arrays: Arrays, log_weight: np.ndarray) -> np.ndarray:
    """(nodes,) the log-probabilities of nodes among their siblings, by the logs of weights (nodes,); 0 for the root.

    So a model that weighs prefixes in its own way leads a search that is normalised over the trie.
    """
    log_weight = np.asarray(log_weight, np.float64)
    shares = np.zeros(arrays.nodes)
    inner = np.flatnonzero(~arrays.leaf)
    if len(inner):
        totals = np.logaddexp.reduceat(log_weight[1:], arrays.child[inner] - 1)
        shares[1:] = _share(log_weight[1:], np.repeat(totals, np.diff(arrays.child)[inner]))
    return shares


def _share(logs: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """The logs of shares of totals; what weighs nothing has none, also where nothing else weighs anything."""
    shares = np.full(logs.shape, -np.inf)
    return np.subtract(logs, totals, out=shares, where=logs > -np.inf)
