"""Filters by metadata: which documents a search may find.

`{"year": ">=2020", "lang": ["de", "fr"]}` leaves documents from 2020 on, in German or French. A condition is a value
that metadata should equal, a text that begins with an operator, a range (`2010..2020`, both ends included), a list of
conditions of which one should hold, or a table of operators (`{">=": 2010, "<": 2020}`) which should all hold. A list
in metadata satisfies a condition if one of its values does. A document without the key satisfies nothing.

Numbers are compared as numbers and dates as dates, also where they are written as text: `<=2020` includes all of 2020.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import numpy as np

from triever.arguments import brief, table
from triever.data.store import MISSING, DocumentStore, Missing
from triever.errors import UsageError, nearest
from triever.validation import Json

Plain: TypeAlias = str | int | float | bool | None
Holds: TypeAlias = Callable[[Json], bool]
"""Whether a value of metadata satisfies a condition."""

EXAMPLE = 'for example: {"year": ">=2020", "lang": ["de", "fr"]}'
WHERE_EXAMPLE = "for example: --where 'year>=2020' --where lang=de,fr"
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
OPERATORS = (*ORDERS, "!=", "=")

_OPERATION = re.compile(r"\s*(>=|<=|!=|=|>|<)\s*(.*?)\s*", re.DOTALL)
_EXPRESSION = re.compile(r"\s*([^<>=!]+?)\s*(>=|<=|!=|=|>|<)\s*(.*?)\s*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?)?)?")


def condition(value: object, key: str) -> Holds:
    """The condition that a value stands for, as a test of what a document has under a key."""
    if isinstance(value, Mapping):
        if not value:
            raise UsageError(f"the filter for {key} has no operators", f'for example: {{"{key}": {{">=": 2010}}}}')
        return _each([(str(sign), operand) for sign, operand in value.items()], key)
    if isinstance(value, list | tuple | set | frozenset):
        if not value:
            raise UsageError(f"the filter for {key} has no values", EXAMPLE)
        choices = [condition(item, key) for item in value]
        return lambda found: any(holds(found) for holds in choices)
    if isinstance(value, str) and (parsed := _OPERATION.fullmatch(value)):
        return _each([(parsed[1], parsed[2])], key)
    return _each((_range(value) if isinstance(value, str) else None) or [("=", value)], key)


def _each(operations: Sequence[tuple[str, object]], key: str) -> Holds:
    """Whether a value satisfies all operations; of a list, one of its values should. With != alone, all should."""
    tests = [_test(sign, operand, key) for sign, operand in operations]
    enough = all if [sign for sign, _ in operations] == ["!="] else any

    def holds(found: Json) -> bool:
        values = found if isinstance(found, list) else [found]
        return enough(all(test(value) for test in tests) for value in values)

    return holds


def _test(sign: str, operand: object, key: str) -> Holds:
    if sign not in OPERATORS:
        raise UsageError(f"{sign!r} in the filter for {key} is no operator", f"use one of {', '.join(OPERATORS)}")
    if not isinstance(operand, str | int | float | bool | None) or (sign in ORDERS and operand in ("", None)):
        raise UsageError(f"{key} cannot be compared with {brief(operand)}", "use a number, a text or a date")
    if sign in ORDERS:
        return _ordered(sign, operand)
    equal = _equal(operand)
    return equal if sign == "=" else lambda found: not equal(found)


def _range(text: str) -> list[tuple[str, str]] | None:
    """The ends of a range of numbers or dates, with their operators; None if a text is none."""
    low, dots, high = (part.strip() for part in text.partition(".."))
    ends = [(sign, end) for sign, end in ((">=", low), ("<=", high)) if end]
    is_range = dots and ends and all(_NUMBER.fullmatch(end) or _DATE.fullmatch(end) for _, end in ends)
    return ends if is_range else None


def _equal(operand: Plain) -> Holds:
    def test(found: Json) -> bool:
        if isinstance(found, bool) or isinstance(operand, bool):
            return str(found).casefold() == str(operand).casefold()
        if found is None or operand is None:
            return found is operand
        if isinstance(found, str) and isinstance(operand, str):
            return found == operand
        return (number := _number(found)) is not None and number == _number(operand)

    return test


def _ordered(sign: str, operand: Plain) -> Holds:
    compare, number, span = ORDERS[sign], _number(operand), _span(operand)

    def test(found: Json) -> bool:
        if number is not None and (other := _number(found)) is not None:
            return compare(other, number)
        if span is not None and (there := _span(found)) is not None:
            border = span[0] if sign in (">=", "<") else span[1]
            return there[0] >= border if ">" in sign else there[0] < border
        is_text = number is None and span is None and isinstance(found, str) and isinstance(operand, str)
        return is_text and compare(found, operand)

    return test


def _number(value: Json) -> float | int | None:
    """The number that a value is or is written as."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str) or not _NUMBER.fullmatch(value.strip()):
        return None
    return int(value) if value.strip().lstrip("+-").isdecimal() else float(value)


