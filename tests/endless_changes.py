"""Changes of a saved retriever without end, for a process that is killed."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import triever
from triever import BM25, Dataset, Document

PERIOD = 6


def documents_after(step: int) -> list[str]:
    """Which documents there are after so many steps: one more each step, all but one gone in the last."""
    return [f"d{number}" for number in range(1 + step % PERIOD)]


def document(number: int) -> Document:
    return Document(f"d{number}", f"document number {number} " + "with some words " * 200)


def counts(path: Path) -> np.ndarray:
    """How many steps are finished, and whether a process has begun; the file is shared by all who open it."""
    return np.memmap(path, np.int64, "r+" if path.exists() else "w+", shape=(2,))


def step(path: Path, number: int) -> None:
    """From the documents after the step before to those after this one."""
    if number % PERIOD == 0:
        with triever.edit(path) as retriever:
            retriever.delete([f"d{one}" for one in range(1, PERIOD)])
    elif number % 2:
        with triever.edit(path) as retriever:
            retriever.add([document(number % PERIOD)])
    else:
        BM25().fit(Dataset.of("x", [document(one) for one in range(1 + number % PERIOD)])).save(path)


def main() -> None:
    """Add, delete and save, and count the steps that are finished; it ends with the process that has begun it."""
    path, done, parent = Path(sys.argv[1]), counts(Path(sys.argv[2])), os.getppid()
    with tempfile.TemporaryDirectory() as folder:  # the first steps of a process are its slowest
        for number in (2, 3):
            step(Path(folder, "warm"), number)
    done[1] = True
    while os.getppid() == parent:
        step(path, int(done[0]) + 1)
        done[0] += 1
