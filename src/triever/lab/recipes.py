"""Recipes: TOML files that say which systems to run on which data, and what should come out.

Reads a recipe in one of its settings and checks all that can be checked without data. Runs nothing.
`docs/experiments.md` has the syntax.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triever import config
from triever.errors import UsageError, nearest
from triever.evaluation.compare import ANSWERED, CLAIMED, check_asked, never_given
from triever.evaluation.measures import check as check_measures
from triever.lab.axes import axes_of
from triever.lab.cells import Cell, digest, file_name
from triever.lab.expect import Expected, Judging, Order, Pair, expected_values, order_of
from triever.lab.layout import cells_of
from triever.lab.origin import shown
from triever.lab.tables import Plan, PlannedOrder, PlannedPair, PlannedPlot, PlannedRun, PlannedValue
from triever.lab.toml_values import (
    Table,
    check_keys,
    number,
    over,
    placed,
    table,
    table_at,
    text,
    texts,
    whole,
    yes_or_no,
)

MEASURES = ("Success@1", "Success@10", "Success@100", "nDCG@10", "RR@10")
SETTINGS = ("smoke", "mini", "paper")
HITS = 100
"""How many hits a run searches for each question, unless the recipe sets another number."""
CHANGING = (
    *("data", "system", "parts", "axes", "cells", "without", "headline", "seeds"),
    *("measures", "hits", "runs", "timeout", "plot", "costs", "expect"),
)
"""What a setting may change."""
EXPECT = ("measure", "split", "tolerance", "values", "order")
KEYS = ("title", "about", *CHANGING, "settings")
LIKE = "like"
"""The key that names the recipe which a recipe changes."""
CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Run:
    """One cell with one seed: what is run, and the file that it leaves."""

    cell: Cell
    seed: int
    file: str
    definition: str

    def hits_file(self, split: str) -> str:
        """The file beside it for the hits of a split's questions, where the recipe keeps them."""
        return f"{self.file.removesuffix('.json')}.{file_name(split)}.run.gz"

    def planned(self) -> PlannedRun:
        """The run as an entry of a plan, where it stands under its cell."""
        return {"seed": self.seed, "file": self.file, "definition": self.definition}


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
    plot: str = ""  # the axis that a picture shows from left to right
    costs: bool = False  # whether tables have what a system costs
    as_it_stands: bool = False  # whether it has no settings, and so is the same in all of them
    path: Path | None = field(default=None, compare=False)  # its file

    @property
    def word(self) -> str:
        """What a command calls it: its name if that leads to its file, or else the path."""
        if self.path is None:
            return self.name
        named = _located(self.name)
        return self.name if named and named.samefile(self.path) else shown(self.path)

    @property
    def judged(self) -> list[str]:
        """The measures that verdicts are about."""
        return sorted({self.measure, *(order.measure for order in self.order)})

    def runs(self, only: Sequence[str] = (), seeds: Sequence[int] = ()) -> list[Run]:
        """All runs, or those of the cells and seeds asked for. They go seed by seed, so the table is full early."""
        known = list(dict.fromkeys(seed for cell in self.cells for seed in cell.seeds))
        unknown = [seed for seed in seeds if seed not in known]
        if unknown:
            problem = f"seed {unknown[0]} is not a seed of {self.name} in {self.setting}"
            raise UsageError(problem, f"its seeds are {', '.join(map(str, known))}")
        data = list(dict.fromkeys(cell.data for cell in self.cells))
        runs = [self._run(cell, seed) for cell in self.chosen(only) for seed in cell.seeds]
        wanted = [run for run in runs if not seeds or run.seed in seeds]
        return sorted(wanted, key=lambda run: (run.cell.seeds.index(run.seed), data.index(run.cell.data)))

    def chosen(self, only: Sequence[str]) -> list[Cell]:
        """All cells, or for each text the cell with this label, or else those with this text in their labels."""
        wanted = {label for text in only for label in self._labels(text)}
        return [cell for cell in self.cells if not only or cell.label in wanted]

    def _labels(self, text: str) -> list[str]:
        labels = [cell.label for cell in self.cells]
        found = [text] if text in labels else [label for label in labels if text in label]
        if not found:
            quoted = map(repr, labels)  # as labels have commas
            raise UsageError(f"no cell of {self.name} has {text!r} in its label", nearest(repr(text), [*quoted]))
        return found

    def plan(self) -> Plan:
        """The rows of the table and what is expected of them: with this, results can be read without the recipe."""
        runs = self.runs()
        return {
            "name": self.name,
            "setting": self.setting,
            "title": self.title,
            "about": self.about,
            "measure": self.measure,
            "split": self.split,
            "measures": list(self.measures),
            "cells": [
                {"cell": cell.label, "runs": [run.planned() for run in runs if run.cell.label == cell.label]}
                for cell in self.cells
            ],
            "values": [_planned_value(value) for value in self.values],
            "order": [_planned_order(order) for order in self.order],
            **({"plot": _planned_plot(self.plot, self.cells)} if self.plot else {}),
            **({"costs": True} if self.costs else {}),
            **({"as_it_stands": True} if self.as_it_stands else {}),
        }

    def _run(self, cell: Cell, seed: int) -> Run:
        """A run of a cell. Its definition is a digest of all that the recipe says about it."""
        more = {"hits": self.hits} if self.hits != HITS else {}
        more |= {"runs": True} if self.keeps_runs else {}
        definition = {**cell.definition(), "measures": self.measures, "seed": seed, **more}
        return Run(cell, seed, f"{file_name(cell.label)}-seed{seed}.json", digest(definition))


