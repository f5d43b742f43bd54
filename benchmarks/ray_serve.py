"""The server on Ray Serve beside the plain one: `python benchmarks/ray_serve.py benchmarks/ray_serve.json`.

Needs triever[ray-serve]. Serves BM25 on the documentation of Python, by `triever serve` and by `triever serve --on ray`
with one replica and with two: how long each takes to start, how much memory its processes have, and how fast it
answers over 1, 8 and 64 connections. Then another artifact is rolled out on the two replicas while eight connections
ask, and every request that is not answered with 200 is counted. All of it is on 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import triever
from triever import BM25
from triever.serve.load import Load, generate

CONNECTIONS, SECONDS, WARM, K = (1, 8, 64), 5.0, 2.0, 10
CLIENTS, PART, AFTER = 8, 2.0, 100
NAME = "docs"


def main() -> None:
    out = Path(sys.argv[1])
    data = triever.load_dataset("python")
    queries = [query.text for query in data.queries("test")]
    facts: dict[str, Any] = {"data": "python", "system": "bm25", "processors": os.cpu_count()}
    facts |= {"machine": platform.machine(), "threads": os.environ.get("OMP_NUM_THREADS", "")}
    facts["load at the start"] = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as place:
        old, new = Path(place) / "old", Path(place) / "new"
        documents = [*data.documents()]
        BM25().fit(triever.Dataset.of("old", documents[:-1])).save(old)
        BM25().fit(triever.Dataset.of("new", documents)).save(new)
        facts["documents"] = len(documents)
        facts["plain"] = with_server(old, queries)
        facts["ray, 1 replica"] = with_server(old, queries, "--on", "ray")
        facts["ray, 2 replicas"] = with_server(old, queries, "--on", "ray", "--workers", "2", roll_out=new)
    out.write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


def with_server(folder: Path, queries: list[str], *words: str, roll_out: Path | None = None) -> dict[str, Any]:
    begun = time.perf_counter()
    with server(folder, *words) as (process, said):
        port = int(re.findall(r"listening on http://127\.0\.0\.1:(\d+)", "".join(said))[0])
        while status(port, "/readyz") != 200:
            time.sleep(0.05)
        facts: dict[str, Any] = {"start, s": round(time.perf_counter() - begun, 1)}
        loaded(port, queries, 1, WARM)
        facts["memory, MiB"] = mebibytes(process.pid)
        for connections in CONNECTIONS:
            load = loaded(port, queries, connections, SECONDS)
            row = {"requests a second": round(load.rate), "p50, ms": round(load.percentile(50), 1)}
            row |= {"p99, ms": round(load.percentile(99), 1), "not 200": failures(load.statuses)}
            facts[f"{connections} connections"] = row
        if roll_out:
            facts["rollout"] = rolled_out(roll_out, port, queries, process.pid, said, words)
    return facts


def rolled_out(
    new: Path, port: int, queries: list[str], pid: int, said: list[str], words: tuple[str, ...]
) -> dict[str, Any]:
    """Have other processes ask while a second command rolls an artifact out."""
    before, loads, most, done = snapshot(port, queries[0]), [], [0], threading.Event()
    broken: list[str] = []

    def ask() -> None:
        while not done.is_set():
            try:
                loads.append(loaded(port, queries, CLIENTS, PART))
            except (OSError, EOFError) as error:  # a connection that was closed before its answer
                broken.append(repr(error))
            most[0] = max(most[0], mebibytes(pid))

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(2 * PART)
    settings = re.findall(r"to roll out other folders: (\S+) (\S+) ", "".join(said))[0]
    environment = os.environ | dict(setting.split("=", 1) for setting in settings)
    begun = time.perf_counter()
    subprocess.run(command(new, *words), env=environment, check=True, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - begun
    answers = Counter(snapshot(port, query) for query in queries[:AFTER])
    time.sleep(2 * PART)
    done.set()
    asking.join()
    together = Load(
        [own for load in loads for own in load.seconds],
        sum((load.statuses for load in loads), Counter()),
        sum(load.duration for load in loads),
    )
    return {
        "the command, s": round(seconds, 1),
        "requests": together.statuses.total() + len(broken),
        "failed requests": failures(together.statuses) + len(broken),
        "requests a second": round(together.rate),
        "p50, ms": round(together.percentile(50), 1),
        "p99, ms": round(together.percentile(99), 1),
        "slowest, ms": round(together.percentile(100), 1),
        "most memory, MiB": most[0],
        "answers afterwards": answers.total(),
        "of the new artifact": answers.total() - answers[before],
    }


def failures(statuses: Mapping[int, int]) -> int:
    return sum(number for code, number in statuses.items() if code != 200)


def loaded(port: int, queries: list[str], connections: int, seconds: float) -> Load:
    return asyncio.run(generate(port, NAME, queries, K, connections, seconds))


@contextmanager
def server(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A server in processes of its own, once it listens, and what it has said; it ends with the block."""
    process = subprocess.Popen([*command(folder, *words), "--port", "0"], stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    last = "to roll out" if "ray" in words else "listening on"
    for line in process.stderr or ():
        said.append(line)
        if last in line:
            break
    threading.Thread(target=lambda: [*(process.stderr or ())], daemon=True).start()
    try:
        yield process, said
    finally:
        process.terminate()
        process.wait()


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "triever.cli", "serve", f"{NAME}={folder}", "--set", "log=none", *words]


def status(port: int, path: str) -> int:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status
    except HTTPError as error:
        return error.code
    except URLError:
        return 0


def snapshot(port: int, query: str) -> str:
    body = json.dumps({"query": query, "k": 1}).encode()
    request = Request(f"http://127.0.0.1:{port}/v1/search", body, {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        return json.load(answer)["snapshot"]


def mebibytes(root: int) -> int:
    """What a process and all below it have in memory, shared pages by their part."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    total, waiting = 0, [root]
    while waiting:
        number = waiting.pop()
        waiting += children.get(number, ())
        try:
            text = Path(f"/proc/{number}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total // 1024


if __name__ == "__main__":
    main()
