"""What a command costs before it does its work, and what it costs to read 520 files with MiniLM.

    python benchmarks/startup.py --before CHECKOUT

Every figure is that of fresh processes: the median of five, of one for the files. `seconds` is what a person waits, and
`cpu` what the processors worked; on a busy machine only the second tells something. `--before` names a checkout of an
older version, such as `git worktree add CHECKOUT 2836ee3~1`, which is measured in turns with this one. MiniLM's weights
have to be there: `triever weights install minilm`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import torch

import triever
from triever import BM25, Dense, DocidTuning, Generative
from triever.lab import results
from triever.models.backbones import load_backbone
from triever.models.encoder import BATCH_TOKENS
from triever.models.tokens import by_length

HERE = Path(__file__).resolve().parents[1]
REPEATS = 5
DOCUMENTS = 100
FILES, WORDS = 520, (150, 300)
QUERY = "merge several sorted lists into one"
IMPORTS = {
    "python": "pass",
    "import torch": "import torch",
    "import torch, transformers": "import torch; from transformers import AutoConfig, AutoModel, BertModel",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how long commands take to start.")
    parser.add_argument("--before", type=Path, help="a checkout of an older version, to compare with")
    before = parser.parse_args().before
    checkouts = {**({"before": before.resolve()} if before else {}), "after": HERE}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        rows = [*_started(folder, checkouts), *_imported(folder)]
        encoding = _encoding(folder, checkouts)
    words = ["python", "benchmarks/startup.py", *(["--before", "CHECKOUT"] if before else [])]
    results.write(Path(__file__).with_suffix(".json"), {**results.benchmark(words, rows), "encoding": encoding})


def _started(folder: Path, checkouts: Mapping[str, Path]) -> list[dict[str, object]]:
    """Help, and a search with each of three small models."""
    data = triever.Dataset.of("python", list(triever.load_dataset("python").documents())[:DOCUMENTS])
    systems = {"bm25": BM25(), "dense": Dense(), "generative": Generative(training=DocidTuning(steps=0))}
    commands = {"triever --help": ["--help"]}
    for name, system in systems.items():
        system.fit(data).save(folder / name)
        commands[f"triever search, {name}"] = ["--quiet", "search", name, QUERY]
    return [_compared(what, folder, checkouts, words) for what, words in commands.items()]


def _compared(what: str, folder: Path, checkouts: Mapping[str, Path], words: Sequence[str]) -> dict[str, object]:
    """One command with every checkout, in turns, after a run that fills the caches."""
    times: dict[str, list[tuple[float, float]]] = {version: [] for version in checkouts}
    for turn in range(REPEATS + 1):
        for version, checkout in checkouts.items():
            spent = _spent(folder, ["-m", "triever.cli", *words], checkout)
            times[version] += [spent] if turn else []
    return _row(what, **times)


def _imported(folder: Path) -> list[dict[str, object]]:
    """What the libraries take that commands import."""
    times = {what: [_spent(folder, ["-c", code]) for _ in range(REPEATS)] for what, code in IMPORTS.items()}
    return [_row(what, after=spent) for what, spent in times.items()]


def _encoding(folder: Path, checkouts: Mapping[str, Path]) -> dict[str, object]:
    """What `triever fit dense` takes for some hundred files, beside what their multiplications alone take."""
    tokens = _write_files(folder / "files")
    gigaflop, rate = _gigaflop(tokens), _matrix_rate()
    padded = sum(len(rows) * int(tokens[rows].max()) for rows in by_length(tokens, tokens=BATCH_TOKENS["cpu"]))
    row: dict[str, object] = {"files": FILES, "tokens": int(tokens.sum()), "padded": padded}
    row |= {"gigaflop": round(gigaflop), "gigaflop_per_second": round(rate, 1)}
    row["cpu_of_products"] = round(gigaflop / rate, 1)
    for version, checkout in checkouts.items():
        words = ["--quiet", "fit", "dense", "--data", "files", "--out", f"fitted-{version}"]
        seconds, cpu = _spent(folder, ["-m", "triever.cli", *words], checkout)
        row[version] = {"seconds": round(seconds, 1), "cpu": round(cpu, 1)}
    print(row, flush=True)
    return row


def _write_files(folder: Path) -> np.ndarray:
    """Write files of entries of the default corpus; returns how many tokens of each MiniLM reads."""
    folder.mkdir()
    words = [word for document in triever.load_dataset("python").documents() for word in document.text.split()]
    chance, at, texts = np.random.default_rng(0), 0, []
    for number in range(FILES):
        size = int(chance.integers(*WORDS))
        texts.append(f"Note {number}\n{' '.join(words[at : at + size])}\n")
        (folder / f"{number}.txt").write_text(texts[-1], encoding="utf-8")
        at = (at + size) % (len(words) - WORDS[1])
    ids = load_backbone("minilm").tokenizer.ids(texts, Dense().document_length)
    return np.array([len(text) for text in ids])


def _gigaflop(tokens: np.ndarray) -> float:
    """The multiplications and additions of MiniLM's matrices and of its attention for texts of these lengths."""
    hidden, inner, layers = 384, 1536, 6
    matrices = tokens * (4 * hidden * hidden + 2 * hidden * inner)
    attention = 2 * tokens * tokens * hidden
    return float(2 * layers * (matrices + attention).sum() / 1e9)


def _matrix_rate() -> float:
    """How many gigaflop a second one core reaches with the largest matrices of MiniLM."""
    torch.set_num_threads(1)
    states, weights = torch.randn(8192, 384), torch.randn(384, 1536)
    times = []
    for _ in range(REPEATS + 1):
        begin = time.process_time()
        states @ weights
        times.append(time.process_time() - begin)
    return 2 * 8192 * 384 * 1536 / min(times) / 1e9


def _spent(folder: Path, words: Sequence[str], checkout: Path = HERE) -> tuple[float, float]:
    """The seconds that a person waits for a fresh process, and those that processors work for it."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "PYTHONDONTWRITEBYTECODE": ""}
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)  # it has been waited for, and not by Popen
    if process.returncode:
        raise SystemExit(f"{words} ended with {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime


def _row(what: str, **times: Sequence[tuple[float, float]]) -> dict[str, object]:
    row: dict[str, object] = {"what": what}
    for version, spent in times.items():
        seconds, cpu = (median(column) for column in zip(*spent, strict=True))
        row[version] = {"seconds": round(seconds, 2), "cpu": round(cpu, 2)}
    print(row, flush=True)
    return row


if __name__ == "__main__":
    main()
