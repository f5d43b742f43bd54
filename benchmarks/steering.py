"""What a search finds by how the weight of a prefix is estimated: by the mean of its rows, or by their spread too.

A model whose nodes have rows is searched with several estimates and widths, beside a search that compares every row.

    python benchmarks/steering.py models/mine --data python --split test --widths 20 50 100
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import triever
from triever.engines.nodes import NodeEngine
from triever.lab import results
from triever.lab.bench_search import success
from triever.models.node_rows import Steering
from triever.terminal import emit, table

ESTIMATES = {
    "mean alone": Steering(1.0, 0.0),
    "mean and spread": Steering(1.0, 1.0),
    "mean, sharper": Steering(1.6, 0.0),
    "sharper, and spread": Steering(1.6, 3.0),
}


def measured(engine: NodeEngine, retriever: triever.Retriever, data: triever.Dataset, split: str) -> dict[str, float]:
    """The share of questions with a right document first and among ten, and the share of rows that are read."""
    queries = data.queries(split)
    texts = [query.text for query in queries]
    found = success(queries, engine.search(retriever.documents, texts, 10), data.qrels(split), (1, 10))
    return found | {"rows read": round(engine.compared(texts, 10) * len(retriever) / len(engine.rows), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--widths", type=int, nargs="+", default=[20, 50, 100])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    words = parser.parse_args()
    retriever, data = triever.load(words.model), triever.load_dataset(words.data)
    engine = retriever.engine
    if not isinstance(engine, NodeEngine):
        parser.error(f"the nodes of {words.model} have no rows; fit it with decoder.rows=nodes")
    exact = replace(engine, options=replace(engine.options, method="exact"))
    rows: list[dict[str, Any]] = [
        {"estimate": "every row compared", "width": "", **measured(exact, retriever, data, words.split)}
    ]
    for width in words.widths:
        for name, steering in ESTIMATES.items():
            searched = replace(engine, steering=steering, options=replace(engine.options, width=width))
            rows.append({"estimate": name, "width": width, **measured(searched, retriever, data, words.split)})
    emit(table(rows))
    results.write(words.out, results.benchmark(["python", "benchmarks/steering.py", *sys.argv[1:]], rows))


if __name__ == "__main__":
    main()
