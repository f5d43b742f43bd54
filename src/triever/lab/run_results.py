"""What the file of a run of a recipe holds, as far as tables and pages read it."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from triever.evaluation.report import ScoreRecord
from triever.evaluation.seen import SeenScores


class RunReport(TypedDict):
    """The measures of one run on one split, by the label of its cell, as `Report.to_dict` writes them."""

    scores: dict[str, dict[str, ScoreRecord]]
    extra: dict[str, dict[str, float]]
    seen: NotRequired[SeenScores]


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
