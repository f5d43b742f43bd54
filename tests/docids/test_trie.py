"""The trie against a plain dict of prefixes, on random sets of docids and random changes to them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triever import artifact
from triever import changes as changes_module
from triever.docids.trie import Paths, Trie, TrieShape
from triever.docids.walk import Walk
from triever.errors import UsageError
from triever.memory_parts import computed, counted

Pair = tuple[tuple[int, ...], int]
STOP = 3

# Few symbols and few documents: prefixes shared, docids shared, several docids for a document.
docids = st.lists(st.integers(0, 2), max_size=4).map(lambda symbols: (*symbols, STOP))
pairs = st.lists(st.tuples(docids, st.integers(0, 9)), max_size=14, unique=True)


def plain(listed: list[Pair]) -> dict[tuple[int, ...], dict[int, int]]:
    """For each prefix, its next symbols and how many entries lie below each."""
    following: dict[tuple[int, ...], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for docid, _ in listed:
        for depth, symbol in enumerate(docid):
            following[docid[:depth]][symbol] += 1
    return following


def walked(trie: Trie) -> tuple[dict[tuple[int, ...], dict[int, int]], list[Pair]]:
    """The same by walking, all prefixes of a length at once, and the (docid, document) pairs at which the walk ends."""
    walk = Walk(trie)
    following: dict[tuple[int, ...], dict[int, int]] = {}
    ends: list[Pair] = []
    prefixes, state = [()] if len(trie) else [], walk.root(1)
    while prefixes:
        which, numbers = walk.documents_of(state.numpy())
        for row in range(len(state)):
            assert sorted(numbers[which == row].tolist()) == sorted(walk.documents(state[row].tolist()))
        ended = walk.ended(state)
        for row in ended.nonzero()[:, 0].tolist():
            ends += [(prefixes[row], document) for document in walk.documents(state[row].tolist())]
        going_on = (~ended).nonzero()[:, 0]
        prefixes, state = [prefixes[row] for row in going_on.tolist()], state[going_on]
        if not prefixes:
            break
        found = walk.children(state, len(prefixes[0]))
        assert torch.equal(found.ended, walk.ended(found.state) & (found.state >= 0).any(-1))
        assert torch.equal(found.alone, walk.alone(found.state))
        rows, slots = found.exists.nonzero().T
        state = found.state[rows, slots]
        offered = zip(rows.tolist(), found.token[rows, slots].tolist(), walk.living(state).tolist(), strict=True)
        following |= {prefix: {} for prefix in prefixes}
        longer = []
        for row, symbol, below in offered:
            assert symbol not in following[prefixes[row]], "a symbol is offered twice"
            following[prefixes[row]][symbol] = below
            longer.append((*prefixes[row], symbol))
        prefixes = longer
    return following, ends


def same(trie: Trie, listed: list[Pair]) -> None:
    following, ends = walked(trie)
    assert following == plain(listed)
    assert sorted(ends) == sorted(listed)
    assert sorted(trie.items()) == sorted(listed)
    assert len(trie) == len(listed)


@given(pairs)
def test_a_trie_holds_what_it_was_given(listed: list[Pair]) -> None:
    same(Trie.of(listed), listed)


steps = st.lists(st.tuples(st.booleans(), pairs, st.sets(st.integers(0, 9), max_size=3)), max_size=6)


@given(listed=pairs, changes=steps, annex=st.sampled_from([0, 2, 1000]))
def test_any_adds_and_deletes_equal_a_rebuild(listed: list[Pair], changes: list, annex: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes_module, "ANNEX", annex)
        trie, live = Trie.of(listed), list(listed)
        for adding, new, gone in changes:
            before = sorted(trie.items())
            if adding:
                fresh = [pair for pair in new if pair not in live]
                changed, live = trie.with_added(fresh), live + fresh
            else:
                changed, live = trie.without(gone), [pair for pair in live if pair[1] not in gone]
            assert sorted(trie.items()) == before, "an old value was changed"
            trie = changed
            same(trie, live)


@given(pairs.filter(bool))
def test_what_is_alone_is_found_by_its_tail(listed: list[Pair]) -> None:
    walk = Walk(Trie.of(listed))
    waiting = [((), walk.root(1))]
    while waiting:
        prefix, state = waiting.pop()
        below = {docid for docid, _ in listed if docid[: len(prefix)] == prefix}
        if bool(walk.alone(state)[0]):
            assert len(below) == 1
            symbols, length = walk.tails(state)
            assert prefix + tuple(symbols[0, : int(length[0])].tolist()) in below
        elif not bool(walk.ended(state)[0]):
            found = walk.children(state, len(prefix))
            for slot in found.exists[0].nonzero()[:, 0].tolist():
                waiting.append(((*prefix, int(found.token[0, slot])), found.state[:, slot]))


def test_many_prefixes_are_walked_at_once() -> None:
    walk = Walk(Trie.of([((1, 2), 0), ((1, 4), 1), ((5, 6), 2)]))
    first = walk.children(walk.root(1), 0)
    assert first.token[first.exists].tolist() == [1, 5]
    second = walk.children(first.state[0], 1)
    assert second.token[second.exists].tolist() == [2, 4, 6]
    assert walk.living(first.state[0]).tolist() == [2, 1]


def test_the_documents_below_a_prefix_are_one_slice() -> None:
    trie = Trie.of([((1, 2), 7), ((0, 9), 3), ((1, 1), 5)])
    arrays = trie.parts[0]
    node = int(arrays.child[0]) + 1  # the second child of the root, by symbol 1
    assert arrays.document[arrays.first[node] : arrays.first[node] + arrays.count[node]].tolist() == [5, 7]


@pytest.mark.parametrize(
    "listed", [[((1,), 0), ((1, 2), 1)], [((1, 2), 0), ((1,), 1)], [((1, 2, 3), 0), ((1, 2), 1), ((4,), 2)]]
)
def test_a_docid_that_begins_another_is_refused(listed: list[Pair]) -> None:
    with pytest.raises(UsageError, match="the beginning of another docid; end every docid with a stop symbol"):
        Trie.of(listed)
    with pytest.raises(UsageError, match="the beginning of another"):
        Trie.of(listed[:1]).with_added(listed[1:])


def test_an_empty_docid_is_refused() -> None:
    with pytest.raises(UsageError, match="a docid is empty"):
        Trie.of([((), 0)])


def test_wide_vocabularies_and_one_level() -> None:
    same(
        Trie.of([((number * 70_000,), number) for number in range(5)]),
        [((number * 70_000,), number) for number in range(5)],
    )


def test_saved_and_opened_it_is_the_same(tmp_path: Path) -> None:
    trie = Trie.of([((1, 2), 0), ((1, 4), 1)]).with_added([((5, 6), 2)]).without([1])
    with artifact.writing(tmp_path / "t") as writer:
        trie.write(writer)
        writer.commit("trie", {}, {}, "")
    with artifact.read(tmp_path / "t") as snapshot:
        again = Trie.read(snapshot, 7, np.array([0, 2]))
    assert isinstance(again.parts[0].token, np.memmap)
    same(again, [((1, 2), 0), ((5, 6), 2)])


def test_info_counts() -> None:
    found = Trie.of([((1, 2), 0), ((1, 2), 1), ((3, 3, 3), 2)]).info()
    assert (found["docids"], found["documents"], found["shared docids"]) == (2, 3, 1)
    assert (found["shortest"], found["longest"]) == (2, 3)


def test_nothing_is_left() -> None:
    trie = Trie.of([((1, 2), 0)]).without([0])
    assert len(trie) == 0
    assert not bool(Walk(trie).children(Walk(trie).root(1), 0).exists.any())
    same(trie.with_added([((2, 2), 1)]), [((2, 2), 1)])


def test_symbols_stay_on_the_device_they_were_put_on() -> None:
    assert Walk(Trie.of([((1,), 0)]), "cpu").root(1).device == torch.device("cpu")


# What it takes


def counted_shape(listed: list[Pair], width: int) -> TrieShape:
    """Nodes and tails by walking down from every docid until it is alone."""
    below = defaultdict(int)
    for docid, _ in listed:
        for depth in range(len(docid) + 1):
            below[docid[:depth]] += 1
    nodes, tails = {()}, 0
    for docid, _ in listed:
        depth = next((at for at in range(1, len(docid) + 1) if below[docid[:at]] == 1), len(docid))
        nodes |= {docid[:at] for at in range(1, depth + 1)}
        tails += len(docid) - depth
    return TrieShape(len(listed), len(nodes), tails, width, sum(len(docid) for docid, _ in listed))


@given(pairs)
def test_what_a_trie_takes_follows_from_its_shape(listed: list[Pair]) -> None:
    trie = Trie.of(listed)
    shape = trie.shape(STOP + 1)
    assert shape == counted_shape(listed, STOP + 1)
    assert computed(shape.products()) == counted(trie.stored()["trie"]).bytes == trie.bytes
    assert computed(shape.walk_products()) == counted(Walk(trie).stored()).bytes
    paths = trie.paths()
    lists = [paths.flat, paths.start, paths.document, paths.document.argsort(), trie.parts[0].parent]
    assert computed(shape.path_products()) == counted(lists).bytes


def test_symbols_take_more_where_there_are_many() -> None:
    narrow, wide = (Trie.of([((width - 1,), 0), ((5,), 1)]) for width in (2**16, 2**16 + 1))
    for trie, width, symbol in ((narrow, 2**16, 2), (wide, 2**16 + 1, 4)):
        assert trie.parts[0].token.itemsize == symbol
        assert computed(trie.shape(width).products()) == trie.bytes


@pytest.mark.parametrize(("entries", "width", "length"), [(1, 5, 3), (2000, 10, 6), (20_000, 256, 4), (20_000, 8, 3)])
def test_docids_that_are_drawn_have_the_shape_that_is_expected(entries: int, width: int, length: int) -> None:
    symbols = np.random.default_rng(0).integers(0, width, entries * length)
    built = Trie.of(Paths(symbols, np.arange(entries + 1) * length, np.arange(entries))).shape(width)
    expected = TrieShape.of_random(entries, width, length)
    assert (expected.entries, expected.symbols) == (built.entries, built.symbols)
    assert expected.nodes == pytest.approx(built.nodes, rel=0.02)
    assert expected.tails == pytest.approx(built.tails, rel=0.03, abs=2)


def test_a_shape_grows_as_its_docids_do() -> None:
    atomic = Trie.of([((number,), number) for number in range(10)]).shape(10)
    assert atomic.among(10, 1000) == TrieShape(1000, 1001, 0, 10, 1000)
    shared = Trie.of([((number % 5, 0), number) for number in range(10)]).shape(10)
    assert shared.among(10, 1000, fixed=True) == TrieShape(1000, 1 + 5 + 5, 0, 10, 2000)
    assert shared.among(10, 10) == shared


def test_what_has_changed_is_told_apart() -> None:
    trie = Trie.of([((number, 0), number) for number in range(4000)])
    changed = trie.with_added([((5000, 0), 5000)]).without([7])
    assert set(trie.stored()["changes"]) == set()
    parts = {part: counted(things).bytes for part, things in changed.stored().items()}
    assert parts["trie"] == trie.bytes
    assert parts["trie"] + parts["changes"] == changed.bytes
    assert parts["changes"] >= 4001
