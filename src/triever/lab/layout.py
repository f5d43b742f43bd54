"""From the tables of a recipe to its cells: the grid of its axes, then what was given by hand, all checked."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from triever import config
from triever.errors import UsageError, nearest
from triever.lab.axes import Axes, named
from triever.lab.cells import Cell, Data, System, digest, file_name
from triever.lab.expect import Named, select
from triever.lab.toml_values import (
    MARK,
    Table,
    as_table,
    check_keys,
    over,
    part_name,
    placed,
    table,
    table_at,
    text,
    texts,
)

BESIDE = ("data", "parts")
"""What an axis or a cell may change besides the options of its system."""


@dataclass(frozen=True)
class Draft(Named):
    """A cell as the recipe has it, not checked yet."""

    spec: Table  # the tables of its data, its system and the parts


def cells_of(recipe: Table) -> tuple[Cell, ...]:
    """The cells of a recipe with their seeds. A cell that `without` leaves out may be impossible to make."""
    common = table_at(recipe, "system")
    parts = _parts(table_at(recipe, "parts"), common)
    shared = {"data": recipe["data"], "system": common, "parts": parts}
    grid = list(_grid(shared, recipe["axes"])) if "system" in recipe or recipe["axes"] else []
    drafts = _without([*grid, *(_by_hand(shared, cell) for cell in recipe["cells"])], recipe)
    if not drafts:
        raise UsageError("the recipe has no cells", "give a [system], or cells one by one: [[cells]]")
    cells = [_cell(draft) for draft in drafts]
    _refuse_twice(cells)
    return _seeded(cells, recipe)


def _parts(given: Table, common: Table) -> dict[str, Table]:
    """The parts, checked; like a cell, a part without a kind is the common system with other options."""
    tables = {name: table(part, f"parts.{name}") for name, part in given.items()}
    parts = {name: part if "kind" in part else over(_bare(common), part) for name, part in tables.items()}
    for name in parts:
        _part(name, parts, ())
    return parts


def _without(drafts: Sequence[Draft], recipe: Table) -> list[Draft]:
    left_out = _labels(recipe.get("without", []), "without", drafts)
    return [draft for draft in drafts if draft.label not in left_out]


def _refuse_twice(cells: Sequence[Cell]) -> None:
    """Refuse two cells that are the same, or that would write the same file."""
    of_definition: dict[str, str] = {}
    of_file: dict[str, str] = {}
    for cell in cells:
        definition, file = digest(cell.definition()), file_name(cell.label)
        if definition in of_definition or of_file.get(file) == cell.label:
            first = of_definition.get(definition, cell.label)
            other = "" if first == cell.label else f", once as {first!r}"
            raise UsageError(f"the cell {cell.label!r} occurs twice{other}", "keep one of them")
        if file in of_file:
            problem = f"the cells {of_file[file]!r} and {cell.label!r} give the same file name, {file}"
            raise UsageError(problem, "change one label")
        of_definition[definition] = of_file[file] = cell.label


def _seeded(cells: Sequence[Cell], recipe: Table) -> tuple[Cell, ...]:
    """The cells with their seeds: headline cells get all seeds, the others the first. By default all are headline."""
    seeds = recipe.get("seeds", [0])
    numbers = isinstance(seeds, list) and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not numbers or not seeds or len(set(seeds)) < len(seeds):
        raise UsageError(
            f"seeds = {seeds!r} should be a list of different whole numbers", "for example: seeds = [0, 1]"
        )
    every = [cell.label for cell in cells]
    headline = _labels(recipe["headline"], "headline", cells) if "headline" in recipe else every
    return tuple(replace(cell, seeds=tuple(seeds if cell.label in headline else seeds[:1])) for cell in cells)


def _labels(terms: object, key: str, cells: Sequence[Named]) -> set[str]:
    """The labels of all cells that the terms name."""
    return {cell.label for term in texts(terms, key) for cell in select(term, cells, key)}


# --- drafts ---------------------------------------------------------------------------------------------------


def _grid(shared: Table, axes: Axes) -> Iterator[Draft]:
    """A cell for every combination of the axes' values."""
    label = text(shared["system"].get("label", ""), "system.label")
    for chosen in itertools.product(*named(axes).values()):
        spec: Table = {**shared, "system": _bare(shared["system"])}
        words, names, values = [label] if label else [], {label: ""} if label else {}, {}
        for axis, (value, called) in zip(axes, chosen, strict=True):
            values[axis] = value
            spec = _applied(spec, axis, value)
            words.append(called[0])
            names |= dict.fromkeys(called, axis)
        yield Draft(", ".join(words) or str(spec["system"].get("kind", "")), names, values, spec)


