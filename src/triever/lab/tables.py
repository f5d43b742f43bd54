"""The table of a recipe, from its plan and the files that its runs left: what was measured, what was expected.

A plan is what `Recipe.plan` gives, as plain values. Computes from files alone, so a page and a report agree.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from triever.errors import DataError
from triever.printable import mean_text

PLAN = "recipe.json"
"""The file beside the results of a recipe that says what its table holds."""

HOLDS, FAILS, OPEN, MISSING = "holds", "does not hold", "cannot be told", "not measured"
OK, DRIFT = "OK", "DRIFT"
log = logging.getLogger("triever")


@dataclass(frozen=True)
class Measured:
    """A mean over queries and its interval, for each seed."""

    means: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.means)

    def span(self, by_seeds: bool) -> tuple[float, float]:
        """How far the seeds lie apart, or else the interval of one of them."""
        return (min(self.means), max(self.means)) if by_seeds else (fmean(self.lows), fmean(self.highs))

    def __str__(self) -> str:
        """The mean with the standard deviation over seeds, or with the interval of the only one."""
        if len(self.means) > 1:
            return f"{mean_text(self.mean)} ± {mean_text(stdev(self.means))}"
        return f"{mean_text(self.mean)} [{mean_text(self.lows[0])}, {mean_text(self.highs[0])}]"


def verdict(less: Measured, more: Measured, *, strict: bool) -> str:
    """Whether one is below another: only where they do not overlap can it be told.

    What overlaps are the seeds, where both have several, and else the intervals over queries.
    """
    by_seeds = len(less.means) > 1 and len(more.means) > 1
    (low, high), (other_low, other_high) = less.span(by_seeds), more.span(by_seeds)
    if high < other_low or (high == other_low and not strict):
        return HOLDS
    if low > other_high or (low == other_high and strict):
        return FAILS
    return OPEN


def together(verdicts: Sequence[str]) -> str:
    """What several verdicts say as one: the worst of them."""
    return next((worst for worst in (FAILS, MISSING, OPEN) if worst in verdicts), HOLDS)


@dataclass(frozen=True)
class Row:
    """One cell: the results of its runs that went well, in the order of its seeds, and what went wrong with others."""

    cell: str
    results: tuple[Mapping[str, Any], ...]
    problems: Mapping[int, str]  # by seed
    planned: int

    def measured(self, split: str, measure: str) -> Measured | None:
        """One measure over the seeds, if there are any."""
        scores = [_score(result, split, measure) for result in self.results]
        if not scores:
            return None
        return Measured(*(tuple(score[key] for score in scores) for key in ("mean", "low", "high")))

    @property
    def seconds(self) -> float | None:
        """How long one run took."""
        return fmean(result["seconds"] for result in self.results) if self.results else None

    def speed(self, split: str) -> float:
        """How many queries of a split were answered in a second."""
        extra = [next(iter(result["reports"][split]["extra"].values())) for result in self.results]
        return fmean(one["queries/s"] for one in extra)

    @property
    def splits(self) -> list[str]:
        return list(self.results[0]["reports"]) if self.results else []


@dataclass(frozen=True)
class RecipeTable:
    """A plan and the rows that there are."""

    plan: Mapping[str, Any]
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, plan: Mapping[str, Any], folder: Path) -> RecipeTable:
        """The table of a plan from the files of a folder; what was run by another definition does not count."""
        rows = tuple(_row(cell, folder) for cell in plan["cells"])
        _warn_of_other_data(plan["name"], rows)
        return cls(plan, rows)

    @classmethod
    def unlisted(cls, plan: Mapping[str, Any], folder: Path) -> RecipeTable:
        """The table of the results in a folder that a plan does not list, with the measures that all of them have."""
        listed = {(run["file"], run["definition"]) for cell in plan["cells"] for run in cell["runs"]}
        runs: dict[str, list[dict[str, Any]]] = {}
        measures = list(plan["measures"])
        for path in sorted(folder.glob("*-seed*.json")):
            result = _run_result(path)
            if (path.name, result["definition"]) not in listed:
                run = {"seed": result["seed"], "file": path.name, "definition": result["definition"]}
                runs.setdefault(result["cell"], []).append(run)
                measures = [measure for measure in measures if _has(result, measure)]
        cells = [{"cell": cell, "runs": found} for cell, found in runs.items()]
        return cls.of({**plan, "cells": cells, "measures": measures, "values": [], "order": []}, folder)

    def narrowed(self, cells: Sequence[str]) -> RecipeTable:
        """Only these cells, and what is expected of them alone."""
        plan = dict(self.plan)
        plan["cells"] = [one for one in plan["cells"] if one["cell"] in cells]
        plan["values"] = [one for one in plan["values"] if one["cell"] in cells]
        plan["order"] = [
            one for one in plan["order"] if all(pair[end] in cells for pair in one["pairs"] for end in ("less", "more"))
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
        return numbers or any(one["verdict"] == FAILS for one in self.verdicts())

    def lines(self) -> list[dict[str, str]]:
        """A row for each cell and measure that something is expected of."""
        return [self._line(row, measure) for row in self.rows for measure in self._asked(row.cell)]

    def verdicts(self) -> list[dict[str, str]]:
        """A row for each statement about the order of cells."""
        found = []
        for one in self.plan["order"]:
            splits = one.get("splits") or [self.plan["split"]]
            cases = [(pair, split) for split in splits for pair in one["pairs"]]
            told = [self._told(pair, split, one["measure"]) for pair, split in cases]
            counted = f"{told.count(HOLDS)} of {len(told)}" if len(told) > 1 else ""
            unclear = [
                (f"{split}: " if len(splits) > 1 else "")
                + ", ".join(f"{pair[end]} {self._short(pair[end], split, one['measure'])}" for end in ("less", "more"))
                for (pair, split), said in zip(cases, told, strict=True)
                if said in (FAILS, OPEN)
            ]
            why = "; ".join(filter(None, [counted, *unclear[:1]]))
            found.append({"order": one["statement"], "verdict": together(told), "why": why})
        return found

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        about = {key: self.plan[key] for key in ("name", "setting", "title", "about", "split")}
        cells = [
            {"cell": row.cell, "seeds": len(row.results), "seconds": row.seconds, "measures": self._means(row)}
            for row in self.rows
        ]
        return {**about, "cells": cells, "expected": self.lines(), "order": self.verdicts(), "failed": self.failed}

    def text(self) -> str:
        """What a person sees at the end of an experiment."""
        title = f"{self.plan['title']} ({self.plan['name']}, {self.plan['setting']})"
        failed = "\n".join(f"failed: {line}" for line in self.failed)
        return "\n\n".join(filter(None, [title, aligned(self.lines()), aligned(self.verdicts()), failed]))

    def markdown(self) -> str:
        """A page's section: a table for each split, and what was expected."""
        splits = list(dict.fromkeys(split for row in self.rows for split in row.splits))
        tables = [self._split_table(split, several=len(splits) > 1) for split in splits]
        said = [*self._said_of_values(), *self._said_of_order(), *(f"- failed: {line}" for line in self.failed)]
        return "\n\n".join([*tables, *(["\n".join(said)] if said else [])])

    def _line(self, row: Row, measure: str) -> dict[str, str]:
        found = row.measured(self.plan["split"], measure)
        wanted = self._expected(row.cell, measure)
        said = ""
        if found and wanted:
            said = OK if abs(found.mean - wanted["value"]) <= wanted["tolerance"] else DRIFT
        missing = "failed" if row.problems else "not run"
        return {
            "cell": row.cell,
            "measure": measure,
            "measured": str(found) if found else missing,
            "seeds": f"{len(row.results)}" + (f" of {row.planned}" if len(row.results) < row.planned else ""),
            "expected": f"{mean_text(wanted['value'])} ± {wanted['tolerance']:g}" if wanted else "",
            "verdict": said,
        }

    def _asked(self, cell: str) -> list[str]:
        others = [one["measure"] for one in self.plan["values"] if one["cell"] == cell]
        return list(dict.fromkeys([self.plan["measure"], *others]))

    def _expected(self, cell: str, measure: str) -> Mapping[str, Any] | None:
        values = self.plan["values"]
        return next((one for one in values if (one["cell"], one["measure"]) == (cell, measure)), None)

    def _measured(self, cell: str, split: str, measure: str) -> Measured | None:
        row = next(row for row in self.rows if row.cell == cell)
        return row.measured(split, measure)

    def _told(self, pair: Mapping[str, Any], split: str, measure: str) -> str:
        less, more = (self._measured(pair[end], split, measure) for end in ("less", "more"))
        return verdict(less, more, strict=pair["strict"]) if less and more else MISSING

    def _short(self, cell: str, split: str, measure: str) -> str:
        found = self._measured(cell, split, measure)
        return mean_text(found.mean) if found else ""

    def _means(self, row: Row) -> dict[str, dict[str, float]]:
        return {
            split: {m: found.mean for m in self.plan["measures"] if (found := row.measured(split, m))}
            for split in row.splits
        }

    def _split_table(self, split: str, *, several: bool) -> str:
        head = ["cell", *self.plan["measures"], "seeds", "seconds", "queries/s"]
        lines = [head, ["---", *["---:"] * (len(head) - 1)]]
        for row in self.rows:
            if split in row.splits:
                found = [row.measured(split, measure) for measure in self.plan["measures"]]
                seconds = f"{row.seconds:,.1f}" if row.seconds is not None else ""
                cost = [str(len(row.results)), seconds, f"{row.speed(split):,.0f}"]
                lines.append([row.cell, *map(_brief, found), *cost])
        body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"Split {split}:\n\n{body}" if several else body

    def _said_of_values(self) -> list[str]:
        return [
            f"- {line['verdict'] or MISSING}: {line['cell']}, {line['measure']} {line['measured']}, "
            f"expected {line['expected']}"
            for line in self.lines()
            if line["expected"]
        ]

    def _said_of_order(self) -> list[str]:
        return [
            f"- {one['verdict']}: `{one['order']}`" + (f" ({one['why']})" if one["why"] else "")
            for one in self.verdicts()
        ]


