"""The best of many scores against a sort."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triever.errors import UsageError
from triever.index.top import Running, best, merged, shared
from triever.models.precision import device_of

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
    scores, places = running.result()
    expected = in_order([score for chunk in chunks for score in chunk], k)
    assert list(zip(scores[0], places[0], strict=True)) == expected + [(-INF, -1)] * (k - len(expected))


def test_two_searches_become_one() -> None:
    one = np.array([[3.0, 1.0, -INF]], "float32"), np.array([[4, 0, -1]])
    other = np.array([[3.0, 2.0]], "float32"), np.array([[2, 7]])
    scores, places = merged(one, other, 6)
    assert scores.tolist() == [[3.0, 3.0, 2.0, 1.0, -INF, -INF]]
    assert places.tolist() == [[2, 4, 7, 0, -1, -1]]


@pytest.mark.parametrize("name", ["abacus", "meta", "cuda:x"])
def test_what_is_no_device_is_refused(name: str) -> None:
    for opening in (False, True):
        with pytest.raises(UsageError, match=f"device = '{name}' is not a device.*; use cpu or cuda, or auto"):
            device_of(name, opening=opening)


@pytest.mark.parametrize(
    ("name", "count", "problem"),
    [
        ("cuda", 0, "no CUDA device is here"),
        ("cuda:0", 0, "no CUDA device is here"),
        ("cuda:2", 2, "the last CUDA device here is cuda:1"),
        ("mps", 0, "no MPS device is here"),
    ],
)
def test_a_device_that_is_not_there_is_refused_and_made_up_for_when_opening(
    name: str, count: int, problem: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UsageError, match=f"device = '{name}', but {problem}; use device=cpu"):
        device_of(name)
    assert not caplog.records
    assert device_of(name, opening=True) == torch.device("cpu")
    assert [record.message for record in caplog.records] == [
        f"device = '{name}', but {problem}: the cpu is used instead"
    ]


def test_auto_is_cuda_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_of("cpu") == torch.device("cpu")
    for there, expected in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert device_of("auto") == torch.device(expected)


@pytest.mark.filterwarnings("error")
def test_arrays_that_cannot_be_written_are_shared_in_silence() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    assert shared(array).data_ptr() == array.ctypes.data
