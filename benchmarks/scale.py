"""What large corpora take on one machine: fit, save, load and search of generated documents; tries of random docids.

    python benchmarks/scale.py bm25 5000000
    python benchmarks/scale.py titles 5000000
    python benchmarks/scale.py ivfpq 1000000
    python benchmarks/scale.py trie 100000000

Every step runs in a process of its own, so that its peak is its own. `memory_mb` is the peak of what the system cannot
drop (anonymous memory, looked at 20 times a second), `with_files_mb` that of all resident pages, those of mapped files
too, of which the system drops what it needs. A run adds its rows to benchmarks/scale.json in place of earlier rows of
the same name and size; `--folder` is where generated data and models lie meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import triever
from triever import BM25, Dense, DocidTuning, Generative, Title, artifact
from triever.docids.trie import Paths, Trie
from triever.docids.trie_pieces import GrowingPaths
from triever.evaluation.process_memory import STATUS
from triever.index.options import IndexOptions
from triever.lab import results
from triever.terminal import emit, table

WORDS, TITLE, TEXT = 200_000, 4, 12
QUERIES = 200
LENGTH, WIDTH = 6, 256
SCRATCH = "scratch:hidden=64,layers=1,heads=2,vocabulary=2000"
BLOCK, TRIE_BLOCK = 100_000, 2**19
SYSTEMS: dict[str, Callable[[], triever.Retriever]] = {
    "bm25": BM25,
    "titles": lambda: Generative(docids=Title(), backbone=SCRATCH, training=DocidTuning(steps=0)),
    "dense": lambda: Dense(backbone=SCRATCH),
    "ivfpq": lambda: Dense(backbone=SCRATCH, index=IndexOptions(kind="ivfpq")),
}


# --- what is generated ----------------------------------------------------------------------------------------


def language() -> list[str]:
    """Words that can be spoken, all different."""
    syllables = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
    return ["".join(parts) for parts in itertools.islice(itertools.product(syllables, repeat=3), WORDS)]


def drawn(count: int, seed: int = 0) -> Iterator[list[str]]:
    """The words of so many documents; a word is as rare as its number is large, as in texts that people write."""
    words, chance = np.array(language(), object), np.random.default_rng(seed)
    for first in range(0, count, BLOCK):
        rows = min(BLOCK, count - first)
        numbers = np.exp(chance.random((rows, TITLE + TEXT)) * np.log(WORDS)).astype(np.int64) - 1
        yield from words[numbers].tolist()


def write_corpus(path: Path, count: int) -> None:
    """A file with a document in each line."""
    with path.open("w", encoding="utf-8") as file:
        for number, words in enumerate(drawn(count)):
            title, text = " ".join(words[:TITLE]), " ".join(words[TITLE:])
            file.write(f'{{"_id": "d{number}", "title": "{title}", "text": "{text}"}}\n')


def queries() -> list[str]:
    """Questions of two words of a title and two of the text, of the first documents."""
    return [" ".join((words[0], words[1], words[-2], words[-1])) for words in itertools.islice(drawn(BLOCK), QUERIES)]


# --- steps ----------------------------------------------------------------------------------------------------


def fit(system: str, count: int, folder: Path) -> dict[str, Any]:
    """Fit a retriever to the corpus, and save it."""
    data = triever.load_dataset(folder / f"corpus-{count}.jsonl")
    with watched() as seen:
        started = time.perf_counter()
        retriever = SYSTEMS[system]().fit(data)
        fitted = time.perf_counter()
        retriever.save(folder / "model")
    times = {"fit_s": round(fitted - started, 1), "save_s": round(time.perf_counter() - fitted, 1)}
    size = artifact.read(folder / "model", check=False).manifest.bytes
    return {**times, **seen, "bytes": size, "bytes_a_document": round(size / count, 1)}


def search(_system: str, _count: int, folder: Path) -> dict[str, Any]:
    """Load the retriever, and search it."""
    asked = queries()
    with watched() as seen:
        started = time.perf_counter()
        retriever = triever.load(folder / "model")
        loaded = time.perf_counter()
        retriever.search(asked[0])
        first = time.perf_counter()
        found = [retriever.search(query) for query in asked]
        each = (time.perf_counter() - first) / len(asked)
        titles = [result[0].title for result in found if result.hits]
    times = {"load_s": loaded - started, "first_search_s": first - loaded, "search_ms": 1000 * each}
    own = sum(f"d{at}" in [hit.id for hit in result] for at, result in enumerate(found))
    rounded = {name: round(seconds, 2) for name, seconds in times.items()}
    return {**rounded, **seen, "searches": len(asked), "own_document_in_ten": own, "named": len(titles)}


def trie(_system: str, count: int, folder: Path) -> dict[str, Any]:
    """Build the trie of random docids in pieces, with its files in an artifact, and open it."""
    with watched() as seen:
        grown = GrowingPaths(folder, np.uint8)
        for block in random_docids(count):
            grown.append(block)
        started = time.perf_counter()
        arrays = grown.trie()
        built = time.perf_counter()
        with artifact.writing(folder / "trie") as writer:
            Trie.whole(arrays).write(writer)
            writer.commit("trie", {}, {}, "benchmark")
        saved = time.perf_counter()
    with artifact.read(folder / "trie") as snapshot:
        opened = Trie.read(snapshot, WIDTH, np.arange(count))
    times = {"build_s": built - started, "save_s": saved - built, "open_s": time.perf_counter() - saved}
    sizes = {"bytes": opened.bytes, "bytes_a_docid": round(opened.bytes / count, 2)}
    return {**{name: round(seconds, 1) for name, seconds in times.items()}, **seen, **sizes}


def random_docids(count: int) -> Iterator[Paths]:
    """Docids of random symbols, in blocks."""
    chance = np.random.default_rng(0)
    for first in range(0, count, TRIE_BLOCK):
        rows = min(TRIE_BLOCK, count - first)
        flat = chance.integers(0, WIDTH, LENGTH * rows, np.uint8)
        yield Paths(flat, LENGTH * np.arange(rows + 1), np.arange(first, first + rows))


STEPS: dict[str, tuple[Callable[[str, int, Path], dict[str, Any]], ...]] = {
    **dict.fromkeys(SYSTEMS, (fit, search)),
    "trie": (trie,),
}


@contextmanager
def watched() -> Iterator[dict[str, int]]:
    """The peak of this process's memory meanwhile, filled in at the end."""
    seen: dict[str, int] = {}
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            most[0] = max(most[0], _status("RssAnon"))

    thread = threading.Thread(target=look)
    thread.start()
    yield seen
    ended.set()
    thread.join()
    seen["memory_mb"], seen["with_files_mb"] = round(most[0] / 2**20), round(_status("VmHWM") / 2**20)


