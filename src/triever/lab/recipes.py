"""Recipes: TOML files that say which systems to run on which data, and what should come out.

Reads a recipe in one of its settings, checks all that can be checked without data, and lays it out as cells.
Runs nothing. `docs/experiments.md` has the syntax.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from triever import config
from triever.config import option
from triever.errors import UsageError, nearest
from triever.evaluation.measures import check as check_measures
from triever.lab.expect import Expected, Judging, Named, Order, expected_values, order_of, select
from triever.lab.said import Table, check_keys, number, placed, table, text, texts, whole, yes_or_no
from triever.retrievers.base import Retriever, system

MEASURES = ("Success@1", "Success@10", "Success@100", "nDCG@10", "RR@10")
SETTINGS = ("smoke", "mini", "paper")
HITS = 100
"""Hits of a question that are looked for, where a recipe says nothing."""
CHANGING = (
    *("data", "system", "parts", "axes", "cells", "without", "headline", "seeds"),
    *("measures", "hits", "runs", "timeout", "expect"),
)
"""What a setting may change."""
EXPECT = ("measure", "split", "tolerance", "values", "order")
KEYS = ("title", "about", *CHANGING, "settings")
BESIDE = ("data", "parts")
"""What an axis or a cell may change besides the options of its system."""

MARK = "@"
"""What stands before the name of a part where it is used as a value."""
CHECKOUT = Path(__file__).resolve().parents[3]
LONGEST = 100  # letters of a file's name


@dataclass(frozen=True)
class Data:
    """What a cell learns, and what it is asked."""

    name: str = option("", "a folder, a file, `python`, or a name under $TRIEVER_DATA")
    train: str = option("", "the split that systems are trained on, unless their options say another")
    test: tuple[str, ...] = option(("test",), "the splits that they are measured on")
    documents: int = option(0, "only a sample of so many documents; 0 takes all")
    expansions: str = option("", "a file of expansion texts, as a path or below $TRIEVER_DATA")
    skip_bad: bool = option(False, "leave malformed records out")

    def __post_init__(self) -> None:
        config.validate(self)
        if not self.name:
            raise UsageError("data has no name", 'for example: data.name = "python"')
        if not self.test or len(set(self.test)) < len(self.test):
            raise UsageError(f"data.test = {list(self.test)}", "name at least one split, each once")
        if self.documents < 0:
            raise UsageError(f"data.documents = {self.documents} should not be negative", "0 takes all")


@dataclass(frozen=True)
class System:
    """A system as a recipe says it: its kind, the options that were given, and the parts that it uses."""

    kind: str
    options: Table
    parts: Mapping[str, System] = field(default_factory=dict)

    @property
    def is_part(self) -> bool:
        """Whether it is nothing but one of the recipe's parts."""
        return self.kind.startswith(MARK)

    def make(self, part: Callable[[str], Retriever]) -> Retriever:
        """The retriever, with what `part` gives for the names of its parts; it is not fitted unless it is a part."""
        if self.is_part:
            found = part(self.kind.removeprefix(MARK))
            return found.searched_with(self.options) if self.options else found
        return config.build(system(self.kind), _with_parts(self.options, part))

    def unfitted(self) -> Retriever:
        """The retriever with parts that are not fitted either: whether it can be made at all."""
        if self.is_part:
            found = self.parts[self.kind.removeprefix(MARK)].unfitted()
            other = config.merged(config.to_dict(found), self.options)
            return config.build(type(found), other) if self.options else found
        return self.make(lambda name: self.parts[name].unfitted())

    def completed(self, seed: int, train: str) -> System:
        """The same with all of its options, where the seed and the split are these unless others were given."""
        parts = {name: one.completed(seed, train) for name, one in self.parts.items()}
        if self.is_part:
            return replace(self, parts=parts)
        fixed = {"seed": seed} | ({"split": train} if train else {})
        return System(self.kind, _filled(config.to_dict(self.unfitted()), self.options, fixed), parts)

    def to_dict(self) -> dict[str, Any]:
        """As plain values; parts by name."""
        parts = {"parts": {name: one.to_dict() for name, one in self.parts.items()}} if self.parts else {}
        return {"kind": self.kind, "options": dict(self.options), **parts}


