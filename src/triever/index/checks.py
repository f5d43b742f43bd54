"""Checks of the arguments of an index; an error says what is wrong."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from triever.errors import UsageError
from triever.index.top import CHUNK


def at_least(name: str, value: int, minimum: int) -> None:
    """Raise an error that names the option if its value is below the minimum."""
    if value < minimum:
        raise UsageError(f"{name} = {value} should be at least {minimum}", "leave it out for the usual value")


def checked(vectors: np.ndarray, dtype: str) -> np.ndarray:
    """Vectors (n, d) of the right type, all finite."""
    array = np.asarray(vectors)
    if array.ndim != 2 or not array.shape[1] or array.dtype.kind not in "fiu":
        problem = f"the vectors have the shape {array.shape} and the type {array.dtype}"
        raise UsageError(problem, "give an array of numbers (n, d)")
    with np.errstate(over="ignore"):  # numbers too large for float16 become infinite, and are refused below
        array = np.ascontiguousarray(array.astype(dtype, copy=False))
    rows = max(1, CHUNK // array.shape[1])
    for first in range(0, len(array), rows):
        if not np.isfinite(array[first : first + rows]).all():
            raise UsageError(f"some vectors are not finite as {dtype}", "check the model that made them")
    return array


def checked_tokens(flat: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors as float16, all finite, and the starts of the documents in them."""
    flat, starts = checked(flat, "float16"), np.asarray(starts, np.int64)
    if starts.ndim != 1 or not len(starts) or starts[0] or starts[-1] != len(flat) or (np.diff(starts) < 0).any():
        raise UsageError(f"starts do not divide the {len(flat)} tokens", f"give starts that rise from 0 to {len(flat)}")
    return flat, starts


def checked_queries(
    queries: np.ndarray | Tensor, mask: np.ndarray | Tensor | None, width: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Queries (q, length, d) as float32, 0 where masked, and their mask (q, length), on the device."""
    asked = _tensor(queries).to(device, torch.float32)
    if asked.ndim != 3 or asked.shape[2] != width:
        problem = f"the queries have the shape {tuple(asked.shape)}, but token vectors have {width} numbers"
        raise UsageError(problem, "give an array (queries, tokens, numbers) from the encoder of the documents")
    counts = torch.ones(asked.shape[:2], dtype=torch.bool) if mask is None else _tensor(mask).bool()
    if counts.shape != asked.shape[:2]:
        raise UsageError(f"the mask has the shape {tuple(counts.shape)}", f"give a mask of {tuple(asked.shape[:2])}")
    counts = counts.to(device)
    if not asked[counts].isfinite().all():
        raise UsageError("some query vectors are not finite", "check the model that made them")
    return asked.masked_fill(~counts[..., None], 0.0), counts


def _tensor(values: np.ndarray | Tensor) -> Tensor:
    """A tensor; an array is copied, because torch wants writable arrays."""
    return values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))


def same_width(new: np.ndarray, width: int) -> None:
    """Raise an error unless new vectors (n, d) are as wide as the old ones."""
    if new.shape[1] != width:
        raise UsageError(f"new vectors have {new.shape[1]} numbers, but old ones {width}", "use one encoder for both")


def mask_of(keep: np.ndarray, count: int) -> np.ndarray:
    """The mask as a bool array; an error unless its shape is (count,)."""
    keep = np.asarray(keep)
    if keep.shape != (count,) or keep.dtype != bool:
        raise UsageError(
            f"keep has the shape {keep.shape} and the type {keep.dtype}", f"give {count} values, true or false"
        )
    return keep
