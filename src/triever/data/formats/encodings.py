"""The text of a file's bytes: UTF-8, and other encodings where the bytes leave no doubt.

A guess that may be wrong is worse than an error: it would put wrong words into a corpus, and nobody would see them.
"""

from __future__ import annotations

import codecs
import re

from triever.data.formats.lines import BOMS, not_utf8
from triever.errors import Flaw

_NAMED = re.compile(r"(iso-?8859-?\d+|(windows-|cp)125\d|koi8-[ru]|shift_jis|gb(2312|k|18030)|big5|euc-(jp|kr))$")
_AS_BROWSERS_DO = re.compile(r"iso-?8859-?1$")  # pages that say Latin-1 hold the quotes of Windows-1252

# A byte of 0x80 and above that UTF-8 could have, with those that belong to it.
_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_HIGH = re.compile(rb"[\x80-\xff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")

_LANGUAGES = (  # the letters beyond a to z
    *("äöüßé", "àâæçèéêëîïôùûüœ", "áéíñóúü", "àáâãçéêíóôõú", "àèéìíîòóùú", "àçèéíïòóúü"),
    *("æøåéèóòô", "åäöéà", "äëéèïöüáíóú"),
)
_SHARED = frozenset("áâäçéëíîóôöúüß")  # the letters that have the same bytes in Central European encodings
_SIGNS = "€£¥§©®°±²³¹º»¼½¾¿¡«¬¶µ÷×ª‘“”„‚‹›•™†‡‰"
_ANYWHERE = "’·\xa0"  # signs that also stand inside words, as in don’t and paral·lel
_DASHES = "–—…"
_ENOUGH = 5  # letters: no text of another language is that long without one of its own

# A sign in a word was a letter in another encoding, and so was a capital after a small letter.
_LETTER = r"[^\W\d_]"
_MISPLACED = re.compile(f"{_LETTER}[{_SIGNS}]{_LETTER}|{_LETTER}[„‚¡¿]|[a-zß-öø-ÿœ][À-ÖØ-ÞŒ]")
_JOINED = re.compile(f"{_LETTER}[{_DASHES}]{_LETTER}")
_LETTERS = re.compile("[À-ÖØ-öø-ÿŒœ]+")
_LONGEST_RUN = 2  # of such letters: créée
_EMBEDDED = re.compile("[A-Za-z][À-ÖØ-öø-ÿŒœ]|[À-ÖØ-öø-ÿŒœ][A-Za-z]")


class Undecodable(Flaw):
    """Bytes that no known encoding explains; knows the line of the first of them."""

    def __init__(self, line: int, problem: str, hint: str) -> None:
        super().__init__(problem, hint)
        self.line = line


def decode(raw: bytes, declared: str = "") -> str:
    """The text of a file; a Flaw if its encoding is not certain, or if it holds bytes that are no text.

    `declared` is the encoding that the file itself names, as web pages do; it counts where the bytes are not UTF-8.

    >>> decode("Grüße".encode("utf-16")), decode("Grüße".encode("latin-1")), decode(b"caf\\xc3\\xa9")
    ('Grüße', 'Grüße', 'café')
    """
    text = _marked(raw)
    if text is None:
        text = _unmarked(raw, declared.strip().lower())
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise Undecodable(line, "the text holds a NUL byte", "the file may be binary: convert it to UTF-8")
    return text


def _marked(raw: bytes) -> str | None:
    """The text of bytes that begin with a byte order mark; None without one."""
    if raw.startswith(codecs.BOM_UTF8):
        return _strict(raw[len(codecs.BOM_UTF8) :], "utf-8", "UTF-8")
    for bom, name in BOMS:
        if raw.startswith(bom):
            return _strict(raw, name, name)
    return None


def _strict(raw: bytes, encoding: str, name: str) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        problem = f"the file says that it is {name}, but byte {error.start + 1} does not fit"
        raise Undecodable(1, problem, "save it again as UTF-8") from None


def _unmarked(raw: bytes, declared: str) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        if _NAMED.match(declared):
            return _strict(raw, "cp1252" if _AS_BROWSERS_DO.match(declared) else declared, declared)
        text = (_wide(raw) if b"\0" in raw else _western(raw)) or ""
        if not text:
            raise _uncertain(raw, error.start) from None
        return text
    return (_wide(raw) or text) if "\0" in text else text


def _wide(raw: bytes) -> str | None:
    """UTF-16 without a mark, if one order of bytes gives text in which Latin letters and spaces are common."""
    texts = []
    for encoding in ("utf-16-le", "utf-16-be"):
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError:
            continue
        common = sum(character < "\u0100" for character in text)
        if 3 * common >= len(text) and not _CONTROL.search(text) and "".join(text.split()).isprintable():
            texts.append(text)
    return texts[0] if len(texts) == 1 else None


def _western(raw: bytes) -> str | None:
    """Windows-1252, of which Latin-1 is a part, if the letters are those of one language and stand in its words."""
    try:
        text = raw.decode("cp1252")
    except UnicodeDecodeError:
        return None
    if _CONTROL.search(text) or _MISPLACED.search(text) or _is_damaged_utf8(raw):
        return None
    if _JOINED.search(text) and not {"“", "”"} <= set(text):  # without such quotes, dashes may have been letters
        return None
    runs = _LETTERS.findall(text)
    letters, count = set("".join(runs).lower()), sum(map(len, runs))
    if set(_LETTERS.sub("", text)) - {*map(chr, range(128)), *_SIGNS, *_ANYWHERE, *_DASHES}:
        return None
    if count and not (_EMBEDDED.search(text) and any(letters <= set(language) for language in _LANGUAGES)):
        return None
    plain = sum(character.isalpha() for character in text) - count
    in_words = count <= plain and all(len(run) <= _LONGEST_RUN for run in runs)
    return text if in_words and (letters <= _SHARED or count >= _ENOUGH) else None


def _is_damaged_utf8(raw: bytes) -> bool:
    """Whether bytes that fit UTF-8 are not much rarer than those that do not."""
    fitting = _SEQUENCE.findall(raw)
    return 10 * len(fitting) > len(_HIGH.findall(raw)) - sum(map(len, fitting))


def _uncertain(raw: bytes, at: int) -> Undecodable:
    problem, _ = not_utf8(raw, at)
    hint = "convert it: iconv -f CP1252 -t UTF-8 FILE > NEW, with its own encoding in place of CP1252"
    return Undecodable(raw.count(b"\n", 0, at) + 1, f"{problem}, and its encoding is not certain", hint)
