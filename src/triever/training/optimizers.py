"""Optimizers by name, and their state as named tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from triever.errors import UsageError
from triever.training.options import TrainOptions

RateShare: TypeAlias = Callable[[str], float]
"""From a parameter's name to its share of the learning rate."""


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name: first those that weight decay pulls, then the others."""
    found = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return dict(sorted(found.items(), key=lambda item: item[1].ndim < 2))


def make_optimizer(model: nn.Module, options: TrainOptions, share: RateShare | None = None) -> Optimizer:
    """The optimizer of the options, over the parameters that are trained; `share` is each one's of the learning rate.

    The loop multiplies the rate of a group by its `share`.
    """
    parameters = trained(model)
    _check(parameters)
    found: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        found.setdefault((parameter.ndim >= 2, share(name) if share else 1.0), []).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": some, "weight_decay": options.weight_decay if pulled else 0.0, "share": part}
        for (pulled, part), some in found.items()
    ]
    if options.optimizer == "adafactor":
        return _adafactor(groups, options)
    fused = all(parameter.is_cuda for parameter in parameters.values())
    return torch.optim.AdamW(groups, lr=options.learning_rate, fused=fused)


def _check(parameters: Mapping[str, nn.Parameter]) -> None:
    if not parameters:
        raise UsageError("the model has no parameter to train", "set requires_grad of those that should be")
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32:
            problem = f"{name} is {parameter.dtype}, in which small steps are lost"
            raise UsageError(problem, "train float32 weights: model.float(); the forward pass may be bfloat16")


def _adafactor(groups: list[dict[str, Any]], options: TrainOptions) -> Optimizer:
    # Not torch's own: it multiplies every step by the size of the weights it changes and cannot be told not to,
    # while the papers' learning rates (T5, DSI: 1e-3) are those of steps that are not scaled.
    from transformers.optimization import Adafactor

    return Adafactor(groups, lr=options.learning_rate, scale_parameter=False, relative_step=False, warmup_init=False)


def state_tensors(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The state of an optimizer as tensors named `parameter/part`; `load_state_tensors` takes them back."""
    names = _numbered(optimizer, model)
    state = optimizer.state_dict()["state"]
    return {f"{names[number]}/{key}": _tensor(value) for number, part in state.items() for key, value in part.items()}


def _numbered(optimizer: Optimizer, model: nn.Module) -> list[str]:
    """The names of the parameters in the order in which an optimizer counts them: group by group."""
    names = {id(parameter): name for name, parameter in trained(model).items()}
    return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]


def load_state_tensors(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Bring an optimizer into a state that `state_tensors` gave."""
    numbers = {name: number for number, name in enumerate(_numbered(optimizer, model))}
    state: dict[int, dict[str, Any]] = {}
    for place, tensor in tensors.items():
        name, _, key = place.rpartition("/")
        state.setdefault(numbers[name], {})[key] = _value(tensor)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def state_problem(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> str:
    """What keeps tensors from being the state of an optimizer; nothing where they are.

    A parameter that has not been trained yet has no state, and one that has been has all of it.
    """
    parameters, parts = trained(model), {}
    for place, tensor in tensors.items():
        name, _, key = place.rpartition("/")
        parts.setdefault(name, {})[key] = tensor
    for name, state in parts.items():
        if name not in parameters:
            return f"{name} is not trained"
        expected = _expected(optimizer, parameters[name])
        if {key: (one.dtype, tuple(one.shape)) for key, one in state.items()} != expected:
            return f"what it holds of {name} has other names, shapes or types"
        if not state["step"] >= 1:
            return f"{name} has made {state['step'].item()} steps"
    return ""


def _expected(optimizer: Optimizer, parameter: Tensor) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """The type and the shape of each part of the state of a parameter."""
    shape, numbers = tuple(parameter.shape), parameter.dtype
    if isinstance(optimizer, torch.optim.AdamW):
        return {"step": (torch.float32, ()), "exp_avg": (numbers, shape), "exp_avg_sq": (numbers, shape)}
    counted = {"step": (torch.int64, ()), "RMS": (numbers, ())}
    if len(shape) < 2:
        return {**counted, "exp_avg_sq": (numbers, shape)}
    return {**counted, "exp_avg_sq_row": (numbers, shape[:-1]), "exp_avg_sq_col": (numbers, shape[:-2] + shape[-1:])}


# Adafactor counts its steps in plain numbers. They travel as tensors of 64 bits, which no optimizer here has
# among its own: all of these are float32.
def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(value, dtype=_WIDE[type(value)])


def _value(tensor: Tensor) -> Any:
    return tensor.item() if tensor.dtype in _WIDE.values() else tensor


_WIDE = {int: torch.int64, float: torch.float64}
