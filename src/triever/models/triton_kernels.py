"""The functions of `kernels` for GPUs; numbers are added up in float32, whatever they are stored in."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _log_sum_exp(logits, sums, width, stride, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), -1e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        there = start + at < width
        value = tl.load(logits + row * stride + start + at, mask=there, other=-1e30).to(tl.float32)
        value = tl.where(there, value * scale, -1e30)
        higher = tl.maximum(top, value)
        total = total * tl.exp(top - higher) + tl.where(there, tl.exp(value - higher), 0.0)
        top = higher
    highest = tl.max(top, 0)
    tl.store(sums + row, highest + tl.log(tl.sum(total * tl.exp(top - highest), 0)))


def log_sum_exp(logits: Tensor, temperature: float) -> Tensor:
    """See `kernels.log_sum_exp`."""
    rows, width = logits.shape
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    sums = torch.empty(rows, dtype=torch.float32, device=logits.device)
    block = min(4096, triton.next_power_of_2(width))
    _log_sum_exp[(rows,)](logits, sums, width, logits.stride(0), 1 / temperature, BLOCK=block, num_warps=8)
    return sums


@triton.jit
def _rms_norm(hidden, weight, normed, size, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    there = at < size
    value = tl.load(hidden + row * size + at, mask=there, other=0.0).to(tl.float32)
    root = tl.rsqrt(tl.sum(value * value, 0) / size + epsilon)
    weights = tl.load(weight + at, mask=there, other=0.0).to(tl.float32)
    tl.store(normed + row * size + at, (value * root * weights).to(normed.dtype.element_ty), mask=there)


def rms_norm(hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """See `kernels.rms_norm`."""
    rows, size = hidden.shape
    normed = torch.empty_like(hidden)
    block = triton.next_power_of_2(size)
    _rms_norm[(rows,)](hidden, weight, normed, size, epsilon, BLOCK=block, num_warps=max(1, min(8, block // 256)))
    return normed


@triton.jit
def _gated_gelu(both, result, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < size
    gate = tl.load(both + row * 2 * size + at, mask=there, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * size + size + at, mask=there, other=0.0).to(tl.float32)
    inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
    curve = gate * tl.sigmoid(2.0 * inner)  # (1 + tanh(x)) / 2 is sigmoid(2x)
    tl.store(result + row * size + at, (curve * up).to(result.dtype.element_ty), mask=there)


def gated_gelu(both: Tensor) -> Tensor:
    """See `kernels.gated_gelu`."""
    rows, size = len(both), both.shape[1] // 2
    result = torch.empty(rows, size, dtype=both.dtype, device=both.device)
    block = min(1024, triton.next_power_of_2(size))
    _gated_gelu[(rows, triton.cdiv(size, block))](both, result, size, BLOCK=block, num_warps=4)
    return result


@triton.jit
def _attend_texts(
    query,
    keys,
    values,
    mask,
    bias,
    result,
    rows,
    length,
    query_stride,
    text_stride,
    place_stride,
    result_stride,
    ROWS: tl.constexpr,
    LENGTH: tl.constexpr,
    SIZE: tl.constexpr,
    BIASED: tl.constexpr,
    EXACT: tl.constexpr,
):
    text, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    of_text = row < rows
    number = tl.arange(0, SIZE)
    asked = query + (text * rows + row)[:, None] * query_stride + head * SIZE + number[None]
    q = tl.load(asked, mask=of_text[:, None], other=0.0)
    top = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, SIZE), tl.float32)
    for start in range(0, length, LENGTH):
        place = start + tl.arange(0, LENGTH)
        inside = place < length
        at = text * text_stride + place[:, None] * place_stride + head * SIZE + number[None]
        k = tl.load(keys + at, mask=inside[:, None], other=0.0)
        v = tl.load(values + at, mask=inside[:, None], other=0.0)
        seen = inside & (tl.load(mask + text * length + place, mask=inside, other=0) > 0)
        if EXACT:
            scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        else:
            scores = tl.dot(q, tl.trans(k))
        if BIASED:
            added = bias + (head * rows + row)[:, None] * length + place[None]
            scores += tl.load(added, mask=of_text[:, None] & inside[None], other=0.0).to(tl.float32)
        scores = tl.where(seen[None], scores, -1e30)
        higher = tl.maximum(top, tl.max(scores, 1))
        share = tl.where(seen[None], tl.exp(scores - higher[:, None]), 0.0)
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(share, 1)
        if EXACT:
            more = tl.dot(share, v, input_precision="ieee")
        else:
            more = tl.dot(share.to(v.dtype), v)
        sums = sums * shrink[:, None] + more
        top = higher
    sums = sums / tl.maximum(total, 1e-30)[:, None]
    at = result + (text * rows + row)[:, None] * result_stride + head * SIZE + number[None]
    tl.store(at, sums.to(result.dtype.element_ty), mask=of_text[:, None])


def attend_texts(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, heads: int, bias: Tensor | None = None
) -> Tensor:
    """See `kernels.attend_texts`."""
    texts, length, inner = keys.shape
    size, rows = inner // heads, len(query) // texts
    result = torch.empty(len(query), inner, dtype=query.dtype, device=query.device)
    block = max(16, min(64, triton.next_power_of_2(rows)))
    strides = query.stride(0), keys.stride(0), keys.stride(1), result.stride(0)
    assert keys.stride() == values.stride()  # they come out of one product
    _attend_texts[(texts, heads, triton.cdiv(rows, block))](
        query,
        keys,
        values,
        mask,
        mask if bias is None else bias,
        result,
        rows,
        length,
        *strides,
        ROWS=block,
        LENGTH=max(16, min(64, triton.next_power_of_2(length))),
        SIZE=size,
        BIASED=bias is not None,
        EXACT=query.dtype == torch.float32,
        num_warps=4 if block > 16 else 2,
    )
    return result


@triton.jit
def _attend_paths(
    store, ancestors, bias, result, first, places, inner, HEADS: tl.constexpr, KNOWN: tl.constexpr, SIZE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    head, number = tl.arange(0, HEADS), tl.arange(0, SIZE)
    there = (head < KNOWN)[:, None] & (number < SIZE)[None]
    at = head[:, None] * SIZE + number[None]
    q = tl.load(store + (first + row) * 3 * inner + at, mask=there, other=0.0).to(tl.float32)
    last = -1
    for place in range(places):
        last += (tl.load(ancestors + row * places + place) >= 0).to(tl.int32)
    top = tl.full((HEADS,), -1e30, tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    sums = tl.zeros((HEADS, SIZE), tl.float32)
    for place in range(places):
        ancestor = tl.load(ancestors + row * places + place).to(tl.int64)
        seen = ancestor >= 0
        where = store + tl.maximum(ancestor, 0) * 3 * inner + at
        k = tl.load(where + inner, mask=there, other=0.0).to(tl.float32)
        v = tl.load(where + 2 * inner, mask=there, other=0.0).to(tl.float32)
        back = tl.maximum(last - place, 0)
        score = tl.sum(q * k, 1) + tl.load(bias + head * places + back, mask=head < KNOWN, other=0.0).to(tl.float32)
        score = tl.where(seen, score, -1e30)
        higher = tl.maximum(top, score)
        share = tl.where(seen, tl.exp(score - higher), 0.0)
        shrink = tl.exp(top - higher)
        total = total * shrink + share
        sums = sums * shrink[:, None] + share[:, None] * v
        top = higher
    sums = sums / tl.maximum(total, 1e-30)[:, None]
    tl.store(result + row * inner + at, sums.to(result.dtype.element_ty), mask=there)


def attend_paths(store: Tensor, first: int, count: int, ancestors: Tensor, bias: Tensor, heads: int) -> Tensor:
    """See `kernels.attend_paths`."""
    inner = store.shape[1] // 3
    result = torch.empty(count, inner, dtype=store.dtype, device=store.device)
    known = triton.next_power_of_2(heads)
    _attend_paths[(count,)](
        store,
        ancestors,
        bias,
        result,
        first,
        ancestors.shape[1],
        inner,
        HEADS=known,
        KNOWN=heads,
        SIZE=inner // heads,
        num_warps=max(1, min(4, known * (inner // heads) // 128)),
    )
    return result


MOST_SLOTS = 4096
"""The most children of a prefix that one program takes."""


@triton.jit
def _child_totals(
    token,
    child,
    kind,
    node,
    logprob,
    logits,
    sums,
    totals,
    width,
    slots,
    pooled,
    stride,
    half,
    scale,
    SLOTS: tl.constexpr,
    FINAL: tl.constexpr,
    SUMMED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.load(node + row).to(tl.int64)
    begin = tl.load(child + at).to(tl.int64)
    end = tl.load(child + at + 1).to(tl.int64)
    slot = tl.arange(0, SLOTS)
    there = (slot < slots) & (begin + slot < end)
    symbol = tl.load(token + begin + slot, mask=there, other=0).to(tl.int64)
    score = tl.load(logits + row * stride + symbol, mask=there, other=0.0).to(tl.float32) * scale
    score = tl.where(there, score, -1e30)
    if SUMMED:
        total = tl.load(sums + row)
    else:
        top = tl.max(score, 0)
        total = top + tl.log(tl.sum(tl.where(there, tl.exp(score - top), 0.0), 0))
    result = tl.load(logprob + row) + score - total
    over = tl.load(kind + begin + slot, mask=there, other=0) >= FINAL
    nothing = float("-inf")
    query = row // width
    to = totals + query * (pooled + width * slots) + pooled + (row - query * width) * slots + slot
    tl.store(to, tl.where(there & over, result, nothing), mask=slot < slots)
    tl.store(to + half, tl.where(there & (over == 0), result, nothing), mask=slot < slots)


def child_totals(
    nodes: tuple[Tensor, Tensor, Tensor],
    node: Tensor,
    logprob: Tensor,
    logits: Tensor,
    sums: Tensor | None,
    totals: Tensor,
    pooled: int,
    slots: int,
    temperature: float,
    final: int,
) -> None:
    """See `kernels.child_totals`, and `Nodes` for symbols, children and kinds; totals are written behind the pool."""
    block = triton.next_power_of_2(slots)
    _child_totals[(node.numel(),)](
        *(*nodes, node.contiguous(), logprob.contiguous(), logits),
        logprob if sums is None else sums,
        totals,
        node.shape[1],
        slots,
        pooled,
        logits.stride(0),
        totals[0].numel(),
        1 / temperature,
        SLOTS=block,
        FINAL=final,
        SUMMED=sums is not None,
        num_warps=max(1, min(8, block // 128)),
    )
