"""Arrays in files without a name, against arrays in memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever import disk_arrays
from triever.disk_arrays import GrowingArray, room
from triever.errors import DataError


@given(blocks=st.lists(st.lists(st.integers(0, 255), max_size=5), max_size=8), limit=st.integers(0, 9))
def test_what_is_appended_is_there_in_memory_or_in_a_file(blocks: list[list[int]], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_arrays, "GROWN_IN_MEMORY", limit)
        grown = GrowingArray(np.uint8)
        for block in blocks:
            grown.append(np.array(block, np.uint8))
        array, flat = grown.array(), [number for block in blocks for number in block]
    assert array.tolist() == flat
    assert len(grown) == len(flat)
    assert array.dtype == np.uint8


def test_a_block_that_is_changed_later_stays_as_it_was_appended() -> None:
    grown, block = GrowingArray(np.int32), np.arange(3, dtype=np.int32)
    grown.append(block)
    block[:] = 9
    assert grown.array().tolist() == [0, 1, 2]


def test_a_folder_keeps_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_arrays, "IN_MEMORY", 8)
    array = room((3, 2), np.float32, tmp_path / "work")
    array[:] = 1
    assert isinstance(array, np.memmap)
    assert list((tmp_path / "work").iterdir()) == []


def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk_arrays, "GROWN_IN_MEMORY", 0)
    monkeypatch.setattr(disk_arrays, "_opened", full)
    with pytest.raises(DataError, match=r"GiB cannot be stored in .*No space left.*; make room there"):
        GrowingArray(np.int64).append(np.ones(3))
