"""JSON as Triever reads it: finite numbers, text without NUL or half surrogates, and a Flaw for the rest."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn, TypeGuard

from triever.data.formats.problems import OR_SKIP
from triever.errors import Flaw

if TYPE_CHECKING:
    from triever.validation import Json

MAX_VALUES = 2**21
"""The limit of values in one record: as many as a list of numbers of the largest allowed length has."""

_SHORT = 2**20
_SUSPECT_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_UNCLEAN = re.compile("[\0\ud800-\udfff]")


def parse_object(line: str) -> dict[str, Json]:
    """The JSON object on one line."""
    return as_object(parse_json(line))


def parse_json(text: str) -> Json:
    """A JSON value whose strings hold no NUL and no half of a surrogate pair."""
    if len(text) > _SHORT:
        check_values(text, 0)
    try:
        value = _decode(text)
        check_escapes(value, text, 0, len(text))
    except json.JSONDecodeError as error:
        raise invalid_json(error, error.colno) from None
    except (RecursionError, ValueError) as error:
        raise invalid_json(error) from None
    return value


def check_values(text: str, start: int) -> None:
    """Raise a Flaw if the text from `start` may hold so many values that they take far more memory than the text.

    An empty list takes 2 characters, and 60 bytes of memory; short texts are not checked.
    """
    if len(text) - start > _SHORT and sum(text.count(mark, start) for mark in ",[{") > MAX_VALUES:
        raise Flaw(f"the JSON holds more than {MAX_VALUES:,} values", f"split the record{OR_SKIP}")


def check_escapes(value: object, source: str, start: int, end: int) -> None:
    """Raise a Flaw if an escape in the source stands for a NUL or half of a surrogate pair.

    Decoded UTF-8 cannot hold lone surrogates, so only escapes matter: the strings of nearly every line
    need no check.
    """
    if _SUSPECT_ESCAPE.search(source, start, end) and (bad := unclean(value)):
        hint = "write the whole surrogate pair, or remove it" if ord(bad) else "remove it"
        raise Flaw(f"the escape \\u{ord(bad):04x} is not text", hint)


def invalid_json(error: Exception, column: int = 0) -> Flaw:
    """The Flaw for whatever the JSON decoder raised."""
    hint = "write one JSON object per line"
    if isinstance(error, RecursionError):
        return Flaw("the JSON is nested too deeply", "flatten the record")
    if isinstance(error, json.JSONDecodeError):
        again = "; if the file was cut short, copy it again" if breaks_off(error) else ""
        return Flaw(f"invalid JSON at column {column}: {error.msg}", f"{hint}{again}")
    if "digits" in str(error):
        return Flaw("invalid JSON: a number has too many digits", "write it as a string")
    return Flaw(f"invalid JSON: {error}", "leave the field out, or write null")


def breaks_off(error: json.JSONDecodeError) -> bool:
    """Whether the text ends inside a value, as that of a file that was cut short."""
    return error.msg.startswith("Unterminated") or error.pos >= len(error.doc.rstrip())


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
_decode = DECODER.decode


def unclean(value: object) -> str:
    """The first NUL or half surrogate in any string of a JSON value, or ""."""
    if isinstance(value, str):
        match = _UNCLEAN.search(value)
        return match.group() if match else ""
    if isinstance(value, dict):
        return _first(unclean(part) for item in value.items() for part in item)
    return _first(unclean(item) for item in value) if isinstance(value, list | tuple) else ""


def _first(characters: Iterable[str]) -> str:
    return next(filter(None, characters), "")


def as_object(row: Json) -> dict[str, Json]:
    """The row itself, if it is a JSON object."""
    if type(row) is dict:
        return row
    raise Flaw(f"the record is {kind_of(row)}, not a JSON object", "write one JSON object per line")


def is_texts(value: object) -> TypeGuard[list[str]]:
    """Whether a JSON value is a list of strings."""
    return type(value) is list and all(type(item) is str for item in value)


def is_objects(value: object) -> TypeGuard[list[dict[str, Json]]]:
    """Whether a JSON value is a list of objects."""
    return type(value) is list and all(type(item) is dict for item in value)


def kind_of(value: object) -> str:
    """A JSON value's type in words.

    >>> kind_of(None), kind_of([1]), kind_of(1.5)
    ('missing', 'a list', 'a fraction')
    """
    return _KINDS.get(type(value), type(value).__name__)


_KINDS = {
    type(None): "missing",
    bool: "true or false",
    int: "a number",
    float: "a fraction",
    str: "a string",
    list: "a list",
    dict: "an object",
}
