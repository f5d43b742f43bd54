"""Batches for a model that writes clusters and matches inside them: texts, documents, and cluster-adaptive negatives.

Each text of the views comes with its document, with others of that document's cluster (intra-cluster negatives), and
where asked for with random or mined ones. The documents of the other texts are its inter-cluster negatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triever.arrays import places
from triever.config import option
from triever.docids.trie import Paths
from triever.errors import UsageError
from triever.models.tokens import Tokens
from triever.training.pairs import Negatives, among, with_chosen
from triever.training.views import Drawn, ViewBatches

INSIDE = 1
"""A number of its own in the seed of what is drawn for documents, beside what is drawn for texts."""


@dataclass(frozen=True)
class ClusterNegatives(Negatives):
    """Where negatives come from: `ClusterNegatives(inside=10, beta=2.0)`."""

    inside: int = option(
        10, "negatives that each text brings along from its document's cluster; random ones where that has too few"
    )
    beta: float = option(1.0, "how often a negative of the document's own cluster counts in the denominator")
    generated: bool = option(
        True, "mine hard ones for written queries too, not only for judged ones; each is one search more"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inside < 0 or self.beta <= 0:
            problem = f"negatives: inside {self.inside}, beta {self.beta}"
            raise UsageError(problem, "inside is not negative, and beta is above 0")


@dataclass(frozen=True)
class FixedVectors:
    """Documents whose vectors stay as they are."""

    take: Callable[[np.ndarray], np.ndarray]

    def __call__(self, rows: np.ndarray) -> dict[str, Tensor]:
        """What a batch holds of some of them: their vectors."""
        return {"document_vectors": torch.from_numpy(self.take(rows).astype(np.float32))}


@dataclass(frozen=True)
class Texts:
    """Documents whose vectors are learned."""

    tokens: Tokens
    pad: int

    def __call__(self, rows: np.ndarray) -> dict[str, Tensor]:
        """What a batch holds of some of them: their tokens."""
        ids, mask = self.tokens.padded(rows, self.pad)
        return {"document_ids": ids, "document_mask": mask}


@dataclass(frozen=True)
class ClusterBatches:
    """A round of batches of views, each text with documents; made from its number alone."""

    views: ViewBatches
    documents: FixedVectors | Texts
    cluster: np.ndarray  # (documents,) the number of each one's cluster
    same: np.ndarray  # (documents,) numbers of their texts: a copy of what is relevant is no negative
    negatives: ClusterNegatives
    mined: Mapping[str, np.ndarray] = field(default_factory=dict)  # by view (queries, most) hard negatives, see mining

    def __len__(self) -> int:
        return len(self.views)

    def __getitem__(self, step: int) -> dict[str, Any]:
        drawn = self.views.drawn(step)
        own = np.concatenate([one.rows for one in drawn])
        relevant = [rows for one in drawn for rows in one.relevant()]
        chance = np.random.default_rng((self.views.seed, self.views.round, step, INSIDE))
        negatives = self.negatives_of(drawn, own, relevant, chance)
        documents = np.concatenate([own, negatives.ravel()])
        return {
            **self.views.batch_of(drawn),
            **self.documents(documents),
            "positive": torch.arange(len(own)),
            "excluded": torch.from_numpy(self._is_relevant(documents[None], own, relevant)),
            "weights": torch.from_numpy(self._weights(own, documents)),
        }

    def negatives_of(
        self, drawn: Sequence[Drawn], own: np.ndarray, relevant: Sequence[np.ndarray], chance: np.random.Generator
    ) -> np.ndarray:
        """(texts, inside + count) rows: first those of the same cluster, then those that are mined or random."""
        options, texts = self.negatives, len(own)
        found = chance.integers(len(self.cluster), size=(texts, options.inside + options.count))
        inside, others = found[:, : options.inside], found[:, options.inside :]
        if options.inside:
            inside = with_chosen(inside, self._beside(own, relevant, chance), options.inside, chance)
        if self.mined and options.mined:
            others = with_chosen(others, self._mined(drawn), options.mined, chance)
        return np.concatenate([inside, others], 1)

    def _beside(self, own: np.ndarray, relevant: Sequence[np.ndarray], chance: np.random.Generator) -> np.ndarray:
        """(texts, inside) rows of each document's cluster that are not relevant to its text, -1 behind the last."""
        order, start = self._members
        low, size = start[self.cluster[own]], np.diff(start)[self.cluster[own]]
        # Some that follow each other in an order by chance, and a few more, for those that fall away.
        step = np.arange(2 * self.negatives.inside + max(map(len, relevant), default=0))
        first = (chance.random(len(own)) * size).astype(np.int64)
        rows = order[low[:, None] + (first[:, None] + step) % size[:, None]]
        there = (step < size[:, None]) & ~self._is_relevant(rows, own, relevant)
        front = np.argsort(~there, axis=1, kind="stable")[:, : self.negatives.inside]
        return np.where(np.take_along_axis(there, front, 1), np.take_along_axis(rows, front, 1), -1)

    def _is_relevant(self, rows: np.ndarray, own: np.ndarray, relevant: Sequence[np.ndarray]) -> np.ndarray:
        """(texts, n) which of some rows are relevant to each text, or have the text of one that is.

        Rows are (texts, n), or (1, n) for all texts. What a text stands for is relevant to it; few have others.
        """
        found = self.same[rows] == self.same[own][:, None]
        for text in [number for number, known in enumerate(relevant) if len(known) > 1]:
            found[text] = among(rows[text % len(rows)], relevant[text], self.same)
        return found

    @cached_property
    def _members(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows of all documents, cluster by cluster and each in an order by chance, and where each begins."""
        mixed = np.random.default_rng((self.views.seed, self.views.round, INSIDE)).permutation(len(self.cluster))
        order = mixed[self.cluster[mixed].argsort(kind="stable")]
        return order, np.searchsorted(self.cluster[order], np.arange(self.cluster.max(initial=-1) + 2))

    def _mined(self, drawn: Sequence[Drawn]) -> np.ndarray:
        """(texts, most) what was mined for them; -1 for the texts of views that are not mined for."""
        most = max(rows.shape[1] for rows in self.mined.values())
        none = {one.name: np.full((len(one.rows), most), -1) for one in drawn}
        found = {one.name: self.mined[one.name][one.examples] for one in drawn if one.name in self.mined}
        return np.concatenate([*(none | found).values()])

    def _weights(self, own: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """(texts, documents) how often a document counts as a negative of a text."""
        together = self.cluster[documents] == self.cluster[own][:, None]
        return np.where(together, np.float32(self.negatives.beta), np.float32(1))


def cluster_numbers(docids: np.ndarray) -> np.ndarray:
    """(documents,) a number for the cluster of each, by docids (documents, depth): equal ones are one cluster."""
    if not docids.shape[1]:  # nothing is written, and all are together
        return np.zeros(len(docids), np.int64)
    return np.unique(docids, axis=0, return_inverse=True)[1].reshape(-1)


def cluster_sizes(paths: Paths, depth: int | None) -> np.ndarray:
    """(clusters,) how many documents are below each prefix of this length; one that is below several counts in each."""
    length = np.diff(paths.start)
    written = length if depth is None else np.minimum(length, depth)
    prefix = np.full((len(paths), int(written.max(initial=0))), -1)
    prefix[np.arange(prefix.shape[1]) < written[:, None]] = paths.flat[places(paths.start[:-1], written)]
    documents = int(paths.document.max(initial=0)) + 1
    members = np.unique(cluster_numbers(prefix) * documents + paths.document)
    return np.bincount(members // documents)
