"""Tokens against the obvious way: lists of lists, padded by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triever.errors import DataError, UsageError
from triever.models.backbones import learn_tokenizer
from triever.models.tokens import TextTokenizer, Tokens, by_length, in_pieces

TEXTS = ["The quick brown fox", "", "東京 is the capital of Japan", "jumps over the lazy dog", "a"] * 3
ragged = st.lists(st.lists(st.integers(0, 40_000), max_size=7), max_size=9)


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return learn_tokenizer(TEXTS, 400)


def rows_of(tokens: Tokens) -> list[list[int]]:
    return [tokens[row].tolist() for row in range(len(tokens))]


def test_tokens_are_the_tokenizer_s(tokenizer: TextTokenizer) -> None:
    tokens = Tokens.of(TEXTS, tokenizer, 6)
    assert rows_of(tokens) == tokenizer.ids(TEXTS, 6)
    assert tokens.flat.dtype == np.uint16
    assert tokens.lengths.tolist() == [len(ids) for ids in tokenizer.ids(TEXTS, 6)]


def test_a_folder_holds_the_same_as_memory(
    tokenizer: TextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triever.models.tokens.CHUNK", 4)  # so that there are several
    stream: Iterator[str] = iter(TEXTS)
    tokens = Tokens.of(stream, tokenizer, 6, tmp_path)
    assert isinstance(tokens.flat, np.memmap)
    assert rows_of(tokens) == rows_of(Tokens.open(tmp_path)) == rows_of(Tokens.of(TEXTS, tokenizer, 6))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["starts.npy", "tokens.npy"]


@pytest.mark.parametrize("kept", [True, False])
def test_no_texts_are_no_tokens(tokenizer: TextTokenizer, tmp_path: Path, kept: bool) -> None:
    tokens = Tokens.of([], tokenizer, 6, tmp_path if kept else None)
    assert len(tokens) == 0
    assert tokens.take([]).lengths.tolist() == []
    assert tokens.padded([])[0].shape == (0, 1)
    assert by_length(tokens.lengths) == []


def test_folders_that_are_not_whole_are_refused(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"tokens.npy is missing"):
        Tokens.open(tmp_path)
    Tokens.of(TEXTS, tokenizer, 6, tmp_path)
    np.save(tmp_path / "starts.npy", np.arange(40))
    with pytest.raises(DataError, match="two different runs"):
        Tokens.open(tmp_path)
    (tmp_path / "starts.npy").write_bytes((tmp_path / "tokens.npy").read_bytes()[:140])
    with pytest.raises(DataError, match=r"starts.npy is not a whole array"):
        Tokens.open(tmp_path)


def test_a_stream_that_breaks_leaves_the_old_tokens(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    Tokens.of(["one"], tokenizer, 6, tmp_path)

    def broken() -> Iterator[str]:
        yield "two"
        raise KeyError("gone")

    with pytest.raises(KeyError):
        Tokens.of(broken(), tokenizer, 6, tmp_path)
    assert rows_of(Tokens.open(tmp_path)) == tokenizer.ids(["one"], 6)


@given(rows=ragged, data=st.data())
def test_taking_and_joining_is_that_of_lists(rows: list[list[int]], data: st.DataObject) -> None:
    tokens = Tokens.from_lists(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8)) if rows else []
    assert rows_of(tokens.take(chosen)) == [rows[row] for row in chosen]
    assert rows_of(tokens.joined(tokens.take(chosen))) == [*rows, *(rows[row] for row in chosen)]


def test_wide_and_narrow_join_to_wide() -> None:
    joined = Tokens.from_lists([[1, 2]]).joined(Tokens.from_lists([[70_000], []], size=100_000))
    assert rows_of(joined) == [[1, 2], [70_000], []]
    assert joined.flat.dtype == np.int32


@given(rows=ragged, most=st.none() | st.integers(1, 9), pad=st.integers(0, 5), data=st.data())
def test_padding_is_that_of_lists(rows: list[list[int]], most: int | None, pad: int, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8)) if rows else []
    ids, mask = Tokens.from_lists(rows).padded(chosen, pad, most)
    cut = [
        row if most is None or len(row) <= most else [*row[: most - 1], row[-1]] for row in (rows[i] for i in chosen)
    ]
    width = max([1, *map(len, cut)])
    assert ids.dtype == mask.dtype == torch.int64
    assert ids.tolist() == [row + [pad] * (width - len(row)) for row in cut]
    assert mask.tolist() == [[1] * len(row) + [0] * (width - len(row)) for row in cut]


def test_a_row_that_is_not_there() -> None:
    tokens = Tokens.from_lists([[1], [2]])
    assert tokens[-1].tolist() == [2]
    with pytest.raises(IndexError):
        tokens[2]
    with pytest.raises(UsageError, match="limit = 0"):
        tokens.padded([0], limit=0)


@given(lengths=st.lists(st.integers(0, 600), max_size=200), rows=st.integers(1, 40), tokens=st.integers(1, 3000))
def test_batches_hold_every_row_once_within_their_bounds(lengths: list[int], rows: int, tokens: int) -> None:
    batches = by_length(lengths, rows, tokens)
    assert sorted(row for batch in batches for row in batch.tolist()) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[row] for row in batch)
        assert 1 <= len(batch) <= rows
        assert len(batch) == 1 or len(batch) * longest <= tokens
    ordered = [lengths[row] for batch in batches for row in batch]
    assert [max(length, 1) for length in ordered] == sorted((max(length, 1) for length in lengths), reverse=True)


@given(st.lists(st.integers(0, 12), max_size=9), st.integers(1, 4))
def test_pieces_hold_every_row_once_and_save_what_they_can(lengths: list[int], most: int) -> None:
    pieces = in_pieces(lengths, most, worth=0)
    assert sorted(row for piece in pieces for row in piece.tolist()) == list(range(len(lengths)))
    assert 1 <= len(pieces) <= most
    sizes = [max(1, length) for length in lengths]
    ordered = [sizes[row] for piece in pieces for row in piece]
    assert ordered == sorted(sizes, reverse=True)

    def cost(parts: list[list[int]]) -> int:
        return sum(len(part) * max(part) for part in parts if part)

    found = cost([[sizes[row] for row in piece] for piece in pieces])
    assert found <= cost([sizes])
    if most == 2:  # then cutting where it saves most is best, and with more of them it is near
        assert found == min((cost([ordered[:at], ordered[at:]]) for at in range(len(sizes) + 1)), default=0)


def test_pieces_that_save_little_are_not_made() -> None:
    assert len(in_pieces([20] * 9 + [19], 4)) == 1
    assert len(in_pieces([20] * 5 + [10] * 5, 4)) == 2


def test_batches_of_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="hold no text"):
        by_length([1], rows=0)


def test_a_cut_text_keeps_what_ends_it(tokenizer: TextTokenizer) -> None:
    whole, cut = tokenizer.ids([TEXTS[0]])[0], tokenizer.ids([TEXTS[0]], 4)[0]
    assert cut == [*whole[:3], whole[-1]]
    assert tokenizer.ids([TEXTS[0]], special=False)[0] == whole[1:-1]
    assert tokenizer.ids([""], 2) == [[*tokenizer.before, *tokenizer.after]]
    with pytest.raises(UsageError, match="set it to more than 2"):
        tokenizer.ids(["a"], 1)


def test_a_very_long_text(tokenizer: TextTokenizer) -> None:
    for text in ("word " * 20_000, "x" * 100_000, "東" * 100_000):
        assert [len(ids) for ids in tokenizer.ids([text], 512)] == [512]


def test_half_a_character_is_replaced(tokenizer: TextTokenizer) -> None:
    broken, fine = tokenizer.ids(["a \ud800 b", "fine"], 9)
    assert broken == tokenizer.ids(["a ? b"], 9)[0]
    assert fine == tokenizer.ids(["fine"], 9)[0]


def test_a_tokenizer_comes_back_from_its_text(tokenizer: TextTokenizer) -> None:
    again = TextTokenizer.from_str(tokenizer.to_str())
    assert again.ids(TEXTS, 7) == tokenizer.ids(TEXTS, 7)
    assert (again.pad, again.before, again.after, again.size) == (
        tokenizer.pad,
        tokenizer.before,
        tokenizer.after,
        tokenizer.size,
    )


def test_punctuation_can_be_left_out(tokenizer: TextTokenizer) -> None:
    tokens = Tokens.of(["what, the fox?!", "ok"], tokenizer, 20)
    keep = tokens.keep(tokenizer.punctuation())
    dropped = tokenizer.pieces(tokens.flat[~keep].tolist())
    assert dropped == [",", "?", "!"]


def test_numbers_and_pieces(tokenizer: TextTokenizer) -> None:
    ids = tokenizer.ids(["the fox"])[0]
    assert [tokenizer.number(piece) for piece in tokenizer.pieces(ids)] == ids
    assert tokenizer.text(ids).strip() == "the fox"
    assert tokenizer.number("no such piece") is None


def test_numbers_are_written_as_in_a_text_that_has_them(tokenizer: TextTokenizer) -> None:
    text = "Over the LAZY dog\ud800 jumps the Quick  brown fox, 東京"
    for words in ("lazy dog", "quick  brown", "東京", "over the lazy"):
        ids = tokenizer.ids([words], special=False)[0]
        written = tokenizer.text_in(ids, text)
        assert written is not None
        assert written.lower() == words
        assert written in text
    assert tokenizer.text_in(tokenizer.ids(["lazy fox"], special=False)[0], text) is None
    assert tokenizer.text_in([], text) is None
    assert tokenizer.text_in(tokenizer.ids(["fox"], special=False)[0], "") is None


def test_a_text_that_looks_like_a_mark_is_text(tokenizer: TextTokenizer) -> None:
    marks = {tokenizer.number(mark) for mark in ("[CLS]", "[SEP]", "[MASK]", "[PAD]")}
    assert None not in marks
    (ids,) = tokenizer.ids(["what is [SEP] in [CLS] [MASK][PAD]?"], special=False)
    assert not marks & {*ids}
    assert tokenizer.ids(["[SEP]"]) != tokenizer.ids([""])
    assert tokenizer.mark_ids(["[SEP] fox"]) == [[tokenizer.number("[SEP]"), *tokenizer.ids(["fox"], special=False)[0]]]
    again = TextTokenizer.from_str(tokenizer.to_str())
    assert again.ids(["the [SEP]"]) == tokenizer.ids(["the [SEP]"])
