"""From the raw fields of one record to a Document, a Query or a judgement, or to a Flaw that says why not.

Every format that has named fields ends here: JSON lines, JSON arrays, tables with a header, Parquet.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from triever.data.formats.json_text import as_object, is_texts, kind_of, parse_json
from triever.data.records import Document, Query, normalise, wrong_id
from triever.errors import Flaw

if TYPE_CHECKING:
    from triever.validation import Json

Judgement: TypeAlias = tuple[str, str, int]
"""Query id, document id, grade."""

DOCUMENT_IDS = (
    "_id",
    "id",
    "docid",
    "doc_id",
    "docno",
    "pid",
    "passage_id",
    "psg_id",
    "corpus-id",
    "corpus_id",
    "document_id",
    "documentid",
    "uuid",
)
_MAIN_TEXTS = ("text", "contents", "content", "body", "passage", "segment")
OTHER_TEXTS = ("abstract", "article", "document", "paragraph", "context", "description", "summary")
"""Names of a text field in formats without the usual ones; elsewhere the same words mean other things."""
DOCUMENT_TEXTS = (*_MAIN_TEXTS, *OTHER_TEXTS)
QUERY_IDS = ("_id", "id", "qid", "query_id", "query-id", "queryid", "question_id", "uuid")
QUERY_TEXTS = ("text", "query", "question", "input")
JUDGED_QUERIES = ("query-id", "query_id", "queryid", "qid")
JUDGED_DOCUMENTS = (
    *("corpus-id", "corpus_id", "corpusid", "docid", "doc_id", "docno", "document_id", "documentid"),
    *("pid", "passage_id", "passageid"),
)
GRADES = ("score", "relevance", "rel", "label", "grade")

MAX_GRADE = 2**31 - 1  # the tools of the field hold grades in 32 bits

_LOOKS = (
    'a document looks like {"_id": "d1", "title": "", "text": "…"}; '
    f"a text may also be called {', '.join(DOCUMENT_TEXTS[1:-1])} or {DOCUMENT_TEXTS[-1]}"
)
_NAMED = 10  # fields or columns in a message
_SHOWN = 200  # characters of a value in a message
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}(\.0*)?")


def make_document(row: Json) -> Document:
    """A document from named fields; all other fields go to the metadata."""
    fields = as_object(row)
    key = _take_id(fields, DOCUMENT_IDS)
    title = _string(_take(fields, ("title",)), "title")
    text = _take(fields, DOCUMENT_TEXTS)
    if text is None and not title:
        raise Flaw(f"the document has neither text nor title{_only(fields)}", _LOOKS)
    expansions = _strings(fields.pop("expansions", None), "expansions")
    return Document(key, _string(_joined(text), "text"), title, expansions, _metadata(fields))


def _only(fields: Mapping[str, Json]) -> str:
    """The names of the fields that a record has instead, for a message."""
    return f", only {names_shown(list(fields))}" if fields else ""


def names_shown(names: Sequence[str]) -> str:
    """The first names of fields or columns, for a message."""
    return ", ".join(map(shorten, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")


def check_names(names: Iterable[str]) -> None:
    """Raise a Flaw if two columns of a table have one name; columns without a name are not read."""
    name, times = max(Counter(filter(None, names)).items(), key=itemgetter(1), default=("", 0))
    if times > 1:
        raise Flaw(f"{times} columns are called {shorten(name)}", "give every column its own name")


def make_query(row: Json) -> Query:
    """A query from named fields; answers and evidence may stand in the metadata, as in BEIR."""
    fields = as_object(row)
    key = _take_id(fields, QUERY_IDS)
    text = _take(fields, QUERY_TEXTS)
    if text is None:
        raise Flaw("the query has no text", 'a query looks like {"_id": "q1", "text": "…"}')
    metadata = _metadata(fields)
    answers = _strings(metadata.pop("answers", None), "answers")
    return Query(key, _string(text, "text"), answers, _evidence(metadata), metadata)


def make_expansions(row: Json) -> tuple[str, tuple[str, ...]]:
    """A document's id and its expansions, from named fields."""
    fields = as_object(row)
    key = normalise(_take_id(fields, DOCUMENT_IDS))
    if "texts" not in fields:
        raise Flaw("the record has no texts", 'expansions look like {"_id": "d1", "texts": ["…", "…"]}')
    return key, _strings(fields["texts"], "texts")


