"""Counts of the contents of a dataset and of its flaws, in one pass over its documents."""

from __future__ import annotations

from typing import Any

from triever.data.dataset import Dataset, Digest
from triever.data.formats.problems import Problems
from triever.data.reading import Reading
from triever.data.records import Qrels, Query
from triever.progress import phase


@phase("reading a dataset")
def info(dataset: Dataset) -> dict[str, Any]:
    """Counts of documents, queries and judgements, and of everything odd about them."""
    problems = Problems(dataset.skip_bad)
    qrels = {split: dataset.read_qrels(split, problems) for split in dataset.splits}
    missing = {document for judgements in qrels.values() for grades in judgements.values() for document in grades}
    documents = _documents(dataset, missing, problems)
    queries = dataset.read_queries(qrels, problems)
    splits = {
        split: _split(judged, queries[split], missing, dataset.is_judged(split, judged))
        for split, judged in qrels.items()
    }
    bad = {"bad records": problems.count, "examples": problems.examples}
    files = {"ignored files": list(dataset.ignored), "unread files": list(dataset.unread)}
    read = _read(dataset, documents["documents"], problems)
    return {"name": dataset.name, **documents, **read, **bad, **files, "splits": splits}


def _read(dataset: Dataset, documents: int, problems: Problems) -> dict[str, object]:
    """Counts of the files, if there are any."""
    if not dataset.source.read_as:
        return {}
    reading = Reading.of(dataset.source, documents, problems)
    root = {"root": dataset.root} if dataset.root else {}
    left = {"not read": dict(reading.unread), "left out": dict(reading.left_out)}
    records = {"records of archives not read": dict(reading.unread_records)} if reading.unread_records else {}
    return {"read as": dataset.source.read_as, "files": reading.files, **root, **left, **records}


def _documents(dataset: Dataset, missing: set[str], problems: Problems) -> dict[str, Any]:
    """Counts of the documents; removes those that exist from `missing`."""
    count = empty = titled = bare = total = longest = 0
    digest = Digest()
    for document in dataset.stream(problems):
        missing.discard(document.id)
        digest.add(document)
        words = len(document.text.split()) + len(document.title.split())
        count += 1
        empty += not words
        titled += bool(document.title)
        bare += bool(document.title) and not document.text.strip()
        total += words
        longest = max(longest, words)
    return {
        "documents": count,
        "empty": empty,
        "with title": titled,
        "title only": bare,
        "mean words": round(total / max(count, 1), 1),
        "max words": longest,
        "bytes": digest.bytes,
        "fingerprint": digest.hex(),
    }


def _split(qrels: Qrels, queries: list[Query], missing: set[str], judged: bool) -> dict[str, float]:
    counts: dict[str, float] = {
        "queries": len(queries),
        "queries without text": sum(not query.text.strip() for query in queries),
    }
    if not judged:
        return counts
    ids = {query.id for query in queries}
    relevant = [sum(grade > 0 for grade in grades.values()) for grades in qrels.values()]
    unknown = {document for grades in qrels.values() for document in grades if document in missing}
    return counts | {
        "judged queries not there": len(qrels.keys() - ids),
        "judged pairs": sum(map(len, qrels.values())),
        "relevant per query": round(sum(relevant) / max(len(relevant), 1), 2),
        "queries without relevant": sum(not count for count in relevant) + len(ids - qrels.keys()),
        "judged documents not there": len(unknown),
    }