def _by_hand(shared: Table, cell: Table) -> Draft:
    """A cell that names its kind stands alone; a cell without a kind is the common system with other options."""
    base = {**shared, "system": {} if "kind" in cell else _bare(shared["system"])}
    return Draft(cell["label"], {cell["label"]: ""}, {}, _joined(base, _bare(cell)))


def _applied(spec: Table, axis: str, value: object) -> Table:
    """A cell with a value of an axis: the option that the axis is named after gets it, or all options in its `set`."""
    if isinstance(value, Mapping) and "set" in value:
        check_keys(value, ("label", "set"), f"a value of the axis {axis}")
        if "label" not in value:
            raise UsageError(f"a value of the axis {axis} has no label", 'add: label = "..."')
        return _joined(spec, table(value["set"], f"{axis}.set"))
    path = axis.split(".")
    whole = path if path[0] in BESIDE and len(path) > 1 else ["system", *path]
    return _put(spec, whole, _bare(value) if isinstance(value, Mapping) else value)


def _put(values: Table, path: Sequence[str], value: object) -> dict[str, object]:
    first, *rest = path
    return {**values, first: _put(as_table(values.get(first)), rest, value) if rest else value}


def _joined(spec: Table, more: Table) -> Table:
    """A cell's data, parts and system with more options; keys that are neither `data` nor `parts` are the system's."""
    beside = {key: over(spec[key], table(more[key], key)) for key in BESIDE if key in more}
    options = {key: value for key, value in more.items() if key not in BESIDE}
    return {**spec, **beside, "system": over(spec["system"], options)}


def _bare(values: Table) -> dict[str, object]:
    """The table without its label."""
    return {key: value for key, value in values.items() if key != "label"}


# --- cells ----------------------------------------------------------------------------------------------------


def _cell(draft: Draft) -> Cell:
    with placed(f"cell {draft.label!r}: "):
        if re.search(r"\s[<>]=?\s", draft.label):
            raise UsageError("the label holds a comparison sign such as <", "use words instead")
        made = _system(draft.spec["system"], draft.spec["parts"], ())
        data = config.build(Data, draft.spec["data"], where="data.")
        return Cell(draft.label, draft.names, draft.values, data, made)


def _system(spec: Table, parts: Table, inside: tuple[str, ...]) -> System:
    """A system that can be made, with the parts that it names and the parts of these; `inside` are parts around it."""
    kind = spec.get("kind")
    if not isinstance(kind, str):
        raise UsageError("the system has no kind", 'add a line such as: kind = "bm25"')
    options = {key: value for key, value in spec.items() if key != "kind"}
    used = {name: _part(name, parts, inside) for name in dict.fromkeys(_references([kind, options]))}
    made = System(kind, options, used)
    _refuse_settled(made)
    made.unfitted()
    return made


def _refuse_settled(made: System) -> None:
    """Refuse an option that would change what a part has learned: only its search may differ from cell to cell."""
    if made.part is None or not made.options:
        return
    search_options = made.parts[made.part].unfitted().search_only
    for key in made.options:
        if key not in search_options:
            raise UsageError(f"{made.kind} is a part and takes no option {key} here", f"set it in [parts.{made.part}]")


def _part(name: str, parts: Table, inside: tuple[str, ...]) -> System:
    if name not in parts:
        raise UsageError(f"there is no part {MARK}{name}", nearest(name, parts) if parts else f"add [parts.{name}]")
    if name in inside:
        raise UsageError(f"part {name} refers to itself", "remove that reference")
    with placed(f"part {name!r}: "):
        return _system(table(parts[name], f"parts.{name}"), parts, (*inside, name))


def _references(value: object) -> Iterator[str]:
    """The names of the parts that a value names, at any depth."""
    if (name := part_name(value)) is not None:
        yield name
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _references(inner)
