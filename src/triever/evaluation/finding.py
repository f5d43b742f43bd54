"""The finding of an analysis: values for JSON, parts to read, bars or curves to draw. Knows no analysis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from triever.evaluation.picture import Bars, Curves, draw_bars, draw_curves

STEP = "  "
"""The indent of a line below the one that it belongs to."""

Values: TypeAlias = Mapping[str, Any]
"""The values of an analysis, such as JSON can hold; each analysis has its own."""


class PartRecord(TypedDict):
    """A part as a result file holds it."""

    title: str
    rows: list[dict[str, str]]
    lines: list[str]


class FindingRecord(TypedDict):
    """A finding as a result file holds it."""

    values: dict[str, Any]
    parts: list[PartRecord]


@dataclass(frozen=True)
class Part:
    """A title, the rows of one table, and lines; all rows have the same columns, and their values are text."""

    title: str
    rows: Sequence[Mapping[str, str]] = ()
    lines: Sequence[str] = ()

    def to_dict(self) -> PartRecord:
        """The part for a JSON file."""
        return {"title": self.title, "rows": [dict(row) for row in self.rows], "lines": list(self.lines)}

    def markdown(self) -> str:
        """The part for a page: lines become a list, and indented lines become lists inside it."""
        table = (
            [list(self.rows[0]), ["---"] * len(self.rows[0]), *(row.values() for row in self.rows)] if self.rows else []
        )
        rows = ["| " + " | ".join(map(_escaped, row)) + " |" for row in table]
        blocks = [f"**{_escaped(self.title)}**", "\n".join(rows), "\n".join(map(_item, self.lines))]
        return "\n\n".join(filter(None, blocks))


@dataclass(frozen=True)
class Finding:
    """The finding of an analysis: `finding.values["average_overlap"]`."""

    values: Values
    parts: Sequence[Part]
    bars: Sequence[Bars] = ()
    curves: Sequence[Curves] = ()

    def to_dict(self) -> FindingRecord:
        """The values and the parts for a JSON file; a page can be made from the parts."""
        return {"values": dict(self.values), "parts": [part.to_dict() for part in self.parts]}

    def plot(self, path: str | Path) -> None:
        """Draw the bars, or the curves, to a file (.png, .svg or .pdf), one panel beside the other."""
        draw_curves(self.curves, path) if self.curves else draw_bars(self.bars, path)


def _item(line: str) -> str:
    depth = (len(line) - len(line.lstrip())) // len(STEP)
    return f"{'    ' * depth}- {_escaped(line.strip())}"


def _escaped(text: str) -> str:
    """Text of unknown origin, such as a title, escaped so that Markdown shows it as it is: `__init__` is not bold."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)
