"""Tab-separated files: MS MARCO's, which have no header, and those whose first line names the columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triever.data.formats.fields import clean_id
from triever.data.formats.lines import read_lines
from triever.data.formats.problems import Flaw, Problems
from triever.data.records import Document, Query


def split_columns(line: str) -> list[str]:
    """By tabs if there are any, so that ids may hold spaces; else by white space.

    >>> split_columns("q 1\\t0\\td1\\t1"), split_columns("q1 0  d1 1")
    (['q 1', '0', 'd1', '1'], ['q1', '0', 'd1', '1'])
    """
    return line.split("\t") if "\t" in line else line.split()


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
    columns = line.split("\t")
    if len(columns) != 4:
        raise Flaw(f"{_count(columns)} instead of 4", "tab-separated columns are: id, address, title, body")
    key, url, title, body = columns
    return Document(clean_id(key), body, title, metadata={"url": url} if url else {})


def table_rows(path: str | Path, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows below a header, as named fields."""
    lines = read_lines(path, problems)
    header = [name.strip().lower() for name in next(lines, (0, ""))[1].split("\t")]
    for number, line in lines:
        columns = line.split("\t")
        if len(columns) == len(header):
            yield number, dict(zip(header, map(_unquote, columns), strict=True))
        else:
            wanted = f"{_count(columns)} instead of {len(header)}"
            problems.report(path, number, wanted, f"tab-separated columns are: {', '.join(header)}")


def _pair(line: str) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) != 2:
        raise Flaw(f"{_count(columns)} instead of 2", "tab-separated columns are: id, text")
    return clean_id(columns[0]), columns[1]


def _count(columns: list[str]) -> str:
    return "1 column" if len(columns) == 1 else f"{len(columns)} columns"


def _unquote(field: str) -> str:
    """DPR's passages are quoted as CSV is; a text that merely begins and ends with a quote is not."""
    if len(field) < 2 or field[0] != '"' or field[-1] != '"':
        return field
    inner = field[1:-1]
    return inner.replace('""', '"') if '"' not in inner.replace('""', "") else field
