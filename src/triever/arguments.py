"""What a person hands to a public function, checked where it comes in: a sentence instead of somebody's TypeError."""

from __future__ import annotations

import errno
import math
import operator
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from triever.errors import UsageError

T = TypeVar("T")


def as_path(path: str | os.PathLike[str]) -> Path:
    """The path, if the system could have a file there."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise UsageError(f"{brief(path)} is not a path", "give a string or a pathlib.Path")
    try:
        os.stat(text)
    except ValueError:  # what no name of a file can hold
        raise UsageError(f"the path {brief(text)} holds a NUL or half a character", "correct its name") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"the path {brief(text)} is too long", "give a shorter one") from None
    return Path(path)


def whole(value: Any, name: str, least: int = 1) -> int:
    """The value, if it is a whole number of at least so much; NumPy's count too."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        above = "above zero" if least == 1 else f"of {least} or more"
        raise UsageError(f"{name} = {brief(value)} should be a whole number {above}", f"for example: {name}=10")
    return number


def seconds(value: Any, name: str) -> float:
    """The value, if it is a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UsageError(f"{name} = {brief(value)} should be a number of seconds", f"for example: {name}=60")
    return value


def text(value: Any, name: str) -> str:
    """The value, if it is a text."""
    if not isinstance(value, str):
        raise UsageError(f"{name} = {brief(value)} should be text", "give a string")
    return value


def table(value: Any, name: str, example: str) -> Mapping[Any, Any]:
    """The value, if it is a mapping."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} = {brief(value)} should be a mapping", f"for example: {example}")
    return value


def listed(values: Iterable[T], kind: type[T], where: str, what: str) -> list[T]:
    """The values as a list, if each is of a kind; one value that is no list is refused, as are texts."""
    try:
        if isinstance(values, (kind, str, bytes, Mapping)):
            raise TypeError
        items = iter(values)
    except TypeError:
        hint = f"for one of them: {where}([one])"
        raise UsageError(f"{where} takes a list of {what}, not {type(values).__name__}", hint) from None
    found = list(items)
    for value in found:
        if not isinstance(value, kind):
            raise UsageError(f"{where} takes {what}, and {brief(value)} is none", f"give triever.{kind.__name__}(...)")
    return found


def brief(value: Any) -> str:
    """What a value looks like, on a part of a line."""
    return f"{value!r:.80}"
