"""SQuAD's and DPR's files: questions, answers and passages together, streamed item by item.

Missing ids are made from titles, texts and positions, and are the same at each reading.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from triever.data.formats.fields import Judgement, clean_id, shorten
from triever.data.formats.json_items import read_items
from triever.data.formats.json_text import is_objects, is_texts
from triever.data.formats.problems import Problems
from triever.data.records import Document, Query, normalise
from triever.data.splits import split_name
from triever.errors import Flaw

if TYPE_CHECKING:
    from triever.validation import Json

_POSITIVE = "positive_ctxs"
_CONTEXTS = (_POSITIVE, "negative_ctxs", "hard_negative_ctxs")
_SQUAD = "expected SQuAD's layout: data > paragraphs > context, qas > id, question, answers"
_SQUAD_ROW = "expected SQuAD's columns: id, title, context, question, answers"
_DPR = "expected DPR's layout: question, answers, positive_ctxs > title, text"


class Paragraph(NamedTuple):
    """A paragraph of SQuAD as it stands in the file, with the id that it gets."""

    key: str
    title: str
    fields: dict[str, Json]


class SquadQuestion(NamedTuple):
    """A question of SQuAD as it stands in the file, with its paragraph's id."""

    paragraph: str
    fields: dict[str, Json]


class Item(NamedTuple):
    """An item of DPR's retriever data, with the id that its question gets."""

    key: str
    fields: dict[str, Json]


def squad_paragraphs(path: str | Path, problems: Problems) -> Iterator[tuple[int, Paragraph]]:
    """Paragraphs with ids of the form title-0, title-1, …"""
    for number, (line, article) in enumerate(read_items(path, problems)):
        try:
            title, paragraphs = _article(article)
        except Flaw as flaw:
            problems.report(path, line, f"{flaw.problem} in article {number + 1}", flaw.hint)
            continue
        for at, paragraph in enumerate(paragraphs):
            yield line, Paragraph(f"{title or number}-{at}", title, paragraph)


def squad_document(paragraph: Paragraph) -> Document:
    """The paragraph itself."""
    text = _text(paragraph.fields, "context", _SQUAD)
    return Document(clean_id(paragraph.key), text, paragraph.title.replace("_", " "))


def squad_questions(path: str | Path, problems: Problems) -> Iterator[tuple[int, SquadQuestion]]:
    """The questions of all paragraphs."""
    for line, paragraph in squad_paragraphs(path, problems):
        try:
            questions = _list(paragraph.fields, "qas", _SQUAD)
        except Flaw as flaw:
            problems.report(path, line, f"{flaw.problem} in paragraph {shorten(paragraph.key)}", flaw.hint)
        else:
            yield from ((line, SquadQuestion(paragraph.key, question)) for question in questions)


def squad_query(question: SquadQuestion) -> Query:
    """A question; an impossible one (SQuAD 2) has no answers, and `is_impossible` in its metadata."""
    text = _text(question.fields, "question", _SQUAD)
    given = _list(question.fields, "answers", _SQUAD) if "answers" in question.fields else []
    answers = dict.fromkeys(_text(answer, "text", _SQUAD) for answer in given)
    impossible = {"is_impossible": True} if question.fields.get("is_impossible") else {}
    return Query(clean_id(question.fields.get("id")), text, tuple(answers), metadata=impossible)


def squad_judgements(question: SquadQuestion) -> list[Judgement]:
    """A judgement that makes the question's paragraph relevant, even if the question is impossible."""
    query = squad_query(question)  # what is no question has no judgement either
    return [(normalise(query.id), normalise(clean_id(question.paragraph)), 1)]


def squad_row_document(row: dict[str, Json]) -> Document:
    """The paragraph of a row, in files with one row for each question, as on the Hugging Face Hub."""
    title = _text(row, "title", _SQUAD_ROW) if row.get("title") else ""
    return Document(_context_id(row), _text(row, "context", _SQUAD_ROW), title.replace("_", " "))


