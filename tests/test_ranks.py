"""Reciprocal ranks against a ranking that is written out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from triever.ranks import reciprocal_rank, reciprocal_rank_by

scored = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.booleans()), max_size=8)


@given(scored, st.sampled_from([None, 1, 3]))
def test_scores_are_ranked_with_what_is_wrong_first(listed: list[tuple[float, bool]], cutoff: int | None) -> None:
    ranking = sorted(listed, key=lambda pair: (-pair[0], pair[1]))
    expected = next((1 / rank for rank, (_, is_right) in enumerate(ranking[:cutoff], 1) if is_right), 0.0)
    scores, is_right = np.array([pair[0] for pair in listed]), np.array([pair[1] for pair in listed], bool)
    assert reciprocal_rank_by(scores, is_right, cutoff) == expected
    assert reciprocal_rank([is_right for _, is_right in ranking[:cutoff]]) == expected
