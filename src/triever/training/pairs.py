"""Training pairs: queries with the rows of their relevant documents, and batches of them with negatives.

A batch holds queries, their positives, and negatives; every document of a batch is a negative of every
query that it is not relevant to. A copy of what is relevant is no negative either, whether judged or not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from triever.arrays import starts_of
from triever.config import option, validate
from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.errors import UsageError
from triever.models.tokens import Tokens
from triever.training.epochs import chance_of, epoch_batches

EXTRA = 20
"""Hits beyond the depth of negatives that are searched for, in place of those that turn out to be relevant."""


@dataclass(frozen=True)
class Negatives:
    """Where negatives come from besides the batch's other documents: `Negatives(count=2, source="model")`."""

    count: int = option(0, "negatives that each query brings along, besides the other documents of its batch")
    hard: float = option(1.0, "the share of them that are mined; the others are drawn at random")
    source: str = option("bm25", "who finds the hard ones: bm25, or model, which looks again before every round")
    depth: int = option(50, "hard ones are drawn from the first so many hits that are not relevant")
    skip: int = option(0, "hits at the very top to leave out: they may be relevant without being judged so")

    def __post_init__(self) -> None:
        validate(self)
        if self.source not in ("bm25", "model"):
            raise UsageError(f"negatives.source = {self.source!r} is not a choice", "use bm25 or model")
        if self.count < 0 or self.depth < 1 or self.skip < 0 or not 0 <= self.hard <= 1:
            raise UsageError(
                f"negatives: count {self.count}, depth {self.depth}, skip {self.skip}, hard {self.hard}",
                "counts are not negative, and hard is between 0 and 1",
            )

    @property
    def mined(self) -> int:
        """How many of a query's negatives are mined."""
        return round(self.count * self.hard)

    def searched(self, documents: int) -> int:
        """How many hits to look at, of so many documents: relevant ones and their copies are among them."""
        return min(self.depth + self.skip + EXTRA, documents)


@dataclass(frozen=True)
class Pairs:
    """Queries and what is relevant to them: the documents of query i are rows relevant[start[i]:start[i + 1]]."""

    ids: list[str]
    texts: list[str]
    relevant: np.ndarray  # (judgements,)
    start: np.ndarray  # (queries + 1,)

    def __len__(self) -> int:
        return len(self.ids)

    def of(self, query: int) -> np.ndarray:
        """The rows of the documents that are relevant to a query."""
        return self.relevant[self.start[query] : self.start[query + 1]]

    def take(self, queries: np.ndarray) -> Pairs:
        """Some of the queries."""
        rows = [self.of(int(query)) for query in queries]
        return _pairs([self.ids[query] for query in queries], [self.texts[query] for query in queries], rows)


def _pairs(ids: list[str], texts: list[str], rows: Sequence[np.ndarray]) -> Pairs:
    start = starts_of([len(row) for row in rows])
    return Pairs(ids, texts, np.concatenate([np.empty(0, np.int64), *rows]).astype(np.int64), start)


def pairs_of(dataset: Dataset, split: str, store: DocumentStore) -> Pairs:
    """The judged queries of a split whose relevant documents are there; there have to be some."""
    found = pairs_there(dataset, split, store)
    if not len(found):
        raise UsageError(f"no query of {dataset.name}'s {split} has a relevant document", "train on another split")
    return found


def pairs_there(dataset: Dataset, split: str, store: DocumentStore) -> Pairs:
    """The same, and none where there are none."""
    ids, texts, rows = [], [], []
    qrels = dataset.qrels(split)
    for query in dataset.queries(split):
        judged = qrels.get(query.id, {})
        found = [store.row(document) for document, grade in judged.items() if grade > 0 and document in store]
        if found:
            ids.append(query.id)
            texts.append(query.text)
            rows.append(np.array(sorted(found), np.int64))
    return _pairs(ids, texts, rows)


def written_pairs(store: DocumentStore, most: int = 0) -> Pairs:
    """The queries that were written for documents, each with its document; `most` of each at most, or all for 0."""
    listed = [(row, text) for row, document in enumerate(store) for text in document.expansions[: most or None]]
    texts = [text for _, text in listed]
    return Pairs(texts, texts, np.array([row for row, _ in listed], np.int64), np.arange(len(listed) + 1))


def held_out(pairs: Pairs, share: float) -> tuple[Pairs, Pairs]:
    """Pairs to train on, and a share of them to judge by. A query's side depends on its id alone.

    So two systems that are trained on one split hold out the same queries, and their fusion can be fitted there.
    """
    held = np.array([_fraction(query) < share for query in pairs.ids], bool)
    return pairs.take(np.flatnonzero(~held)), pairs.take(np.flatnonzero(held))


