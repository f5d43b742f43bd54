"""Which numbers to compute in: bfloat16 where the hardware has it, else float32."""

from __future__ import annotations

from functools import cache

import torch


def fast_dtype(device: str | torch.device = "cpu") -> torch.dtype:
    """The fastest type that is good enough for searching on a device."""
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if kind == "cpu" and has_matrix_unit() else torch.float32


@cache
def has_matrix_unit() -> bool:
    """Whether the processor multiplies matrices of bfloat16 by itself (AMX); others are slower in it."""
    probe = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool(probe and probe())
