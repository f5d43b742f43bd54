"""Checks of the arguments of public functions: each returns the value, or raises an error in one plain sentence."""

from __future__ import annotations

import errno
import math
import operator
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, SupportsIndex, TypeVar

from triever.errors import UsageError

T = TypeVar("T")


def as_path(path: str | os.PathLike[str]) -> Path:
    """The path, if it is a name that a file can have."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise UsageError(f"{brief(path)} is not a path", "give a string or a pathlib.Path")
    try:
        os.stat(text)
    except ValueError:  # the name has a character that no file name can have
        raise UsageError(
            f"the path {brief(text)} holds a NUL character or half of a surrogate pair", "rename it"
        ) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"the path {brief(text)} is too long", "give a shorter path") from None
    return Path(path)


def whole(value: SupportsIndex, name: str, minimum: int = 1) -> int:
    """The value, if it is a whole number of at least `minimum`; it may be one of NumPy's."""
    try:
        number = operator.index(value)
    except TypeError:
        number = minimum - 1
    if number < minimum:
        above = "above zero" if minimum == 1 else f"of {minimum} or more"
        raise UsageError(f"{name} = {brief(value)} should be a whole number {above}", f"for example: {name}=10")
    return number


def seconds(value: object, name: str) -> float:
    """The value, if it is a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UsageError(f"{name} = {brief(value)} should be a number of seconds", f"for example: {name}=60")
    return value


def text(value: object, name: str) -> str:
    """The value, if it is text."""
    if not isinstance(value, str):
        raise UsageError(f"{name} = {brief(value)} should be text", "give a string")
    return value


def table(value: object, name: str, example: str) -> Mapping[Any, Any]:
    """The value, if it is a mapping."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} = {brief(value)} should be a mapping", f"for example: {example}")
    return value


def listed(values: Iterable[T], kind: type[T], where: str, noun: str) -> list[T]:
    """The values as a list, if each is a `kind`; a single value, text and mappings are refused. `noun` names them."""
    try:
        if isinstance(values, (kind, str, bytes, Mapping)):
            raise TypeError
        items = iter(values)
    except TypeError:
        hint = f"put a single one into a list: {where}([...])"
        raise UsageError(f"{where} takes a list of {noun}, not {type(values).__name__}", hint) from None
    checked = list(items)
    for value in checked:
        if not isinstance(value, kind):
            problem = f"{where} takes {noun}, but one of them is {brief(value)}"
            raise UsageError(problem, "give strings" if kind is str else f"give triever.{kind.__name__}(...)")
    return checked


def brief(value: object) -> str:
    """The first 80 characters of a value, for an error message."""
    return f"{value!r:.80}"
