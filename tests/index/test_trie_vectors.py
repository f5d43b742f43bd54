"""Vectors in the order of a trie: whatever is added and deleted, below a prefix lies what the obvious way finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triever import artifact
from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.errors import ArtifactError
from triever.index.trie_vectors import TrieVectors

SIZE = 3


def vector_of(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=SIZE).astype(np.float32)


def states_of(walk: Walk, prefix: tuple[int, ...]) -> list[int]:
    state = walk.root(1)
    for depth, symbol in enumerate(prefix):
        children = walk.children(state, depth)
        state = children.state[0, (children.token[0] == symbol) & children.exists[0]]
    return state[0].tolist()


docids = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12)


@given(docids, docids, st.sets(st.integers(0, 8)), st.integers(0, 3))
def test_below_a_prefix_lies_what_the_obvious_way_finds(old: list, new: list, gone: set, depth: int) -> None:
    entries = [(docid, number) for number, docid in enumerate(dict.fromkeys(old))]
    entries += [((*docid[:2], (docid[2] + 1) % 3), number) for docid, number in entries[:2]]  # in two clusters each
    entries = list(dict.fromkeys(entries))
    numbers = np.unique([number for _, number in entries])
    trie = Trie.of(entries)
    held = TrieVectors.of(trie, numbers, np.stack([vector_of(one) for one in numbers]))
    added = [(docid, 100 + at) for at, docid in enumerate(new)]
    larger = trie.with_added(added)
    more = np.array([number for _, number in added])
    held = held.moved(larger, (more, np.stack([vector_of(one) for one in more])))
    smaller = larger.without(gone)
    held = held.moved(smaller)
    left = [(docid, number) for docid, number in [*entries, *added] if number not in gone]
    for one in (held, held.moved(smaller.compact())):
        walk = Walk(one.trie)
        query = torch.tensor([[1.0, -2.0, 0.5]])
        for prefix in {docid[:depth] for docid, _ in left}:
            found = one.below(walk, query, [[states_of(walk, prefix)]])[0]
            expected = sorted(number for docid, number in left if docid[:depth] == prefix)
            assert sorted(found.numbers.tolist()) == expected
            for number, product in zip(found.numbers.tolist(), found.products.tolist(), strict=True):
                assert product == pytest.approx(float(query[0].numpy() @ vector_of(number)), abs=1e-5)
        rows = np.array(sorted({number for _, number in left}), np.int64)
        assert np.array_equal(one.take(rows), np.array([vector_of(row) for row in rows]).reshape(-1, SIZE))


def test_parts_that_stay_are_not_copied() -> None:
    trie = Trie.of([((0, 1), 0), ((0, 2), 1), ((1, 0), 2)])
    held = TrieVectors.of(trie, np.arange(3), np.eye(3, dtype=np.float32))
    larger = trie.with_added([((1, 1), 3)])
    more = held.moved(larger, (np.array([3]), np.ones((1, 3), np.float32)))
    assert more.parts[0] is held.parts[0]
    assert more.moved(larger.without([0])).parts == more.parts
    assert more.bytes == 4 * 3 * 4


def test_what_is_saved_is_mapped_and_checked(tmp_path: Path) -> None:
    trie = Trie.of([((1,), 0), ((0,), 1)])
    held = TrieVectors.of(trie, np.arange(2), np.eye(2, dtype=np.float16))
    with artifact.writing(tmp_path / "m") as writer:
        trie.write(writer)
        held.write(writer)
        writer.commit("x", {}, {}, "test")
    with artifact.read(tmp_path / "m") as snapshot:
        again = TrieVectors.read(snapshot, Trie.read(snapshot))
        assert isinstance(again.parts[0].array, np.memmap)
        assert again.parts[0].array.tolist() == [[0, 1], [1, 0]], "in the order of the trie"
        with pytest.raises(ArtifactError, match="not those of its 1"):
            TrieVectors.read(snapshot, Trie.of([((1,), 0)]))
