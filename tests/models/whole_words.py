"""The slow way to say where answers may begin and end: pieces of ASCII texts are looked at one by one."""

from __future__ import annotations

from collections.abc import Sequence

from triever.models.tokens import TextTokenizer


def texts_of(tokenizer: TextTokenizer, ids: Sequence[int]) -> list[str]:
    """What each token of a tokenizer by pairs of bytes stands for."""
    return [piece.replace("Ġ", " ").replace("Ċ", "\n") for piece in tokenizer.pieces(ids)]


def may_begin(pieces: Sequence[str], at: int) -> bool:
    """Whether an answer may begin with a piece of a text."""
    if opens(pieces, at):
        return True
    goes_on = at > 0 and pieces[at - 1][-1].isalnum() and pieces[at][0].isalnum()
    return pieces[at].strip()[:1].isalnum() and not goes_on


def may_end(pieces: Sequence[str], at: int) -> bool:
    """Whether an answer may end with a piece of a text."""
    if at == len(pieces) - 1:
        return True
    goes_on = pieces[at][-1].isalnum() and pieces[at + 1][0].isalnum()
    return not goes_on and not opens(pieces, at)


def opens(pieces: Sequence[str], at: int) -> bool:
    """Whether a piece is a space or a currency's sign that belongs to the word behind it."""
    return pieces[at].strip() in ("", "$") and at + 1 < len(pieces) and pieces[at + 1].strip()[:1].isalnum()


def followers(tokens: Sequence[int], texts: Sequence[Sequence[int]], tokenizer: TextTokenizer) -> set[int | None]:
    """What may follow a beginning of an answer that stands in texts; None: it may be all."""
    may: set[int | None] = set()
    for text in texts:
        pieces = texts_of(tokenizer, text)
        for at in range(len(text)):
            until = at + len(tokens)
            if [*text[at:until]] == [*tokens] and may_begin(pieces, at):
                may |= {text[until]} if until < len(text) else set()
                may |= {None} if tokens and may_end(pieces, until - 1) else set()
    return may or {None}
