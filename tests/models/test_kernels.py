"""Triton's kernels against plain torch; on a machine without a GPU, in Triton's interpreter, where Triton is."""

from __future__ import annotations

import os
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from torch import Tensor

from triever.models import kernels
from triever.models.kernels import ENDED, LONE, Nodes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [pytest.mark.long, pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")]


@pytest.fixture(scope="module")
def fused() -> ModuleType:
    if DEVICE == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads when it is imported
    from triever.models import triton_kernels

    return triton_kernels


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `kernels` be plain torch."""
    monkeypatch.setattr(kernels, "fused", lambda _like: None)
    torch.manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def near(result: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(result, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(("rows", "width", "temperature"), [(5, 300, 0.7), (3, 9000, 1.0), (1, 1, 2.0)])
def test_log_sum_exp(fused: ModuleType, rows: int, width: int, temperature: float) -> None:
    logits = random(rows, width) * 4
    near(fused.log_sum_exp(logits, temperature), kernels.log_sum_exp(logits, temperature))


def test_rms_norm_and_gated_gelu(fused: ModuleType) -> None:
    hidden, weight = random(7, 96), random(96)
    near(fused.rms_norm(hidden, weight, 1e-6), kernels.rms_norm(hidden, weight, 1e-6))
    near(fused.gated_gelu(hidden), kernels.gated_gelu(hidden))


@pytest.mark.parametrize(
    ("heads", "size", "length", "rows", "biased"),
    [(3, 16, 7, 5, False), (2, 32, 20, 1, True), (6, 64, 100, 40, False), (6, 64, 16, 16, True)],
)
def test_attention_to_texts(fused: ModuleType, heads: int, size: int, length: int, rows: int, biased: bool) -> None:
    texts = 3
    query, looked_up = random(texts * rows, heads * size), random(texts, length, 4, heads * size)
    keys, values = looked_up[:, :, 0], looked_up[:, :, 1]
    mask = (torch.arange(length) < torch.randint(1, length + 1, (texts, 1))).to(DEVICE, torch.uint8)
    given = (query, keys, values, mask, heads, random(heads, rows, length) if biased else None)
    near(fused.attend_texts(*given), kernels.attend_texts(*given))


@pytest.mark.parametrize(("heads", "size", "places"), [(3, 16, 1), (6, 64, 4), (2, 32, 9)])
def test_attention_to_what_was_written(fused: ModuleType, heads: int, size: int, places: int) -> None:
    store, count = random(50, 3 * heads * size), 8
    ancestors = torch.randint(0, 50, (count, places), device=DEVICE)
    length = torch.randint(1, places + 1, (count, 1), device=DEVICE)
    ancestors = torch.where(torch.arange(places, device=DEVICE) < length, ancestors, -1)
    given = (store, 42, count, ancestors, random(heads, places), heads)
    near(fused.attend_paths(*given), kernels.attend_paths(*given))


@pytest.mark.parametrize("final", [LONE, ENDED])
@pytest.mark.parametrize("over_all", [False, True])
def test_totals_of_children(fused: ModuleType, final: int, over_all: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    child = torch.tensor([1, 4, 6, 6, 6, 9, 9, 9, 9, 9], dtype=torch.int32, device=DEVICE)
    token = torch.tensor([0, 2, 3, 5, 0, 4, 1, 2, 5], dtype=torch.int32, device=DEVICE)
    kind = torch.tensor([0, 0, 1, 2, 0, 2, 1, 2, 1], dtype=torch.uint8, device=DEVICE)
    node = torch.tensor([[0, 1], [4, 2]], device=DEVICE)
    logprob = torch.tensor([[0.0, -1.0], [-2.0, -torch.inf]], device=DEVICE)
    logits, pool = random(4, 6), random(2, 3)
    sums = kernels.log_sum_exp(logits, 0.7) if over_all else None
    given = (Nodes(token, child, kind), node, logprob, logits, sums, pool, 5, 0.7, final)
    expected = kernels.child_totals(*given)
    monkeypatch.setattr(kernels, "fused", lambda _like: fused)
    result = kernels.child_totals(*given)
    assert torch.equal(result.isfinite(), expected.isfinite())
    near(result.nan_to_num(neginf=0), expected.nan_to_num(neginf=0))
