"""Filters by metadata: which documents a search may find.

`{"year": ">=2020", "lang": ["de", "fr"]}` leaves documents from 2020 on, in German or French. A condition is a value
that metadata should equal, a text that begins with an operator, a range (`2010..2020`, both ends included), a list of
conditions of which one should hold, or a table of operators (`{">=": 2010, "<": 2020}`) which should all hold. A list
in metadata satisfies a condition if one of its values does. A document without the key satisfies nothing.

Numbers are compared as numbers and dates as dates, also where they are written as text: `<=2020` includes all of 2020.
A text that cannot be compared with what documents have under a key, such as `>=19OO` with years, is an error.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
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


@dataclass(frozen=True)
class Operation:
    """One comparison with what a document has under a key: `Operation(">=", "2020")`."""

    sign: str
    operand: Plain

    @classmethod
    def of(cls, sign: str, operand: object, key: str) -> Operation:
        """A comparison that is possible; an error names the key."""
        if sign not in OPERATORS:
            raise UsageError(f"{sign!r} in the filter for {key} is no operator", f"use one of {', '.join(OPERATORS)}")
        if not isinstance(operand, str | int | float | bool | None) or (sign in ORDERS and operand in ("", None)):
            raise UsageError(f"{key} cannot be compared with {brief(operand)}", "use a number, a text or a date")
        return cls(sign, operand)

    @property
    def test(self) -> Holds:
        """Whether a single value satisfies it."""
        if self.sign in ORDERS:
            return _ordered(self.sign, self.operand)
        equal = _equal(self.operand)
        return equal if self.sign == "=" else lambda value: not equal(value)


@dataclass(frozen=True)
class Condition:
    """What a key of metadata should satisfy: all operations of one of the choices."""

    choices: tuple[tuple[Operation, ...], ...]

    @classmethod
    def of(cls, value: object, key: str) -> Condition:
        """The condition that a value stands for."""
        if isinstance(value, list | tuple | set | frozenset):
            if not value:
                raise UsageError(f"the filter for {key} has no values", EXAMPLE)
            return cls(tuple(choice for item in value for choice in cls.of(item, key).choices))
        return cls((tuple(Operation.of(sign, operand, key) for sign, operand in _operations(value, key)),))

    @property
    def operations(self) -> list[Operation]:
        """The operations of all choices."""
        return [operation for choice in self.choices for operation in choice]

    @property
    def holds(self) -> Holds:
        """Whether a value satisfies it."""
        tests = [_each(choice) for choice in self.choices]
        return tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)


def _operations(value: object, key: str) -> list[tuple[str, object]]:
    """The operators and operands that a value stands for, all of which should hold."""
    if isinstance(value, Mapping):
        if not value:
            raise UsageError(f"the filter for {key} has no operators", f'for example: {{"{key}": {{">=": 2010}}}}')
        return [(str(sign), operand) for sign, operand in value.items()]
    if isinstance(value, str) and (parsed := _OPERATION.fullmatch(value)):
        return [(parsed[1], parsed[2])]
    ends = _range(value) if isinstance(value, str) else None
    return [*ends] if ends else [("=", value)]


def _each(operations: Sequence[Operation]) -> Holds:
    """Whether a value satisfies all operations; of a list, one of its values should. With != alone, all should."""
    tests = [operation.test for operation in operations]
    enough = all if [operation.sign for operation in operations] == ["!="] else any

    def holds(found: Json) -> bool:
        values = found if isinstance(found, list) else [found]
        return enough(all(test(value) for test in tests) for value in values)

    return holds


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

    conditions: Mapping[str, Condition]
    mark: str  # the same for equal filters

    @classmethod
    def of(cls, where: Mapping[str, object]) -> Filter:
        """The filter that a table of conditions describes."""
        table(where, "where", '{"year": ">=2020"}')
        conditions = {str(key): Condition.of(value, str(key)) for key, value in where.items()}
        return cls(conditions, repr(sorted(where.items(), key=lambda item: str(item[0]))))

    def rows(self, store: DocumentStore) -> np.ndarray:
        """(documents,) bool: which documents satisfy it.

        An error names a key that no document has, or a text that cannot be compared with what documents have.
        """
        keep = np.ones(len(store), bool)
        for key, condition in self.conditions.items():
            values = store.metadata(key)
            if len(store) and all(value is MISSING for value in values):
                raise UsageError(f"no document has the metadata key {key!r}", nearest(key, store.metadata_keys()))
            _check_operands(key, condition, values)
            keep &= _which(values, condition.holds)
        return keep

    def slips(self, store: DocumentStore) -> list[str]:
        """For each wanted text that no document has and that looks like a slip, what documents have instead."""
        slips: list[str] = []
        for key, condition in self.conditions.items():
            wanted = [operation.operand for operation in condition.operations if operation.sign == "="]
            texts = [operand for operand in wanted if isinstance(operand, str)]
            known = _plain_values(store.metadata(key)) if texts else []
            slips += filter(None, (_slip(key, text, known) for text in texts))
        return slips


def _slip(key: str, wanted: str, known: Sequence[str | int | float]) -> str:
    """What documents have under a key in place of a text: numbers, or the same text in another case."""
    if wanted in known:
        return ""
    if known and _is_only_text(wanted) and all(_number(value) is not None for value in known):
        return _no_number(key, wanted)
    spellings = [text for text in known if isinstance(text, str) and text.casefold() == wanted.casefold()]
    return f"{key} is {min(spellings)!r} in some documents, and never {wanted!r}" if spellings else ""


def _no_number(key: str, operand: Plain) -> str:
    return f"{key} holds numbers, and {operand!r} is none"


def _check_operands(key: str, condition: Condition, values: Sequence[Json | Missing]) -> None:
    """Refuse a text that is neither a number nor a date where all documents have numbers."""
    texts = [operation for operation in condition.operations if _is_only_text(operation.operand)]
    if not texts or any(_number(value) is None for value in _singles(values)):  # the first text ends the search
        return
    known = _plain_values(values)
    if not known:
        return
    numbers = [number for value in known if (number := _number(value)) is not None]
    # A text may equal a text, also where those of all documents are digits, such as the codes of places.
    have_texts = any(isinstance(value, str) for value in known)
    for operation in texts:
        if operation.sign in ORDERS or not have_texts:
            examples = " or ".join(map(str, dict.fromkeys((min(numbers), max(numbers)))))
            hint = f"compare it with a number, such as {examples}"
            raise UsageError(_no_number(key, operation.operand), hint)


def _is_only_text(operand: Plain) -> bool:
    return isinstance(operand, str) and _number(operand) is None and _span(operand) is None


def _plain_values(values: Sequence[Json | Missing]) -> list[str | int | float]:
    """The different texts, numbers and truth values among what documents have, also inside of lists."""
    known: dict[Hashable, str | int | float] = {}
    for single in _singles(values):
        known.setdefault((type(single), single), single)
    return [*known.values()]


def _singles(values: Sequence[Json | Missing]) -> Iterator[str | int | float]:
    """The texts, numbers and truth values among what documents have, one after the other."""
    for value in values:
        for single in value if isinstance(value, list) else [value]:
            if isinstance(single, str | int | float):
                yield single


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