def _planned_plot(axis: str, cells: Sequence[Cell]) -> PlannedPlot:
    """The cells of the grid as lines: a step for each value of the axis, a line for each combination of the others."""
    lines: dict[str, dict[str, str]] = {}
    for cell in cells:
        if axis in cell.values:
            called: dict[str, str] = {}
            for name, of_axis in cell.names.items():
                called.setdefault(of_axis, name)  # the first name of a value is the one that labels have
            step = called.pop(axis)
            lines.setdefault(", ".join(called.values()) or step.partition("=")[0], {})[step] = cell.label
    return {"axis": axis, "lines": lines}


def _planned_value(expected: Expected) -> PlannedValue:
    return {
        "cell": expected.cell,
        "measure": expected.measure,
        "value": expected.value,
        "tolerance": expected.tolerance,
    }


def _planned_order(order: Order) -> PlannedOrder:
    return {
        "statement": order.statement,
        "measure": order.measure,
        "splits": order.splits,
        "pairs": tuple(map(_planned_pair, order.pairs)),
    }


def _planned_pair(pair: Pair) -> PlannedPair:
    planned = PlannedPair(less=pair.less, more=pair.more, strict=pair.strict)
    if pair.less_minus:
        planned["less_minus"] = pair.less_minus
    if pair.more_minus:
        planned["more_minus"] = pair.more_minus
    return planned


def find(recipe: str | Path, beside: Path | None = None) -> Path:
    """A recipe's file, by its path, with or without .toml, or by its name below `recipes/`, here or in the checkout.

    Where another recipe names it, the folder of that one is searched first: both may lie anywhere.
    """
    path = _located(recipe, beside)
    if path:
        return path
    if any(map(os.path.isdir, (Path(recipe), *(folder / recipe for folder in _folders())))):
        raise UsageError(f"{recipe} is a folder", "name a .toml in it")
    name = str(recipe).removesuffix(".toml")
    where = f" beside {beside.name}, in the current folder or below recipes/" if beside else ""
    known = {recipe_name(path) for folder in _folders() for path in folder.rglob("*.toml")}
    hint = nearest(name, known) if known else "give the path of a TOML file"
    raise UsageError(f"there is no recipe {recipe}{where}", hint)


def _located(recipe: str | Path, beside: Path | None = None) -> Path | None:
    """The file of a recipe by its path or name; results name a recipe without .toml, and their command should work."""
    with_ending = f"{str(recipe).removesuffix('.toml')}.toml"
    near = _near(beside, recipe, with_ending) if beside else []
    paths = (*near, Path(recipe), *(folder / with_ending for folder in (*_folders(), Path())))
    return next((path for path in paths if os.path.isfile(path)), None)


