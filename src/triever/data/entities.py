"""Names, numbers and dates in a text, found by how they are written; no model, no list of names.

A run of capitalised words is a name, unless it is a single word that begins a sentence. It misses names that are not
capitalised and all names in scripts without capitals, such as Arabic, Hindi and Japanese; numbers are found there too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from triever.data.words import UNSPACED

MOST_WORDS = 6
"""A run of capitalised words that is longer is a title or a heading, and no name."""
# Behind a full stop of Chinese and Japanese there is no space; a quotation may close there.
_SENTENCES = re.compile(r"[^.!?。！？\n]+(?:[.!?](?!\s|$)[^.!?。！？\n]*)*(?:[。！？]+[」』”’）]*|[.!?])?")
_SMALL = r"(?:of|the|de|la|le|von|van|der|den|du|and|&)"
_CAPITALS = "".join(chr(code) for code in range(0x3000) if chr(code).isupper() or chr(code).istitle())
_CAPITAL = rf"[{_CAPITALS}](?:(?![{UNSPACED}])[\w'’-])*"
_NAME = re.compile(rf"{_CAPITAL}(?:\s+(?:{_SMALL}\s+){{0,2}}{_CAPITAL})*")
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*(?:\s?%|\s(?:percent|million|billion|thousand))?")
_COMMON = {"I", "It", "He", "She", "We", "They", "You", "The", "This", "That", "These", "Those", "A", "An"}
_COMMON |= {"In", "On", "At", "As", "For", "But", "And", "Or", "If", "When"}
"""Words that begin sentences more often than names."""


def entities(sentence: str) -> list[tuple[int, int]]:
    """Where names and numbers stand in a sentence.

    >>> text = "In 1912 Marie Curie left for the United States of America."
    >>> [text[start:end] for start, end in entities(text)]
    ['1912', 'Marie Curie', 'United States of America']
    """
    begin = len(sentence) - len(sentence.lstrip("\"'([{ "))
    found = [*_names(sentence, begin), *(match.span() for match in _NUMBER.finditer(sentence))]
    places: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if not places or start >= places[-1][1]:
            places.append((start, end))
    return places


def _names(sentence: str, begin: int) -> Iterator[tuple[int, int]]:
    for match in _NAME.finditer(sentence):
        start, words = match.start(), match.group().split()
        if start == begin and words[0] in _COMMON:  # the first word is capitalised for no reason of its own
            start += len(match.group()) - len(match.group()[len(words[0]) :].lstrip())
            words = words[1:]
        single = len(words) == 1 and (start == begin or words[0] in _COMMON)
        if words and not single and len(words) <= MOST_WORDS:
            yield start, match.end()


def sentences(text: str) -> list[str]:
    """The sentences of a text, without space around them.

    >>> sentences("Pi is 3.14. Who says so?"), sentences("誰が言う？円周率は3.14だ。")
    (['Pi is 3.14.', 'Who says so?'], ['誰が言う？', '円周率は3.14だ。'])
    """
    return [match.group().strip() for match in _SENTENCES.finditer(text) if match.group().strip()]
