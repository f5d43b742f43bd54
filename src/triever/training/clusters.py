"""Batches for a model that writes clusters and matches inside them: texts, documents, and cluster-adaptive negatives.

Each text of the views comes with its document (its positive) and with other documents of the same cluster
(intra-cluster negatives); the options may add random or mined ones. The documents of the other texts are its
inter-cluster negatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

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
"""Part of the seed for drawing documents, so that they are drawn apart from the texts."""


@dataclass(frozen=True)
class ClusterNegatives(Negatives):
    """Where negatives come from: `ClusterNegatives(inside=10, beta=2.0)`."""

    inside: int = option(
        10, "negatives for each text from its document's cluster; a cluster with too few is filled up at random"
    )
    beta: float = option(1.0, "weight of a negative from the document's own cluster in the denominator")
    generated: bool = option(
        True, "mine hard negatives for generated queries too, not only for judged ones; each query costs a search"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_not_shared("a text is compared with its cluster and with all documents of its batch")
        if self.inside < 0 or self.beta <= 0:
            problem = f"a value of negatives is too small: inside = {self.inside}, beta = {self.beta}"
            raise UsageError(problem, "set inside to 0 or more, and beta above 0")


@dataclass(frozen=True)
class FixedVectors:
    """Documents whose vectors stay as they are."""

    take: Callable[[np.ndarray], np.ndarray]

    def __call__(self, rows: np.ndarray) -> dict[str, Tensor]:
        """The vectors of these documents, as a batch holds them."""
        return {"document_vectors": torch.from_numpy(self.take(rows).astype(np.float32))}


@dataclass(frozen=True)
class Texts:
    """Documents whose vectors are learned."""

    tokens: Tokens
    pad: int

    def __call__(self, rows: np.ndarray) -> dict[str, Tensor]:
        """The tokens of these documents, as a batch holds them."""
        ids, mask = self.tokens.padded(rows, self.pad)
        return {"document_ids": ids, "document_mask": mask}


@dataclass(frozen=True)
class ClusterBatches:
    """A round of batches of views, each text with documents; a batch follows from its number alone."""

    views: ViewBatches
    documents: FixedVectors | Texts
    cluster: np.ndarray  # (documents,) the number of each document's cluster
    same: np.ndarray  # (documents,) the number of each document's text: a copy of a relevant document is no negative
    negatives: ClusterNegatives
    mined: Mapping[str, np.ndarray] = field(default_factory=dict)  # by view: (queries, depth) hard negatives

    def __len__(self) -> int:
        return len(self.views)

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        drawn = self.views.drawn(step)
        positives = np.concatenate([part.rows for part in drawn])
        relevant = [rows for part in drawn for rows in part.relevant()]
        chance = np.random.default_rng((self.views.seed, self.views.round, step, INSIDE))
        negatives = self.negatives_of(drawn, positives, relevant, chance)
        documents = np.concatenate([positives, negatives.ravel()])
        return {
            **self.views.batch_of(drawn),
            **self.documents(documents),
            "positive": torch.arange(len(positives)),
            "excluded": torch.from_numpy(self._is_relevant(documents[None], positives, relevant)),
            "weights": torch.from_numpy(self._weights(positives, documents)),
        }

    def negatives_of(
        self, drawn: Sequence[Drawn], positives: np.ndarray, relevant: Sequence[np.ndarray], chance: np.random.Generator
    ) -> np.ndarray:
        """(texts, inside + count) rows: first those of the same cluster, then those that are mined or random."""
        options, texts = self.negatives, len(positives)
        random = chance.integers(len(self.cluster), size=(texts, options.inside + options.count))
        inside, anywhere = random[:, : options.inside], random[:, options.inside :]
        if options.inside:
            inside = with_chosen(inside, self._beside(positives, relevant, chance), options.inside, chance)
        if self.mined and options.mined:
            anywhere = with_chosen(anywhere, self._mined(drawn), options.mined, chance)
        return np.concatenate([inside, anywhere], 1)

    def _beside(self, positives: np.ndarray, relevant: Sequence[np.ndarray], chance: np.random.Generator) -> np.ndarray:
        """(texts, inside) rows of the positive's cluster that are not relevant to the text, -1 behind the last."""
        order, start = self._members
        low, size = start[self.cluster[positives]], np.diff(start)[self.cluster[positives]]
        # Neighbours in a random order, with a few to spare: relevant ones are left out.
        step = np.arange(2 * self.negatives.inside + max(map(len, relevant), default=0))
        first = (chance.random(len(positives)) * size).astype(np.int64)
        rows = order[low[:, None] + (first[:, None] + step) % size[:, None]]
        there = (step < size[:, None]) & ~self._is_relevant(rows, positives, relevant)
        front = np.argsort(~there, axis=1, kind="stable")[:, : self.negatives.inside]
        return np.where(np.take_along_axis(there, front, 1), np.take_along_axis(rows, front, 1), -1)

    def _is_relevant(self, rows: np.ndarray, positives: np.ndarray, relevant: Sequence[np.ndarray]) -> np.ndarray:
        """(texts, n) whether each row is relevant to the text, or has the text of a relevant document.

        Rows are (texts, n), or (1, n) for all texts. The positive of a text is relevant to it; few texts have more.
        """
        is_relevant = self.same[rows] == self.same[positives][:, None]
        for text in [number for number, known in enumerate(relevant) if len(known) > 1]:
            is_relevant[text] = among(rows[text % len(rows)], relevant[text], self.same)
        return is_relevant

    @cached_property
    def _members(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows of all documents, cluster by cluster in a random order, and where each cluster begins."""
        mixed = np.random.default_rng((self.views.seed, self.views.round, INSIDE)).permutation(len(self.cluster))
        order = mixed[self.cluster[mixed].argsort(kind="stable")]
        return order, np.searchsorted(self.cluster[order], np.arange(self.cluster.max(initial=-1) + 2))

    def _mined(self, drawn: Sequence[Drawn]) -> np.ndarray:
        """(texts, depth) the negatives that were mined for them; -1 for texts of views that are not mined for."""
        depth = max(rows.shape[1] for rows in self.mined.values())
        none = {part.name: np.full((len(part.rows), depth), -1) for part in drawn}
        mined = {part.name: self.mined[part.name][part.examples] for part in drawn if part.name in self.mined}
        return np.concatenate([*(none | mined).values()])

    def _weights(self, positives: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """(texts, documents) the weight of each document as a negative of a text."""
        together = self.cluster[documents] == self.cluster[positives][:, None]
        return np.where(together, np.float32(self.negatives.beta), np.float32(1))


def cluster_numbers(docids: np.ndarray) -> np.ndarray:
    """(documents,) the number of each document's cluster; documents with equal docids (documents, depth) share one."""
    if not docids.shape[1]:  # docids without symbols: all documents are one cluster
        return np.zeros(len(docids), np.int64)
    return np.unique(docids, axis=0, return_inverse=True)[1].reshape(-1)


def cluster_sizes(paths: Paths, depth: int | None) -> np.ndarray:
    """(clusters,) the number of documents below each prefix of this length; a document may be below several."""
    length = np.diff(paths.start)
    written = length if depth is None else np.minimum(length, depth)
    prefix = np.full((len(paths), int(written.max(initial=0))), -1)
    prefix[np.arange(prefix.shape[1]) < written[:, None]] = paths.flat[places(paths.start[:-1], written)]
    documents = int(paths.document.max(initial=0)) + 1
    members = np.unique(cluster_numbers(prefix) * documents + paths.document)
    return np.bincount(members // documents)
