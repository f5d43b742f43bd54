"""The blocks that a model repeats, compiled by torch, for as long as a training computes with them.

Layers of one kind are one program with other weights, and a program for any length of texts: so it is made once, in
seconds, where that of a whole model takes minutes. What is read outside of training steps is computed as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn


class CompiledBlocks:
    """`with CompiledBlocks(model): loss(model, batch).backward()`; what begins inside ends there."""

    def __init__(self, model: nn.Module) -> None:
        self._programs: dict[nn.Module, Callable[..., Any]] = {
            block: torch.compile(block.forward, dynamic=True) for block in repeated(model)
        }

    def __enter__(self) -> None:
        for block, program in self._programs.items():
            block.forward = program

    def __exit__(self, *_error: object) -> None:
        for block in self._programs:
            del block.forward  # of the instance: that of the class is there again


def repeated(model: nn.Module) -> Iterator[nn.Module]:
    """The members of the outermost lists of modules: the layers of a transformer."""
    for child in model.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        else:
            yield from repeated(child)
