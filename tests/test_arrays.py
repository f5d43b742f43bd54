"""Rows that lie end to end, against a loop."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from triever.arrays import places


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5))))
def test_places_are_those_of_a_loop(rows: list[tuple[int, int]]) -> None:
    starts, lengths = (np.array([row[at] for row in rows], np.int32) for at in (0, 1))
    assert places(starts, lengths).tolist() == [start + step for start, length in rows for step in range(length)]
