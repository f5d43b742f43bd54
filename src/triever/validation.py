"""Checks of the content of files before anything relies on it; a ValueError says what is wrong.

Every check looks at an array once, without a copy of it, so that opening an artifact stays as quick as reading it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
"""A value that a JSON file can hold."""

BLOCK = 2**20
"""How many numbers are checked together."""
INDICES = ("int32", "int64")
"""The types of numbers that say where something lies."""
FLOATS = ("float16", "float32")
"""The types of vectors."""


def require(truth: object, problem: str) -> None:
    """Raise a ValueError that names the problem, unless the condition holds."""
    if not truth:
        raise ValueError(problem)


def require_array(array: np.ndarray, name: str, types: tuple[str, ...], shape: tuple[int | None, ...]) -> np.ndarray:
    """The array, if it has one of these types, by NumPy's names, and its shape fits; None fits any size."""
    fits = array.ndim == len(shape) and all(
        wanted in (None, size) for wanted, size in zip(shape, array.shape, strict=True)
    )
    if array.dtype not in [np.dtype(name) for name in types] or not fits:
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} has the type {array.dtype} and the shape {array.shape}, not ({sizes})")
    return array


def require_starts(starts: np.ndarray, name: str, rows: int, total: int) -> np.ndarray:
    """The array, if it says where each of `rows` rows begins in a flat array of `total` numbers."""
    require_array(starts, name, INDICES, (rows + 1,))
    rises = starts[0] == 0 and starts[-1] == total and (starts[1:] >= starts[:-1]).all()
    require(rises, f"{name} does not rise from 0 to {total}")
    return starts


def require_within(numbers: np.ndarray, name: str, low: int, high: int) -> np.ndarray:
    """The array, if all its whole numbers are at least `low` and below `high`."""
    if numbers.size:
        require(low <= int(numbers.min()) and int(numbers.max()) < high, f"{name} has numbers outside {low} to {high}")
    return numbers


def require_finite(numbers: np.ndarray, name: str) -> np.ndarray:
    """The array, if none of its numbers is infinite or not a number."""
    require(is_finite(numbers), f"{name} holds numbers that are not finite")
    return numbers


def is_finite(numbers: np.ndarray) -> bool:
    """Whether none of the numbers is infinite or not a number.

    A sum is finite only if its parts are, and takes a fraction of the time; where it overflows, every number is
    looked at. Of two bytes, those of the exponent are looked at: no processor adds such numbers quickly.
    """
    flat = numbers.reshape(-1)
    return all(_is_finite(flat[first : first + BLOCK]) for first in range(0, len(flat), BLOCK))


def _is_finite(block: np.ndarray) -> bool:
    if block.dtype == np.float16:
        return int((block.view(np.uint16) & 0x7FFF).max()) < 0x7C00
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.add.reduce(block)) or np.isfinite(block).all())


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that holds a number that is not finite; None where all are finite.

    A sum that is finite has only finite parts, and it takes a fraction of the time; it may overflow without them.
    """
    for name, tensor in tensors.items():
        fractional = tensor.is_floating_point() or tensor.is_complex()
        if fractional and not tensor.sum().isfinite() and not tensor.isfinite().all():
            return name
    return None


def require_table(values: Mapping[str, object], name: str) -> dict[str, Any]:
    """An object inside a JSON object; an empty one if the key is missing, as in files of earlier versions."""
    value = values.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {str(value)[:80]}, not a table")
    return dict(value)


def require_text(values: Mapping[str, object], name: str) -> str:
    """A text inside a JSON object, if it is there."""
    value = values.get(name)
    require(isinstance(value, str), f"{name} is {str(value)[:80]} where text should be")
    return str(value)


def require_list(values: Mapping[str, object], name: str) -> list[Any]:
    """A list inside a JSON object; an empty one if the key is missing, as in files of earlier versions."""
    value = values.get(name, [])
    if not isinstance(value, list):
        raise ValueError(f"{name} is {str(value)[:80]}, not a list")
    return list(value)


def require_numbers(values: Any, name: str, count: int | None = None) -> tuple[float, ...]:
    """A list of finite numbers of a JSON object, if it has `count` of them."""
    listed = isinstance(values, list) and all(type(value) in (int, float) and math.isfinite(value) for value in values)
    require(listed and count in (None, len(values)), f"{name} is {str(values)[:80]} where numbers should be")
    return tuple(float(value) for value in values)


def require_count(values: Mapping[str, object], name: str, minimum: int = 0) -> int:
    """A whole number of a JSON object, if it is there and not below `minimum`."""
    value = values.get(name)
    if type(value) is not int or value < minimum:
        raise ValueError(f"{name} is {value!r}, not a whole number")
    return value


def opened_tokenizer(value: object) -> Tokenizer:
    """A tokenizer of the tokenizers library from its JSON value; a ValueError if it is none."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(json.dumps(value))
    except BaseException as error:  # of what it does not expect it panics, which is no Exception
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ValueError(f"the tokenizer cannot be made: {str(error)[:200]}") from error
        raise
