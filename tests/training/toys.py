"""A small model, its data and its losses, for the tests of the loop and for the processes they start."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from triever.models.late_interaction import late_scores
from triever.training.loop import TrainOptions, first_row, gathered, train
from triever.training.processes import processes

WIDTH = 6


class Toy(nn.Module):
    """Two layers with dropout, and a buffer that a round may rebuild."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 16)
        self.second = nn.Linear(16, WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("shift", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.dropout(torch.tanh(self.first(x + self.shift))))


def toy(dropout: float = 0.0, seed: int = 0) -> Toy:
    """A model that is the same for the same seed; the global generator is left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Toy(dropout)


class Pairs:
    """Random pairs, the same for the same round, seed and step."""

    def __init__(self, number: int, length: int = 5, rows: int = 8, seed: int = 0) -> None:
        self.round, self.length, self.rows, self.seed = number, length, rows, seed

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, step: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(1_000_000 * self.seed + 1000 * self.round + step)
        x = torch.randn(self.rows, WIDTH, generator=generator)
        return {"x": x, "more": [(x.flip(1),)]}


def square(model: nn.Module, batch: dict[str, Any]) -> dict[str, Tensor]:
    """A mean over rows."""
    return {"square": (model(batch["x"]) - batch["more"][0][0]).square().mean()}


def contrast(model: nn.Module, batch: dict[str, Any]) -> dict[str, Tensor]:
    """In-batch contrastive: the n-th query's document is the n-th, and all others of the batch are wrong."""
    queries, documents = (
        model(batch["x"]).view(-1, 2, WIDTH // 2),
        gathered(model(batch["more"][0][0]).view(-1, 2, WIDTH // 2)),
    )
    labels = torch.arange(len(queries)) + first_row(len(queries))
    # Late interaction: its gradients do not lie in memory row after row, which collectives must bear.
    scores = late_scores(queries, torch.ones(len(queries), 2), documents, torch.ones(len(documents), 2))
    right = (scores.argmax(1) == labels).float().mean()
    return {"contrast": nn.functional.cross_entropy(scores, labels), "_accuracy": right}


def mined(model: Toy) -> Callable[[int], Pairs]:
    """Rounds that look at every bit of the model, and change it as well."""

    def rounds(number: int) -> Pairs:
        total = sum(parameter.double().abs().sum() for parameter in model.parameters())
        model.shift.fill_(float(total) / 1000).add_(torch.rand(WIDTH) / 100)
        return Pairs(number, seed=int(float(total) * 1e9) % 10_000)

    return rounds


def worth(model: nn.Module) -> dict[str, float]:
    """A measure that goes up and down."""
    first = next(model.parameters())
    return {"worth": float(torch.sin(first.sum() * 300))}


LONG = TrainOptions(steps=48, learning_rate=0.01, checkpoint_every=3, log_every=4, patience=0)


def long_training(folder: str, optimizer: str = "adamw", keep: str = "last", begun: str = "") -> Toy:
    """The training that is killed and resumed; when it begins, it makes the file `begun`."""
    model = toy(dropout=0.2)
    options = dataclasses.replace(LONG, optimizer=optimizer, keep=keep)
    if begun:
        Path(begun).touch()
    train(model, square, mined(model), options, evaluate=worth, folder=Path(folder))
    return model


def shared_training(folder: Path) -> dict[str, Any]:
    """The training that one process or several do; the weights it ends with are also written to the folder."""
    options = TrainOptions(steps=8, learning_rate=0.01, accumulate=2, log_every=1, checkpoint_every=3)

    def trained() -> Toy:
        model = toy()
        model.register_parameter("unused", nn.Parameter(torch.ones(2)))
        train(model, contrast, lambda n: Pairs(n, 8, 16), options, evaluate=worth, folder=folder / "folder")
        return model

    model = trained()
    again = trained()  # it is finished already: the weights come from the folder
    assert all(torch.equal(part, other) for part, other in zip(model.parameters(), again.parameters(), strict=True))
    weights = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    (folder / f"weights-{first_row(1)}-of-{processes()}.json").write_text(json.dumps(weights))
    return weights


if __name__ == "__main__":
    shared_training(Path(sys.argv[1]))