def _status(field: str) -> int:
    line = re.search(rf"{field}:\s+(\d+)", STATUS.read_text(encoding="ascii"))
    return 1024 * int(line[1]) if line else 0


# --- runs -----------------------------------------------------------------------------------------------------


def run(name: str, count: int, folder: Path) -> list[dict[str, Any]]:
    """A row for each step, each from a process of its own."""
    if name in SYSTEMS and not (corpus := folder / f"corpus-{count}.jsonl").exists():
        write_corpus(corpus, count)
    rows, made_with = [], results.surroundings()
    for step in STEPS[name]:
        command = [sys.executable, __file__, name, str(count), "--step", step.__name__, "--folder", str(folder)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append({"name": name, "step": step.__name__, "count": count, **json.loads(done.stdout), **made_with})
        emit(table([{key: value for key, value in rows[-1].items() if key not in made_with}]))
    return rows


def keep(rows: list[dict[str, Any]]) -> None:
    """Put rows into the file of results, in place of earlier ones."""
    path = Path(__file__).with_suffix(".json")
    before = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    new = {(row["name"], row["step"], row["count"]) for row in rows}
    kept = [row for row in before if (row["name"], row["step"], row["count"]) not in new]
    both = sorted([*kept, *rows], key=lambda row: (row["name"], row["count"], row["step"]))
    about = "Generated documents of 4 words of a title and 12 of a text; other work went on beside it."
    results.write(path, {"command": "python benchmarks/scale.py NAME COUNT", "about": about, "rows": both})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=STEPS)
    parser.add_argument("count", type=int)
    parser.add_argument("--step", choices=["fit", "search", "trie"], help="only this one, in this process")
    parser.add_argument("--folder", type=Path, help="where files lie meanwhile; by default a temporary one")
    words = parser.parse_args()
    if words.step:
        sys.stdout.write(
            json.dumps({"fit": fit, "search": search, "trie": trie}[words.step](words.name, words.count, words.folder))
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        keep(run(words.name, words.count, words.folder or Path(folder)))


if __name__ == "__main__":
    main()