@dataclass(frozen=True)
class Draft(Named):
    """A cell as it was said, not checked yet."""

    spec: Table


@dataclass(frozen=True)
class Cell(Named):
    """One row of a recipe's table."""

    data: Data
    system: System
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """One cell with one seed: what is run, and the file that it leaves."""

    cell: Cell
    seed: int
    file: str
    definition: str

    def hits_file(self, split: str) -> str:
        """The file beside it with what was found for the questions of a split, where that is kept."""
        return f"{self.file.removesuffix('.json')}.{file_name(split)}.run.gz"


@dataclass(frozen=True)
class Recipe:
    """A recipe in one setting, checked."""

    name: str
    setting: str
    title: str
    about: str
    measures: tuple[str, ...]
    hits: int
    keeps_runs: bool
    cells: tuple[Cell, ...]
    timeout: float
    measure: str
    split: str
    values: tuple[Expected, ...]
    order: tuple[Order, ...]

    def runs(self, only: str = "", seeds: Sequence[int] = ()) -> list[Run]:
        """All runs, or those of some cells and seeds: seed by seed, so that a whole table is there early."""
        known = list(dict.fromkeys(seed for cell in self.cells for seed in cell.seeds))
        unknown = [seed for seed in seeds if seed not in known]
        if unknown:
            problem = f"seed {unknown[0]} is not a seed of {self.name} in {self.setting}"
            raise UsageError(problem, f"its seeds are {', '.join(map(str, known))}")
        data = list(dict.fromkeys(cell.data for cell in self.cells))
        several = [self._run(cell, seed) for cell in self.chosen(only) for seed in cell.seeds]
        wanted = [run for run in several if not seeds or run.seed in seeds]
        return sorted(wanted, key=lambda run: (run.cell.seeds.index(run.seed), data.index(run.cell.data)))

    def chosen(self, only: str) -> list[Cell]:
        """The cell of this label, or all whose label has this text in it."""
        exact = [cell for cell in self.cells if cell.label == only]
        found = exact or [cell for cell in self.cells if only in cell.label]
        if not found:
            labels = [cell.label for cell in self.cells]
            raise UsageError(f"no cell of {self.name} has {only!r} in its label", nearest(only, labels))
        return found

    def plan(self) -> dict[str, Any]:
        """What the table shall hold, as plain values: all that is needed to read the results without the recipe."""
        runs = self.runs()
        return {
            **{key: getattr(self, key) for key in ("name", "setting", "title", "about", "measure", "split")},
            "measures": list(self.measures),
            "cells": [
                {"cell": cell.label, "runs": [_told(run) for run in runs if run.cell.label == cell.label]}
                for cell in self.cells
            ],
            "values": [asdict(one) for one in self.values],
            "order": [asdict(one) for one in self.order],
        }

    def _run(self, cell: Cell, seed: int) -> Run:
        """A run's definition is what the recipe says of it; another definition makes another run."""
        more = {"hits": self.hits} if self.hits != HITS else {}
        more |= {"runs": True} if self.keeps_runs else {}
        said = {**_definition(cell), "measures": self.measures, "seed": seed, **more}
        digest = hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()
        return Run(cell, seed, f"{file_name(cell.label)}-seed{seed}.json", digest[:16])


def _definition(cell: Cell) -> dict[str, Any]:
    """What was said of a cell; options that nobody set are left out, so that a new one changes no definition."""
    usual = config.options(Data)
    data = {key: value for key, value in asdict(cell.data).items() if value != usual[key].default}
    return {"data": data, "system": cell.system.to_dict()}


def _told(run: Run) -> dict[str, Any]:
    return {"seed": run.seed, "file": run.file, "definition": run.definition}


def find(recipe: str | Path) -> Path:
    """A recipe's file, by its path or by its name below `recipes/`, here or in the checkout that runs."""
    name = str(recipe).removesuffix(".toml")
    shelves = [Path("recipes"), CHECKOUT / "recipes"]
    for path in (Path(recipe), *(shelf / f"{name}.toml" for shelf in shelves)):
        if path.is_file():
            return path
    known = {recipe_name(path) for shelf in shelves for path in shelf.rglob("*.toml")}
    raise UsageError(f"there is no recipe {recipe}", nearest(name, known) if known else "give the path of a TOML file")


