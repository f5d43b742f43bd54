"""Checks of the values that a recipe's TOML file holds, and how one table is laid over another.

A check returns the value with its type, or raises an error that names the key.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from triever.errors import UsageError, nearest

Table: TypeAlias = Mapping[str, Any]
"""A table of a TOML file; a value in it is of no known type until one of the functions here has checked it."""

MARK = "@"
"""What stands before the name of a part where it is used as a value."""


@contextmanager
def placed(where: str) -> Generator[None]:
    """Put the place of a mistake, `where`, in front of its sentence."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{where}{error.problem}", error.hint) from error


def check_keys(values: Table, known: Sequence[str], where: str, kind: str = "a key") -> None:
    """Refuse a key that nothing reads, and name its nearest neighbour."""
    for key in values:
        if key not in known:
            raise UsageError(f"{key} is not {kind} of {where}", nearest(key, known))


def table(value: object, where: str) -> Table:
    """The value, if it is a table."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} = {value!r} should be a table", f"for example: [{where}]")
    return value


def table_at(values: Table, key: str) -> Table:
    """The table of a key; an empty one if the key is missing."""
    return table(values.get(key, {}), key)


def text(value: object, where: str) -> str:
    """The value without spaces around it, if it is text."""
    if not isinstance(value, str):
        raise UsageError(f"{where} = {value!r} should be text", "put it between quotes")
    return value.strip()


def texts(value: object, where: str) -> list[str]:
    """The value, if it is a list of texts."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{where} = {value!r} should be a list of texts", f'for example: {where} = ["..."]')
    return [item.strip() for item in value]


def whole(value: object, where: str) -> int:
    """The value, if it is a whole number above zero."""
    if type(value) is not int or value < 1:
        raise UsageError(f"{where} = {value!r} should be a whole number above zero", "correct it")
    return value


def yes_or_no(value: object, where: str) -> bool:
    """The value, if it is true or false."""
    if not isinstance(value, bool):
        raise UsageError(f"{where} = {value!r} should be true or false", "write it without quotes")
    return value


def number(value: object, where: str) -> float:
    """The value, if it is a finite number and not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise UsageError(f"{where} = {value!r} should be a number that is not negative", "correct it")
    return float(value)


def part_name(value: object) -> str | None:
    """The name of the part that a value such as `@name` stands for; None for any other value."""
    return value.removeprefix(MARK) if isinstance(value, str) and value.startswith(MARK) else None


def over(values: Table, more: Table) -> dict[str, Any]:
    """The first table with the values of the second laid over it.

    Tables inside are joined in the same way, unless the second names another kind.

    >>> over({"docids": "semantic", "training": {"steps": 6}}, {"docids": {"branch": 10}, "training": {"batch": 4}})
    {'docids': {'kind': 'semantic', 'branch': 10}, 'training': {'steps': 6, 'batch': 4}}
    """
    return {**values, **{key: _laid_over(as_table(values.get(key)), value) for key, value in more.items()}}


def _laid_over(old: Table, new: object) -> object:
    if not isinstance(new, Mapping) or new.get("kind", old.get("kind")) != old.get("kind"):
        return new
    return over(old, new)


def as_table(value: object) -> Table:
    """A table as it is; text alone is the kind of one, and anything else is an empty one."""
    return value if isinstance(value, Mapping) else {"kind": value} if isinstance(value, str) else {}
