"""Speed of the server on this machine: requests a second, p50 and p99, with batching and without, and its memory.

Each model is served by two processes at once, one that batches and one that does not, which are asked in turn. The last
row of a model asks a server with a short queue for more than it can do: its memory should stay as it is.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from triever import artifact, config
from triever.config import option
from triever.data.datasets import load_dataset
from triever.errors import ServerError, UsageError
from triever.progress import track
from triever.remote import connect
from triever.retrievers.bm25 import BM25
from triever.serve.defaults import saved_folders
from triever.serve.load import MOST_CONNECTIONS, MOST_SECONDS, Load, generate

Row: TypeAlias = dict[str, str | float]
START = 120.0
"""Seconds in which a server has to be ready."""


@dataclass(frozen=True)
class ServeBenchOptions:
    """What is measured, and for how long."""

    connections: tuple[int, ...] = option((1, 8, 64, 512), "how many connections ask at the same time")
    seconds: float = option(1.5, "seconds of each measurement")
    k: int = option(10, "hits for a query")
    window: float = option(2.0, "milliseconds that a query waits for others, where batching is on")
    most: int = option(64, "queries that are searched together at most, where batching is on")
    queue: int = option(64, "queries that may wait while memory is measured")
    memory_seconds: float = option(4.0, "seconds for which memory is watched at the queue's limit; 0 leaves that out")

    def __post_init__(self) -> None:
        config.validate(self)
        if not self.connections or not all(0 < number <= MOST_CONNECTIONS for number in self.connections):
            raise UsageError(f"connections = {self.connections} does not fit", f"from 1 to {MOST_CONNECTIONS}")
        if not 0 < self.seconds <= MOST_SECONDS or not 0 <= self.memory_seconds <= MOST_SECONDS:
            raise UsageError("the seconds of a measurement do not fit", f"give at most {MOST_SECONDS:.0f}")


def bench_serve(models: Mapping[str, str], queries: Sequence[str], options: ServeBenchOptions) -> list[Row]:
    """A row for each model, number of connections, and with or without batching."""
    if not queries:
        raise UsageError("there are no questions to ask", "name a split with queries")
    for folder in models.values():  # a wrong path is told before anything starts
        with artifact.read(folder, check=False):
            pass
    with ExitStack() as stack:
        folders = models or stack.enter_context(_usual())
        rows = []
        for name, folder in track([*folders.items()], "measuring", unit="models"):
            rows += _rows(name, folder, queries, options)
        return rows


@contextmanager
def _usual() -> Generator[dict[str, str]]:
    """BM25 on the default corpus in a folder of its own, and what the quickstart has saved."""
    with tempfile.TemporaryDirectory(prefix="triever-bench-") as folder:
        BM25().fit(load_dataset("python")).save(Path(folder) / "bm25")
        yield {"bm25": f"{folder}/bm25", **{name: str(path) for name, path in saved_folders().items()}}


def _rows(name: str, folder: str, queries: Sequence[str], options: ServeBenchOptions) -> list[Row]:
    rows: list[Row] = []
    with _server(name, folder, options.window, options.most) as on, _server(name, folder, 0, 1) as off:
        for server in (on, off):  # not counted: the first requests prepare things
            _measured(server, name, queries, options, 1, min(options.seconds, 0.3))
        for connections in options.connections:
            loads = [_measured(server, name, queries, options, connections, options.seconds) for server in (on, off)]
            ratio = loads[0].rate / loads[1].rate if loads[1].rate else float("nan")
            rows.append(_row(name, "on", connections, loads[0]) | {"ratio": round(ratio, 2)})
            rows.append(_row(name, "off", connections, loads[1]) | {"ratio": ""})
    return [*rows, _memory_row(name, folder, queries, options)] if options.memory_seconds else rows


def _row(name: str, batching: str, connections: int, load: Load) -> Row:
    other = sum(number for status, number in load.statuses.items() if status != 200)
    row: Row = {"model": name, "batching": batching, "connections": connections}
    row |= {"requests_per_second": round(load.rate, 1), "p50_ms": round(load.percentile(50), 2)}
    return row | {"p99_ms": round(load.percentile(99), 2), "refused": other}


def _memory_row(name: str, folder: str, queries: Sequence[str], options: ServeBenchOptions) -> Row:
    """Memory of a server whose queue is full: after a first part of the load, and at the end of it."""
    most = max(*options.connections, 2 * options.queue)
    with _server(name, folder, options.window, options.most, options.queue) as server:
        first = _measured(server, name, queries, options, most, options.memory_seconds / 2)
        before = _resident(server.process)
        second = _measured(server, name, queries, options, most, options.memory_seconds / 2)
        after = _resident(server.process)
    load = Load(first.seconds + second.seconds, first.statuses + second.statuses, first.duration + second.duration)
    row = _row(name, f"on, queue of {options.queue}", most, load) | {"ratio": ""}
    return row | {"memory_mb": round(before, 1), "memory_after_mb": round(after, 1)}


@dataclass(frozen=True)
class _Server:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    port: int


@contextmanager
def _server(name: str, folder: str, window: float, most: int, queue: int = 4096) -> Generator[_Server]:
    """A server of one model, on a port that was free; it ends with the block."""
    settings = (
        f"window={window}",
        f"most={most}",
        f"queue={queue}",
        f"queries={min(queue, 256)}",
        "log=none",
        "deadline=60",
    )
    words = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "triever.cli", "serve", f"{name}={folder}", "--port", "0", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        port = _port(process)
        connect(f"http://127.0.0.1:{port}/{name}", timeout=START)
        yield _Server(process, port)
    finally:
        process.terminate()
        process.wait()
        if process.stderr:
            process.stderr.close()


def _port(process: subprocess.Popen[str]) -> int:
    """The port that a server says it listens on."""
    said = ""
    for line in process.stderr or ():
        said = line.strip() or said
        if found := re.search(r"listening on http://[\d.]+:(\d+)", line):
            return int(found[1])
    raise ServerError(f"the server did not start: {said}", "start it by hand: triever serve")


def _measured(
    server: _Server, name: str, queries: Sequence[str], options: ServeBenchOptions, connections: int, seconds: float
) -> Load:
    load = asyncio.run(generate(server.port, name, queries, options.k, connections, seconds))
    time.sleep(0.05)  # until the server has seen that they left
    return load


def _resident(process: subprocess.Popen[str]) -> float:
    """Megabytes that a process has in memory; no number where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    except (OSError, ValueError):
        return float("nan")
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
