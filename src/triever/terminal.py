"""What a person sees: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triever.data.reading import counted

if TYPE_CHECKING:
    from rich.table import Table

    from triever.evaluation.finding import Finding

NAMED = 20
"""How many files that were not read are named."""

# What a terminal obeys and does not show: control characters, and marks that break lines or turn the direction.
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_quiet = False


def printable(text: str) -> str:
    r"""Text of unknown origin, such as a title, on one line: a character that a terminal would obey is escaped.

    >>> print(printable("red\x1b[31m\ttide"))
    red\x1b[31m\ttide
    """
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class OneLine(logging.Formatter):
    """A warning on one line, whatever it quotes."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record))


def hush(on: bool) -> None:
    """Say nothing beside results."""
    global _quiet
    _quiet = on


def note(text: str) -> None:
    """Say something beside the result."""
    if not _quiet:
        sys.stderr.write(f"{printable(text)}\n")


def emit(value: Any) -> None:
    """Print a result: lines of text and tables as they are, anything else as JSON."""
    from rich.console import Console
    from rich.table import Table

    if isinstance(value, str):
        sys.stdout.write("".join(f"{printable(line)}\n" for line in value.rstrip("\n").split("\n")))
    elif isinstance(value, Table):
        # In a pipe a row is one line, however long.
        Console(width=None if sys.stdout.isatty() else 1000).print(value)
    else:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    sys.stdout.flush()


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of the same columns; numbers stand to the right."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in rows[0] if rows else ():
        text = column in ("what", "value", "split", "id", "title", "file", "system", "set")
        made.add_column(Text(printable(column)), justify="left" if text else "right", overflow="fold")
    for row in rows:
        made.add_row(*(Text(_cell(value)) for value in row.values()))
    return made


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else printable(str(value))


def tell(finding: Finding) -> None:
    """What an analysis found, part by part."""
    for at, part in enumerate(finding.parts):
        emit(f"\n{printable(part.title)}" if at else printable(part.title))
        if part.rows:
            emit(table(part.rows))
        for line in part.lines:
            emit(printable(line))


def describe(found: Mapping[str, Any]) -> None:
    """What `data info` found: a line for each fact, then a row for each split."""
    listed = ("splits", "examples", "ignored files", "unread files")
    facts = {key: value for key, value in found.items() if key not in listed}
    emit(table([{"what": key, "value": _readable(value)} for key, value in facts.items()]))
    for name in found["ignored files"]:
        emit(f"\nignored: {printable(name)}")
    if unread := found["unread files"]:
        more = f" and {len(unread) - NAMED:,} more" if len(unread) > NAMED else ""
        emit(f"\nnot read: {printable(', '.join(unread[:NAMED]))}{more}")
    for example in found["examples"]:
        emit(f"\n{printable(example)}")
    if found["splits"]:
        emit("")
        columns = list(dict.fromkeys(key for row in found["splits"].values() for key in row))
        emit(table([_split_row(split, row, columns) for split, row in found["splits"].items()]))


def _split_row(split: str, row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, str]:
    return {"split": split} | {column: _readable(row.get(column, "")) for column in columns}


def _readable(value: Any) -> str:
    if isinstance(value, Mapping):
        return counted(value) if value else "0"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
