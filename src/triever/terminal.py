"""What a person sees: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

_quiet = False


def hush(on: bool) -> None:
    """Say nothing beside results."""
    global _quiet
    _quiet = on


def note(text: str) -> None:
    """Say something beside the result."""
    if not _quiet:
        sys.stderr.write(f"{text}\n")


def emit(value: Any) -> None:
    """Print a result: text and tables as they are, anything else as JSON."""
    from rich.console import Console
    from rich.table import Table

    if isinstance(value, str):
        sys.stdout.write(value.rstrip("\n") + "\n")
    elif isinstance(value, Table):
        # In a pipe a row is one line, however long.
        Console(width=None if sys.stdout.isatty() else 1000).print(value)
    else:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    sys.stdout.flush()


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of the same columns; numbers stand to the right."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in rows[0] if rows else ():
        text = column in ("what", "value", "split", "id", "title", "file")
        made.add_column(column, justify="left" if text else "right", overflow="fold")
    for row in rows:
        made.add_row(*(escape(f"{value:.3f}" if isinstance(value, float) else str(value)) for value in row.values()))
    return made


def describe(found: Mapping[str, Any]) -> None:
    """What `data info` found: a line for each fact, then a row for each split."""
    facts = {key: value for key, value in found.items() if key not in ("splits", "examples", "ignored files")}
    emit(table([{"what": key, "value": _readable(value)} for key, value in facts.items()]))
    for name in found["ignored files"]:
        emit(f"\nignored: {name}")
    for example in found["examples"]:
        emit(f"\n{example}")
    if found["splits"]:
        emit("")
        columns = list(dict.fromkeys(key for row in found["splits"].values() for key in row))
        emit(table([_split_row(split, row, columns) for split, row in found["splits"].items()]))


def _split_row(split: str, row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, str]:
    return {"split": split} | {column: _readable(row.get(column, "")) for column in columns}


def _readable(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
