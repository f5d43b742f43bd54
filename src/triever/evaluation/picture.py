"""Pictures of plain values: means as bars with intervals, rows as points, series as bars, lines or curves.

The only file that needs matplotlib. It knows neither reports nor analyses.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal, TypeAlias

from triever.arguments import as_path
from triever.errors import MissingExtra, UsageError
from triever.files import atomic
from triever.printable import mean_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import LineStyleType

BEGINNINGS = {".pdf": b"%PDF-", ".png": b"\x89PNG\r\n", ".svg": b"<svg"}
"""What stands at or near the beginning of a picture, by the end of its name."""
PICTURES = tuple(BEGINNINGS)
PANELS_ACROSS = 3
INK, MUTED, GRID = "#1f2933", "#616e7c", "#e4e7eb"
ROLES = {"best": "#2b6cb0", "baseline": "#9aa5b1", "other": "#7fb2e5"}
"""The colours of bars of means."""
COLOURS = ("#2b6cb0", "#d9694f", "#9aa5b1", "#4c9f70", "#8e6bbf", "#c9a227", "#3a8f9e", "#b05c8e", "#6b4f3a")
"""The colours of series of bars and of families of points."""
MARKS = ("o", "^", "D", "v", "X", "P", "<", ">", "*", "h")
LINES: tuple[LineStyleType, ...] = ("-", "--", ":", "-.")
LEGEND_POINTS = 7.5
MARK_LETTERS = 8
"""How many letters wide a mark of a legend is, with the space around it."""
MANY_TIMES = 6
"""From how many times the smallest step on the steps of lines have a scale by their logarithms."""
WIDE = 300
"""From how many times the smallest x on only powers of ten are written below points."""
CROWDED = 6
"""With more steps than these their labels are turned."""
SPREAD = (
    "Thin: 95% interval over questions. Thick: range of the seeds, where there are several.\n"
    "Lines go through the seeds that all of their points have. Scales need not begin at 0."
)
SMALLEST_MARK, LARGEST_MARK = 10, 250
"""The areas of marks of curves in square points: of nothing, and how much larger that of everything is."""


Span: TypeAlias = tuple[float, float]
"""The lowest and the highest value."""


@dataclass(frozen=True)
class Bars:
    """A panel of bars, or of lines: for each label one of each series, None where there is nothing to draw.

    Around the points of a line may stand the interval of their questions, and the range of their seeds.
    """

    title: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    x: str = ""  # what the labels are values of
    over_questions: Mapping[str, Sequence[Span | None]] = field(default_factory=dict)
    over_seeds: Mapping[str, Sequence[Span | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Curve:
    """Points from left to right; the name is read as `draw_lines` reads that of a series."""

    name: str
    points: Sequence[tuple[float, float]]
    shares: Sequence[float] = ()  # of all that is drawn in each point: marks of that size; none: no marks


@dataclass(frozen=True)
class Curves:
    """A panel of shares against shares, both from 0 to 1; `diagonal` shows where both are the same."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    diagonal: bool = False


@dataclass(frozen=True)
class Means:
    """A panel of means with their intervals: for each label a bar, the text behind it, and its role."""

    title: str
    labels: Sequence[str]
    values: Sequence[tuple[float, float, float]]  # mean, low, high
    texts: Sequence[str]
    roles: Sequence[str]  # one of ROLES


def check_picture(path: str | Path) -> None:
    """Refuse a picture that cannot be drawn here, before any work is done for it."""
    if as_path(path).suffix.lower() not in PICTURES:
        raise UsageError(f"{path} has no known picture format", f"end its name with {', '.join(PICTURES)}")
    _matplotlib()


def is_picture(path: Path) -> bool:
    """Whether a file begins as a picture does whose name ends so."""
    with path.open("rb") as file:
        head = file.read(1024)
    return BEGINNINGS[path.suffix.lower()] in head


def draw_means(panels: Sequence[Means], path: str | Path, *, title: str = "", note: str = "") -> None:
    """Draw panels to a file, whose name ends with one of PICTURES; the note stands below them."""
    _save(lambda: _means_figure(panels, title, note), path)


