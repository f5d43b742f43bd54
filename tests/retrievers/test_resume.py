"""`triever fit` is killed again and again; what comes out is what an undisturbed one gives, bit for bit."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from tests.retrievers.contract import DOCUMENTS, QRELS, QUERIES
from triever import Dataset, artifact, load
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


def command(data: Path, out: Path) -> list[str]:
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "triever.cli", "fit", "dense", "--data", str(data), "--out", str(out), *settings]


def weights(model: Path) -> dict[str, np.ndarray]:
    with artifact.read(model) as snapshot:
        return {name: tensor.numpy() for name, tensor in snapshot.tensors("encoder_weights").items()}


def test_a_fit_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", Dataset.of("contract", DOCUMENTS, QUERIES, {"train": QRELS}))
    subprocess.run(command(tmp_path / "data", tmp_path / "whole"), check=True, capture_output=True)
    chance, killed = random.Random(0), 0
    work = tmp_path / "killed.work"
    for _ in range(2):
        process = subprocess.Popen(command(tmp_path / "data", tmp_path / "killed"), stderr=subprocess.DEVNULL)
        before = set(work.rglob("*"))
        while process.poll() is None and set(work.rglob("*")) <= before:
            time.sleep(0.02)  # until it has begun to write: most of a start is imports
        time.sleep(chance.uniform(0.1, 1.0))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed >= 1
    subprocess.run(command(tmp_path / "data", tmp_path / "killed"), check=True, capture_output=True)
    one, two = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert load(tmp_path / "whole").search("tea") == load(tmp_path / "killed").search("tea")
    assert not work.exists()


def test_the_unfinished_work_of_something_else_is_left_alone(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", Dataset.of("contract", DOCUMENTS, QUERIES, {"train": QRELS}))
    (tmp_path / "model.work").mkdir()
    (tmp_path / "model.work" / "thesis.txt").write_text("years of work", encoding="utf-8")
    done = subprocess.run(command(tmp_path / "data", tmp_path / "model"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "model.work holds other files" in done.stderr
    assert (tmp_path / "model.work" / "thesis.txt").exists()


def test_a_fit_that_never_began_leaves_nothing(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", Dataset.of("contract", DOCUMENTS, QUERIES, {"train": QRELS}))
    wrong = [*command(tmp_path / "data", tmp_path / "model"), "--set", "training.split=trian"]
    done = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "did you mean train" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
