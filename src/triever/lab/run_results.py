"""What the file of a run of a recipe holds, as far as tables and pages read it."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, TypedDict

import numpy as np

from triever.evaluation.report import ScoreRecord
from triever.evaluation.seen import SeenScores


class Packed(TypedDict):
    """What a run has for each question, in the order of their ids: runs can be compared question by question."""

    questions: str  # a digest of the ids
    values: dict[str, str]  # by measure


class RunReport(TypedDict):
    """The measures of one run on one split, by the label of its cell, as `Report.to_dict` writes them."""

    scores: dict[str, dict[str, ScoreRecord]]
    extra: dict[str, dict[str, float]]
    queries: NotRequired[int]  # how many
    seen: NotRequired[SeenScores]
    each: NotRequired[Packed]  # files of earlier versions lack it


class Machine(TypedDict):
    """The machine that something was measured on."""

    processor: str
    cores: int | None
    gpu: NotRequired[str]
    system: str


class Beside(TypedDict, total=False):
    """What else a machine was doing when something was measured."""

    load: float  # how many processes ran or waited for a core in the last minute, this one among them
    gpu_mb: int  # memory of the GPU that other processes held


class Spent(TypedDict, total=False):
    """How long the part of a run took when it was made, and the parts of that part."""

    fit_seconds: float
    parts: dict[str, Spent]
    beside: Beside


class RunResult(TypedDict, total=False):
    """What the file of a run holds, as far as tables read it. A run that failed has a `problem` and no reports."""

    cell: str
    seed: int
    definition: str
    problem: str
    reports: dict[str, RunReport]
    data: dict[str, str]
    system: dict[str, Any]
    made_from: dict[str, Any]
    documents: int
    memory: dict[str, int]
    fit_seconds: float  # of the system alone; its parts have theirs
    parts: dict[str, Spent]
    seconds: float
    hardware: Machine
    beside: Beside  # files of earlier versions lack it


def packed(values: Mapping[str, Mapping[str, float]], measures: Iterable[str]) -> Packed:
    """The values of some measures, which have the same questions, as a file holds them: to three digits or so."""
    kept = {measure: values[measure] for measure in measures if measure in values}
    ids = sorted(next(iter(kept.values()), {}))
    columns = {measure: [each[name] for name in ids] for measure, each in kept.items()}
    return {
        "questions": hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16],
        "values": {measure: _text_of(np.array(column, "<f2")) for measure, column in columns.items()},
    }


def unpacked(text: str) -> np.ndarray:
    """(questions,) the values that a file holds; a ValueError if they were changed."""
    try:
        return np.frombuffer(zlib.decompress(base64.urlsafe_b64decode(text)), "<f2").astype(np.float64)
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _text_of(values: np.ndarray) -> str:
    # Without slashes: what stands behind one would be taken for a path of the machine, which no result keeps.
    return base64.urlsafe_b64encode(zlib.compress(values.tobytes(), 9)).decode()
