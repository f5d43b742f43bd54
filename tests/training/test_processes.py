"""Several processes train as one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.marks import quick
from tests.training.toys import shared_training
from tests.warm import Begun
from triever.errors import UsageError
from triever.training.processes import first_row, gathered, own_rows


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def launch(root: Path, folder: Path) -> None:
    """Train in two processes, by torchrun, as `accelerate launch --multi_gpu` does it.

    Without GPUs that command starts one process only. Nobody tells it that there are none: it has to find out.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    command += ["--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    run([*command, "-m", "tests.training.toys", str(folder)], root)


def begin_both(root: Path, folder: Path) -> None:
    """Train in two processes that are told what torchrun tells its own; these need not import anything first."""
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    code = "import sys; from pathlib import Path; from tests.training.toys import shared_training\n"
    code += "shared_training(Path(sys.argv[1]))"
    both = []
    for rank in ("0", "1"):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **shared, "RANK": rank, "LOCAL_RANK": rank}
        with (folder / f"errors-{rank}").open("w") as errors:
            both.append(Begun([code, folder], root, environment, errors=errors.fileno(), code=True))
    for rank, process in enumerate(both):
        assert process.wait() == 0, (folder / f"errors-{rank}").read_text()[-3000:]


def run(command: list[str], root: Path, **more: str) -> None:
    """Run a command where no GPU is seen."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **more}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]


def curve(folder: Path) -> list[tuple[int, float, float]]:
    lines = [json.loads(line) for line in (folder / "folder" / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"], line["parts"]["accuracy"]) for line in lines if "loss" in line]


@pytest.mark.parametrize("start", quick(begin_both, of=[begin_both, launch]))
def test_two_processes_train_as_one(start: Callable[[Path, Path], None], root: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    alone = shared_training(one)
    start(root, two)
    together = [json.loads((two / f"weights-{rank}-of-2.json").read_text()) for rank in (0, 1)]
    assert len(curve(one)) == 8
    for first, second in zip(curve(one), curve(two), strict=True):
        assert first == pytest.approx(second, abs=1e-5)
    assert together[0] == together[1], "the processes have gone apart"
    for name, part in together[0].items():
        torch.testing.assert_close(torch.tensor(part), torch.tensor(alone[name]), atol=1e-5, rtol=0)


@pytest.mark.long
def test_a_rank_that_something_else_has_set_does_not_matter(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.training.toys", str(tmp_path)]
    run(command, root, RANK="3", WORLD_SIZE="4")
    assert (tmp_path / "weights-0-of-1.json").exists()


def test_each_process_takes_its_block_of_every_tensor() -> None:
    batch = {"queries": torch.arange(4), "deep": ([torch.arange(8).view(8, 1)], "text"), "whole": torch.tensor(7)}
    part = own_rows(batch, 1, 2)
    assert part["queries"].tolist() == [2, 3]
    assert part["deep"][0][0].flatten().tolist() == [4, 5, 6, 7]
    assert part["deep"][1] == "text"
    assert part["whole"] == 7


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(UsageError, match="5 rows cannot be shared evenly by 2 processes; make every batch a multiple"):
        own_rows((torch.zeros(5, 2),), 0, 2)


def test_one_process_gathers_nothing() -> None:
    tensor = torch.ones(3, requires_grad=True)
    assert gathered(tensor) is tensor
    assert first_row(3) == 0
