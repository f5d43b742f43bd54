"""Cutting texts: nothing is lost, no passage is too long, and cuts fall where a reader would make them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.data.cut_documents import CutDocuments
from triever.data.cutting import _WORD, Cut
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.errors import UsageError

PIECES = st.sampled_from(["tea", "water", " ", "\n", "\n\n", "# ", ". ", "!", "東京", "x" * 30, "\t", "Title\n=====\n"])
CUTS = st.builds(
    lambda words, overlap: Cut("all", words, min(overlap, words // 4)), st.integers(1, 12), st.integers(0, 3)
)


@given(text=st.lists(PIECES, max_size=80).map("".join), cut=CUTS)
def test_every_word_is_in_a_passage_and_no_passage_is_too_long(text: str, cut: Cut) -> None:
    spans = cut.spans(text)
    words = [match.span() for match in _WORD.finditer(text)]
    for start, end in words:
        assert any(begin <= start and end <= stop for begin, stop in spans)
    if len(words) <= cut.words:
        assert spans == [(0, len(text))]
        return
    for begin, stop in spans:
        assert 0 <= begin < stop <= len(text)
        assert 1 <= len(_WORD.findall(text[begin:stop])) <= cut.words
    assert spans == sorted(set(spans))
    for (_, stop), (begin, _) in pairwise(spans):
        assert len(_WORD.findall(text[begin:stop])) <= cut.overlap


def cut_up(text: str, words: int, overlap: int = 0) -> list[str]:
    return [text[start:end] for start, end in Cut("all", words, overlap).spans(text)]


def test_headings_come_before_paragraphs_and_these_before_sentences() -> None:
    headings = "# One\na b c d e f\n\ng h\n\n## Two\ni j k"
    assert cut_up(headings, 13) == ["# One\na b c d e f\n\ng h", "## Two\ni j k"]
    underlined = "a b c d e f g\nTwo\n===\nh i j k l m"
    assert cut_up(underlined, 12)[0] == "a b c d e f g"
    assert cut_up("a b c d. e f\n\ng h i j k l m n", 12) == ["a b c d. e f", "g h i j k l m n"]
    assert cut_up("a b c d e. f g h i j k", 8) == ["a b c d e.", "f g h i j k"]
    assert cut_up("a b c d e f g h i j", 8) == ["a b c d e f g h", "i j"]


def test_a_heading_begins_a_passage_and_is_in_the_titles_of_those_that_follow() -> None:
    text = "# Tea\nhot water and dry leaves\n# Ice\n" + " ".join(["cold"] * 30) + "\n# Rain\nwet"
    cut = CutDocuments.of([Document("a", text, "Weather")], Cut("all", 16, 0))
    assert [(passage.title, passage.text[:5]) for passage in cut.passages] == [
        ("Weather", "# Tea"),
        ("Weather", "# Ice"),
        ("Weather: Ice", "cold "),
        ("Weather", "# Rai"),
    ]


def test_passages_overlap_but_not_over_a_heading() -> None:
    assert cut_up("a b c d e f g h i j", 8, 2) == ["a b c d e f g h", "g h i j"]
    assert cut_up("a b c d e f\n# Two\ng h i j k", 8, 2) == ["a b c d e f", "# Two\ng h i j k"]


def test_a_document_without_spaces_is_cut_too() -> None:
    assert max(map(len, cut_up("x" * 10_000, 20))) <= 240
    assert max(map(len, cut_up("東" * 100, 20))) == 20


@pytest.mark.parametrize("wrong", [{"words": 0}, {"overlap": -1}, {"words": 8, "overlap": 3}, {"which": "some"}])
def test_values_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Cut(**wrong)  # ty: ignore[invalid-argument-type]


DOCUMENTS = [
    Document("a", "hot tea. cold ice. wet rain.", "Weather", expansions=("is ice cold", "who drinks tea")),
    Document("a#0", "one word"),
    Document("b", ""),
]


def test_passages_know_their_documents_and_texts_that_stand_for_these() -> None:
    store = DocumentStore.of(DOCUMENTS)
    cut = CutDocuments.of(store, Cut("all", 3, 0))
    assert cut.passages.ids == ["a#0", "a#1", "a#2", "a#0#0", "b#0"]
    assert cut.owners.tolist() == [0, 0, 0, 1, 2]
    texts = [(passage.title, passage.text, passage.expansions) for passage in cut.passages]
    assert texts[0] == ("Weather", "hot tea.", ("who drinks tea",))
    assert texts[1] == ("Weather", "cold ice.", ("is ice cold",))
    assert (cut.most, cut.divided) == (3, 1)
    again = CutDocuments.opened(cut.table, store, cut.cut)
    assert list(again.passages) == list(cut.passages)


@given(keep=st.lists(st.booleans(), min_size=3, max_size=3))
def test_documents_that_are_added_and_deleted_bring_and_take_their_passages(keep: list[bool]) -> None:
    store = DocumentStore.of(DOCUMENTS)
    kept = [document for document, stays in zip(DOCUMENTS, keep, strict=True) if stays]
    smaller = CutDocuments.of(store, Cut("all", 3, 0)).where(np.array(keep))
    expected = CutDocuments.of(kept, Cut("all", 3, 0))
    assert list(smaller.passages) == list(expected.passages)
    assert smaller.owners.tolist() == expected.owners.tolist()
    new = Document("c", "x y z. u v w.")
    larger, passages = smaller.with_added([new])
    expected = CutDocuments.of([*kept, new], Cut("all", 3, 0))
    assert list(larger.passages) == list(expected.passages)
    assert larger.owners.tolist() == expected.owners.tolist()
    assert [passage.id for passage in passages] == ["c#0", "c#1", "c#2"][: len(passages)]


def test_spans_that_are_not_of_the_documents_are_refused() -> None:
    cut = CutDocuments.of(DOCUMENTS, Cut("all", 3, 0))
    others = DocumentStore.of([Document(document.id, "x") for document in DOCUMENTS])
    with pytest.raises(ValueError, match="not inside of document 'a'"):
        CutDocuments.opened(cut.table, others, cut.cut)
    with pytest.raises(ValueError, match="has no passages"):
        CutDocuments.opened(cut.table.slice(0, 4), DocumentStore.of(DOCUMENTS), cut.cut)
