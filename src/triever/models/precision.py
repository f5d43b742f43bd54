"""Where to compute, and in which numbers: bfloat16 where the hardware has it, else float32."""

from __future__ import annotations

import logging
import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch

from triever.errors import UsageError

logger = logging.getLogger("triever")

FLOAT32 = "TRIEVER_FLOAT32"
"""A variable of the environment: if it is set, processors compute in float32, whatever else they could."""


def device_of(name: str, *, opening: bool = False) -> torch.device:
    """The device of a name, where auto is cuda if there is one, else cpu; one that is not here is an error.

    What was saved on a larger machine is not lost on a smaller one: for `opening` it is cpu then, with a warning.
    """
    if name == "auto":
        return _ready(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    device = _parsed(name)
    problem = _missing(device, name)
    if not problem:
        return _ready(device)
    if not opening:
        raise UsageError(problem, "use device=cpu, or auto")
    logger.warning("%s: the cpu is used instead", problem)
    return torch.device("cpu")


def _ready(device: torch.device) -> torch.device:
    """The device, and on a GPU attention without cuDNN, for this process.

    It plans for every new shape of a batch, for tenths of a second; texts are of all lengths, and so are our batches.
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def _parsed(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device = {name!r} is not a device", "use cpu or cuda, or auto") from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f"device = {name!r} is not a device that can be used", "use cpu or cuda, or auto")
    return device


def _missing(device: torch.device, name: str) -> str:
    """What is missing for a device, or nothing."""
    if device.type == "mps":
        return "" if torch.backends.mps.is_available() else f"device = {name!r}, but no MPS device is here"
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cpu" or (device.index or 0) < there:
        return ""
    known = f"the last CUDA device here is cuda:{there - 1}" if there else "no CUDA device is here"
    return f"device = {name!r}, but {known}"


def fast_dtype(device: str | torch.device = "cpu") -> torch.dtype:
    """The fastest type that is good enough for searching on a device."""
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if kind == "cpu" and has_matrix_unit() else torch.float32


def computing_fast(device: torch.device) -> AbstractContextManager[object]:
    """Layers that run inside compute in the numbers that are fast on a device."""
    dtype = fast_dtype(device)
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)


def computing_in(device: torch.device, dtype: torch.dtype | None) -> AbstractContextManager[object]:
    """Layers that run inside compute in these numbers; None changes nothing. What they give may have either type."""
    if dtype is None:
        return nullcontext()
    # Without torch's own memory of rounded weights, which a recorded search could not read again.
    return torch.autocast(device.type, dtype, cache_enabled=False)


@cache
def say_without_effect(kind: str) -> None:
    """Say, once for a kind of device, that a search does not compute in bfloat16 there although it was asked for."""
    said = "search_options.precision=bfloat16 has no effect: this %s is not faster in it, so it computes in float32"
    logger.warning(said, kind)


@cache
def has_matrix_unit() -> bool:
    """Whether the processor multiplies matrices of bfloat16 by itself (AMX); others are slower in it.

    It counts as having none if the environment asks for float32. Processes that are started by this one inherit that.
    """
    if os.environ.get(FLOAT32):
        return False
    probe = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool(probe and probe())
