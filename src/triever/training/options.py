"""The options of a training. Imports no torch, so that reading a recipe or showing help stays fast."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from triever import config
from triever.config import option
from triever.errors import UsageError

FREE = frozenset({"checkpoint_every", "checkpoint_minutes", "log_every", "tensorboard", "workers"})
"""Options that change how a training runs but not its result, so that a resumed training may change them."""


@dataclass(frozen=True)
class TrainOptions:
    """How to train, whatever the model: `TrainOptions(steps=4000, learning_rate=1e-3)`."""

    steps: int = option(1000, "optimizer steps in all; 0 leaves the model as it is")
    learning_rate: float = option(5e-4, "the highest learning rate, reached after the warmup")
    optimizer: Literal["adamw", "adafactor"] = option("adamw", "adamw, or adafactor, which needs less memory")
    weight_decay: float = option(0.01, "weight decay of matrices; vectors such as biases have none")
    warmup: float = option(0.05, "share of the steps during which the learning rate rises from zero")
    decay: Literal["linear", "cosine", "none"] = option("linear", "how the learning rate falls: linear, cosine or none")
    clip: float = option(1.0, "largest gradient norm; longer gradients are scaled down to it; 0 clips none")
    accumulate: int = option(1, "micro batches of one optimizer step")
    precision: Literal["auto", "float32", "bfloat16"] = option(
        "auto",
        "number type of the forward pass; weights stay float32; auto is bfloat16 on CUDA and float32 elsewhere",
    )
    compile: bool = option(False, "let torch compile the layers: a slower start and faster steps, on a GPU")
    seed: int = option(0, "seed of everything that is random in the training")
    evaluate_every: int = option(1, "rounds between two evaluations; 0 evaluates only at the end")
    patience: int = option(0, "stop after so many evaluations without a new best; 0 never stops")
    keep: Literal["best", "last"] = option(
        "best",
        "the weights to end with: those of the best evaluation, the one before the first step included, or the last",
    )
    checkpoint_every: int = option(1000, "steps between two checkpoints; 0 ignores steps")
    checkpoint_minutes: float = option(5.0, "the most minutes between two checkpoints; 0 ignores minutes")
    log_every: int = option(50, "steps between two lines of metrics")
    tensorboard: bool = option(False, "also write the metrics for TensorBoard")
    workers: int = option(0, "processes that prepare batches; 0 uses one thread")

    def __post_init__(self) -> None:
        config.validate(self)
        for name in ("accumulate", "log_every"):
            self._at_least(name, 1)
        for name in (
            "steps",
            "weight_decay",
            "clip",
            "seed",
            "evaluate_every",
            "patience",
            "checkpoint_every",
            "checkpoint_minutes",
            "workers",
        ):
            self._at_least(name, 0)
        if self.learning_rate <= 0:
            raise UsageError(
                f"learning_rate = {self.learning_rate} should be above 0", "the usual range is 1e-5 to 1e-2"
            )
        if not 0 <= self.warmup <= 1:
            raise UsageError(f"warmup = {self.warmup} should be between 0 and 1", "it is a share of the steps")

    def _at_least(self, name: str, minimum: int) -> None:
        value = getattr(self, name)
        if value < minimum:
            raise UsageError(f"{name} = {value} should be at least {minimum}", "correct the value")


def rate(options: TrainOptions, step: int) -> float:
    """The learning rate of a step, counted from 0. It follows from the options, so no schedule has to be saved.

    It is never zero, because such a step would be wasted.

    >>> options = TrainOptions(steps=8, learning_rate=1.0, warmup=0.25)
    >>> [round(rate(options, step), 2) for step in range(8)]
    [0.5, 1.0, 1.0, 0.83, 0.67, 0.5, 0.33, 0.17]
    """
    warm = round(options.warmup * options.steps)
    if step < warm:
        return options.learning_rate * (step + 1) / warm
    passed = (step - warm) / max(1, options.steps - warm)
    if options.decay == "none":
        return options.learning_rate
    left = 1 - passed if options.decay == "linear" else (1 + math.cos(math.pi * passed)) / 2
    return options.learning_rate * left
