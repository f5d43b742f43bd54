"""The repeated layers of a model, compiled by torch for the steps of a training.

All layers of one kind share one program, which takes texts of any length. So torch compiles it once, in seconds, where
a whole model takes minutes. Outside of training steps the model computes without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn


class CompiledBlocks:
    """`with CompiledBlocks(model): loss(model, batch).backward()`: inside, the layers run compiled."""

    def __init__(self, model: nn.Module) -> None:
        self._programs: dict[nn.Module, Callable[..., object]] = {
            block: torch.compile(block.forward, dynamic=True) for block in repeated(model)
        }

    def __enter__(self) -> None:
        for block, program in self._programs.items():
            block.forward = program

    def __exit__(self, *_error: object) -> None:
        for block in self._programs:
            del block.forward  # of the instance, so that the method of the class is used again


def repeated(model: nn.Module) -> Iterator[nn.Module]:
    """The members of the outermost lists of modules: the layers of a transformer."""
    for child in model.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        else:
            yield from repeated(child)