def recipe_name(path: Path) -> str:
    """What a recipe is called: its path below the folder `recipes`, or its file's name."""
    *folders, last = path.resolve().with_suffix("").parts
    if "recipes" not in folders:
        return last
    below = len(folders) - folders[::-1].index("recipes")
    return "/".join((*folders[below:], last))


def read(recipe: str | Path, setting: str) -> Recipe:
    """A recipe in one of its settings; whatever is wrong with it is said here, before anything runs."""
    path = find(recipe)
    raw = config.read_toml(path)
    with placed(f"{path.name}: "):
        check_keys(raw, KEYS, "a recipe")
        settings = table(raw.get("settings", {}), "settings")
        check_keys(settings, SETTINGS, "settings", what="a setting")
        for name, one in settings.items():
            check_keys(table(one, f"settings.{name}"), CHANGING, f"settings.{name}")
        if setting not in settings:
            hint = nearest(setting, settings) if settings else f"add one: [settings.{setting}]"
            raise UsageError(f"it has no setting {setting!r}", hint)
        return _recipe(recipe_name(path), setting, changed(raw, settings[setting]))


def changed(raw: Table, setting: Table) -> dict[str, Any]:
    """The recipe with what a setting says in its place: tables are joined, lists and the like replaced."""
    result = {**raw, **setting}
    for part in ("system", "parts"):
        if part in setting:
            result[part] = over(table(raw.get(part, {}), part), table(setting[part], part))
    result["data"] = over(_data_table(raw.get("data", {})), _data_table(setting.get("data", {})))
    result["axes"] = axes_of(raw.get("axes", {})) | axes_of(setting.get("axes", {}))
    result["expect"] = {**table(raw.get("expect", {}), "expect"), **table(setting.get("expect", {}), "expect")}
    result["cells"] = _changed_cells(_cells_by_hand(raw.get("cells", [])), table(setting.get("cells", {}), "cells"))
    return result


def _recipe(name: str, setting: str, said: Table) -> Recipe:
    title = text(said.get("title", ""), "title")
    if not title:
        raise UsageError("it has no title", 'begin with: title = "what it is about"')
    check_keys(said["expect"], EXPECT, "expect")
    measures = tuple(texts(said.get("measures", list(MEASURES)), "measures"))
    check_measures(measures)
    cells = _seeded(_cells(said), said)
    by = _judged_by(said["expect"], measures, cells)
    return Recipe(
        name=name,
        setting=setting,
        title=title,
        about=text(said.get("about", ""), "about"),
        measures=measures,
        hits=whole(said.get("hits", HITS), "hits"),
        keeps_runs=yes_or_no(said.get("runs", False), "runs"),
        cells=cells,
        timeout=number(said.get("timeout", 0), "timeout"),
        measure=by.measure,
        split=by.split,
        values=tuple(expected_values(said["expect"], by, cells)),
        order=tuple(order_of(one, by, cells) for one in texts(said["expect"].get("order", []), "order")),
    )


def _judged_by(expect: Table, measures: Sequence[str], cells: Sequence[Cell]) -> Judging:
    """The measures and splits that expectations can be about, and those that they are about by themselves."""
    measure = text(expect.get("measure", measures[0]), "expect.measure")
    if measure not in measures:
        raise UsageError(f"expect.measure = {measure!r} is not measured", nearest(measure, measures))
    split = text(expect.get("split", cells[0].data.test[0]), "expect.split")
    for cell in cells:
        if split not in cell.data.test:
            problem = f"the cell {cell.label!r} is not measured on {split!r}, by which it is judged"
            raise UsageError(problem, f"set expect.split; {nearest(split, cell.data.test)}")
    common = [one for one in cells[0].data.test if all(one in cell.data.test for cell in cells)]
    return Judging(measures, common, measure, split)


# --- cells --------------------------------------------------------------------------------------------------


def _cells(said: Table) -> tuple[Cell, ...]:
    """The grid first, then the cells that were given by hand; what is left out may be a mistake in itself."""
    common = table(said.get("system", {}), "system")
    parts = _parts(table(said.get("parts", {}), "parts"), common)
    shared = {"data": said["data"], "system": common, "parts": parts}
    grid = list(_grid(shared, said["axes"])) if "system" in said or said["axes"] else []
    drafts = _without([*grid, *(_by_hand(shared, one) for one in said["cells"])], said)
    if not drafts:
        raise UsageError("it has no cells", "give a [system], or cells one by one: [[cells]]")
    cells = tuple(map(_cell, drafts))
    _refuse_twice(cells)
    return cells


