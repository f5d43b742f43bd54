"""Training pairs: queries with the rows of their relevant documents, and batches of them with negatives.

A batch holds queries, their positives, and negatives; every document of a batch is a negative of every query that it
is not relevant to. With `in_batch=False` a query has no negatives but those that were drawn for it and those that were
drawn for the whole batch. A copy of a relevant document is no negative either, even if nobody judged the copy. With a
teacher, each query brings some of the teacher's best documents too. These are no negatives of that query: the teacher
says what they are worth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from triever.arrays import starts_of
from triever.config import option, validate
from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.errors import UsageError
from triever.models.tokens import Tokens
from triever.training.epochs import chance_of, epoch_batches
from triever.training.opinions import LABELLED, Teaching

EXTRA = 20
"""So many more hits are searched for than wanted, because some turn out to be relevant."""
TAUGHT = 8
"""Documents of a teacher that are read for each query of a batch, besides its positive: few, since all are encoded."""
FEW = 3
"""Relevant documents of a query up to which these decide whether it is held out: among hundreds one always would be."""


@dataclass(frozen=True)
class Negatives:
    """Negatives besides the other documents of a batch: `Negatives(count=2, source="model")`."""

    count: int = option(0, "negatives for each query, besides the other documents of its batch")
    hard: float = option(1.0, "the share of these negatives that are mined; the rest are drawn at random")
    source: str = option("bm25", "what finds the hard ones: bm25 once, or the model itself before every round")
    depth: int = option(50, "hard ones are drawn from this many of the first hits that are not relevant")
    skip: int = option(0, "hits at the very top to leave out, because they may be relevant without a judgement")
    shared: int = option(0, "random documents that are drawn once for a batch, as negatives of all its queries")
    in_batch: bool = option(True, "whether what a batch holds for one query is a negative of the others too")

    def __post_init__(self) -> None:
        validate(self)
        if self.source not in ("bm25", "model"):
            raise UsageError(f"negatives.source = {self.source!r} is not one of the choices", "use bm25 or model")
        if self.shared < 0:
            raise UsageError(f"negatives.shared = {self.shared} should not be negative", "0 draws none")
        if not (self.in_batch or self.count or self.shared):
            problem = "negatives.in_batch = false leaves queries without negatives"
            raise UsageError(problem, "set negatives.count or negatives.shared, or leave negatives.in_batch out")
        if self.count < 0 or self.depth < 1 or self.skip < 0 or not 0 <= self.hard <= 1:
            raise UsageError(
                f"a value of negatives is out of range: count = {self.count}, depth = {self.depth}, "
                f"skip = {self.skip}, hard = {self.hard}",
                "set count and skip to 0 or more, depth to 1 or more, and hard from 0 to 1",
            )

    @property
    def mined(self) -> int:
        """How many of a query's negatives are mined."""
        return round(self.count * self.hard)

    def check(self, documents: int) -> None:
        """Refuse to draw more different documents for a batch than there are."""
        if self.shared > documents:
            problem = f"negatives.shared = {self.shared:,}, but there are {documents:,} documents"
            raise UsageError(problem, f"set negatives.shared to {documents} at most")

    def check_not_shared(self, why: str) -> None:
        """Refuse options of batches that share documents, where no batch does."""
        if self.shared or not self.in_batch:
            problem = f"negatives.shared and negatives.in_batch have no effect: {why}"
            raise UsageError(problem, "leave both out")

    def searched(self, documents: int) -> int:
        """The number of hits to search for among `documents` documents; relevant ones and their copies fall out."""
        return min(self.depth + self.skip + EXTRA, documents)


@dataclass(frozen=True)
class Pairs:
    """Queries and their relevant documents: those of query i are rows relevant[start[i]:start[i + 1]]."""

    ids: list[str]
    texts: list[str]
    relevant: np.ndarray  # (judgements,)
    start: np.ndarray  # (queries + 1,)
    held_from: np.ndarray  # (queries,) the share to hold out above which each query is held out

    def __len__(self) -> int:
        return len(self.ids)

    def of(self, query: int) -> np.ndarray:
        """The rows of the documents that are relevant to a query."""
        return self.relevant[self.start[query] : self.start[query + 1]]

    def about(self, documents: np.ndarray) -> np.ndarray:
        """(queries,) whether one of the documents in these rows is relevant to each query."""
        among_these = np.isin(self.relevant, documents)
        return np.array([among_these[begin:end].any() for begin, end in pairwise(self.start)], bool)

    def take(self, queries: np.ndarray) -> Pairs:
        """A part of the queries, by their numbers."""
        rows = [self.of(int(query)) for query in queries]
        ids, texts = ([values[query] for query in queries] for values in (self.ids, self.texts))
        return _pairs(ids, texts, rows, self.held_from[queries])


def _pairs(ids: list[str], texts: list[str], rows: Sequence[np.ndarray], held_from: np.ndarray) -> Pairs:
    start = starts_of([len(row) for row in rows])
    return Pairs(ids, texts, np.concatenate([np.empty(0, np.int64), *rows]).astype(np.int64), start, held_from)


