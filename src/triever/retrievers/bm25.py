"""BM25, on bm25s: the lexical baseline, and the stage on which doc2query expansions act.

Every document's words are kept as numbers, so that adding and deleting documents never reads a text
twice and always gives the scores that a fit on the same documents would give.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from triever import artifact
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document, Result
from triever.data.store import DocumentStore
from triever.data.words import stemmer, stop_words, words
from triever.errors import UsageError
from triever.retrievers.base import Retriever, top_hits


@dataclass(eq=False)
class BM25(Retriever):
    """Lexical retrieval: `BM25(language="german").fit(data)`."""

    kind: ClassVar[str] = "bm25"

    language: str = option("english", "stemmer and stop words by language; none for neither")
    k1: float = option(1.2, "how fast repeated words stop counting")
    b: float = option(0.75, "how much long documents are held back, 0 to 1")
    method: Literal["lucene", "robertson", "atire"] = option("lucene", "the formula: lucene, robertson or atire")
    expand: bool = option(True, "index the expansion texts of documents that have them")

    _index: Any = field(default=None, init=False, repr=False)
    _terms: Terms = field(init=False, repr=False)

    def __post_init__(self) -> None:
        stemmer(self.language)  # an unknown language is an error now, not after reading the corpus
        if self.k1 < 0:
            raise UsageError(f"k1 = {self.k1} should not be negative", "the usual range is 0.5 to 2")
        if not 0 <= self.b <= 1:
            raise UsageError(f"b = {self.b} should be between 0 and 1", "the usual range is 0.3 to 0.8")

    def _learn(self, dataset: Dataset, store: DocumentStore) -> None:
        self._terms = Terms.of(self.language, map(self._text, store))
        self._build()

    def _add(self, documents: Sequence[Document]) -> None:
        self._terms = self._terms.with_added(map(self._text, documents))
        self._build()

    def _delete(self, keep: np.ndarray) -> None:
        self._terms = self._terms.kept(keep)
        self._build()

    def _search(self, queries: Sequence[str], k: int) -> list[Result]:
        return [self._search_one(query, k) for query in queries]

    def _search_one(self, query: str, k: int) -> Result:
        numbers = self._terms.numbers(query)
        if not numbers or self._index is None:
            return Result(note="no word of the query is in the corpus")
        return Result(top_hits(self._index.get_scores_from_ids(numbers), self.documents.ids, k))

    def _explain(self, query: str, result: Result) -> tuple[tuple[tuple[str, float], ...], ...]:
        numbers = self._terms.numbers(query)
        return tuple(self._parts(numbers, self.documents.row(hit.id)) for hit in result)

    def _parts(self, numbers: list[int], row: int) -> tuple[tuple[str, float], ...]:
        names = self._terms.names
        weights = {number: numbers.count(number) * self._weight(number, row) for number in numbers}
        found = [(names[number], weight) for number, weight in weights.items() if weight > 0]
        return tuple(sorted(found, key=lambda part: -part[1]))

    def _weight(self, number: int, row: int) -> float:
        """The weight of one word in one document; the matrix has a column of documents for each word."""
        start, end = self._index.scores["indptr"][number : number + 2]
        place = np.flatnonzero(self._index.scores["indices"][start:end] == row)
        return float(self._index.scores["data"][start:end][place[0]]) if place.size else 0.0

    def _text(self, document: Document) -> str:
        extra = document.expansions if self.expand else ()
        return "\n".join((document.full_text, *extra))

    def _build(self) -> None:
        """Weigh every word of every document, from the numbers that are kept."""
        if not self._terms.flat.size:
            self._index = None
            return
        index = self._empty_index()
        rows = np.split(self._terms.flat, self._terms.starts[1:-1])
        index.scores = index.build_index_from_ids(
            range(len(self._terms.names)), [row.tolist() for row in rows], show_progress=False
        )
        self._index = index

    def _empty_index(self) -> Any:
        import bm25s

        index = bm25s.BM25(k1=self.k1, b=self.b, method=self.method)
        index.nonoccurrence_array = None
        return index

    def _write(self, writer: artifact.Writer) -> dict[str, Any]:
        writer.json("vocabulary", self._terms.names)
        writer.array("term_starts", self._terms.starts)
        writer.array("terms", self._terms.flat)
        if self._index is not None:
            for part in MATRIX:
                writer.array(f"scores_{part}", self._index.scores[part])
        return {}

    def _read(self, snapshot: artifact.Snapshot) -> None:
        names = snapshot.json("vocabulary")
        self._terms = Terms(self.language, names, snapshot.array("term_starts"), snapshot.array("terms"))
        if "scores_data" in snapshot.manifest.files:
            self._index = self._empty_index()
            matrix = {part: snapshot.array(f"scores_{part}") for part in MATRIX}
            self._index.scores = {**matrix, "num_docs": len(self.documents)}


MATRIX = ("data", "indices", "indptr")
"""The arrays of bm25s's matrix of weights, compressed by word."""


class Terms:
    """The words of each document as numbers: `flat[starts[i]:starts[i + 1]]` are those of document i."""

    def __init__(self, language: str, names: list[str], starts: np.ndarray, flat: np.ndarray) -> None:
        self.language = language
        self.names = names  # by number
        self.starts = starts  # (documents + 1,) int64
        self.flat = flat  # (words of all documents,) int32
        self._number = {name: number for number, name in enumerate(names)}
        self._stem = stemmer(language)
        self._stop = stop_words(language)
        self._seen: dict[str, int | None] = {}

    @classmethod
    def of(cls, language: str, texts: Iterable[str]) -> Terms:
        """The terms of these texts, one for each document."""
        return cls(language, [], np.zeros(1, np.int64), np.empty(0, np.int32)).with_added(texts)

    def with_added(self, texts: Iterable[str]) -> Terms:
        """These and the terms of more texts; the vocabulary grows."""
        flat: list[np.ndarray] = [self.flat]
        lengths: list[int] = []
        for text in texts:
            row = np.array(self._numbers(text, grow=True), np.int32)
            flat.append(row)
            lengths.append(len(row))
        starts = np.concatenate([self.starts, self.starts[-1] + np.cumsum(lengths, dtype=np.int64)])
        return Terms(self.language, self.names, starts, np.concatenate(flat))

    def kept(self, keep: np.ndarray) -> Terms:
        """The terms of the documents that are kept; the vocabulary stays."""
        lengths = np.diff(self.starts)
        starts = np.concatenate([[0], np.cumsum(lengths[keep])]).astype(np.int64)
        return Terms(self.language, self.names, starts, self.flat[np.repeat(keep, lengths)])

    def numbers(self, text: str) -> list[int]:
        """The numbers of a text's words, without those that no document has."""
        return self._numbers(text, grow=False)

    def _numbers(self, text: str, grow: bool) -> list[int]:
        seen = self._seen
        numbers = [seen[word] if word in seen else self._look_up(word, grow) for word in words(text)]
        return [number for number in numbers if number is not None]

    def _look_up(self, word: str, grow: bool) -> int | None:
        """The number of a word that was not met before; stemming is slow, so each word is stemmed once."""
        if word in self._stop:
            self._seen[word] = None
            return None
        stem = self._stem(word)
        if stem not in self._number:
            if not grow:
                return None  # not remembered: a document that has it may come
            self._number[stem] = len(self.names)
            self.names.append(stem)
        self._seen[word] = self._number[stem]
        return self._seen[word]
