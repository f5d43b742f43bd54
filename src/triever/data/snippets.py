"""The part of a text that says most about a query, and where the query's words stand in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from triever.data.words import words

LENGTH = 240
"""The letters of a snippet."""
ENDING = 3
"""Letters by which two forms of a word may differ at their end: loop, loops, looping."""
STEM = 4
"""Letters that two forms of a word share at least."""

# A point inside a word ends nothing: itertools.chain, 3.11, example.org.
_SENTENCES = re.compile(r"(?:[^.!?。！？\n]|(?<=\w)\.(?=\w))+[.!?。！？]*[\"')\]]*|[.!?]+")
_RUNS = re.compile(r"\w+")


@dataclass(frozen=True)
class Snippet:
    """A part of a text: `snippet("Tea is hot. Ice is cold.", "cold drinks")`."""

    text: str
    start: int  # where it begins in the whole text
    matches: tuple[tuple[int, int], ...]  # where words of the query begin and end in it

    def __str__(self) -> str:
        return self.text

    def marked(self, before: str = "[", after: str = "]") -> str:
        """The same with marks around words of the query.

        >>> snippet("Tea is hot. Ice is cold.", "cold drinks").marked()
        'Tea is hot. Ice is [cold].'
        """
        pieces, at = [], 0
        for start, end in self.matches:
            pieces += [self.text[at:start], before, self.text[start:end], after]
            at = end
        return "".join((*pieces, self.text[at:]))


def snippet(text: str, query: str, length: int = LENGTH) -> Snippet:
    """The sentences, at most so many letters, with the most and rarest words of a query; without any, the first ones.

    >>> str(snippet("Tea is hot. Ice is cold. Bread is warm.", "cold", length=13))
    'Ice is cold.'
    """
    wanted = list(dict.fromkeys(words(query)))
    spans = [*_pieces(text, length)]
    found = [_matches(text[start:end], wanted) for start, end in spans]
    rarity = Counter(word for piece in found for word in {word for word, *_ in piece})
    best, most = (0, 0), -1.0
    for first in range(len(spans)):
        last = first
        while last + 1 < len(spans) and spans[last + 1][1] - spans[first][0] <= length:
            last += 1
        there = {word for piece in found[first : last + 1] for word, *_ in piece}
        weight = sum(1 / rarity[word] for word in there)
        if weight > most:
            best, most = (first, last), weight
    start, end = (spans[best[0]][0], spans[best[1]][1]) if spans else (0, 0)
    places = sorted({(begin, stop) for _, begin, stop in _matches(text[start:end], wanted)})
    return Snippet(text[start:end], start, _joined(places))


def _pieces(text: str, length: int) -> Iterator[tuple[int, int]]:
    """Where sentences begin and end, without the spaces around them; a longer one is cut between words."""
    for sentence in _SENTENCES.finditer(text):
        start, end = sentence.span()
        while end - start > length:
            cut = max(text.rfind(" ", start + 1, start + length), start + 1 if length < 2 else start + length // 2)
            yield from _trimmed(text, start, cut)
            start = cut
        yield from _trimmed(text, start, end)


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    piece = text[start:end]
    if stripped := piece.strip():
        begin = start + piece.index(stripped[0])
        yield begin, begin + len(stripped)


def _matches(text: str, wanted: Sequence[str]) -> list[tuple[str, int, int]]:
    """Which words of a query stand in a text, and where each begins and ends."""
    known, matches = set(wanted), []
    for run in _RUNS.finditer(text):
        parts = words(run.group())
        if len(parts) <= 1:
            matches += [(word, *run.span()) for word in wanted if parts and _is_form(parts[0], word)]
            continue
        for word in known.intersection(parts):  # of a run that is several words, or a script without spaces
            at = run.group().casefold().find(word)
            matches += [(word, run.start() + at, run.start() + at + len(word))] if at >= 0 else []
    return matches


def _is_form(one: str, other: str) -> bool:
    """Whether two words are the same but for their endings.

    >>> _is_form("loops", "looping"), _is_form("loop", "look"), _is_form("cat", "cats")
    (True, False, True)
    """
    short, long = sorted((one, other), key=len)
    shared = next((at for at, letter in enumerate(short) if letter != long[at]), len(short))
    if shared == len(short) and len(long) - shared <= 1 and shared >= ENDING:
        return True
    return one == other or (shared >= STEM and len(short) - shared <= 1 and len(long) - shared <= ENDING)


def _joined(places: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The places, joined where they touch: a script without spaces matches letter by letter.

    >>> _joined([(0, 2), (1, 3), (3, 4), (5, 6)])
    ((0, 4), (5, 6))
    """
    joined: list[tuple[int, int]] = []
    for start, end in places:
        if joined and start <= joined[-1][1]:
            before, reached = joined.pop()
            start, end = before, max(end, reached)
        joined.append((start, end))
    return tuple(joined)
