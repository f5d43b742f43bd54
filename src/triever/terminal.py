"""Output for a person: results on standard output, everything else on standard error."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triever.data.reading import counted
from triever.printable import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from triever.data.records import Answer, Result, Source
    from triever.evaluation.finding import Finding

LEFT = (
    "what",
    "value",
    "split",
    "id",
    "title",
    "file",
    "system",
    "set",
    "option",
    "default",
    "meaning",
    "symbol",
    "such as",
)
"""Columns of texts, which are aligned to the left."""
SOURCES = 3
"""How many of the documents are shown that an answer was written from."""
NAMED = 20
"""How many of the files that were not read are named."""

_quiet = False
_usual_warning = warnings.formatwarning


class OneLine(logging.Formatter):
    """A warning on one line, whatever it quotes."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """The same, with the lines of an error below it, if there is one."""
        return printable_lines(super().format(record))


def tame_warnings() -> None:
    """Escape what a terminal obeys in the warnings of other libraries, which may quote anything."""

    def tamed(*words: Any, **options: Any) -> str:
        return printable_lines(_usual_warning(*words, **options))

    warnings.formatwarning = tamed  # ty: ignore[invalid-assignment]


def hush(on: bool) -> None:
    """Switch notes off, so that only results are printed; or on again."""
    global _quiet
    _quiet = on


def note(text: str) -> None:
    """Print a note on standard error, unless notes are switched off."""
    if not _quiet:
        sys.stderr.write(f"{printable(text)}\n")


def emit(value: object) -> None:
    """Print a result: lines of text, styled text and tables as they are, anything else as JSON."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if isinstance(value, str):
        sys.stdout.write(printable_lines(value.rstrip("\n")) + "\n")
    elif isinstance(value, Table | Text):
        # In a pipe a row is one line, however long.
        Console(width=None if sys.stdout.isatty() else 1000).print(value)
    else:
        sys.stdout.write(printable_json(value) + "\n")
    sys.stdout.flush()


def emit_line(value: object) -> None:
    """Print a value as JSON on one line."""
    sys.stdout.write(printable_json(value, indent=None) + "\n")
    sys.stdout.flush()


def said(result: Result) -> Text:
    """What hits say about a query, for a person: titles, ids, and snippets in which words of the query stand out."""
    from rich.text import Text

    text = Text()
    for rank, hit in enumerate(result, start=1):
        named = f"{printable(hit.title)}  " if hit.title else ""
        text.append(f"{rank:>2}. ").append(named, style="bold").append(f"{printable(hit.id)}  {hit.score:.3f}\n")
        snippet, reached = hit.snippet, 0
        text.append("    ")
        for start, end in snippet.matches:
            text.append(_flat(snippet.text[reached:start])).append(_flat(snippet.text[start:end]), style="bold cyan")
            reached = end
        text.append(f"{_flat(snippet.text[reached:])}\n\n")
    text.rstrip()
    return text


def answered(answer: Answer, shared: str = "attention") -> Text:
    """An answer, how sure the model is of it, and the documents it was written from, with the share that each has."""
    from rich.text import Text

    unsure = f"; it would be {_flat(answer.written)}" if answer.text is None and answer.written else ""
    text = Text(_flat(str(answer)), style="bold")
    text.append(f"  (probability {answer.probability:.2f}{unsure})\n", style="not bold")
    for number, source in _shown(answer.sources):
        named = f"{printable(source.hit.title)}  " if source.hit.title else ""
        holds = ", holds the answer" if source.holds_answer and answer.text else ""
        text.append(f"{number:>2}. ", style="not bold").append(named).append(
            f"{printable(source.hit.id)}  {source.share:.0%} of the {shared}{holds}\n", style="not bold"
        )
        text.append(f"    {_flat(str(source.hit.snippet))}\n", style="not bold")
    text.rstrip()
    return text


def _shown(sources: Sequence[Source]) -> list[tuple[int, Source]]:
    """The documents with the largest shares and their ranks, and the first one that holds the answer."""
    ranked = [*enumerate(sources, start=1)]
    shown = ranked[:SOURCES]
    if not any(source.holds_answer for _, source in shown):
        shown += [(rank, source) for rank, source in ranked if source.holds_answer][:1]
    return shown


def _flat(text: str) -> str:
    """A text on one line."""
    return printable(text.replace("\n", " "))


def table(rows: Sequence[Mapping[str, object]]) -> Table:
    """A table of rows with the same columns; numbers are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in rows[0] if rows else ():
        text = column in LEFT
        made.add_column(Text(printable(column)), justify="left" if text else "right", overflow="fold")
    for row in rows:
        made.add_row(*(Text(_cell(value)) for value in row.values()))
    return made


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else printable(str(value))


def tell(finding: Finding) -> None:
    """Print the finding of an analysis, part by part."""
    for at, part in enumerate(finding.parts):
        emit(f"\n{printable(part.title)}" if at else printable(part.title))
        if part.rows:
            emit(table(part.rows))
        for line in part.lines:
            emit(printable(line))


def describe(info: Mapping[str, Any]) -> None:
    """Print the description of a dataset: a line for each fact, then a row for each split."""
    listed = ("splits", "examples", "ignored files", "unread files")
    facts = {key: value for key, value in info.items() if key not in listed}
    emit(table([{"what": key, "value": _readable(value)} for key, value in facts.items()]))
    for name in info["ignored files"]:
        emit(f"\nignored: {printable(name)}")
    if unread := info["unread files"]:
        more = f" and {len(unread) - NAMED:,} more" if len(unread) > NAMED else ""
        emit(f"\nnot read: {printable(', '.join(unread[:NAMED]))}{more}")
    for example in info["examples"]:
        emit(f"\n{printable(example)}")
    if info["splits"]:
        emit("")
        columns = list(dict.fromkeys(key for row in info["splits"].values() for key in row))
        emit(table([_split_row(split, row, columns) for split, row in info["splits"].items()]))


def _split_row(split: str, row: Mapping[str, object], columns: Sequence[str]) -> dict[str, str]:
    return {"split": split} | {column: _readable(row.get(column, "")) for column in columns}


def _readable(value: object) -> str:
    if isinstance(value, Mapping):
        return counted(value) if value else "0"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
