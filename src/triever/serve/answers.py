"""Hits, results, documents and retrievers as plain values for JSON. Knows nothing of HTTP."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from triever import config
from triever.data.records import Hit, Result
from triever.data.snippets import Snippet
from triever.retriever import ROOT, Asks, Retriever

Show: TypeAlias = Literal["ids", "snippet", "text"]
"""How much of a document a hit carries."""


def result_values(result: Result, query: str, show: Show) -> dict[str, Any]:
    """The hits of a query, and what else the search has returned."""
    values: dict[str, Any] = {"query": query, "hits": [hit_values(hit, show) for hit in result]}
    extra = {"note": result.note, "certificate": result.certificate, "answer": result.answer, "thought": result.thought}
    return values | {key: value for key, value in extra.items() if value}


def hit_values(hit: Hit, show: Show) -> dict[str, Any]:
    """A hit, and of its document as much as is wanted."""
    values: dict[str, Any] = {"id": hit.id, "score": hit.score}
    values |= {} if hit.docid is None else {"docid": hit.docid}
    values |= {} if hit.logprob is None else {"logprob": hit.logprob}
    values |= {} if hit.span is None else {"span": list(hit.span)}
    if show == "ids":
        return values
    document = hit.document
    values |= {"title": document.title, "metadata": dict(document.metadata), "snippet": _snippet_values(hit.snippet)}
    return values | ({"text": document.text} if show == "text" else {})


def _snippet_values(snippet: Snippet) -> dict[str, Any]:
    """The text of a snippet, where it begins in the document, and where words of the query stand in it."""
    return {"text": snippet.text, "start": snippet.start, "matches": [list(match) for match in snippet.matches]}


def described(retriever: Retriever) -> dict[str, Any]:
    """What a retriever is: documents, bytes by part, options that were set, and how its training went."""
    sizes = retriever.memory
    return {
        "kind": retriever.kind,
        "documents": len(retriever),
        "passages": len(retriever.searched),
        "fingerprint": retriever.fingerprint,
        "answers": isinstance(retriever, Asks),
        "docids": retriever.has_docids,
        "data": retriever.fitted_on,
        "bytes": sum(sizes.values()),
        "bytes_by_part": sizes,
        "options": _set_options(retriever),
        "made_from": {key: value for key, value in retriever.engine.made_from().items() if key != ROOT},
    }


def _set_options(retriever: Retriever) -> dict[str, Any]:
    """The options that are not their defaults; a retriever that cannot be made without any has all of them."""
    values = config.to_dict(retriever)
    try:
        usual: Mapping[str, Any] = config.to_dict(type(retriever)())
    except Exception:  # such as a fusion, which needs its members
        usual = {}
    return {key: value for key, value in values.items() if key not in usual or usual[key] != value}


def to_json(value: Any) -> bytes:
    """A value as JSON; numbers that JSON does not have, which a document may hold, are null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_number).encode()
    except (ValueError, UnicodeEncodeError):
        return json.dumps(_finite(value), separators=(",", ":"), default=_number).encode()


def _number(value: Any) -> Any:
    """A number of NumPy or PyTorch as one of Python; any other object as a text."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
