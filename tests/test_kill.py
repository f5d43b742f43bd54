"""Many kills at random moments: what is on disk is always the old state or the new one, whole."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import triever
from tests.endless_changes import PERIOD, counts, document, documents_after, step
from tests.marks import quick
from tests.warm import ROOT, Begun
from triever import BM25, Dataset

WORK = "from tests.endless_changes import main; main()"


def seconds_for(path: Path, steps: int) -> float:
    started = time.perf_counter()
    for number in range(1, steps + 1):
        step(path, number)
    return (time.perf_counter() - started) / steps


@pytest.mark.parametrize("kills", quick(20, of=[20, 100]))
def test_kills_leave_the_old_state_or_the_new_one(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "model"
    BM25().fit(Dataset.of("x", [document(0)])).save(path)
    pace = seconds_for(path, PERIOD)  # ends where it began
    done = counts(tmp_path / "done")
    chance = random.Random(7)
    unfinished = 0
    for kill in range(kills):
        if done[0] < kill / 3:
            pace *= 1.2  # the machine has become slower than it was when the steps were timed
        done[1] = False
        process = Begun([WORK, path, tmp_path / "done"], ROOT, code=True)
        while not done[1]:
            assert process.running()
            time.sleep(0.001)
        time.sleep(chance.random() * 2 * pace)
        process.kill()
        process.wait()
        retriever = triever.load(path)  # checks every hash
        ids = retriever.documents.ids
        before, after = documents_after(done[0]), documents_after(done[0] + 1)
        assert ids in (before, after), f"neither the state of step {done[0]} nor the next"
        assert len(retriever.search("document words", 10)) == len(ids)
        unfinished += any(path.glob(".writing-*")) or len(list(path.glob("documents_letters-*"))) > 1
        done[0] += ids == after  # the commit was made, only the count was lost
    assert done[0] > kills / 4, "the kills came before any work was done"
    assert unfinished > kills / 20, "hardly any kill fell into the middle of a save"
