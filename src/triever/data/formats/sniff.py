"""The format of a file, recognised by its first records; its name only breaks ties.

Only the beginning of the file is read here.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from triever.data.formats import dsi
from triever.data.formats.fields import (
    DOCUMENT_IDS,
    DOCUMENT_TEXTS,
    GRADES,
    JUDGED_DOCUMENTS,
    JUDGED_QUERIES,
    QUERY_IDS,
    grade,
    names_shown,
    score,
)
from triever.data.formats.json_items import first_item
from triever.data.formats.json_text import as_object, parse_json
from triever.data.formats.lines import BOMS, MAX_LINE, foreign, is_compressed, read_head, read_lines, read_text
from triever.data.formats.parquet import parquet_columns
from triever.data.formats.problems import BAD_RECORDS, OR_SKIP, Problems
from triever.data.formats.tables import PIPE, header, split_columns
from triever.data.formats.text_files import PLAIN_ENDINGS, has_text_name
from triever.data.formats.trec import qrels_header
from triever.errors import BadRecord, DataError, Flaw
from triever.parquet.pages import MAGIC

if TYPE_CHECKING:
    from triever.validation import Json

_HEAD_LINES = 20
_PATIENCE = 1000  # bad lines before a good one
_OPEN_TOPIC = re.compile(r"\s*(<\?xml[^>]*>\s*)?<top(ic)?\b", re.IGNORECASE)
_QUERY_NAME = re.compile(r"quer|question|topic|claim", re.IGNORECASE)
_QUERIES = re.compile(r"(^|[^a-z])(query|queries)([^a-z]|$)", re.IGNORECASE)  # the plain word
_SHORT_GRADE = re.compile(r"[+-]?[0-9]{1,3}(\.0*)?")  # a longer number is a year, or an id as in MS MARCO's triples
_TABLE_NAME = re.compile(r"\.(csv|tsv)(\.(gz|zst))?$", re.IGNORECASE)
_DOCUMENT_NAME = re.compile(r"corpus|collection|passage|document|docs", re.IGNORECASE)


class Format(StrEnum):
    """The formats; the values are their names in messages."""

    JSONL = "JSON lines"
    JSON = "a JSON list"
    KILT_PAGES = "KILT's knowledge source"
    KILT_TASK = "a KILT task"
    DSI = "DSI-QG's training data"
    SQUAD = "SQuAD's JSON"
    DPR = "DPR's retriever JSON"
    PAIRS = "a table of id and text"
    MARCO_DOCUMENTS = "MS MARCO's documents"
    TABLE = "a table with a header"
    TOPICS = "TREC topics"
    QRELS = "TREC or BEIR qrels"
    RUN = "a TREC run"
    EXPANSIONS = "JSON lines of expansions"
    PARQUET = "Parquet"
    PARQUET_SQUAD = "SQuAD's Parquet"
    TEXT = "plain text"


class Role(StrEnum):
    """The kinds of records in a file."""

    DOCUMENTS = "documents"
    QUERIES = "queries"
    QRELS = "qrels"
    RUN = "run"
    EXPANSIONS = "expansions"


@dataclass(frozen=True, slots=True)
class Kind:
    """A file's format and the roles of its records; `sure` is False when only its name decided."""

    format: Format
    roles: tuple[Role, ...]
    sure: bool = True

    def __str__(self) -> str:
        return f"{self.format} ({', '.join(self.roles)})"


EVERYTHING = (Role.DOCUMENTS, Role.QUERIES, Role.QRELS)
_RUN = Kind(Format.RUN, (Role.RUN,))
_QRELS = Kind(Format.QRELS, (Role.QRELS,))


