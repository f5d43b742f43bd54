"""Hard negatives of the queries of views: what is found first and is not relevant, in parts or at once."""

from __future__ import annotations

import numpy as np
import pytest

from triever import Document
from triever.data.store import DocumentStore
from triever.models.tokens import Tokens
from triever.training import mining
from triever.training.mining import JudgedQueries, asked_in, mined
from triever.training.pairs import Negatives, Pairs, written_pairs
from triever.training.views import Generated, Labelled, View

STORE = DocumentStore.of(
    [
        Document("a", "one", expansions=("first of a", "second of a")),
        Document("b", "two"),
        Document("c", "one", expansions=("of c",)),
        Document("d", "four"),
    ]
)
SAME = np.array([0, 1, 0, 3])  # a and c have one text
PAIRS = Pairs(["x", "y"], ["x", "y"], np.array([1, 0, 3]), np.array([0, 1, 3]), np.ones(2))


def tokens(count: int) -> Tokens:
    return Tokens.from_lists([[1, 5 + row, 2] for row in range(count)])


VIEWS: dict[str, View] = {
    "labelled": Labelled(PAIRS, tokens(2)),
    "generated": Generated(tokens(3), written_pairs(STORE).relevant),
}


def test_written_queries_have_their_documents() -> None:
    written = written_pairs(STORE)
    assert written.texts == ["first of a", "second of a", "of c"]
    assert [written.of(query).tolist() for query in range(3)] == [[0], [0], [2]]


def test_the_queries_of_a_view_are_those_that_are_judged_or_written() -> None:
    both = asked_in(VIEWS, STORE, generated=True)
    assert {name: asked.pairs.texts for name, asked in both.items()} == {
        "labelled": ["x", "y"],
        "generated": ["first of a", "second of a", "of c"],
    }
    assert all(len(asked.tokens) == len(asked) for asked in both.values())
    assert [*asked_in(VIEWS, STORE, generated=False)] == ["labelled"]


@pytest.mark.parametrize("together", [1, 2, 100])
def test_what_is_found_first_and_is_not_relevant_is_mined(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mining, "TOGETHER", together)
    sizes = []

    def find(some: JudgedQueries) -> list[list[int]]:
        sizes.append(len(some))
        assert len(some.tokens) == len(some)
        return [[0, 1, 2, 3] if len(text) > 1 else [3, 2, 1, 0] for text in some.pairs.texts]

    found = mined(asked_in(VIEWS, STORE, generated=True), find, Negatives(count=1, depth=3), SAME)
    assert {name: rows.tolist() for name, rows in found.items()} == {
        "labelled": [[3, 2, 0], [1, -1, -1]],  # c is a copy of a, which is relevant to y
        "generated": [[1, 3, -1]] * 3,
    }
    assert max(sizes) <= together
