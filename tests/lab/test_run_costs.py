"""What a run cost, and whether its training was undone, are read from its file as one would by hand."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from triever.lab import results
from triever.lab.run_costs import bytes_per_document, fit_seconds, highest_load, is_as_it_came, was_alone
from triever.lab.run_results import RunResult

ENCODER = {"fit_seconds": 60.0}


def result(**values: Any) -> RunResult:
    hardware = {"processor": "x", "cores": 4, "system": "Linux"}
    return RunResult(**{"hardware": hardware, **values})


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ({"fit_seconds": 3.0}, 3.0),
        ({"parts": {"encoder": ENCODER}}, 60.0),
        ({"fit_seconds": 3.0, "parts": {"encoder": ENCODER, "tokens": {"fit_seconds": 7.0}}}, 70.0),
        ({"parts": {"nodes": {"fit_seconds": 5.0, "parts": {"encoder": ENCODER}}}}, 65.0),
        (
            {"parts": {"encoder": ENCODER, "nodes": {"fit_seconds": 5.0, "parts": {"encoder": ENCODER}}}},
            65.0,
        ),
        ({}, None),
    ],
    ids=["alone", "a part", "from two parts", "a part from a part", "a part that two share", "not said"],
)
def test_a_fit_takes_as_long_as_all_that_it_needs(values: dict[str, Any], seconds: float | None) -> None:
    assert fit_seconds(result(**values)) == seconds


def test_bytes_are_those_that_a_search_looks_into() -> None:
    looked_into = {"docid rows": 500, "trie": 100, "first: token vectors": 300, "walk": 50}
    besides = {"weights": 9999, "placer": 999, "texts": 999, "rows by id": 99, "first: weights": 999, "ids": 77}
    assert bytes_per_document(result(memory={**looked_into, **besides}, documents=10)) == sum(looked_into.values()) / 10
    assert bytes_per_document(result()) is None


@pytest.mark.parametrize(
    ("beside", "alone"),
    [
        ({"load": 4.5, "gpu_mb": 700}, True),
        ({"load": 5.5}, False),
        ({"load": 1.0, "gpu_mb": 40_000}, False),
        ({}, True),
    ],
    ids=str,
)
def test_a_time_is_taken_alone_if_neither_cores_nor_gpu_serve_others(beside: Any, alone: bool) -> None:
    assert was_alone(result(beside=beside)) is alone
    part = {"encoder": {"fit_seconds": 1.0, "beside": beside}}
    assert was_alone(result(beside={"load": 1.0}, parts=part)) is alone
    assert was_alone(result()) is None, "an earlier version wrote it"


def test_the_highest_load_is_that_of_the_run_or_of_a_part() -> None:
    parts = {"encoder": {"fit_seconds": 1.0, "beside": {"load": 3.5}}, "older": {"fit_seconds": 1.0}}
    assert highest_load(result(beside={"load": 1.0}, parts=parts)) == 3.5
    assert highest_load(result(beside={"load": 4.0}, parts=parts)) == 4.0
    assert highest_load(result(beside={"gpu_mb": 1}, parts=parts)) is None, "the system has no load"
    assert highest_load(result()) is None, "an earlier version wrote it"


def test_what_others_hold_of_a_gpu_is_all_that_is_used_but_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    free, total, ours = 50 << 30, 140 << 30, 20 << 30
    cuda = SimpleNamespace(is_available=lambda: True, mem_get_info=lambda: (free, total), memory_reserved=lambda: ours)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    beside = results.beside()
    assert beside["gpu_mb"] == 70 << 10
    assert was_alone(result(beside=beside)) is False


@pytest.mark.parametrize(
    ("best", "keep", "undone"), [(0, "best", True), (50, "best", False), (0, "last", False), (None, "best", False)]
)
def test_a_training_is_undone_where_the_best_step_came_before_the_first(
    best: int | None, keep: str, undone: bool
) -> None:
    made_from = {"trained steps": 200} | ({} if best is None else {"best step": best})
    system = {"kind": "dense", "options": {"training": {"keep": keep}}}
    assert is_as_it_came(result(made_from=made_from, system=system)) is undone
    part = {"kind": "@encoder", "options": {}, "parts": {"encoder": system}}
    assert is_as_it_came(result(made_from=made_from, system=part)) is undone
    assert not is_as_it_came(result(made_from={"weights": "x"}, system={"kind": "bm25", "options": {}}))
