"""Several processes as one: which rows of a batch each process takes, and tensors gathered from all of them.

    accelerate launch --num_processes 4 ...

Every tensor of a batch is cut along its first dimension into as many equal blocks as there are processes, in order.
So the rows of one example must lie at the same fraction of every tensor: the n-th of B queries goes with rows 8n to
8n + 7 of 8B passages. Tensors without dimensions, and everything that is not a tensor, go to all processes whole. A
batch that cannot be cut evenly is an error: padding would change the loss, and the mean of the gradients would no
longer be that of the batch.
"""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from triever.errors import UsageError

T = TypeVar("T")


def processes() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gathered(tensor: Tensor) -> Tensor:
    """The rows of all processes, in the order of the batch; gradients flow back to where the rows came from.

    Every process must give the same number of rows. With one process this is the tensor itself.
    """
    return tensor if processes() == 1 else _Gather.apply(tensor)


class _Gather(torch.autograd.Function):
    """Replaces torch's own gathering, which passes gradients on without making them contiguous: gloo misreads them."""

    @staticmethod
    def forward(ctx: object, tensor: Tensor) -> Tensor:  # noqa: ARG004 - torch passes it
        parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(processes())]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total.chunk(processes())[dist.get_rank()]


def first_row(rows: int) -> int:
    """The first of this process's rows in the tensor that `gathered` returns, if every process gave `rows` rows."""
    return rows * dist.get_rank() if processes() > 1 else 0


def own_rows(batch: T, process: int, of: int) -> T:
    """The part of a batch that one of several processes takes."""
    if of == 1:
        return batch
    from accelerate.utils import recursively_apply

    return recursively_apply(lambda tensor: _block(tensor, process, of), batch)


def _block(tensor: Tensor, process: int, of: int) -> Tensor:
    if tensor.ndim == 0:
        return tensor
    size, rest = divmod(len(tensor), of)
    if rest:
        problem = f"a batch with a tensor of {len(tensor)} rows cannot be shared evenly by {of} processes"
        raise UsageError(problem, f"make every batch a multiple of {of}, including the last of a round")
    return tensor[process * size : (process + 1) * size]
