"""Success of GDR by the number of clusters, and by the share of vectors that a search compares.

    TRIEVER_DATA=... python benchmarks/clusters.py nq-gold --split dev --out benchmarks/clusters.json

No model is trained: the rows of docids are the centroids of clusters, so that a beam looks into the nearest clusters,
as an inverted file does. Training improves that choice, but only among the clusters that there are.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import triever
from triever import GDR, Cluster, Dataset, Dense, DocidTuning
from triever.lab import results
from triever.lab.bench_search import success
from triever.retriever import Retriever
from triever.terminal import emit, table

DEPTH = 100


def success_of(retriever: Retriever, data: Dataset, split: str, limit: int) -> dict[str, float]:
    queries = data.queries(split)[:limit]
    return success(queries, retriever.search_many(queries, DEPTH), data.qrels(split), (1, 10, DEPTH))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--split", default="test")
    parser.add_argument("--most", type=int, default=1000, help="use only this many questions, the first ones")
    parser.add_argument("--clusters", type=int, nargs="+", default=[100, 250, 1000, 2500])
    parser.add_argument("--margins", type=float, nargs="+", default=[0.0, 0.1])
    parser.add_argument(
        "--shares", type=float, nargs="+", default=[0.03, 0.1, 0.2], help="rough shares of all vectors to compare"
    )
    parser.add_argument(
        "--alphas", type=float, nargs="+", default=[0.0, 0.01, 1.0], help="weights of clusters in the score"
    )
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    data = triever.load_dataset(words.data)
    texts = [query.text for query in data.queries(words.split)[: words.most]]
    dense = Dense(backbone=words.backbone).fit(data)
    whole = {"clusters": "", "margin": "", "width": "", "vectors": len(dense), "compared": 1.0, "alpha": ""}
    rows: list[dict[str, Any]] = [whole | success_of(dense, data, words.split, words.most)]
    emit(rows[-1])
    for clusters in words.clusters:
        for margin in words.margins:
            scheme = Cluster(clusters=clusters, margin=margin)
            model = GDR(vectors=dense, docids=scheme, training=DocidTuning(steps=0)).fit(data)
            vectors = len(model.engine.docids.trie)  # a document in several clusters has its vector in each
            for share in words.shares:
                width = max(1, round(share * clusters * len(model) / vectors))
                row = {"clusters": clusters, "margin": margin, "width": width, "vectors": vectors}
                search = model.searching(width=width)
                row["compared"] = round(search.compared(texts, DEPTH), 4)
                for alpha in words.alphas:
                    ranked = search.searched_with({"matching": {"alpha": alpha}})
                    rows.append(row | {"alpha": alpha} | success_of(ranked, data, words.split, words.most))
                    emit(rows[-1])
    emit(table(rows))
    if words.out:
        results.write(words.out, results.benchmark(["python", "benchmarks/clusters.py", *sys.argv[1:]], rows))


if __name__ == "__main__":
    main()
