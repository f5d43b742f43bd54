"""Text as token numbers: a tokenizer that travels inside an artifact, and texts tokenised once, ahead.

`TextTokenizer` turns texts into numbers the same way for BERT's, GPT-2's and T5's kind. `Tokens` keeps the
numbers of many texts as two flat arrays, in memory or mapped from disk, and pads any rows of them without a
loop over rows. Knows nothing about models.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from triever.arrays import places
from triever.data import byte_letters
from triever.errors import DataError, UsageError
from triever.files import atomic
from triever.validation import opened_tokenizer, require

CHUNK = 4096
"""Texts that are tokenised together; the tokenizers library spreads them over all cores."""
FLAT, STARTS = "tokens.npy", "starts.npy"
HEADER = 128
"""Bytes before the numbers of an .npy file of one dimension."""


class TextTokenizer:
    """A tokenizer of the tokenizers library, with the numbers that stand before and after every text.

    What a text says is text, even where it looks like a mark such as [SEP] or <|im_end|>; marks are what stands before
    and after, and in a frame that is put around texts.
    """

    def __init__(self, tokenizer: Any, *, pad: int, before: Sequence[int] = (), after: Sequence[int] = ()) -> None:
        tokenizer.no_padding()  # some files ask for both
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self.pad = pad
        self.before, self.after = list(before), list(after)
        # not the number of pieces, as the numbers of some tokenizers have gaps
        self.size = 1 + max([*tokenizer.get_vocab().values(), pad, *before, *after])

    @classmethod
    def of(cls, tokenizer: Any, *, pad: int, end: int | None = None) -> TextTokenizer:
        """A tokenizer as its own rules for one text have it; `end` follows the text where they put nothing there."""
        tokenizer.no_padding()
        tokenizer.no_truncation()
        probe = tokenizer.encode("a")
        inner = [position for position, special in enumerate(probe.special_tokens_mask) if not special]
        first, last = (inner[0], inner[-1] + 1) if inner else (len(probe.ids), len(probe.ids))
        after = probe.ids[last:] or ([end] if end is not None else [])
        return cls(tokenizer, pad=pad, before=probe.ids[:first], after=after)

    @property
    def inner(self) -> Any:
        """The tokenizer of the tokenizers library."""
        return self._tokenizer

    @classmethod
    def from_str(cls, text: str) -> TextTokenizer:
        """The tokenizer that `to_str` wrote."""
        return cls.from_state(json.loads(text))

    @classmethod
    def from_state(cls, state: Any) -> TextTokenizer:
        """The tokenizer that `to_str` wrote, as the JSON value; a ValueError if it is none."""
        require(isinstance(state, dict), "the tokenizer is no JSON object")
        numbers = [state.get("pad"), *_listed(state, "before"), *_listed(state, "after")]
        require(
            all(type(number) is int and number >= 0 for number in numbers), "the tokenizer has numbers that are none"
        )
        inner = opened_tokenizer(state.get("tokenizer"))
        return cls(inner, pad=state["pad"], before=state["before"], after=state["after"])

    def to_str(self) -> str:
        """All of it as JSON."""
        tokenizer = json.loads(self._tokenizer.to_str())
        whole = {"pad": self.pad, "before": self.before, "after": self.after, "tokenizer": tokenizer}
        return json.dumps(whole, ensure_ascii=False)

    def ids(self, texts: Sequence[str], limit: int | None = None, *, special: bool = True) -> list[list[int]]:
        """The numbers of each text, at most so many: a text is cut, what stands before and after it is not."""
        before, after = (self.before, self.after) if special else ([], [])
        added = len(before) + len(after)
        if limit is not None and limit < added:
            raise UsageError(f"limit = {limit} leaves no room for a text", f"set it to more than {added} tokens")
        room = None if limit is None else limit - added
        return [[*before, *encoding.ids[:room], *after] for encoding in self._encoded(list(texts))]

    def framed_ids(self, head: str, texts: Sequence[str], tail: str) -> list[list[int]]:
        """The numbers of texts with words around each of them, in which marks count as such."""
        if not any(map(self._marks.search, texts)):
            return self.mark_ids([f"{head}{text}{tail}" for text in texts])
        begin, end = self._last_mark(head), self._first_mark(tail)
        before, after = self.mark_ids([head[:begin], tail[end:]])
        inner = self.ids([f"{head[begin:]}{text}{tail[:end]}" for text in texts], special=False)
        return [[*before, *ids, *after] for ids in inner]

    def mark_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of words that stand around a text, in which marks count as such."""
        if not any(map(self._marks.search, texts)):
            return self.ids(texts, special=False)
        encoded = self._knowing_marks.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    @functools.cached_property
    def _knowing_marks(self) -> Any:
        """The same tokenizer, for which marks are marks: to switch them in this one would touch what others read."""
        return type(self._tokenizer).from_str(self._tokenizer.to_str())

    @functools.cached_property
    def _marks(self) -> re.Pattern[str]:
        """What finds the marks of the vocabulary in a text, longer ones first; nothing where there are none."""
        marks = [added.content for added in self._tokenizer.get_added_tokens_decoder().values() if added.special]
        return re.compile("|".join(map(re.escape, sorted(marks, key=len, reverse=True))) or r"(?!)")

    def _last_mark(self, text: str) -> int:
        """The place behind the last mark, 0 where there is none."""
        return max((found.end() for found in self._marks.finditer(text)), default=0)

    def _first_mark(self, text: str) -> int:
        """The place of the first mark, the end of the text where there is none."""
        found = self._marks.search(text)
        return found.start() if found else len(text)

    def cut(self, texts: Sequence[str], limit: int) -> list[str]:
        """The texts, each of them cut behind its first so many tokens."""
        kept = []
        for text in texts:
            whole = text.encode("utf-8", "replace").decode("utf-8")  # half a character becomes a question mark
            ends = [end for _, end in self._tokenizer.encode(whole, add_special_tokens=False).offsets]
            kept.append(text if len(ends) <= limit else text[: max(ends[:limit], default=0)])
        return kept

    def _encoded(self, texts: list[str]) -> list[Any]:
        try:
            return self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:  # half a character, as JSON may hold it: no tokenizer takes that
            whole = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
            return self._tokenizer.encode_batch_fast(whole, add_special_tokens=False)

    def text(self, ids: Sequence[int]) -> str:
        """The text of some numbers, without those that stand for none."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def text_in(self, ids: Sequence[int], text: str) -> str | None:
        """How these numbers are written where they first stand in a text, None if they do not stand there.

        A tokenizer may lose capital letters, accents and spaces; the text still has them.
        """
        whole = text.encode("utf-8", "replace").decode("utf-8")  # half a character becomes a question mark
        wanted, encoding = list(ids), self._tokenizer.encode(whole, add_special_tokens=False)
        count = len(wanted)
        for start in range(len(encoding.ids) - count + 1 if count else 0):
            if encoding.ids[start : start + count] == wanted:
                spans = encoding.offsets[start : start + count]
                return text[spans[0][0] : spans[-1][1]].strip()
        return None

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each number as the tokenizer writes it."""
        return [self._tokenizer.id_to_token(number) or "" for number in ids]

    def shown(self, ids: Sequence[int]) -> list[str]:
        """Each number as a person reads it: where tokens stand for bytes, the characters that these make."""
        pieces = self.pieces(ids)
        if not byte_letters.has_bytes(self._tokenizer):
            return pieces
        return [byte_letters.readable(piece) if byte_letters.are_bytes(piece) else piece for piece in pieces]

    def number(self, piece: str) -> int | None:
        """The number of a piece, if there is such a piece."""
        return self._tokenizer.token_to_id(piece)

    @functools.cache  # noqa: B019 - every piece is looked at, and a tokenizer lives as long as its model
    def punctuation(self) -> list[int]:
        """The numbers of pieces that are nothing but punctuation."""
        numbers = range(self.size)
        texts = self._tokenizer.decode_batch([[number] for number in numbers], skip_special_tokens=True)
        return [number for number, text in zip(numbers, texts, strict=True) if _is_punctuation(text)]


