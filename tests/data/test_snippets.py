"""Snippets: parts of texts that hold what a query asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import triever
from triever import Document, Hit, UsageError
from triever.data.snippets import LENGTH, snippet

TEXTS = st.text("abcde .!?\n東京", max_size=120)


@given(TEXTS, TEXTS, st.integers(1, 40))
def test_a_snippet_is_a_part_of_the_text_and_its_matches_lie_in_it(text: str, query: str, length: int) -> None:
    part = snippet(text, query, length)
    assert text[part.start : part.start + len(part.text)] == part.text
    assert len(part.text) <= length
    assert bool(part.text) == bool(text.strip())
    reached = 0
    for start, end in part.matches:
        assert reached <= start < end <= len(part.text)
        reached = end
    assert part.marked("", "") == part.text


@given(st.integers(0, 60), st.integers(0, 60))
def test_a_needle_is_found_wherever_it_lies(before: int, behind: int) -> None:
    straw = "Hay is dry grass, and there is plenty. "
    text = straw * before + "A needle sews the coat. " + straw * behind
    assert "[needle]" in snippet(text, "is there a needle").marked()


def test_rare_words_count_more_and_the_beginning_stands_for_a_text_without_any() -> None:
    text = "The list. The list of the list. " * 20 + "The generator of the list is lazy."
    assert "generator" in snippet(text, "the list generator").text
    assert snippet(text, "zebra").text.startswith("The list.")
    assert snippet(text, "zebra").matches == ()
    assert len(snippet("word " * 500, "zebra").text) <= LENGTH


def test_forms_of_a_word_and_scripts_without_spaces_match() -> None:
    assert snippet("It loops twice.", "looping").marked() == "It [loops] twice."
    assert snippet("東京は日本の首都である。", "日本の首都").marked() == "東京は[日本の首都]である。"
    assert snippet("snake_case names", "case").marked() == "snake_[case] names"


def test_a_point_inside_a_word_ends_no_sentence() -> None:
    text = "Some other thing. See itertools.chain of Python 3.11 for it. And more."
    assert snippet(text, "chain", length=50).text == "See itertools.chain of Python 3.11 for it."


def test_a_hit_gives_its_document_if_it_comes_from_a_search() -> None:
    document = Document("a", "Tea is hot. Ice is cold.", "Drinks", metadata={"year": 2020})
    retriever = triever.BM25().fit(triever.Dataset.of("drinks", [document, Document("b", "Bread")]))
    hit = retriever.search("something cold")[0]
    assert (hit.title, hit.text, hit.metadata) == ("Drinks", document.text, {"year": 2020})
    assert hit.document == document
    assert hit.snippet.marked("<", ">") == "Tea is hot. Ice is <cold>."
    assert hit == Hit(hit.id, hit.score)
    retriever.delete(["a"])
    assert hit.title == "Drinks"  # it keeps the documents that were searched
    with pytest.raises(UsageError, match=r"the hit a does not come from a search.*look it up"):
        _ = Hit("a", 1.0).title
