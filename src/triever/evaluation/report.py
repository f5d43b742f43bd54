"""Systems side by side: means, intervals, tests against a baseline; as a table, Markdown, JSON or a picture.

A report is a value. It computes nothing after it was made, so what is read back from JSON is what was written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypeAlias, TypedDict, TypeVar

import numpy as np

from triever.arguments import brief, table, text, whole
from triever.data.records import Qrels, Query
from triever.errors import DataError, UsageError, cause, nearest
from triever.evaluation.measures import DEFAULT_MEASURES, AnyRun, Texts, lower_is_better, per_query
from triever.evaluation.picture import Means, draw_means
from triever.evaluation.significance import column_means, holm, intervals, p_values
from triever.printable import mean_text, printable
from triever.validation import Json

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")
FORMAT = 1
LEVEL = 0.95
SIGNIFICANT = 0.05
MARK = "†"

PerQuery: TypeAlias = Mapping[str, Mapping[str, Mapping[str, float]]]
"""System -> measure -> query id -> value."""


class ScoreRecord(TypedDict):
    """A score as JSON holds it."""

    mean: float
    low: float
    high: float
    p: float | None


class ReportRecord(TypedDict):
    """A report as JSON holds it."""

    format: int
    title: str
    about: dict[str, Json]
    baseline: str
    queries: int
    level: float
    scores: dict[str, dict[str, ScoreRecord]]
    extra: dict[str, dict[str, Json]]
    values: NotRequired[PerQuery]


@dataclass(frozen=True, slots=True)
class Score:
    """A mean over queries with its interval; `p` is the corrected p value against the baseline, whose own is None."""

    mean: float
    low: float
    high: float
    p: float | None = None

    @property
    def significant(self) -> bool:
        return self.p is not None and self.p < SIGNIFICANT

    def to_dict(self) -> ScoreRecord:
        """The score as JSON holds it."""
        return {"mean": self.mean, "low": self.low, "high": self.high, "p": self.p}

    def __str__(self) -> str:
        return f"{self.marked} {self.interval}"

    @property
    def marked(self) -> str:
        """The mean, with a mark where it differs from the baseline's."""
        return mean_text(self.mean) + (MARK if self.significant else "")

    @property
    def interval(self) -> str:
        """Its bounds in brackets."""
        return f"[{mean_text(self.low)}, {mean_text(self.high)}]"


