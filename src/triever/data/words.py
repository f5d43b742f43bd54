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
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from types import ModuleType

from triever.errors import UsageError, nearest

# Blocks whose words are not separated by spaces, and Hangul.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # Japanese kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
)
_MARKS = "".join(
    re.escape(chr(code)) for code in range(0x300, 0x3000) if unicodedata.category(chr(code)).startswith("M")
)
_JOINERS = "\u200c\u200d"
_LETTER = f"[^\\W_{_UNSPACED}]"
_WORD = re.compile(f"[{_UNSPACED}]+|{_LETTER}+(?:[{_MARKS}{_JOINERS}]+{_LETTER}*)*")
_ASCII_WORD = re.compile("[a-z0-9]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")


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


@lru_cache(maxsize=8)
def stop_words(language: str) -> frozenset[str]:
    """Words too common to tell documents apart; empty for languages without a list."""
    name = "STOPWORDS_EN" if language in ("english", "porter") else f"STOPWORDS_{language.upper()}"
    return frozenset(getattr(bm25s().stopwords, name, ()))


def stemmer(language: str) -> Callable[[str], str]:
    """The function that reduces a word of a language to its stem; `none` leaves it as it is."""
    import Stemmer

    if language == "none":
        return str
    if language not in Stemmer.algorithms():
        raise UsageError(f"there is no stemmer for language {language!r}", nearest(language, languages()))
    return Stemmer.Stemmer(language).stemWord
