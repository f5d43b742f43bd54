"""A trie that is built in pieces against the same trie built at once, byte for byte."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever import disk_arrays
from triever.docids import trie, trie_pieces
from triever.docids.trie import Arrays, Paths, Trie, build
from triever.errors import UsageError

STOP = 9
docids = st.lists(st.integers(0, 8), max_size=5).map(lambda symbols: (*symbols, STOP))
pairs = st.lists(st.tuples(docids, st.integers(0, 99)), max_size=30, unique=True)


def assert_same(found: Arrays, expected: Arrays) -> None:
    for field in fields(Arrays):
        ours, theirs = getattr(found, field.name), getattr(expected, field.name)
        assert ours.dtype == theirs.dtype, field.name
        assert ours.tolist() == theirs.tolist(), field.name


@given(listed=pairs, piece=st.integers(1, 9), block=st.integers(1, 9), scale=st.sampled_from([1, 40, 9000]))
def test_pieces_make_the_same_trie_as_all_at_once(
    listed: list[tuple[tuple[int, ...], int]], piece: int, block: int, scale: int
) -> None:
    """Symbols of one, two and four bytes; the parts of all arrays but the last few numbers are in files."""
    wide = [(tuple(symbol * scale for symbol in docid), document) for docid, document in listed]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PIECE": piece, "BLOCK": block, "SHARE": 8}.items():
            patch.setattr(trie_pieces, name, value)
        patch.setattr(trie, "BLOCK", block)
        patch.setattr(disk_arrays, "GROWN_IN_MEMORY", 16)
        made = Trie.of(wide)
    assert_same(made.parts[0], build(Paths.of(wide)))


def test_a_large_trie_is_made_in_pieces() -> None:
    count, length = 300_000, 4
    chance = np.random.default_rng(0)
    flat = chance.integers(0, 64, count * length).astype(np.uint8)
    paths = Paths(flat, length * np.arange(count + 1), chance.permutation(count))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PIECE": 20_000, "BLOCK": 7_000, "SHARE": 1_000}.items():
            patch.setattr(trie_pieces, name, value)
        patch.setattr(disk_arrays, "GROWN_IN_MEMORY", 10_000)
        grown = trie_pieces.GrowingPaths(dtype=np.uint8)
        for first in range(0, count, 9_000):
            last = min(count, first + 9_000)
            part = flat[length * first : length * last]
            grown.append(Paths(part, length * np.arange(last - first + 1), paths.document[first:last]))
        found = grown.trie()
        assert all(isinstance(array, np.memmap) for array in found.arrays())
    assert_same(found, build(paths))


@pytest.mark.parametrize(
    ("listed", "problem"),
    [([((1,), 0), ((), 1)], "a docid is empty"), ([((1,), 0), ((1, 2), 1)], "is the beginning of another")],
)
def test_docids_that_cannot_be_told_apart_are_refused(
    listed: list[tuple[tuple[int, ...], int]], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trie_pieces, "PIECE", 1)
    with pytest.raises(UsageError, match=problem):
        Trie.of(listed)