def _fraction(text: str) -> float:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest()) / 2**48


def text_numbers(documents: Tokens) -> np.ndarray:
    """(documents,) a number for the text of each: those that a model reads the same have the same one."""
    flat, starts = np.asarray(documents.flat), documents.starts.tolist()
    return copies(flat[begin:end].tobytes() for begin, end in pairwise(starts))


def copies(texts: Iterable[bytes]) -> np.ndarray:
    """(texts,) a number for each: equal ones have the same one."""
    digests = (int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) for text in texts)
    return np.unique(np.fromiter(digests, np.uint64), return_inverse=True)[1]


@dataclass(frozen=True)
class PairBatches:
    """A round of batches, each made when it is asked for, from its number alone."""

    pairs: Pairs
    queries: Tokens
    documents: Tokens
    mined: np.ndarray | None  # (queries, most) rows of hard negatives, best first, -1 where there are no more
    negatives: Negatives
    batch: int
    steps: int
    seed: int
    round: int = 0
    pad: int = 0
    same: np.ndarray | None = None  # (documents,) numbers of their texts; without it, no two are taken for the same

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> dict[str, Any]:
        chance = chance_of(step, self.steps, self.seed, self.round)
        queries = self._order[step]
        positive = np.array([chance.choice(self.pairs.of(query)) for query in queries])
        documents = np.concatenate([positive, self._negatives(queries, chance).ravel()])
        query_ids, query_mask = self.queries.padded(queries, self.pad)
        document_ids, document_mask = self.documents.padded(documents, self.pad)
        return {
            "query_ids": query_ids,
            "query_mask": query_mask,
            "document_ids": document_ids,
            "document_mask": document_mask,
            "positive": torch.arange(len(queries)),
            "excluded": torch.from_numpy(self._excluded(queries, documents)),
        }

    @cached_property
    def _order(self) -> np.ndarray:
        """The queries of all batches, (steps, batch)."""
        size = min(self.batch, len(self.pairs))
        return epoch_batches(len(self.pairs), size, self.steps, self.round, self.seed, anew=True)

    def _negatives(self, queries: np.ndarray, chance: np.random.Generator) -> np.ndarray:
        """(queries, count) rows."""
        drawn = chance.integers(len(self.documents), size=(len(queries), self.negatives.count))
        if self.mined is None or not self.negatives.mined:
            return drawn
        return with_chosen(drawn, self.mined[queries], self.negatives.mined, chance)

    def _excluded(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """(queries, documents) whether a document is relevant to a query, or a copy of one that is."""
        return np.stack([among(documents, self.pairs.of(query), self.same) for query in queries])


def with_chosen(drawn: np.ndarray, pool: np.ndarray, count: int, chance: np.random.Generator) -> np.ndarray:
    """Rows (queries, n) whose first `count` are taken from each query's pool (queries, most), all of them distinct.

    A pool has -1 where there are no more; where it is too short, what was drawn stays.
    """
    there = (pool >= 0).sum(1)
    place = chance.random(pool.shape)
    place[pool < 0] = 2
    chosen = np.take_along_axis(pool, place.argsort(1)[:, :count], 1)
    enough = np.arange(chosen.shape[1]) < there[:, None]
    first = np.where(enough, chosen, drawn[:, : chosen.shape[1]])
    return np.concatenate([first, drawn[:, chosen.shape[1] :]], 1)


def hard_negatives(
    found: Sequence[Sequence[int]], pairs: Pairs, negatives: Negatives, same: np.ndarray | None = None
) -> np.ndarray:
    """(queries, depth) rows of the first hits that are not relevant, -1 where there are no more.

    With the `text_numbers` of the documents, copies of what is relevant are left out too.
    """
    out = np.full((len(pairs), negatives.depth), -1, np.int64)
    for query, rows in enumerate(found):
        hits = np.asarray(rows[negatives.skip :], np.int64)
        hits = hits[hits >= 0]  # -1: a search that found fewer
        wrong = hits[~among(hits, pairs.of(query), same)][: negatives.depth]
        out[query, : len(wrong)] = wrong
    return out


def among(rows: np.ndarray, relevant: np.ndarray, same: np.ndarray | None) -> np.ndarray:
    """(rows,) whether each is one of the relevant rows, or has the text of one."""
    return np.isin(rows, relevant) if same is None else np.isin(same[rows], same[relevant])
