"""Training a retriever's model on pairs: batches, rounds with mined negatives, held-out queries, blending.

What a model's scores are and how it searches is handed in; the rest is the same for all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from triever.config import option
from triever.errors import UsageError
from triever.models.tokens import Tokens
from triever.ranks import reciprocal_rank
from triever.training.loop import Trained, TrainOptions, train
from triever.training.losses import contrastive
from triever.training.pairs import Negatives, PairBatches, Pairs, hard_negatives, held_out, text_numbers

Scores = Callable[[nn.Module, Mapping[str, Tensor]], Tensor]
"""A model and a batch to scores (queries, documents)."""
Rank = Callable[[Tokens, Tokens, int], np.ndarray]
"""Queries, documents and k to the rows of the k best documents (queries, k), with the model as it is."""
Mine = Callable[[list[str], int], list[list[int]]]
"""Texts and a depth to rows of documents, by another retriever."""

WATCH = "RR@10"
"""What chooses the best step, on held-out queries."""


@dataclass(frozen=True)
class QueryTuning(TrainOptions):
    """How a model is trained on the queries of a dataset, whatever it makes of them."""

    steps: int = option(0, "optimizer steps; 0 leaves the backbone as it comes")
    split: str = option("train", "the split whose queries are learned; several with + between: train.nq+train.trivia")
    batch: int = option(64, "queries in a batch, each with its document")
    rounds: int = option(1, "the steps come in so many rounds; after each, held-out queries are asked")
    holdout: float = option(0.05, "the share of queries that is not trained on, and chooses the best round")

    @property
    def batches(self) -> int:
        """How many batches a round has."""
        return -(-self.steps * self.accumulate // self.rounds)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least("batch", 1)
        self._at_least("rounds", 1)
        if not 0 <= self.holdout < 1:
            raise UsageError(f"holdout = {self.holdout} should be from 0 to below 1", "it is a share of the queries")


@dataclass(frozen=True)
class Tuning(QueryTuning):
    """How an encoder is trained on the queries of a dataset: `Tuning(steps=700, batch=256)`."""

    learning_rate: float = option(2e-5, "the highest learning rate, reached after the warmup")
    temperature: float = option(0.05, "what scores are divided by; lower looks harder at the nearest wrong documents")
    pool: int = option(10_000, "documents among which held-out queries are asked for theirs")
    blend: float = option(0.0, "the share of the backbone's own weights in the end: it keeps more of what it knew")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least("pool", 1)
        if self.temperature <= 0 or not 0 <= self.blend <= 1:
            problem = f"temperature = {self.temperature}, blend = {self.blend}"
            raise UsageError(problem, "temperature is above 0, blend is a share")


@dataclass(frozen=True)
class RerankTuning(QueryTuning):
    """How a cross-encoder is trained on the queries of a dataset: `RerankTuning(steps=1500, batch=32)`."""

    steps: int = option(500, "optimizer steps")
    batch: int = option(16, "queries in a batch, each with its right and wrong candidates")
    learning_rate: float = option(5e-5, "the highest learning rate, reached after the warmup")


@dataclass(frozen=True)
class DocidTuning(QueryTuning):
    """How a model is trained to write docids: `DocidTuning(steps=4000, batch=512)`."""

    steps: int = option(2000, "optimizer steps; 0 leaves it as it begins")
    batch: int = option(64, "texts in a batch, of all views together")
    rounds: int = option(4, "the steps come in so many rounds; after each, held-out queries are asked")
    reader: float = option(0.2, "the share of the learning rate for what reads, unless it begins anew; 0 leaves it")
    add_steps: int = option(0, "steps about documents that are added, half of each batch being about old ones")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least("add_steps", 0)
        if not 0 <= self.reader <= 1:
            raise UsageError(f"reader = {self.reader} should be from 0 to 1", "it is a share of the learning rate")


@dataclass
class PairTraining:
    """One training: what it is given, and what it makes of it."""

    model: nn.Module
    scores: Scores
    rank: Rank
    mine: Mine
    queries: Callable[[list[str]], Tokens]
    documents: Tokens
    pairs: Pairs
    options: Tuning
    negatives: Negatives
    pad: int = 0
    folder: Path | None = None
    device: str = "auto"
    _train: tuple[Pairs, Tokens] = field(init=False)
    _held: tuple[Pairs, Tokens] = field(init=False)

    def __post_init__(self) -> None:
        train_on, held = held_out(self.pairs, self.options.holdout)
        if not len(train_on):
            raise UsageError("all training queries are held out", "lower training.holdout")
        self._train, self._held = ((some, self.queries(some.texts)) for some in (train_on, held))

    @property
    def query_tokens(self) -> Tokens:
        """Of the queries that are trained on."""
        return self._train[1]

    def run(self) -> Trained:
        """Train; the model is left with its best weights, blended where that is asked for."""
        before = copy.deepcopy(self.model.state_dict()) if self.options.blend else None
        judged = len(self._held[0]) > 0
        trained = train(
            self.model,
            self._loss,
            self._round,
            self.options,
            evaluate=self._evaluate if judged else None,
            watch=WATCH if judged else "",
            folder=self.folder,
            device=self.device,
        )
        if before is not None:
            blend(self.model, before, self.options.blend)
        return trained

    def _loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        scores = self.scores(model, batch) / self.options.temperature
        return {"contrastive": contrastive(scores, batch["positive"], batch["excluded"])}

    def _round(self, number: int) -> PairBatches:
        pairs, tokens = self._train
        mined = self._mined() if self.negatives.mined else None
        return PairBatches(
            pairs,
            tokens,
            self.documents,
            mined,
            self.negatives,
            batch=self.options.batch,
            steps=self.options.batches,
            seed=self.options.seed,
            round=number,
            pad=self.pad,
            same=self._same,
        )

    @cached_property
    def _same(self) -> np.ndarray:
        """(documents,) the numbers of their texts: a copy of a relevant document is no negative."""
        return text_numbers(self.documents)

    @cached_property
    def _found(self) -> np.ndarray:
        """Hard negatives by another retriever, which does not change from round to round."""
        pairs = self._train[0]
        return hard_negatives(self.mine(pairs.texts, self._depth), pairs, self.negatives, self._same)

    @property
    def _depth(self) -> int:
        return self.negatives.searched(len(self.documents))

    def _mined(self) -> np.ndarray:
        """Hard negatives of all training queries, from another retriever once, or from the model before each round."""
        if self.negatives.source != "model":
            return self._found
        pairs, tokens = self._train
        rows = self.rank(tokens, self.documents, self._depth).tolist()
        return hard_negatives(rows, pairs, self.negatives, self._same)

    def _evaluate(self, model: nn.Module) -> dict[str, float]:
        """How early the held-out queries find their documents, in a pool of documents that has them all."""
        pairs, tokens = self._held
        pool = self._pool()
        place = np.full(len(self.documents), -1)
        place[pool] = np.arange(len(pool))
        found = self.rank(tokens, self.documents.take(pool), min(10, len(pool)))
        return quality([reciprocal_rank(np.isin(rows, place[pairs.of(query)])) for query, rows in enumerate(found)])

    def _pool(self) -> np.ndarray:
        needed = np.unique(self._held[0].relevant)
        others = np.setdiff1d(np.arange(len(self.documents)), needed)
        chance = np.random.default_rng(self.options.seed)
        more = chance.permutation(others)[: max(0, self.options.pool - len(needed))]
        return np.sort(np.concatenate([needed, more]))


def quality(reciprocal: Sequence[float] | np.ndarray) -> dict[str, float]:
    """What held-out queries are judged by, from the reciprocal ranks of their documents; 0 where one is not found."""
    ranks = np.asarray(reciprocal)
    return {WATCH: float(np.mean(ranks)), "Success@1": float(np.mean(ranks == 1))}


def summary(trained: Trained) -> dict[str, Any]:
    """How a training went, in a few plain values for a card."""
    best = {f"held-out {name}": round(value, 4) for name, value in trained.best.items()}
    chosen = {"best step": trained.best_step} if trained.best_step is not None else {}
    return {"trained steps": trained.steps, **chosen, **best, "seconds of training": round(trained.seconds, 1)}


@torch.no_grad()
def blend(model: nn.Module, before: Mapping[str, Any], share: float) -> None:
    """Move every weight towards what it was before training, by a share of the way."""
    after = model.state_dict()
    mixed = {
        name: before[name].to(value.device).lerp(value, 1 - share) if value.is_floating_point() else value
        for name, value in after.items()
    }
    model.load_state_dict(mixed)
