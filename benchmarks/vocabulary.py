"""The time and memory that it takes to make a contextual vocabulary: `Contextual` without training.

    TRIEVER_DATA=... python benchmarks/vocabulary.py wiki60k --out benchmarks/vocabulary.json

Each row is a fit: titles are read with their documents or alone, their tokens are clustered, and all titles are written
in the ids of their clusters. `warm` is the same fit again, after the GPU has been used.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import triever
from triever import Contextual, DocidTuning, VocabularyOptions
from triever.lab import results
from triever.terminal import emit, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--documents", type=int, default=0, help="use only this many documents, the first ones")
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    documents = list(triever.load_dataset(words.data).documents())[: words.documents or None]
    data = triever.Dataset.of(words.data, documents, [], {})
    rows = []
    for context, warm in (("document", ""), ("document", "warm"), ("title", "warm")):
        options = VocabularyOptions(context=context)  # ty: ignore[invalid-argument-type]
        results.forget_peaks()
        started = time.perf_counter()
        fitted = Contextual(backbone=words.backbone, training=DocidTuning(steps=0), vocabulary=options).fit(data)
        seconds = time.perf_counter() - started
        made = fitted.in_context()
        row = {"read": context, "run": warm, "documents": len(documents), "title_tokens": len(made.symbols)}
        row |= {"ids": len(made.vocabulary), "seconds": round(seconds, 1), "peak_memory_mb": results.peak_memory_mb()}
        rows.append(row | results.gpu_peak())
        emit(rows[-1])
    emit(table(rows))
    if words.out:
        results.write(words.out, results.benchmark(["python", "benchmarks/vocabulary.py", words.data], rows))


if __name__ == "__main__":
    main()
