"""Losses of batches that are larger than memory: some rows at a time, with the gradients of the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Batch = Mapping[str, Tensor]


def mean_in_pieces(model: nn.Module, batch: Batch, at_once: int, mean: Callable[[Batch], Tensor]) -> Tensor:
    """The mean loss of a batch whose rows do not depend on each other, read so many at a time; 0 is all of them."""
    if not at_once or not torch.is_grad_enabled():
        return mean(batch)
    first = next(iter(batch.values()))
    gradients, total = Gradients(model), torch.zeros((), device=first.device)
    for piece in torch.arange(len(first), device=first.device).split(at_once):
        share = mean({name: part[piece] for name, part in batch.items()}) * len(piece) / len(first)
        gradients.add(share)
        total = total + share.detach()
    return gradients.behind(total)


class Gradients:
    """The gradients of a model's parameters, added up piece by piece."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.total: list[Tensor | None] = [None] * len(self.parameters)

    def add(self, value: Tensor, leaves: Sequence[Tensor] = (), gradient: Tensor | None = None) -> list[Tensor]:
        """Add what a value gives; returned is what it gives to the leaves. `gradient` is that of the value, if not 1.

        Its graph is gone afterwards.
        """
        given = torch.autograd.grad(value, [*self.parameters, *leaves], gradient, allow_unused=True)
        count = len(self.parameters)
        for number, part in enumerate(given[:count]):
            if part is not None:
                total = self.total[number]
                self.total[number] = part if total is None else total.add_(part)
        of_leaves = zip(leaves, given[count:], strict=True)
        return [torch.zeros_like(leaf) if part is None else part for leaf, part in of_leaves]

    def behind(self, value: Tensor) -> Tensor:
        """The value, with these gradients behind it: `backward` gives them to the parameters."""
        return _Known.apply(value, self.total, *self.parameters)


class _Known(torch.autograd.Function):
    """A value whose gradients were computed before."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor | None], *_parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outside: Tensor) -> tuple[Tensor | None, ...]:
        given = (None if gradient is None else gradient * outside[0] for gradient in ctx.gradients)
        return None, None, *given
