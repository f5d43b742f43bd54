"""Changed artifacts of every kind, signed again or not: one sentence or a valid answer, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import make_artifacts as golden


def fuzz(count: int, seed: int, root: Path) -> None:
    """In a process of its own, whose memory is known and whose hooks nobody else has."""
    command = [sys.executable, "-m", "tests.artifact_fuzz", str(count), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=1500)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_changed_artifacts_are_refused_or_right(root: Path) -> None:
    fuzz(2 * (len(golden.RETRIEVERS) + 1), 0, root)


@pytest.mark.long
def test_a_thousand_changed_artifacts_are_refused_or_right(root: Path) -> None:
    fuzz(1000, 100, root)
