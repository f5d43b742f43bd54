"""What a decoder's step is made of between its matrix products, each in one pass over its numbers.

Every function here is written twice: in plain torch, which is what it means and what runs on processors, and in Triton,
which runs on GPUs where it can. Rows are prefixes; those of one text lie together, equally many for each.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from triever.models import triton_kernels

logger = logging.getLogger("triever")

PLAIN = "TRIEVER_PLAIN_KERNELS"
"""The variable that keeps everything in plain torch, to compare with."""


def fused(like: Tensor) -> triton_kernels | None:  # ty: ignore[invalid-type-form]
    """The kernels for GPUs, where they can run on such a tensor."""
    return _kernels(like.device) if like.is_cuda else None


@cache
def _kernels(device: torch.device) -> object | None:
    if os.environ.get(PLAIN) or importlib.util.find_spec("triton") is None:
        return None
    from triever.models import triton_kernels

    try:  # Triton needs a compiler, which a machine with a GPU need not have
        triton_kernels.rms_norm(torch.ones(1, 16, device=device), torch.ones(16, device=device), 1e-6)
    except Exception as error:  # whatever a compiler or a driver says
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        logger.warning("Triton does not work here, so that a recorded search has plain kernels: %s", reason)
        return None
    return triton_kernels


def log_sum_exp(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """(n,) float32: the log of the sum of exp(logits / temperature) over each row (n, width)."""
    if kernels := fused(logits):
        return kernels.log_sum_exp(logits, temperature)
    return (logits.float() / temperature).logsumexp(1)


def rms_norm(hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Rows (n, d) divided by their root mean square, times a weight (d,)."""
    if kernels := fused(hidden):
        return kernels.rms_norm(hidden, weight, epsilon)
    return functional.rms_norm(hidden, weight.shape, weight, epsilon)


def gated_gelu(both: Tensor) -> Tensor:
    """(n, d) of gates and values side by side (n, 2d): gelu(gate) * value."""
    if kernels := fused(both):
        return kernels.gated_gelu(both)
    gate, up = both.chunk(2, 1)
    return functional.gelu(gate, approximate="tanh") * up


def attend_texts(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, heads: int, bias: Tensor | None = None
) -> Tensor:
    """(rows, heads * d) what each row (rows, heads * d) takes from its text, without scaling.

    Keys and values are (texts, length, heads * d), the mask is 1 or 0 (texts, length), and the bias (heads, rows of a
    text, length) is added to scores.
    """
    if kernels := fused(query):
        return kernels.attend_texts(query, keys, values, mask, heads, bias)
    texts, length, _ = keys.shape
    query, keys, values = (
        states.reshape(texts, -1, heads, states.shape[-1] // heads).transpose(1, 2) for states in (query, keys, values)
    )
    added = torch.zeros(texts, 1, 1, length, dtype=query.dtype, device=query.device)
    added = added.masked_fill(mask[:, None, None] == 0, torch.finfo(query.dtype).min)
    if bias is not None:
        added = added + bias.to(query.dtype)
    attended = functional.scaled_dot_product_attention(query, keys, values, added, scale=1.0)
    return attended.transpose(1, 2).flatten(2).flatten(0, 1)


def attend_paths(store: Tensor, first: int, count: int, ancestors: Tensor, bias: Tensor, heads: int) -> Tensor:
    """(count, heads * d) what rows take from the symbols before them and from themselves, without scaling.

    The store (rows, 3 * heads * d) has the query, key and value of every symbol that was read; those that ask are
    `count` rows from `first` on. Ancestors (count, places) are the rows of the symbols at each place of a prefix, -1
    behind its end. The bias (heads, places) is what scores get for each distance back.
    """
    if kernels := fused(store):
        return kernels.attend_paths(store, first, count, ancestors, bias, heads)
    inner = store.shape[1] // 3
    there = ancestors >= 0
    query = store[first : first + count, :inner].view(count, heads, 1, -1)
    seen = store[ancestors.clamp(min=0)]  # (count, places, 3 * inner)
    keys, values = (seen[..., at * inner : (at + 1) * inner].unflatten(2, (heads, -1)).transpose(1, 2) for at in (1, 2))
    place = torch.arange(ancestors.shape[1], device=store.device)
    back = (there.sum(1, keepdim=True) - 1 - place).clamp(min=0)  # (count, places)
    added = bias[:, back].transpose(0, 1).masked_fill(~there[:, None], torch.finfo(store.dtype).min)
    attended = functional.scaled_dot_product_attention(
        query, keys, values, added[:, :, None].to(store.dtype), scale=1.0
    )
    return attended.reshape(count, inner)


@dataclass(frozen=True)
class Nodes:
    """The nodes of a trie, as `docids.trie.Arrays` has them, and what each one ends."""

    token: Tensor  # (nodes,)
    child: Tensor  # (nodes + 1,)
    kind: Tensor  # (nodes,) uint8: OPEN, LONE or ENDED


OPEN, LONE, ENDED = 0, 1, 2


def child_totals(
    nodes: Nodes,
    node: Tensor,
    logprob: Tensor,
    logits: Tensor,
    sums: Tensor | None,
    pool: Tensor,
    slots: int,
    temperature: float,
    final: int,
) -> Tensor:
    """(2, queries, pooled + width * slots) the log-probabilities of the children of nodes (queries, width).

    The first half has those that are final, behind those of a pool (queries, pooled); the second half has the others,
    behind as many of nothing. Those of their parents are (queries, width), the scores of all symbols (queries * width,
    symbols). Probabilities are over the children, or over all symbols where the logs of the sums (queries * width,) of
    these are given. A kind of at least `final` is final; -inf is nothing.
    """
    queries, width = node.shape
    if (kernels := fused(logits)) and slots <= kernels.MOST_SLOTS:
        totals = torch.empty(2, queries, pool.shape[1] + width * slots, device=logits.device)
        known = nodes.token, nodes.child, nodes.kind
        kernels.child_totals(known, node, logprob, logits, sums, totals, pool.shape[1], slots, temperature, final)
        totals[0, :, : pool.shape[1]] = pool
        totals[1, :, : pool.shape[1]] = -torch.inf
        return totals
    begin = nodes.child[node].long()[..., None]
    slot = torch.arange(slots, device=node.device)
    there = slot < nodes.child[node + 1].long()[..., None] - begin  # (queries, width, slots)
    child = torch.where(there, begin + slot, 0)
    scores = logits.gather(1, nodes.token[child].long().flatten(0, 1)).float() / temperature
    if sums is None:
        scores = scores.masked_fill(~there.flatten(0, 1), -torch.inf)
        sums = scores.logsumexp(1)
    total = logprob[..., None] + (scores - sums[:, None]).view_as(child)
    total = torch.where(there, total, -torch.inf)
    over = nodes.kind[child] >= final
    both = [total.masked_fill(~over, -torch.inf), total.masked_fill(over, -torch.inf)]
    return torch.stack([torch.cat([pool, both[0].flatten(1)], 1), torch.cat([_nothing(pool), both[1].flatten(1)], 1)])


def _nothing(like: Tensor) -> Tensor:
    return torch.full_like(like, -torch.inf)
