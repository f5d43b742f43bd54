"""Cutting long texts into passages: at headings where it can, else between paragraphs, sentences or words."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from triever.config import option, validate
from triever.errors import UsageError

if TYPE_CHECKING:
    from triever.data.dataset import Dataset


@dataclass(frozen=True)
class Cut:
    """Which documents are cut into passages, and how: `Cut("all", words=100)`."""

    which: Literal["files", "all", "none"] = option(
        "files", "whose passages are searched: those of documents that are text files (files), of all, or of none"
    )
    words: int = option(150, "the words and marks of a passage, at most; a shorter document stays whole")
    overlap: int = option(30, "words that a passage repeats of the one before, unless it begins with a heading")

    def __post_init__(self) -> None:
        validate(self)
        if self.which not in ("files", "all", "none"):
            raise UsageError(f"cut.which = {self.which!r} is not one of the choices", "use files, all or none")
        if self.words < 1 or not 0 <= self.overlap <= self.words // 4:
            problem = f"a value of cut is out of range: words = {self.words}, overlap = {self.overlap}"
            raise UsageError(problem, "set words above zero, and overlap to at most a quarter of it")

    def cuts(self, dataset: Dataset) -> bool:
        """Whether the documents of a dataset are cut."""
        return self.which == "all" or (self.which == "files" and bool(dataset.root))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the passages of a text begin and end; a short text is one passage, and so is an empty one.

        >>> text = "# Tea\\nHot water. Dry leaves.\\n\\n# Ice\\nCold water."
        >>> Cut(words=8, overlap=0).spans(text) == [(0, 28), (30, 47)]
        True
        """
        words = [match.start() for match in _WORD.finditer(text)]
        if len(words) <= self.words:
            return [(0, len(text))]
        breaks = _breaks(text, words)
        spans, first = [], 0
        while (end := self._end(breaks, first)) < len(words):
            spans.append(_trimmed(text, words[first], words[end]))
            first = end if breaks[end] == _HEADING else self._begin(breaks, first, end)
        return [*spans, _trimmed(text, words[first], len(text))]

    def _end(self, breaks: Sequence[int], first: int) -> int:
        """The word before which a passage ends: a heading, or else the last of the strongest breaks in its second half.

        A heading does not end a passage that has hardly begun.
        """
        last = first + self.words
        for word in range(first + self.words // FEW + 1, min(last + 1, len(breaks))):
            if breaks[word] == _HEADING:
                return word
        if last >= len(breaks):
            return len(breaks)
        return max(range(first + (self.words + 1) // 2, last + 1), key=lambda word: (breaks[word], word))

    def _begin(self, breaks: Sequence[int], first: int, end: int) -> int:
        """The word with which the next passage begins: it repeats some, from the strongest break among them on."""
        candidates = range(max(first + 1, end - self.overlap), end + 1)
        inside = [word for word in candidates if word < end and breaks[word]] if self.overlap else []
        if inside:
            return max(inside, key=lambda word: (breaks[word], -word))
        return candidates[0]


FEW = 8
"""A passage that has no more than one in so many of its words is not ended by a heading."""
_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w{1,12}|[^\w\s]")
"""What counts as a word: a letter of a script without spaces, up to twelve letters of another, or a mark.

So a passage has nearly as many words as a model has tokens for it, in prose, in code and in other scripts.
"""
_HEADING, _PARAGRAPH, _SENTENCE = 3, 2, 1
_STARTS = (
    (_SENTENCE, re.compile(r"(?<=[.!?])[\"')\]]*\s+|(?<=[。！？])|\n+")),
    (_PARAGRAPH, re.compile(r"\n[^\S\n]*\n\s*")),
    (_HEADING, re.compile(r"(?:^|\n)(?=#{1,6}[^\S\n]\S|[^\n]+\n(?:={3,}|-{3,}|~{3,})[^\S\n]*(?:\n|$))")),
)
"""By strength, what stands before a sentence, a paragraph, and a heading of Markdown or reStructuredText."""


def headings(text: str) -> list[tuple[int, str]]:
    """Where the headings of a text begin, and what they say.

    >>> headings("# Tea\\nHot water.\\n\\nIce\\n---\\nCold water.")
    [(0, 'Tea'), (18, 'Ice')]
    """
    found = []
    for match in _STARTS[-1][1].finditer(text):
        line, _, _ = text[match.end() :].partition("\n")
        found.append((match.end(), line.lstrip("#").strip()))
    return found


def _breaks(text: str, words: Sequence[int]) -> list[int]:
    """How good it is to cut before each word: 0 inside of a sentence."""
    breaks = [0] * len(words)
    for strength, pattern in _STARTS:
        for match in pattern.finditer(text):
            at = bisect_left(words, match.end())
            if at < len(words):
                breaks[at] = strength
    return breaks


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """A span without the space at its end; it begins with a word."""
    return start, start + len(text[start:end].rstrip())