def _parts(said: Table, common: Table) -> dict[str, Table]:
    """The parts, checked; like a cell, one that does not name its kind is the common system with other options."""
    tables = {name: table(part, f"parts.{name}") for name, part in said.items()}
    parts = {name: part if "kind" in part else over(_bare(common), part) for name, part in tables.items()}
    for name in parts:
        _part(name, parts, ())
    return parts


def _grid(shared: Table, axes: Mapping[str, Sequence[Any]]) -> Iterator[Draft]:
    """A cell for every combination of the axes' values."""
    label = text(shared["system"].get("label", ""), "system.label")
    named = _names(axes)
    for places in itertools.product(*(range(len(values)) for values in axes.values())):
        spec: Table = {**shared, "system": _bare(shared["system"])}
        words, names, values = [label] if label else [], {label: ""} if label else {}, {}
        for axis, place in zip(axes, places, strict=True):
            values[axis] = axes[axis][place]
            spec = _applied(spec, axis, values[axis])
            words.append(named[axis][place][0])
            names |= dict.fromkeys(named[axis][place], axis)
        yield Draft(", ".join(words) or str(spec["system"].get("kind", "")), names, values, spec)


def _by_hand(shared: Table, said: Table) -> Draft:
    """A cell that names its kind stands alone; one that does not is the common system with other options."""
    base = {**shared, "system": {} if "kind" in said else _bare(shared["system"])}
    return Draft(said["label"], {said["label"]: ""}, {}, _joined_spec(base, _bare(said)))


def _cell(draft: Draft) -> Cell:
    with placed(f"cell {draft.label!r}: "):
        if re.search(r"\s[<>]=?\s", draft.label):
            raise UsageError("a label holds a sign of comparison", "name it in words")
        made = _system(draft.spec["system"], draft.spec["parts"], ())
        made.unfitted()
        data = config.build(Data, draft.spec["data"], where="data.")
        return Cell(draft.label, draft.names, draft.values, data, made)


def _system(said: Table, parts: Table, inside: tuple[str, ...]) -> System:
    """A system with the parts that it names, and those that these name."""
    kind = said.get("kind")
    if not isinstance(kind, str):
        raise UsageError("it does not say which system", 'add a line such as: kind = "bm25"')
    options = {key: value for key, value in said.items() if key != "kind"}
    used = {name: _part(name, parts, inside) for name in dict.fromkeys(_references([kind, options]))}
    made = System(kind, options, used)
    if made.is_part and options:
        _refuse_settled(made)
    return made


def _refuse_settled(made: System) -> None:
    """Refuse an option of a part that belongs to what it learned: only its search may differ from cell to cell."""
    name = made.kind.removeprefix(MARK)
    may = made.parts[name].unfitted().search_only
    for key in made.options:
        if key not in may:
            raise UsageError(f"{made.kind} is a part, and takes no option {key}", f"set it in [parts.{name}]")


def _part(name: str, parts: Table, inside: tuple[str, ...]) -> System:
    if name not in parts:
        raise UsageError(f"there is no part {MARK}{name}", nearest(name, parts) if parts else f"add [parts.{name}]")
    if name in inside:
        raise UsageError(f"part {name} is made from itself", "take the circle out")
    with placed(f"part {name!r}: "):
        made = _system(table(parts[name], f"parts.{name}"), parts, (*inside, name))
        made.unfitted()
        return made


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith(MARK):
        yield value.removeprefix(MARK)
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _references(inner)


def _with_parts(value: Any, part: Callable[[str], Retriever]) -> Any:
    """The same value with retrievers in the place of the names of parts."""
    if isinstance(value, str) and value.startswith(MARK):
        return part(value.removeprefix(MARK))
    if isinstance(value, Mapping):
        return {key: _with_parts(inner, part) for key, inner in value.items()}
    return [_with_parts(inner, part) for inner in value] if isinstance(value, list) else value