@dataclass(frozen=True)
class Report:
    """What was measured: `report.scores["bm25"]["nDCG@10"].mean`. Made by `Report.of` or `evaluate`."""

    scores: Mapping[str, Mapping[str, Score]]
    baseline: str
    queries: int
    values: PerQuery = field(default_factory=dict, repr=False)
    extra: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    title: str = ""
    about: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        values: PerQuery,
        *,
        baseline: str | None = None,
        extra: Mapping[str, Mapping[str, object]] | None = None,
        title: str = "",
        about: Mapping[str, object] | None = None,
    ) -> Report:
        """A report of systems measured on the same queries; each is tested against `baseline`, by default the first."""
        _check_values(values)
        _check_tables(extra or {}, "extra", '{"bm25": {"seconds": 3}}')
        table(about or {}, "about", '{"data": "squad"}')
        text(title, "title")
        queries = _common_queries(values)
        reference = next(iter(values)) if baseline is None else baseline
        _known(reference, values, "system")
        for system in extra or ():
            _known(system, values, "system")
        return cls(
            scores=_scores(values, queries, reference),
            baseline=reference,
            queries=len(queries),
            values={system: _copied(columns, queries) for system, columns in values.items()},
            extra={system: _plain_table(columns) for system, columns in (extra or {}).items()},
            title=title,
            about=_plain_table(about or {}),
        )

    @property
    def systems(self) -> list[str]:
        return list(self.scores)

    @property
    def measures(self) -> list[str]:
        return list(next(iter(self.scores.values())))

    def per_query(self, system: str, measure: str) -> Mapping[str, float]:
        """Query id -> value."""
        if not self.values:
            raise UsageError("the report was saved without its values", "save it with to_dict(per_query=True)")
        _known(system, self.values, "system")
        _known(measure, self.values[system], "measure")
        return self.values[system][measure]

    def worst(self, system: str, measure: str, n: int = 10) -> list[tuple[str, float]]:
        """The n queries on which a system did worst, worst first."""
        values = self.per_query(system, measure)
        return sorted(values.items(), key=itemgetter(1), reverse=lower_is_better(measure))[: whole(n, "n", 0)]

    def best(self, measure: str) -> set[str]:
        """The systems with the best mean; none where there is nothing to compare."""
        _known(measure, self.measures, "measure")
        means = {system: columns[measure].mean for system, columns in self.scores.items()}
        top = (min if lower_is_better(measure) else max)(means.values())
        return {system for system, mean in means.items() if mean == top} if len(means) > 1 else set()

    def to_dict(self, *, per_query: bool = False) -> ReportRecord:
        """The report as JSON holds it; the values of every query only if `per_query`."""
        record: ReportRecord = {
            "format": FORMAT,
            "title": self.title,
            "about": dict(self.about),
            "baseline": self.baseline,
            "queries": self.queries,
            "level": LEVEL,
            "scores": {
                system: {measure: score.to_dict() for measure, score in columns.items()}
                for system, columns in self.scores.items()
            },
            "extra": {system: dict(columns) for system, columns in self.extra.items()},
        }
        return {**record, "values": self.values} if per_query else record

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:  # checked here, as a file may hold anything
        """The report that `to_dict` wrote."""
        if table(data, "the report", "json.load(file)").get("format") != FORMAT:
            hint = "write it again" if data.get("format") is None else "use the Triever that wrote it"
            raise DataError(f"this is not a report of format {FORMAT}", hint)
        try:
            scores = {
                system: {measure: Score(**score) for measure, score in columns.items()}
                for system, columns in data["scores"].items()
            }
            rest = {key: data[key] for key in ("baseline", "queries", "extra", "title", "about")}
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"the report is damaged: {cause(error)}", "write it again") from error
        return cls(scores=scores, values=data.get("values", {}), **rest)

    def table(self) -> Table:
        """A table for `rich` to print."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        # As Text, since names of systems and data are in them, and a string is read for markup.
        title, caption = (
            Text(printable(text), style)
            for text, style in ((self.title, "table.title"), (self.caption(), "table.caption"))
        )
        table = Table(title=title if self.title else None, caption=caption, caption_justify="left")
        table.box, table.padding, table.pad_edge = SIMPLE_HEAD, (0, 0, 0, 1), False
        table.add_column("system")
        for measure in self.measures:
            table.add_column(Text(printable(measure)), justify="right")
        for system in self.systems:
            name, *cells = _row(self, system, [])
            table.add_row(_rich(name, *_notes(self, system)), *(_rich(cell, _short(cell)) for cell in cells))
        return table

    def markdown(self) -> str:
        """A table for a page; the best of a column is bold."""
        header, rows = _grid(self)
        cells = [[_markdown_cell(cell) for cell in row] for row in rows]
        rule = ["---", *["---:"] * (len(header) - 1)]
        lines = [_markdown_row(row) for row in (header, rule, *cells)]
        head = [f"**{self.title}**", ""] if self.title else []
        return "\n".join([*head, *lines, "", self.caption(about=False)])

    def __str__(self) -> str:
        header, rows = _grid(self)
        lines = [header, *(list(map(str, row)) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        body = [_padded(line, widths) for line in lines]
        return "\n".join(filter(None, [self.title, *body, self.caption()]))

    def caption(self, *, about: bool = True) -> str:
        """A line about the numbers: the data, the number of queries, the interval and the test."""
        parts = [f"{key} {value}" for key, value in self.about.items()] if about else []
        parts.append(f"{self.queries:,} {'query' if self.queries == 1 else 'queries'}")
        parts.append(f"{LEVEL:.0%} bootstrap intervals")
        if len(self.scores) > 1:
            test = "randomisation test, Holm"
            parts.append(f"{MARK} differs from {self.baseline} (p < {SIGNIFICANT}, {test})")
        return "; ".join(parts)

    def plot(self, path: str | Path) -> None:
        """Draw the report to a file (.png, .svg or .pdf): one panel of bars with intervals per measure."""
        colours = f"; dark: the best, grey: {self.baseline}" if len(self.systems) > 1 else ""
        panels = [_panel(self, measure) for measure in self.measures]
        draw_means(panels, path, title=self.title, note=self.caption() + colours)


def evaluate(
    run: AnyRun,
    qrels: Qrels,
    measures: Sequence[str] = DEFAULT_MEASURES,
    *,
    name: str = "run",
    queries: Iterable[Query] = (),
    texts: Texts | None = None,
) -> Report:
    """Measure one run: `evaluate(run, qrels, ["nDCG@10"]).scores["run"]["nDCG@10"].mean`.

    A run maps query ids to results, or to scores by document id, as pytrec_eval has it.
    """
    return Report.of({text(name, "name"): per_query(run, qrels, measures, queries=queries, texts=texts)})


# --- numbers ------------------------------------------------------------------------------------------------


def _check_values(values: PerQuery) -> None:
    for system, columns in _check_tables(values, "values", '{"bm25": {"nDCG@10": {"q1": 0.5}}}').items():
        for measure, column in columns.items():
            text(measure, "a measure")
            table(column, f"{measure} of {system}", '{"q1": 0.5}')
            for value in column.values():
                if not isinstance(value, Real):
                    raise UsageError(f"{measure} of {system} is {brief(value)} for a query", "give numbers")


def _check_tables(values: Mapping[str, Mapping[str, T]], name: str, example: str) -> Mapping[str, Mapping[str, T]]:
    """The values, if they are a mapping for each system."""
    for system, columns in table(values, name, example).items():
        text(system, "the name of a system")
        table(columns, f"{name} of {system}", example)
    return values


def _common_queries(values: PerQuery) -> list[str]:
    """The queries in order; an error unless every system and measure has the same ones."""
    if not values or not all(values.values()):
        raise UsageError("there is nothing to report", "give at least one system and one measure")
    first = next(iter(values.values()))
    queries = list(next(iter(first.values())))
    if not queries:
        raise UsageError("there is nothing to report", "measure at least one query")
    for system, columns in values.items():
        if list(columns) != list(first):
            raise UsageError(
                f"system {system!r} was measured by other measures", "use the same measures for all systems"
            )
        if any(column.keys() != set(queries) for column in columns.values()):
            raise UsageError(f"system {system!r} was measured on other queries", "use the same queries for all systems")
    return queries


def _scores(values: PerQuery, queries: Sequence[str], baseline: str) -> dict[str, dict[str, Score]]:
    systems, measures = list(values), list(values[baseline])
    cube = np.array([[_column(values[s][m], queries) for m in measures] for s in systems], dtype=np.float64)
    means, low, high = _summaries(cube)
    p = _corrected(cube, systems.index(baseline))
    return {
        system: {
            measure: Score(float(means[i, j]), float(low[i, j]), float(high[i, j]), p[i][j])
            for j, measure in enumerate(measures)
        }
        for i, system in enumerate(systems)
    }


def _column(column: Mapping[str, float], queries: Sequence[str]) -> list[float]:
    return [column[query] for query in queries]


def _copied(columns: Mapping[str, Mapping[str, float]], queries: Sequence[str]) -> dict[str, dict[str, float]]:
    return {measure: {query: float(column[query]) for query in queries} for measure, column in columns.items()}


def _summaries(cube: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means and intervals, (systems, measures) each, of (systems, measures, queries)."""
    flat = cube.reshape(-1, cube.shape[2]).T
    low, high = intervals(flat, level=LEVEL)
    shape = cube.shape[:2]
    return column_means(flat).reshape(shape), low.reshape(shape), high.reshape(shape)