def draw_points(rows: Sequence[Mapping[str, str | float]], x: str, ys: Sequence[str], path: str | Path) -> None:
    """Draw rows as points, a panel for each y; x, such as a speed, by its logarithm.

    The part of a row's `system` before a comma decides the colour, and the part behind it the mark.
    """
    _save(lambda: _points_figure(rows, x, ys), path)


def draw_bars(panels: Sequence[Bars], path: str | Path) -> None:
    """Draw panels of bars beside each other."""
    _save(lambda: _bars_figure(panels), path)


def draw_lines(panels: Sequence[Bars], path: str | Path, *, logarithmic: bool = False) -> None:
    """Draw the same panels as lines; the labels are steps from left to right.

    Values may be shown by their logarithms, on one scale for all panels.

    The part of a series' name before a comma decides the colour, and the part behind it how the line is drawn: the
    first one in one piece, the second dashed.
    """
    _save(lambda: _lines_figure(panels, logarithmic), path)


def draw_curves(panels: Sequence[Curves], path: str | Path) -> None:
    """Draw panels of curves beside each other; a name has one colour and one kind of line in all of them."""
    _save(lambda: _curves_figure(panels), path)


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
        heights = [row + (at - (len(panel.series) - 1) / 2) * height for row in range(len(panel.labels))]
        values = [value or 0.0 for value in given]
        axes.barh(heights, values, height=0.9 * height, color=COLOURS[at % len(COLOURS)], label=name, zorder=2)
        for y, value, shown in zip(heights, values, map(_bar_text, given), strict=True):
            axes.annotate(shown, (value, y), (4, 0), textcoords="offset points", va="center", color=INK, fontsize=8)
    axes.margins(x=0.22)  # room for the number behind the longest bar
    axes.set_yticks(range(len(panel.labels)), panel.labels)
    axes.invert_yaxis()  # the first label on top
    if len(panel.series) > 1:
        axes.legend(frameon=False, fontsize=LEGEND_POINTS, loc="upper left", bbox_to_anchor=(0, -0.08), ncols=3)
    _plain(axes, textwrap.fill(panel.title, 36), "x")
    axes.tick_params(axis="y", colors=INK, labelsize=9)


