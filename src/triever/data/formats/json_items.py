"""The items of one large JSON value, decoded one at a time in flat memory.

Reads `[item, …]` and `{"key": …, "data": [item, …], …}`; knows nothing of what the items mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from triever.data.formats.json_text import DECODER, breaks_off, check_escapes, check_values, invalid_json
from triever.data.formats.lines import CHUNK, MAX_LINE, read_text, too_long
from triever.data.formats.problems import Problems
from triever.errors import DataError, Flaw

if TYPE_CHECKING:
    from triever.validation import Json

_SPACE = " \t\n\r"
_BEHIND = tuple(_SPACE + ",:]}")  # one of these must follow a value: the first half of 1.5 is a number too
_LONGEST_TOKEN = 32  # characters of a half-read number, literal or escape
_CUT_SHORT = ("the JSON ends too early", "the file was cut short: download or copy it again")


def read_items(path: str | Path, problems: Problems) -> Iterator[tuple[int, Json]]:
    """Every item of the array, with the line it begins on.

    After a broken item, the beginning of the next one is unknown, so lenient reading ends there.
    """
    window = _Window(read_text(path, problems))
    try:
        inside = window.peek() == "{"
        if inside:
            window.enter("data")
        yield from window.array()
        if not inside and window.peek():
            raise Flaw("there is more text after the JSON list", "write one list, or one object per line")
    except Flaw as flaw:
        problems.report_end(path, window.line, flaw.problem, flaw.hint)


def first_item(path: str | Path) -> tuple[str, Json]:
    """The beginning of a JSON file: ("array" | "data", the first item), or ("object", the object)."""
    window = _Window(read_text(path, Problems(skip_bad=True)))
    if window.peek() == "[":
        return "array", next(window.array(), (0, None))[1]
    members: dict[str, Json] = {}
    start = window.taken
    for key in window.members():
        if key == "data" and window.peek() == "[":
            return "data", next(window.array(), (0, None))[1]
        members[key] = window.value()
        if window.taken - start > MAX_LINE:
            raise Flaw(*too_long("JSON object"))
    return "object", members


def is_one_object(path: str | Path) -> bool:
    """Whether a file is a single JSON object; false of a pipe and of a file that cannot be opened."""
    window = _Window(read_text(path, Problems(skip_bad=True)))
    try:
        return window.peek() == "{" and isinstance(window.value(), dict) and not window.peek()
    except (Flaw, DataError):
        return False


class _Window:
    """A piece of a long JSON text that moves forward, value by value."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self._chunks = chunks
        self._text = ""
        self._at = 0
        self.line = 1
        self.taken = 0  # characters of the values so far

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self.line += self._text[self._at] == "\n"
                self._at += 1
            if self._at < len(self._text) or not self._grow():
                return self._text[self._at : self._at + 1]

    def value(self) -> Json:
        """The next value of any kind."""
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                self._read_on(error)
            else:
                if self._text[end : end + 1] in _BEHIND or not self._grow():
                    return self._consume(value, end)

    def array(self) -> Iterator[tuple[int, Json]]:
        """The items of the array that begins here."""
        self._expect("[")
        if self.peek() == "]":
            self._expect("]")
            return
        while True:
            self.peek()
            line = self.line
            yield line, self.value()
            if self._expect(",]") == "]":
                return

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here; the caller takes each value before the next key."""
        self._expect("{")
        if self.peek() == "}":
            return
        while True:
            if self.peek() not in ('"', ""):
                self._expect('"')
            key = cast(str, self.value())  # it begins with a quote
            self._expect(":")
            yield key
            if self._expect(",}") == "}":
                return

    def enter(self, wanted: str) -> None:
        """Move to the value of one key of the object that begins here."""
        for key in self.members():
            if key == wanted:
                return
            self.value()
        raise Flaw(f'the JSON object has no "{wanted}" list', "expected SQuAD's layout, or a list of objects")

    def _expect(self, allowed: str) -> str:
        character = self.peek()
        if not character:
            raise Flaw(*_CUT_SHORT)
        if character not in allowed:
            raise Flaw(f"invalid JSON: {character!r} instead of {' or '.join(allowed)}", "check the file")
        self._at += 1
        return character

    def _consume(self, value: Json, end: int) -> Json:
        try:
            check_escapes(value, self._text, self._at, end)
        except RecursionError as error:
            raise invalid_json(error) from None
        if end - self._at > MAX_LINE:
            raise Flaw(*too_long("JSON item"))
        self.taken += end - self._at
        self.line += self._text.count("\n", self._at, end)
        self._at = end
        return value

    def _grow(self) -> bool:
        """Double the text that is held, up to the limit, so that a long item is decoded only a few times."""
        held = self._text[self._at :]
        wanted = max(CHUNK, min(len(held), MAX_LINE + 1 - len(held)))
        fresh: list[str] = []
        while wanted > 0 and (chunk := next(self._chunks, "")):
            fresh.append(chunk)
            wanted -= len(chunk)
        if fresh:
            self._text, self._at = held + "".join(fresh), 0
        return bool(fresh)

    def _may_be_cut(self, error: Exception) -> bool:
        """Whether the decoder failed because the window ends inside the value, not because it is wrong."""
        if not isinstance(error, json.JSONDecodeError):
            return False
        return error.msg.startswith("Unterminated") or error.pos > len(self._text) - _LONGEST_TOKEN

    def _read_on(self, error: Exception) -> None:
        if not self._may_be_cut(error):
            raise self._flaw(error)
        if len(self._text) - self._at > MAX_LINE:
            raise Flaw(*too_long("JSON item"))
        if not self._grow():
            raise self._flaw(error)
        check_values(self._text, self._at)

    def _flaw(self, error: Exception) -> Flaw:
        if not isinstance(error, json.JSONDecodeError):
            return invalid_json(error)
        if breaks_off(error):
            return Flaw(*_CUT_SHORT)
        self.line += self._text.count("\n", self._at, error.pos)
        near = self._text[max(self._at, error.pos - 12) : error.pos + 12]
        return Flaw(f"invalid JSON near {near!r}: {error.msg}", "check the file with: python -m json.tool FILE")
