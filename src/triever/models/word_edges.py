"""Where words begin and end among tokens, as a tokenizer's own marks say: ## before a piece, ▁ or Ġ before a word.

Scripts without spaces have no such marks, so each of their letters counts as a word, as BERT's tokenizers have it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from triever.data.byte_letters import BYTES
from triever.data.words import is_unspaced
from triever.models.tokens import TextTokenizer

KEPT = 4
"""Tokenizers of which it is kept what their tokens say."""
GOES_ON, DEPENDS, BEGINS = range(3)
"""Whether a token begins a word: never, only behind what is no letter of a word, or always."""
PART = "\ufffd"
"""What decoders write for a part of a character."""
UNSPACED_BYTES = range(0xE3, 0xEE)
"""The first bytes of nearly all letters of the scripts without spaces, in UTF-8."""
MARK_BYTES = (0xC2, 0xE2)
"""The first bytes of marks and signs, in UTF-8."""
LATER_BYTES = range(0x80, 0xC0)
"""The bytes of a character behind its first, in UTF-8; there are at most three of them."""


@dataclass(frozen=True)
class WordMarks:
    """What each token of a vocabulary says of words."""

    begins: np.ndarray  # (size,) GOES_ON, DEPENDS or BEGINS
    closes: np.ndarray  # (size,) bool: it ends with a space, a mark or a letter that is a word of its own
    names: np.ndarray  # (size,) bool: it begins with a letter or a digit
    opens: np.ndarray  # (size,) bool: a space, or a currency's sign, which belong to the word behind them
    parts: np.ndarray  # (size,) bool: later bytes of a character and nothing else

    def of(self, ids: Tensor) -> tuple[Tensor, ...]:
        """All of it for some tokens."""
        parts = self.begins, self.closes, self.names, self.opens, self.parts
        return tuple(torch.from_numpy(part).to(ids.device)[ids] for part in parts)


@dataclass(frozen=True)
class WordEdges:
    """Where an answer may begin among tokens, and where it may end; (rows, length) each."""

    begin: Tensor
    end: Tensor

    @classmethod
    def of(cls, ids: Tensor, allowed: Tensor, tokenizer: TextTokenizer) -> WordEdges:
        """The edges among tokens (rows, length), of which only those are looked at that are allowed.

        An answer begins with a word, and no mark; it ends where a word or a mark begins, or the text ends.
        """
        begins, closes, names, opens, parts = marks_of(tokenizer).of(ids.masked_fill(~allowed, 0))
        for _ in range(3):  # the last byte of a character says nothing of it, its first one does
            closes = torch.where(parts, _before(closes), closes)
        edge = ~_before(allowed) | (begins == BEGINS) | ((begins == DEPENDS) & _before(closes))
        follows, edge_behind = _behind(allowed), _behind(edge)
        opening = opens & follows & edge_behind & _behind(names)
        return cls(allowed & edge & (names | opening), allowed & (~follows | edge_behind) & ~opening)


def _before(flags: Tensor) -> Tensor:
    """What flags (rows, length) say of the token before each."""
    return functional.pad(flags, (1, 0))[:, :-1]


def _behind(flags: Tensor) -> Tensor:
    """What flags (rows, length) say of the token behind each."""
    return functional.pad(flags, (0, 1))[:, 1:]


@lru_cache(KEPT)
def marks_of(tokenizer: TextTokenizer) -> WordMarks:
    """What each token of a tokenizer says of words."""
    anchor = tokenizer.inner.encode("a", add_special_tokens=False).ids
    before = len(tokenizer.inner.decode(anchor))
    behind = [[*anchor, number] for number in range(tokenizer.size)]
    texts = [text[before:] for text in tokenizer.inner.decode_batch(behind, skip_special_tokens=True)]
    rows = [_mark(text, piece) for text, piece in zip(texts, tokenizer.pieces(range(tokenizer.size)), strict=True)]
    begins, closes, names, opens, parts = (np.array(column) for column in zip(*rows, strict=True))
    return WordMarks(begins.astype(np.int8), closes, names, opens, parts)


def _mark(text: str, piece: str) -> tuple[int, bool, bool, bool, bool]:
    """What a token says, which is written so behind a word: a row of `WordMarks`.

    >>> _mark(" bell", "bell"), _mark("ll", "##ll"), _mark("ll", "ll")
    ((2, False, True, False, False), (0, False, True, False, False), (1, False, True, False, False))
    >>> _mark(",", ","), _mark(" $", "$"), _mark(" ", "Ġ")
    ((2, True, False, False, False), (2, True, False, True, False), (2, True, False, True, False))
    """
    bare = text.strip()
    if not bare:  # a space, or a special token such as that of an unknown word
        return BEGINS, True, not text, bool(text), False
    first, last, byte = bare[0], bare[-1], _first_byte(piece) if bare[0] == PART else -1
    alone = byte in UNSPACED_BYTES or byte in MARK_BYTES or is_unspaced(first) or _is_mark(first)
    later = byte in LATER_BYTES
    if later or unicodedata.category(first)[0] == "M" or (piece.startswith("##") and text == piece[2:]):
        begins = GOES_ON
    else:
        begins = BEGINS if alone or text[0].isspace() else DEPENDS
    closes = text[-1].isspace() or is_unspaced(last) or _is_mark(last) or (last == PART and alone)
    opens = all(map(_is_currency, bare))
    amount = next((letter for letter in bare if not _is_currency(letter)), first)  # $5 begins as 5 does
    names = byte not in MARK_BYTES and not _is_mark(amount)
    return begins, closes, names, opens, later and not bare.strip(PART)


def _is_mark(letter: str) -> bool:
    return letter != PART and unicodedata.category(letter)[0] in "PS"


def _is_currency(letter: str) -> bool:
    return unicodedata.category(letter) == "Sc"


def _first_byte(piece: str) -> int:
    """The first byte of a piece that stands for bytes, as GPT-2 or as SentencePiece writes them; -1: it is unknown.

    >>> [f"{_first_byte(piece):x}" for piece in ("Ġæ", "Ŀ", "<0xE6>")]
    ['e6', '9d', 'e6']
    """
    if written := re.fullmatch("<0x([0-9A-F]{2})>", piece):
        return int(written[1], 16)
    return BYTES.get(piece.lstrip("Ġ")[:1], -1)
