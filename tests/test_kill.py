"""Many kills at random moments: what is on disk is always the old state or the new one, whole."""

from __future__ import annotations

import multiprocessing
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import triever
from tests.marks import quick
from triever import BM25, Dataset, Document

PERIOD = 6


def documents_after(step: int) -> list[str]:
    """Which documents there are after so many steps of `work`: one more each step, all but one gone in the last."""
    return [f"d{number}" for number in range(1 + step % PERIOD)]


def document(number: int) -> Document:
    return Document(f"d{number}", f"document number {number} " + "with some words " * 200)


def work(path: str, done: Any, begun: Any) -> None:
    """Add, delete and save without end, counting the steps that are finished."""
    with tempfile.TemporaryDirectory() as folder:  # the first steps of a process are its slowest
        for number in (2, 3):
            step(f"{folder}/warm", number)
    begun.value = True
    while True:
        step(path, done.value + 1)
        done.value += 1


def step(path: str, number: int) -> None:
    """From the documents after the step before to those after this one."""
    if number % PERIOD == 0:
        with triever.edit(path) as retriever:
            retriever.delete([f"d{one}" for one in range(1, PERIOD)])
    elif number % 2:
        with triever.edit(path) as retriever:
            retriever.add([document(number % PERIOD)])
    else:
        BM25().fit(Dataset.of("x", [document(one) for one in range(1 + number % PERIOD)])).save(path)


def seconds_for(path: str, steps: int) -> float:
    started = time.perf_counter()
    for number in range(1, steps + 1):
        step(path, number)
    return (time.perf_counter() - started) / steps


@pytest.mark.parametrize("kills", quick(20, of=[20, 100]))
def test_kills_leave_the_old_state_or_the_new_one(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "model"
    BM25().fit(Dataset.of("x", [document(0)])).save(path)
    pace = seconds_for(str(path), PERIOD)  # ends where it began
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.test_kill", "Stemmer", "pyarrow.parquet"])
    done = context.Value("q", 0, lock=False)
    chance = random.Random(7)
    unfinished = 0
    for kill in range(kills):
        if done.value < kill / 3:
            pace *= 1.2  # the machine has become slower than it was when the steps were timed
        begun = context.Value("b", False, lock=False)
        process = context.Process(target=work, args=(str(path), done, begun), daemon=True)
        process.start()
        while not begun.value:
            time.sleep(0.001)
        time.sleep(chance.random() * 2 * pace)
        process.kill()
        process.join()
        retriever = triever.load(path)  # checks every hash
        ids = retriever.documents.ids
        before, after = documents_after(done.value), documents_after(done.value + 1)
        assert ids in (before, after), f"neither the state of step {done.value} nor the next"
        assert len(retriever.search("document words", 10)) == len(ids)
        unfinished += any(path.glob(".writing-*")) or len(list(path.glob("documents-*"))) > 1
        done.value += ids == after  # the commit was made, only the count was lost
    assert done.value > kills / 4, "the kills came before any work was done"
    assert unfinished > kills / 20, "hardly any kill fell into the middle of a save"
