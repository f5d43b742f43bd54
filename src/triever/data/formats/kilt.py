"""KILT's JSON lines: Wikipedia pages as lists of paragraphs, and tasks with answers and provenance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triever.data.formats.fields import Judgement, clean_id
from triever.data.formats.json_text import is_objects, is_texts, parse_object
from triever.data.records import Document, Query, normalise
from triever.errors import Flaw

if TYPE_CHECKING:
    from triever.validation import Json

if TYPE_CHECKING:
    pass


def kilt_document(line: str) -> Document:
    """One page. Its anchors and history are left out: they are longer than the text itself."""
    page = parse_object(line)
    key = clean_id(page.get("wikipedia_id", page.get("_id")))
    title, paragraphs = page.get("wikipedia_title"), page.get("text")
    if not isinstance(title, str):
        raise Flaw("wikipedia_title is not a string", "expected a page of KILT's knowledge source")
    if not is_texts(paragraphs):
        raise Flaw("text is not a list of paragraphs", "expected a page of KILT's knowledge source")
    categories = page.get("categories")
    return Document(key, _join(paragraphs, title), title, metadata={"categories": categories} if categories else {})


def kilt_query(line: str) -> Query:
    """One task item, with its distinct answers and one set of evidence for each output that has any."""
    item, text = _item(line)
    outputs = _outputs(item)
    answers = dict.fromkeys(answer for output in outputs if isinstance(answer := output.get("answer"), str))
    evidence = tuple(ids for output in outputs if (ids := _pages(output)))
    meta = item.get("meta")
    return Query(clean_id(item.get("id")), text, tuple(answers), evidence, meta if isinstance(meta, dict) else {})


def kilt_judgements(line: str) -> list[Judgement]:
    """Judgements that make every page named by an output relevant."""
    item, _ = _item(line)  # what is no question has no judgement either
    query = normalise(clean_id(item.get("id")))
    pages = dict.fromkeys(page for output in _outputs(item) for page in _pages(output))
    return [(query, normalise(page), 1) for page in pages]


def _join(paragraphs: list[str], title: str) -> str:
    parts = [part.rstrip("\n") for part in paragraphs]
    return "\n".join(parts[1:] if parts[:1] == [title] else parts)  # pages open with their own title


def _item(line: str) -> tuple[dict[str, Json], str]:
    """The fields of an item, and its question."""
    item = parse_object(line)
    text = item.get("input")
    if not isinstance(text, str):
        raise Flaw("input is not a string", "expected an item of a KILT task")
    return item, text


def _outputs(item: dict[str, Json]) -> list[dict[str, Json]]:
    outputs = item.get("output", [])
    if not is_objects(outputs):
        raise Flaw("output is not a list of objects", "expected an item of a KILT task")
    return outputs


def _pages(output: dict[str, Json]) -> tuple[str, ...]:
    sources = output.get("provenance") or []
    if not is_objects(sources):
        raise Flaw("provenance is not a list of objects", "expected an item of a KILT task")
    named = (source["wikipedia_id"] for source in sources if source.get("wikipedia_id") is not None)
    return tuple(dict.fromkeys(clean_id(page, "wikipedia_id") for page in named))
