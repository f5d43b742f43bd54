"""Measured results as plain tables for a page: what recipes and comparisons left in a folder. Knows nothing of HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from triever.evaluation.measures import lower_is_better
from triever.evaluation.report import Report
from triever.lab.results import Section, sections
from triever.lab.tables import RecipeTable, Row
from triever.lab.verdicts import Measured


def result_tables(folder: str | Path) -> list[dict[str, Any]]:
    """A table for each recipe and split, and for each comparison; it is read again only where a file has changed."""
    return _tables(Path(folder), _mark(Path(folder)))


def _mark(folder: Path) -> tuple[tuple[str, int], ...]:
    """How the files of a folder look now."""
    return tuple((str(file), file.stat().st_mtime_ns) for file in sorted(folder.rglob("*.json")))


@lru_cache(maxsize=1)
def _tables(folder: Path, _mark: object) -> list[dict[str, Any]]:
    return [table for section in sections(folder) for table in _of_section(section)]


def _of_section(section: Section) -> Iterator[dict[str, Any]]:
    """The tables of a section; an analysis has none."""
    if section.table is not None:
        yield from _of_recipe(section, section.table)
    elif section.report is not None:
        yield _of_report(section, section.report)


def _of_recipe(section: Section, table: RecipeTable) -> Iterator[dict[str, Any]]:
    plan = table.plan
    splits = dict.fromkeys(split for row in table.rows for split in row.splits)
    for split in splits:
        rows = [_cell(row, split, plan["measures"]) for row in table.rows if split in row.splits]
        about = {"title": plan["title"], "about": plan["about"], "split": split, "data": _dataset(table)}
        orders = [{"statement": line["order"], "verdict": line["verdict"]} for line in table.verdicts]
        yield _table(section.title, about, rows, orders if split == plan["split"] else [])


def _cell(row: Row, split: str, measures: list[str]) -> dict[str, Any]:
    scores = {name: _score(measured) for name in measures if (measured := row.measured(split, name))}
    cost = {"seconds": row.seconds, "queries_per_second": row.speed(split)}
    return {"name": row.cell, "seeds": len(row.results), "scores": scores, **cost}


def _score(measured: Measured) -> dict[str, float]:
    """A mean with the range of its seeds, or with the interval of the only one."""
    low, high = measured.span(by_seeds=len(measured.means) > 1)
    return {"mean": measured.mean, "low": low, "high": high}


def _dataset(table: RecipeTable) -> str:
    names = [result["data"]["dataset"] for row in table.rows for result in row.results]
    return names[0] if names else ""


def _of_report(section: Section, report: Report) -> dict[str, Any]:
    rows = []
    for system, columns in report.scores.items():
        scores = {name: {"mean": own.mean, "low": own.low, "high": own.high} for name, own in columns.items()}
        speed = report.extra.get(system, {}).get("queries/s")
        rows.append({"name": system, "seeds": 1, "scores": scores, "seconds": None, "queries_per_second": speed})
    about = {
        "title": report.title,
        "about": "",
        "split": report.about.get("split", ""),
        "data": report.about.get("data", ""),
    }
    return _table(section.title, about, rows, [])


def _table(
    name: str, about: dict[str, Any], rows: list[dict[str, Any]], orders: list[dict[str, str]]
) -> dict[str, Any]:
    measures = [*dict.fromkeys(measure for row in rows for measure in row["scores"])]
    lower = [measure for measure in measures if lower_is_better(measure)]
    return {"name": name, **about, "measures": measures, "lower_is_better": lower, "rows": rows, "orders": orders}
