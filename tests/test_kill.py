"""A hundred kills at random moments: what is on disk is always the old state or the new one, whole."""

from __future__ import annotations

import multiprocessing
import random
import time
from pathlib import Path

import triever
from triever import BM25, Dataset, Document

KILLS = 100
PERIOD = 6


def documents_after(step: int) -> list[str]:
    """Which documents there are after so many steps of `work`: one more each step, all but one gone in the last."""
    return [f"d{number}" for number in range(1 + step % PERIOD)]


def document(number: int) -> Document:
    return Document(f"d{number}", f"document number {number} " + "with some words " * 200)


def work(path: str, done: multiprocessing.Value) -> None:  # ty: ignore[invalid-type-form]
    """Add, delete and save without end, counting the steps that are finished."""
    while True:
        step = done.value + 1
        if step % PERIOD == 0:
            with triever.edit(path) as retriever:
                retriever.delete([f"d{number}" for number in range(1, PERIOD)])
        elif step % 2:
            with triever.edit(path) as retriever:
                retriever.add([document(step % PERIOD)])
        else:
            BM25().fit(Dataset.of("x", [document(number) for number in range(1 + step % PERIOD)])).save(path)
        done.value = step


def test_a_hundred_kills_leave_the_old_state_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    BM25().fit(Dataset.of("x", [document(0)])).save(path)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["triever", "tests.test_kill", "bm25s", "Stemmer", "pyarrow.parquet"])
    done = context.Value("q", 0, lock=False)
    chance = random.Random(7)
    seen_old = 0
    for _ in range(KILLS):
        process = context.Process(target=work, args=(str(path), done), daemon=True)
        process.start()
        time.sleep(0.02 + chance.random() * 0.15)
        process.kill()
        process.join()
        retriever = triever.load(path)  # checks every hash
        ids = retriever.documents.ids
        before, after = documents_after(done.value), documents_after(done.value + 1)
        assert ids in (before, after), f"neither the state of step {done.value} nor the next"
        assert len(retriever.search("document words", 10)) == len(ids)
        seen_old += ids == before
        done.value += ids == after  # the commit was made, only the count was lost
    assert done.value > KILLS / 2, "the kills came before any work was done"
    assert seen_old > 0, "no kill ever fell inside a step"