def sniff(path: str | Path) -> Kind:
    """The kind of a file; a DataError with a hint if its format is unknown.

    JSON without any known field counts as JSON lines here: the reader will say what its records lack.
    A text file in no other format is one document.
    """
    text = Kind(Format.TEXT, (Role.DOCUMENTS,), sure=False)
    if has_text_name(path) and (_is_only_text(path) or _is_wide(path)):
        return text
    if kind := recognise(path):
        return kind
    if not foreign(read_head(path)):
        if has_text_name(path) and not is_blank(path):
            return text
        if _begins_as_json(path, "{"):
            return _by_name(path, Format.JSONL)
    raise unknown(path)


def recognise(path: str | Path) -> Kind | None:
    """The kind of a file, or None for one that holds no records of any known format.

    A header that names known columns is the surest sign. TREC's files come next: their ids may look like anything,
    but nothing else looks like their columns. Of text files only .txt is guessed at: "3 apples 5" in Markdown is no
    judgement.
    """
    if has_text_name(path) and not str(path).lower().endswith(".txt"):
        return None
    opening = _opening(path).lstrip("\r\n").split("\n", _HEAD_LINES)
    if kind := _header_kind(path, opening[0].rstrip("\r")) or _trec_kind(opening):
        return kind
    head = read_head(path)
    if head.startswith(MAGIC):
        return _parquet_kind(path)
    if foreign(head):
        return None
    if _begins_as_json(path):
        return _json_kind(path)
    lines = _first_lines(path)
    return _text_kind(path, lines) if lines else None


def _is_only_text(path: str | Path) -> bool:
    """Whether a file with bytes of its own, such as a PDF, can be nothing but one document."""
    return not str(path).lower().endswith(PLAIN_ENDINGS) and bool(read_head(path).strip())


def _is_wide(path: str | Path) -> bool:
    """Whether a file begins with the mark of UTF-16 or UTF-32, in which no records are read."""
    return read_head(path).startswith(tuple(bom for bom, _ in BOMS))


def is_blank(path: str | Path) -> bool:
    """Whether a file holds no text at all, nor anything that is no text."""
    problems = Problems(skip_bad=True)
    return not next(read_text(path, problems), "").strip() and not problems.count


def unknown(path: str | Path) -> DataError:
    """The error for a file of unknown kind."""
    head = read_head(path)
    if reason := foreign(head):
        return DataError(f"{path} {reason[0]}", reason[1])
    if head.startswith(MAGIC):
        return DataError(f"{path} has no columns with ids and texts", "name its columns _id, title and text")
    try:
        empty = next(read_lines(path, Problems()), None) is None
    except BadRecord as error:  # without its bad records nothing is left
        return DataError(error.problem, error.hint.removesuffix(OR_SKIP))
    if empty:
        return DataError(f"{path} is empty", "write it again, or name another file")
    if named := _column_names(path):
        parts = {"ids": DOCUMENT_IDS, "texts": (*DOCUMENT_TEXTS, "title")}
        lower = {name.lower() for name in named}
        missing = " and ".join(part for part, known in parts.items() if not _any(lower, known))
        problem = f"{path} has no columns with {missing or 'ids and texts'}: its columns are {names_shown(named)}"
        return DataError(problem, "name its columns _id, title and text in the first line")
    return DataError(f"{path} is not in a format that Triever knows", _EXPECTED)


def _column_names(path: str | Path) -> list[str]:
    """The names in the first line of a table, by the name of the file; none of another file."""
    if not _TABLE_NAME.search(Path(path).name):
        return []
    names = header(next(iter(_first_lines(path)), ""))[1]
    return names if len(names) > 1 else []


def is_text(path: str | Path) -> bool:
    """Whether at least one line of the file can be read."""
    return not foreign(read_head(path)) and next(_glance(path, _Glance()), None) is not None


_EXPECTED = (
    "known formats: JSON lines, TSV, CSV, Parquet, TREC, SQuAD, DPR and KILT, plain or compressed by gzip or zstd"
)


