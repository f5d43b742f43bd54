"""New weights inside a backbone's layers: low-rank ones beside linear maps (LoRA), or a bottleneck behind each layer.

An adapter changes nothing before it is trained. The backbone may stay as it is, or learn together with it. Linear maps
that got one are called `base_layer` inside of what took their place, as the library peft calls them; `plain_name`
gives back the name that a weight has in the backbone.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional

from triever.config import option, validate
from triever.errors import MissingExtra, UsageError

LAST = re.compile(
    r"(.+\.)?("
    r"layers\.\d+\.mlp\.down_proj"  # Llama, Qwen, Mistral, Gemma
    r"|h\.\d+\.mlp\.c_proj"  # GPT-2
    r"|layer\.\d+\.output\.dense"  # BERT; attention has an output.dense too, one level below
    r"|layer\.\d+\.DenseReluDense\.wo"  # T5
    r")"
)
"""The last linear map of a layer's feed-forward, by its name."""
NEW = re.compile(r"\.(lora_[A-Z]|bottleneck_(down|up))\.")
"""What the name of an adapter's weight has in it."""
WRAPPED = ".base_layer."
BELONGS = {"rank": "lora", "alpha": "lora", "dropout": "lora", "budget": "bottleneck"}
"""The kind of adapter that heeds an option."""
MOST = 100
"""The largest budget of bottlenecks."""


@dataclass(frozen=True)
class AdapterOptions:
    """New weights inside the backbone's layers: `AdapterOptions("lora", rank=8)`."""

    kind: Literal["none", "lora", "bottleneck"] = option(
        "none", "none, lora (beside every linear map of the layers), or bottleneck (behind every layer's feed-forward)"
    )
    rank: int = option(16, "lora: the rank of what is added to a linear map")
    alpha: int = option(32, "lora: what is added is multiplied by alpha / rank")
    dropout: float = option(0.0, "lora: the share of its input that is dropped in training")
    budget: float = option(0.17, "bottleneck: new weights in all layers together, as a share of the backbone's own")
    freeze: bool | None = option(
        None, "whether the backbone stays as it is; not set: it does with lora, and learns too with bottleneck"
    )

    def __post_init__(self) -> None:
        validate(self)
        if self.rank < 1 or self.alpha < 1 or not 0 <= self.dropout < 1:
            values = f"adapter.rank = {self.rank}, adapter.alpha = {self.alpha}, adapter.dropout = {self.dropout}"
            hint = "set rank to 1 or more, alpha to 1 or more, and dropout from 0 to below 1"
            raise UsageError(f"a value is out of range: {values}", hint)
        if not 0 < self.budget <= MOST:
            problem = f"adapter.budget = {self.budget} should be above zero and at most {MOST}"
            raise UsageError(problem, "0.17 adds a sixth of the backbone's weights, and 1 as many as it has")

    @property
    def freezes(self) -> bool:
        """Whether the backbone stays as it is."""
        return self.kind == "lora" if self.freeze is None else self.freeze


def check_values(options: AdapterOptions) -> None:
    """Refuse values that are without effect; only a fit asks, so that what was saved with such still opens."""
    for name, kind in BELONGS.items():
        value = getattr(options, name)
        if options.kind != kind and value != getattr(AdapterOptions, name):
            problem = f"adapter.{name} = {value} has no effect with adapter.kind = {options.kind}"
            raise UsageError(problem, f"leave adapter.{name} out, or set adapter.kind={kind}")


def check_library(options: AdapterOptions) -> None:
    """Refuse LoRA where the library for it is missing."""
    if options.kind == "lora" and importlib.util.find_spec("peft") is None:
        raise MissingExtra("adapter.kind = lora", "pip install 'triever[lora]'")


def attach(module: nn.Module, options: AdapterOptions, name: str) -> None:
    """Put an adapter into the layers of a transformer without a head, which is called so in errors.

    What is drawn at random comes from torch's current state.
    """
    check_library(options)
    if options.kind == "lora":
        _attach_lora(module, options, name)
    elif options.kind == "bottleneck":
        _attach_bottlenecks(module, options, name)