def squad_row_query(row: dict[str, Json]) -> Query:
    """The question of a row; its answers are `{"text": [...], "answer_start": [...]}`."""
    given = row.get("answers")
    texts = given.get("text") if isinstance(given, dict) else given
    texts = [] if texts is None else texts
    if not is_texts(texts):
        raise Flaw("answers is not a list of strings", _SQUAD_ROW)
    return Query(clean_id(row.get("id")), _text(row, "question", _SQUAD_ROW), tuple(dict.fromkeys(texts)))


def squad_row_judgements(row: dict[str, Json]) -> list[Judgement]:
    """A judgement that makes the row's paragraph relevant."""
    return [(normalise(squad_row_query(row).id), normalise(_context_id(row)), 1)]


def _context_id(row: dict[str, Json]) -> str:
    text = normalise(_text(row, "context", _SQUAD_ROW))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return clean_id(f"{row['title']}-{digest}") if row.get("title") else digest


def dpr_items(path: str | Path, problems: Problems) -> Iterator[tuple[int, Item]]:
    """Items with question ids of the form train-0, train-1, …, from the file's name."""
    name = split_name(path)
    for number, (line, item) in enumerate(read_items(path, problems)):
        if isinstance(item, dict):
            yield line, Item(f"{name}-{number}", item)
        else:
            problems.report(path, line, "the item is not an object", _DPR)


def dpr_contexts(path: str | Path, problems: Problems) -> Iterator[tuple[int, dict[str, Json]]]:
    """Passages of every kind; a passage that several questions share comes several times."""
    for line, item in dpr_items(path, problems):
        try:
            contexts = [context for kind in _CONTEXTS for context in _contexts(item, kind)]
        except Flaw as flaw:
            problems.report(path, line, f"{flaw.problem} in item {shorten(item.key)}", flaw.hint)
        else:
            yield from ((line, context) for context in contexts)


def dpr_document(context: dict[str, Json]) -> Document:
    """One passage."""
    title = context.get("title") or ""
    if not isinstance(title, str):
        raise Flaw("title is not a string", _DPR)
    return Document(_passage_id(context), _text(context, "text", _DPR), title)


def dpr_query(item: Item) -> Query:
    """One question with its answers."""
    answers = item.fields.get("answers") or []
    if not is_texts(answers):
        raise Flaw("answers is not a list of strings", _DPR)
    return Query(item.key, _text(item.fields, "question", _DPR), tuple(answers))


def dpr_judgements(item: Item) -> list[Judgement]:
    """Judgements that make the positive passages relevant."""
    passages = dict.fromkeys(normalise(_passage_id(context)) for context in _contexts(item, _POSITIVE))
    return [(normalise(dpr_query(item).id), passage, 1) for passage in passages]


def _article(article: Json) -> tuple[str, list[dict[str, Json]]]:
    if not isinstance(article, dict):
        raise Flaw("the article is not an object", _SQUAD)
    title = article.get("title") or ""
    if not isinstance(title, str):
        raise Flaw("title is not a string", _SQUAD)
    return title, _list(article, "paragraphs", _SQUAD)


def _contexts(item: Item, kind: str) -> list[dict[str, Json]]:
    return _list(item.fields, kind, _DPR) if item.fields.get(kind) else []


def _passage_id(context: dict[str, Json]) -> str:
    given = context.get("passage_id", context.get("psg_id"))
    if given is not None:
        return clean_id(given, "passage id")
    content = f"{context.get('title')}\n{context.get('text')}"
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _list(fields: dict[str, Json], name: str, hint: str) -> list[dict[str, Json]]:
    value = fields.get(name)
    if not is_objects(value):
        raise Flaw(f"{name} is not a list of objects", hint)
    return value


def _text(fields: dict[str, Json], name: str, hint: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise Flaw(f"{name} is not a string", hint)
    if "\0" in value:  # Parquet may hold one
        raise Flaw(f"{name} holds a NUL character", "remove it")
    return value
