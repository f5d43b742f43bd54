"""What Ray costs and gives on one machine: `python benchmarks/ray_cost.py DATA benchmarks/ray.json`, with triever[ray].

Encodes all documents of a dataset in this process and by two workers of Ray, of which one is killed in the middle, and
compares the bytes. Searches the same documents whole, in two shards in this process, and in two shards on Ray.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import triever
from triever import BM25, Dense
from triever.models.encoder import encode

ENCODER, LENGTH, SOME = "scratch:hidden=32,layers=1,heads=2,vocabulary=2000,positions=64", 32, 2000
QUERIES = 100


def main() -> None:
    name, out = sys.argv[1], Path(sys.argv[2])
    data = triever.load_dataset(name)
    queries = [
        document.title or document.text[:60] for _, document in zip(range(QUERIES), data.documents(), strict=False)
    ]
    facts: dict[str, Any] = {"data": name, "processors": os.cpu_count(), "machine": platform.machine()}
    facts["load at the start"] = round(os.getloadavg()[0], 1)
    facts["encoder"], facts["threads"] = ENCODER, os.environ.get("OMP_NUM_THREADS", "")

    documents = [*data.documents()]
    facts["documents"] = len(documents)
    # An encoder that has learned nothing takes its tokenizer from a few documents, and makes vectors as any other.
    small = Dense(backbone=ENCODER, document_length=LENGTH).fit(triever.Dataset.of("some", documents[:SOME]))
    encoder = small.engine.encoder
    tokens = small.reading.documents(encoder, documents)
    facts["tokens"] = len(tokens.flat)
    vectors, facts["encoding here, s"] = timed(lambda: encode(encoder, tokens))

    started, facts["import and start of Ray, s"] = timed(start)
    facts["Ray when idle, MiB"] = mebibytes(started)
    from triever.integrations.ray import RayWorkers
    from triever.models.elsewhere import elsewhere

    with tempfile.TemporaryDirectory() as place:
        folder, killed, most = Path(place) / "encoding", [], [0]
        watch = threading.Thread(target=kill_one, args=(folder, killed, most, started), daemon=True)
        watch.start()

        def by_workers() -> np.ndarray:
            with elsewhere(RayWorkers(folder, workers=2)):
                return encode(encoder, tokens)

        mine, facts["encoding on Ray, 2 workers, one killed, s"] = timed(by_workers)
        facts["workers killed"], facts["Ray when encoding, MiB"] = len(killed), most[0]
        facts["the same bytes"] = mine.tobytes() == vectors.tobytes()
        out.write_text(json.dumps(facts, indent=1) + "\n")
        facts["bm25"] = searches(BM25().fit(data), Path(place) / "bm25", queries, started)
    out.write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.perf_counter()
    made = work()
    return made, round(time.perf_counter() - begun, 1)


def start() -> float:
    from triever.integrations.ray import started

    now = time.time()
    started()
    return now


def searches(whole: Any, folder: Path, queries: list[str], started: float) -> dict[str, Any]:
    """Milliseconds a query, the median, and whether all find the same."""
    whole.save(folder, shards=2)
    here = triever.load(folder)
    before = mebibytes(started)
    there, seconds = timed(lambda: triever.load(folder, on="ray"))
    facts: dict[str, Any] = {"opening on Ray, s": seconds}
    found = {}
    for name, retriever in (("whole", whole), ("2 shards here", here), ("2 shards on Ray", there)):
        retriever.search(queries[0])
        times = []
        found[name] = []
        for query in queries:
            begun = time.perf_counter()
            result = retriever.search(query)
            times.append(1000 * (time.perf_counter() - begun))
            found[name].append([hit.id for hit in result])
        facts[f"{name}, ms a query"] = round(statistics.median(times), 2)
    facts["processes of the shards, MiB"] = mebibytes(started) - before
    equal = [sum(own == other for own, other in zip(found["whole"], ids, strict=True)) for ids in found.values()]
    facts["queries with the same first ten"] = dict(zip(found, equal, strict=True))
    return facts


def processes(started: float) -> list[tuple[int, str]]:
    """The processes of Ray that this user has, with their names."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if path.stat().st_mtime >= started - 60 and ("ray::" in words or "/ray/" in words):
                found.append((int(path.name), words))
        except OSError:
            continue
    return found


def mebibytes(started: float) -> int:
    """What processes of Ray have in memory that they share with nobody, and their part of what they share."""
    total = 0
    for number, _ in processes(started):
        try:
            text = Path(f"/proc/{number}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total // 1024


def kill_one(folder: Path, killed: list[int], most: list[int], started: float) -> None:
    """Kill a worker when some blocks are made."""
    while True:
        made = len([*folder.glob("encoding-*/*.npz")])
        workers = [
            number for number, words in processes(started) if words.startswith("ray::") and "BlockWorker" in words
        ]
        if workers:
            most[0] = max(most[0], mebibytes(started))
        if made >= 10 and workers and not killed:
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])
        time.sleep(0.5)


if __name__ == "__main__":
    main()
