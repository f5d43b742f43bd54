"""A loss over the symbols that may follow, against sums over all docids that are written out."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triever.docids.branches import Branches
from triever.docids.schemes import Docid
from triever.docids.trie import Trie
from triever.training.views import docid_rows

WIDTH = 6
# No docid begins another: each ends with the symbol 5, which stands nowhere else.
DOCIDS = st.lists(
    st.lists(st.integers(0, 4), max_size=4).map(lambda symbols: (*symbols, 5)), min_size=1, max_size=12, unique=True
)


def may_follow(docids: list[Docid], prefix: Docid) -> set[int]:
    depth = len(prefix)
    return {docid[depth] for docid in docids if len(docid) > depth and docid[:depth] == prefix}


def slow_loss(docids: list[Docid], targets: list[Docid], scores: torch.Tensor) -> float:
    """Minus the log-probabilities of all symbols of targets, each among those that may follow; scores are in order."""
    total, each = 0.0, iter(scores.tolist())
    for target in targets:
        for depth, symbol in enumerate(target):
            row = next(each)
            total -= row[symbol] - math.log(sum(math.exp(row[one]) for one in may_follow(docids, target[:depth])))
    return total


def loss(branches: Branches, targets: list[Docid], scores: torch.Tensor) -> float:
    rows = torch.from_numpy(docid_rows(targets))
    nodes, there = branches.nodes(rows), rows >= 0
    chosen = nodes[there] >= 0
    return float(branches.cross_entropy(scores[chosen], rows[there][chosen], nodes[there][chosen]))


@given(DOCIDS, st.integers(0, 5))
def test_the_loss_is_that_of_symbols_that_may_follow(docids: list[Docid], seed: int) -> None:
    branches = Branches(Trie.of(zip(docids, range(len(docids)), strict=True)))
    targets = [*docids, docids[0]]
    scores = torch.randn(sum(map(len, targets)), WIDTH, generator=torch.Generator().manual_seed(seed))
    assert loss(branches, targets, scores) == pytest.approx(slow_loss(docids, targets, scores), abs=1e-4)


@given(DOCIDS)
def test_positions_without_a_choice_have_no_node(docids: list[Docid]) -> None:
    branches = Branches(Trie.of(zip(docids, range(len(docids)), strict=True)))
    rows = docid_rows(docids)
    nodes = branches.nodes(torch.from_numpy(rows)).tolist()
    prefixes: dict[int, Docid] = {}
    for docid, row in zip(docids, nodes, strict=True):
        for depth, node in enumerate(row):
            choices = may_follow(docids, docid[:depth]) if depth < len(docid) else set()
            assert (node >= 0) == (len(choices) > 1)
            if node >= 0:
                assert prefixes.setdefault(node, docid[:depth]) == docid[:depth], "one node is one prefix"


def test_documents_that_are_added_count_and_deleted_ones_do_not() -> None:
    docids: list[Docid] = [(number // 4, number % 4) for number in range(12)]
    trie = Trie.of(zip(docids, range(12), strict=True)).with_added([((1, 9), 12), ((7, 0), 13)]).without([4, 5])
    assert len(trie.parts) == 2
    left = [docid for docid, _ in trie.items()]
    scores = torch.randn(2 * len(left), 10, generator=torch.Generator().manual_seed(0))
    assert loss(Branches(trie), left, scores) == pytest.approx(slow_loss(left, left, scores), abs=1e-4)


def test_the_beginnings_of_docids_have_a_loss_too() -> None:
    docids: list[Docid] = [(number // 4, number % 4) for number in range(12)]
    branches = Branches(Trie.of(zip(docids, range(12), strict=True)))
    scores = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    expected = slow_loss(docids, [(2,), (0,)], scores)
    assert loss(branches, [(2,), (0,)], scores) == pytest.approx(expected, abs=1e-5)


def test_one_docid_has_nothing_to_learn() -> None:
    branches = Branches(Trie.of([((3, 1, 2), 0)]))
    scores = torch.randn(3, 4, requires_grad=True)
    assert branches.nodes(torch.tensor([[3, 1, 2]])).tolist() == [[-1, -1, -1]]
    nothing = torch.empty(0, dtype=torch.long)
    found = branches.cross_entropy(scores[:0], nothing, nothing)
    found.backward()
    assert found.item() == 0