def _corrected(cube: np.ndarray, baseline: int) -> list[list[float | None]]:
    """p values against the baseline, by system and measure; Holm over the systems of each measure."""
    systems, measures, queries = cube.shape
    compared = [index for index in range(systems) if index != baseline]
    table: list[list[float | None]] = [[None] * measures for _ in range(systems)]
    if compared:
        differences = (cube[compared] - cube[baseline]).reshape(-1, queries).T
        raw = p_values(differences).reshape(len(compared), measures)
        for j in range(measures):
            for i, p in zip(compared, holm(raw[:, j].tolist()), strict=True):
                table[i][j] = p
    return table


def _known(name: str, among: Iterable[str], kind: str) -> None:
    names = list(among)
    if name not in names:
        raise UsageError(f"the report has no {kind} {name!r}", nearest(name, names))


def _plain_table(values: Mapping[str, object]) -> dict[str, Json]:
    return {str(key): _plain(value) for key, value in values.items()}


def _plain(value: object) -> Json:
    """The value as JSON can hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


# --- text ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableValue:
    """A piece of a table: a value and, for a mean, its interval."""

    value: str
    interval: str = ""
    best: bool = False

    def __str__(self) -> str:
        return f"{self.value} {self.interval}".rstrip()


def _grid(report: Report) -> tuple[list[str], list[list[TableValue]]]:
    """The header and the rows that every kind of table shows."""
    columns = list(dict.fromkeys(key for extra in report.extra.values() for key in extra))
    return ["system", *report.measures, *columns], [list(_row(report, s, columns)) for s in report.systems]


def _row(report: Report, system: str, columns: Sequence[str]) -> Iterator[TableValue]:
    yield TableValue(system)
    for measure, score in report.scores[system].items():
        yield TableValue(score.marked, score.interval, best=system in report.best(measure))
    given = report.extra.get(system, {})
    yield from (TableValue(_amount(given.get(column))) for column in columns)


def _panel(report: Report, measure: str) -> Means:
    scores = [report.scores[system][measure] for system in report.systems]
    best, alone = report.best(measure), len(scores) == 1
    roles = {report.baseline: "other" if alone else "baseline"} | dict.fromkeys(best, "best")
    return Means(
        measure + (" (less is better)" if lower_is_better(measure) else ""),
        report.systems,
        [(score.mean, score.low, score.high) for score in scores],
        [score.marked for score in scores],
        [roles.get(system, "other") for system in report.systems],
    )


def _rich(cell: TableValue, *below: str) -> Text:
    """A cell for a terminal, which is narrow: further lines stand dim below the value."""
    from rich.text import Text

    value = Text(printable(cell.value), style="bold" if cell.best else "")
    return value.append("".join(f"\n{printable(line)}" for line in below), style="not bold dim")


def _short(cell: TableValue) -> str:
    return re.sub(r"\b0\.", ".", cell.interval.strip("[]").replace(", ", "–"))


def _notes(report: Report, system: str) -> list[str]:
    return [f"{key} {_amount(value)}" for key, value in report.extra.get(system, {}).items()]


def _amount(value: object) -> str:
    """A value beside the measures, such as a speed, whose size matters more than its last digits."""
    if value is None:
        return ""
    if isinstance(value, float):
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 1 else 3
        return f"{value:,.{digits}f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _markdown_cell(cell: TableValue) -> str:
    return f"**{cell.value}** {cell.interval}".rstrip() if cell.best else str(cell)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join([first.strip().ljust(widths[0]), *rest]).rstrip()
