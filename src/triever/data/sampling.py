"""Samples of a dataset: fewer documents, and the queries whose relevant documents are among them.

All documents are put in one order that depends only on the seed: first the relevant documents of all splits, or of
chosen ones, query by query, then the others. A sample is the beginning of that order, so a larger sample contains
every smaller one.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from triever.data.dataset import Dataset
from triever.data.records import Qrels, Query
from triever.errors import UsageError


def sample(
    dataset: Dataset,
    documents: int,
    seed: int = 0,
    *,
    splits: Sequence[str] | None = None,
    first: Sequence[str] | None = None,
) -> Dataset:
    """At most `documents` documents, in the order of the corpus, and the queries whose relevant ones are all there.

    `splits` names the splits of the sample; without it, all. `first` names the splits whose relevant documents come
    first; without it, those of the sample.
    """
    if documents < 1:
        raise UsageError(f"documents = {documents} should be above zero", "for example: documents=1000")
    qrels = {split: dataset.qrels(split) for split in (dataset.splits if splits is None else splits)}
    ahead = qrels if first is None else {split: dataset.qrels(split) for split in first}
    relevant = set(_relevant_in_order(qrels.values(), seed))
    ordered = dict.fromkeys(_relevant_in_order(ahead.values(), seed))
    existing, remaining = _existing(dataset, relevant | set(ordered), set(ordered), documents, seed)
    chosen = set(islice(chain((document for document in ordered if document in existing), remaining), documents))
    kept = [document for document in dataset.documents() if document.id in chosen]
    judged = {split: _cut(grades, existing, chosen) for split, grades in qrels.items() if dataset.is_judged(split)}
    unjudged = {split: dataset.queries(split) for split in qrels if split not in judged}
    return Dataset.of(f"{dataset.name}-{len(kept)}", kept, _queries(dataset, judged), judged, unjudged)


def _existing(dataset: Dataset, wanted: set[str], ahead: set[str], count: int, seed: int) -> tuple[set[str], list[str]]:
    """The wanted documents that exist, and the first `count` documents that are not in `ahead`, in one pass."""
    existing: set[str] = set()

    def remaining() -> Iterator[tuple[bytes, str]]:
        for document in dataset.documents():
            if document.id in wanted:
                existing.add(document.id)
            if document.id not in ahead:
                yield _key(seed, document.id), document.id

    smallest = heapq.nsmallest(count, remaining())
    return existing, [document for _, document in smallest]


def _relevant_in_order(qrels_of_splits: Iterable[Qrels], seed: int) -> Iterator[str]:
    relevant: dict[str, set[str]] = {}
    for qrels in qrels_of_splits:
        for query, judged in qrels.items():
            relevant.setdefault(query, set()).update(_relevant(judged))
    for query in sorted(relevant, key=lambda query: _key(seed, query)):
        yield from sorted(relevant[query])


def _relevant(judged: Mapping[str, int]) -> list[str]:
    return [document for document, grade in judged.items() if grade > 0]


def _cut(qrels: Qrels, existing: set[str], chosen: set[str]) -> Qrels:
    """The judgements of the queries whose relevant documents were all chosen, for the chosen documents."""
    whole = {}
    for query, judged in qrels.items():
        relevant = existing.intersection(_relevant(judged))
        if relevant and relevant <= chosen:
            whole[query] = {document: grade for document, grade in judged.items() if document in chosen}
    return whole


def _queries(dataset: Dataset, judged: Mapping[str, Qrels]) -> list[Query]:
    """The queries of all splits that are still judged."""
    kept: dict[str, Query] = {}
    for split, left in judged.items():
        kept |= {query.id: query for query in dataset.queries(split) if query.id in left}
    return list(kept.values())


def _key(seed: int, name: str) -> bytes:
    return hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
