"""Optimizers by name, and their state as named tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from triever.errors import UsageError
from triever.training.options import TrainOptions

RateShare: TypeAlias = Callable[[str], float]
"""From a parameter's name to its share of the learning rate."""


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trained parameters by name: first those that weight decay applies to, then the rest."""
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return dict(sorted(parameters.items(), key=lambda item: item[1].ndim < 2))


def make_optimizer(model: nn.Module, options: TrainOptions, share: RateShare | None = None) -> Optimizer:
    """The optimizer that the options name, over the trained parameters.

    `share` gives each parameter's share of the learning rate; the loop multiplies the rate of a group by its share.
    """
    parameters = trained(model)
    _check(parameters)
    members: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        members.setdefault((parameter.ndim >= 2, share(name) if share else 1.0), []).append(parameter)
    groups: list[dict[str, object]] = [
        {"params": group, "weight_decay": options.weight_decay if decays else 0.0, "share": part}
        for (decays, part), group in members.items()
    ]
    if options.optimizer == "adafactor":
        return _adafactor(groups, options)
    fused = all(parameter.is_cuda for parameter in parameters.values())
    return torch.optim.AdamW(groups, lr=options.learning_rate, fused=fused)


def _check(parameters: Mapping[str, nn.Parameter]) -> None:
    if not parameters:
        raise UsageError("the model has no parameter to train", "set requires_grad of those that should be trained")
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32:
            problem = f"{name} is {parameter.dtype}, in which small steps are lost"
            raise UsageError(problem, "train float32 weights: model.float(); the forward pass may be bfloat16")


def _adafactor(groups: list[dict[str, object]], options: TrainOptions) -> Optimizer:
    # Not torch's Adafactor: it always scales a step by the size of the weights, while the learning rates of the papers
    # (T5, DSI: 1e-3) are for steps that are not scaled.
    from transformers.optimization import Adafactor

    return Adafactor(groups, lr=options.learning_rate, scale_parameter=False, relative_step=False, warmup_init=False)


def state_tensors(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The state of an optimizer as tensors named `parameter/key`; `load_state_tensors` takes them back."""
    names = _numbered(optimizer, model)
    state = optimizer.state_dict()["state"]
    return {f"{names[number]}/{key}": _tensor(value) for number, part in state.items() for key, value in part.items()}


def _numbered(optimizer: Optimizer, model: nn.Module) -> list[str]:
    """The names of the parameters in the order in which an optimizer numbers them: group by group."""
    names = {id(parameter): name for name, parameter in trained(model).items()}
    return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]


def load_state_tensors(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimizer the state that `state_tensors` returned."""
    numbers = {name: number for number, name in enumerate(_numbered(optimizer, model))}
    state: dict[int, dict[str, Tensor | float]] = {}
    for path, tensor in tensors.items():
        name, _, key = path.rpartition("/")
        state.setdefault(numbers[name], {})[key] = _value(tensor)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def state_problem(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> str:
    """Why tensors cannot be the state of an optimizer; an empty text if they can.

    A parameter without a step so far has no state; any other has all of it.
    """
    parameters = trained(model)
    states: dict[str, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        name, _, key = path.rpartition("/")
        states.setdefault(name, {})[key] = tensor
    for name, state in states.items():
        if name not in parameters:
            return f"{name} is not trained"
        expected = _expected(optimizer, parameters[name])
        if {key: (tensor.dtype, tuple(tensor.shape)) for key, tensor in state.items()} != expected:
            return f"what it holds of {name} has other names, shapes or types"
        if not state["step"] >= 1:
            return f"{name} has made {state['step'].item()} steps"
    return ""


def _expected(optimizer: Optimizer, parameter: Tensor) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """The type and the shape of each tensor of a parameter's state."""
    shape, numbers = tuple(parameter.shape), parameter.dtype
    if isinstance(optimizer, torch.optim.AdamW):
        return {"step": (torch.float32, ()), "exp_avg": (numbers, shape), "exp_avg_sq": (numbers, shape)}
    counted = {"step": (torch.int64, ()), "RMS": (numbers, ())}
    if len(shape) < 2:
        return {**counted, "exp_avg_sq": (numbers, shape)}
    return {**counted, "exp_avg_sq_row": (numbers, shape[:-1]), "exp_avg_sq_col": (numbers, shape[:-2] + shape[-1:])}


# Adafactor keeps its step count and some scales as plain numbers. They are saved as tensors of 64 bits: all other
# tensors of an optimizer's state are float32, so these can be told apart.
def _tensor(value: Tensor | float) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(value, dtype=_WIDE[type(value)])


def _value(tensor: Tensor) -> Tensor | float:
    return tensor.item() if tensor.dtype in _WIDE.values() else tensor


_WIDE: dict[type, torch.dtype] = {int: torch.int64, float: torch.float64}
