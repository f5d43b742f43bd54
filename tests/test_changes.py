"""Changes against the obvious: a list of what is stored, and of each item whether it is alive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever import changes as module
from triever.changes import Changes

STEPS = st.lists(st.one_of(st.integers(0, 6), st.lists(st.booleans(), min_size=1, max_size=8)), max_size=8)
"""How many are added, or a pattern of which are kept."""


@given(main=st.integers(0, 9), steps=STEPS)
def test_changes_are_those_of_a_list(main: int, steps: list[int | list[bool]]) -> None:
    changes, alive = Changes(main), [True] * main
    for step in steps:
        rows = [slot for slot, is_alive in enumerate(alive) if is_alive]
        if isinstance(step, int):
            changes, alive = changes.added(step), alive + [True] * step
        else:
            keep = np.resize(step, len(rows)).astype(bool)
            changes = changes.kept(keep)
            alive = [
                slot in {row for row, stays in zip(rows, keep, strict=True) if stays} for slot in range(len(alive))
            ]
        same(changes, main, alive)


def same(changes: Changes, main: int, alive: list[bool]) -> None:
    rows = [slot for slot, is_alive in enumerate(alive) if is_alive]
    assert (changes.main, changes.slots, len(changes)) == (main, len(alive), len(rows))
    assert changes.slot_of.tolist() == rows
    assert changes.rows(np.array([*rows, -1])).tolist() == [*range(len(rows)), -1]
    assert changes.living(np.arange(len(alive)) * 10).tolist() == [10 * slot for slot in rows]
    for mask, part in zip(changes.masks, (alive[:main], alive[main:]), strict=True):
        assert all(part) if mask is None else mask.tolist() == part and not all(part)
    assert changes.none <= (len(alive) == main and all(alive))
    assert sum(map(len, changes.arrays())) == (0 if changes.alive is None else len(alive))


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        (Changes(100), False),
        (Changes(40).added(3), False),
        (Changes(40).added(4), True),
        (Changes(160).added(10), False),
        (Changes(160).added(11), True),
        (Changes(0).added(1), True),
        (Changes(4).kept(np.array([1, 1, 1, 0], bool)), False),
        (Changes(4).kept(np.array([1, 1, 0, 0], bool)), True),
        (Changes(4).added(2).kept(np.array([0, 0, 1, 1, 1, 1], bool)), False),
    ],
)
def test_when_all_is_built_anew(changes: Changes, due: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANNEX", 3)
    assert changes.due is due


def test_what_was_there_before_stays_as_it_was() -> None:
    before = Changes(3).kept(np.array([True, False, True]))
    before.kept(np.array([False, True])), before.added(2)
    assert before.alive is not None
    assert before.alive.tolist() == [True, False, True]
