"""Progress where there is no terminal: a line now and then, and silence inside a program."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from triever import progress


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The lines that are given out, with a clock that goes on by two seconds whenever it is read."""
    said: list[str] = []
    seconds = iter(range(0, 10_000, 2))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(seconds))
    progress.tell(said.append)
    yield said
    progress.tell(None)


def test_long_work_gives_a_line_every_few_seconds(lines: list[str]) -> None:
    assert list(progress.track(range(20), "counting")) == list(range(20))
    assert lines[0] == "counting: 2 of 20"
    assert len(lines) == pytest.approx(20 * 2 / progress.EVERY, abs=4)


def test_a_bar_gives_lines_with_its_notes(lines: list[str]) -> None:
    with progress.bar("training", 1000) as show:
        for step in range(10):
            show(step, "loss 2.5")
    assert lines[0].startswith("training: ")
    assert lines[0].endswith("of 1,000; loss 2.5")


def test_it_is_silent_inside_a_program(lines: list[str]) -> None:
    progress.tell(None)
    assert list(progress.track(iter("abc"), "reading")) == ["a", "b", "c"]
    assert lines == []