def _filled(whole: Any, given: Any, fixed: Table) -> Any:
    """All options, with names of parts as they were given, and what is fixed wherever nothing was given."""
    if isinstance(given, str) and given.startswith(MARK):
        return given
    if isinstance(whole, Mapping):
        said = given if isinstance(given, Mapping) else {}
        return {
            key: fixed[key] if key in fixed and key not in said else _filled(value, said.get(key), fixed)
            for key, value in whole.items()
        }
    if isinstance(whole, list):
        several = given if isinstance(given, list) and len(given) == len(whole) else [None] * len(whole)
        return [_filled(value, one, fixed) for value, one in zip(whole, several, strict=True)]
    return whole


def _refuse_twice(cells: Sequence[Cell]) -> None:
    files: dict[str, str] = {}
    made: dict[str, str] = {}
    for cell in cells:
        same = json.dumps(_definition(cell), sort_keys=True, default=str)
        for seen, key in ((files, file_name(cell.label)), (made, same)):
            if key in seen:
                other = "" if seen[key] == cell.label else f", once as {seen[key]!r}"
                raise UsageError(f"the cell {cell.label!r} is there twice{other}", "keep one of them")
            seen[key] = cell.label


def _without(drafts: Sequence[Draft], said: Table) -> list[Draft]:
    terms = texts(said.get("without", []), "without")
    left_out = {draft.label for term in terms for draft in select(term, drafts, "without")}
    return [draft for draft in drafts if draft.label not in left_out]


def _seeded(cells: Sequence[Cell], said: Table) -> tuple[Cell, ...]:
    """Headline cells get all seeds, the others the first; where no headline is named, all are."""
    seeds = said.get("seeds", [0])
    whole = isinstance(seeds, list) and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not whole or not seeds or len(set(seeds)) < len(seeds):
        raise UsageError(
            f"seeds = {seeds!r} should be a list of different whole numbers", "for example: seeds = [0, 1]"
        )
    headline = {cell.label for cell in cells}
    if "headline" in said:
        terms = texts(said["headline"], "headline")
        headline = {cell.label for term in terms for cell in select(term, cells, "headline")}
    return tuple(replace(cell, seeds=tuple(seeds if cell.label in headline else seeds[:1])) for cell in cells)


def file_name(label: str) -> str:
    """A label as the name of a file.

    >>> file_name("semantic branch=10, firstp+labelled")
    'semantic-branch=10-firstp+labelled'
    """
    name = re.sub(r"[^\w.+=]+", "-", label).strip("-.") or "cell"
    if len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST]}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


# --- axes ---------------------------------------------------------------------------------------------------


def axes_of(said: Any, before: str = "") -> dict[str, list[Any]]:
    """The axes by their dotted names; `training.steps` and a table `training` with `steps` are the same.

    >>> axes_of({"k1": [0.9, 1.2], "training": {"steps": [10, 20]}})
    {'k1': [0.9, 1.2], 'training.steps': [10, 20]}
    """
    found: dict[str, list[Any]] = {}
    for key, values in table(said, f"axes{'.' if before else ''}{before}").items():
        name = f"{before}.{key}" if before else key
        if isinstance(values, Mapping):
            found |= axes_of(values, name)
        elif isinstance(values, list) and values:
            found[name] = values
        else:
            problem = "has no values" if values == [] else f"= {values!r} should be a list of values"
            raise UsageError(f"the axis {name} {problem}", f"for example: {name} = [1, 2]")
    return found


def _names(axes: Mapping[str, Sequence[Any]]) -> dict[str, list[tuple[str, ...]]]:
    """For every value of every axis its names, the first of which is for the label.

    A text is its own name, as far as no other axis has the same; anything else is named with its axis: `k1=0.9`.
    """
    short = {axis: axis.rpartition(".")[2] for axis in axes}
    called = {axis: axis if list(short.values()).count(last) > 1 else last for axis, last in short.items()}
    bare = {axis: [_bare_name(value) for value in values] for axis, values in axes.items()}
    texts = [name for names in bare.values() for name in set(names) if name]
    return {
        axis: [
            _forms(bare[axis][place], texts, f"{called[axis]}={_word(value)}", f"{axis}={_word(value)}")
            for place, value in enumerate(values)
        ]
        for axis, values in axes.items()
    }


