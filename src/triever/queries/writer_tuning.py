"""Tunes a causal language model to write questions about documents.

An example is the prompt of a document, a question, and the token that ends it. The model learns the question and its
end, not the prompt. A sampler that uses the model must stop at the same token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from triever.config import option
from triever.errors import UsageError
from triever.models.precision import computing_fast
from triever.models.tokens import TextTokenizer, Tokens
from triever.training.continuations import continuation_batch, log_likelihoods, mean_loss, spaced
from triever.training.epochs import epoch_batches
from triever.training.loop import LIKELIHOOD, Trained, train
from triever.training.pairs import Pairs, held_out
from triever.training.tuning import QueryTuning, TuningBatches

WATCH = f"log-{LIKELIHOOD}"
"""The measure that chooses the best round: a mean over held-out questions."""
JUDGED = 1000
"""The most held-out questions that an evaluation reads."""


@dataclass(frozen=True)
class WriterTuning(QueryTuning):
    """How a language model learns to write questions: `WriterTuning(steps=450, batch=48)`."""

    steps: int = option(0, "optimizer steps; 0 only prompts the backbone, without tuning")
    batch: int = option(32, "questions in a batch, each after its document")
    rounds: int = option(3, "number of rounds that the steps are split into; each ends with an evaluation")
    learning_rate: float = option(1e-4, "the highest learning rate, reached after the warmup")


@dataclass(frozen=True)
class Examples:
    """Questions, and the prompts of the documents that answer them."""

    pairs: Pairs  # their rows are the rows of the prompts
    questions: Tokens  # each with the token that ends it
    prompts: Tokens
    pad: int

    def __len__(self) -> int:
        return len(self.pairs)

    def batch(self, questions: np.ndarray, documents: np.ndarray) -> dict[str, Tensor]:
        """Documents followed by their questions, padded on the left; the last `length` tokens are the question's."""
        prompts = [self.prompts[document] for document in documents]
        return continuation_batch(prompts, [self.questions[question] for question in questions], self.pad)


@dataclass(frozen=True)
class QuestionBatches(TuningBatches):
    """A round of batches of prompts, each with a question."""

    examples: Examples

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        chance = self.chance(step)
        questions = self._order[step]
        documents = np.array([chance.choice(self.examples.pairs.of(question)) for question in questions])
        return self.examples.batch(questions, documents)

    @cached_property
    def _order(self) -> np.ndarray:
        """(steps, batch) the questions of all batches."""
        size = min(self.options.batch, len(self.examples))
        return epoch_batches(len(self.examples), size, self.steps, self.round, self.options.seed)


def tune(
    model: nn.Module,
    pairs: Pairs,
    prompts: Tokens,
    questions: TextTokenizer,
    longest: int,
    options: WriterTuning,
    folder: Path | None = None,
) -> Trained:
    """Train a model in place on the questions of pairs, whose rows are the rows of the prompts."""
    learned, judged = (
        Examples(part, Tokens.of(map(spaced, part.texts), questions, longest), prompts, questions.pad)
        for part in held_out(pairs, options.holdout)
    )
    if not len(learned):
        raise UsageError("all training queries are held out", "lower training.holdout")
    steps = options.batches
    return train(
        model,
        _loss,
        lambda number: QuestionBatches(options, steps, number, learned),
        options,
        evaluate=(lambda now: {WATCH: likelihood(now, judged, options.batch)}) if len(judged) else None,
        watch=WATCH if len(judged) else "",
        folder=folder,
        label="tuning the writer",
    )


def _loss(model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {"question": mean_loss(model, batch)}


def likelihood(model: nn.Module, examples: Examples, batch: int) -> float:
    """The mean log-likelihood of the first `JUDGED` questions, each after its first document."""
    device = next(model.parameters()).device
    likelihoods = []
    for rows in np.split(np.arange(min(JUDGED, len(examples))), range(batch, min(JUDGED, len(examples)), batch)):
        documents = np.array([examples.pairs.of(row)[0] for row in rows])
        ready = {name: tensor.to(device) for name, tensor in examples.batch(rows, documents).items()}
        with computing_fast(device):
            likelihoods.append(log_likelihoods(model, ready).cpu())
    return float(torch.cat(likelihoods).mean())