def _span(value: Json) -> tuple[datetime, datetime] | None:
    """The time at which a date begins, and at which it has ended: a year, a month, a day or a moment."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not (parsed := _DATE.fullmatch(text)):
        return None
    year, month, day = (int(part) if part else None for part in parsed.groups())
    try:
        if month is None or day is None:
            begin = datetime(int(year or 0), month or 1, 1)
            return begin, _next_month(begin) if month else datetime(begin.year + 1, 1, 1)
        begin = datetime.fromisoformat(text)
        begin = begin.astimezone(UTC).replace(tzinfo=None) if begin.tzinfo else begin
        return begin, begin + (timedelta(days=1) if len(text) == len("2020-01-01") else timedelta(microseconds=1))
    except (ValueError, OverflowError):  # no such day
        return None


def _next_month(begin: datetime) -> datetime:
    return datetime(begin.year + begin.month // 12, begin.month % 12 + 1, 1)


@dataclass(frozen=True)
class Filter:
    """Conditions by key, all of which should hold: `Filter.of({"year": ">=2020"}).rows(store)`."""

    conditions: Mapping[str, Holds]
    mark: str  # the same for equal filters

    @classmethod
    def of(cls, where: Mapping[str, object]) -> Filter:
        """The filter that a table of conditions describes."""
        table(where, "where", '{"year": ">=2020"}')
        conditions = {str(key): condition(value, str(key)) for key, value in where.items()}
        return cls(conditions, repr(sorted(where.items(), key=lambda item: str(item[0]))))

    def rows(self, store: DocumentStore) -> np.ndarray:
        """(documents,) bool: which documents satisfy it; an error names a key that no document has."""
        keep = np.ones(len(store), bool)
        for key, holds in self.conditions.items():
            values = store.metadata(key)
            if len(store) and all(value is MISSING for value in values):
                raise UsageError(f"no document has the metadata key {key!r}", nearest(key, store.metadata_keys()))
            keep &= _which(values, holds)
        return keep


def _which(values: Sequence[Json | Missing], holds: Holds) -> np.ndarray:
    """(documents,) bool: whether each value satisfies a condition; equal values are looked at once."""
    known: dict[Hashable, bool] = {}

    def holds_for(value: Json | Missing) -> bool:
        if isinstance(value, Missing):
            return False
        if isinstance(value, list | dict):
            return holds(value)
        key = type(value), value
        if key not in known:
            known[key] = holds(value)
        return known[key]

    return np.fromiter(map(holds_for, values), bool, len(values))


def parsed_where(expressions: Iterable[str]) -> dict[str, object]:
    """The table of conditions that expressions such as `year>=2020` and `lang=de,fr` describe.

    >>> parsed_where(["year>=2010", "year<2020", "lang=de, fr"])
    {'year': {'>=': '2010', '<': '2020'}, 'lang': ['de', 'fr']}
    """
    orders: dict[str, dict[str, str]] = {}
    others: dict[str, object] = {}
    for expression in expressions:
        parsed = _EXPRESSION.fullmatch(expression)
        if not parsed or not parsed[3]:
            raise UsageError(f"--where {expression!r} is no condition", WHERE_EXAMPLE)
        key, sign, text = parsed.groups()
        if key in others or (key in orders and (sign not in ORDERS or sign in orders[key])):
            raise UsageError(f"--where has two conditions for {key}", f"join them: --where '{key}=one,two'")
        if sign in ORDERS:
            orders.setdefault(key, {})[sign] = text
        else:
            others[key] = _listed(sign, text)
    return {**orders, **others}


def _listed(sign: str, text: str) -> object:
    """The values of a condition; several are separated by commas."""
    values = [part.strip() for part in text.split(",") if part.strip()]
    if sign == "=":
        return values[0] if len(values) == 1 else values
    if len(values) > 1:
        raise UsageError(f"!= takes one value, not {text!r}", "give a value that is not wanted")
    return {"!=": text}
