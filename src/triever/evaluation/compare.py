"""Several systems on the same questions: search, measure, compare."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain

from triever.data.datasets import Dataset
from triever.data.records import Qrels, Query, Run
from triever.errors import UsageError
from triever.evaluation.measures import DEFAULT_MEASURES, per_query
from triever.evaluation.report import Report
from triever.progress import track
from triever.retrievers.base import Retriever

BATCH = 256


def search_all(retriever: Retriever, queries: Sequence[Query], k: int = 100, name: str = "search") -> Run:
    """The hits of every query, by query id."""
    batches = [queries[start : start + BATCH] for start in range(0, len(queries), BATCH)]
    results = [retriever.search_many(batch, k) for batch in track(batches, f"searching with {name}")]
    return dict(zip((query.id for query in queries), chain.from_iterable(results), strict=True))


def compare(
    retrievers: Mapping[str, Retriever],
    dataset: Dataset,
    split: str = "test",
    measures: Sequence[str] = DEFAULT_MEASURES,
    *,
    k: int = 100,
    baseline: str | None = None,
) -> Report:
    """Measure every retriever on a split; the first, or the one named, is what the others are tested against."""
    if not retrievers:
        raise UsageError("there is nothing to compare", "give at least one retriever")
    queries, qrels = dataset.queries(split), dataset.qrels(split)
    values, extra = {}, {}
    for name, retriever in retrievers.items():
        dataset.unknown_documents(split, retriever.documents)  # warns: what it cannot hold it cannot find
        started = time.perf_counter()
        run = search_all(retriever, queries, k, name)
        speed = len(queries) / (time.perf_counter() - started)
        values[name] = measure(run, qrels, queries, retriever, measures)
        extra[name] = {"documents": len(retriever), "queries/s": round(speed)}
    about = {"data": dataset.name, "split": split, "fingerprint": dataset.fingerprint[:16]}
    return Report.of(values, baseline=baseline, extra=extra, about=about)


def measure(
    run: Run, qrels: Qrels, queries: Sequence[Query], retriever: Retriever, measures: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Values by measure and query, with the retriever's own documents where a measure reads texts."""
    texts = retriever.documents
    return per_query(
        run, qrels, measures, queries=queries, texts=lambda document_id: texts.document(document_id).full_text
    )
