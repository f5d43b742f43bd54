"""Modules from an artifact: their sizes are compared with the saved tensors before any memory is taken for them.

What an artifact says about a model may come from a stranger, and a few digits can ask for any amount of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from triever.validation import require

M = TypeVar("M", bound=nn.Module)

BUFFER_BYTES = 2**26
"""So many bytes a module may have that are not saved with it, such as masks and positions."""


def opened_module(
    make: Callable[[], M], tensors: Mapping[str, Tensor], noun: str, saved_as: Callable[[str], str] = str
) -> M:
    """The module that `make` makes, with these tensors in it; a ValueError if it is not the one that they are of.

    `saved_as` gives the name that one of the module's tensors was saved under, where that is another.
    """
    with torch.random.fork_rng(devices=[]):  # opening something must not change what chance does next
        with torch.device("meta"):
            planned = make()
        _require_same(planned, tensors, noun, saved_as)
        module = make()
    module.load_state_dict({name: tensors[saved_as(name)] for name in module.state_dict()})
    return module.eval()


def _require_same(planned: nn.Module, tensors: Mapping[str, Tensor], noun: str, saved_as: Callable[[str], str]) -> None:
    state = {saved_as(name): tensor for name, tensor in planned.state_dict().items()}
    for name in sorted({*state, *tensors}):
        require(name in tensors, f"the {noun} lacks the weights {name}")
        require(name in state, f"the {noun} has no place for the weights {name}")
        shape, saved = tuple(state[name].shape), tuple(tensors[name].shape)
        require(shape == saved, f"the weights {name} of the {noun} have the shape {saved}, not {shape}")
    unsaved = sum(buffer.nbytes for name, buffer in planned.named_buffers() if saved_as(name) not in state)
    require(unsaved <= BUFFER_BYTES, f"the {noun} asks for {unsaved} bytes that are not saved with it")


def require_sizes(values: Mapping[str, Any], tensors: Mapping[str, Tensor], noun: str) -> None:
    """A ValueError if a config asks for more layers than there are tensors: to count to a billion takes for ever."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            require_sizes(value, tensors, noun)
        elif "layer" in name and not name.startswith("max_") and isinstance(value, int):  # a bound counts none
            require(value <= len(tensors), f"the {noun} has {value} {name} and only {len(tensors)} tensors")
        elif isinstance(value, int):
            require(value < 2**31, f"the {noun} has the impossible size {name} = {value}")
