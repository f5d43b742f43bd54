"""The weights of a module by name, each once, and back again."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from triever.models.encoder import Encoder


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a model by name; one that has several names goes by its first.

    A backbone that stays as it is, and that can be found by its name, is left out.
    """
    encoders = (part for part in model.modules() if isinstance(part, Encoder) and part.named)
    seen = {id(tensor) for encoder in encoders for tensor in encoder.frozen_tensors()}
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach()
    return tensors


def set_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy the tensors that `named_tensors` returned into a model."""
    for name, tensor in named_tensors(model).items():
        tensor.copy_(tensors[name])
