"""Pictures: a report as bars with intervals, rows of a benchmark as points, an analysis as bars or lines.

The only file that needs matplotlib.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from triever.arguments import as_path
from triever.errors import MissingExtra, UsageError
from triever.evaluation.finding import Bars
from triever.evaluation.measures import lower_is_better
from triever.evaluation.report import MARK, Report, Score, mean_text
from triever.files import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = (".pdf", ".png", ".svg")
PANELS_ACROSS = 3
INK, MUTED, GRID = "#1f2933", "#616e7c", "#e4e7eb"
BASELINE_BAR, BAR, BEST_BAR = "#9aa5b1", "#7fb2e5", "#2b6cb0"
COLOURS = ("#2b6cb0", "#d9694f", "#9aa5b1", "#4c9f70", "#8e6bbf", "#c9a227", "#3a8f9e", "#b05c8e")
"""Of what stands side by side: series of bars, families of points."""
MARKS = ("o", "^", "D", "v", "X", "P", "<", ">", "*", "h")
LEGEND_POINTS = 7.5


def check_picture(path: str | Path) -> None:
    """Refuse a picture that cannot be drawn here, before any work is done for it."""
    if as_path(path).suffix.lower() not in PICTURES:
        raise UsageError(f"{path} has no known picture format", f"end its name with {', '.join(PICTURES)}")
    _matplotlib()


def draw(report: Report, path: str | Path) -> None:
    """Draw a report to a file, whose name ends with one of PICTURES."""
    _save(lambda: _figure(report), path)


def draw_points(rows: Sequence[Mapping[str, Any]], x: str, ys: Sequence[str], path: str | Path) -> None:
    """Draw rows as points, a panel for each y; x, such as a speed, by its logarithm.

    Of the name of a row's `system`, what stands before a comma has a colour, and what stands behind it a mark.
    """
    _save(lambda: _points_figure(rows, x, ys), path)


def draw_bars(panels: Sequence[Bars], path: str | Path) -> None:
    """Draw panels of bars beside each other."""
    _save(lambda: _bars_figure(panels), path)


def draw_lines(panels: Sequence[Bars], path: str | Path) -> None:
    """Draw the same as lines, whose labels are steps from left to right: for what rises and falls along them."""
    _save(lambda: _lines_figure(panels), path)


def _save(figure: Callable[[], Figure], path: str | Path) -> None:
    check_picture(path)
    target = as_path(path)
    with _matplotlib().rc_context({"svg.hashsalt": "triever", "svg.fonttype": "path", "font.size": 9}):
        metadata = {"Date": None} if target.suffix.lower() == ".svg" else None  # the same file every time
        with atomic(target) as file:
            figure().savefig(file, format=target.suffix.lower()[1:], dpi=160, metadata=metadata)


def _bars_figure(panels: Sequence[Bars]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = max(len(panel.labels) * len(panel.series) for panel in panels)
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure(figsize=(4.6 * len(panels), 1.4 + 0.28 * rows), layout=layout)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False).ravel(), panels, strict=True):
        _bars_panel(axes, panel)
    return figure


def _bars_panel(axes: Axes, panel: Bars) -> None:
    height = 0.8 / len(panel.series)
    for at, (name, given) in enumerate(panel.series.items()):
        places = [row + (at - (len(panel.series) - 1) / 2) * height for row in range(len(panel.labels))]
        values = [value or 0.0 for value in given]
        axes.barh(places, values, height=0.9 * height, color=COLOURS[at % len(COLOURS)], label=name, zorder=2)
        for place, value, shown in zip(places, values, map(_bar_text, given), strict=True):
            axes.annotate(shown, (value, place), (4, 0), textcoords="offset points", va="center", color=INK, fontsize=8)
    axes.margins(x=0.22)  # room for the number behind the longest bar
    axes.set_yticks(range(len(panel.labels)), panel.labels)
    axes.invert_yaxis()  # the first label on top
    if len(panel.series) > 1:
        axes.legend(frameon=False, fontsize=LEGEND_POINTS, loc="upper left", bbox_to_anchor=(0, -0.08), ncols=3)
    _plain(axes, textwrap.fill(panel.title, 36), "x")
    axes.tick_params(axis="y", colors=INK, labelsize=9)


def _lines_figure(panels: Sequence[Bars]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    colours = dict(zip(dict.fromkeys(name for panel in panels for name in panel.series), cycle(COLOURS)))
    figure = Figure(figsize=(3.4 * len(panels), 3.2), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False).ravel(), panels, strict=True):
        for name, given in panel.series.items():
            there = [(place, value) for place, value in enumerate(given) if value is not None]
            axes.plot(*zip(*there, strict=True), "o-", color=colours[name], label=name, zorder=2)
        axes.set_xticks(range(len(panel.labels)), panel.labels)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,g}")
        _plain(axes, textwrap.fill(panel.title, 36), "both")
    if len(colours) > 1:
        _name_points(figure, colours, {})
    return figure


def _plain(axes: Axes, title: str, grid: Literal["x", "both"]) -> None:
    """With a title and without a frame: a grid behind what is drawn is enough."""
    axes.set_title(title, loc="left", color=INK, fontsize=10, fontweight="bold")
    axes.grid(axis=grid, color=GRID, zorder=0)
    axes.tick_params(length=0, which="both", colors=MUTED, labelsize=8)
    for side in axes.spines.values():
        side.set_visible(False)


def _bar_text(value: float | None) -> str:
    return "none" if value is None else f"{value:,.0f}" if value >= 100 else mean_text(value)


def _points_figure(rows: Sequence[Mapping[str, Any]], x: str, ys: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import LogLocator, NullLocator

    names = [tuple(row["system"].partition(", ")[::2]) for row in rows]
    colours = dict(zip(dict.fromkeys(family for family, _ in names), cycle(COLOURS)))
    marks = dict(zip(dict.fromkeys(variant for _, variant in names), cycle(MARKS)))
    figure = Figure(figsize=(4.6 * len(ys), 4.2), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    for panel, y in zip(figure.subplots(1, len(ys), squeeze=False).ravel(), ys, strict=True):
        for row, (family, variant) in zip(rows, names, strict=True):
            panel.plot(row[x], row[y], marks[variant], color=colours[family], markersize=6.5, alpha=0.85, zorder=2)
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:,g}")
        panel.xaxis.set_minor_locator(NullLocator())
        panel.margins(x=0.12, y=0.12)
        panel.set_xlabel(x.replace("_", " "), color=MUTED)
        _plain(panel, y, "both")
    _name_points(figure, colours, {variant: mark for variant, mark in marks.items() if variant})
    return figure


def _name_points(figure: Figure, colours: Mapping[str, str], marks: Mapping[str, str]) -> None:
    """Below the panels: what is of which colour, and behind it what has which mark."""
    from matplotlib.lines import Line2D

    shown = [(name, colour, "s") for name, colour in colours.items()]
    shown += [(name, MUTED, mark) for name, mark in marks.items()]
    handles = [Line2D([], [], marker=mark, color=colour, label=name, linestyle="none") for name, colour, mark in shown]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=8, frameon=False, fontsize=LEGEND_POINTS, labelcolor=INK
    )


def _matplotlib() -> ModuleType:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra("drawing a report", "pip install 'triever[plot]'") from error
    return mpl


def _figure(report: Report) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    across = min(PANELS_ACROSS, len(report.measures))
    down = -(-len(report.measures) // across)
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    height = 0.75 + 0.34 * len(report.systems)
    figure = Figure(figsize=(3.3 * across + 1.0, down * height + 0.9), layout=layout)
    panels = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    for panel, measure in zip(panels, report.measures, strict=False):
        _panel(panel, report, measure)
    for empty in panels[len(report.measures) :]:
        empty.set_visible(False)
    figure.suptitle(report.title, color=INK, fontsize=12, fontweight="bold")
    figure.supxlabel(_legend(report, figure.get_figwidth()), color=MUTED, fontsize=LEGEND_POINTS)
    return figure


def _legend(report: Report, inches: float) -> str:
    colours = f"; dark: the best, grey: {report.baseline}" if len(report.systems) > 1 else ""
    letters = inches * 72 / LEGEND_POINTS / 0.58  # a letter is about 0.58 of its height wide
    return textwrap.fill(report.caption() + colours, int(letters))


def _panel(panel: Axes, report: Report, measure: str) -> None:
    scores = [report.scores[system][measure] for system in report.systems]
    places = range(len(scores))
    panel.barh(places, [score.mean for score in scores], height=0.62, color=_colours(report, measure), zorder=2)
    for width, colour in ((3.4, "white"), (1.3, INK)):  # a light edge keeps the line visible on a dark bar
        panel.hlines(places, [s.low for s in scores], [s.high for s in scores], colour, linewidth=width, zorder=3)
    for place, score in zip(places, scores, strict=True):
        _label(panel, place, score)
    panel.set_yticks(places, report.systems)
    panel.set_ylim(len(scores) - 0.4, -0.6)  # the first system on top
    _dress(panel, measure, _span(report, measure))


def _label(panel: Axes, place: int, score: Score) -> None:
    text = f"{mean_text(score.mean)}{MARK if score.significant else ''}"
    after = (max(score.high, 0.0), place)
    panel.annotate(text, after, (5, 0), textcoords="offset points", va="center", color=INK, fontsize=8.5)


def _span(report: Report, measure: str) -> float:
    """How far the axis goes: the same for all measures between 0 and 1, so that panels can be compared."""
    tops = {m: max(report.scores[s][m].high for s in report.systems) for m in report.measures}
    small = [top for top in tops.values() if top <= 1]
    return max(small) if tops[measure] <= 1 else tops[measure]


def _dress(panel: Axes, measure: str, span: float) -> None:
    from matplotlib.ticker import MaxNLocator

    note = " (less is better)" if lower_is_better(measure) else ""
    panel.set_xlim(0, (span or 1.0) * 1.22)  # room for the number behind the longest bar
    ticks = MaxNLocator(5).tick_values(0, span or 1.0)
    panel.set_xticks([tick for tick in ticks if 0 <= tick <= (span or 1.0) * 1.001])
    _plain(panel, measure + note, "x")
    panel.tick_params(axis="y", colors=INK, labelsize=9)


def _colours(report: Report, measure: str) -> list[str]:
    best = report.best(measure)
    alone = len(report.systems) == 1
    others = {report.baseline: BAR if alone else BASELINE_BAR}
    return [BEST_BAR if system in best else others.get(system, BAR) for system in report.systems]
