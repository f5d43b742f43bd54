"""The memory of a process that opens a saved retriever and searches it.

Run it as `python -m triever.evaluation.process_memory MODEL`.

A process of its own, so that nothing else is counted. It opens the model twice: the second time no library is loaded
any more, and what is added is the model's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from triever.data.store import DocumentStore
from triever.errors import ArtifactError, UsageError
from triever.retriever import Retriever, load

STATUS = Path("/proc/self/status")
FIELDS = {"memory": "RssAnon", "mapped": "RssFile", "most": "VmHWM"}
"""Linux's names for the memory of a process, its pages of files, and its peak of both."""
LETTERS = 200
"""How many letters of a document make the question."""


def opened(path: str | Path) -> dict[str, dict[str, int]]:
    """The bytes that a process holds at its start, after opening a model, after a search, and after both again."""
    if not STATUS.exists():
        raise UsageError("--open works on Linux only", "leave --open out")
    command = [sys.executable, "-m", "triever.evaluation.process_memory", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it was killed"])[-1]
        problem = f"{path} cannot be opened and searched by a new process: {reason}"
        raise ArtifactError(problem, f"check it with: triever status {path}")
    return json.loads(done.stdout)


def measured(path: str | Path) -> dict[str, dict[str, int]]:
    """The same for this process."""
    sizes, kept = {"begun": resident()}, []
    for opened_, searched in (("opened", "searched"), ("opened again", "searched again")):
        kept.append(load(path))
        sizes[opened_] = resident()
        _search(kept[-1])
        sizes[searched] = resident()
    return sizes


def _search(retriever: Retriever) -> None:
    retriever.search(_question(retriever.documents))


def _question(store: DocumentStore) -> str:
    """A question that some document answers: the beginning of the first one."""
    first = next(iter(store), None)
    return (first.title or first.text)[:LETTERS] if first else ""


def resident() -> dict[str, int]:
    """The bytes that this process holds, and the most that it has held."""
    _give_back()
    text = STATUS.read_text(encoding="ascii")
    return {name: 1024 * int(re.search(rf"{field}:\s+(\d+)", text)[1]) for name, field in FIELDS.items()}  # ty: ignore[not-subscriptable]


def _give_back() -> None:
    """Return freed memory to the system: libraries keep it for later, and it should not be counted."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # a C library without malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured(sys.argv[1])))
