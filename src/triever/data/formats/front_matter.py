"""The block of `key: value` lines between two lines of --- at the top of a text, as many tools write it.

Reads the simple part of YAML: texts, numbers, true and false, lists, and texts over several lines. Dates stay texts.
A key with anything else below it, such as further keys, is passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from triever.data.formats.json_text import unclean

if TYPE_CHECKING:
    from triever.validation import Json

_OPENING = re.compile(r"---[ \t]*\r?\n")
_MOST = 2**16  # characters
_CLOSING = re.compile(r"^(---|\.\.\.)[ \t]*\r?$", re.MULTILINE)
_PAIR = re.compile(r"([^\W_][\w .-]{0,99}?)[ \t]*:(?:[ \t]+(.*))?$")
_ITEM = re.compile(r"[ \t]*-(?:[ \t]+(.*))?$")
_PARTS = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^,]*)\s*(?:,|$)""")
_COMMENT = re.compile(r"(^|[ \t])#.*$")
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")
_FRACTION = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})\.[0-9]{1,17}")
_BLOCKS = ("|", ">", "|-", ">-", "|+", ">+")
_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None, "~": None, "": None}


def split_front_matter(text: str) -> tuple[dict[str, Json], str]:
    """The fields of the front matter, and the text after it; no fields and the whole text if there is none.

    >>> split_front_matter("---\\ntitle: Leave\\ntags: [hr, 'time off']\\nyear: 2024\\n---\\nThirty days.")
    ({'title': 'Leave', 'tags': ['hr', 'time off'], 'year': 2024}, 'Thirty days.')
    >>> split_front_matter("---\\nA rule above a sentence.\\n---\\n")
    ({}, '---\\nA rule above a sentence.\\n---\\n')
    """
    opening = _OPENING.match(text)
    closing = _CLOSING.search(text, opening.end(), _MOST) if opening else None
    if not opening or not closing:
        return {}, text
    fields = _fields(text[opening.end() : closing.start()].splitlines())
    return (fields, text[closing.end() :].lstrip("\r\n")) if fields is not None else ({}, text)


def _fields(lines: Sequence[str]) -> dict[str, Json] | None:
    """The fields of all lines; None if a line is none of a front matter's, or if there is no key."""
    blocks: list[tuple[str, str, list[str]]] = []
    for line in filter(str.strip, lines):
        if pair := _PAIR.match(line):
            blocks.append((pair[1], (pair[2] or "").strip(), []))
        elif blocks and (line[0] in " \t" or _ITEM.match(line)):
            blocks[-1][2].append(line)
        elif not line.startswith("#"):
            return None
    values = {key: _value(value, below) for key, value, below in blocks}
    return {key: value for key, value in values.items() if value is not None} if blocks else None


def _value(value: str, below: Sequence[str]) -> Json:
    if not below:
        return _list(value) if value.startswith("[") else scalar(value)
    if value in _BLOCKS:
        return ("\n" if value[0] == "|" else " ").join(map(str.strip, below))
    items = [_ITEM.match(line) for line in below]
    if _COMMENT.sub("", value) or not all(items):
        return None
    return _present(scalar(item[1] or "") for item in items if item)


def _list(value: str) -> Json:
    inner = _COMMENT.sub("", value).strip()
    if not inner.endswith("]") or inner.count("[") > 1:
        return value
    return _present(scalar(part) for part in _PARTS.findall(inner[1:-1]))


def _present(values: Iterable[Json]) -> Json:
    return [value for value in values if value is not None]


def scalar(text: str) -> Json:
    """A number, true or false, or a text; None for nothing.

    >>> [scalar(text) for text in ("12", "0.5", "007", "2024-01-31", "true", "'12'", "a # comment", "~")]
    [12, 0.5, '007', '2024-01-31', True, '12', 'a', None]
    """
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return _unquoted(text)
    text = _COMMENT.sub("", text).strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _FRACTION.fullmatch(text) else text


def _unquoted(text: str) -> str:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    try:
        value = json.loads(text)
    except ValueError:
        return text[1:-1]
    return text[1:-1] if unclean(value) else value
