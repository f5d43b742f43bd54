"""What an analysis found: values for JSON, parts for a person to read, bars to draw. Knows no analysis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from triever.evaluation.picture import Bars, draw_bars

STEP = "  "
"""How far a line stands in below the one that it belongs to."""


@dataclass(frozen=True)
class Part:
    """A title, rows of one table, and lines; `rows` all have the same columns, as texts."""

    title: str
    rows: Sequence[Mapping[str, str]] = ()
    lines: Sequence[str] = ()

    def markdown(self) -> str:
        """The same for a page: lines become a list, in which those that stand in are lists of their own."""
        table = (
            [list(self.rows[0]), ["---"] * len(self.rows[0]), *(row.values() for row in self.rows)] if self.rows else []
        )
        rows = ["| " + " | ".join(map(_escaped, row)) + " |" for row in table]
        blocks = [f"**{_escaped(self.title)}**", "\n".join(rows), "\n".join(map(_item, self.lines))]
        return "\n\n".join(filter(None, blocks))


@dataclass(frozen=True)
class Finding:
    """What an analysis found: `finding.values["average_overlap"]`."""

    values: Mapping[str, Any]
    parts: Sequence[Part]
    bars: Sequence[Bars] = ()

    def to_dict(self) -> dict[str, Any]:
        """Values and parts as JSON can hold them; from the parts a page can be made again."""
        return {"values": dict(self.values), "parts": [asdict(part) for part in self.parts]}

    def plot(self, path: str | Path) -> None:
        """Draw the bars to a file (.png, .svg or .pdf), one panel beside the other."""
        draw_bars(self.bars, path)


def _item(line: str) -> str:
    depth = (len(line) - len(line.lstrip())) // len(STEP)
    return f"{'    ' * depth}- {_escaped(line.strip())}"


def _escaped(text: str) -> str:
    """Text of unknown origin, such as a title, that Markdown shows as it is: `__init__` is not bold."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)
