"""What a filter costs, at 1, 10 and 50% of 60,000 documents: `TRIEVER_DATA=... python benchmarks/filters.py`.

For each system: the time of a search of all documents, of the first search with a filter, and of later ones. Encoders
are small and untrained, so that it is the search that is measured and not the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import triever
from triever import BM25, DecoderOptions, Dense, DocidTuning, Generative, MultiVector, Tuning
from triever.index.options import IndexOptions
from triever.lab import results

SHARES = (1, 10, 50)
QUESTIONS = 50
ENCODER = "scratch:hidden=64,layers=0,vocabulary=8000"


def systems() -> dict[str, triever.Retriever]:
    """The systems by their names in the table."""
    untrained = {"backbone": ENCODER, "document_length": 64, "training": Tuning(steps=0)}
    dense = Dense(**untrained)
    nodes = {"vectors": dense, "passages": 0, "decoder": DecoderOptions(rows="nodes"), "training": DocidTuning(steps=0)}
    return {
        "bm25": BM25(),
        "dense, flat": dense,
        "dense, hnsw": Dense(**untrained, index=IndexOptions(kind="hnsw")),
        "late interaction": MultiVector(**untrained, size=32),
        "generative, atomic": Generative(**nodes, docids="atomic"),
        "generative, semantic": Generative(**nodes, docids="semantic"),
    }


def main() -> None:
    data = triever.load_dataset("wiki60k")
    documents = [replace(document, metadata={"part": row % 100}) for row, document in enumerate(data.documents())]
    questions = [query.text for query in data.queries("dev.nq")[:QUESTIONS]]
    marked = triever.Dataset.of("wiki60k", documents)
    rows = [row for name, system in systems().items() for row in _measured(name, system.fit(marked), questions)]
    results.write(Path(__file__).with_suffix(".json"), results.benchmark(["python", "benchmarks/filters.py"], rows))


def _measured(name: str, retriever: triever.Retriever, questions: list[str]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    retriever.search_many(questions[:2])  # loads what is loaded once
    unfiltered = median(_seconds(lambda text=text: retriever.search(text)) for text in questions)
    for share in SHARES:
        where = {"part": f"<{share}"}
        first = _seconds(lambda where=where: retriever.search(questions[0], where=where))
        later = median(
            _seconds(lambda text=text, where=where: retriever.search(text, where=where)) for text in questions[1:]
        )
        row = {"system": name, "share": share, "all_ms": unfiltered, "first_ms": first, "later_ms": later}
        rows.append({key: round(1000 * value, 1) if isinstance(value, float) else value for key, value in row.items()})
        print(rows[-1], flush=True)
    return rows


def _seconds(search: Callable[[], object]) -> float:
    begin = time.perf_counter()
    search()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