def _lines_figure(panels: Sequence[Bars], logarithmic: bool = False) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    names = {name: _family_and_variant(name) for panel in panels for name in panel.series}
    colours, lines = _styles(names.values())
    across = min(PANELS_ACROSS, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(3.4 * across, 3.2 * down), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    each = figure.subplots(down, across, squeeze=False, sharey=logarithmic).ravel()
    for empty in each[len(panels) :]:
        empty.remove()
    for axes, panel in zip(each, panels, strict=False):
        steps = _positions(panel.labels) if panel.x else [float(step) for step in range(len(panel.labels))]
        for name, given in panel.series.items():
            points = [(step, value) for step, value in zip(steps, given, strict=True) if value is not None]
            family, variant = names[name]
            at, values = zip(*points, strict=True) if points else ((), ())
            axes.plot(at, values, f"o{lines[variant]}", color=colours[family], label=name, zorder=3)
            for spans, width in ((panel.over_questions, 1.0), (panel.over_seeds, 4.0)):
                _spans_at(axes, steps, spans.get(name, ()), colours[family], width)
        _step_axis(axes, panel, steps)
        if logarithmic:
            axes.set_yscale("log")
        elif not panel.over_questions:
            axes.set_ylim(0, 1.05 * axes.dataLim.ymax if axes.dataLim.ymax > 0 else None)
        axes.yaxis.set_major_formatter("{x:,g}")
        _plain(axes, textwrap.fill(panel.title, 36), "both")
    if len(names) > 1:
        _name_points(figure, colours, {}, {variant: line for variant, line in lines.items() if variant})
    if any(panel.over_questions for panel in panels):
        figure.suptitle(SPREAD, color=MUTED, fontsize=LEGEND_POINTS, x=0.01, ha="left")
    return figure


def _positions(labels: Sequence[str]) -> list[float]:
    """Where steps stand: a number at its value, as on a scale; anything else at even distances.

    >>> _positions(["8", "64", "1024"]), _positions(["no adapter", "0.17"])
    ([8.0, 64.0, 1024.0], [0.0, 1.0])
    """
    try:
        return [float(label) for label in labels]
    except ValueError:
        return [float(step) for step in range(len(labels))]


def _step_axis(axes: Axes, panel: Bars, steps: Sequence[float]) -> None:
    """Name the axis of the steps; numbers that grow many times over have a scale by their logarithms."""
    from matplotlib.ticker import NullLocator

    if panel.x:
        axes.set_xlabel(panel.x, color=MUTED)
    if min(steps, default=0) > 0 and max(steps) >= MANY_TIMES * min(steps):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(steps, [_thousands(label) for label in panel.labels])
    if len(steps) > CROWDED:
        axes.tick_params(axis="x", labelrotation=45)


def _thousands(label: str) -> str:
    return f"{int(label):,}" if label.isdecimal() else label


def _spans_at(axes: Axes, steps: Sequence[float], spans: Sequence[Span | None], colour: str, width: float) -> None:
    drawn = [(step, *span) for step, span in zip(steps, spans, strict=False) if span]
    if drawn:
        at, lows, highs = zip(*drawn, strict=True)
        axes.vlines(at, lows, highs, colour, linewidth=width, alpha=0.5, zorder=2)


def _family_and_variant(name: str) -> tuple[str, str]:
    """The part of a name before a comma, which decides the colour, and the part behind it."""
    family, _, variant = name.partition(", ")
    return family, variant


def _styles(names: Iterable[tuple[str, str]]) -> tuple[dict[str, str], dict[str, LineStyleType]]:
    """A colour for each family, and a kind of line for each variant."""
    families, variants = zip(*names, strict=True)
    return dict(zip(dict.fromkeys(families), cycle(COLOURS))), dict(zip(dict.fromkeys(variants), cycle(LINES)))


def _curves_figure(panels: Sequence[Curves]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    names = [_family_and_variant(curve.name) for panel in panels for curve in panel.curves]
    colours, lines = _styles(names)
    figure = Figure(figsize=(3.8 * len(panels), 4.4), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False).ravel(), panels, strict=True):
        if panel.diagonal:
            axes.plot((0, 1), (0, 1), "-", color=ROLES["baseline"], linewidth=1, label="", zorder=1)
        for curve in panel.curves:
            family, variant = _family_and_variant(curve.name)
            x, y = zip(*curve.points, strict=True)
            axes.plot(x, y, linestyle=lines[variant], color=colours[family], label=curve.name, zorder=2)
            if curve.shares:
                sizes = [SMALLEST_MARK + LARGEST_MARK * share for share in curve.shares]
                axes.scatter(x, y, sizes, color=colours[family], edgecolors="white", linewidths=0.6, zorder=3)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        axes.set_xlabel(panel.x, color=MUTED)
        axes.set_ylabel(panel.y, color=MUTED)
        _plain(axes, panel.title, "both")
    _name_points(figure, colours, {}, {variant: line for variant, line in lines.items() if variant})
    return figure


def _plain(axes: Axes, title: str, grid: Literal["x", "both"]) -> None:
    """Give the axes a title and a grid, and no frame."""
    axes.set_title(title, loc="left", color=INK, fontsize=10, fontweight="bold")
    axes.grid(axis=grid, color=GRID, zorder=0)
    axes.tick_params(length=0, which="both", colors=MUTED, labelsize=8)
    for side in axes.spines.values():
        side.set_visible(False)


def _bar_text(value: float | None) -> str:
    return "none" if value is None else f"{value:,.0f}" if value >= 100 else mean_text(value)


def _points_figure(rows: Sequence[Mapping[str, str | float]], x: str, ys: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import LogLocator, NullLocator

    names = [tuple(str(row["system"]).partition(", ")[::2]) for row in rows]
    colours = dict(zip(dict.fromkeys(family for family, _ in names), cycle(COLOURS)))
    marks = dict(zip(dict.fromkeys(variant for _, variant in names), cycle(MARKS)))
    steps = (1, 2, 5) if _widest(row[x] for row in rows) < WIDE else (1,)
    figure = Figure(figsize=(4.6 * len(ys), 4.2), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    for panel, y in zip(figure.subplots(1, len(ys), squeeze=False).ravel(), ys, strict=True):
        for row, (family, variant) in zip(rows, names, strict=True):
            panel.plot(row[x], row[y], marks[variant], color=colours[family], markersize=6.5, alpha=0.85, zorder=2)
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=steps))
        panel.xaxis.set_major_formatter("{x:,g}")
        panel.xaxis.set_minor_locator(NullLocator())
        panel.margins(x=0.12, y=0.12)
        panel.set_xlabel(x.replace("_", " "), color=MUTED)
        _plain(panel, y, "both")
    _name_points(figure, colours, {variant: mark for variant, mark in marks.items() if variant})
    return figure


def _widest(values: Iterable[str | float]) -> float:
    """How many times the smallest of some numbers the largest is."""
    numbers = [float(value) for value in values]
    return max(numbers) / min(numbers)


def _name_points(
    figure: Figure,
    colours: Mapping[str, str],
    marks: Mapping[str, str],
    lines: Mapping[str, LineStyleType] | None = None,
) -> None:
    """Add a legend below the panels: the names of the colours, then those of the marks and of the lines."""
    from matplotlib.lines import Line2D

    shown: list[tuple[str, str, str, LineStyleType]]
    shown = [(name, colour, "s", "none") for name, colour in colours.items()]
    shown += [(name, MUTED, mark, "none") for name, mark in marks.items()]
    shown += [(name, MUTED, "", line) for name, line in (lines or {}).items()]
    handles = [
        Line2D([], [], marker=mark, color=colour, label=name, linestyle=line) for name, colour, mark, line in shown
    ]
    room = figure.get_figwidth() * 72 / LEGEND_POINTS / 0.58  # a letter is about 0.58 of its height wide
    across = 8 if sum(len(name) + MARK_LETTERS for name, *_ in shown) <= room else 4
    figure.legend(
        handles=handles, loc="outside lower center", ncols=across, frameon=False, fontsize=LEGEND_POINTS, labelcolor=INK
    )


def _matplotlib() -> ModuleType:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra("drawing a report", "pip install 'triever[plot]'") from error
    return mpl


def _means_figure(panels: Sequence[Means], title: str, note: str) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    across = min(PANELS_ACROSS, len(panels))
    down = -(-len(panels) // across)
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    height = 0.75 + 0.34 * len(panels[0].labels)
    figure = Figure(figsize=(3.3 * across + 1.0, down * height + 0.9), layout=layout)
    all_axes = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    for axes, panel, span in zip(all_axes, panels, _spans(panels), strict=False):
        _means_panel(axes, panel, span)
    for empty in all_axes[len(panels) :]:
        empty.set_visible(False)
    figure.suptitle(title, color=INK, fontsize=12, fontweight="bold")
    letters = figure.get_figwidth() * 72 / LEGEND_POINTS / 0.58  # a letter is about 0.58 of its height wide
    figure.supxlabel(textwrap.fill(note, int(letters)), color=MUTED, fontsize=LEGEND_POINTS)
    return figure


def _spans(panels: Sequence[Means]) -> list[float]:
    """How far each axis goes: the same for all values between 0 and 1, so that panels can be compared."""
    tops = [max(high for _, _, high in panel.values) for panel in panels]
    small = max((top for top in tops if top <= 1), default=0.0)
    return [small if top <= 1 else top for top in tops]


def _means_panel(axes: Axes, panel: Means, span: float) -> None:
    from matplotlib.ticker import MaxNLocator

    means, lows, highs = zip(*panel.values, strict=True)
    rows = range(len(means))
    axes.barh(rows, means, height=0.62, color=[ROLES[role] for role in panel.roles], zorder=2)
    for width, colour in ((3.4, "white"), (1.3, INK)):  # a light edge keeps the line visible on a dark bar
        axes.hlines(rows, lows, highs, colour, linewidth=width, zorder=3)
    for row, text, high in zip(rows, panel.texts, highs, strict=True):
        after = (max(high, 0.0), row)
        axes.annotate(text, after, (5, 0), textcoords="offset points", va="center", color=INK, fontsize=8.5)
    axes.set_yticks(rows, panel.labels)
    axes.set_ylim(len(means) - 0.4, -0.6)  # the first one on top
    axes.set_xlim(0, (span or 1.0) * 1.22)  # room for the number behind the longest bar
    ticks = MaxNLocator(5).tick_values(0, span or 1.0)
    axes.set_xticks([tick for tick in ticks if 0 <= tick <= (span or 1.0) * 1.001])
    _plain(axes, panel.title, "x")
    axes.tick_params(axis="y", colors=INK, labelsize=9)