def _near(recipe: Path, *names: str | Path) -> list[Path]:
    """The files of these names beside a recipe, but not itself: it may be like a shipped one of the same name."""
    paths = [recipe.parent / name for name in names]
    return [path for path in paths if os.path.isfile(path) and not path.samefile(recipe)]


def _folders() -> tuple[Path, Path]:
    """The folders of recipes that have names, here and in the checkout."""
    return Path("recipes"), CHECKOUT / "recipes"


def shipped(name: str) -> Path | None:
    """The file of the recipe that Triever brings under this name; None if it brings none."""
    path = CHECKOUT / "recipes" / f"{name}.toml"
    return path if os.path.isfile(path) else None


def recipe_name(path: Path) -> str:
    """What a recipe is called: its path below the folder `recipes`, or its file's name."""
    *folders, last = path.resolve().with_suffix("").parts
    if "recipes" not in folders:
        return last
    below = len(folders) - folders[::-1].index("recipes")
    return "/".join((*folders[below:], last))


def read(recipe: str | Path, setting: str) -> Recipe:
    """A recipe in one of its settings; every mistake in it is an error here, before anything runs.

    A recipe without settings is the same in all of them.
    """
    path = find(recipe)
    raw = _with_likeness(path)
    with placed(f"{path.name}: "):
        settings = table_at(raw, "settings")
        check_keys(settings, SETTINGS, "settings", kind="a setting")
        for name, changes in settings.items():
            check_keys(table(changes, f"settings.{name}"), CHANGING, f"settings.{name}")
        if settings and setting not in settings:
            raise UsageError(f"the recipe has no setting {setting!r}", nearest(setting, settings))
        made = _recipe(recipe_name(path), setting, changed(raw, settings.get(setting, {})))
        return replace(made, as_it_stands=not settings, path=path)


def _with_likeness(path: Path, seen: tuple[Path, ...] = ()) -> Table:
    """What a recipe says, laid over the recipe that it is like, if it names one."""
    raw, seen = config.read_toml(path), (*seen, path.resolve())
    with placed(f"{path.name}: "):
        check_keys(raw, (*KEYS, LIKE), "a recipe")
        if LIKE not in raw:
            return raw
        other = find(text(raw[LIKE], LIKE), beside=path)
        if other.resolve() in seen:
            raise UsageError(f"like = {raw[LIKE]!r} leads back to this recipe", "name one that is complete by itself")
        own = {key: value for key, value in raw.items() if key != LIKE}
        likeness = _with_likeness(other, seen)
        if "name" in _data_table(own.get("data", {})):
            likeness = _without_data(likeness)
        return changed(likeness, own) | {"settings": over(table_at(likeness, "settings"), table_at(own, "settings"))}


def _without_data(recipe: Table) -> Table:
    """Another recipe for own data: of its own, only the number of documents is kept, and the splits outside settings.

    Expansions, first documents, and the splits of a setting belong to the data that are named beside them.
    """
    kept: dict[str, Any] = {}
    for name, value in table_at(recipe, "settings").items():
        changes = table(value, f"settings.{name}")
        kept[name] = _with_data_of(changes, ("documents",)) if "data" in changes else changes
    return _with_data_of({**recipe, "settings": kept}, ("documents", "train", "test"))


def _with_data_of(recipe: Table, keys: Sequence[str]) -> Table:
    """A recipe or a setting with some keys of its data."""
    return {**recipe, "data": {key: value for key, value in _data_table(recipe.get("data", {})).items() if key in keys}}


