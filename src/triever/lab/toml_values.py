"""What a person may say in a TOML file: tables, texts and numbers, or a sentence that names the place.

Also how one table is laid over another.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from triever.errors import UsageError, nearest

Table: TypeAlias = Mapping[str, Any]

MARK = "@"
"""What stands before the name of a part where it is used as a value."""


@contextmanager
def placed(where: str) -> Generator[None]:
    """Say where in the recipe a mistake is."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{where}{error.problem}", error.hint) from error


def check_keys(said: Table, known: Sequence[str], where: str, what: str = "a key") -> None:
    """Refuse a key that nothing reads, and name its nearest neighbour."""
    for key in said:
        if key not in known:
            raise UsageError(f"{key} is not {what} of {where}", nearest(key, known))


def table(value: Any, where: str) -> Table:
    """The value, if it is a table."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} = {value!r} should be a table", f"for example: [{where}]")
    return value


def table_at(said: Table, key: str) -> Table:
    """The table of a key; an empty one where nothing was said."""
    return table(said.get(key, {}), key)


def text(value: Any, where: str) -> str:
    """The value, if it is a text; without spaces around it."""
    if not isinstance(value, str):
        raise UsageError(f"{where} = {value!r} should be text", "put it between quotes")
    return value.strip()


def texts(value: Any, where: str) -> list[str]:
    """The value, if it is a list of texts."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UsageError(f"{where} = {value!r} should be a list of texts", f'for example: {where} = ["..."]')
    return [one.strip() for one in value]


def whole(value: Any, where: str) -> int:
    """The value, if it is a whole number above zero."""
    if type(value) is not int or value < 1:
        raise UsageError(f"{where} = {value!r} should be a whole number above zero", "correct it")
    return value


def yes_or_no(value: Any, where: str) -> bool:
    """The value, if it is true or false."""
    if not isinstance(value, bool):
        raise UsageError(f"{where} = {value!r} should be true or false", "without quotes")
    return value


def number(value: Any, where: str) -> float:
    """The value, if it is a number that can count something."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise UsageError(f"{where} = {value!r} should be a number that is not negative", "correct it")
    return float(value)


def part_name(value: Any) -> str | None:
    """The name of the part that a value stands for, if it stands for one."""
    return value.removeprefix(MARK) if isinstance(value, str) and value.startswith(MARK) else None


def over(values: Table, more: Table) -> dict[str, Any]:
    """Both, the second where they differ. Tables inside are joined, unless the second is of another kind.

    >>> over({"docids": "semantic", "training": {"steps": 6}}, {"docids": {"branch": 10}, "training": {"batch": 4}})
    {'docids': {'kind': 'semantic', 'branch': 10}, 'training': {'steps': 6, 'batch': 4}}
    """
    return {**values, **{key: _over_one(as_table(values.get(key)), value) for key, value in more.items()}}


def _over_one(old: Table, new: Any) -> Any:
    if not isinstance(new, Mapping) or new.get("kind", old.get("kind")) != old.get("kind"):
        return new
    return over(old, new)


def as_table(value: Any) -> Table:
    """A table as it is; a name alone is the kind of one."""
    return value if isinstance(value, Mapping) else {"kind": value} if isinstance(value, str) else {}
