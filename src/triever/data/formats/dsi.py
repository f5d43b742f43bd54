"""DSI-QG's training files: lines of {"text_id": 17, "text": "Question: …"}, where text_id is the document's docid.

A text is the passage itself, a question about it, or, without a prefix, a question that a model has written for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from triever.data.formats.fields import Judgement, clean_id
from triever.data.formats.json_text import parse_object
from triever.data.formats.lines import read_lines
from triever.data.formats.problems import Problems
from triever.data.records import Document, Query, normalise
from triever.data.splits import without_endings
from triever.errors import Flaw

if TYPE_CHECKING:
    from triever.validation import Json

PASSAGE, QUESTION = "Passage: ", "Question: "
_TITLE_ENDS = "</s>"
"""What stands between a title and its text."""

Row = tuple[str, str, str]
"""The id of a question, which is its place; the id of the document; and the text without its prefix."""


def is_line(record: dict[str, Json]) -> bool:
    """Whether a record is a line of these files."""
    return "text_id" in record and isinstance(record.get("text"), str)


def passages(path: str | Path, problems: Problems) -> Iterator[tuple[int, Row]]:
    """The lines with passages."""
    return _lines(path, problems, PASSAGE)


def questions(path: str | Path, problems: Problems) -> Iterator[tuple[int, Row]]:
    """The lines with questions."""
    return _lines(path, problems, QUESTION)


def written(path: str | Path, problems: Problems) -> Iterator[tuple[int, Row]]:
    """The lines with neither: questions that a model has written."""
    return _lines(path, problems, "")


def _lines(path: str | Path, problems: Problems, prefix: str) -> Iterator[tuple[int, Row]]:
    for number, line in read_lines(path, problems):
        try:
            record = parse_object(line)
            key, text = clean_id(record.get("text_id"), "text_id"), record.get("text")
            if not isinstance(text, str):
                raise Flaw("the record has no text", 'a line looks like {"text_id": 17, "text": "Question: …"}')
        except Flaw as flaw:
            problems.report(path, number, flaw.problem, flaw.hint)
            continue
        found = next((known for known in (PASSAGE, QUESTION) if text.startswith(known)), "")
        if found == prefix:
            yield number, (f"{without_endings(path)}-{number}", key, text.removeprefix(prefix).strip())


def document(row: Row) -> Document:
    """A passage as a document, with its title where it has one."""
    _, key, text = row
    title, ends, rest = text.partition(_TITLE_ENDS)
    return Document(key, rest, title) if ends else Document(key, text)


def query(row: Row) -> Query:
    """A question."""
    return Query(row[0], row[2])


def judgements(row: Row) -> list[Judgement]:
    """The document of a question is the only relevant one."""
    return [(normalise(row[0]), normalise(row[1]), 1)]


def expansions(row: Row) -> tuple[str, tuple[str, ...]]:
    """A written question as an expansion of its document."""
    return normalise(row[1]), (row[2],)
