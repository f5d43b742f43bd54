"""Changed artifacts of every kind, signed again or not: one sentence or a valid answer, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import make_artifacts as golden
from tests.warm import run_code

# Both fuzz in a process of their own, whose memory is known and whose hooks nobody else has.


@pytest.mark.long
def test_changed_artifacts_are_refused_or_right() -> None:
    count = 2 * (len(golden.RETRIEVERS) + 1)
    done = run_code("from tests.artifact_fuzz import main; main()", count)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.long
def test_a_thousand_changed_artifacts_are_refused_or_right(root: Path) -> None:
    command = [sys.executable, "-m", "tests.artifact_fuzz", "1000", "--seed", "100"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=1500)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
