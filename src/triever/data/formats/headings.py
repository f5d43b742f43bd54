"""The title of a text: its first heading, in Markdown, in reStructuredText, or underlined as in plain text."""

from __future__ import annotations

import io
import re
from itertools import islice

_HEAD_LINES = 200
_FENCES = ("```", "~~~")
_UNDERLINES = {".rst": "=-`:'\"~^_*+#<>.", ".txt": "="}
_RULE = 3  # signs in the shortest underline
_NO_TITLE = re.compile(r"\s|$|[-*+>|] |\.\. |[|#]")  # the beginning of an item, a quotation, a table or a directive


def first_heading(text: str, ending: str) -> str:
    """The first heading among the first lines, but not a comment inside a code fence; "" if there is none.

    A line of = below a line makes a heading everywhere, a line of - in Markdown, and other signs in .rst files.
    """
    above, before, fence = "", "", ""
    for line in map(str.rstrip, islice(io.StringIO(text), _HEAD_LINES)):
        mark = line.lstrip()[:3]
        if ending != ".rst" and mark in _FENCES and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence and (heading := _heading(line, ending) or _underlined(above, before, line, ending)):
            return heading
        above, before = before, line
    return ""


def _heading(line: str, ending: str) -> str:
    """The text after one to six # and a space, without the # that may close it.

    >>> _heading("## In C# #", ".md"), _heading("#tag", ".md"), _heading("# a comment", ".rst")
    ('In C#', '', '')
    """
    rest = line.lstrip("#")
    if ending == ".rst" or not 1 <= len(line) - len(rest) <= 6 or rest[:1] not in (" ", "\t"):
        return ""
    bare = rest.rstrip("#")
    return (bare if bare[-1:] in (" ", "\t") else rest).strip()


def _underlined(above: str, before: str, line: str, ending: str) -> str:
    """The line before an underline.

    >>> _underlined("", "Holidays", "========", ".md"), _underlined("~~~~~~", " Leave", "~~~~~~", ".rst")
    ('Holidays', 'Leave')
    >>> _underlined("the end of", "a paragraph", "---", ".md"), _underlined("", "- an item", "---", ".md")
    ('', '')
    """
    if not line or line.strip(line[0]) or line[0] not in _UNDERLINES.get(ending, "=-"):
        return ""
    if ending == ".rst":
        framed = above == line
        long_enough = len(line) >= max(len(before.rstrip()), _RULE)
        return before.strip() if long_enough and (framed or not _NO_TITLE.match(before)) else ""
    if line[0] == "=":
        return before if before[:1].strip() else ""
    return before if len(line) >= _RULE and not above and not _NO_TITLE.match(before) else ""
