"""Questions that documents are known to answer, as docids of theirs: a question like one of them finds its document.

Documents that nobody asked about have none. How much such docids count beside those of texts is therefore chosen on
held-out questions, and not so that questions about other documents lose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from triever.arrays import starts_of
from triever.models.row_model import RowModel, log_sums
from triever.progress import track
from triever.ranks import reciprocal_rank
from triever.training.pairs import Pairs
from triever.training.views import Generated, Labelled, View, questions_of

MASSES = tuple(math.exp(logarithm) for logarithm in (-8, -7, -6, -5, -4, -3, -2, -1, 0))
"""What a docid of a question may count, where that of a text counts 1: from hardly anything to as much."""
TOGETHER = 64
"""Held-out questions that are judged at once."""


@dataclass(frozen=True)
class Asked:
    """Questions and the documents that they are about: `Asked.of(views, vectors, limit=8)`."""

    vectors: np.ndarray  # (questions, d)
    owners: np.ndarray  # (questions,) the row of each one's document

    def __len__(self) -> int:
        return len(self.owners)

    @classmethod
    def of(cls, views: Mapping[str, View], vectors: Mapping[str, np.ndarray], limit: int) -> Asked:
        """Of the questions of views with these vectors, at most `limit` for each document, judged ones first."""
        pairs = [_with_documents(view, vectors[name]) for name, view in questions_of(views).items()]
        if not pairs:
            return NOTHING_ASKED
        each, owners = (np.concatenate(part) for part in zip(*pairs, strict=True))
        kept = np.flatnonzero(_places(owners) < limit)
        return cls(each[kept], owners[kept])

    def ranks(self, model: RowModel, queries: torch.Tensor, right: Pairs, mass: float) -> list[float]:
        """How early each query, by its vector, finds its documents where a question counts so much."""
        return self._ranks_by_mass(model, queries, right, (mass,))[mass]

    @torch.inference_mode()
    def _ranks_by_mass(
        self, model: RowModel, queries: torch.Tensor, right: Pairs, masses: Sequence[float]
    ) -> dict[float, list[float]]:
        """The same for several masses: texts and questions are compared once for all of them."""
        device = model.rows.device
        owners, known = torch.from_numpy(self.owners).to(device), torch.from_numpy(self.vectors).to(device)
        ranks: dict[float, list[float]] = {mass: [] for mass in masses}
        for low in track(range(0, len(queries), TOGETHER), "judging held-out questions", unit="batches of questions"):
            some = queries[low : low + TOGETHER].to(device)
            by_texts, by_questions = model.weights(some), None
            if len(self) and any(masses):
                near = model.scale * (model.questions(some) @ known.T)
                by_questions = log_sums(near, owners, model.documents)
            for mass in masses:
                is_joined = mass > 0 and by_questions is not None
                weights = torch.logaddexp(by_texts, by_questions + math.log(mass)) if is_joined else by_texts
                best = weights.topk(min(10, model.documents)).indices.cpu().numpy()
                found = (np.isin(rows, right.of(low + at)).tolist() for at, rows in enumerate(best))
                ranks[mass] += [reciprocal_rank(hits) for hits in found]
        return ranks

    def fitted_mass(
        self, model: RowModel, queries: torch.Tensor, held: Pairs, seen: np.ndarray, start: Sequence[float]
    ) -> float:
        """What a question should count: as suits held-out queries about seen documents, if the others lose nothing.

        They are compared with their ranks before the training, `start`. Where held-out queries cannot tell, a question
        counts the least: that helps who asks nearly the same, and others hardly notice.
        """
        by_mass = self._ranks_by_mass(model, queries, held, (0.0, *MASSES))
        each = {mass: np.array(ranks) for mass, ranks in by_mass.items()}
        least = float(np.array(start)[~seen].sum())
        allowed = [mass for mass, ranks in each.items() if not mass or ranks[~seen].sum() >= least]
        return max(allowed, key=lambda mass: (float(each[mass][seen].sum()), mass > 0, -mass))


def is_worse(now: np.ndarray, before: np.ndarray) -> bool:
    """Whether reciprocal ranks have fallen by more than a standard error of their differences."""
    change = now - before
    return len(change) > 0 and bool(change.mean() < -change.std() / math.sqrt(len(change)))


NOTHING_ASKED = Asked(np.empty((0, 0), np.float32), np.empty(0, np.int64))


def _with_documents(view: Labelled | Generated, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of questions, each as often as it has documents, and the rows of these."""
    if isinstance(view, Generated):
        return vectors, view.documents
    return vectors.repeat(np.diff(view.pairs.start), 0), view.pairs.relevant


def _places(owners: np.ndarray) -> np.ndarray:
    """(n,) how many of the same owner stand before each."""
    _, counts = np.unique(owners, return_counts=True)
    places = np.empty(len(owners), np.int64)
    places[owners.argsort(kind="stable")] = np.arange(len(owners)) - np.repeat(starts_of(counts)[:-1], counts)
    return places
