"""New documents in a contextual vocabulary: added with the ids that exist, or with a vocabulary made of all titles.

    TRIEVER_DATA=... python benchmarks/new_titles.py wiki60k --ask dev.nq dev.entityq --out benchmarks/new_titles.json

A tenth of the documents is new: no training question is about them. `added` was fitted without them, and then they were
added without training; `rebuilt` was fitted with them, on the same questions. GENRE writes plain tokens, so new titles
need no ids.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import triever
from triever import Contextual, Dataset, DocidTuning, Document, VocabularyOptions
from triever.lab import results
from triever.lab.bench_search import success
from triever.terminal import emit, table

GENRE = VocabularyOptions(k=0)


def is_new(document: Document, share: float) -> bool:
    """Whether a document counts as new; this depends on its id alone, so that it is the same everywhere."""
    return crc32(document.id.encode()) < share * 2**32


def about(data: Dataset, split: str, documents: Sequence[Document]) -> Dataset:
    """These documents, and the questions of a split that are about them alone."""
    ids = {document.id for document in documents}
    qrels = {query: judged for query, judged in data.qrels(split).items() if judged.keys() <= ids}
    queries = [query for query in data.queries(split) if query.id in qrels]
    return Dataset.of(data.name, documents, queries, {split: qrels})


def found_first(model: Contextual, data: Dataset, split: str) -> float:
    queries = data.queries(split)
    return success(queries, model.search_many(queries, 10), data.qrels(split), (1,))["Success@1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--split", default="train")
    parser.add_argument("--ask", nargs="+", default=["test"])
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--steps", type=int, default=1050)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    data = triever.load_dataset(words.data)
    documents = list(data.documents())
    new = [document for document in documents if is_new(document, words.share)]
    old = [document for document in documents if not is_new(document, words.share)]
    asked = {"old": old, "new": new}
    rates = {"learning_rate": 1e-3, "reader": 0.5}  # as in recipes/contextual
    training = DocidTuning(steps=words.steps, batch=words.batch, rounds=3, split=words.split, **rates)
    base = Contextual(backbone=words.backbone, training=training)
    learned = about(data, words.split, old)
    whole = Dataset.of(data.name, documents, learned.queries(words.split), {words.split: learned.qrels(words.split)})
    rows = []
    for name, model, given in (
        ("added", base, learned),
        ("rebuilt", base, whole),
        ("GENRE, added", replace(base, vocabulary=GENRE), learned),
    ):
        started = time.perf_counter()
        fitted = replace(model).fit(given)
        row: dict[str, Any] = {"system": name, "fit_s": round(time.perf_counter() - started, 1), "add_s": ""}
        if given is learned:
            started = time.perf_counter()
            fitted.add(new)
            row["add_s"] = round(time.perf_counter() - started, 1)
        for split in words.ask:
            for kind, group in asked.items():
                row[f"{split}, {kind}"] = found_first(fitted, about(data, split, group), split)
        rows.append(row)
        emit(row)
        if words.out:  # after every row: each takes minutes
            command = f"python benchmarks/new_titles.py {words.data} --split {words.split} --ask {' '.join(words.ask)}"
            results.write(words.out, results.benchmark(command.split(), rows))
    emit(table(rows))


if __name__ == "__main__":
    main()
