"""Text for people: text of unknown origin made safe for a terminal, means with digits, times, nouns behind numbers."""

from __future__ import annotations

import json
import re

# What a terminal obeys, or takes without a sign of it. Joiners and variation selectors stay: words and emoji need them.
_OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters
    "\u2028\u2029"  # what breaks lines
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns the direction
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"  # unseen
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff"  # unseen too: shorthand, music, tags
    "\ud800-\udfff]"  # half of a surrogate pair, as undecodable bytes in the name of a file are
)


def printable(text: str) -> str:
    r"""Text on one line: a character that a terminal would obey or hide is escaped.

    >>> print(printable("red\x1b[31m\ttide"))
    red\x1b[31m\ttide
    """
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable_lines(text: str) -> str:
    """The same for text that has lines of its own."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(value: object, indent: int | None = 1) -> str:
    r"""A value as JSON, in which such characters are escaped; other letters stay readable. Without indent, one line.

    >>> print(printable_json("Größe\x9b"))
    "Größe\u009b"
    """
    lines = json.dumps(value, ensure_ascii=False, indent=indent).split("\n")  # JSON itself escapes line breaks in texts
    return "\n".join(_OBEYED.sub(lambda match: json.dumps(match[0])[1:-1], line) for line in lines)


def mean_text(value: float) -> str:
    """A mean, or a bound of it, as every table and picture shows it.

    >>> mean_text(0.1234), mean_text(-1e-17), mean_text(1234.5)
    ('0.123', '0.000', '1,234.5')
    """
    return f"{value:z.3f}" if abs(value) < 100 else f"{value:,.1f}"


def count_of(number: int, thing: str, things: str = "") -> str:
    """A number with its noun, which agrees with it.

    >>> count_of(1, "file"), count_of(2_000, "file"), count_of(0, "query", "queries")
    ('1 file', '2,000 files', '0 queries')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def shortened(text: str, width: int = 80) -> str:
    """Text that is cut after so many characters, with a sign of it.

    >>> shortened("retrieval", 5), shortened("retrieval")
    ('retr…', 'retrieval')
    """
    return text if len(text) <= width else f"{text[: width - 1]}…"


def duration(seconds: float) -> str:
    """Seconds for a person.

    >>> duration(20), duration(70), duration(600), duration(9000), duration(400_000)
    ('less than a minute', 'about 1 minute', 'about 10 minutes', 'about 2.5 hours', 'about 5 days')
    """
    if seconds < 60:
        return "less than a minute"
    if seconds < 90 * 60:
        return f"about {count_of(round(seconds / 60), 'minute')}"
    if seconds < 48 * 3600:
        return f"about {seconds / 3600:.1f} hours"
    return f"about {seconds / 86400:.0f} days"


def an(noun: str) -> str:
    """A noun behind its article, as its first letter has it.

    >>> an("bm25"), an("answerer")
    ('a bm25', 'an answerer')
    """
    return f"{'an' if noun[:1].lower() in [*'aeiou'] else 'a'} {noun}"
