"""The estimate against what the system saw, and the refusal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from triever.errors import UsageError
from triever.training import memory_estimate

MEASURE = """
import re, sys, torch
from pathlib import Path
from torch import nn
from triever.training.loop import TrainOptions, train

rows, length, width, layers, optimizer = *map(int, sys.argv[1:5]), sys.argv[5]

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

class Batches:
    def __init__(self, rows): self.rows = rows
    def __len__(self): return 3
    def __getitem__(self, step): return torch.ones(self.rows, length, width)

def model():
    layer = nn.TransformerEncoderLayer(width, width // 32, 4 * width, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

def run(model, rows):
    options = TrainOptions(steps=3, optimizer=optimizer)
    train(model, lambda m, x: {"loss": m(x).square().mean()}, lambda n: Batches(rows), options)

width, kept = 32, width
run(nn.Linear(32, 32), 1)  # what torch needs by itself
width = kept
before = peak()
chosen = model()
run(chosen, rows)
print(peak() - before, sum(parameter.numel() for parameter in chosen.parameters()))
"""

MEASURE_SCORES = """
import re, sys, torch
from pathlib import Path
from triever.models.late_interaction import late_scores
from triever.training.losses import contrastive

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

def run(queries, documents, length, longer):
    asked, held = torch.randn(queries, length, 64), torch.randn(documents, longer, 64)
    masks = torch.ones(queries, length), torch.ones(documents, longer)
    scores = late_scores(asked.requires_grad_(), masks[0], held.requires_grad_(), masks[1], mean=True)
    contrastive(scores, torch.arange(queries)).backward()

run(2, 2, 2, 2)  # what torch needs by itself
before = peak()
run(*map(int, sys.argv[1:]))
print(peak() - before)
"""

SHAPES = [
    pytest.param(16, 64, 256, 4, "adamw", marks=pytest.mark.long),
    pytest.param(32, 128, 256, 4, "adamw", marks=pytest.mark.long),  # mostly activations
    pytest.param(1, 16, 768, 8, "adamw", marks=pytest.mark.long),  # mostly weights
    pytest.param(1, 16, 768, 8, "adafactor", marks=pytest.mark.long),
]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from Linux")
@pytest.mark.parametrize(("rows", "length", "width", "layers", "optimizer"), SHAPES)
def test_the_estimate_is_within_a_factor_of_two(
    rows: int, length: int, width: int, layers: int, optimizer: str
) -> None:
    words = [str(word) for word in (rows, length, width, layers, optimizer)]
    command = [sys.executable, "-c", MEASURE, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    measured, parameters = map(int, done.stdout.split())
    said = memory_estimate.estimate(
        parameters, batch=rows, length=length, d_model=width, layers=layers, heads=width // 32, optimizer=optimizer
    )
    assert said / 2 < measured < said * 2, f"{measured / 2**20:.0f} MiB, not about {said / 2**20:.0f}"


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from Linux")
def test_scores_of_tokens_are_within_a_factor_of_two() -> None:
    command = [sys.executable, "-c", MEASURE_SCORES, "32", "64", "24", "128"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    said = memory_estimate.estimate(0, batch=0, length=0, d_model=0, layers=0, scores=32 * 64 * 24 * 128)
    assert said / 2 < int(done.stdout) < said * 2


def test_what_the_estimate_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_estimate, "SLACK", 1)
    nothing = {"batch": 0, "length": 0, "d_model": 64, "layers": 2}
    assert memory_estimate.estimate(1000, **nothing) == 16 * 1000  # weights, gradients, two moments
    assert memory_estimate.estimate(1000, **nothing, trainable=100) == 4 * 1000 + 12 * 100
    assert memory_estimate.estimate(1000, **nothing, optimizer="adafactor") == 8 * 1000 + 200
    assert memory_estimate.estimate(1000, **nothing, precision="bfloat16") == 18 * 1000
    some = {"batch": 1, "length": 8, "d_model": 64, "layers": 2}
    one = 2 * 8 * (12 * 64 + 4 * 256) * 4
    assert memory_estimate.estimate(0, **some) == one
    assert memory_estimate.estimate(0, **some | {"batch": 5}) == 5 * one
    assert memory_estimate.estimate(0, **some, heads=4) == one + 2 * 4 * 8**2 * 4 * 4
    assert memory_estimate.estimate(0, **some, vocabulary=100) == one + 8 * 100 * 12
    assert memory_estimate.estimate(0, **some, scores=1000) == one + 1000 * 5 * 4


def test_there_is_some_memory() -> None:
    assert 2**26 < memory_estimate.available("cpu") < 2**50


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("4000\n")
    (tmp_path / "memory.stat").write_text("anon 3000\ninactive_file 700\n")
    assert memory_estimate._limits(tmp_path) == [1700]
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_estimate._limits(tmp_path) == [2**63 - 1]


def test_too_little_memory_says_how_much_and_what_to_set() -> None:
    memory_estimate.check(1, "cpu")
    with pytest.raises(UsageError, match=r"fit needs about 1048576.0 GiB of memory on cpu, but .* GiB are free; halve"):
        memory_estimate.check(2**50, "cpu", "fit")


def test_what_is_advised_says_what_it_costs() -> None:
    with pytest.raises(
        UsageError, match=r"double accumulate .* halves the in-batch negatives of a query, .*, or set optimizer"
    ):
        memory_estimate.check(2**50, "cpu")
