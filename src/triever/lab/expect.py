"""What a recipe expects of its cells: numbers, and orders, by the names of the cells or of their values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from triever.errors import UsageError, nearest
from triever.lab.toml_values import Table, check_keys, number, table

TOLERANCE = 0.01
N = TypeVar("N", bound="Named")


@dataclass(frozen=True)
class Named:
    """What a statement can name: a label, or values of axes."""

    label: str
    names: Mapping[str, str]  # a name of one of its values -> the axis of that value
    values: Mapping[str, Any]  # axis -> value; none for a cell that was given by hand


@dataclass(frozen=True)
class Judging:
    """What cells can be judged by, all of them, and what they are judged by where nothing is said."""

    measures: Sequence[str]
    splits: Sequence[str]
    measure: str
    split: str


@dataclass(frozen=True)
class Expected:
    """A number that a cell should give."""

    cell: str
    measure: str
    value: float
    tolerance: float


@dataclass(frozen=True)
class Pair:
    """Two cells of which the first should be below the second, or at most not above it."""

    less: str
    more: str
    strict: bool


@dataclass(frozen=True)
class Order:
    """What a statement says of which cells."""

    statement: str
    measure: str
    splits: tuple[str, ...]
    pairs: tuple[Pair, ...]


def expected_values(expect: Table, by: Judging, cells: Sequence[Named]) -> Iterator[Expected]:
    """The numbers of `values`, each with the one cell that it names."""
    tolerance = number(expect.get("tolerance", TOLERANCE), "expect.tolerance")
    for key, value in table(expect.get("values", {}), "expect.values").items():
        measure, splits, term = _scope(key, by)
        if splits != (by.split,):
            raise UsageError(f"expect.values names {key!r}, and values are those of {by.split}", "set expect.split")
        found = select(term, cells, "expect.values")
        if len(found) > 1:
            raise UsageError(f"expect.values names {len(found)} cells by {term!r}", f"such as {found[0].label!r}")
        one = value if isinstance(value, Mapping) else {"value": value}
        check_keys(one, ("value", "tolerance"), f"expect.values.{key}")
        near = number(one.get("tolerance", tolerance), f"the tolerance of {key!r}")
        yield Expected(found[0].label, measure, number(one.get("value"), f"the value of {key!r}"), near)


def order_of(said: str, by: Judging, cells: Sequence[Named]) -> Order:
    """`a < b <= c`: for each sign, all pairs of cells that differ in nothing but what the statement names."""
    measure, splits, statement = _scope(said, by)
    terms = re.split(r"\s+(<=|<|>=|>)\s+", statement)
    if len(terms) < 3:
        raise UsageError(f"the order {said!r} compares nothing", 'write it as "a < b" or "a <= b", with spaces')
    pairs: list[Pair] = []
    for place in range(0, len(terms) - 2, 2):
        left, sign, right = terms[place : place + 3]
        for less, more in _matched(said, left, right, cells):
            first, second = (less, more) if sign[0] == "<" else (more, less)
            pairs.append(Pair(first.label, second.label, strict=len(sign) == 1))
    return Order(said, measure, splits, tuple(pairs))


def _matched(said: str, left: str, right: str, cells: Sequence[Named]) -> list[tuple[Named, Named]]:
    ones, others = (select(term, cells, f"the order {said!r}") for term in (left, right))
    fixed, also_fixed = _axes_named(left, ones), _axes_named(right, others)
    if ones[0].values and others[0].values and fixed != also_fixed:
        raise UsageError(f"the order {said!r} compares values of different axes", "name the same axes on both sides")
    pairs = [(one, other) for one in ones for other in others if _alike(one, other, fixed | also_fixed)]
    if not pairs or any(one.label == other.label for one, other in pairs):
        raise UsageError(f"the order {said!r} compares a cell with none or with itself", "name two that differ")
    return pairs


def _axes_named(term: str, cells: Sequence[Named]) -> set[str]:
    if cells[0].label == term:
        return set(cells[0].values)
    return {cells[0].names[word] for word in _split(term)} - {""}


def _alike(one: Named, other: Named, fixed: set[str]) -> bool:
    """Whether two cells have the same values on the axes that both have and that are not named."""
    free = (set(one.values) & set(other.values)) - fixed
    return all(one.values[axis] == other.values[axis] for axis in free)


def select(term: str, cells: Sequence[N], where: str) -> list[N]:
    """The cell of this label, or all that have all of these values: `semantic, labelled`."""
    exact = [cell for cell in cells if cell.label == term]
    found = exact or [cell for cell in cells if set(_split(term)) <= cell.names.keys()]
    if not found:
        known = {name for cell in cells for name in (cell.label, *cell.names)}
        raise UsageError(f"{where} names {term!r}, which is no cell", nearest(term, known))
    return found


def _split(term: str) -> list[str]:
    return [word.strip() for word in term.split(", ")]


def _scope(said: str, by: Judging) -> tuple[str, tuple[str, ...], str]:
    """The measure and the splits that stand before a colon, or the usual ones, and the rest.

    >>> by = Judging(["Success@1", "RR@10"], ["dev.nq", "dev.trivia"], "Success@1", "dev.nq")
    >>> _scope("RR@10: a < b", by), _scope("dev.nq, dev.trivia: a < b", by)
    (('RR@10', ('dev.nq',), 'a < b'), ('Success@1', ('dev.nq', 'dev.trivia'), 'a < b'))
    """
    before, colon, rest = said.partition(": ")
    named = _split(before) if colon else []
    for one in named:
        if "@" in one and one not in by.measures:
            raise UsageError(f"{said!r} is about {one}, which is not measured", nearest(one, by.measures))
    if not named or not {*named} <= {*by.measures, *by.splits}:  # a colon of a cell's own name
        return by.measure, (by.split,), said.strip()
    measures = [one for one in named if one in by.measures]
    if len(measures) > 1:
        raise UsageError(f"{said!r} is about {len(measures)} measures", "write a statement for each")
    splits = tuple(one for one in named if one in by.splits)
    return next(iter(measures), by.measure), splits or (by.split,), rest.strip()