def pairs_of(dataset: Dataset, split: str, store: DocumentStore) -> Pairs:
    """The queries of a split that have a relevant document in the store; an error if there are none."""
    pairs = pairs_there(dataset, split, store)
    if not len(pairs):
        raise UsageError(f"no query of {dataset.name}'s {split} has a relevant document", "train on another split")
    return pairs


def pairs_there(dataset: Dataset, split: str, store: DocumentStore) -> Pairs:
    """The queries of a split that have a relevant document in the store; there may be none."""
    ids, texts, rows, held_from = [], [], [], []
    qrels = dataset.qrels(split)
    for query in dataset.queries(split):
        judged = qrels.get(query.id, {})
        relevant = [document for document, grade in judged.items() if grade > 0 and document in store]
        if relevant:
            ids.append(query.id)
            texts.append(query.text)
            rows.append(np.array(sorted(map(store.row, relevant)), np.int64))
            held_from.append(_held_from(query.id, relevant))
    return _pairs(ids, texts, rows, np.array(held_from, np.float64))


def written_pairs(store: DocumentStore, limit: int = 0) -> Pairs:
    """The generated queries, each with its document; at most `limit` for each document, or all for 0.

    None of them is ever held out.
    """
    written = [(row, text) for row, document in enumerate(store) for text in document.expansions[: limit or None]]
    texts = [text for _, text in written]
    rows, start = np.array([row for row, _ in written], np.int64), np.arange(len(written) + 1)
    return Pairs(texts, texts, rows, start, np.full(len(written), np.inf))


def held_out(pairs: Pairs, share: float) -> tuple[Pairs, Pairs]:
    """Pairs to train on, and about this share of them to evaluate on.

    Half of the share goes to documents: no query with few relevant documents is trained on if it is about one of these.
    The other half goes to single queries, whose documents other queries may be about. Which of the two parts a query
    goes to depends on its id and on the ids of its documents alone, and a smaller share is a part of a larger one. So
    two systems that are trained on one split hold out the same queries, and their fusion can be fitted on these.
    """
    held = pairs.held_from < share
    return pairs.take(np.flatnonzero(~held)), pairs.take(np.flatnonzero(held))


def _held_from(query: str, relevant: Sequence[str]) -> float:
    """The share above which a query with these relevant documents is held out.

    A query is held out if one of its documents is. With a single document it is drawn by its own id as well, so that
    it has as many chances as a query with two. With many documents its own id alone counts.
    """
    if len(relevant) > FEW:
        return fraction(query)
    drawn = [fraction(document, b"document") for document in relevant]
    lowest = min(drawn if len(drawn) > 1 else [*drawn, fraction(query)])
    return 1 - (1 - lowest) ** 2  # how likely the lower of two numbers is below this one


def fraction(text: str, kind: bytes = b"") -> float:
    """A number from 0 to below 1 by a text; a query and a document with one id have different numbers."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6, person=kind).digest()) / 2**48


def text_numbers(documents: Tokens) -> np.ndarray:
    """(documents,) a number for each document's text; documents with equal tokens have the same number."""
    flat, starts = np.asarray(documents.flat), documents.starts.tolist()
    return copies(flat[begin:end].tobytes() for begin, end in pairwise(starts))


def copies(texts: Iterable[bytes]) -> np.ndarray:
    """(texts,) a number for each text; equal texts have the same number."""
    digests = (int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) for text in texts)
    return np.unique(np.fromiter(digests, np.uint64), return_inverse=True)[1]


