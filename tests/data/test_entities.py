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
    ],
)
def test_names_and_numbers(sentence: str, found: list[str]) -> None:
    assert [sentence[start:end] for start, end in entities(sentence)] == found


@given(st.text(st.sampled_from("Aa1 .,-'\"Üß東\n"), max_size=60))
def test_places_are_inside_and_apart(text: str) -> None:
    for sentence in sentences(text):
        reached = 0
        for start, end in entities(sentence):
            assert reached <= start < end <= len(sentence)
            reached = end