def _first_lines(path: str | Path) -> list[str]:
    problems = _Glance()
    lines: list[str] = []
    held = 0
    for _, line in islice(_glance(path, problems), _HEAD_LINES):
        lines.append(line)
        held += len(line)
        if held > MAX_LINE:
            break
    if not lines and problems.count and is_compressed(path):
        next(read_lines(path, Problems()), None)  # says what is damaged
    return lines


class _Glance(Problems):
    """The bad records at the beginning of a file; raises _Enough when there are too many."""

    def __init__(self) -> None:
        super().__init__(skip_bad=True)

    def report(self, path: str | Path, line: int, problem: str, hint: str = "", reason: str = BAD_RECORDS) -> None:
        """Count the record, or give up."""
        super().report(path, line, problem, hint, reason)
        if self.count > _PATIENCE:
            raise _Enough


class _Enough(Exception):
    """The kind of a file cannot be recognised."""


def _glance(path: str | Path, problems: _Glance) -> Iterator[tuple[int, str]]:
    """The first good lines of a file."""
    with contextlib.suppress(_Enough):
        yield from read_lines(path, problems)


def _opening(path: str | Path) -> str:
    """The first text of a file, at most a megabyte, up to the first byte that is not UTF-8."""
    return next(read_text(path, Problems(skip_bad=True)), "")


def _begins_as_json(path: str | Path, marks: str = "{[") -> bool:
    """Whether the first character is one of `marks`; no more is read, as a large JSON file may be a single line."""
    return _opening(path).lstrip()[:1] in tuple(marks)


def _parquet_kind(path: str | Path) -> Kind | None:
    columns = parquet_columns(path)
    if all(name in columns for name in ("id", "context", "question", "answers")):
        return Kind(Format.PARQUET_SQUAD, EVERYTHING)
    return _by_columns(path, Format.PARQUET, columns)


def _json_kind(path: str | Path) -> Kind | None:
    try:
        shape, first = first_item(path)
    except Flaw:
        return _broken_start(path)
    if shape == "data":
        return Kind(Format.SQUAD, EVERYTHING) if _has(first, "paragraphs") else None
    if shape == "object":
        return _record_kind(path, Format.JSONL, as_object(first))
    if _has(first, "positive_ctxs"):
        return Kind(Format.DPR, EVERYTHING)
    return _record_kind(path, Format.JSON, first) if isinstance(first, dict) else _broken_start(path)


def _broken_start(path: str | Path) -> Kind:
    """The kind of a file whose first record is bad, from a later one; the reader will report the bad one."""
    for line in _first_lines(path):
        try:
            record = parse_json(line)
        except Flaw:
            continue
        if isinstance(record, dict) and (kind := _record_kind(path, Format.JSONL, record)):
            return kind
    return _by_name(path, Format.JSON if _begins_as_json(path, "[") else Format.JSONL)


def _record_kind(path: str | Path, form: Format, record: dict[str, Json]) -> Kind | None:
    if form is Format.JSONL:
        if _has(record, "wikipedia_title") and isinstance(record.get("text"), list):
            return Kind(Format.KILT_PAGES, (Role.DOCUMENTS,))
        if _has(record, "input") and isinstance(record.get("output"), list):
            return Kind(Format.KILT_TASK, (Role.QUERIES, Role.QRELS))
        if dsi.is_line(record):
            return Kind(Format.DSI, _dsi_roles(path))
        if isinstance(record.get("texts"), list):
            return Kind(Format.EXPANSIONS, (Role.EXPANSIONS,))
    metadata = record.get("metadata")
    names = [*record, *(metadata if isinstance(metadata, dict) else ())]
    return _by_columns(path, form, [name for name in names if name.lower() != "title" or record.get(name)])


def _dsi_roles(path: str | Path) -> tuple[Role, ...]:
    """What the first lines of a file of DSI-QG hold."""
    lines = _first_lines(path)
    passages, questions = (any(f'"{prefix}' in line for line in lines) for prefix in (dsi.PASSAGE, dsi.QUESTION))
    roles = ((Role.DOCUMENTS,) if passages else ()) + ((Role.QUERIES, Role.QRELS) if questions else ())
    return roles or (Role.EXPANSIONS,)


