"""The best of many scores against a sort."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triever.errors import UsageError
from triever.index.top import Running, best, device_of, merged, shared

INF = float("inf")
rows = st.lists(st.sampled_from([-INF, -1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=20)  # few values: many ties


def in_order(scores: list[float], k: int) -> list[tuple[float, int]]:
    """The k greatest with their places, by a sort that has never heard of tensors."""
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    return [(scores[place], place) for place in order if scores[place] > -INF][:k]


@given(rows, st.integers(1, 25))
def test_of_equal_scores_the_first_is_taken(scores: list[float], k: int) -> None:
    values, places = best(torch.tensor([scores]), k)
    found = [pair for pair in zip(values[0].tolist(), places[0].tolist(), strict=True) if pair[0] > -INF]
    assert found == in_order(scores, k)


@given(st.lists(rows, min_size=1, max_size=4), st.integers(1, 6))
def test_chunks_give_what_all_at_once_gives(chunks: list[list[float]], k: int) -> None:
    running, first = Running(1, k, torch.device("cpu")), 0
    for chunk in chunks:
        running.add(torch.tensor([chunk]), first)
        first += len(chunk)
    scores, places = running.found()
    expected = in_order([score for chunk in chunks for score in chunk], k)
    assert list(zip(scores[0], places[0], strict=True)) == expected + [(-INF, -1)] * (k - len(expected))


def test_two_searches_become_one() -> None:
    one = np.array([[3.0, 1.0, -INF]], "float32"), np.array([[4, 0, -1]])
    other = np.array([[3.0, 2.0]], "float32"), np.array([[2, 7]])
    scores, places = merged(one, other, 6)
    assert scores.tolist() == [[3.0, 3.0, 2.0, 1.0, -INF, -INF]]
    assert places.tolist() == [[2, 4, 7, 0, -1, -1]]


def test_a_device_that_is_not_there_is_refused() -> None:
    assert device_of("cpu").type == "cpu"
    with pytest.raises(UsageError, match="is not a device; use cpu or cuda"):
        device_of("abacus")
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="no CUDA device is here; use device=cpu"):
            device_of("cuda")


@pytest.mark.filterwarnings("error")
def test_arrays_that_cannot_be_written_are_shared_in_silence() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    assert shared(array).data_ptr() == array.ctypes.data
