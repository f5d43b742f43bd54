"""Indexes whose rows are in shards: each shard is asked, and what it answers is merged.

They can be searched like those that are whole. Rows are numbered through all shards. Nothing is approximate here that
is exact in a whole index: a row that is among the best of all is among the best of its shard, and the score of a row
depends on the query, the row itself, and what every shard has of the whole (weights of words, centroids, a codec).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np

from triever.arrays import starts_of
from triever.artifact import Snapshot
from triever.memory_parts import Stored
from triever.shards import Part, Shards, in_shards
from triever.validation import require

if TYPE_CHECKING:
    from triever.artifact import Writer
    from triever.index.options import IndexOptions
    from triever.index.token_vectors import TokenOptions
    from triever.index.top import ScoresAndRows


@dataclass(frozen=True, eq=False)
class _Sharded:
    """A part that every shard has, and which rows of all shards are searched."""

    shards: Shards
    part: Part
    told: tuple[Mapping[str, Any], ...]  # what each shard says of its part
    keep: np.ndarray | None = None  # (rows of all shards,) bool

    @classmethod
    def _opened(cls, snapshot: Snapshot, kind: str, name: str, device: str | None = None) -> Self:
        shards, part = snapshot.shards, Part(kind, snapshot.place, name, device)
        assert shards is not None  # who calls this knows that there are shards
        count = len(shards.bounds)
        told = shards.ask(part, "about", [()] * count, [None] * count)
        for own, rows in zip(told, shards.bounds.row_slices(), strict=True):
            require(own["rows"] == rows.stop - rows.start, f"a shard has {own['rows']} rows of {name}")
        return cls(shards, part, tuple(told))

    @cached_property
    def _masks(self) -> list[np.ndarray | None]:
        """For each shard which of its rows are searched (rows,) bool; None for all."""
        each = self.shards.bounds.row_slices()
        return [None if self.keep is None or self.keep[rows].all() else self.keep[rows] for rows in each]

    @cached_property
    def starts(self) -> np.ndarray:
        """(shards + 1,) the first row of each shard, counted among those that are searched, and the end."""
        sizes = np.diff(self.shards.bounds.rows)
        masks = zip(sizes, self._masks, strict=True)
        return starts_of([size if mask is None else int(mask.sum()) for size, mask in masks])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def among(self, keep: np.ndarray) -> Self:
        """The same with the rows that are kept (rows,) bool."""
        whole = np.ones(self.shards.bounds.rows[-1], bool) if self.keep is None else self.keep.copy()
        whole[whole] = keep
        return replace(self, keep=whole)

    def without(self, keep: np.ndarray) -> NoReturn:
        """Refused: shards do not change."""
        raise in_shards()

    def with_added(self, *arguments: np.ndarray) -> NoReturn:
        """Refused: shards do not change."""
        raise in_shards()

    def rebuilt(self, options: object) -> NoReturn:
        """Refused: shards do not change."""
        raise in_shards()

    def write(self, writer: Writer) -> NoReturn:
        """Refused: shards are written from what is whole."""
        raise in_shards()

    def stored(self) -> Stored:
        """What takes memory in this process, by part."""
        parts: dict[str, list[Any]] = {}
        for held in self.shards.held(self.part):
            for name, things in held.stored().items():
                parts.setdefault(name, []).extend(things)
        return parts

    def _ask(self, method: str, *arguments: Any) -> list[tuple[int, Any]]:
        """What the shards answer that have rows to search, each with its first row."""
        asked = [arguments if size else None for size in np.diff(self.starts)]
        return self._answers(method, asked)

    def _ask_of_rows(self, method: str, rows: np.ndarray, *arguments: Any) -> list[tuple[np.ndarray, Any]]:
        """What the shards of rows answer of these, each with the places of its rows; rows come last in a question."""
        owner = self.starts.searchsorted(rows, side="right") - 1
        places = [np.flatnonzero(owner == number) for number in range(len(self.starts) - 1)]
        asked = [
            (*arguments, rows[own] - first) if len(own) else None
            for own, first in zip(places, self.starts[:-1], strict=True)
        ]
        answers = self.shards.ask(self.part, method, asked, self._masks)
        return [(own, answer) for own, answer in zip(places, answers, strict=True) if len(own)]

    def _answers(self, method: str, asked: Sequence[tuple[Any, ...] | None]) -> list[tuple[int, Any]]:
        answers = self.shards.ask(self.part, method, asked, self._masks)
        each = zip(self.starts[:-1].tolist(), asked, answers, strict=True)
        return [(first, answer) for first, arguments, answer in each if arguments is not None]

    def _of_row(self, row: int, method: str, *arguments: Any) -> Any:
        """What the shard of a row answers of it."""
        [(_, answer)] = self._ask_of_rows(method, np.array([row]), *arguments)
        return answer

    def _merged(self, answers: Sequence[tuple[int, ScoresAndRows]], queries: int, k: int) -> ScoresAndRows:
        """The best of what all shards have found."""
        from triever.index.top import merged, nothing  # needs PyTorch, which words do without

        numbered = [(scores, np.where(rows < 0, -1, rows + first)) for first, (scores, rows) in answers]
        return reduce(lambda before, own: merged(before, own, k), numbered, nothing(queries, k))


class ShardedPostings(_Sharded):
    """The weights of words in shards: each has the weights that its documents have among all."""

    @classmethod
    def opened(cls, snapshot: Snapshot, words: int) -> Self:
        """Those of an artifact with so many words."""
        postings = cls._opened(snapshot, "postings", "scores")
        require(all(own["words"] == words for own in postings.told), "a shard has another vocabulary")
        return postings

    @property
    def count(self) -> int:
        """How many words documents have, each of a document once."""
        return sum(own["count"] for own in self.told)

    def best(self, words: Sequence[int], k: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows and scores of the k best documents of each shard above zero, and of all that tie with its last."""
        answers = self._ask("best", words, k)
        rows = [first + rows for first, (rows, _) in answers]
        scores = [scores for _, (_, scores) in answers]
        return np.concatenate([np.empty(0, np.int64), *rows]), np.concatenate([np.empty(0, np.float32), *scores])

    def weights(self, words: Sequence[int], row: int) -> list[float]:
        """What each of these words weighs in a document."""
        return self._of_row(row, "weights_of", words)


