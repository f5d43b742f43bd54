"""Text to words, for lexical matching in any script. Knows nothing about indexes.

Words are compared in compatibility form and without case. Scripts that write no spaces (Chinese,
Japanese, Thai and their like; Korean too, whose particles cling to their nouns) give characters
and overlapping pairs of them. Elsewhere a word keeps its combining marks, without which Hindi or vocalised
Arabic would fall to pieces.
"""

from __future__ import annotations

import importlib
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import islice, pairwise
from types import ModuleType

from triever.errors import UsageError, nearest

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # Japanese kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
)
"""Letters whose words are not separated by spaces, and Hangul, as a regular expression has them between brackets."""
_MARKS = "".join(
    re.escape(chr(code)) for code in range(0x300, 0x3000) if unicodedata.category(chr(code)).startswith("M")
)
_JOINERS = "\u200c\u200d"
_LETTER = f"[^\\W_{UNSPACED}]"
_WORD = re.compile(f"[{UNSPACED}]+|{_LETTER}+(?:[{_MARKS}{_JOINERS}]+{_LETTER}*)*")
_ASCII_WORD = re.compile("[a-z0-9]+")
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")


TOLD_APART = (
    *("english", "danish", "dutch", "french", "german", "italian", "norwegian", "portuguese", "russian", "spanish"),
    *("swedish", "turkish"),
)
"""Languages that are told apart by their commonest words; of those that tie, the first."""
LOOKED_AT = 1000
"""How many texts are looked at for their language."""
BEGINNING = 2000
"""How many letters of each."""

_TURKISH = str.maketrans({"I": "ı", "İ": "i"})


def words(text: str, language: str = "") -> list[str]:
    """The words of a text, in order; the language matters only if it is Turkish, for its two kinds of i.

    >>> words("Größe: OrderedDict.move_to_end 東京都")
    ['grösse', 'ordereddict', 'move', 'to', 'end', '東', '東京', '京', '京都', '都']
    """
    if language == "turkish":
        text = text.translate(_TURKISH)
    if text.isascii():  # most of the world's corpora, most of the time: four times faster
        return _ASCII_WORD.findall(text.lower())
    folded = unicodedata.normalize("NFKC", text).casefold().replace("i\u0307", "i")  # casefold gives this for İ
    split = _WORD.findall(folded)
    return [part for word in split for part in _parts(word)] if _IS_UNSPACED.search(folded) else split


def is_unspaced(letter: str) -> bool:
    """Whether a letter belongs to a script without spaces, or is Korean."""
    return _IS_UNSPACED.match(letter) is not None


def _parts(word: str) -> list[str]:
    """The characters of an unspaced word and their pairs, as one character can be a query; else the word itself."""
    if not _IS_UNSPACED.match(word):
        return [word]
    return [part for first, second in pairwise(word) for part in (first, first + second)] + [word[-1]]


def languages() -> list[str]:
    """The allowed values of `language`."""
    import Stemmer

    return sorted([*Stemmer.algorithms(), "none"])


@lru_cache(maxsize=1)
def bm25s() -> ModuleType:
    """The library bm25s, imported without JAX.

    Where JAX is installed, bm25s imports it for a top-k function that is not used here; JAX would take the memory
    of a GPU, or fail.
    """
    before = sys.modules.get("jax", _ABSENT)
    sys.modules["jax"] = None  # ty: ignore[invalid-assignment]
    try:
        return importlib.import_module("bm25s")
    finally:
        if before is _ABSENT:
            del sys.modules["jax"]
        else:
            sys.modules["jax"] = before


_ABSENT = ModuleType("absent")


@lru_cache(maxsize=32)
def stop_words(language: str) -> frozenset[str]:
    """Words too common to tell documents apart; empty for languages without a list."""
    name = "STOPWORDS_EN" if language in ("english", "porter") else f"STOPWORDS_{language.upper()}"
    return frozenset(getattr(bm25s().stopwords, name, ()))


def language_of(texts: Iterable[str]) -> str:
    """The language of most texts, as the option `language` names it: "" for others, english where nothing is certain.

    Texts that vote for another language must be more than those for English, and a quarter of all: short texts vote
    for anything.

    >>> language_of(["Der Hund und die Katze"]), language_of(["printer jams"]), language_of(["東京都"])
    ('german', 'english', '')
    """
    votes = Counter(map(_vote, islice(texts, LOOKED_AT)))
    least = max(votes.pop("english", 0), votes.total() // 4)
    del votes[None]
    return votes.most_common(1)[0][0] or "" if votes.total() > least else "english"


def how_texts_look(language: str) -> str:
    """What a message says of texts in a language that `language_of` names, which is not English."""
    return f"look {language.capitalize()}" if language else "do not look English"


def _vote(text: str) -> str | None:
    """The language whose commonest words are a tenth of a text or more; "" for another script; None if it is unsure."""
    beginning = text[:BEGINNING]
    text_words = words(beginning)
    shares = {language: sum(map(stop_words(language).__contains__, text_words)) for language in TOLD_APART}
    best = max(TOLD_APART, key=shares.__getitem__)
    if shares[best] * 10 >= max(len(text_words), 1):
        return best
    letters = [letter for letter in beginning if letter.isalpha()]
    foreign = sum(not (letter < "\u0250" or "\u1e00" <= letter < "\u1f00") for letter in letters)  # not Latin
    return "" if 2 * foreign > len(letters) else None


def stemmer(language: str) -> Callable[[str], str]:
    """The function that reduces a word of a language to its stem; `none` leaves it as it is."""
    import Stemmer

    if language == "none":
        return str
    if language not in Stemmer.algorithms():
        raise UsageError(f"there is no stemmer for language {language!r}", nearest(language, languages()))
    return Stemmer.Stemmer(language).stemWord
