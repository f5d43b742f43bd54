"""What it costs to bring a retriever to a folder of which ten files changed: `python benchmarks/sync.py`.

10,000 files are written to a temporary folder, fitted, and ten of them changed. Times are those of the steps of a sync
once the process has started; bytes are those of the files that were written. The encoder is small and untrained: what
is measured is not the reading of ten texts by a model.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import triever
from triever import BM25, Dense, Tuning
from triever.lab import results
from triever.sync import Plan

FILES, CHANGED, WORDS = 10_000, 10, 120


def main() -> None:
    dense = Dense(backbone="scratch:hidden=64,layers=0,vocabulary=2000", document_length=64, training=Tuning(steps=0))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "files"
        _write(folder)
        rows = [_measured(folder, Path(made), name, system) for name, system in (("bm25", BM25()), ("dense", dense))]
    results.write(Path(__file__).with_suffix(".json"), results.benchmark(["python", "benchmarks/sync.py"], rows))


def _write(folder: Path) -> None:
    chance = random.Random(0)
    vocabulary = [f"word{number}" for number in range(5000)]
    for number in range(FILES):
        file = folder / f"{number % 100:02}" / f"{number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# Note {number}\n{' '.join(chance.choices(vocabulary, k=WORDS))}.\n")


def _measured(folder: Path, beside: Path, name: str, system: triever.Retriever) -> dict[str, object]:
    model = beside / name
    system.fit(triever.load_dataset(folder)).save(model)
    for number in range(CHANGED):
        file = folder / f"{number:02}" / f"{number}.md"
        file.write_text(f"{file.read_text()}Changed for {name}.\n")
    before = {file: file.stat().st_ino for file in model.iterdir()}
    times = [time.perf_counter()]
    with triever.edit(model) as retriever:
        times.append(time.perf_counter())
        documents = list(triever.load_dataset(folder).documents())
        times.append(time.perf_counter())
        plan = Plan.of(retriever.documents, documents)
        times.append(time.perf_counter())
        plan.carry_out(retriever)
        times.append(time.perf_counter())
    times.append(time.perf_counter())
    assert (len(plan.replaced), plan.unchanged) == (CHANGED, FILES - CHANGED)
    steps = ("open", "read_files", "compare", "change", "save")
    spent = {step: round(end - begin, 2) for step, begin, end in zip(steps, times, times[1:], strict=False)}
    written = sum(file.stat().st_size for file in model.iterdir() if before.get(file) != file.stat().st_ino)
    held = sum(file.stat().st_size for file in model.iterdir())
    row = {"system": name, **spent, "seconds": round(times[-1] - times[0], 2), "written": written, "held": held}
    print(row, flush=True)
    return row


if __name__ == "__main__":
    main()
