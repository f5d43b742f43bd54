"""The table of a recipe, from its plan and the files that its runs left: what was measured, what was expected.

`Recipe.plan` makes the plan. The table is computed from files alone, so a page and a report agree.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import NotRequired, TypedDict, TypeVar

import numpy as np

from triever.errors import DataError, cause
from triever.evaluation.compare import ANSWERED, CLAIMED
from triever.evaluation.picture import Bars
from triever.evaluation.report import ScoreRecord
from triever.lab.run_costs import bytes_per_document, fit_seconds, highest_load, is_as_it_came, was_alone
from triever.lab.run_results import RunResult, unpacked
from triever.lab.toml_values import part_name
from triever.lab.verdicts import FAILS, FEWEST, HOLDS, MISSING, EachQuestion, Measured, together, too_few, verdict
from triever.printable import mean_text

PLAN = "recipe.json"
"""The file beside the results of a recipe that says what its table holds."""

OK, DRIFT = "OK", "DRIFT"
SECONDS, PER_SECOND = "seconds", "queries/s"
MILLISECONDS, BYTES, MINUTES = "ms a query", "bytes a document", "minutes to fit"
TIMES, COSTS = (SECONDS, PER_SECOND), (MILLISECONDS, BYTES, MINUTES)
"""The last columns of a table: how long a run took, or what a system costs who uses it."""
OWN_LOAD = 1.0
"""The load that a run makes at least: where a machine has no more, nothing else runs."""
log = logging.getLogger("triever")
T = TypeVar("T")


class PlannedRun(TypedDict):
    """A run of a cell in a plan: the file that it writes, and the digest of all that was asked of it."""

    seed: int
    file: str
    definition: str


class PlannedCell(TypedDict):
    """A cell of a plan, by its label."""

    cell: str
    runs: list[PlannedRun]


class PlannedValue(TypedDict):
    """A number that a cell should give."""

    cell: str
    measure: str
    value: float
    tolerance: float


class PlannedPair(TypedDict):
    """Two cells by their labels: `less` should be below `more`, or, unless `strict`, not above it.

    What `less_minus` and `more_minus` name is subtracted from them.
    """

    less: str
    more: str
    strict: bool
    less_minus: NotRequired[str]
    more_minus: NotRequired[str]


class PlannedOrder(TypedDict):
    """A statement about the order of cells."""

    statement: str
    measure: str
    splits: NotRequired[Sequence[str]]  # the plan's split in files of earlier versions, which lack them
    pairs: Sequence[PlannedPair]


class PlannedPlot(TypedDict):
    """The cells of a picture: for each of its lines the steps from left to right, and the cell of each."""

    axis: str
    lines: dict[str, dict[str, str]]


class EveryPlan(TypedDict):
    """What the table of a recipe holds in one setting."""

    name: str
    setting: str
    title: str
    about: str
    measure: str
    split: str
    measures: list[str]
    cells: list[PlannedCell]
    values: list[PlannedValue]
    order: list[PlannedOrder]


class Plan(EveryPlan, total=False):  # NotRequired is not seen where annotations are texts, and a test of keys needs it
    """The same, a picture and columns of costs where the recipe asks for them, and where the recipe came from."""

    plot: PlannedPlot
    costs: bool
    as_it_stands: bool
    file: str  # a note of the recipe's file, if Triever does not bring it
    command: str  # that runs it, if its name and setting alone do not


@dataclass(frozen=True)
class Row:
    """One cell: the results of the runs that succeeded, in the order of its seeds, and the problems of the others."""

    cell: str
    results: tuple[RunResult, ...]
    problems: Mapping[int, str]  # by seed
    planned: int

    def measured(self, split: str, measure: str) -> Measured | None:
        """One measure over the seeds; None if no run succeeded, or if it does not fit the system."""
        if not self.results or self.lacks(measure):
            return None
        scores = [_score(result, split, measure) for result in self.results]
        counts = [count for result in self.results if (count := result["reports"][split].get("queries")) is not None]
        return Measured.of(scores, self._each(split, measure), min(counts, default=None))

    def lacks(self, measure: str) -> bool:
        """Whether some run succeeded, but has no such measure."""
        return not all(_has(result, measure) for result in self.results)

    def _each(self, split: str, measure: str) -> EachQuestion | None:
        """The mean over the seeds for each question, where all files have it for the same questions."""
        held = [result["reports"][split].get("each") for result in self.results]
        known = [each for each in held if each and measure in each["values"]]
        if len(known) < len(held) or len({each["questions"] for each in known}) > 1:
            return None
        values = [_of_each(result, split, measure) for result in self.results]
        return EachQuestion(known[0]["questions"], np.mean(values, axis=0))

    def by_seen(self, split: str) -> dict[str, Measured]:
        """A measure on seen and on unseen questions by the names of their columns, where all runs have it."""
        reports = [result["reports"][split] for result in self.results]
        records = [report["seen"] for report in reports if "seen" in report]
        if not records or len(records) < len(reports):
            return {}
        return {
            f"{records[0]['measure']} {group}": Measured.of([record["scores"][group] for record in records])
            for group in ("seen", "unseen")
        }

    @property
    def seconds(self) -> float | None:
        """How long a run took, on average."""
        return fmean(result["seconds"] for result in self.results) if self.results else None

    def speed(self, split: str) -> float:
        """How many queries of a split were answered in a second."""
        extra = [next(iter(result["reports"][split]["extra"].values())) for result in self.results]
        return fmean(columns["queries/s"] for columns in extra)

    @property
    def splits(self) -> list[str]:
        return list(self.results[0]["reports"]) if self.results else []

    def cost(self, column: str, split: str) -> str:
        """What stands in a column of TIMES or COSTS; "" where files do not say it."""
        return _cost_text(column, self._cost(column, split))

    def _cost(self, column: str, split: str) -> float | None:
        if column == SECONDS:
            return self.seconds
        if column == PER_SECOND:
            return self.speed(split)
        if column == MILLISECONDS:
            return 1000 / speed if (speed := self.speed(split)) else None
        each = fit_seconds if column == MINUTES else bytes_per_document
        known = [value for result in self.results if (value := each(result)) is not None]
        return fmean(known) / (60 if column == MINUTES else 1) if known else None

    def searched_parts(self) -> list[tuple[int, str | None, object]]:
        """For each run its seed, the name of the part that it is, if it is one, and the options of its parts."""
        systems = [(result["seed"], result.get("system", {})) for result in self.results]
        return [(seed, part_name(system.get("kind")), system.get("parts")) for seed, system in systems]

    @property
    def undone(self) -> str:
        """The seeds whose training was undone, because the model was best before it; "" for none."""
        seeds = [str(result["seed"]) for result in self.results if is_as_it_came(result)]
        if not seeds:
            return ""
        return "every seed" if len(seeds) == len(self.results) else f"seed {', '.join(seeds)}"


@dataclass(frozen=True)
class RecipeTable:
    """The table of a recipe: its plan, and a row for each cell."""

    plan: Plan
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, plan: Plan, folder: Path) -> RecipeTable:
        """The table of a plan, from the files of a folder; results of another definition do not count."""
        rows = tuple(_row(cell, folder) for cell in plan["cells"])
        _warn_of_other_data(plan["name"], rows)
        return cls(plan, rows)

    @classmethod
    def unlisted(cls, plan: Plan, folder: Path) -> RecipeTable:
        """The table of the results in a folder that a plan does not list, with the measures that all of them have."""
        listed = {(run["file"], run["definition"]) for cell in plan["cells"] for run in cell["runs"]}
        runs: dict[str, list[PlannedRun]] = {}
        measures = list(plan["measures"])
        for path in sorted(folder.glob("*-seed*.json")):
            result = _run_result(path)
            if (path.name, result["definition"]) not in listed:
                run = PlannedRun(seed=result["seed"], file=path.name, definition=result["definition"])
                runs.setdefault(result["cell"], []).append(run)
                measures = [measure for measure in measures if _has(result, measure)]
        cells = [PlannedCell(cell=cell, runs=cell_runs) for cell, cell_runs in runs.items()]
        shown: Plan = {**plan, "cells": cells, "measures": measures, "values": [], "order": []}
        return cls.of(shown, folder)

    def narrowed(self, cells: Sequence[str]) -> RecipeTable:
        """The table of these cells alone, with the expectations that are about no other cell."""
        plan = self.plan.copy()
        plan["cells"] = [cell for cell in plan["cells"] if cell["cell"] in cells]
        plan["values"] = [value for value in plan["values"] if value["cell"] in cells]
        plan["order"] = [
            order
            for order in plan["order"]
            if all(cell in cells for pair in order["pairs"] for side in _sides(pair) for cell in side)
        ]
        return RecipeTable(plan, tuple(row for row in self.rows if row.cell in cells))

    @property
    def failed(self) -> list[str]:
        """A line for each run that failed."""
        return [f"{row.cell}, seed {seed}: {text}" for row in self.rows for seed, text in row.problems.items()]

    @property
    def drifted(self) -> bool:
        """Whether a number or an order is not what was expected."""
        numbers = any(row["verdict"] == DRIFT for row in self.lines())
        return numbers or any(line["verdict"] == FAILS for line in self.verdicts)

    def lines(self) -> list[dict[str, str]]:
        """A row for each cell and measure: the measure of the plan, and those with an expected value."""
        return [self._line(row, measure) for row in self.rows for measure in self._asked(row.cell)]

    @cached_property
    def verdicts(self) -> list[dict[str, str]]:
        """A row for each statement about the order of cells."""
        rows = []
        for order in self.plan["order"]:
            splits = order.get("splits") or [self.plan["split"]]
            cases = [(pair, split) for split in splits for pair in order["pairs"]]
            verdicts = [self._pair_verdict(pair, split, order["measure"]) for pair, split in cases]
            counted = f"{verdicts.count(HOLDS)} of {len(verdicts)}" if len(verdicts) > 1 else ""
            reasons = (
                (f"{split}: " if len(splits) > 1 else "") + reason
                for (pair, split), pair_verdict in zip(cases, verdicts, strict=True)
                if pair_verdict != HOLDS and (reason := self._reason(pair, split, order["measure"]))
            )
            why = "; ".join(filter(None, [counted, next(reasons, "")]))
            rows.append({"order": order["statement"], "verdict": together(verdicts), "why": why})
        return rows

    def to_dict(self) -> dict[str, object]:
        """The table as plain values."""
        about = {
            key: value for key, value in self.plan.items() if key in ("name", "setting", "title", "about", "split")
        }
        cells = [
            {"cell": row.cell, "seeds": len(row.results), "seconds": row.seconds, "measures": self._means(row)}
            for row in self.rows
        ]
        return {**about, "cells": cells, "expected": self.lines(), "order": self.verdicts, "failed": self.failed}

    def text(self) -> str:
        """The table as text, which a person sees at the end of an experiment."""
        data = dict.fromkeys(result["data"]["dataset"] for row in self.rows for result in row.results)
        on = f"; data {', '.join(data)}" if data else ""
        title = f"{self.plan['title']} ({self.plan['name']}, {self.plan['setting']}{on})"
        failed = "\n".join(f"failed: {line}" for line in self.failed)
        return "\n\n".join(filter(None, [title, aligned(self.lines()), aligned(self.verdicts), failed]))

    def markdown(self) -> str:
        """The table as a section of a page: a table for each split, and the expectations with their verdicts."""
        splits = list(dict.fromkeys(split for row in self.rows for split in row.splits))
        tables = [self._split_table(split, several=len(splits) > 1) for split in splits]
        lines = [*self._value_lines(), *self._order_lines(), *(f"- failed: {line}" for line in self.failed)]
        return "\n\n".join([*tables, *self._notes(), *(["\n".join(lines)] if lines else [])])

    def costs(self) -> str:
        """The rows of the plan's split with what each system costs; "" where the plan asks for no costs."""
        split = self.plan["split"]
        if not self.plan.get("costs") or not any(split in row.splits for row in self.rows):
            return ""
        dataset = next(row.results[0]["data"]["dataset"] for row in self.rows if row.results)
        return "\n\n".join([f"{dataset}, {split}:", self._split_table(split, several=False), *self._notes()])

    def panels(self) -> list[Bars]:
        """What a picture shows, if the plan has one: a panel for each measure on the plan's split."""
        plot, split = self.plan.get("plot"), self.plan["split"]
        if not plot or not any(split in row.splits for row in self.rows):
            return []
        steps = list(dict.fromkeys(step for line in plot["lines"].values() for step in line))
        labels = [step.rpartition("=")[2] for step in steps]
        rows = {row.cell: row for row in self.rows}
        cells = {
            name: [rows[line[step]] if step in line else None for step in steps] for name, line in plot["lines"].items()
        }
        panels = []
        for measure in self.plan["measures"]:
            lines = {
                name: [row.measured(split, measure) if row else None for row in line] for name, line in cells.items()
            }
            means = {
                name: [each.mean if each else None for each in _of_common_seeds(line, split, measure)]
                for name, line in cells.items()
            }
            over_questions = _each(lines, lambda measured: measured.span(False))
            over_seeds = _each(lines, lambda measured: measured.span(True) if len(measured.means) > 1 else None)
            panels.append(Bars(measure, labels, means, plot["axis"], over_questions, over_seeds))
        return panels

    def _line(self, row: Row, measure: str) -> dict[str, str]:
        measured = row.measured(self.plan["split"], measure)
        wanted = self._expected(row.cell, measure)
        verdict = ""
        if measured and wanted:
            verdict = OK if abs(measured.mean - wanted["value"]) <= wanted["tolerance"] else DRIFT
        missing = "failed" if row.problems else "not run"
        return {
            "cell": row.cell,
            "measure": measure,
            "measured": str(measured) if measured else missing,
            "seeds": f"{len(row.results)}" + (f" of {row.planned}" if len(row.results) < row.planned else ""),
            "expected": f"{mean_text(wanted['value'])} ± {wanted['tolerance']:g}" if wanted else "",
            "verdict": verdict,
        }

    def _asked(self, cell: str) -> list[str]:
        expected = [value["measure"] for value in self.plan["values"] if value["cell"] == cell]
        return list(dict.fromkeys([self.plan["measure"], *expected]))

    def _expected(self, cell: str, measure: str) -> PlannedValue | None:
        values = self.plan["values"]
        return next((value for value in values if (value["cell"], value["measure"]) == (cell, measure)), None)

    def _measured(self, side: Sequence[str], split: str, measure: str) -> Measured | None:
        """One measure of a cell, or of how much more it has than a second one."""
        rows = {row.cell: row for row in self.rows}
        measured, *others = (rows[cell].measured(split, measure) for cell in side)
        for other in others:
            measured = measured.minus(other) if measured and other else None
        return measured

    def _pair_verdict(self, pair: PlannedPair, split: str, measure: str) -> str:
        sides = _sides(pair)
        less, more = (self._measured(side, split, measure) for side in sides)
        if not less or not more:
            return MISSING
        one_model = all(len(side) == 1 for side in sides) and self._is_one_model(pair)
        return verdict(less, more, strict=pair["strict"], one_model=one_model)

    def _reason(self, pair: PlannedPair, split: str, measure: str) -> str:
        """What a verdict that is not "holds" rests on; "" where cells have no results."""
        sides = _sides(pair)
        less, more = (self._measured(side, split, measure) for side in sides)
        if not less or not more:
            return self._silent({cell for side in sides for cell in side}, measure)
        values = ", ".join(f"{' - '.join(side)} {self._short(side, split, measure)}" for side in sides)
        return f"{values}; fewer than {FEWEST} questions tell nothing" if too_few(less, more) else values

    def _silent(self, cells: Container[str], measure: str) -> str:
        """Which of these cells have results, but not what a measure needs."""
        silent = [row.cell for row in self.rows if row.cell in cells and row.lacks(measure)]
        needed = "probabilities" if measure in CLAIMED else "answers" if measure in ANSWERED else measure
        return f"no {needed} from {', '.join(silent)}" if silent else ""

    def _is_one_model(self, pair: PlannedPair) -> bool:
        """Whether two cells search the same trained parts, with several seeds that both have."""
        rows = {row.cell: row for row in self.rows}
        models, others = (rows[pair[side]].searched_parts() for side in ("less", "more"))
        return len(models) > 1 and models == others and all(kind for _, kind, _ in models)

    def _short(self, side: Sequence[str], split: str, measure: str) -> str:
        measured = self._measured(side, split, measure)
        return mean_text(measured.mean) if measured else ""

    def _means(self, row: Row) -> dict[str, dict[str, float]]:
        return {
            split: {m: measured.mean for m in self.plan["measures"] if (measured := row.measured(split, m))}
            for split in row.splits
        }

    def _split_table(self, split: str, *, several: bool) -> str:
        by_seen = list(dict.fromkeys(name for row in self.rows if split in row.splits for name in row.by_seen(split)))
        spent = COSTS if self.plan.get("costs") else TIMES
        name = "system" if self.plan.get("costs") else "cell"
        head = [name, *self.plan["measures"], *by_seen, "seeds", *spent]
        lines = [head, ["---", *["---:"] * (len(head) - 1)]]
        for row in self.rows:
            if split in row.splits:
                measured = [row.measured(split, measure) for measure in self.plan["measures"]]
                measured += [row.by_seen(split).get(name) for name in by_seen]
                cost = [row.cost(column, split) for column in spent]
                lines.append([row.cell, *map(_brief, measured), str(len(row.results)), *cost])
        body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"Split {split}:\n\n{body}" if several else body

    def _notes(self) -> list[str]:
        """What has to be known to read the tables, a line for each."""
        rows = [row for row in self.rows if row.results]
        notes = [self._spread(rows)]
        untrained = [f"{row.cell} ({row.undone})" for row in rows if row.undone]
        if untrained:
            notes.append(
                "Held-out questions were answered best before the first step of the training, so these models are as "
                f"they came: {'; '.join(untrained)}."
            )
        if self.plan.get("costs") and rows:
            notes.append(_timing(rows))
        return list(filter(None, notes))

    def _spread(self, rows: Sequence[Row]) -> str:
        """What stands behind the numbers: seeds and questions."""
        measure, split = self.plan["measure"], self.plan["split"]
        measured = [each for row in rows if split in row.splits and (each := row.measured(split, measure))]
        if not measured:
            return ""
        widest = max((high - low) / 2 for low, high in (each.span(False) for each in measured))
        seeds = "± is the standard deviation over seeds. " if any(len(each.means) > 1 for each in measured) else ""
        return f"{seeds}Over questions, the 95% interval of {measure} is at most ±{mean_text(widest)}."

    def _value_lines(self) -> list[str]:
        return [
            f"- {line['verdict'] or MISSING}: {line['cell']}, {line['measure']} {line['measured']}, "
            f"expected {line['expected']}"
            for line in self.lines()
            if line["expected"]
        ]

    def _order_lines(self) -> list[str]:
        return [
            f"- {line['verdict']}: `{line['order']}`" + (f" ({line['why']})" if line["why"] else "")
            for line in self.verdicts
        ]


