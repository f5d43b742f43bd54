"""Systems by words: which comma begins an option, and which belongs to a value."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.retrievers.contract import QUERIES, dataset
from triever import BM25, UsageError
from triever.data.writers import write_run
from triever.evaluation.compare import check_asked
from triever.lab.systems import labels, ready_runs, ready_systems, split_settings

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


def test_what_cannot_answer_is_refused_before_anything_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BM25, "fit", lambda *_: pytest.fail("it was fitted"))
    with pytest.raises(UsageError, match="EM needs answers, and bm25 only finds documents"):
        ready_systems(["bm25"], dataset(), partial(check_asked, measures=["RR@10", "EM"]))


def test_what_never_gives_probabilities_is_refused_before_anything_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BM25, "fit", lambda *_: pytest.fail("it was fitted"))
    with pytest.raises(UsageError, match="Brier needs probabilities, and the scores of bm25 are none"):
        ready_systems(["dense", "bm25"], dataset(), partial(check_asked, measures=["RR@10", "Brier"]))


def test_a_path_to_nothing_is_not_called_a_system() -> None:
    with pytest.raises(UsageError, match="models/nope is no folder with a saved model; check the path"):
        ready_systems(["bm25", "mine=models/nope"], dataset())


def test_a_word_may_be_longer_than_a_file_name() -> None:
    words = f"bm25:language=none,k1={'0' * 300}.9"
    with pytest.raises(UsageError, match="finite number"):
        ready_systems([words], dataset())


def test_runs_are_called_by_their_names(tmp_path: Path) -> None:
    for name in ("a.run", "b.toml"):
        (tmp_path / name).write_text("")
    found = labels([f"{tmp_path}/a.run", f"c={tmp_path}/a.run", f"{tmp_path}/b.toml", "bm25"])
    assert list(found) == ["a", "c", f"{tmp_path}/b.toml", "bm25"]


def test_runs_are_read_and_others_searched_in_the_order_of_their_words(tmp_path: Path) -> None:
    bm25 = BM25().fit(dataset())
    bm25.save(tmp_path / "model")
    expected = dict(zip([query.id for query in QUERIES], bm25.search_many(QUERIES, 2), strict=True))
    write_run(tmp_path / "x.run", expected)
    found = ready_runs(["bm25", f"{tmp_path}/x.run", f"{tmp_path}/model"], dataset(), "test", 2)
    assert list(found) == ["bm25", "x", "model"]
    for run in found.values():
        assert {query: [hit.id for hit in result] for query, result in run.items()} == {
            query: [hit.id for hit in result] for query, result in expected.items()
        }
