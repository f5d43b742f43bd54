"""Docids as a tree, against an enumeration of all docids."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.retrievers.contract import dataset
from tests.search.test_search import STOP, changed, pairs
from tests.search.toy import Pair
from triever import Atomic, Document, Fused, Generative, Title, UsageError
from triever.commands.use import docids_browse
from triever.data.store import DocumentStore
from triever.docids.schemes import Docid, Naive
from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.engines.docid_tree import DocidNode, DocidTree, Symbols
from triever.models.decoders import DecoderOptions
from triever.training.tuning import DocidTuning

STORE = DocumentStore.of(Document(f"id {row}", "text", f"title {row}") for row in range(20))
TINY = "scratch:hidden=32,layers=1,heads=2,vocabulary=400"
SYMBOLS = DecoderOptions(rows="symbols")
NOTHING = DocidTuning(steps=0)


@dataclass(eq=False)
class Letters(Naive):
    """Symbols a, b, c, and an end."""

    kind: ClassVar[str] = "letters"

    def __post_init__(self) -> None:
        self._letters = ["a", "b", "c"]


def tree_of(walk: Walk) -> DocidTree:
    return DocidTree(walk, Symbols(Letters()), lambda numbers: numbers)


def browse(tree: DocidTree, prefix: Docid | list[str] = (), samples: int = 20, offset: int = 0) -> DocidNode:
    return tree.node(STORE, prefix, samples, offset, 100)


def names(listed: list[Pair], prefix: Docid) -> tuple[tuple[str, str], ...]:
    """The documents whose docids begin with a prefix, by the definition."""
    rows = sorted({document for docid, document in listed if docid[: len(prefix)] == prefix})
    return tuple((f"id {row}", f"title {row}") for row in rows)


@settings(max_examples=5)  # of which each looks at all prefixes
@given(pairs, pairs, st.sets(st.integers(0, 7), max_size=3))
def test_every_prefix_has_the_branches_and_documents_of_an_enumeration(
    listed: list[Pair], added: list[Pair], gone: set[int]
) -> None:
    walk, left = changed(listed, added, gone)
    tree = tree_of(walk)
    docids = {docid for docid, _ in left}
    for prefix in {(), *(docid[:length] for docid in docids for length in range(len(docid) + 1))}:
        node = browse(tree, prefix)
        assert node.prefix == prefix
        assert node.ends == (prefix in docids)
        assert node.samples == names(left, prefix)
        assert node.documents == len(node.samples)
        follow = sorted({docid[len(prefix)] for docid in docids if docid[: len(prefix)] == prefix != docid})
        assert [branch.symbol for branch in node.branches] == follow
        assert node.total == len(follow)
        for branch in node.branches:
            assert branch.samples == names(left, (*prefix, branch.symbol))
            assert branch.documents == len(branch.samples)
            assert branch.ends == ((*prefix, branch.symbol) in docids)
            assert branch.text == ("abc"[branch.symbol] if branch.symbol != STOP else "end")


def test_a_prefix_may_be_given_as_texts_and_samples_may_be_few() -> None:
    tree = tree_of(Walk(Trie.of([((0, 1, STOP), 0), ((0, 1, 1, STOP), 1), ((0, 1, 1, STOP), 2), ((2, STOP), 3)])))
    node = browse(tree, ["a", "b"], samples=1)
    assert (node.prefix, node.symbols, node.docid, node.documents) == ((0, 1), ("a", "b"), "ab", 3)
    assert [(branch.text, branch.documents, branch.samples) for branch in node.branches] == [
        ("b", 2, (("id 1", "title 1"),)),
        ("end", 1, (("id 0", "title 0"),)),
    ]
    assert browse(tree, ["a", "b", "end"]).docid == "ab"
    for wrong, sentence in (
        (["a", "c"], "the symbol 'c' does not stand after 'a'; these stand there: 'b'"),
        ((7,), "the symbol 7 does not stand at the beginning of docids; these stand there: 'a', 'c'"),
        ((2, STOP, 0), "no symbol stands after 'c'; browse a shorter prefix"),
    ):
        with pytest.raises(UsageError, match=sentence):
            browse(tree, wrong)  # ty: ignore[invalid-argument-type]


def test_passages_are_browsed_as_their_documents() -> None:
    tree = tree_of(Walk(Trie.of([((0, STOP), 0), ((1, STOP), 1), ((1, 1, STOP), 2)]))).owned_by(np.array([5, 6, 6]))
    assert browse(tree).samples == (("id 5", "title 5"), ("id 6", "title 6"))
    assert [branch.documents for branch in browse(tree).branches] == [1, 1]


def test_many_symbols_come_in_pages() -> None:
    fitted = Generative(docids=Atomic(), backbone=TINY, training=NOTHING, decoder=SYMBOLS).fit(dataset())
    fitted.delete(["coffee"])
    fitted.add([Document("crater", "Molten rock.", "Volcanoes")])
    pages = [fitted.browse(samples=1, offset=offset, limit=4) for offset in (0, 4, 8, 12)]
    assert [len(page.branches) for page in pages] == [4, 4, 2, 0]
    assert {page.total for page in pages} == {10}
    shown = [branch.samples[0][0] for page in pages for branch in page.branches]
    assert sorted(shown) == sorted(fitted.documents.ids)
    assert all(branch.ends and branch.documents == 1 for page in pages for branch in page.branches)
    with pytest.raises(UsageError, match=r"the symbol 1 does not stand at the beginning of docids"):
        fitted.browse([1])  # the coffee's


def test_a_composite_is_browsed_by_the_part_that_has_docids() -> None:
    titles = Generative(docids=Title(vocabulary=100), backbone=TINY, training=NOTHING, decoder=SYMBOLS)
    fused = Fused(systems=["bm25", titles]).fit(dataset())
    how = fused.browse(["how", "to"])
    assert {name for name, _ in how.samples} == {"tea", "coffee"}
    assert how.docid == "how to"
    with pytest.raises(UsageError, match="a fused retriever has no docids; browse one that writes docids"):
        Fused(systems=["bm25", "bm25"]).fit(dataset()).browse()


def test_a_saved_retriever_is_browsed_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    titles = Generative(docids=Title(vocabulary=100), backbone=TINY, training=NOTHING, decoder=SYMBOLS).fit(dataset())
    titles.save(tmp_path / "m")
    docids_browse(tmp_path / "m", ["how"], samples=1)
    out, err = capsys.readouterr()
    assert out.split() == ["symbol", "documents", "ends", "such", "as", "to", "2", "tea", "(How", "to", "brew", "tea)"]
    assert err.endswith("2 documents have a docid that begins with 'how'\n")
    docids_browse(tmp_path / "m", offset=1, limit=2)
    assert capsys.readouterr().err.endswith("10 documents have docids; 2 to 3 of 9 symbols are shown\n")
    docids_browse(tmp_path / "m", ["how", "to"], json_=True)
    assert json.loads(capsys.readouterr().out) == titles.browse(["how", "to"]).to_dict()
