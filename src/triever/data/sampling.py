"""A smaller dataset in which the questions can still be answered, and which grows without changing.

All documents are put in one order that depends on the seed only: first those that are judged relevant in all splits,
or in chosen ones, query by query, then the others. A sample is the beginning of that order, so a larger sample
contains every smaller one.
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
    """At most so many documents, in the order of the corpus, and the queries whose relevant ones are all there.

    Of all splits, or of those named; what is relevant in the splits `first` comes before all else, and nothing else
    does.
    """
    if documents < 1:
        raise UsageError(f"documents = {documents} should be above zero", "for example: documents=1000")
    qrels = {split: dataset.qrels(split) for split in (dataset.splits if splits is None else splits)}
    ahead = qrels if first is None else {split: dataset.qrels(split) for split in first}
    relevant = set(_relevant_in_order(qrels.values(), seed))
    ordered = dict.fromkeys(_relevant_in_order(ahead.values(), seed))
    existing, others = _existing(dataset, relevant | set(ordered), set(ordered), documents, seed)
    chosen = set(islice(chain((one for one in ordered if one in existing), others), documents))
    kept = [document for document in dataset.documents() if document.id in chosen]
    judged = {split: _cut(one, existing, chosen) for split, one in qrels.items() if dataset.is_judged(split)}
    unjudged = {split: dataset.queries(split) for split in qrels if split not in judged}
    return Dataset.of(f"{dataset.name}-{len(kept)}", kept, _queries(dataset, judged), judged, unjudged)


def _existing(dataset: Dataset, wanted: set[str], ahead: set[str], count: int, seed: int) -> tuple[set[str], list[str]]:
    """Which of the wanted documents exist, and the first so many that are not ahead, in their order, in one pass."""
    found: set[str] = set()

    def others() -> Iterator[tuple[bytes, str]]:
        for document in dataset.documents():
            if document.id in wanted:
                found.add(document.id)
            if document.id not in ahead:
                yield _key(seed, document.id), document.id

    smallest = heapq.nsmallest(count, others())
    return found, [document for _, document in smallest]


def _relevant_in_order(several: Iterable[Qrels], seed: int) -> Iterator[str]:
    relevant: dict[str, set[str]] = {}
    for qrels in several:
        for query, judged in qrels.items():
            relevant.setdefault(query, set()).update(_relevant(judged))
    for query in sorted(relevant, key=lambda query: _key(seed, query)):
        yield from sorted(relevant[query])


def _relevant(judged: Mapping[str, int]) -> list[str]:
    return [document for document, grade in judged.items() if grade > 0]


def _cut(qrels: Qrels, existing: set[str], chosen: set[str]) -> Qrels:
    """The judgements of the queries that lost no relevant document, for the documents that are left."""
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