def _by_columns(path: str | Path, form: Format, columns: Sequence[str]) -> Kind | None:
    """The kind of named fields. A title means documents, as few queries have one, unless the file is called queries."""
    names = {name.lower() for name in columns}
    if all(_any(names, known) for known in (JUDGED_QUERIES, JUDGED_DOCUMENTS, GRADES)):
        return Kind(form, (Role.QRELS,))
    if _any(names, ("query", "question", "input", "answers")) and _any(names, QUERY_IDS):
        return Kind(form, (Role.QUERIES,))
    if not _any(names, DOCUMENT_IDS) or not _any(names, (*DOCUMENT_TEXTS, "title")):
        return None
    if "title" in names and not _is_called_queries(Path(path)):
        return Kind(form, (Role.DOCUMENTS,))
    return _by_name(path, form)


def _by_name(path: str | Path, form: Format) -> Kind:
    queries = _QUERY_NAME.search(Path(path).name) or _is_called_queries(Path(path))
    return Kind(form, (Role.QUERIES if queries else Role.DOCUMENTS,), sure=False)


def is_called_documents(path: Path) -> bool:
    """Whether a file's name says that it holds documents."""
    return bool(_DOCUMENT_NAME.search(path.name))


def _is_called_queries(path: Path) -> bool:
    """Whether a file is called queries, by its own name or that of its folder, as in queries/test.parquet."""
    if _QUERIES.search(path.name):
        return True
    return path.parent.name.lower() in ("query", "queries") and not is_called_documents(path)


def _text_kind(path: str | Path, lines: Sequence[str]) -> Kind | None:
    if any(_OPEN_TOPIC.match(line) for line in lines):
        return Kind(Format.TOPICS, (Role.QUERIES,))
    return _most_common([_table_kind(path, line) for line in lines])


def _trec_kind(lines: Sequence[str]) -> Kind | None:
    whole = lines[:-1] or lines  # the last one is cut, or holds the rest of the text
    return _most_common([_columns_kind(line) for line in whole if line.strip()])


def _most_common(kinds: Sequence[Kind | None]) -> Kind | None:
    """The kind of at least half of the lines."""
    counted = Counter(kind for kind in kinds if kind)
    kind, count = counted.most_common(1)[0] if counted else (None, 0)
    return kind if 2 * count >= len(kinds) else None


def _header_kind(path: str | Path, line: str) -> Kind | None:
    if qrels_header(line):
        return _QRELS
    delimiter, names = header(line)
    is_drawn = delimiter == PIPE and (has_text_name(path) or not (names[0] or names[-1]))  # as Markdown does
    return None if is_drawn else _by_columns(path, Format.TABLE, names)


def _columns_kind(line: str) -> Kind | None:
    columns = split_columns(line.rstrip("\r"))
    if len(columns) == 6 and (columns[1].upper() == "Q0" or (columns[3].isdigit() and _is(score, columns[4]))):
        return _RUN
    if len(columns) == 4 and _is(grade, columns[3]) and (columns[1].isdigit() or columns[1].upper() == "Q0"):
        return _QRELS
    return _QRELS if len(columns) == 3 and _SHORT_GRADE.fullmatch(columns[2]) else None


def _table_kind(path: str | Path, line: str) -> Kind | None:
    tabs = line.count("\t")
    if tabs == 3:
        return Kind(Format.MARCO_DOCUMENTS, (Role.DOCUMENTS,))
    return _by_name(path, Format.PAIRS) if tabs == 1 else None


def _is(parse: Callable[[str], float], text: str) -> bool:
    try:
        parse(text)
    except Flaw:
        return False
    return True


def _has(record: Json, name: str) -> bool:
    return isinstance(record, dict) and name in record


def _any(names: Collection[str], known: Sequence[str]) -> bool:
    return any(name in names for name in known)
