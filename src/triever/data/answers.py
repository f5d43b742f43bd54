"""Whether an answer is right, and whether a text holds one; text in, numbers out.

`exact_match` and `f1` follow SQuAD 2's script to the letter, on texts in Unicode NFC. `has_answer` follows DPR;
where a script is written without spaces, which leaves no words to find, it takes each character for one.
"""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache, lru_cache

from triever.data.records import normalise

WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(?:a|an|the)\b")
SPACELESS = (  # blocks of scripts without spaces between words: Thai to Khmer, kana, Han
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)


def normalise_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, English articles and extra space: SQuAD's rule.

    >>> normalise_answer("The  Beatles!")
    'beatles'
    """
    bare = normalise(text).lower().translate(WITHOUT_PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", bare).split())


def exact_match(answer: str, answers: Iterable[str]) -> float:
    """1 if the answer equals one of the answers after normalisation. If there are none, the empty answer is right.

    >>> exact_match("the Nile", ["Nile!"]), exact_match("", []), exact_match("Nile", [])
    (1.0, 1.0, 0.0)
    """
    return float(normalise_answer(answer) in _wanted(answers))


def f1(answer: str, answers: Iterable[str]) -> float:
    """The best overlap with one of the answers, the harmonic mean of precision and recall in tokens.

    Tokens stand between spaces, in every script. If there are no answers, the empty answer is right.
    """
    given = normalise_answer(answer).split()
    return max(_overlap(given, wanted.split()) for wanted in _wanted(answers))


def has_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether one of the answers stands in the text as a run of tokens, upper or lower case (DPR).

    >>> has_answer("Paris, France", ["paris"]), has_answer("comparison", ["paris"])
    (True, False)
    """
    whole = normalise(text).lower()
    wanted = [run for run in map(_token_run, answers) if run.strip()]
    # Cutting a text into tokens is the slow part, and most texts do not even hold the answer's letters.
    likely = [run for run in wanted if all(token in whole for token in run.split())]
    return bool(likely) and any(run in _spaced(whole) for run in likely)


def _wanted(answers: Iterable[str]) -> list[str]:
    """The normalised answers without empty ones; if none is left, the empty answer alone."""
    return [answer for answer in map(normalise_answer, answers) if answer] or [""]


def _overlap(given: list[str], wanted: list[str]) -> float:
    if not given or not wanted:
        return float(given == wanted)
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2.0 * common / (len(given) + len(wanted))


@lru_cache(maxsize=4096)
def _token_run(answer: str) -> str:
    return _spaced(normalise(answer).lower())


def _spaced(text: str) -> str:
    """Every token between two spaces, so that a run of tokens is a substring."""
    return f" {' '.join(_tokens().findall(text))} "


@cache
def _tokens() -> re.Pattern[str]:
    """One spaceless character, or a word of letters, digits and marks, or one other visible character."""
    word = f"(?:(?![{SPACELESS}])(?:[^\\W_]|[{_characters('Mn', 'Mc', 'Me')}]))+"
    return re.compile(f"[{SPACELESS}]|{word}|[^{_characters('Cc', 'Cf')}\\s]")


def _characters(*categories: str) -> str:
    """A class of characters for a regular expression: all of these general categories, as ranges."""
    ranges: list[list[int]] = []
    for point in sorted(point for category in categories for point in _points()[category]):
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


@cache
def _points() -> dict[str, list[int]]:
    """General category -> its code points."""
    points: dict[str, list[int]] = defaultdict(list)
    for point in range(sys.maxunicode + 1):
        points[unicodedata.category(chr(point))].append(point)
    return points
