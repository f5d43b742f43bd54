"""Where words begin and end by the marks of tokenizers, held to the letters that tokens stand for."""

from __future__ import annotations

import functools
import unicodedata

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from triever.data.words import is_unspaced
from triever.models.backbones import learn_tokenizer
from triever.models.tokens import TextTokenizer
from triever.models.word_edges import WordEdges

LETTERS = "abcأر東京は,.'(+$é5\n "
LEARNED = ["abc bca cab", "ab abc 5 a5 55", "ارأرأ 東京は", "a,b. (c)'b $5 é5 + a+", *LETTERS]


@functools.cache
def tokenizer(kind: str) -> TextTokenizer:
    if kind == "bytes":
        return learn_tokenizer(LEARNED, 320)
    if kind == "wordpiece":
        inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        inner.normalizer = normalizers.BertNormalizer()
        inner.pre_tokenizer, inner.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        trainer: object = trainers.WordPieceTrainer(vocab_size=60, special_tokens=["[UNK]"], show_progress=False)
    else:
        inner = Tokenizer(models.BPE(unk_token="<unk>"))
        inner.pre_tokenizer, inner.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        trainer = trainers.BpeTrainer(vocab_size=60, special_tokens=["<unk>"], show_progress=False)
    inner.train_from_iterator([*LEARNED, " ".join(LETTERS), LETTERS], trainer)
    return TextTokenizer(inner, pad=0)


KINDS = ("wordpiece", "sentencepiece", "bytes")


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(LETTERS, max_size=24))
@example("أرأ abc, abb")
@example("東京は ab $5 (a) ab'c")
def test_words_begin_and_end_where_letters_say_so(kind: str, text: str) -> None:
    """The oracle: the letters beside the edges of tokens, by the offsets that the tokenizer gives."""
    encoding = tokenizer(kind).inner.encode(text, add_special_tokens=False)
    if not encoding.ids:
        return
    ids = torch.tensor([encoding.ids])
    edges = WordEdges.of(ids, torch.ones_like(ids, dtype=torch.bool), tokenizer(kind))
    spans = [_bare(text, *span, piece) for span, piece in zip(encoding.offsets, encoding.tokens, strict=True)]
    count = len(spans)
    begins = [number == 0 or _is_edge(text, spans[number - 1], spans[number]) for number in range(count)] + [True]
    if kind == "wordpiece":  # which says it of every token
        begins = [not piece.startswith("##") for piece in encoding.tokens] + [True]
    named = [_is_name(text[start:end].lstrip("$")[:1]) for start, end in spans] + [False]
    signs = [not text[start:end].strip("$") for start, end in spans]
    opens = [signs[at] and begins[at + 1] and named[at + 1] for at in range(count)]
    assert edges.begin[0].tolist() == [
        begin and (name or opening) for begin, name, opening in zip(begins, named, opens, strict=False)
    ]
    assert edges.end[0].tolist() == [begins[at + 1] and not opens[at] for at in range(count)]


def _bare(text: str, start: int, end: int, piece: str) -> tuple[int, int]:
    """The span of a piece without spaces; one that is nothing but a space may have the offsets of what is behind it."""
    whole = "" if piece in ("Ġ", "▁") else text[start:end]
    return start + len(whole) - len(whole.lstrip()), start + len(whole.rstrip()) if whole.strip() else start


def _is_name(letter: str) -> bool:
    return bool(letter) and unicodedata.category(letter)[0] in "LN"


def _is_edge(text: str, first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Whether a word or a mark begins between two tokens."""
    if first == second and first[0] < first[1]:  # parts of one character
        return False
    (start, end), at = first, second[0]
    before, behind = text[end - 1 : end] if start < end else " ", text[at : at + 1] if at < second[1] else " "
    return end < at or not (_joins(before) and _joins(behind))


def _joins(letter: str) -> bool:
    return _is_name(letter) and not is_unspaced(letter)


def test_what_is_not_of_a_document_is_no_neighbour() -> None:
    made = tokenizer("wordpiece")
    ids = torch.tensor([made.ids(["abc bca cab"])[0]])
    pieces = made.pieces(ids[0].tolist())
    allowed = torch.tensor([[place != 1 for place in range(len(pieces))]])
    edges = WordEdges.of(ids, allowed, made)
    assert edges.end[0, 0], "the document ends there"
    assert not edges.begin[0, 1]
    assert edges.begin[0, 2], "the document begins there"
