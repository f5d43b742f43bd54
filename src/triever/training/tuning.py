"""Training a retriever's model on pairs: batches, rounds with mined negatives, held-out queries, blending.

The caller says how a model scores and how it searches; the rest is the same for all models.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from triever.config import option
from triever.errors import UsageError
from triever.models.tokens import Tokens
from triever.ranks import reciprocal_rank
from triever.training.epochs import chance_of
from triever.training.loop import Trained, TrainOptions, train
from triever.training.losses import contrastive, divergence
from triever.training.opinions import Teaching
from triever.training.pairs import Negatives, PairBatches, Pairs, hard_negatives, held_out, text_numbers

Scores = Callable[[nn.Module, Mapping[str, Tensor]], Tensor]
"""From a model and a batch to scores (queries, documents)."""
Rank = Callable[[Tokens, Tokens, int], np.ndarray]
"""From queries, documents and k to the rows (queries, k) of the k best documents, by the model as it is now."""
Mine = Callable[[list[str], int], list[list[int]]]
"""From query texts and a depth to rows of documents, by another retriever."""
Teach = Callable[[Pairs], Teaching | None]
"""From the queries that are trained on to what a teacher thinks of them."""

READER = 0.2
"""The share of the learning rate for a pretrained reader, where no other is given."""
AS_KEPT = "exact match of held-out questions"
"""The fact of a card that is about the model as it is kept, and not about the best evaluation."""
WATCH = "RR@10"
"""The measure on held-out queries that chooses the best step."""


@dataclass(frozen=True)
class QueryTuning(TrainOptions):
    """How any model is trained on the queries of a dataset."""

    steps: int = option(0, "optimizer steps; 0 leaves the backbone as it comes")
    split: str = option("train", "the split to train on; several are joined by +: train.nq+train.trivia")
    batch: int = option(64, "queries in a batch, each with its document")
    rounds: int = option(1, "number of rounds that the steps are split into; each ends with an evaluation")
    holdout: float = option(0.05, "the share of queries that are held out of training, to choose the best round")

    @property
    def batches(self) -> int:
        """The number of batches in a round."""
        return -(-self.steps * self.accumulate // self.rounds)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least("batch", 1)
        self._at_least("rounds", 1)
        if not 0 <= self.holdout < 1:
            raise UsageError(
                f"holdout = {self.holdout} should be from 0 to below 1", "it is the share of queries that are held out"
            )


@dataclass(frozen=True)
class TuningBatches:
    """What rounds of batches have in common: a batch is made when it is asked for, from its number alone."""

    options: QueryTuning
    steps: int
    round: int

    def __len__(self) -> int:
        return self.steps

    def chance(self, step: int) -> np.random.Generator:
        """The random generator of a batch; an IndexError if there is no such step."""
        return chance_of(step, self.steps, self.options.seed, self.round)


@dataclass(frozen=True)
class TaughtTuning(QueryTuning):
    """How a model is trained that may follow a teacher."""

    teacher_weight: float = option(
        3.0, "how much the order of a teacher counts beside the right documents; 0 leaves the teacher out"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least("teacher_weight", 0)


@dataclass(frozen=True)
class Tuning(TaughtTuning):
    """How an encoder is trained on the queries of a dataset: `Tuning(steps=700, batch=256)`."""

    learning_rate: float = option(2e-5, "the highest learning rate, reached after the warmup")
    temperature: float = option(0.05, "divides the scores; a lower one puts more weight on the nearest wrong documents")
    pool: int = option(10_000, "documents that held-out queries search: their relevant ones and random others")
    blend: float = option(0.0, "the share of the backbone's weights in the final weights, to keep more of what it knew")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least("pool", 1)
        if self.temperature <= 0 or not 0 <= self.blend <= 1:
            problem = f"a value is out of range: temperature = {self.temperature}, blend = {self.blend}"
            raise UsageError(problem, "set temperature above 0, and blend from 0 to 1")


@dataclass(frozen=True)
class RerankTuning(QueryTuning):
    """How a cross-encoder is trained on the queries of a dataset: `RerankTuning(steps=1500, batch=32)`."""

    steps: int = option(500, "optimizer steps")
    batch: int = option(16, "queries in a batch, each with its right and wrong candidates")
    learning_rate: float = option(5e-5, "the highest learning rate, reached after the warmup")


@dataclass(frozen=True)
class DocidTuning(TaughtTuning):
    """How a model is trained to write docids: `DocidTuning(steps=4000, batch=512)`."""

    steps: int = option(2000, "optimizer steps; 0 leaves the model as it begins")
    batch: int = option(64, "texts in a batch, of all views together")
    rounds: int = option(4, "number of rounds that the steps are split into; each ends with an evaluation")
    reader: float | None = option(
        None,
        "share of the learning rate for the part that reads, if pretrained; 0 leaves it as it is; not set: 0 with rows "
        "of nodes and questions alone, else 0.2",
    )
    add_steps: int = option(0, "steps for added documents; half of each batch is about old documents")
    normalisation: Literal["vocabulary", "trie"] = option(
        "vocabulary", "what the probabilities of the loss are over: all symbols, or those that may follow in the trie"
    )
    rows: Literal["auto", "learned", "fixed"] = option(
        "auto", "whether rows of nodes learn; auto: where people asked about nine in ten documents, since others suffer"
    )
    order: float = option(
        0.0, "with rows of nodes: how much a margin over confused documents counts, at every length of their docids"
    )
    encoder_steps: int = option(
        400, "steps of dense retrieval before rows of nodes are made, if vectors names no retriever; 0 leaves them out"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least("add_steps", 0)
        self._at_least("encoder_steps", 0)
        self._at_least("order", 0)
        if self.reader is not None and not 0 <= self.reader <= 1:
            raise UsageError(f"reader = {self.reader} should be from 0 to 1", "it is a share of the learning rate")

    @property
    def reader_share(self) -> float:
        """The share of the learning rate for the part that reads, where there is something beside it that learns."""
        return READER if self.reader is None else self.reader


@dataclass
class PairTraining:
    """One training of an encoder on pairs."""

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
    teach: Teach | None = None
    teaching: Teaching | None = field(init=False, default=None)
    """What the teacher thinks, once it has been asked."""
    _train: tuple[Pairs, Tokens] = field(init=False)
    _held: tuple[Pairs, Tokens] = field(init=False)

    def __post_init__(self) -> None:
        train_on, held = held_out(self.pairs, self.options.holdout)
        if not len(train_on):
            raise UsageError("all training queries are held out", "lower training.holdout")
        self.negatives.check(len(self.documents))
        self._train, self._held = ((pairs, self.queries(pairs.texts)) for pairs in (train_on, held))

    @property
    def query_tokens(self) -> Tokens:
        """The tokens of the queries that are trained on."""
        return self._train[1]

    def run(self) -> Trained:
        """Train the model. It ends with its best weights, blended with the old ones if the options say so."""
        # Before the loop, in which nothing else can learn: the teacher may have to be trained itself.
        self.teaching = self.teach(self._train[0]) if self.teach else None
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
        losses = {"contrastive": contrastive(scores, batch["positive"], batch["excluded"])}
        if "taught" in batch:
            apart = divergence(scores.gather(1, batch["candidates"]), batch["taught"])
            losses["teacher"] = self.options.teacher_weight * apart
        return losses

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
            teaching=self.teaching,
        )

    @cached_property
    def _same(self) -> np.ndarray:
        """(documents,) the number of each document's text: a copy of a relevant document is no negative."""
        return text_numbers(self.documents)

    @cached_property
    def _mined_once(self) -> np.ndarray:
        """Hard negatives from another retriever, the same in every round."""
        pairs = self._train[0]
        return hard_negatives(self.mine(pairs.texts, self._depth), pairs, self.negatives, self._same)

    @property
    def _depth(self) -> int:
        return self.negatives.searched(len(self.documents))

    def _mined(self) -> np.ndarray:
        """Hard negatives of all training queries, from another retriever once, or from the model before each round."""
        if self.negatives.source != "model":
            return self._mined_once
        pairs, tokens = self._train
        rows = self.rank(tokens, self.documents, self._depth).tolist()
        return hard_negatives(rows, pairs, self.negatives, self._same)

    def _evaluate(self, model: nn.Module) -> dict[str, float]:
        """The quality of a search for the held-out queries in a pool that has all their relevant documents."""
        pairs, tokens = self._held
        pool = self._pool()
        pool_rows = np.full(len(self.documents), -1)
        pool_rows[pool] = np.arange(len(pool))
        hits = self.rank(tokens, self.documents.take(pool), min(10, len(pool)))
        ranks = [reciprocal_rank(np.isin(rows, pool_rows[pairs.of(query)])) for query, rows in enumerate(hits)]
        return quality(ranks, seen=pairs.about(self._train[0].relevant))

    def _pool(self) -> np.ndarray:
        """The rows of all relevant documents of held-out queries, and of random other documents."""
        relevant = np.unique(self._held[0].relevant)
        irrelevant = np.setdiff1d(np.arange(len(self.documents)), relevant)
        chance = np.random.default_rng(self.options.seed)
        sample = chance.permutation(irrelevant)[: max(0, self.options.pool - len(relevant))]
        return np.sort(np.concatenate([relevant, sample]))


