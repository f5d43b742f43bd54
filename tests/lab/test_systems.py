"""Systems by words: which comma begins an option, and which belongs to a value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.retrievers.contract import dataset
from triever import BM25, UsageError
from triever.lab.systems import ready_systems, split_settings

KNOWN = ("backbone", "size", "training", "systems", "method", "depth", "k1", "b")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("k1=0.9", ["k1=0.9"]),
        ("k1=0.9,b=0.4", ["k1=0.9", "b=0.4"]),
        ("k1=0.9, b=0.4", ["k1=0.9", " b=0.4"]),
        (
            "backbone=scratch:hidden=64,layers=1,heads=2,training.steps=3,size=8",
            ["backbone=scratch:hidden=64,layers=1,heads=2", "training.steps=3", "size=8"],
        ),
        ("systems=bm25,dense,method=rrf", ["systems=bm25,dense", "method=rrf"]),
        ('systems=[{kind="fused",depth=20},"bm25"],depth=5', ['systems=[{kind="fused",depth=20},"bm25"]', "depth=5"]),
        ("k1=0.9,bb=0.4", ["k1=0.9", "bb=0.4"]),  # a slip, to be told of
    ],
)
def test_a_comma_begins_an_option_only_before_its_name(text: str, parts: list[str]) -> None:
    assert split_settings(text, KNOWN) == parts


values = st.text(st.characters(exclude_characters="[]{}=", exclude_categories=["Cs"]))


@given(st.lists(st.tuples(st.sampled_from(KNOWN), values)))
def test_what_is_joined_by_commas_is_split_as_it_was(pairs: list[tuple[str, str]]) -> None:
    parts = [f"{key}={value}" for key, value in pairs]
    assert split_settings(",".join(parts), KNOWN) == parts


def test_all_words_are_understood_before_anything_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BM25, "fit", lambda *_: pytest.fail("it was fitted"))
    with pytest.raises(UsageError, match="k2 is not an option of BM25"):
        ready_systems(["bm25", "other=bm25:k2=1"], dataset())


def test_a_word_may_be_longer_than_a_file_name() -> None:
    words = f"bm25:language=none,k1={'0' * 300}.9"
    with pytest.raises(UsageError, match="finite number"):
        ready_systems([words], dataset())
