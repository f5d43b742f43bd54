"""Readers of documents, queries, qrels, runs and expansions from files of any known format.

A file's format is recognised by its content. Everything is streamed. The table RECIPES has, for each format and
role, the functions that split a file into rows and make a record from a row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from triever.arguments import as_path
from triever.data.folders import Layout, survey
from triever.data.formats import dsi, kilt, qa_json, tables, trec
from triever.data.formats.fields import make_document, make_expansions, make_judgement, make_query, shorten
from triever.data.formats.json_items import read_items
from triever.data.formats.json_text import parse_object
from triever.data.formats.lines import read_lines
from triever.data.formats.parquet import parquet_rows
from triever.data.formats.problems import Problems
from triever.data.formats.sniff import Format, Role, is_text, recognise, sniff
from triever.data.formats.text_files import text_documents, text_file
from triever.data.records import Document, Hit, Query, Result, ranked
from triever.errors import DataError, Flaw, UsageError

__all__ = ["Problems", "read_documents", "read_expansions", "read_qrels", "read_queries", "read_run"]

R = TypeVar("R", Document, Query)
Rows: TypeAlias = Callable[[str | Path, Problems], Iterator[tuple[int, Any]]]
Make: TypeAlias = Callable[[Any], Any]


def _document_line(line: str) -> Document:
    return make_document(parse_object(line))


def _query_line(line: str) -> Query:
    return make_query(parse_object(line))


def _expansions_line(line: str) -> tuple[str, tuple[str, ...]]:
    return make_expansions(parse_object(line))


RECIPES: dict[tuple[Format, Role], tuple[Rows, Make]] = {
    (Format.JSONL, Role.DOCUMENTS): (read_lines, _document_line),
    (Format.JSONL, Role.QUERIES): (read_lines, _query_line),
    (Format.JSONL, Role.QRELS): (read_lines, lambda line: make_judgement(parse_object(line))),
    (Format.JSONL, Role.EXPANSIONS): (read_lines, _expansions_line),
    (Format.EXPANSIONS, Role.EXPANSIONS): (read_lines, _expansions_line),
    (Format.JSON, Role.DOCUMENTS): (read_items, make_document),
    (Format.JSON, Role.QUERIES): (read_items, make_query),
    (Format.JSON, Role.QRELS): (read_items, make_judgement),
    (Format.KILT_PAGES, Role.DOCUMENTS): (read_lines, kilt.kilt_document),
    (Format.KILT_TASK, Role.QUERIES): (read_lines, kilt.kilt_query),
    (Format.KILT_TASK, Role.QRELS): (read_lines, kilt.kilt_judgements),
    (Format.DSI, Role.DOCUMENTS): (dsi.passages, dsi.document),
    (Format.DSI, Role.QUERIES): (dsi.questions, dsi.query),
    (Format.DSI, Role.QRELS): (dsi.questions, dsi.judgements),
    (Format.DSI, Role.EXPANSIONS): (dsi.written, dsi.expansions),
    (Format.SQUAD, Role.DOCUMENTS): (qa_json.squad_paragraphs, qa_json.squad_document),
    (Format.SQUAD, Role.QUERIES): (qa_json.squad_questions, qa_json.squad_query),
    (Format.SQUAD, Role.QRELS): (qa_json.squad_questions, qa_json.squad_judgements),
    (Format.DPR, Role.DOCUMENTS): (qa_json.dpr_contexts, qa_json.dpr_document),
    (Format.DPR, Role.QUERIES): (qa_json.dpr_items, qa_json.dpr_query),
    (Format.DPR, Role.QRELS): (qa_json.dpr_items, qa_json.dpr_judgements),
    (Format.PAIRS, Role.DOCUMENTS): (read_lines, tables.passage),
    (Format.PAIRS, Role.QUERIES): (read_lines, tables.question),
    (Format.MARCO_DOCUMENTS, Role.DOCUMENTS): (read_lines, tables.marco_document),
    (Format.TABLE, Role.DOCUMENTS): (tables.table_rows, make_document),
    (Format.TABLE, Role.QUERIES): (tables.table_rows, make_query),
    (Format.TABLE, Role.QRELS): (tables.table_rows, make_judgement),
    (Format.TOPICS, Role.QUERIES): (trec.topic_blocks, trec.topic),
    (Format.QRELS, Role.QRELS): (trec.qrels_rows, trec.judgement),
    (Format.RUN, Role.RUN): (read_lines, trec.run_line),
    (Format.PARQUET, Role.DOCUMENTS): (parquet_rows, make_document),
    (Format.PARQUET, Role.QUERIES): (parquet_rows, make_query),
    (Format.PARQUET, Role.QRELS): (parquet_rows, make_judgement),
    (Format.PARQUET_SQUAD, Role.DOCUMENTS): (parquet_rows, qa_json.squad_row_document),
    (Format.PARQUET_SQUAD, Role.QUERIES): (parquet_rows, qa_json.squad_row_query),
    (Format.PARQUET_SQUAD, Role.QRELS): (parquet_rows, qa_json.squad_row_judgements),
    (Format.TEXT, Role.DOCUMENTS): (text_file, lambda document: document),
}

# A file too broken to be recognised is read as what was asked for, if that has one usual format:
# "line 3: the relevance 'x' is not a whole number" helps more than "unknown format".
_USUAL = {Role.QRELS: Format.QRELS, Role.RUN: Format.RUN}


def read_documents(
    path: str | Path, problems: Problems | None = None, *, read_as: str = "", root: str | Path = ""
) -> Iterator[Document]:
    """The documents of a file, or of all files of a folder, each id once.

    `read_as` says whether they are text files or records; without it, the majority of the folder decides. Ids of
    text files in `root` begin there.
    """
    problems = problems or Problems()
    if os.path.isdir(as_path(path)) or read_as or root:
        skip_bad = problems.skip_bad
        layout = survey(path, count_documents, read_as=read_as, text_root=str(root), skip_bad=skip_bad)
        return stream_layout(layout, problems)
    return _stream_file(path, problems, set())


def read_queries(path: str | Path, problems: Problems | None = None) -> Iterator[Query]:
    """The queries of a file, each id once."""
    problems = problems or Problems()
    _, rows, make = _recipe(path, Role.QUERIES)
    return _distinct(path, "query", _made(path, problems, rows, make), problems, set())


def read_qrels(path: str | Path, problems: Problems | None = None) -> dict[str, dict[str, int]]:
    """The judgements of a file: query id -> document id -> grade."""
    problems = problems or Problems()
    _, rows, make = _recipe(path, Role.QRELS)
    qrels: dict[str, dict[str, int]] = {}
    for line, judgements in _made(path, problems, rows, make):
        for query, document, grade in judgements:
            judged = qrels.setdefault(query, {})
            if document in judged:
                twice = f"{shorten(document)} is judged twice for query {shorten(query)}"
                problems.report(path, line, twice, _KEEP_ONE)
            else:
                judged[document] = grade
    return qrels


def read_run(path: str | Path, problems: Problems | None = None) -> dict[str, Result]:
    """A run: query id -> its hits, best first."""
    problems = problems or Problems()
    _, rows, make = _recipe(path, Role.RUN)
    hits_of_queries: dict[str, dict[str, Hit]] = {}
    for line, (query, hit) in _made(path, problems, rows, make):
        hits = hits_of_queries.setdefault(query, {})
        if hit.id in hits:
            problems.report(path, line, f"{shorten(hit.id)} is retrieved twice for query {shorten(query)}", _KEEP_ONE)
        else:
            hits[hit.id] = hit
    return {query: Result(ranked(hits.values())) for query, hits in hits_of_queries.items()}


def read_expansions(path: str | Path, problems: Problems | None = None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Document ids with their expansions, from lines of {"_id": …, "texts": […]}."""
    _, rows, make = _recipe(path, Role.EXPANSIONS)
    return (pair for _, pair in _made(path, problems or Problems(), rows, make))