class _ShardedIndex(_Sharded):
    """Vectors that are in shards."""

    kind: ClassVar[str]  # of part, and the name that it has where no other is given

    @classmethod
    def opened(cls, snapshot: Snapshot, device: str | None = None, name: str = "") -> Self:
        """Those of an artifact."""
        return cls._opened(snapshot, cls.kind, name or cls.kind, device)

    @property
    def width(self) -> int:
        """The number of dimensions of a vector."""
        return self.told[0]["width"]

    def _log_sums(self, queries: np.ndarray, *asked: Any) -> np.ndarray:
        """(q,) the log of the sum of exp(score / temperature) over all rows."""
        sums = [own for _, own in self._ask("log_sum_exp", queries, *asked)]
        return reduce(np.logaddexp, sums, np.full(len(queries), -np.inf))

    def _filled(self, out: np.ndarray, method: str, rows: np.ndarray, *asked: Any) -> np.ndarray:
        """`out` with what the shards of rows (m,) answer of these, a row for each."""
        for places, own in self._ask_of_rows(method, np.asarray(rows, np.int64), *asked):
            out[places] = own
        return out


class ShardedVectors(_ShardedIndex):
    """A vector for each row, in shards."""

    kind = "vectors"

    @property
    def options(self) -> IndexOptions:
        """How each shard keeps and searches its vectors."""
        return self.told[0]["options"]

    @property
    def built_from(self) -> int:
        """How many vectors the shards were built from."""
        return self.shards.bounds.rows[-1]

    def search(self, queries: np.ndarray, k: int) -> ScoresAndRows:
        """The scores (q, k) and rows (q, k) of the best vectors for each query (q, d), best first."""
        return self._merged(self._ask("search", queries, k), len(queries), k)

    def log_sum_exp(self, queries: np.ndarray, temperature: float) -> np.ndarray:
        """(q,) the log of the sum of exp(score / temperature) over all vectors."""
        return self._log_sums(queries, temperature)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The vectors (m, d) of rows (m,)."""
        return self._filled(np.empty((len(rows), self.width), self.options.dtype), "take", rows)

    def vectors(self) -> np.ndarray:
        """(n, d) the vectors of all rows."""
        return self.take(np.arange(len(self)))


class ShardedTokens(_ShardedIndex):
    """Token vectors of documents, in shards. Each has the centroids and the codec of the whole.

    So a shard looks into the same lists as the whole would, and what is a candidate of the whole is one of its shard.
    """

    kind = "tokens"

    @property
    def options(self) -> TokenOptions:
        """How each shard keeps and searches its vectors."""
        return self.told[0]["options"]

    @property
    def built_from(self) -> tuple[int, int]:
        """How many documents and tokens the shards were built from."""
        documents, tokens = np.sum([own["built_from"] for own in self.told], axis=0).tolist()
        return documents, tokens

    @property
    def lengths(self) -> np.ndarray:
        """(documents,) the number of tokens of each document."""
        both = np.concatenate([own["lengths"] for own in self.told])
        return both if self.keep is None else both[self.keep]

    def search(self, queries: np.ndarray, mask: np.ndarray | None, k: int) -> ScoresAndRows:
        """The scores (q, k) and rows (q, k) of the best documents for each query (q, length, d), best first."""
        return self._merged(self._ask("search", queries, mask, k), len(queries), k)

    def log_sum_exp(self, queries: np.ndarray, mask: np.ndarray | None, temperatures: np.ndarray) -> np.ndarray:
        """(q,) the log of the sum of exp(score / temperature) over all documents."""
        return self._log_sums(queries, mask, temperatures)

    def score(self, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The exact scores (m,) of rows (m,) for a query (length, d)."""
        return self._filled(np.empty(len(rows), np.float32), "score", rows, query)

    def matches(self, query: np.ndarray, row: int) -> tuple[np.ndarray, np.ndarray]:
        """For each query token (length, d), the best token of the document (length,), and their product (length,)."""
        return self._of_row(row, "matches_of", query)
