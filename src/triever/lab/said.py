"""What a person may say in a TOML file: tables, texts and numbers, or a sentence that names the place."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from triever.errors import UsageError, nearest

Table: TypeAlias = Mapping[str, Any]


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
