"""Progress where there is no terminal: a line now and then, and silence inside a program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
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
    assert list(progress.track(range(20), "counting", unit="numbers")) == list(range(20))
    assert lines[0].startswith("counting: 1 of 20 numbers")
    assert len(lines) == pytest.approx(20 * 2 / progress.EVERY, abs=4)


def test_a_bar_gives_lines_with_its_notes(lines: list[str]) -> None:
    with progress.bar("training", 10, unit="steps") as show:
        for step in range(10):
            show(step, "loss 2.5")
    assert lines[0].startswith("training: ")
    assert lines[0].endswith("of 10 steps; loss 2.5")


@pytest.mark.parametrize("before", [0, 500])
def test_a_line_says_how_long_the_rest_will_take(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    now, said = 0.0, []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    progress.tell(said.append)
    try:
        with progress.bar("training", 2000, before, unit="steps") as show:
            for step in range(before + 1, before + 11):
                now += 6
                show(step, "loss 2.5")
    finally:
        progress.tell(None)
    left = {0: "about 3.3 hours", 500: "about 2.5 hours"}[before]  # at ten steps a minute
    assert said[0] == f"training: {before + 1:,} of 2,000 steps; {left} left; loss 2.5"
    assert len(said) == 10


def test_a_line_says_nothing_of_a_rest_that_is_short(lines: list[str]) -> None:
    list(progress.track(range(8), "counting", unit="numbers"))
    assert not any("left" in line for line in lines)


def test_batches_count_for_what_is_in_them(lines: list[str]) -> None:
    batches = [[0] * 256] * 20
    assert list(progress.track(batches, "searching", unit="questions", size=len)) == batches
    assert lines[0].startswith("searching: 256 of 5,120 questions")


def test_it_is_silent_inside_a_program(lines: list[str]) -> None:
    progress.tell(None)
    assert list(progress.track(iter("abc"), "reading", unit="letters")) == ["a", "b", "c"]
    assert lines == []


@pytest.mark.long
def test_work_that_counts_nothing_is_named_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENCE", 0.5)
    said: list[str] = []
    progress.tell(said.append, always=True)
    try:
        with progress.phase("fitting dense"):
            with progress.bar("reading", 20, unit="documents") as show:
                show(3, "")
                wait_for(said, "reading: 3 of 20 documents; ")
            wait_for(said, "fitting dense; ")
        wait_for(said, "working; ")
        assert all(line.endswith(" s so far") for line in said)
    finally:
        progress.tell(None)
    count = len(said)
    time.sleep(1.5)
    assert len(said) == count, "nothing is said once the work is over"


def wait_for(said: list[str], beginning: str) -> None:
    until = time.monotonic() + 30
    while not any(line.startswith(beginning) for line in said):
        assert time.monotonic() < until, said
        time.sleep(0.05)


def test_every_bar_has_a_unit_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    progress.show(True)
    try:
        assert list(progress.track(iter("abc"), "reading", 3, unit="letters")) == ["a", "b", "c"]
    finally:
        progress.show(False)
    assert "letters" in capsys.readouterr().err


SLOW = """
import sys, time
from triever import cli, progress
progress.SILENCE = 1.0
cli.COMMANDS = {"wait": lambda: time.sleep(4), "other": lambda: None}
sys.argv = ["triever", *sys.argv[1:]]
cli.main()
"""


@pytest.mark.long
def test_a_command_without_a_terminal_is_never_silent_for_long() -> None:
    def ended(*words: str, **variables: str) -> str:
        command = [sys.executable, "-c", SLOW, "wait", *words]
        environment = {**os.environ, **variables}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stderr

    assert re.search(r"^triever wait; \d+ s so far$", ended(), re.M)
    assert ended("-q") == ""
    assert ended(RANK="1", LOCAL_RANK="1", WORLD_SIZE="2", MASTER_ADDR="localhost") == "", "the first process says it"
