"""How near the weights of prefixes come to the exact trie posterior, where every node has a row.

A docid weighs mass * exp(scale * question . row), so the exact weight of a prefix is a sum over all docids below it. A
search estimates it from the mean and the spread of their rows. The estimates, among siblings, are compared with the
exact probabilities: by the divergence of what follows each prefix, weighted by how likely the prefix is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

import numpy as np
import torch

from triever.data.datasets import Dataset
from triever.docids.trie import Arrays
from triever.engines.nodes import NodeEngine
from triever.errors import UsageError
from triever.evaluation.compare import questions
from triever.evaluation.finding import Finding, Part
from triever.evaluation.picture import Bars
from triever.models.node_rows import NodeSums, Steering, node_weights
from triever.printable import an
from triever.progress import track
from triever.retriever import Retriever
from triever.theory.posterior import TriePosterior, sibling_shares

COUNTED = "number of docids"
"""The estimate that knows nothing of the question: how many docids are below a prefix, and their masses."""
ESTIMATES: Mapping[str, Steering] = {
    COUNTED: Steering(0.0, 0.0),
    "mean": Steering(1.0, 0.0),
    "mean and spread": Steering(1.0, 1.0),
    "as a search is led": Steering(),
}


class Estimate(TypedDict):
    """How far an estimate is from the exact posterior, as means over questions."""

    divergence: float  # of docids, in nats
    by_length: list[float]  # the same, by how many symbols stand before
    variation: float  # total variation of docids
    same_best: float  # how often the heaviest child is the same, weighted by how likely a prefix is


class PosteriorValues(TypedDict):
    """The values of this analysis."""

    data: str
    split: str
    fingerprint: str
    questions: int
    docids: int
    prefixes: int
    entropy: float  # of the exact posterior over docids, in nats
    estimates: dict[str, Estimate]


def posterior(retriever: Retriever, dataset: Dataset, split: str, *, most: int = 100) -> Finding:
    """The estimates on the first `most` questions of a split."""
    engine = retriever.engine
    if not isinstance(engine, NodeEngine):
        problem = f"the nodes of {an(retriever.kind)} retriever have no rows, so nothing estimates what prefixes weigh"
        raise UsageError(problem, "make one with: triever fit generative --set decoder.rows=nodes")
    if not len(engine.rows):
        raise UsageError("the model holds no documents", "add some, or name another model")
    asked = questions(dataset, split)[0][:most]
    nodes = NodesOfQuestions.of(engine, [query.text for query in asked])
    compared, entropies = [], []
    for at in track(range(len(asked)), "weighing", unit="questions"):
        exact = nodes.exact(at)
        compared.append(nodes.compared(exact, at))
        entropies.append(_entropy(exact))
    estimates = {name: _mean([each[name] for each in compared]) for name in ESTIMATES}
    values: PosteriorValues = {
        "data": dataset.name,
        "split": split,
        "fingerprint": dataset.fingerprint[:16],
        "questions": len(asked),
        "docids": len(engine.rows),
        "prefixes": int((~nodes.arrays.leaf).sum()),
        "entropy": float(np.mean(entropies)),
        "estimates": estimates,
    }
    return Finding(values, [_part(values)], [_bars(values)])


@dataclass(frozen=True)
class NodesOfQuestions:
    """The vectors of questions, and what the weights of nodes are computed from."""

    arrays: Arrays
    vectors: torch.Tensor  # (questions, d)
    rows: torch.Tensor  # (entries, d)
    log_mass: torch.Tensor  # (entries,)
    scale: float

    @classmethod
    def of(cls, engine: NodeEngine, texts: Sequence[str]) -> NodesOfQuestions:
        """From what searches; deleted docids are left out."""
        arrays = engine.trie.compact().parts[0]
        at = engine.rows.places_of(np.asarray(arrays.document, np.int64))
        rows = torch.from_numpy(engine.rows.row[at].astype(np.float32))
        mass = torch.from_numpy(np.asarray(engine.rows.mass[at], np.float32))
        return cls(arrays, engine.vectors(texts).float().cpu(), rows, mass.log(), engine.scale)

    def exact(self, question: int) -> TriePosterior:
        """The exact posterior for a question."""
        weights = (self.scale * (self.rows @ self.vectors[question]) + self.log_mass).double().numpy()
        scores = np.full(int(self.arrays.document.max()) + 1, -np.inf)
        scores[self.arrays.document] = weights
        return TriePosterior.of_arrays(self.arrays, scores)

    def compared(self, exact: TriePosterior, question: int) -> dict[str, Estimate]:
        """How far each estimate is from the exact posterior of a question."""
        return {name: self._apart(exact, question, steering) for name, steering in ESTIMATES.items()}

    @cached_property
    def _summaries(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        sums = NodeSums.of(self.arrays, self.rows, self.log_mass.exp(), None)
        return sums.summaries(torch.arange(self.arrays.nodes))

    def _apart(self, exact: TriePosterior, question: int, steering: Steering) -> Estimate:
        mean, spread, count, mass = self._summaries
        weights = node_weights(mean @ self.vectors[question], spread, count, mass, self.scale, steering)
        if steering == ESTIMATES[COUNTED]:
            weights = mass.log()  # also for docids, whose own rows would count else
        elif self.arrays.leaf.any():
            weights = np.where(
                self.arrays.leaf, exact.log_weight, weights.double().numpy()
            )  # docids weigh what they do
        given = sibling_shares(self.arrays, np.asarray(weights))
        reach, apart = np.exp(exact.log_reach), exact.divergences(given)
        depths = np.searchsorted(self.arrays.levels, np.arange(self.arrays.nodes), side="right") - 1
        docids = np.exp(exact.documents()), np.exp(exact.documents(given))
        return {
            "divergence": float(reach @ apart),
            "by_length": np.bincount(depths, reach * apart)[: max(1, len(self.arrays.levels) - 2)].tolist(),
            "variation": float(np.abs(docids[0] - docids[1]).sum() / 2),
            "same_best": _same_best(self.arrays, exact.log_weight, given, reach),
        }


def _entropy(exact: TriePosterior) -> float:
    """The entropy of the exact posterior over docids, in nats."""
    logs = exact.documents()
    return float(-np.sum(np.exp(logs) * np.where(logs > -np.inf, logs, 0.0)))


def _same_best(arrays: Arrays, exact: np.ndarray, given: np.ndarray, reach: np.ndarray) -> float:
    """How often both find the same child of a prefix the heaviest, by how likely prefixes with several children are."""
    inner = np.flatnonzero(np.diff(arrays.child) > 1)
    if not len(inner):
        return 1.0
    same = [
        exact[low:high].argmax() == given[low:high].argmax()
        for low, high in zip(arrays.child[inner].tolist(), arrays.child[inner + 1].tolist(), strict=True)
    ]
    return float(np.average(same, weights=reach[inner]))


def _mean(each: Sequence[Estimate]) -> Estimate:
    return {
        "divergence": float(np.mean([one["divergence"] for one in each])),
        "by_length": np.mean([one["by_length"] for one in each], 0).tolist(),
        "variation": float(np.mean([one["variation"] for one in each])),
        "same_best": float(np.mean([one["same_best"] for one in each])),
    }


def _part(values: PosteriorValues) -> Part:
    rows = []
    for name, estimate in values["estimates"].items():
        lengths = {f"behind {length}": f"{value:.3f}" for length, value in enumerate(estimate["by_length"])}
        shown = {"estimate": name, "divergence": f"{estimate['divergence']:.3f}", **lengths}
        same = {"variation": f"{estimate['variation']:.3f}", "same best symbol": f"{estimate['same_best']:.3f}"}
        rows.append(shown | same)
    lines = [
        "divergence: KL(exact || estimate) of docids in nats, the sum of what is added behind 0, 1, 2, ... symbols",
        f"the exact posterior has an entropy of {values['entropy']:.3f} nats",
    ]
    title = (
        f"estimates of what {values['prefixes']:,} prefixes of {values['docids']:,} docids weigh, against exact sums, "
        f"{values['questions']:,} questions"
    )
    return Part(title, rows, lines)


def _bars(values: PosteriorValues) -> Bars:
    labels = [*values["estimates"]]
    series = {"divergence in nats": [estimate["divergence"] for estimate in values["estimates"].values()]}
    return Bars("KL(exact || estimate) of docids", labels, series)
