"""The weights of words in documents, compressed by word, on bm25s. Knows words and documents by their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from triever.arrays import best_rows, starts_of
from triever.artifact import Snapshot, Writer
from triever.data.words import bm25s
from triever.memory_parts import Stored
from triever.validation import require_array, require_finite, require_starts, require_within

MATRIX = ("data", "indices", "indptr")
"""The arrays of bm25s's matrix of weights, compressed by word: a column of documents for each."""
NAME = "scores"
"""What their files begin with."""


@dataclass(frozen=True)
class Postings:
    """What each word weighs in which documents."""

    matrix: Mapping[str, np.ndarray]
    documents: int

    @property
    def count(self) -> int:
        """How many words documents have, each of a document once."""
        return len(self.matrix["data"])

    @cached_property
    def _bm25s(self) -> Any:
        index = bm25s().BM25()
        index.nonoccurrence_array = None
        index.scores = {**self.matrix, "num_docs": self.documents}
        return index

    def scores(self, words: Sequence[int]) -> np.ndarray:
        """(documents,) the score of every document for the words of a query."""
        return self._bm25s.get_scores_from_ids([*words])

    def best(self, words: Sequence[int], k: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows and scores of the k best documents above zero, and of all that tie with the last, by row."""
        scores = self.scores(words)
        rows = best_rows(scores, k)
        return rows, scores[rows]

    def weights(self, words: Sequence[int], row: int) -> list[float]:
        """What each of these words weighs in a document."""
        return [self._weight(word, row) for word in words]

    def _weight(self, word: int, row: int) -> float:
        start, end = self.matrix["indptr"][word : word + 2]
        offsets = np.flatnonzero(self.matrix["indices"][start:end] == row)
        return float(self.matrix["data"][start:end][offsets[0]]) if offsets.size else 0.0

    def among(self, keep: np.ndarray) -> Postings:
        """The documents that are kept (documents,) bool, with the weights that they have among all."""
        kept = keep[self.matrix["indices"]]
        rows = (np.cumsum(keep) - 1)[self.matrix["indices"][kept]]
        matrix = {
            "data": self.matrix["data"][kept],
            "indices": rows.astype(np.int32),
            "indptr": starts_of(kept)[self.matrix["indptr"]],
        }
        return Postings(matrix, int(keep.sum()))

    def about(self) -> dict[str, Any]:
        """What has to be known of it as a shard."""
        return {"rows": self.documents, "words": len(self.matrix["indptr"]) - 1, "count": self.count}

    def stored(self) -> Stored:
        """What takes memory."""
        return {"postings": [*self.matrix.values()]}

    def write(self, writer: Writer) -> None:
        """Put them into an artifact; each shard has those of its documents, with their weights among all."""
        if writer.bounds:
            for shard, rows in zip(writer.in_shards(), writer.bounds.row_slices(), strict=True):
                inside = np.zeros(self.documents, bool)
                inside[rows] = True
                self.among(inside).write(shard)
            return
        for part in MATRIX:
            writer.array(f"{NAME}_{part}", self.matrix[part])

    @classmethod
    def read(cls, snapshot: Snapshot, documents: int, words: int) -> Postings:
        """Those of an artifact; a ValueError unless every weight is finite and that of a document which is there."""
        matrix = {part: snapshot.array(f"{NAME}_{part}") for part in MATRIX}
        weights = require_array(matrix["data"], "scores_data", ("float32",), (None,))
        require_finite(weights, "scores_data")
        rows = require_array(matrix["indices"], "scores_indices", ("int32",), weights.shape)
        require_within(rows, "scores_indices", 0, documents)
        require_starts(matrix["indptr"], "scores_indptr", words, len(weights))
        return cls(matrix, documents)