def stream_layout(layout: Layout, problems: Problems) -> Iterator[Document]:
    """The documents of a folder, file by file in the order of their names, each id once."""
    if not layout.documents:
        yield from text_documents(layout.root, problems, layout.text_root)
    seen: set[int] = set()
    for path in layout.documents:
        yield from _stream_file(path, problems, seen)


def count_documents(files: Sequence[Path], limit: int) -> int:
    """The number of documents in these files of records, counted up to a limit."""
    problems = Problems(skip_bad=True)
    documents = chain.from_iterable(_stream_file(path, problems, set()) for path in files)
    return sum(1 for _ in islice(documents, limit))


def _stream_file(path: str | Path, problems: Problems, seen: set[int]) -> Iterator[Document]:
    """The documents of one file whose ids' hashes are not in `seen`; their hashes are added to it."""
    form, rows, make = _recipe(path, Role.DOCUMENTS)
    made = _made(path, problems, rows, make)
    if form in (Format.DPR, Format.PARQUET_SQUAD):  # many questions share a passage
        return _first_of_each((document for _, document in made), seen)
    return _distinct(path, "document", made, problems, seen)


_KEEP_ONE = "keep one of the two lines"


def _recipe(path: str | Path, role: Role) -> tuple[Format, Rows, Make]:
    kind = recognise(path)
    if kind is None and not (role in _USUAL and is_text(path)):
        kind = sniff(path)
    form = kind.format if kind else _USUAL[role]
    if (form, role) not in RECIPES:
        raise DataError(f"{path} is {kind}, not {role}", f"name the file that holds the {role}")
    return form, *RECIPES[form, role]


def _made(path: str | Path, problems: Problems, rows: Rows, make: Make) -> Iterator[tuple[int, Any]]:
    before = number = 0
    for line, row in rows(path, problems):
        number = number + 1 if line == before else 1
        before = line
        try:
            record = make(row)
        except (Flaw, UsageError) as flaw:
            # JSON may be one long line: its bad records are told apart, and counted, by their number.
            which = f" (record {number:,} from this line on)" if number > 1 else ""
            problems.report(path, line, f"{flaw.problem}{which}", flaw.hint)
        else:
            yield line, record


def _distinct(
    path: str | Path, kind: str, made: Iterator[tuple[int, R]], problems: Problems, seen: set[int]
) -> Iterator[R]:
    """Records whose id is new. Ids are compared by 64-bit hashes, so that long ids cost no more than short ones."""
    for line, record in made:
        key = hash(record.id)
        if key in seen:
            problems.report(path, line, f"a second {kind} with the id {shorten(record.id)}", _DISTINCT)
        else:
            seen.add(key)
            yield record


_DISTINCT = "give every record its own id"


def _first_of_each(documents: Iterator[Document], seen: set[int]) -> Iterator[Document]:
    for document in documents:
        key = hash(document.id)
        if key not in seen:
            seen.add(key)
            yield document
