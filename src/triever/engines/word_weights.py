"""What each word weighs in each document that has it (BM25), as bm25s keeps it: compressed by word.

The words of some documents at a time are counted and sorted into a run. If there are several runs, they are merged, the
postings of some words at a time, so that memory is needed for blocks and not for the corpus; bm25s's own builder goes
document by document and holds all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from triever.arrays import starts_of
from triever.disk_arrays import GrowingArray

BLOCK = 2**23
"""How many words of documents are sorted at once, and how many postings are merged."""
IDF: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "lucene": lambda holding, total: np.log(1 + (total - holding + 0.5) / (holding + 0.5)),
    "robertson": lambda holding, total: np.log(np.maximum(1, (total - holding + 0.5) / (holding + 0.5))),
    "atire": lambda holding, total: np.log(total / holding),
}


@dataclass(frozen=True)
class Formula:
    """How often a word occurs in a document, and in how many documents, as a weight: `Formula("lucene", 1.2, 0.75)`."""

    method: str = "lucene"
    k1: float = 1.2
    b: float = 0.75


class Counted(NamedTuple):
    """How often words occur in documents, by word and then by row."""

    word: np.ndarray  # (postings,)
    row: np.ndarray  # (postings,)
    count: np.ndarray  # (postings,)


def word_weights(
    starts: np.ndarray, flat: np.ndarray, vocabulary: int, formula: Formula, folder: Path | None = None
) -> dict[str, np.ndarray]:
    """The matrix of weights of documents, whose words flat[starts[i]:starts[i + 1]] are numbers below `vocabulary`."""
    lengths = np.diff(starts)
    holding = np.zeros(vocabulary, np.int64)  # the number of documents with each word
    runs = _Runs(folder)
    for first, last in _parts(starts, BLOCK):
        postings = _counted(flat[starts[first] : starts[last]], lengths[first:last], first)
        holding += np.bincount(postings.word, minlength=vocabulary)
        runs.append(postings)
    norm = _norm(lengths, formula)
    data, rows = GrowingArray(np.float32, folder), GrowingArray(np.int32, folder)
    indptr = starts_of(holding)
    for postings in runs.merged(indptr):
        data.append(_weights(postings, holding, norm, formula))
        rows.append(postings.row)
    return {"data": data.array(), "indices": rows.array(), "indptr": indptr}


def _parts(starts: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Rows in ranges with at most so many items each; a row with more is a range of its own."""
    first, count = 0, len(starts) - 1
    while first < count:
        last = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        last = min(max(last, first + 1), count)
        yield first, last
        first = last


def _counted(words: np.ndarray, lengths: np.ndarray, first: int) -> Counted:
    """The postings of documents that begin with row `first`, whose words lie end to end."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    pair, count = np.unique(words.astype(np.int64) * len(lengths) + row, return_counts=True)
    word, row = np.divmod(pair, len(lengths))
    return Counted(word, first + row, count)


def _norm(lengths: np.ndarray, formula: Formula) -> np.ndarray:
    """(documents,) what is added to the frequency of each word of a document: long documents are held back."""
    if not len(lengths):
        return lengths
    return formula.k1 * (1 - formula.b + formula.b * lengths / max(lengths.mean(), 1e-9))


def _weights(postings: Counted, holding: np.ndarray, norm: np.ndarray, formula: Formula) -> np.ndarray:
    count = postings.count
    frequency = count / (count + norm[postings.row]) * (formula.k1 + 1 if formula.method == "atire" else 1)
    return IDF[formula.method](holding[postings.word], len(norm)) * frequency


class _Runs:
    """Counted of documents that follow each other, each run by word and then by row."""

    def __init__(self, folder: Path | None) -> None:
        self._columns = [GrowingArray(np.int32, folder) for _ in Counted._fields]
        self._starts = [0]

    def append(self, postings: Counted) -> None:
        """Put a run behind the others."""
        for column, values in zip(self._columns, postings, strict=True):
            column.append(values)
        self._starts.append(self._starts[-1] + len(postings.word))

    def merged(self, indptr: np.ndarray) -> Iterator[Counted]:
        """All postings by word and then by row, of some words at a time; those of word w end at indptr[w + 1]."""
        columns = [column.array() for column in self._columns]
        words = [*_parts(indptr, BLOCK)]
        edges = np.array([0, *(last for _, last in words)])
        bounds = [low + np.searchsorted(columns[0][low:high], edges) for low, high in pairwise(self._starts)]
        for part in range(len(words) if bounds else 0):
            pieces = [slice(int(run[part]), int(run[part + 1])) for run in bounds]
            merged = Counted(*(np.concatenate([column[piece] for piece in pieces]) for column in columns))
            if len(bounds) == 1:  # which is sorted already
                yield merged
                continue
            order = np.argsort(merged.word, kind="stable")  # runs go on where the last one ended: rows stay sorted
            yield Counted(*(column[order] for column in merged))
