"""RAG: a reader that learns from each document alone, and dense retrieval that may learn to read queries with it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from triever.engines.encoded import DenseEngine
from triever.learning.answer_tasks import AskedAnswers
from triever.learning.answering import Close, ReadingBatches, ReadingCourse
from triever.models.encoder import Encoder
from triever.models.tokens import Tokens
from triever.training.loop import Loss
from triever.training.optimizers import RateShare
from triever.training.rag_loss import RagLoss, RagModel


@dataclass(frozen=True)
class MarginalBatches(ReadingBatches):
    """The same with what weighs documents: how dense retrieval reads questions, and the vectors of documents."""

    dense: DenseEngine
    asked_tokens: Tokens

    def batch(self, numbers: np.ndarray, answers: Sequence[str]) -> dict[str, Tensor]:
        """The questions with these numbers, and answers to them."""
        ids, mask = self.asked_tokens.padded(numbers, self.dense.encoder.tokenizer.pad)
        close = self.close[numbers]
        vectors = np.asarray(self.dense.index.take(np.maximum(close, 0).ravel()), np.float32)
        shown = torch.from_numpy(vectors).unflatten(0, close.shape)
        return {**super().batch(numbers, answers), "asked_ids": ids, "asked_mask": mask, "vectors": shown}


@dataclass(frozen=True)
class MarginalCourse(ReadingCourse):
    """A training of a reader and of `asking`, a copy of the encoder by which dense retrieval reads queries."""

    dense: DenseEngine | None = None
    both: RagModel | None = None
    temperature: float = 1.0

    @classmethod
    def of(cls, course: ReadingCourse, dense: DenseEngine, temperature: float) -> Self:
        """The same course, with documents that dense retrieval weighs."""
        given = {each.name: getattr(course, each.name) for each in fields(course)}
        both = RagModel(course.reader.texts.model, copy.deepcopy(dense.query_encoder))
        return cls(**given, dense=dense, both=both, temperature=temperature)

    @property
    def model(self) -> nn.Module:
        """What answers, and what reads queries."""
        assert self.both is not None
        return self.both

    @property
    def asking(self) -> Encoder:
        """What reads queries."""
        assert self.both is not None
        return self.both.asking

    @property
    def judging(self) -> Loss:
        """Answers over all documents, each by itself."""
        return RagLoss(self.temperature)

    def share(self, query_rate: float) -> RateShare:
        """What reads queries learns at this share of the learning rate, or with 0 not at all."""
        self.asking.requires_grad_(query_rate > 0)
        return lambda name: query_rate if name.startswith("asking.") else 1.0

    def batches(
        self, asked: AskedAnswers, close: Close, number: int, which: np.ndarray | None = None
    ) -> MarginalBatches:
        """A round of batches about documents that `close` finds, for those questions that the round asks."""
        assert self.dense is not None
        plain = super().batches(asked, close, number, which)
        given = {each.name: getattr(plain, each.name) for each in fields(plain)}
        return MarginalBatches(
            **given, dense=self.dense, asked_tokens=self.dense.reading.queries(self.dense.query_encoder, asked.texts)
        )
