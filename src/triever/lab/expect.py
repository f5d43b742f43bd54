"""What a recipe expects of its cells: numbers, and orders such as `dense < fused`, by labels or by values of axes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from triever.errors import UsageError, nearest
from triever.lab.toml_values import Table, check_keys, number, table

TOLERANCE = 0.01
MINUS = " - "
"""What stands between two cells where the difference of their values is meant."""
N = TypeVar("N", bound="Named")
Side: TypeAlias = tuple[str, str]
"""The label of a cell, and that of the one that is subtracted from it; "" for none."""


@dataclass(frozen=True)
class Named:
    """Something that a statement can name by its label or by values of axes."""

    label: str
    names: Mapping[str, str]  # a name of one of its values -> the axis of that value
    values: Mapping[str, object]  # axis -> value; none for a cell that was given by hand


@dataclass(frozen=True)
class Judging:
    """The measures and splits that all cells have, and those that a statement is about by default."""

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
    """Two cells: `less` should be below `more`, or, unless `strict`, not above it.

    Where another cell is subtracted from one of them, it is about how much more that one has.
    """

    less: str
    more: str
    strict: bool
    less_minus: str = ""
    more_minus: str = ""


@dataclass(frozen=True)
class Order:
    """A statement about the order of cells, and the pairs of cells that it compares."""

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
            raise UsageError(
                f"expect.values names {key!r}, but all values are of the split {by.split}", "set expect.split"
            )
        named = select(term, cells, "expect.values")
        if len(named) > 1:
            raise UsageError(
                f"expect.values names {len(named)} cells by {term!r}", f"name one cell, such as {named[0].label!r}"
            )
        entry = value if isinstance(value, Mapping) else {"value": value}
        check_keys(entry, ("value", "tolerance"), f"expect.values.{key}")
        near = number(entry.get("tolerance", tolerance), f"the tolerance of {key!r}")
        yield Expected(named[0].label, measure, number(entry.get("value"), f"the value of {key!r}"), near)


def order_of(statement: str, by: Judging, cells: Sequence[Named]) -> Order:
    """The order that a statement such as `a < b <= c` expects.

    Each sign gives all pairs of cells that differ only in what the statement names. A side may be a difference of two
    cells, `a - b < c - d`; then every name has to be that of one cell.
    """
    measure, splits, comparison = _scope(statement, by)
    terms = re.split(r"\s+(<=|<|>=|>)\s+", comparison)
    if len(terms) < 3:
        raise UsageError(f"the order {statement!r} has no comparison", 'write it as "a < b" or "a <= b", with spaces')
    pairs: list[Pair] = []
    for start in range(0, len(terms) - 2, 2):
        left, sign, right = terms[start : start + 3]
        strict = len(sign) == 1
        sides = _differences(statement, left, right, cells)
        if not sides:
            matched = _matched(statement, left, right, cells)
            sides = [((less.label, ""), (more.label, "")) for less, more in matched]
        for one, other in sides:
            (less, less_minus), (more, more_minus) = (one, other) if sign[0] == "<" else (other, one)
            pairs.append(Pair(less, more, strict, less_minus, more_minus))
    return Order(statement, measure, splits, tuple(pairs))


def _differences(statement: str, left: str, right: str, cells: Sequence[Named]) -> list[tuple[Side, Side]]:
    """Both sides, if one of them is a difference; else nothing."""
    labels = {cell.label for cell in cells}
    terms = [term.split(MINUS) if term not in labels else [term] for term in (left, right)]
    if max(map(len, terms)) > 2:
        raise UsageError(f"the order {statement!r} subtracts more than one cell", 'write it as "a - b < c - d"')
    if max(map(len, terms)) == 1:
        return []
    one, other = ([_only(term, statement, cells) for term in side] for side in terms)
    return [((one[0], one[1] if one[1:] else ""), (other[0], other[1] if other[1:] else ""))]


def _only(term: str, statement: str, cells: Sequence[Named]) -> str:
    """The label of the one cell that a term names."""
    selected = select(term, cells, f"the order {statement!r}")
    if len(selected) > 1:
        problem = f"the order {statement!r} names {len(selected)} cells by {term!r}"
        raise UsageError(problem, f"in a difference, name one cell, such as {selected[0].label!r}")
    return selected[0].label


def _matched(statement: str, left: str, right: str, cells: Sequence[Named]) -> list[tuple[Named, Named]]:
    lefts, rights = (select(term, cells, f"the order {statement!r}") for term in (left, right))
    fixed, also_fixed = _axes_named(left, lefts), _axes_named(right, rights)
    if lefts[0].values and rights[0].values and fixed != also_fixed:
        problem = f"the order {statement!r} compares values of different axes"
        raise UsageError(problem, "name the same axes on both sides")
    pairs = [(first, second) for first in lefts for second in rights if _alike(first, second, fixed | also_fixed)]
    if not pairs or any(first.label == second.label for first, second in pairs):
        raise UsageError(f"the order {statement!r} does not compare two different cells", "name two cells that differ")
    return pairs


def _axes_named(term: str, cells: Sequence[Named]) -> set[str]:
    if cells[0].label == term:
        return set(cells[0].values)
    return {cells[0].names[word] for word in _split(term)} - {""}


def _alike(first: Named, second: Named, fixed: set[str]) -> bool:
    """Whether two cells have the same values on all axes that both have, apart from the `fixed` ones."""
    free = (set(first.values) & set(second.values)) - fixed
    return all(first.values[axis] == second.values[axis] for axis in free)


def select(term: str, cells: Sequence[N], where: str) -> list[N]:
    """The cell with this label, or else all cells that have all of these values, such as `semantic, labelled`."""
    exact = [cell for cell in cells if cell.label == term]
    selected = exact or [cell for cell in cells if set(_split(term)) <= cell.names.keys()]
    if not selected:
        known = {name for cell in cells for name in (cell.label, *cell.names)}
        raise UsageError(f"{where} names {term!r}, which is not a cell", nearest(term, known))
    return selected


def _split(term: str) -> list[str]:
    return [word.strip() for word in term.split(", ")]


def _scope(statement: str, by: Judging) -> tuple[str, tuple[str, ...], str]:
    """The measure and the splits that stand before a colon, or the default ones; then the rest of the statement.

    >>> by = Judging(["Success@1", "RR@10"], ["dev.nq", "dev.trivia"], "Success@1", "dev.nq")
    >>> _scope("RR@10: a < b", by), _scope("dev.nq, dev.trivia: a < b", by)
    (('RR@10', ('dev.nq',), 'a < b'), ('Success@1', ('dev.nq', 'dev.trivia'), 'a < b'))
    """
    before, colon, rest = statement.partition(": ")
    named = _split(before) if colon else []
    for name in named:
        if "@" in name and name not in by.measures:
            raise UsageError(f"{statement!r} is about {name}, which is not measured", nearest(name, by.measures))
    if not named or not {*named} <= {*by.measures, *by.splits}:  # a colon of a cell's own name
        return by.measure, (by.split,), statement.strip()
    measures = [name for name in named if name in by.measures]
    if len(measures) > 1:
        raise UsageError(f"{statement!r} is about {len(measures)} measures", "write a statement for each")
    splits = tuple(name for name in named if name in by.splits)
    return next(iter(measures), by.measure), splits or (by.split,), rest.strip()
