"""What is random in a training depends on its seed and on the place in it, never on what ran before.

Every round, step and evaluation begins from a seed of its own. So a resumed training needs no saved
generator states, and one process more or less changes nothing but the dropout of the rows it takes.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator

import numpy as np
import torch

ROUND, STEP, EVALUATION = range(3)


def set_seeds(device: torch.device, seed: int, place: int, number: int, process: int = 0) -> None:
    """Seed Python, NumPy and torch for one place in a training, such as the STEP with this number."""
    low, high = np.random.SeedSequence((seed, place, number, process)).generate_state(2)
    value = int(high) << 32 | int(low)
    random.seed(value)
    np.random.seed(int(low))
    _seed_torch(device, value)


def _seed_torch(device: torch.device, value: int) -> None:
    # Not torch.manual_seed where that can be avoided: it looks for every kind of device, which takes 0.3 to 1 ms,
    # and a step of a small model takes 10.
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
