"""`triever fit` is killed again and again; what comes out is what an undisturbed one gives, bit for bit."""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.marks import quick
from tests.retrievers.contract import DOCUMENTS, QRELS, QUERIES
from tests.warm import Begun, run
from triever import Dataset, artifact, load
from triever.commands.learn import fit
from triever.data.writers import write_dataset

SETTINGS = {
    "backbone": "scratch:hidden=32,layers=1,heads=2,vocabulary=500",
    "training.steps": 60,
    "training.batch": 4,
    "training.rounds": 3,
    "training.checkpoint_every": 2,
    "training.holdout": 0.3,
    "negatives.count": 1,
    "negatives.source": "model",
}
CLUSTERS = {"docids.clusters": 4, "matching.rule": "loglinear", "matching.fit": "true"}
SYSTEMS: dict[str, tuple[str, dict]] = {
    "dense": ("dense", {}),
    "gdr": ("gdr", CLUSTERS),
    "gdr joint": ("gdr", {**CLUSTERS, "joint": "true"}),
}


def command(data: Path, out: Path, system: str = "dense") -> list[str]:
    kind, own = SYSTEMS[system]
    settings = [word for key, value in (SETTINGS | own).items() for word in ("--set", f"{key}={value}")]
    return ["fit", kind, "--data", str(data), "--out", str(out), *settings]


def learned(model: Path) -> dict[str, np.ndarray]:
    """All weights of a saved retriever, and the vectors of its documents."""
    with artifact.read(model) as snapshot:
        roles = [role for role in snapshot.manifest.files if role.endswith("_weights")]
        found = {f"{role} {name}": one.numpy() for role in roles for name, one in snapshot.tensors(role).items()}
        vectors = next(role for role in ("vectors_main", "trie_vectors") if snapshot.has(role))
        return {**found, "vectors": np.array(snapshot.array(vectors))}


def same(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> bool:
    """Whether two retrievers have learned the same, bit for bit."""
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def killed(fit: list[str], work: Path, chance: random.Random) -> int:
    """Begin a fit, kill it soon after another of its checkpoints, and give the step at which its folder stands."""
    process, before = Begun(fit), step_of(work)
    while process.running() and step_of(work) <= before:
        time.sleep(0.01)
    time.sleep(chance.uniform(0.0, 0.2))
    process.kill()
    assert process.wait() == 128 + signal.SIGKILL, "it was over before it could be killed"
    return step_of(work)


def step_of(work: Path) -> int:
    state = work / "training" / "training.json"
    return json.loads(state.read_bytes())["standing"]["step"] if state.exists() else 0


@pytest.mark.parametrize("system", quick(of=SYSTEMS))
def test_a_fit_that_is_killed_goes_on_where_it_was(tmp_path: Path, system: str) -> None:
    write_dataset(tmp_path / "data", Dataset.of("contract", DOCUMENTS, QUERIES, {"train": QRELS}))
    whole = command(tmp_path / "data", tmp_path / "whole", system)
    run(whole).check_returncode()
    fit, work = command(tmp_path / "data", tmp_path / "killed", system), tmp_path / "killed.work"
    chance = random.Random(0)
    stood = [killed(fit, work, chance) for _ in range(2 if system == "dense" else 1)]
    assert 0 < stood[0] <= stood[-1] < SETTINGS["training.steps"], "in the middle"
    run(fit).check_returncode()
    assert same(learned(tmp_path / "whole"), learned(tmp_path / "killed"))
    assert load(tmp_path / "whole").search("tea") == load(tmp_path / "killed").search("tea")
    assert not work.exists()


KILLS = 20
OPENED = [
    "triever.lab.systems",
    "triever.retrievers.dense",
    "transformers.models.bert.modeling_bert",
    "pyarrow.parquet",
    "tokenizers",
    "scipy.optimize",
    "psutil",
]
SHORT = {**SETTINGS, "training.steps": 16, "negatives.source": "bm25"}


def replacing(folder: str, out: str, seed: int, begun: Any = None) -> None:
    """What `triever fit dense --replace` does; `begun` is told when the slow imports are over."""
    for name in OPENED:
        with contextlib.suppress(ModuleNotFoundError):  # not every platform has all of them
            importlib.import_module(name)
    torch.set_num_threads(1)
    if begun is not None:
        begun.value = True
    settings = [f"{key}={value}" for key, value in {**SHORT, "training.seed": seed}.items()]
    fit("dense", str(Path(folder, "data")), Path(folder, out), settings, replace=True)


@pytest.mark.long
def test_twenty_kills_of_fits_that_replace_a_model(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", Dataset.of("contract", DOCUMENTS, QUERIES, {"train": QRELS}))
    started = time.perf_counter()
    for seed in (0, 1):
        replacing(str(tmp_path), f"whole{seed}", seed)
    pace = (time.perf_counter() - started) / 2
    whole = [learned(tmp_path / f"whole{seed}") for seed in (0, 1)]
    replacing(str(tmp_path), "model", 0)
    model, work = tmp_path / "model", tmp_path / "model.work"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.retrievers.test_resume", *OPENED])
    chance, kills, done, half, seed = random.Random(3), 0, 0, 0, 1
    while kills < KILLS or not done:
        begun = context.Value("b", False, lock=False)
        process = context.Process(target=replacing, args=(str(tmp_path), "model", seed, begun), daemon=True)
        process.start()
        while not begun.value:
            time.sleep(0.001)
        process.join(chance.random() * pace)
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), "it was refused"
        found = learned(model)
        assert same(found, whole[seed]) or same(found, whole[1 - seed]), "neither the old model nor the new one"
        if process.exitcode == 0:
            assert same(found, whole[seed])
            assert not work.exists()
            done, seed = done + 1, 1 - seed
        else:
            kills, half = kills + 1, half + (step_of(work) > 0)
        if done < kills / 8:
            pace *= 1.2  # the machine has become slower
    assert half, "no kill fell into a training"


@pytest.mark.long
def test_the_unfinished_work_of_something_else_is_left_alone(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", Dataset.of("contract", DOCUMENTS, QUERIES, {"train": QRELS}))
    (tmp_path / "model.work").mkdir()
    (tmp_path / "model.work" / "thesis.txt").write_text("years of work", encoding="utf-8")
    words = command(tmp_path / "data", tmp_path / "model")
    done = run(words)
    assert done.returncode == 2
    assert "model.work holds thesis.txt, which Triever does not write there" in done.stderr
    assert (tmp_path / "model.work" / "thesis.txt").exists()


def test_a_fit_that_never_began_leaves_nothing(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", Dataset.of("contract", DOCUMENTS, QUERIES, {"train": QRELS}))
    wrong = [*command(tmp_path / "data", tmp_path / "model"), "--set", "training.split=trian"]
    done = run(wrong)
    assert done.returncode == 2
    assert "did you mean train" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
