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

from triever.models.row_model import RowModel, log_sums
from triever.progress import track
from triever.ranks import reciprocal_rank
from triever.training.pairs import Pairs
from triever.training.views import Generated, Labelled, View

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
        pairs = [_with_documents(view, vectors[name]) for name, view in _questions(views).items()]
        if not pairs:
            return NOTHING_ASKED
        each, owners = (np.concatenate(part) for part in zip(*pairs, strict=True))
        kept = np.flatnonzero(_places(owners) < limit)
        return cls(each[kept], owners[kept])

    @torch.inference_mode()
    def ranks(self, model: RowModel, queries: torch.Tensor, right: Pairs, mass: float) -> list[float]:
        """How early each query, by its vector, finds its documents where a question counts so much."""
        device, ranks = model.rows.device, []
        owners, known = torch.from_numpy(self.owners).to(device), torch.from_numpy(self.vectors).to(device)
        for low in range(0, len(queries), TOGETHER):
            some = queries[low : low + TOGETHER].to(device)
            weights = model.weights(some)
            if mass and len(self):
                near = model.scale * (model.questions(some) @ known.T) + math.log(mass)
                weights = torch.logaddexp(weights, log_sums(near, owners, model.documents))
            best = weights.topk(min(10, model.documents)).indices.cpu().numpy()
            ranks += [reciprocal_rank(np.isin(rows, right.of(low + at)).tolist()) for at, rows in enumerate(best)]
        return ranks

    def fitted_mass(
        self, model: RowModel, queries: torch.Tensor, held: Pairs, seen: np.ndarray, start: Sequence[float]
    ) -> float:
        """What a question should count: as suits held-out queries about seen documents, if the others lose nothing.

        They are compared with their ranks before the training, `start`. What a standard error explains is no loss.
        """
        masses = track((0.0, *MASSES), "weighing questions", 1 + len(MASSES))
        each = {mass: np.array(self.ranks(model, queries, held, mass)) for mass in masses}
        before = np.array(start)
        allowed = [mass for mass, ranks in each.items() if not mass or not _is_worse(ranks[~seen], before[~seen])]
        return max(allowed, key=lambda mass: float(each[mass][seen].sum()))


def _is_worse(now: np.ndarray, before: np.ndarray) -> bool:
    """Whether reciprocal ranks have fallen by more than a standard error of their differences."""
    change = now - before
    return len(change) > 0 and bool(change.mean() < -change.std() / math.sqrt(len(change)))


NOTHING_ASKED = Asked(np.empty((0, 0), np.float32), np.empty(0, np.int64))


def _questions(views: Mapping[str, View]) -> dict[str, Labelled | Generated]:
    """The views of questions, judged ones first."""
    found = {name: view for name, view in views.items() if isinstance(view, Labelled | Generated)}
    return dict(sorted(found.items(), key=lambda item: isinstance(item[1], Generated)))


def _with_documents(view: Labelled | Generated, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of questions, each as often as it has documents, and the rows of these."""
    if isinstance(view, Generated):
        return vectors, view.documents
    return vectors.repeat(np.diff(view.pairs.start), 0), view.pairs.relevant


def _places(owners: Sequence[int] | np.ndarray) -> np.ndarray:
    """(n,) how many of the same owner stand before each."""
    order = np.argsort(owners, kind="stable")
    _, counts = np.unique(np.asarray(owners)[order], return_counts=True)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places
