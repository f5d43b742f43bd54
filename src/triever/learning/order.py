"""A loss for order: at every length of docids, right documents should stand above those that they are confused with.

The likelihood of whole docids says nothing of prefixes, and a beam that drops the right prefix finds nothing. Before
each round the model ranks all documents for the training questions: the wrong ones that come first are those that it
confuses, and the prefixes of their docids those that a beam would keep instead.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from triever.data.records import Document
from triever.docids.schemes import Scheme
from triever.docids.trie import Arrays
from triever.engines.node_docids import fitted_trie
from triever.models.node_rows import NodeSums, Steering, node_weights
from triever.models.row_model import RowModel
from triever.training.views import Generated, Labelled, View, questions_of

CONFUSED = 8
"""Wrong documents that each question is compared with."""
MARGIN = 1.0
"""How far above those of a wrong document the log-weights of prefixes should be."""
TOGETHER = 256
"""Questions whose documents are ranked at once."""


@dataclass(frozen=True)
class PrefixTree:
    """The trie of the docids of texts, and where in it the prefixes of each document's whole text are."""

    arrays: Arrays
    nodes: Tensor  # (documents, lengths) the node of every prefix; the last one again behind its end

    @classmethod
    def of(cls, scheme: Scheme, documents: Sequence[Document], model: RowModel) -> PrefixTree:
        """With docids that a scheme gives to the rows of a model as they are now."""
        owners = model.owners.cpu().numpy()
        rows = model.rows_now().detach()
        arrays = fitted_trie(copy.deepcopy(scheme), documents, owners, rows.cpu(), rows.device).parts[0]
        leaf = np.empty(len(owners), np.int64)
        leaf[arrays.document] = arrays.leaf_of_entry()
        whole = np.flatnonzero(np.diff(owners, prepend=-1))  # a whole text stands before its passages
        return cls(arrays, torch.from_numpy(_prefixes(arrays, leaf[whole])).to(rows.device))

    def tables(self, model: RowModel, steering: Steering) -> PrefixTables:
        """What prefixes weigh by the rows of a model as they are now, while it is training."""
        order = torch.from_numpy(np.asarray(self.arrays.document)).to(model.rows.device)
        sums = NodeSums.of(self.arrays, model.rows_now(training=True).detach()[order], model.masses()[order], None)
        return PrefixTables(self.nodes, sums, steering)


def _prefixes(arrays: Arrays, leaves: np.ndarray) -> np.ndarray:
    """(leaves, lengths) the nodes from below the root to each leaf; the leaf again behind the end."""
    parent, ways = arrays.parent, []
    for leaf in leaves.tolist():
        way = [leaf]
        while parent[way[-1]] > 0:
            way.append(int(parent[way[-1]]))
        ways.append(way[::-1])
    longest = max(map(len, ways), default=1)
    return np.array([[*way, *[way[-1]] * (longest - len(way))] for way in ways], np.int64).reshape(-1, longest)


@dataclass(frozen=True)
class PrefixTables:
    """What the prefixes of documents weigh for questions, as a search estimates it."""

    nodes: Tensor  # (documents, lengths)
    sums: NodeSums
    steering: Steering

    def margin_loss(self, questions: Tensor, compared: Tensor, scale: Tensor) -> Tensor:
        """How far the right document, the first of those compared (n, 1 + c), is from standing above all others.

        Questions are vectors (n, d). Prefixes that two documents share count nothing, and so does no document (-1).
        """
        nodes = self.nodes[compared.clamp(min=0)]  # (n, 1 + c, lengths)
        means, spread, count, mass = self.sums.summaries(nodes)
        nearness = torch.einsum("nd,ncld->ncl", questions, means)
        weights = node_weights(nearness, spread, count, mass, scale, self.steering)
        apart = (nodes[:, 1:] != nodes[:, :1]) & (compared[:, 1:, None] >= 0) & (compared[:, :1, None] >= 0)
        short = (MARGIN - (weights[:, :1] - weights[:, 1:])).clamp(min=0)
        return torch.where(apart, short, 0.0).sum() / apart.sum().clamp(min=1)


@torch.inference_mode()
def confused(model: RowModel, views: Mapping[str, View], vectors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """For the questions of each view, (questions, c) the wrong documents that a model ranks first; -1 if there are few.

    `vectors` are those of the questions by the reader as it is now.
    """
    each = questions_of(views).items()
    return {name: _first_wrong(model, view, torch.from_numpy(vectors[name])) for name, view in each}


def _first_wrong(model: RowModel, view: Labelled | Generated, vectors: Tensor) -> np.ndarray:
    wrong = np.full((len(vectors), CONFUSED), -1, np.int64)
    depth = min(2 * CONFUSED, model.documents)
    for low in range(0, len(vectors), TOGETHER):
        some = vectors[low : low + TOGETHER].to(model.rows.device)
        best = model.weights(some).topk(depth).indices.cpu().numpy()
        for number, rows in enumerate(best, low):
            right = view.pairs.of(number) if isinstance(view, Labelled) else view.documents[number : number + 1]
            kept = rows[~np.isin(rows, right)][:CONFUSED]
            wrong[number, : len(kept)] = kept
    return wrong
