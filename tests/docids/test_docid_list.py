"""Docids in arrays against a list of tuples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.docids import docid_list
from triever.docids.docid_list import DocidList
from triever.docids.trie import Trie

docids = st.lists(st.lists(st.integers(0, 8), max_size=3).map(lambda symbols: (*symbols, 9)), max_size=12)


@given(docids, st.integers(1, 5), st.slices(12))
def test_it_is_a_list_of_tuples(listed: list[tuple[int, ...]], block: int, part: slice) -> None:
    blocks = [listed[first : first + block] for first in range(0, len(listed), block)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(docid_list, "BLOCK", block)
        made = DocidList.of(blocks)
        assert list(made) == listed
        assert made == listed
        assert len(made) == len(listed)
        assert made[part] == listed[part]
        assert [made[row] for row in range(-len(listed), len(listed))] == listed * 2
        trie = Trie.of_blocks(made.blocks())
    assert sorted(trie.items()) == sorted((docid, row) for row, docid in enumerate(listed))
    with pytest.raises(IndexError):
        made[len(listed)]
