"""Names and numbers by how they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.data.entities import entities, sentences


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("The Treaty of Versailles was signed in 1919.", ["Treaty of Versailles", "1919"]),
        ("Water boils at 100 degrees.", ["100"]),
        ("Ludwig van Beethoven was born in Bonn.", ["Ludwig van Beethoven", "Bonn"]),
        ("It rose by 3.5% in March 2020.", ["3.5%", "March", "2020"]),
        ("nothing is written here", []),
        ("Yesterday it rained.", []),
        ("Über Österreich fiel Schnee.", ["Über Österreich", "Schnee"]),
        ("Vitamin B12 and 12B are alike.", ["Vitamin B12", "12", "B"]),
        ("Башню построил в 1900 году Иван Петров.", ["1900", "Иван Петров"]),
        ("Ο φάρος χτίστηκε από τον Νίκο Παππά το 1900.", ["Νίκο Παππά", "1900"]),
        ("Wieża łączy Łódź z żaglem świętego Jana.", ["Łódź", "Jana"]),
        ("بنيت المنارة عام 1900 في القرية", ["1900"]),
        ("यह मीनार 1900 में बनी थी", ["1900"]),
        ("灯台は1900年に建てられた。", ["1900"]),
        ("高さは12メートルである。", ["12"]),
        ("他1919年在北京的NHK工作。", ["1919", "NHK"]),
        ("ประภาคารสร้างในปี1900สูง12เมตร", ["1900", "12"]),
        ("등대는 1900년에 세워졌다.", ["1900"]),
    ],
)
def test_names_and_numbers(sentence: str, found: list[str]) -> None:
    assert [sentence[start:end] for start, end in entities(sentence)] == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "灯台は1900年に建てられた。高さは12メートルである。",
            ["灯台は1900年に建てられた。", "高さは12メートルである。"],
        ),
        ("真的吗？！是3.14。好", ["真的吗？！", "是3.14。", "好"]),
        ("彼は「はい。」と言った。", ["彼は「はい。」", "と言った。"]),
        ("Pi is 3.14. Who says so?", ["Pi is 3.14.", "Who says so?"]),
    ],
)
def test_sentences_end_at_full_stops_of_any_width(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(st.text(st.sampled_from("Aa1 .,-'\"Üß東。？\n"), max_size=60))
def test_places_are_inside_and_apart(text: str) -> None:
    for sentence in sentences(text):
        reached = 0
        for start, end in entities(sentence):
            assert reached <= start < end <= len(sentence)
            reached = end
