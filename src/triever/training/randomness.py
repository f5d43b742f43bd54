"""Seeds for everything random in a training: they depend on its seed and the step, never on what ran before.

Every round, step and evaluation begins from a seed of its own. So a resumed training needs no saved generator states,
and one process more or less changes only the dropout of the rows that it takes.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator

import numpy as np
import torch

ROUND, STEP, EVALUATION = range(3)


def set_seeds(device: torch.device, seed: int, kind: int, number: int, process: int = 0) -> None:
    """Seed Python, NumPy and torch for one part of a training: the ROUND, STEP or EVALUATION with this number."""
    low, high = np.random.SeedSequence((seed, kind, number, process)).generate_state(2)
    value = int(high) << 32 | int(low)
    random.seed(value)
    np.random.seed(int(low))
    _seed_torch(device, value)


def _seed_torch(device: torch.device, value: int) -> None:
    # torch.manual_seed is avoided where possible: it looks for every kind of device, which takes 0.3 to 1 ms, while a
    # step of a small model takes 10 ms.
    if device.type not in ("cpu", "cuda"):
        torch.manual_seed(value)
        return
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        torch.cuda.manual_seed(value)


@contextlib.contextmanager
def restored(device: torch.device) -> Generator[None]:
    """Leave the caller's generators as they were: Python's, NumPy's, torch's and those of the device."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
