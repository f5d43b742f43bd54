"""Tokens that stand for bytes, as GPT-2 writes them: a letter for each byte, which nobody can read beyond ASCII."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def _byte_letters() -> dict[str, int]:
    """The letter that GPT-2 writes for each byte: its own where that is to be seen, else one from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + at): byte for at, byte in enumerate(others)}


BYTES = _byte_letters()
LETTERS = {byte: letter for letter, byte in BYTES.items()}
BLANKS = "".join(letter for letter, byte in BYTES.items() if byte < 128 <= ord(letter))
"""What stands for spaces and all else in ASCII that cannot be seen: Ġ, Ċ and others. It is shown as it is."""


def has_bytes(tokenizer: Tokenizer) -> bool:
    """Whether the tokens of a tokenizer stand for bytes."""
    return "ByteLevel" in repr(tokenizer.decoder)


def are_bytes(token: str) -> bool:
    """Whether one can be read so; those that were added, such as one that ends a text, stand for themselves."""
    return BYTES.keys() >= set(token)


def readable(token: str) -> str:
    r"""A token with the characters that its bytes stand for; bytes of a part of a character are shown as numbers.

    >>> [readable(token) for token in ("ĠLondon", "æľŃå¹Į", "ĠæľŃå", "ÄħÄĩ")]
    ['ĠLondon', '札幌', 'Ġ札\\xe5', 'ąć']
    """
    return re.sub(f"[^{BLANKS}]+", lambda run: _characters(run[0]), token)


def exact(token: str) -> str:
    r"""The same so that `token_of` finds the token again: what could be read otherwise is a number too.

    >>> [exact(token) for token in ("ĠLondon", "ÄħÄĩ")]
    ['ĠLondon', '\\u0105\\u0107']
    """
    return re.sub(f"[^{BLANKS}]+", lambda run: _exact_characters(run[0]), token)


def _exact_characters(letters: str) -> str:
    text = _characters(letters.replace("\\", r"\\"))
    return re.sub(f"[{BLANKS}]", lambda hit: rf"\u{ord(hit[0]):04x}", text)


def _characters(letters: str) -> str:
    return bytes(BYTES[letter] for letter in letters).decode("utf-8", "backslashreplace")


def token_of(text: str) -> str:
    r"""The token that is shown so.

    >>> [token_of(text) for text in ("ĠLondon", "札幌", "Ġ札\\xe5")]
    ['ĠLondon', 'æľŃå¹Į', 'ĠæľŃå']
    """
    return re.sub(rf"\\\\|\\x([0-9a-f]{{2}})|\\u([0-9a-f]{{4}})|[^{BLANKS}]", _as_letters, text)


def _as_letters(hit: re.Match[str]) -> str:
    byte, character = hit.groups()
    if byte:
        return LETTERS[int(byte, 16)]
    shown = chr(int(character, 16)) if character else hit[0][-1]
    return "".join(LETTERS[byte] for byte in shown.encode("utf-8", "replace"))