def is_new(name: str) -> bool:
    """Whether a weight of this name belongs to an adapter."""
    return NEW.search(name) is not None


def plain_name(name: str) -> str:
    """The name of a weight where there is no adapter.

    >>> plain_name("layers.0.mlp.down_proj.base_layer.weight")
    'layers.0.mlp.down_proj.weight'
    """
    return name.replace(WRAPPED, ".")


# LoRA


def _attach_lora(module: nn.Module, options: AdapterOptions, name: str) -> None:
    from peft import LoraConfig, inject_adapter_in_model
    from transformers.pytorch_utils import Conv1D

    maps = {
        path: part
        for path, part in module.named_modules()
        if isinstance(part, nn.Linear | Conv1D) and re.search(r"\.\d+\.", path)
    }
    if not maps:
        raise UsageError(f"{name} has no layers with linear maps, so there is no place for adapters", OTHER_BACKBONE)
    transposed = [isinstance(part, Conv1D) for part in maps.values()]
    if any(transposed) != all(transposed):
        raise UsageError(f"{name} has linear maps of two kinds, which LoRA cannot take together", OTHER_BACKBONE)
    config = LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        lora_dropout=options.dropout,
        target_modules=[*maps],
        fan_in_fan_out=all(transposed),
    )
    inject_adapter_in_model(config, module)


# Bottlenecks


class Bottleneck(nn.Module):
    """A linear map, and behind it y + up(gelu(down(y))), where up is zero at first."""

    def __init__(self, base_layer: nn.Module, size: int, width: int) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.bottleneck_down = nn.Linear(size, width, bias=False)
        self.bottleneck_up = nn.Linear(width, size, bias=False)
        nn.init.zeros_(self.bottleneck_up.weight)

    @property
    def weight(self) -> Any:
        """The weight of the linear map, which T5 looks at to learn its type."""
        return self.base_layer.weight

    def forward(self, states: Tensor) -> Tensor:
        states = self.base_layer(states)
        return states + self.bottleneck_up(functional.gelu(self.bottleneck_down(states)))


OTHER_BACKBONE = "leave adapter.kind out, or name a backbone like BERT, Llama, Qwen, GPT-2 or T5"


def _attach_bottlenecks(module: nn.Module, options: AdapterOptions, name: str) -> None:
    places = [path for path, _ in module.named_modules() if LAST.fullmatch(path)]
    if not places:
        problem = f"{name} has no layers whose feed-forward is known, so there is no place for bottlenecks"
        raise UsageError(problem, OTHER_BACKBONE)
    own = sum(parameter.numel() for parameter in module.parameters())
    for path in places:
        parent, _, child = path.rpartition(".")
        last = module.get_submodule(path)
        size = _output_size(last)
        width = bottleneck_width(own, options.budget, layers=len(places), size=size)
        weight = last.weight
        assert isinstance(weight, Tensor)  # a linear map has one
        made = Bottleneck(last, size, width).to(weight.device, weight.dtype).train(last.training)
        setattr(module.get_submodule(parent), child, made)


def _output_size(linear: nn.Module) -> int:
    """How many numbers a linear map gives; those of GPT-2 call it nf."""
    size = linear.out_features if isinstance(linear, nn.Linear) else linear.nf
    assert isinstance(size, int)
    return size


def bottleneck_width(own: int, budget: float, *, layers: int, size: int) -> int:
    """The width at which so many bottlenecks have a share of the backbone's own weights, to the nearest; at least 1.

    >>> bottleneck_width(1_000_000, 0.5, layers=10, size=100)
    250
    """
    return max(1, round(budget * own / (layers * 2 * size)))


def adapter_weights(module: nn.Module) -> list[nn.Parameter]:
    """The weights of adapters in a module."""
    return [parameter for name, parameter in module.named_parameters() if is_new(name)]


def backbone_tensors(module: nn.Module) -> dict[str, Tensor]:
    """All tensors of a module but those of adapters, by the names that they have without adapters."""
    state = module.state_dict(keep_vars=True)
    return {plain_name(name): tensor for name, tensor in state.items() if not is_new(name)}