def aligned(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of the same columns as text; a column in which nothing stands is left out.

    >>> print(aligned([{"cell": "bm25", "measured": "0.5", "expected": ""}]))
    cell  measured
    bm25  0.5
    """
    shown = [key for key in (rows[0] if rows else ()) if any(row[key] != "" for row in rows)]
    lines = [shown, *([str(row[key]) for key in shown] for row in rows)] if shown else []
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ((cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def read_result(path: Path, definition: str = "") -> dict[str, Any] | None:
    """The result in a file, if there is one and it was run by this definition."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        return result if not definition or result["definition"] == definition else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not the result of a run: {error!r}", "remove it, or write it again") from error


def _run_result(path: Path) -> Mapping[str, Any]:
    """The result of a run, whatever its definition."""
    result = read_result(path)
    if not isinstance(result, Mapping) or not {"cell", "seed", "definition"} <= result.keys():
        raise DataError(f"{path} is not the result of a run", "remove it, or write it again")
    return result


def _row(cell: Mapping[str, Any], folder: Path) -> Row:
    found = [(run["seed"], read_result(folder / run["file"], run["definition"])) for run in cell["runs"]]
    good = tuple(result for _, result in found if result and "problem" not in result)
    problems = {seed: result["problem"] for seed, result in found if result and "problem" in result}
    return Row(cell["cell"], good, problems, len(cell["runs"]))


def _score(result: Mapping[str, Any], split: str, measure: str) -> Mapping[str, float]:
    (scores,) = result["reports"][split]["scores"].values()
    return scores[measure]


def _has(result: Mapping[str, Any], measure: str) -> bool:
    reports = result.get("reports", {}).values()  # a run that failed has none
    return all(measure in scores for report in reports for scores in report["scores"].values())


def _brief(found: Measured | None) -> str:
    if found is None:
        return ""
    return str(found) if len(found.means) > 1 else mean_text(found.mean)


def _warn_of_other_data(name: str, rows: Sequence[Row]) -> None:
    seen: dict[str, str] = {}
    for row in rows:
        for result in row.results:
            data = result["data"]
            if seen.setdefault(data["dataset"], data["fingerprint"]) != data["fingerprint"]:
                log.warning("%s: %s was not measured on the same %s as others", name, row.cell, data["dataset"])
                return
