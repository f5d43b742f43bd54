"""Memory and speed of `triever data info` on a corpus of a million documents.

The usual way is measured in the same run: every record is read into one dict, as BEIR's loader does.
The numbers go to benchmarks/streaming.json.

    python benchmarks/streaming.py [--documents 1000000]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

WORDS = [f"word{number}" for number in range(50_000)]


def make_corpus(path: Path, documents: int) -> None:
    """About 100 words a document, drawn so that a few words are frequent and most are rare."""
    chance = random.Random(0)
    pool = [WORDS[int(chance.paretovariate(0.6)) % len(WORDS)] for _ in range(1_000_000)]
    with path.open("w", encoding="utf-8") as file:
        for number in range(documents):
            start = chance.randrange(len(pool) - 100)
            record = {
                "_id": f"d{number}",
                "title": f"Title {number}",
                "text": " ".join(pool[start : start + 100]),
            }
            file.write(json.dumps(record) + "\n")


def stream(folder: str) -> int:
    from triever.data.datasets import info, load_dataset

    return info(load_dataset(folder))["documents"]


def read_into_a_dict(folder: str) -> int:
    corpus = {}
    with open(os.path.join(folder, "corpus.jsonl"), encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            corpus[record["_id"]] = {"title": record["title"], "text": record["text"]}
    return len(corpus)


def child(job: Callable[[str], int], folder: str, queue: multiprocessing.Queue) -> None:
    started = time.perf_counter()
    documents = job(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    queue.put({"documents": documents, "seconds": round(time.perf_counter() - started, 1), "peak_mb": round(peak)})


def measure(job: Callable[[str], int], folder: str) -> dict[str, float]:
    """Run the job in a separate process, so that the peak of memory is that of the job."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(job, folder, queue))
    process.start()
    measured = queue.get()
    process.join()
    return measured


def measure_both(documents: int) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.jsonl"
        make_corpus(corpus, documents)
        size = {"corpus_mb": round(corpus.stat().st_size / 2**20)}
        jobs = {"triever data info": stream, "all in a dict": read_into_a_dict}
        return {name: {**size, **measure(job, folder)} for name, job in jobs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=1_000_000)
    documents = parser.parse_args().documents
    sizes = {count: measure_both(count) for count in (documents // 4, documents)}
    for rows in sizes.values():
        for name, row in rows.items():
            print(f"{name:20} {row['documents']:>9,} documents {row['seconds']:>7} s {row['peak_mb']:>6} MB")
        ours, usual = rows.values()
        print(f"{'memory ratio':20} {usual['peak_mb'] / ours['peak_mb']:.1f}")
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    result = {
        "hardware": machine,
        "rows": [{"name": name, **row} for rows in sizes.values() for name, row in rows.items()],
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
