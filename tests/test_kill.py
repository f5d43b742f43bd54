"""Kills at random moments: what is on disk is always the old state or the new one, whole."""

from __future__ import annotations

import multiprocessing
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import triever
from tests.retrievers.contract import DOCUMENTS, QRELS, QUERIES
from tests.retrievers.test_resume import learned, same
from triever import BM25, Dataset, Document
from triever.commands.learn import fit
from triever.data.writers import write_dataset

KILLS = 100
FITS = 60
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


def test_a_hundred_kills_leave_the_old_state_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    BM25().fit(Dataset.of("x", [document(0)])).save(path)
    pace = seconds_for(str(path), PERIOD)  # ends where it began
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.test_kill", "Stemmer", "pyarrow.parquet"])
    done = context.Value("q", 0, lock=False)
    chance = random.Random(7)
    unfinished = 0
    for kill in range(KILLS):
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
    assert done.value > KILLS / 4, "the kills came before any work was done"
    assert unfinished > KILLS / 20, "hardly any kill fell into the middle of a save"


# Fits by the command, with checkpoints in a folder beside the model, which replace a model that is there

SETTINGS = [
    "backbone=scratch:hidden=32,layers=1,heads=2,vocabulary=500",
    "training.steps=30",
    "training.batch=4",
    "training.rounds=3",
    "training.checkpoint_every=2",
    "training.holdout=0.3",
]


def command(folder: str, out: str, seed: int, begun: Any = None) -> None:
    """`triever fit dense --replace`, as it is called by the command line."""
    import torch

    torch.set_num_threads(1)
    data, path = str(Path(folder, "data")), Path(folder, out)
    if begun is not None:
        begun.value = True
    fit("dense", data, path, [*SETTINGS, f"training.seed={seed}"], replace=True)


@pytest.mark.long
def test_fits_that_are_killed_give_what_an_undisturbed_one_gives(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", Dataset.of("contract", DOCUMENTS, QUERIES, {"train": QRELS}))
    for seed in (0, 1):
        started = time.perf_counter()
        command(str(tmp_path), f"whole{seed}", seed)
        pace = time.perf_counter() - started  # of the second: the first has imported things
    whole = [learned(tmp_path / f"whole{seed}") for seed in (0, 1)]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.test_kill", "triever.lab.systems", "triever.retrievers.dense"])
    command(str(tmp_path), "model", 0)
    chance, kills, done, half, seed = random.Random(3), 0, 0, 0, 1
    model, work = tmp_path / "model", tmp_path / "model.work"
    while kills < FITS:
        begun = context.Value("b", False, lock=False)
        process = context.Process(target=command, args=(str(tmp_path), "model", seed, begun), daemon=True)
        process.start()
        while not begun.value:
            time.sleep(0.001)
        process.join(chance.random() * pace)
        process.kill()
        process.join()
        found = learned(model)
        if process.exitcode == 0:
            assert same(found, whole[seed])
            assert not work.exists()
            done, seed = done + 1, 1 - seed
        else:
            assert same(found, whole[0]) or same(found, whole[1]), "neither the old model nor the new one"
            kills, half = kills + 1, half + (work / "training" / "training.json").exists()
    assert done > 3, "hardly any fit came to its end"
    assert half > FITS / 4, "hardly any kill fell into a training"