@dataclass(frozen=True)
class PairBatches:
    """A round of batches. A batch is made when it is asked for, from its number alone."""

    pairs: Pairs
    queries: Tokens
    documents: Tokens
    mined: np.ndarray | None  # (queries, depth) rows of hard negatives, best first, -1 behind the last
    negatives: Negatives
    batch: int
    steps: int
    seed: int
    round: int = 0
    pad: int = 0
    same: np.ndarray | None = None  # (documents,) the numbers of their texts; without it, no document counts as a copy
    teaching: Teaching | None = None

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        chance = chance_of(step, self.steps, self.seed, self.round)
        queries = self._order[step]
        positive = np.array([chance.choice(self.pairs.of(query)) for query in queries])
        negatives = self._negatives(queries, chance)
        candidates, taught = self._candidates(queries, positive, chance)
        shared = self._shared(chance)
        documents = np.concatenate([positive, negatives.ravel(), candidates.ravel(), shared])
        owners = [np.repeat(np.arange(len(queries)), each) for each in (1, negatives.shape[1], candidates.shape[1])]
        owner = np.concatenate([*owners, np.full(len(shared), -1)])
        query_ids, query_mask = self.queries.padded(queries, self.pad)
        document_ids, document_mask = self.documents.padded(documents, self.pad)
        batch = {
            "query_ids": query_ids,
            "query_mask": query_mask,
            "document_ids": document_ids,
            "document_mask": document_mask,
            "positive": torch.arange(len(queries)),
            "excluded": torch.from_numpy(self._excluded(queries, documents, candidates, owner)),
        }
        if self.teaching is None:
            return batch
        first = len(queries) + negatives.size
        columns = np.arange(first, first + candidates.size).reshape(candidates.shape)
        all_columns = np.concatenate([np.arange(len(queries))[:, None], columns], 1)
        return batch | {"candidates": torch.from_numpy(all_columns), "taught": torch.from_numpy(taught)}

    @cached_property
    def _order(self) -> np.ndarray:
        """(steps, batch) the queries of all batches."""
        size = min(self.batch, len(self.pairs))
        return epoch_batches(len(self.pairs), size, self.steps, self.round, self.seed, anew=True)

    def _negatives(self, queries: np.ndarray, chance: np.random.Generator) -> np.ndarray:
        """(queries, count) the rows of negatives, random or mined."""
        drawn = chance.integers(len(self.documents), size=(len(queries), self.negatives.count))
        if self.mined is None or not self.negatives.mined:
            return drawn
        return with_chosen(drawn, self.mined[queries], self.negatives.mined, chance)

    def _shared(self, chance: np.random.Generator) -> np.ndarray:
        """(shared,) different rows that are drawn for all queries together."""
        return chance.choice(len(self.documents), self.negatives.shared, replace=False)

    def _candidates(
        self, queries: np.ndarray, positive: np.ndarray, chance: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """What queries are taught by: (queries, TAUGHT) rows drawn from the teacher's best documents.

        And (queries, 1 + TAUGHT) the teacher's log-probabilities of the positive and of these; -inf for what it did
        not find. Where it found too few, the positive stands once more in their places.
        """
        if self.teaching is None:
            return np.empty((len(queries), 0), np.int64), np.empty((len(queries), 0), np.float32)
        rows, logprobs = self.teaching.of(LABELLED, queries)
        is_positive = rows == positive[:, None]
        others = np.where(np.isfinite(logprobs) & ~is_positive, np.arange(rows.shape[1]), -1)
        drawn = with_chosen(np.full((len(queries), TAUGHT), -1), others, TAUGHT, chance)
        candidates = np.where(drawn >= 0, np.take_along_axis(rows, drawn, 1), positive[:, None])
        of_positive = np.where(is_positive, logprobs, -np.inf).max(1, keepdims=True)
        of_drawn = np.where(drawn >= 0, np.take_along_axis(logprobs, drawn, 1), -np.inf)
        return candidates, np.concatenate([of_positive, of_drawn], 1).astype(np.float32)

    def _excluded(
        self, queries: np.ndarray, documents: np.ndarray, candidates: np.ndarray, owner: np.ndarray
    ) -> np.ndarray:
        """(queries, documents) whether a document is no negative of a query.

        It is relevant to the query or taught for it, or a copy of one that is. With `in_batch=False` it may also have
        been drawn for another query: `owner` (documents,) is the place of that query, -1 for what was drawn for all.
        """
        known = [np.concatenate([self.pairs.of(query), own]) for query, own in zip(queries, candidates, strict=True)]
        excluded = np.stack([among(documents, rows, self.same) for rows in known])
        if self.negatives.in_batch:
            return excluded
        return excluded | ((owner >= 0) & (owner != np.arange(len(queries))[:, None]))


def with_chosen(drawn: np.ndarray, pool: np.ndarray, count: int, chance: np.random.Generator) -> np.ndarray:
    """Rows (queries, n): the drawn ones, of which the first `count` are replaced by random ones from each query's pool.

    A pool (queries, size) has -1 behind its last row. Each of its rows is taken at most once; if there are too few,
    the drawn ones stay.
    """
    pool_size = (pool >= 0).sum(1)
    order = chance.random(pool.shape)
    order[pool < 0] = 2
    chosen = np.take_along_axis(pool, order.argsort(1)[:, :count], 1)
    enough = np.arange(chosen.shape[1]) < pool_size[:, None]
    first = np.where(enough, chosen, drawn[:, : chosen.shape[1]])
    return np.concatenate([first, drawn[:, chosen.shape[1] :]], 1)


def hard_negatives(
    hits: Sequence[Sequence[int]], pairs: Pairs, negatives: Negatives, same: np.ndarray | None = None
) -> np.ndarray:
    """(queries, depth) rows of the first hits of each query that are not relevant, -1 behind the last.

    With the `text_numbers` of the documents, copies of relevant documents are left out too.
    """
    out = np.full((len(pairs), negatives.depth), -1, np.int64)
    for query, hit_rows in enumerate(hits):
        rows = np.asarray(hit_rows[negatives.skip :], np.int64)
        rows = rows[rows >= 0]  # -1: the search returned fewer hits
        wrong = rows[~among(rows, pairs.of(query), same)][: negatives.depth]
        out[query, : len(wrong)] = wrong
    return out


def among(rows: np.ndarray, relevant: np.ndarray, same: np.ndarray | None) -> np.ndarray:
    """(rows,) whether each row is relevant, or has the text of a relevant one."""
    return np.isin(rows, relevant) if same is None else np.isin(same[rows], same[relevant])
