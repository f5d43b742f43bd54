"""How much the parts of a score count, chosen by held-out queries that are seen one at a time.

None is kept whole: a fit of alpha keeps a sum for each value that it tries, and one of learned weights those candidates
of each query that any weights could put first.
"""

from __future__ import annotations

import logging
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from triever.engines.match_scores import FEATURES, Candidates, MatchOptions, Scoring
from triever.ranks import reciprocal_rank_by

ALPHAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""What a fit of alpha tries."""
EACH = 10
"""The nearest documents of a cluster that weights are learned from, besides the relevant ones."""
RIDGE = 1e-3
"""What the square of a weight costs, so that weights stay finite where held-out queries are all answered."""
STEPS = 200

_log = logging.getLogger("triever")


class Fit(Protocol):
    """What chooses weights."""

    def see(self, candidates: Candidates, relevant: np.ndarray) -> None:
        """One query: what a beam found for it, and the numbers of the documents that are relevant to it."""
        ...

    def weights(self) -> tuple[float, ...]:
        """Those that suit what was seen."""
        ...


def fit_for(matching: MatchOptions) -> Fit:
    """What chooses the weights of a rule."""
    return LearnedFit() if matching.rule == "learned" else AlphaFit(matching)


class AlphaFit:
    """The alpha with the best mean reciprocal rank; of equal ones, the one that was given."""

    def __init__(self, matching: MatchOptions) -> None:
        self._tried = (matching.alpha, *ALPHAS)
        self._scoring = Scoring(matching.rule, (1.0,), matching.temperature)
        self._total = np.zeros(len(self._tried))

    def see(self, candidates: Candidates, relevant: np.ndarray) -> None:
        """Add the reciprocal rank under each alpha."""
        is_right = np.isin(candidates.numbers, relevant)
        if is_right.any():
            vector, cluster = self._scoring.parts(candidates).values()
            self._total += [reciprocal_rank_by(vector + alpha * cluster, is_right) for alpha in self._tried]

    def weights(self) -> tuple[float, ...]:
        """The best one. Rounded: in which order queries came is no reason to prefer one."""
        return (self._tried[int(self._total.round(9).argmax())],)


class LearnedFit:
    """The weights under which the softmax over a beam's documents gives the relevant ones the most."""

    def __init__(self) -> None:
        self._features: list[np.ndarray] = []  # for each query (candidates, features)
        self._right: list[np.ndarray] = []  # for each query (candidates,) bool

    def see(self, candidates: Candidates, relevant: np.ndarray) -> None:
        """Keep what is relevant, and of each cluster what is nearest."""
        is_right = np.isin(candidates.numbers, relevant)
        if is_right.any() and not is_right.all():
            chosen = np.union1d(np.flatnonzero(is_right), nearest_of_each(candidates, EACH))
            self._features.append(candidates.features[chosen])
            self._right.append(is_right[chosen])

    def weights(self) -> tuple[float, ...]:
        """Those that are learned; where no query says anything, the vector decides alone."""
        if not self._features:
            message = (
                "no weights are learned, because no beam of a held-out query has both relevant and other documents"
            )
            _log.warning("%s; only the vectors score documents", message)
            return (1.0, *(0.0 for _ in FEATURES[1:]))
        return learned_weights(self._features, self._right)


def nearest_of_each(candidates: Candidates, limit: int) -> np.ndarray:
    """The nearest documents of each cluster: whatever is first in a ranking that rises with nearness is one of them."""
    order = np.lexsort((-candidates.products, candidates.places))
    clusters = candidates.places[order]
    rank = np.arange(len(order)) - np.searchsorted(clusters, clusters)
    return order[rank < limit]


def learned_weights(features: list[np.ndarray], right: list[np.ndarray]) -> tuple[float, ...]:
    """Weights of features (candidates, features) of each query, by which its right candidates (candidates,) stand out.

    They make the mean of minus the log-probability of what is right small, under a softmax over each query's
    candidates. Always the same for the same queries.
    """
    centred = [table - table.mean(0) for table in features]  # a softmax does not see what all candidates have
    spread = np.concatenate(centred).std(0)
    scale = np.where(spread > 1e-9, spread, np.inf)  # what never differs gets no weight
    rows = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(table / scale) for table in centred], batch_first=True)
    there = _padded([np.ones(len(mask), bool) for mask in right])
    is_right = _padded(right)
    weights = torch.zeros(rows.shape[2], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        scores = rows @ weights
        all_of_it, good = (scores.masked_fill(~mask, -torch.inf).logsumexp(1) for mask in (there, is_right))
        loss = (all_of_it - good).mean() + RIDGE * weights.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():  # a training that looks at held-out queries has it off
        optimizer.step(closure)
    return tuple((weights.detach().numpy() / scale).tolist())


def _padded(masks: list[np.ndarray]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.from_numpy(mask) for mask in masks], batch_first=True)
