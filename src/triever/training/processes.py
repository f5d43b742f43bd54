"""Several processes as one: which rows of a batch each takes, and tensors of all of them in each.

    accelerate launch --num_processes 4 ...

Every tensor of a batch is cut along its first dimension into as many equal blocks as there are
processes, in order. What belongs to one example must therefore lie at the same share of every tensor:
the n-th of B queries beside the rows 8n to 8n + 7 of 8B passages. Tensors without dimensions and
everything that is no tensor goes to all processes whole. A batch that cannot be cut evenly is an
error: padding would change the loss, and the gradients' mean would no longer be that of the batch.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import recursively_apply
from torch import Tensor

from triever.errors import UsageError


def processes() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gathered(tensor: Tensor) -> Tensor:
    """The rows of all processes, in the order of the batch; gradients flow back to where the rows came from.

    Every process must give as many rows. In one process it is the tensor itself.
    """
    return tensor if processes() == 1 else _Gather.apply(tensor)


class _Gather(torch.autograd.Function):
    """Written out: torch's own passes gradients on as they lie in memory, which gloo then reads wrongly."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:  # noqa: ARG004 - the name and the place are torch's
        parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(processes())]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total.chunk(processes())[dist.get_rank()]


def first_row(rows: int) -> int:
    """Where this process's own rows begin in what `gathered` gives, when it gave so many."""
    return rows * dist.get_rank() if processes() > 1 else 0


def own_rows(batch: Any, process: int, of: int) -> Any:
    """The part of a batch that one of several processes takes."""
    return batch if of == 1 else recursively_apply(lambda tensor: _block(tensor, process, of), batch)


def _block(tensor: Tensor, process: int, of: int) -> Tensor:
    if tensor.ndim == 0:
        return tensor
    size, rest = divmod(len(tensor), of)
    if rest:
        problem = f"a batch with a tensor of {len(tensor)} rows cannot be shared evenly by {of} processes"
        raise UsageError(problem, f"make every batch a multiple of {of}, the last of a round too")
    return tensor[process * size : (process + 1) * size]
