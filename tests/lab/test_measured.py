"""Every figure of the table is what its file says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from triever.lab import measured
from triever.lab.measured import SPEEDS, Figure, Speed, Texts


def figures(value: object) -> Iterator[Figure]:
    """All figures in a value of the module."""
    if isinstance(value, Figure):
        yield value
    elif isinstance(value, Speed):
        yield from (figure for figure in (value.per_second, value.index) if figure)
    elif isinstance(value, dict | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from figures(inner)


def looked_up(value: Any, keys: tuple[str, ...]) -> float:
    """The number at the end of keys; rows of a benchmark are found by their system."""
    for key in keys:
        if isinstance(value, list):
            [value] = [row for row in value if row["system"] == key]
        elif key in value:
            value = value[key]
        else:
            return sum(value[part] for part in key.split("+"))
    return value


EVERY = list(dict.fromkeys(figure for value in vars(measured).values() for figure in figures(value)))


@pytest.mark.parametrize("figure", EVERY, ids=lambda figure: f"{figure.file}:{figure.keys[-1]}")
def test_a_figure_is_what_its_file_says(root: Path, figure: Figure) -> None:
    number = looked_up(json.loads((root / figure.file).read_bytes()), figure.keys)
    assert figure.value == pytest.approx(number, abs=5e-5), "it was measured anew: correct triever/lab/measured.py"


@pytest.mark.parametrize("texts", [measured.PYTHON, measured.WIKI, measured.SQUAD], ids=lambda texts: texts.system)
def test_the_lengths_of_texts_are_those_of_the_benchmark(root: Path, texts: Texts) -> None:
    rows = json.loads((root / measured.LENGTHS).read_bytes())["rows"]
    assert dataclasses.asdict(texts) in rows


def test_speeds_were_measured_on_so_many_documents_and_on_such_a_machine(root: Path) -> None:
    for (system, gpu), speeds in SPEEDS.items():
        assert list(speeds) == sorted(speeds, key=lambda speed: speed.documents)
        for speed in speeds:
            result = json.loads((root / speed.per_second.file).read_bytes())
            machine = result["hardware"]
            assert machine.get("gpu", "") == (measured.GPU if gpu else ""), system
            assert gpu or machine["cores"] == measured.CORES
            if "documents" in result:
                assert result["documents"] == speed.documents


def test_there_are_many_figures() -> None:
    assert len(EVERY) > 40
