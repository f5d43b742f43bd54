"""The main job on the default corpus: fit, compare, and answer some questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triever.data.datasets import Dataset, load_dataset
from triever.data.records import Query
from triever.evaluation.compare import compare
from triever.retrievers.base import Retriever
from triever.retrievers.bm25 import BM25

NEXT = """
Your own documents are the same three commands:
  triever fit bm25 --data FOLDER --out models/mine
  triever search models/mine "what you look for"
  triever compare bm25 bm25:language=none --data FOLDER --split test"""


def quickstart(questions: int, emit: Callable[[Any], None]) -> None:
    """Run it, handing what there is to see to `emit` as it comes."""
    data = load_dataset("python")
    emit("The documentation of your Python, and questions about it as people ask them.\n")
    systems: dict[str, Retriever] = {"bm25": BM25().fit(data), "bm25, no stemming": BM25(language="none").fit(data)}
    emit(compare(systems, data, split="test").table())
    emit("\n".join(_answers(systems["bm25"], data, questions)))
    emit(NEXT)


def _answers(retriever: Retriever, data: Dataset, questions: int) -> list[str]:
    lines = []
    for query in _spread(data.queries("test"), questions):
        right = data.qrels("test")[query.id]
        hits = retriever.search(query, 3)
        lines.append(f"\n{query.text}")
        lines += [f"  {'*' if hit.id in right else ' '} {hit.score:5.2f}  {hit.id}" for hit in hits]
        if not any(hit.id in right for hit in hits):
            lines.append(f"           not found: {', '.join(right)}")
    return [*lines, "\n* is a right answer."] if lines else []


def _spread(queries: list[Query], count: int) -> list[Query]:
    """Some of the queries, from all over the list and always the same."""
    step = max(1, len(queries) // count) if count else 1
    return queries[::step][:count]