def _of_common_seeds(line: Sequence[Row | None], split: str, measure: str) -> list[Measured | None]:
    """The points of a line over the seeds that all of them have: one that has more would not fit between the others."""
    seeds = [{result["seed"] for result in row.results} for row in line if row and row.results]
    common = set.intersection(*seeds) if seeds else set()
    points = []
    for row in line:
        kept = tuple(result for result in row.results if not common or result["seed"] in common) if row else ()
        points.append(replace(row, results=kept).measured(split, measure) if row else None)
    return points


def _each(lines: Mapping[str, Sequence[Measured | None]], value: Callable[[Measured], T]) -> dict[str, list[T | None]]:
    """A value of each point of each line, None where nothing was measured."""
    return {name: [value(point) if point else None for point in line] for name, line in lines.items()}


def _sides(pair: PlannedPair) -> list[list[str]]:
    """The cells of both sides of a comparison: one of each, or one and what is subtracted from it."""
    both = (pair["less"], pair.get("less_minus")), (pair["more"], pair.get("more_minus"))
    return [[cell for cell in side if cell] for side in both]


def aligned(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows of the same columns as aligned text; a column without any value is left out.

    >>> print(aligned([{"cell": "bm25", "measured": "0.5", "expected": ""}]))
    cell  measured
    bm25  0.5
    """
    shown = [key for key in (rows[0] if rows else ()) if any(row[key] != "" for row in rows)]
    lines = [shown, *([str(row[key]) for key in shown] for row in rows)] if shown else []
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ((cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def is_plan(value: object) -> bool:
    """Whether what a file holds is the plan of a recipe: others may call a file recipe.json too."""
    return isinstance(value, Mapping) and Plan.__required_keys__ <= value.keys()


def read_plan(folder: Path) -> Plan:
    """The plan beside the results in a folder."""
    path = folder / PLAN
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is not the plan of a recipe: {cause(error)}", "remove it, or write it again"
        ) from error
    if not is_plan(plan):
        hint = "remove it, or write it again with: triever experiment RECIPE"
        raise DataError(f"{path} is not the plan of a recipe, though results of runs lie beside it", hint)
    return plan


def read_result(path: Path, definition: str = "") -> RunResult | None:
    """The result in a file; None if there is no file, or if it has another definition."""
    try:
        result: RunResult = json.loads(path.read_text(encoding="utf-8"))
        return result if not definition or result["definition"] == definition else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not the result of a run: {cause(error)}", "remove it, or write it again") from error


def is_run(value: object) -> bool:
    """Whether what a file holds is the result of a run."""
    return isinstance(value, Mapping) and {"cell", "seed", "definition"} <= value.keys()


def _run_result(path: Path) -> RunResult:
    """The result of a run, whatever its definition."""
    result = read_result(path)
    if not result or not is_run(result):
        raise DataError(f"{path} is not the result of a run", "remove it, or write it again")
    return result


def _row(cell: PlannedCell, folder: Path) -> Row:
    results = [(run["seed"], read_result(folder / run["file"], run["definition"])) for run in cell["runs"]]
    good = tuple(result for _, result in results if result and "problem" not in result)
    problems = {seed: result["problem"] for seed, result in results if result and "problem" in result}
    return Row(cell["cell"], good, problems, len(cell["runs"]))


def _score(result: RunResult, split: str, measure: str) -> ScoreRecord:
    (scores,) = result["reports"][split]["scores"].values()
    return scores[measure]


def _of_each(result: RunResult, split: str, measure: str) -> np.ndarray:
    """(questions,) the values of a run for each question."""
    try:
        return unpacked(result["reports"][split]["each"]["values"][measure])
    except ValueError as error:
        run = f"{result['cell']}, seed {result['seed']}"
        problem = f"the {measure} of each question was changed in the result of {run}: {error}"
        raise DataError(problem, "run the cell again with --again") from error


def _has(result: RunResult, measure: str) -> bool:
    reports = result.get("reports", {}).values()  # a run that failed has none
    return all(measure in scores for report in reports for scores in report["scores"].values())


def _cost_text(column: str, value: float | None) -> str:
    """A cost as a table has it.

    >>> _cost_text("ms a query", 0.7512), _cost_text("bytes a document", 1536.0), _cost_text("minutes to fit", None)
    ('0.75', '1,536', '')
    """
    if value is None:
        return ""
    digits = {SECONDS: 1, MINUTES: 1, MILLISECONDS: 2}.get(column, 0)
    return f"{value:,.{digits}f}"


def _timing(rows: Sequence[Row]) -> str:
    """How the times of a table were taken."""
    queries = "Queries are asked together; one alone takes longer. Minutes to fit are those of all parts, and to read "
    queries += "the documents. Bytes are those that a search looks into, without weights and texts."
    crowded = [row.cell for row in rows if any(was_alone(result) is False for result in row.results)]
    if len(crowded) == len(rows):
        return f"{queries} All times were taken beside other work on the same machine, so they are longer than alone."
    if crowded:
        beside = "Times were taken beside other work on the same machine, and so are longer than alone"
        return f"{queries} {beside}: {', '.join(crowded)}."
    return f"{queries} {_quiet([result for row in rows for result in row.results])}"


def _quiet(results: Sequence[RunResult]) -> str:
    """What is known of other work where nothing shows that there was any."""
    loads = [highest_load(result) for result in results]
    known = [load for load in loads if load is not None]
    if len(known) < len(loads):
        return "Whether other work ran beside it was not recorded."
    if max(known) <= OWN_LOAD:
        return "Nothing else ran on the machine."
    cores = results[known.index(max(known))]["hardware"]["cores"]
    machine = f"the machine, which has {cores} cores," if cores else "the machine"
    return (
        f"The load of {machine} was at most {max(known):g}, and the runs themselves are part of it: "
        "how much other work ran beside them is not known."
    )


def _brief(measured: Measured | None) -> str:
    if measured is None:
        return ""
    return str(measured) if len(measured.means) > 1 else mean_text(measured.mean)


def _warn_of_other_data(name: str, rows: Sequence[Row]) -> None:
    seen: dict[str, str] = {}
    for row in rows:
        for result in row.results:
            data = result["data"]
            if seen.setdefault(data["dataset"], data["fingerprint"]) != data["fingerprint"]:
                log.warning(
                    "%s: %s was not measured on the same version of %s as other cells", name, row.cell, data["dataset"]
                )
                return
