"""An output layer in blocks of rows, for vocabularies that one device cannot hold: atomic docids of a large corpus.

Each block lies on a device of its own where there are several, and is scored there. The loss goes block by
block and makes the scores of one block again when their gradient is wanted, so that those of all symbols are
never there at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class ShardedRows(nn.Module):
    """As `nn.Linear(size, width, bias=False)`, in so many blocks: `ShardedRows(768, 8_841_823, shards=8)`."""

    def __init__(self, size: int, width: int, shards: int) -> None:
        super().__init__()
        self.out_features = width
        lengths = [len(part) for part in torch.arange(width).tensor_split(shards)]
        self.blocks = nn.ParameterList(torch.zeros(length, size) for length in lengths if length)

    def forward(self, hidden: Tensor) -> Tensor:
        """Scores of all symbols, (..., width), where the states (..., size) are."""
        each = [functional.linear(hidden.to(block.device), block).to(hidden.device) for block in self.blocks]
        return torch.cat(each, -1)

    @property
    def weight(self) -> Tensor:
        """All rows, (width, size), as a copy where the first block is."""
        first = self.blocks[0].device
        return torch.cat([block.to(first) for block in self.blocks])

    @torch.no_grad()
    def load(self, rows: Tensor) -> None:
        """Take these rows for the first symbols."""
        begin = 0
        for block in self.blocks:
            part = rows[begin : begin + len(block)]
            block[: len(part)] = part.to(block)
            begin += len(block)

    def cross_entropy(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Minus the log-probabilities of targets (n,) after states (n, size), added up."""
        begin, masses, target_scores = 0, [], torch.zeros(len(targets), device=hidden.device)
        for block in self.blocks:
            inside = (targets >= begin) & (targets < begin + len(block))
            columns = (targets - begin).clamp(0, len(block) - 1)
            mass, score = checkpoint(_scored, hidden, block, columns, use_reentrant=False)
            masses.append(mass)
            target_scores = target_scores + torch.where(inside, score, 0.0)
            begin += len(block)
        return (torch.stack(masses).logsumexp(0) - target_scores).sum()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Moved to a device, the blocks go round all of its kind."""
        moved = super()._apply(fn, recurse)
        if self.blocks[0].is_cuda and (count := torch.cuda.device_count()) > 1:
            first = self.blocks[0].device.index or 0
            for number, block in enumerate(self.blocks):
                block.data = block.data.to(torch.device("cuda", (first + number) % count))
        return moved


def _scored(states: Tensor, block: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The log of the sum over a block's symbols, and the score of one of them, for each state: (n,) each."""
    scores = functional.linear(states.to(block.device), block).float()
    target_scores = scores.gather(1, target.to(block.device)[:, None])[:, 0]
    return scores.logsumexp(1).to(states.device), target_scores.to(states.device)