def changed(raw: Table, setting: Table) -> dict[str, Any]:
    """The recipe with the changes of a setting: tables are joined, and other values are replaced."""
    result = {**raw, **setting}
    for part in ("system", "parts"):
        if part in setting:
            result[part] = over(table_at(raw, part), table_at(setting, part))
    result["data"] = over(_data_table(raw.get("data", {})), _data_table(setting.get("data", {})))
    result["axes"] = axes_of(raw.get("axes", {})) | axes_of(setting.get("axes", {}))
    result["expect"] = {**table_at(raw, "expect"), **table_at(setting, "expect")}
    result["cells"] = _changed_cells(_cells_by_hand(raw.get("cells", [])), table_at(setting, "cells"))
    return result


def _data_table(value: object) -> Table:
    """A table of data; a name alone is enough."""
    return {"name": value} if isinstance(value, str) else table(value, "data")


def _cells_by_hand(value: object) -> list[Table]:
    if not isinstance(value, list):
        raise UsageError(f"cells = {value!r} should be a list of tables", "begin each with: [[cells]]")
    for cell in value:
        if not text(table(cell, "cells").get("label", ""), "the label of a cell"):
            raise UsageError("a cell has no label", 'add a line such as: label = "bm25"')
    return value


def _changed_cells(cells: Sequence[Table], more: Table) -> list[Table]:
    labels = [cell["label"] for cell in cells]
    for label in more:
        if label not in labels:
            raise UsageError(f"a setting changes the cell {label!r}, which does not exist", nearest(label, labels))
    return [over(cell, table(more.get(cell["label"], {}), f"cells.{cell['label']}")) for cell in cells]


def _recipe(name: str, setting: str, values: Table) -> Recipe:
    title = text(values.get("title", ""), "title")
    if not title:
        raise UsageError("the recipe has no title", 'begin with: title = "what it is about"')
    check_keys(values["expect"], EXPECT, "expect")
    measures = tuple(texts(values.get("measures", list(MEASURES)), "measures"))
    check_measures(measures)
    cells = cells_of(values)
    _refuse_unmeasurable(cells, measures)
    by = _judged_by(values["expect"], measures, cells)
    return Recipe(
        name=name,
        setting=setting,
        title=title,
        about=text(values.get("about", ""), "about"),
        measures=measures,
        hits=whole(values.get("hits", HITS), "hits"),
        keeps_runs=yes_or_no(values.get("runs", False), "runs"),
        cells=cells,
        timeout=number(values.get("timeout", 0), "timeout"),
        measure=by.measure,
        split=by.split,
        values=tuple(expected_values(values["expect"], by, cells)),
        order=tuple(order_of(line, by, cells) for line in texts(values["expect"].get("order", []), "order")),
        plot=_plotted(values),
        costs=yes_or_no(values.get("costs", False), "costs"),
    )


def _refuse_unmeasurable(cells: Sequence[Cell], measures: Sequence[str]) -> None:
    """Refuse a cell whose system can never give what any of the measures needs: it would fail after its training."""
    if not {*measures} <= ANSWERED | CLAIMED:
        return
    for cell in cells:
        retriever = cell.system.unfitted()
        if never_given(retriever).issuperset(measures):
            check_asked({f"the cell {cell.label!r}": retriever}, measures)


def _plotted(values: Table) -> str:
    """The axis to plot, "" if there is none to be plotted."""
    axis = text(values.get("plot", ""), "plot")
    if axis and axis not in values["axes"]:
        raise UsageError(f"plot = {axis!r} is not an axis", nearest(axis, values["axes"]))
    return axis


def _judged_by(expect: Table, measures: Sequence[str], cells: Sequence[Cell]) -> Judging:
    """The measures and splits that expectations can be about, and the default ones."""
    measure = text(expect.get("measure", measures[0]), "expect.measure")
    if measure not in measures:
        raise UsageError(f"expect.measure = {measure!r} is not measured", nearest(measure, measures))
    split = text(expect.get("split", cells[0].data.test[0]), "expect.split")
    for cell in cells:
        if split not in cell.data.test:
            problem = f"expect.split = {split!r}, but the cell {cell.label!r} is not measured on it"
            raise UsageError(problem, f"set another expect.split; {nearest(split, cell.data.test)}")
    common = [name for name in cells[0].data.test if all(name in cell.data.test for cell in cells)]
    return Judging(measures, common, measure, split)
