"""The server on Ray Serve beside the plain one: `python benchmarks/ray_serve.py benchmarks/ray_serve.json`.

Needs triever[ray-serve]. Serves BM25 on the documentation of Python by `triever serve` and by `triever serve --on ray`,
each with one process that answers and with two: how long it takes to start, how much memory its processes have, and how
fast it answers over 1, 8 and 64 connections. All are asked in turn, so that other work meets all of them.
Then another artifact is rolled out on two replicas while eight connections ask, and every request that is not answered
with 200 is counted. All of it is on 127.0.0.1.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import triever
from triever import BM25
from triever.serve.load import Load, generate

CONNECTIONS, SECONDS, ROUNDS, WARM, K = (1, 8, 64), 2.0, 5, 2.0, 10
CLIENTS, PART, AFTER = 8, 2.0, 100
NAME = "docs"
SERVERS = {
    "plain": (),
    "plain, 2 workers": ("--workers", "2"),
    "ray, 1 replica": ("--on", "ray"),
    "ray, 2 replicas": ("--on", "ray", "--workers", "2"),
}


@dataclass(frozen=True)
class Server:
    """A server in processes of its own."""

    process: subprocess.Popen[str]
    said: list[str]
    words: Sequence[str]

    @property
    def port(self) -> int:
        return int(re.findall(r"listening on http://127\.0\.0\.1:(\d+)", "".join(self.said))[0])


def main() -> None:
    out = Path(sys.argv[1])
    data = triever.load_dataset("python")
    queries = [query.text for query in data.queries("test")]
    facts: dict[str, Any] = {"data": "python", "system": "bm25", "processors": os.cpu_count()}
    facts |= {"machine": platform.machine(), "threads": os.environ.get("OMP_NUM_THREADS", "")}
    facts["load at the start"] = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        old, new = Path(place) / "old", Path(place) / "new"
        documents = [*data.documents()]
        BM25().fit(triever.Dataset.of("old", documents[:-1])).save(old)
        BM25().fit(triever.Dataset.of("new", documents)).save(new)
        facts["documents"] = len(documents)
        servers: dict[str, Server] = {}
        for name, words in SERVERS.items():
            begun = time.perf_counter()
            servers[name] = stack.enter_context(server(old, *words))
            while status(servers[name].port, "/readyz") != 200:
                time.sleep(0.05)
            facts[name] = {"start, s": round(time.perf_counter() - begun, 1)}
            facts[name]["start, processor s"] = round(processor_seconds(servers[name].process.pid), 1)
            loaded(servers[name].port, queries, 8, WARM)
            facts[name]["memory, MiB"] = mebibytes(servers[name].process.pid)
        for connections in CONNECTIONS:
            for name, row in asked_in_turn(servers, queries, connections).items():
                facts[name][f"{connections} connections"] = row
        facts["rollout"] = rolled_out(new, servers["ray, 2 replicas"], queries)
    out.write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


def asked_in_turn(servers: Mapping[str, Server], queries: list[str], connections: int) -> dict[str, dict[str, float]]:
    """All servers, one after the other, some times over: for each its best round, and the processor time of all."""
    rounds: dict[str, list[Load]] = {name: [] for name in servers}
    spent = dict.fromkeys(servers, 0.0)
    for _ in range(ROUNDS):
        for name, own in servers.items():
            before = processor_seconds(own.process.pid)
            rounds[name].append(loaded(own.port, queries, connections, SECONDS))
            spent[name] += processor_seconds(own.process.pid) - before
    rows = {}
    for name, loads in rounds.items():
        best = max(loads, key=lambda load: load.rate)
        answered = sum(len(load.seconds) for load in loads)
        rows[name] = {"requests a second": round(best.rate), "p50, ms": round(best.percentile(50), 1)}
        rows[name] |= {"p99, ms": round(best.percentile(99), 1)}
        rows[name]["processor ms a request"] = round(1000 * spent[name] / answered, 2)
        rows[name]["not 200"] = sum(failures(load.statuses) for load in loads)
    return rows


def rolled_out(new: Path, own: Server, queries: list[str]) -> dict[str, Any]:
    """Ask a server all the time while a second command rolls an artifact out."""
    port, pid = own.port, own.process.pid
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
    settings = re.findall(r"to roll out other folders: (\S+) (\S+) ", "".join(own.said))[0]
    environment = os.environ | dict(setting.split("=", 1) for setting in settings)
    begun = time.perf_counter()
    subprocess.run(command(new, *own.words), env=environment, check=True, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - begun
    answers = Counter(snapshot(port, query) for query in queries[:AFTER])
    time.sleep(2 * PART)
    done.set()
    asking.join()
    together = Load(
        [seconds for load in loads for seconds in load.seconds],
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
def server(folder: Path, *words: str) -> Iterator[Server]:
    """A server, once it listens; it ends with the block."""
    process = subprocess.Popen([*command(folder, *words), "--port", "0"], stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    last = "to roll out" if "ray" in words else "listening on"
    for line in process.stderr or ():
        said.append(line)
        if last in line:
            break
    threading.Thread(target=lambda: [*(process.stderr or ())], daemon=True).start()
    try:
        yield Server(process, said, words)
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
    total = 0
    for number in family(root):
        with suppress(OSError):
            text = Path(f"/proc/{number}/smaps_rollup").read_text()
            total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total // 1024


def processor_seconds(root: int) -> float:
    """How long a process and all below it have computed."""
    total = 0
    for number in family(root):
        with suppress(OSError):
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))  # its own, and that of children that have ended
    return total / os.sysconf("SC_CLK_TCK")


def family(root: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    numbers, waiting = [], [root]
    while waiting:
        numbers.append(waiting.pop())
        waiting += children.get(numbers[-1], ())
    return numbers


if __name__ == "__main__":
    main()
