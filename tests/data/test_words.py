"""Words in many scripts, worked out by hand."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.data.words import language_of, languages, stemmer, stop_words, words
from triever.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Merge sorted lists!", ["merge", "sorted", "lists"]),
        ("os.path.join(sort_keys=True)", ["os", "path", "join", "sort", "keys", "true"]),
        ("C++ 3.11", ["c", "3", "11"]),
        ("Straße und Größe", ["strasse", "und", "grösse"]),
        ("L'été à Nîmes", ["l", "été", "à", "nîmes"]),
        ("Привет, МИР", ["привет", "мир"]),
        ("東京都", ["東", "東京", "京", "京都", "都"]),
        ("駅", ["駅"]),
        ("カナと", ["カ", "カナ", "ナ", "ナと", "と"]),
        ("Python入門", ["python", "入", "入門", "門"]),
        ("한국어", ["한", "한국", "국", "국어", "어"]),
        ("ภาษ", ["ภ", "ภา", "า", "าษ", "ษ"]),
        ("हिन्दी में खोज", ["हिन्दी", "में", "खोज"]),
        ("ＡＢＣ ﬁle", ["abc", "file"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("", []),
        ("… — !?", []),
    ],
)
def test_words_of(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(st.text())
def test_case_and_composition_do_not_matter(text: str) -> None:
    assert words(unicodedata.normalize("NFD", text)) == words(unicodedata.normalize("NFC", text))


@given(st.text(st.characters(max_codepoint=127)))
def test_the_fast_path_for_ascii_gives_what_the_general_one_gives(text: str) -> None:
    assert words(text + " é") == [*words(text), "é"]


def test_turkish_has_two_kinds_of_i() -> None:
    assert words("İstanbul ISPARTA", "turkish") == ["istanbul", "ısparta"]
    assert words("İstanbul") == words("istanbul") == ["istanbul"]


def test_stemmers_and_stop_words() -> None:
    assert stemmer("english")("merging") == "merg"
    assert stemmer("german")("häusern") == "haus"
    assert stemmer("none")("merging") == "merging"
    assert "the" in stop_words("english")
    assert "und" in stop_words("german")
    assert stop_words("none") == frozenset()
    assert {"english", "german", "finnish", "none"} <= set(languages())
    with pytest.raises(UsageError, match="no stemmer for language 'germen'; did you mean german"):
        stemmer("germen")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Wer umzieht, muss den Zählerstand innerhalb von zwei Wochen melden", "german"),
        ("Les livres de la bibliothèque sont prêtés pour deux semaines", "french"),
        ("Книги можно взять на две недели, и не больше", "russian"),
        ("電車が三十分以上遅れた場合", ""),
        ("الكتب متاحة لمدة أسبوعين", ""),
        ("Books are lent for two weeks, and a fee is due after that", "english"),
        ("def heapq_merge(*iterables, key=None, reverse=False)", "english"),
        ("🖨️ 404 ?!", "english"),
        ("", "english"),
    ],
)
def test_the_language_of_most_texts_is_told(text: str, language: str) -> None:
    assert language_of([text]) == language
    assert language_of([text, text, "the cat is on the mat"]) == language
    assert language_of([text, "the cat is on the mat", "this is it"]) == "english"


def test_a_few_short_texts_do_not_make_another_language() -> None:
    assert language_of(["rich y", *["printer jams"] * 8]) == "english"
