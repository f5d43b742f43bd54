"""Which numbers a processor computes in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from triever.models.precision import FLOAT32, fast_dtype, has_matrix_unit


@pytest.fixture
def with_a_unit(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A processor that multiplies bfloat16 by itself."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True, raising=False)
    has_matrix_unit.cache_clear()
    yield monkeypatch
    has_matrix_unit.cache_clear()


def test_a_processor_with_a_unit_for_bfloat16_computes_in_it(with_a_unit: pytest.MonkeyPatch) -> None:
    with_a_unit.delenv(FLOAT32)
    assert fast_dtype("cpu") == torch.bfloat16


def test_float32_can_be_asked_for_by_the_environment(with_a_unit: pytest.MonkeyPatch) -> None:
    with_a_unit.setenv(FLOAT32, "1")
    assert fast_dtype("cpu") == torch.float32
