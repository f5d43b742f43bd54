"""Bad input of every kind: strict reading says what is wrong, lenient reading saves what can be saved."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bad_input import CASES, Case, message, render
from triever.data.formats.problems import Problems

SURVIVABLE = [case for case in CASES if case.left is not None and case.read.__name__ != "dataset"]


def test_there_are_many_kinds_and_each_has_a_name_of_its_own() -> None:
    assert len(CASES) >= 35
    assert len({case.what for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_strict_reading_says_what_is_wrong_and_what_to_do(case: Case) -> None:
    said = message(case)
    assert re.search(case.sees, said), said
    assert "; " in said, "a message ends with what to do"


@pytest.mark.parametrize("case", SURVIVABLE, ids=lambda case: case.what)
def test_lenient_reading_counts_it_and_goes_on(case: Case, tmp_path: Path) -> None:
    problems = Problems(skip_bad=True)
    assert case.read(case.make(tmp_path), problems) == case.left
    assert problems.count == 1
    assert len(problems.examples) == 1


def test_the_page_shows_what_is_said_today(root: Path) -> None:
    page = (root / "docs" / "bad-input.md").read_text(encoding="utf-8")
    assert page == render(), "run: python -m tests.bad_input > docs/bad-input.md"
