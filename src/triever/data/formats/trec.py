"""TREC's files: topics, judgements (qrels) and runs."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from triever.data.formats.fields import GRADES, JUDGED_DOCUMENTS, JUDGED_QUERIES, Judgement, clean_id, grade, score
from triever.data.formats.lines import MAX_LINE, read_lines, too_long
from triever.data.formats.problems import Problems
from triever.data.formats.tables import count, split_columns, unquote
from triever.data.records import Hit, Query, normalise
from triever.errors import Flaw

_OPEN = re.compile(r"\s*<top(?:ic)?\b([^>]*)>", re.IGNORECASE)
_CLOSE = re.compile(r"</top(?:ic)?>", re.IGNORECASE)
_NUMBER = re.compile(r"""\b(?:number|id)\s*=\s*["']([^"']*)""", re.IGNORECASE)
_FIELD = re.compile(
    r"<(num|title|query|question|desc|description|narr|narrative)>(.*?)(?=</?[a-z]+\b[^<>]*>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_TAG = re.compile(r"</?[a-z][^<>]*>", re.IGNORECASE)
_SHORT = {"description": "desc", "narrative": "narr"}
_LABEL = re.compile(r"(number|topic|description|narrative)\s*:", re.IGNORECASE)

_LINE = 64  # bytes that a line takes in addition to its characters

Columns = tuple[int, int, int]
"""The columns of the query id, the document id and the grade."""


def topic_blocks(path: str | Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """The text between <top> and </top>, with the line of <top>; the number of <topic number="1"> becomes <num>."""
    block: list[str] | None = None
    start = size = 0
    for number, line in read_lines(path, problems):
        if opened := _OPEN.match(line):
            if block is not None:
                problems.report(path, start, *_UNCLOSED)
            given = _NUMBER.search(opened.group(1))
            block, start, line = [f"<num>{given.group(1)}</num>"] if given else [], number, line[opened.end() :]
            size = 0
        if block is not None:
            size += len(line) + _LINE
            if size > MAX_LINE:
                problems.report(path, start, *too_long("topic"))
                block = None
                continue
            block.append(line)
            if _CLOSE.search(line):
                yield start, "\n".join(block)
                block = None
    if block is not None:
        problems.report(path, start, *_UNCLOSED)


_UNCLOSED = ("a <top> has no </top>", "close every topic before the next one begins")


def topic(block: str) -> Query:
    """A topic's title or query, or else its question, description or bare text."""
    fields = {_SHORT.get(name.lower(), name.lower()): _plain(text) for name, text in _FIELD.findall(block)}
    text = next((fields[name] for name in ("title", "query", "question", "desc") if fields.get(name)), "")
    if not text and fields.keys() == {"num"}:  # clinical trials: nothing but text in <topic number="1">
        text = _plain(_TAG.sub(" ", _CLOSE.split(block.partition("</num>")[2])[0]))
    if not fields.get("num"):
        raise Flaw("the topic has no <num>", "every topic has a line such as: <num> Number: 301")
    if not text:
        raise Flaw(
            "the topic has neither <title> nor <desc>", "every topic has a line such as: <title> organized crime"
        )
    names = {"question": "question", "desc": "description", "narr": "narrative"}
    return Query(clean_id(fields["num"]), text, metadata={names[key]: fields[key] for key in names if fields.get(key)})


def qrels_rows(path: str | Path, problems: Problems) -> Iterator[tuple[int, tuple[str, Columns | None]]]:
    """The lines of a qrels file below its header, with the order of the columns, or None without a header."""
    order: Columns | None = None
    quoted = False
    for at, (number, line) in enumerate(read_lines(path, problems)):
        if at == 0 and (order := qrels_header(line)):
            quoted = '"' in line  # then ids are too; else quotes may be part of them
            continue
        yield number, ("\t".join(map(unquote, split_columns(line))) if quoted else line, order)


def qrels_header(line: str) -> Columns | None:
    """The columns of query, document and grade, if the line is a header that names them."""
    names = [name.strip(' "').lower() for name in split_columns(line)]
    columns = [_column(names, known) for known in (JUDGED_QUERIES, JUDGED_DOCUMENTS, GRADES)]
    return (columns[0], columns[1], columns[2]) if min(columns) >= 0 else None


def judgement(row: tuple[str, Columns | None]) -> list[Judgement]:
    """The judgement of a line `query 0 document grade`, as in TREC, or `query document grade`, as in BEIR."""
    line, order = row
    columns = split_columns(line)
    if len(columns) not in (3, 4):
        raise Flaw(f"the line has {count(columns)} instead of 3 or 4", "columns are: query 0 document grade")
    at = order if order and max(order) < len(columns) else (0, len(columns) - 2, len(columns) - 1)
    query, document = (
        normalise(clean_id(columns[column], field)) for column, field in zip(at, _ID_FIELDS, strict=False)
    )
    return [(query, document, grade(columns[at[2]].strip()))]


_ID_FIELDS = ("query id", "document id")


def run_line(line: str) -> tuple[str, Hit]:
    """Query id and hit of a line `query Q0 document rank score tag`; the rank is ignored, as in trec_eval."""
    columns = split_columns(line)
    if len(columns) != 6:
        raise Flaw(f"the line has {count(columns)} instead of 6", "columns are: query Q0 document rank score tag")
    query, document = clean_id(columns[0], "query id"), clean_id(columns[2], "document id")
    return normalise(query), Hit(normalise(document), score(columns[4]))


def _column(names: list[str], known: tuple[str, ...]) -> int:
    return next((at for at, name in enumerate(names) if name in known), -1)


def _plain(text: str) -> str:
    try:
        return " ".join(html.unescape(_unlabelled(text)).split())
    except ValueError:
        raise Flaw("a character's number has too many digits", "write the character itself") from None


def _unlabelled(text: str) -> str:
    """The text without a label such as "Number:" at its beginning."""
    text = text.lstrip()
    label = _LABEL.match(text)
    return text[label.end() :] if label else text