def _listed(state: Mapping[str, Any], name: str) -> list[Any]:
    value = state.get(name)
    require(isinstance(value, list), f"the tokenizer has no list {name}")
    return state[name]


def _is_punctuation(text: str) -> bool:
    """
    >>> [_is_punctuation(text) for text in ("?!", " $ ", "a.", "")]
    [True, True, False, False]
    """
    bare = text.strip().removeprefix("##")
    return bool(bare) and all(unicodedata.category(letter)[0] in "PS" and letter != "\ufffd" for letter in bare)


@dataclass(frozen=True, eq=False)
class Tokens:
    """The numbers of many texts: text i is flat[starts[i]:starts[i + 1]]."""

    flat: np.ndarray  # (all tokens,) uint16 where that is enough, else int32
    starts: np.ndarray  # (texts + 1,) int64

    @classmethod
    def of(cls, texts: Iterable[str], tokenizer: TextTokenizer, limit: int, folder: str | Path | None = None) -> Tokens:
        """Tokenise texts, at most so many tokens each, into memory or into two files of a folder.

        With a folder the texts may be a stream, and only their lengths stay in memory.
        """
        dtype = np.dtype(np.uint16 if tokenizer.size <= 2**16 else np.int32)
        chunks = _chunks(texts, tokenizer, limit, dtype)
        if folder is None:
            chunk_list = list(chunks)
            empty = np.empty(0, dtype)
            flat = np.concatenate([empty, *(flat for flat, _ in chunk_list)])
            return cls(flat, _starts([lengths for _, lengths in chunk_list]))
        path = Path(folder)
        lengths = _stream(path / FLAT, chunks, dtype)
        with atomic(path / STARTS) as file:
            np.lib.format.write_array(file, _starts(lengths), allow_pickle=False)
        return cls.open(path)

    @classmethod
    def open(cls, folder: str | Path) -> Tokens:
        """What `of` has written to a folder, mapped."""
        path = Path(folder)
        flat, starts = (_mapped(path / name) for name in (FLAT, STARTS))
        if not len(starts) or starts[-1] != len(flat):
            raise DataError(f"{path} holds tokens of two different runs", "tokenise again")
        return cls(flat, np.asarray(starts))

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]], size: int = 2**16) -> Tokens:
        """Numbers that are there already, below `size`."""
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        flat = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
        return cls(flat.astype(np.uint16 if size <= 2**16 else np.int32), _starts([lengths]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        if not -len(self) <= row < len(self):
            raise IndexError(f"there is no text {row} among {len(self)}")
        row %= len(self)
        return self.flat[self.starts[row] : self.starts[row + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """How many tokens each text has."""
        return np.diff(self.starts)

    def take(self, rows: Any) -> Tokens:
        """Some texts, in the order given, in memory."""
        rows = np.asarray(rows, np.int64)
        starts = _starts([self.starts[rows + 1] - self.starts[rows]])
        return Tokens(self.flat[places(self.starts[rows], np.diff(starts))], starts)

    def joined(self, other: Tokens) -> Tokens:
        """These texts and then the others, in memory."""
        dtype = np.promote_types(self.flat.dtype, other.flat.dtype)
        flat = np.concatenate([self.flat, other.flat]).astype(dtype, copy=False)
        return Tokens(flat, np.concatenate([self.starts, self.starts[-1] + other.starts[1:]]))

    def padded(self, rows: Any, pad: int = 0, limit: int | None = None) -> tuple[Tensor, Tensor]:
        """Texts side by side, filled up on the right: numbers and mask, (rows, longest) each.

        A text of more than `limit` tokens is cut but keeps its last one, which ends every text.
        """
        if limit is not None and limit < 1:
            raise UsageError(f"limit = {limit} leaves nothing of a text", "set it to 1 or more")
        rows = np.asarray(rows, np.int64)
        begin, length = self.starts[rows], self.starts[rows + 1] - self.starts[rows]  # not of all: there are many
        kept = length if limit is None else np.minimum(length, limit)
        columns = np.arange(max(1, kept.max(initial=0)))  # (longest,)
        mask = columns < kept[:, None]
        ids = np.full(mask.shape, pad, np.int64)
        ids[mask] = self.flat[(begin[:, None] + columns)[mask]]
        cut = np.flatnonzero(kept < length)
        ids[cut, kept[cut] - 1] = self.flat[(begin + length)[cut] - 1]
        return torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64))

    def all_padded(self, pad: int = 0) -> tuple[Tensor, Tensor]:
        """All texts side by side."""
        return self.padded(np.arange(len(self)), pad)

    def keep(self, skip: Sequence[int]) -> np.ndarray:
        """For each token of `flat` whether it is none of these numbers, such as those of punctuation."""
        return ~np.isin(self.flat, np.asarray(skip, np.int64))


def framed(lengths: np.ndarray, before: Sequence[int], after: Sequence[int], dtype: Any) -> tuple[Tokens, np.ndarray]:
    """Texts of these lengths that are yet to be filled in, with symbols before and behind each, and where each begins.

    >>> tokens, begin = framed(np.array([2, 0]), [7], [8, 9], np.int64)
    >>> tokens.flat[places(begin, np.array([2, 0]))] = [1, 2]
    >>> [tokens[0].tolist(), tokens[1].tolist()]
    [[7, 1, 2, 8, 9], [7, 8, 9]]
    """
    starts = _starts([lengths + len(before) + len(after)])
    flat = np.empty(starts[-1], dtype)
    for at, symbol in enumerate(before):
        flat[starts[:-1] + at] = symbol
    for back, symbol in enumerate(reversed(after), 1):
        flat[starts[1:] - back] = symbol
    return Tokens(flat, starts), starts[:-1] + len(before)


def by_length(lengths: Any, rows: int = 1024, tokens: int = 65_536) -> list[np.ndarray]:
    """Batches of rows of nearly equal length, the longest first: every row is in exactly one.

    A batch has at most so many rows, and at most so many tokens when it is padded; a row that is longer than
    that is a batch of its own.

    >>> [batch.tolist() for batch in by_length([2, 9, 3, 2], tokens=6)]
    [[1], [2, 0], [3]]
    """
    if rows < 1 or tokens < 1:
        raise UsageError(f"batches of {rows} rows and {tokens} tokens hold no text", "set both to 1 or more")
    lengths = np.maximum(np.asarray(lengths, np.int64), 1)
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        size = min(rows, max(1, tokens // int(lengths[order[start]])))
        batches.append(order[start : start + size])
        start += size
    return batches


def in_pieces(lengths: Any, limit: int, worth: float = 0.1) -> list[np.ndarray]:
    """Rows in at most so many pieces of similar lengths, the longest first, each to be padded by itself.

    Another piece is made where it saves more than a share of what there is to compute. Every row is in exactly one.

    >>> [piece.tolist() for piece in in_pieces([2, 9, 3, 2, 9], 2)]
    [[1, 4], [2, 0, 3]]
    """
    lengths = np.maximum(np.asarray(lengths, np.int64), 1)
    order = np.argsort(-lengths, kind="stable")
    falling = lengths[order]
    minimum = worth * len(order) * falling[:1].sum()
    cuts = [0, len(order)]
    while len(cuts) <= limit:
        saved, cut = max(_best_cut(falling, low, high) for low, high in pairwise(cuts))
        if saved <= minimum:
            break
        cuts = sorted([*cuts, cut])
    return [order[low:high] for low, high in pairwise(cuts)]


def _best_cut(falling: np.ndarray, low: int, high: int) -> tuple[int, int]:
    """How many numbers are saved if rows low to high are cut in two where that saves most, and where that is."""
    saved = (falling[low] - falling[low:high]) * np.arange(high - low, 0, -1) if high > low else np.zeros(1, np.int64)
    best = int(saved.argmax())
    return int(saved[best]), low + best


def _chunks(
    texts: Iterable[str], tokenizer: TextTokenizer, limit: int, dtype: np.dtype
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For some texts at a time, their tokens one after the other and their lengths."""
    stream = iter(texts)
    while chunk := list(islice(stream, CHUNK)):
        token_ids = tokenizer.ids(chunk, limit)
        lengths = np.fromiter((len(ids) for ids in token_ids), np.int64, len(token_ids))
        yield np.fromiter(chain.from_iterable(token_ids), dtype, int(lengths.sum())), lengths


def _stream(path: Path, chunks: Iterable[tuple[np.ndarray, np.ndarray]], dtype: np.dtype) -> list[np.ndarray]:
    """Write an array whose length is known only at its end, and return the lengths of its texts."""
    lengths, total = [], 0
    with atomic(path) as file:
        head = _header(file, 0, dtype)
        for flat, counts in chunks:
            file.write(flat.tobytes())
            lengths.append(counts)
            total += len(flat)
        file.seek(0)
        # NumPy leaves room in a header for any length, so the second one is as long as the first.
        assert _header(file, total, dtype) == head
    return lengths


def _header(file: BinaryIO, total: int, dtype: np.dtype) -> int:
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": (total,)})
    return file.tell()


def _starts(lengths: Sequence[np.ndarray]) -> np.ndarray:
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))


def _mapped(path: Path) -> np.ndarray:
    try:
        # a file as short as its header holds nothing, which cannot be mapped
        return np.load(path, mmap_mode="r" if path.stat().st_size > HEADER else None, allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing", "tokenise again") from error
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} is not a whole array: {error}", "tokenise again") from error