def _forms(bare: str, texts: Sequence[str], *long: str) -> tuple[str, ...]:
    alone = (bare,) if bare and texts.count(bare) == 1 else ()
    return tuple(dict.fromkeys((*alone, *long)))


def _bare_name(value: Any) -> str:
    """What a value may be called without its axis; "" for numbers and the like."""
    if isinstance(value, str) or (isinstance(value, Mapping) and ("label" in value or "kind" in value)):
        return _word(value)
    texts = isinstance(value, list) and value and all(_bare_name(one) for one in value)
    return _word(value) if texts else ""


def _word(value: Any) -> str:
    """A value as a label shows it.

    >>> _word(["firstp", "labelled"]), _word({"kind": "semantic", "branch": 10}), _word(True)
    ('firstp+labelled', 'semantic branch=10', 'true')
    """
    if isinstance(value, Mapping):
        if "label" in value:
            return text(value["label"], "label")
        return " ".join(_word(one) if key == "kind" else f"{key}={_word(one)}" for key, one in value.items())
    if isinstance(value, list):
        return "+".join(map(_word, value)) or "none"
    return value.removeprefix(MARK) if isinstance(value, str) else json.dumps(value, default=str)


def _applied(spec: Table, axis: str, value: Any) -> Table:
    """What a value of an axis makes of a cell: it sets the option that the axis is named after, or its `set`."""
    if isinstance(value, Mapping) and "set" in value:
        check_keys(value, ("label", "set"), f"a value of the axis {axis}")
        if "label" not in value:
            raise UsageError(f"a value of the axis {axis} has no label", 'add: label = "..."')
        return _joined_spec(spec, table(value["set"], f"{axis}.set"))
    path = axis.split(".")
    whole = path if path[0] in BESIDE and len(path) > 1 else ["system", *path]
    return _put(spec, whole, _bare(value) if isinstance(value, Mapping) else value)


def _put(values: Table, path: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {**values, first: value}
    return {**values, first: _put(_as_table(values.get(first)), rest, value)}


def _joined_spec(spec: Table, more: Table) -> Table:
    """A cell's data, parts and system with more options; what is neither data nor parts is the system's."""
    beside = {key: over(spec[key], table(more[key], key)) for key in BESIDE if key in more}
    options = {key: value for key, value in more.items() if key not in BESIDE}
    return {**spec, **beside, "system": over(spec["system"], options)}


def over(values: Table, more: Table) -> dict[str, Any]:
    """Both, the second where they differ. Tables inside are joined, unless the second is of another kind.

    >>> over({"docids": "semantic", "training": {"steps": 6}}, {"docids": {"branch": 10}, "training": {"batch": 4}})
    {'docids': {'kind': 'semantic', 'branch': 10}, 'training': {'steps': 6, 'batch': 4}}
    """
    return {**values, **{key: _over_one(values.get(key), value) for key, value in more.items()}}


def _over_one(old: Any, new: Any) -> Any:
    before = _as_table(old)
    if not isinstance(new, Mapping) or new.get("kind", before.get("kind")) != before.get("kind"):
        return new
    return over(before, new)


def _as_table(value: Any) -> Table:
    """A table as it is; a name alone is the kind of one."""
    return value if isinstance(value, Mapping) else {"kind": value} if isinstance(value, str) else {}


def _bare(value: Table) -> dict[str, Any]:
    return {key: one for key, one in value.items() if key != "label"}


def _data_table(value: Any) -> Table:
    """A table of data; a name alone is enough."""
    return {"name": value} if isinstance(value, str) else table(value, "data")


def _cells_by_hand(value: Any) -> list[Table]:
    if not isinstance(value, list):
        raise UsageError(f"cells = {value!r} should be a list of tables", "begin each with: [[cells]]")
    for one in value:
        if not text(table(one, "cells").get("label", ""), "the label of a cell"):
            raise UsageError("a cell has no label", 'add a line such as: label = "bm25"')
    return value


def _changed_cells(cells: Sequence[Table], more: Table) -> list[Table]:
    labels = [cell["label"] for cell in cells]
    for label in more:
        if label not in labels:
            raise UsageError(f"a setting changes the cell {label!r}, which is not there", nearest(label, labels))
    return [over(cell, table(more.get(cell["label"], {}), f"cells.{cell['label']}")) for cell in cells]