def quality(reciprocal: Sequence[float] | np.ndarray, seen: np.ndarray) -> dict[str, float]:
    """The measures of held-out queries, from the reciprocal ranks of their documents; 0 where it was not found.

    `seen` (queries,) says whether a training query is about one of a query's documents. What is learned for some
    documents may be paid by the others, so both groups have a measure of their own, where they have queries.
    """
    ranks = np.asarray(reciprocal)
    groups = {"seen": ranks[seen], "unseen": ranks[~seen]}
    by_group = {f"{WATCH} {name}": float(np.mean(group)) for name, group in groups.items() if len(group)}
    return {WATCH: float(np.mean(ranks)), "Success@1": float(np.mean(ranks == 1)), **by_group}


def is_about_training(fact: str) -> bool:
    """Whether a fact of a card says how a training, or a stage of one, went."""
    own = fact.rpartition(": ")[2]
    return own in ("trained steps", "best step", "seconds of training", AS_KEPT) or own.startswith("held-out ")


def summary(trained: Trained) -> dict[str, float]:
    """How a training went, as a few numbers for a card."""
    best = {f"held-out {name}": round(value, 4) for name, value in trained.best.items()}
    chosen = {"best step": trained.best_step} if trained.best_step is not None else {}
    start = {f"held-out {name} before": round(value, 4) for name, value in trained.start.items()}
    return {"trained steps": trained.steps, **chosen, **best, **start, "seconds of training": round(trained.seconds, 1)}


@torch.no_grad()
def blend(model: nn.Module, before: Mapping[str, Tensor], share: float) -> None:
    """Move every weight by this share of the way back to its value before training."""
    after = model.state_dict()
    mixed = {
        name: before[name].to(value.device).lerp(value, 1 - share) if value.is_floating_point() else value
        for name, value in after.items()
    }
    model.load_state_dict(mixed)