def make_judgement(row: Json) -> list[Judgement]:
    """A judgement from named fields."""
    fields = as_object(row)
    query = _take_id(fields, JUDGED_QUERIES, "query id")
    document = _take_id(fields, JUDGED_DOCUMENTS, "document id")
    return [(normalise(query), normalise(document), grade(str(_take(fields, GRADES))))]


def clean_id(value: object, field: str = "id") -> str:
    """An id as a string that every format of the field can carry."""
    if type(value) is int:
        return str(value)
    if value is None:
        raise Flaw(f"the {field} is missing", "give every record an id")
    if type(value) is not str:
        raise Flaw(f"the {field} is {kind_of(value)}", "ids are strings or whole numbers")
    if wrong := wrong_id(value, field):
        raise Flaw(*wrong)
    return value


def shorten(text: str) -> str:
    """The beginning of a long text, for messages."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def grade(text: str) -> int:
    """A relevance grade: a whole number, which may be written 1.0."""
    if not _INTEGER.fullmatch(text):
        raise Flaw(f"the relevance {text[:40]!r} is not a whole number", "grades are numbers such as 0, 1 and 2")
    value = int(text.partition(".")[0])
    if abs(value) > MAX_GRADE:
        raise Flaw(f"the relevance {text[:40]} is too large", f"grades go up to {MAX_GRADE}")
    return value


def score(text: str) -> float:
    """The score of a hit: a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text:
        raise Flaw(f"the score {text[:40]!r} is not a finite number", "columns are: query Q0 document rank score tag")
    return value


def _take_id(fields: dict[str, Json], names: Sequence[str], field: str = "id") -> str:
    value = _take(fields, names)
    if value is None:
        raise Flaw(f"the {field} is missing", f"give every record an id, called {', '.join(names[:-1])} or {names[-1]}")
    return clean_id(value, field)


def _take(fields: dict[str, Json], names: Sequence[str]) -> Json:
    """Remove and return the first of these fields that is not null; names in other cases are tried last."""
    for name in names:
        if name in fields and (value := fields.pop(name)) is not None:
            return value
    spelled = {key.lower(): key for key in fields if not key.islower() and fields[key] is not None}
    match = next((name for name in names if name in spelled), None)
    return fields.pop(spelled[match]) if match else None


def _joined(text: Json) -> Json:
    """A list of sentences, such as SciFact's abstracts, as one text; any other value as it is."""
    return " ".join(text) if text and is_texts(text) else text


def _string(value: Json, name: str) -> str:
    if type(value) is str:
        if "\0" in value:
            raise Flaw(f"{name} holds a NUL character", "remove it")
        return value
    if value is None:
        return ""
    raise Flaw(f"{name} is {kind_of(value)}, not a string", f"write {name} as a string")


def _strings(value: Json, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if type(value) is str:
        return (value,)
    if not is_texts(value):
        raise Flaw(f"{name} is not a list of strings", f'write them as {{"{name}": ["…", "…"]}}')
    if any("\0" in item for item in value):
        raise Flaw(f"{name} holds a NUL character", "remove it")
    return tuple(value)


def _metadata(fields: dict[str, Json]) -> dict[str, Json]:
    """The metadata object, together with the remaining fields of the record."""
    if not fields:
        return fields
    value = fields.pop("metadata", None)
    if type(value) is str:  # as in Parquet, which has no open-ended objects
        value = parse_json(value) if value.strip() else None
    if value is None:
        return fields
    if type(value) is not dict:
        raise Flaw(f"metadata is {kind_of(value)}, not an object", "write metadata as a JSON object")
    return {**fields, **value} if fields else value


def _evidence(metadata: dict[str, Json]) -> tuple[tuple[str, ...], ...]:
    value = metadata.get("evidence")
    if type(value) is not list or not all(is_texts(ids) for ids in value):
        return ()  # "evidence" has another meaning here, and stays in the metadata
    del metadata["evidence"]
    return tuple(tuple(ids) for ids in value if is_texts(ids))
