"""Tables: MS MARCO's, with tabs and without a header, and TSV and CSV whose first line names the columns."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from triever.data.formats.fields import check_names, clean_id, shorten
from triever.data.formats.json_text import MAX_VALUES
from triever.data.formats.lines import MAX_LINE, read_lines
from triever.data.formats.problems import Problems
from triever.data.records import Document, Query
from triever.errors import Flaw

MAX_COLUMNS = 10_000
PIPE = "|"
"""Separates columns of CSV, but also those of a table that Markdown draws in a text."""


def split_columns(line: str) -> list[str]:
    """The columns of a line, split by tabs if there are any, so that ids may hold spaces; else by white space.

    >>> split_columns("q 1\\t0\\td1\\t1"), split_columns("q1 0  d1 1")
    (['q 1', '0', 'd1', '1'], ['q1', '0', 'd1', '1'])
    """
    return _by_tabs(line) if "\t" in line else line.split(None, MAX_COLUMNS)


def _by_tabs(line: str) -> list[str]:
    """All columns, but at most one more than a table may have: a line of nothing but tabs has millions."""
    return line.split("\t", MAX_COLUMNS)


def passage(line: str) -> Document:
    """A line of MS MARCO's collection: id, text."""
    key, text = _pair(line)
    return Document(key, text)


def question(line: str) -> Query:
    """A line of MS MARCO's queries: id, text."""
    key, text = _pair(line)
    return Query(key, text)


def marco_document(line: str) -> Document:
    """A line of MS MARCO's documents: id, address, title, body."""
    columns = _by_tabs(line)
    if len(columns) != 4:
        raise Flaw(f"the line has {count(columns)} instead of 4", "tab-separated columns are: id, address, title, body")
    key, url, title, body = columns
    return Document(clean_id(key), body, title, metadata={"url": url} if url else {})


def header(line: str) -> tuple[str, list[str]]:
    """The delimiter of a table and the names of its columns, if the line is its header.

    >>> header('ID,"Text, cleaned"')
    (',', ['ID', 'Text, cleaned'])
    """
    bare = _QUOTED.sub("", line)
    # The semicolon is Excel's in half of Europe; exports of databases have |, which texts hardly hold.
    delimiter = "\t" if "\t" in line else max(f",;{PIPE}", key=bare.count)
    names = _by_tabs(line) if delimiter == "\t" else _parsed(line, delimiter) or line.split(delimiter, MAX_COLUMNS)
    return delimiter, [name.strip(' "') for name in names]


_QUOTED = re.compile('"[^"]*"')


def table_rows(path: str | Path, problems: Problems) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows below a header, as named fields, each with the number of its first line."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))  # the limit is global: never make it smaller
    lines = _Lines(read_lines(path, problems))
    delimiter, names = header(next(lines, (0, ""))[1])
    if len(names) > MAX_COLUMNS:
        problems.report_end(path, 1, *_TOO_WIDE)
        return
    try:
        check_names(names)
    except Flaw as flaw:
        problems.report_end(path, 1, flaw.problem, flaw.hint)
        return
    parted, named = f"{_PARTED[delimiter]}-separated columns are:", ", ".join(names)
    for number, line in lines:
        cells = _cells(number, line, lines, delimiter, len(names))
        if cells is None:
            problems.report(path, number, *_UNCLOSED)
        elif len(cells) == len(names):
            yield number, {name: cell for name, cell in zip(names, cells, strict=True) if name}
        else:
            problems.report(
                path, number, f"the line has {count(cells)} instead of {len(names)}", f"{parted} {shorten(named)}"
            )


_TOO_WIDE = (f"the table has more than {MAX_COLUMNS:,} columns", "leave out those that hold no text")
_UNCLOSED = ("a quoted cell is not closed", 'write quotes inside a quoted cell twice: "so ""to"" say"')
_PARTED = {"\t": "tab", ",": "comma", ";": "semicolon", PIPE: PIPE}


class _Lines(Iterator[tuple[int, str]]):
    """Numbered lines that can be given back, to be read again."""

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self._lines = lines
        self._kept: deque[tuple[int, str]] = deque()

    def __next__(self) -> tuple[int, str]:
        return self._kept.popleft() if self._kept else next(self._lines)

    def give_back(self, lines: list[tuple[int, str]]) -> None:
        """Make these the next lines, in this order."""
        self._kept.extendleft(reversed(lines))


def _cells(number: int, line: str, lines: _Lines, delimiter: str, width: int) -> list[str] | None:
    """The cells of the row that begins on a line; None if a quoted cell is never closed.

    Files with tabs may have plain quotes in their texts: there, quotes count only where they enclose a whole cell,
    or where the row is incomplete without the following lines.
    """
    plain = _by_tabs(line) if delimiter == "\t" else None
    if plain and len(plain) == width and not (plain[-1].startswith('"') and plain[-1].count('"') % 2):
        return list(map(unquote, plain))
    if plain is None and (cells := _parsed(line, delimiter)):
        return cells
    if line.count('"') % 2:
        whole = _over_lines(number, line, lines, delimiter, width)
        return whole or (list(map(unquote, plain)) if plain else None)
    return list(map(unquote, plain)) if plain else _parsed(line, delimiter, strict=False)


def _over_lines(number: int, line: str, lines: _Lines, delimiter: str, width: int) -> list[str] | None:
    """The cells of a row with line breaks in quoted cells; the row ends where the number of quotes is even again."""
    taken: list[tuple[int, str]] = []
    parts, last, size = [line], number, len(line)
    for later, more in lines:
        taken.append((later, more))
        parts.append("\n" * (later - last) + more)  # read_lines leaves out blank lines
        last, size = later, size + len(more)
        if more.count('"') % 2:
            cells = _parsed("".join(parts), delimiter)
            if cells and len(cells) == width:
                return cells
            break
        if size > MAX_LINE or len(taken) > _MAX_LINES:
            break
    lines.give_back(taken)
    return None


_MAX_LINES = 5000  # in one cell: a stray quote should not cost the rest of the file


def _parsed(text: str, delimiter: str, strict: bool = True) -> list[str] | None:
    if text.count(delimiter) > MAX_VALUES:
        return [""] * (MAX_COLUMNS + 1)  # more cells than any table has, and than memory should hold
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=strict), None)
    except csv.Error:
        return None


def _pair(line: str) -> tuple[str, str]:
    columns = _by_tabs(line)
    if len(columns) != 2:
        raise Flaw(f"the line has {count(columns)} instead of 2", "tab-separated columns are: id, text")
    return clean_id(columns[0]), columns[1]


def count(columns: list[str]) -> str:
    """The number of columns, as text."""
    if len(columns) > MAX_COLUMNS:
        return f"more than {MAX_COLUMNS:,} columns"
    return "1 column" if len(columns) == 1 else f"{len(columns)} columns"


def unquote(field: str) -> str:
    """A cell without CSV's quotes, as of DPR's passages; a text that merely begins and ends with quotes stays."""
    if len(field) < 2 or field[0] != '"' or field[-1] != '"':
        return field
    inner = field[1:-1]
    return inner.replace('""', '"') if '"' not in inner.replace('""', "") else field
