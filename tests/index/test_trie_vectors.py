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
from triever.index import trie_vectors
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


@pytest.mark.long
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
            [found] = one.below(walk, query, [[states_of(walk, prefix)]])
            expected = sorted(number for docid, number in left if docid[:depth] == prefix)
            assert sorted(found.numbers.tolist()) == expected
            for number, product in zip(found.numbers.tolist(), found.products.tolist(), strict=True):
                assert product == pytest.approx(float(query[0].numpy() @ vector_of(number)), abs=1e-5)
            for most in (1, 2):
                assert_cut(one, walk, query, prefix, most)
        rows = np.array(sorted({number for _, number in left}), np.int64)
        assert np.array_equal(one.take(rows), np.array([vector_of(row) for row in rows]).reshape(-1, SIZE))


def assert_cut(one: TrieVectors, walk: Walk, query: torch.Tensor, prefix: tuple[int, ...], most: int) -> None:
    """Of each part of the trie the greatest products are there, and all of documents with several docids if wanted."""
    state = states_of(walk, prefix)
    [whole], [cut] = one.below(walk, query, [[state]]), one.below(walk, query, [[state]], most)
    products = dict(zip(whole.entries.tolist(), whole.products.tolist(), strict=True))
    for entries in np.split(np.arange(one._first[-1]), one._first[1:-1]):
        there = sorted((products[entry] for entry in entries.tolist() if entry in products), reverse=True)
        kept = [line for line, entry in enumerate(cut.entries.tolist()) if entry in set(entries.tolist())]
        assert sorted(cut.products[kept].tolist(), reverse=True) == there[:most]
        assert cut.last[kept].any() == (len(there) > most)
        assert all(cut.products[line] == min(cut.products[kept]) for line in kept if cut.last[line])
    [more] = one.below(walk, query, [[state]], most, one.several)
    shared = {entry for entry in products if one.several[entry]}
    assert shared <= set(more.entries.tolist()) <= set(products)
    assert not any(one.several[entry] for entry in more.entries[more.last].tolist()), "they are none of the last"
    assert len(set(more.entries.tolist())) == len(more.entries)


@given(docids, st.sets(st.integers(0, 8)))
def test_documents_with_several_docids_are_known(entries: list, gone: set) -> None:
    listed = list(dict.fromkeys((docid, number % 4) for number, docid in enumerate(entries)))
    numbers = np.unique([number for _, number in listed])
    trie = Trie.of(listed)
    held = TrieVectors.of(trie, numbers, np.stack([vector_of(one) for one in numbers])).moved(trie.without(gone))
    documents = np.concatenate([part.document for part in held.trie.parts])
    masks = zip(held.trie.parts, held.trie.alive, strict=True)
    alive = np.concatenate([np.ones(part.entries, bool) if mask is None else mask for part, mask in masks])
    living = documents[alive].tolist()
    for entry in np.flatnonzero(alive):
        assert held.several[entry] == (living.count(documents[entry]) > 1)


@pytest.mark.parametrize(("bound", "most"), [("LINES", None), ("CHUNK", 3)])
def test_no_more_is_held_at_once_than_it_should_be(
    bound: str, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = np.random.default_rng(0)
    trie = Trie.of([((int(chance.integers(3)), number), number) for number in range(40)])
    held = TrieVectors.of(trie, np.arange(40), chance.normal(size=(40, SIZE)).astype(np.float32))
    walk, queries = Walk(trie), torch.from_numpy(chance.normal(size=(9, SIZE)).astype(np.float32))
    every = [[states_of(walk, ())], [states_of(walk, (0,)), states_of(walk, (2,))], [states_of(walk, (1,))]] * 3
    together = [*held.below(walk, queries, every, most)]
    lines = [len(one.numbers) for one in held.below(walk, queries, every)]
    groups, whole = [], TrieVectors._together

    def spied(self: TrieVectors, some: torch.Tensor, *rest: object) -> list:
        begun = sum(map(len, groups))
        groups.append(lines[begun : begun + len(some)])
        return whole(self, some, *rest)  # ty: ignore[invalid-argument-type]

    monkeypatch.setattr(TrieVectors, "_together", spied)
    monkeypatch.setattr(trie_vectors, bound, 50)
    for one, other in zip(held.below(walk, queries, every, most), together, strict=True):
        assert one.numbers.tolist() == other.numbers.tolist()
        assert one.products.tolist() == pytest.approx(other.products.tolist(), abs=1e-6)
        assert one.places.tolist() == other.places.tolist()
    assert sum(map(len, groups)) == len(every)
    assert all(len(group) == 1 or sum(group) <= 50 for group in groups)
    assert max(map(len, groups)) > 1


def slices_compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many vectors each slice has that is looked at from now on."""
    sizes: list[int] = []
    whole = TrieVectors._slice

    def spied(self: TrieVectors, at: int, span: slice, *rest: object) -> object:
        sizes.append(span.stop - span.start)
        return whole(self, at, span, *rest)  # ty: ignore[invalid-argument-type]

    monkeypatch.setattr(TrieVectors, "_slice", spied)
    return sizes


@pytest.mark.parametrize("gone", [set(), {1, 2, 30}])
@pytest.mark.parametrize("most", [None, 1, 3, 100])
def test_a_slice_that_is_too_large_is_looked_at_in_blocks(
    gone: set, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = np.random.default_rng(0)
    trie = Trie.of([((int(chance.integers(3)), number), number) for number in range(40)]).without(gone)
    held = TrieVectors.of(trie, np.arange(40), chance.normal(size=(40, SIZE)).astype(np.float32))
    walk, queries = Walk(trie), torch.from_numpy(chance.normal(size=(2, SIZE)).astype(np.float32))
    states = [[states_of(walk, ())], [states_of(walk, (0,)), states_of(walk, (2,))]]
    whole = [*held.below(walk, queries, states)]
    monkeypatch.setattr(trie_vectors, "BLOCK", 7)
    compared = slices_compared(monkeypatch)
    for cut, every in zip(held.below(walk, queries, states, most), whole, strict=True):
        products = dict(zip(every.numbers.tolist(), every.products.tolist(), strict=True))
        found = dict(zip(cut.numbers.tolist(), cut.products.tolist(), strict=True))
        assert found == pytest.approx({number: products[number] for number in found}, abs=1e-6)
        best = sorted(products, key=lambda number: -products[number])[:most]
        assert set(best) <= set(found)
        left = products.keys() - found.keys()
        assert bool(left) == bool(cut.last.any())
        assert all(products[number] <= cut.products[cut.last].max() + 1e-6 for number in left)
    assert max(compared) == 7


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
        again = TrieVectors.read(snapshot, Trie.read(snapshot, 2, np.arange(2)))
        assert isinstance(again.parts[0].array, np.memmap)
        assert again.parts[0].array.tolist() == [[0, 1], [1, 0]], "in the order of the trie"
        with pytest.raises(ValueError, match=r"the shape \(2, 2\), not \(1, any\)"):
            TrieVectors.read(snapshot, Trie.of([((1,), 0)]))
