"""Words and their weights (BM25), on bm25s.

Every document's words are kept as numbers, so that adding and deleting documents never reads a text twice and
always gives the scores that a fit on the same documents would give.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from triever.arrays import starts_of
from triever.artifact import Snapshot, Writer
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.data.words import stemmer, stop_words, words
from triever.disk_arrays import GrowingArray
from triever.engines.base import Parts
from triever.engines.panels import Matches, Panel, matched
from triever.engines.word_weights import Formula, word_weights
from triever.index.postings import Postings
from triever.index.sharded import ShardedPostings
from triever.memory_parts import Product, Products, Stored, number_products, python_bytes, scaled, text_products
from triever.validation import require, require_array, require_starts, require_within

WORDS = "The words of the query that the document has too, as stems, and what each adds to the score."
"""What matches of words are."""
TEXTS = 4096
"""How many texts are taken apart before their words are written down."""


@dataclass(frozen=True)
class Weighting:
    """How words count: `Weighting("lucene", k1=1.2, b=0.75)`."""

    method: str = "lucene"
    k1: float = 1.2
    b: float = 0.75
    expand: bool = True  # whether expansion texts count too

    @property
    def formula(self) -> Formula:
        """How much a word counts in a document."""
        return Formula(self.method, self.k1, self.b)

    def text(self, document: Document) -> str:
        """All of a document whose words count."""
        extra = document.expansions if self.expand else ()
        return "\n".join((document.full_text, *extra))


@dataclass(frozen=True)
class LexicalEngine:
    """The words of the documents, and what each weighs where."""

    terms: Terms
    postings: Postings | ShardedPostings
    weighting: Weighting

    @classmethod
    def of(cls, terms: Terms, weighting: Weighting, folder: Path | None = None) -> LexicalEngine:
        """With the weights that follow from the words."""
        return cls(terms, Postings(weights(terms, weighting, folder), len(terms)), weighting)

    @classmethod
    def learn(
        cls, language: str, weighting: Weighting, documents: Iterable[Document], folder: Path | None = None
    ) -> LexicalEngine:
        """From documents; what is too large for memory lies in files of the folder."""
        return cls.of(Terms.of(language, map(weighting.text, documents), folder), weighting, folder)

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The documents with words of the query."""
        return [self._search(store, query, k) for query in queries]

    def _search(self, store: DocumentStore, query: str, k: int) -> Result:
        numbers = self.terms.numbers(query)
        rows, scores = self.postings.best(numbers, k) if numbers else ((), ())
        hits = ranked(Hit(store.ids[row], float(score)) for row, score in zip(rows, scores, strict=True))[:k]
        return Result(hits, note="" if hits else self._why_nothing(query, numbers))

    def _why_nothing(self, query: str, numbers: list[int]) -> str:
        language = self.terms.language
        query_words = words(query, language)
        if not query_words:
            return "the query has no words"
        if all(word in stop_words(language) for word in query_words):
            return "the query has only words that are too common to search for"
        if not numbers:
            return "no word of the query is in the corpus"
        # The vocabulary also has the words of documents that are deleted, or that a filter leaves out.
        return "the words of the query are in none of the documents that were searched, or in all of them alike"

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """What each word of the query adds."""
        numbers = self.terms.numbers(query)
        return tuple(self.parts(numbers, store.row(hit.id)) for hit in result)

    def panels(self, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
        """The words that the query shares with each document."""
        numbers = [*dict.fromkeys(self.terms.numbers(query))]
        words = [self.terms.names[number] for number in numbers]
        hits = []
        for hit in result:
            weights = dict(self.parts(self.terms.numbers(query), store.row(hit.id)))
            shared = [word for word in words if word in weights]
            positions = [shared.index(word) if word in weights else -1 for word in words]
            hits.append(matched(hit.id, positions, [weights.get(word, 0.0) for word in words], shared))
        return (Matches(WORDS, "", tuple(words), tuple(hits)),)

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With more documents; all weights change with them."""
        return self._with(self.terms.with_added(map(self.weighting.text, documents)))

    def without(self, keep: np.ndarray) -> Self:
        """Without some of its rows."""
        return self._with(self.terms.kept(keep))

    def among(self, keep: np.ndarray) -> Self:
        """With some of its rows, whose words weigh as much as among all."""
        terms = self.terms.kept(keep) if len(self.terms) else self.terms  # in shards nobody keeps them
        return replace(self, terms=terms, postings=self.postings.among(keep))

    def _with(self, terms: Terms) -> Self:
        return replace(self, terms=terms, postings=Postings(weights(terms, self.weighting), len(terms)))

    def stored(self) -> Stored:
        """Postings and words."""
        return {**self.postings.stored(), **self.terms.stored()}

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed."""
        postings, words = scaled(self.postings.count, now, then), self.terms.vocabulary(now, then)
        return {
            "postings": [
                Product(postings, "words of documents, each once", 4 + 4, "document, weight"),
                Product(words + 1, "words", 8, "where its documents begin, and the end"),
            ],
            **self.terms.products(now, then),
        }

    def made_from(self) -> dict[str, Any]:
        """It has no weights of anybody."""
        return {}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact."""
        writer.json("vocabulary", self.terms.names)
        if not writer.bounds:  # which only changes need, and shards are not changed
            writer.array("term_starts", self.terms.starts)
            writer.array("terms", self.terms.flat)
        self.postings.write(writer)
        return {}

    def parts(self, numbers: list[int], row: int) -> Parts:
        """What the score of one document is made of, the heaviest word first."""
        different = [*dict.fromkeys(numbers)]
        weights = zip(different, self.postings.weights(different, row), strict=True)
        total = ((self.terms.names[number], numbers.count(number) * weight) for number, weight in weights)
        return tuple(sorted((part for part in total if part[1] > 0), key=lambda part: -part[1]))


def read(snapshot: Snapshot, language: str, weighting: Weighting) -> LexicalEngine:
    """The engine of an artifact."""
    names = snapshot.json("vocabulary")
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    require(texts and len(set(names)) == len(names), "its vocabulary is no list of different words")
    if snapshot.shards:
        none = Terms(language, names, np.zeros(1, np.int64), np.empty(0, np.int32))
        return LexicalEngine(none, ShardedPostings.opened(snapshot, len(names)), weighting)
    flat = require_array(snapshot.array("terms"), "terms", ("int32",), (None,))
    require_within(flat, "terms", 0, len(names))
    starts = require_starts(snapshot.array("term_starts"), "term_starts", snapshot.rows, len(flat))
    postings = Postings.read(snapshot, snapshot.rows, len(names))
    return LexicalEngine(Terms(language, names, starts, flat), postings, weighting)


def weights(terms: Terms, weighting: Weighting, folder: Path | None = None) -> dict[str, np.ndarray]:
    """bm25s's matrix of weights, which lies in files of the folder where it is large."""
    return word_weights(terms.starts, terms.flat, len(terms.names), weighting.formula, folder)


def _utf8(text: str) -> int:
    return len(text.encode())


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
    def of(cls, language: str, texts: Iterable[str], folder: Path | None = None) -> Terms:
        """The terms of these texts, one for each document."""
        return cls(language, [], np.zeros(1, np.int64), np.empty(0, np.int32)).with_added(texts, folder)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def with_added(self, texts: Iterable[str], folder: Path | None = None) -> Terms:
        """These and the terms of more texts, with a larger vocabulary; these stay as they are."""
        larger = Terms(self.language, list(self.names), self.starts, self.flat)
        flat, starts, stream = GrowingArray(np.int32, folder), GrowingArray(np.int64, folder), iter(texts)
        flat.append(self.flat)
        starts.append(self.starts)
        while block := list(islice(stream, TEXTS)):
            rows = [larger._numbers(text, grow=True) for text in block]
            starts.append(len(flat) + np.cumsum([len(row) for row in rows]))
            flat.append(np.array([number for row in rows for number in row], np.int32))
        larger.starts, larger.flat = starts.array(), flat.array()
        return larger

    def kept(self, keep: np.ndarray) -> Terms:
        """The terms of the documents that are kept; the vocabulary stays."""
        lengths = np.diff(self.starts)
        starts = starts_of(lengths[keep])
        return Terms(self.language, self.names, starts, self.flat[np.repeat(keep, lengths)])

    def stored(self) -> Stored:
        """What takes memory, by part."""
        return {"terms": [self.flat, self.starts], "vocabulary": [python_bytes(self.names, self._number)]}

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed, for `then` documents in place of `now`."""
        words = self.vocabulary(now, then)
        letters = scaled(sum(map(_utf8, self.names)), len(self.names), words)
        return {
            "terms": [
                Product(scaled(len(self.flat), now, then), "words of documents", 4),
                Product(then + 1, "documents", 8, "where it begins, and the end"),
            ],
            "vocabulary": [*text_products(words, "words", letters), *number_products(words)],
        }

    def vocabulary(self, now: int, then: int) -> int:
        """How many different words `then` documents would have in place of `now`.

        By Heaps' law: a power of the number of words, which is the one by which the second half of them has new ones.
        """
        words, half = len(self.names), self.flat[: len(self.flat) // 2]
        if now in (0, then) or not len(half):
            return words
        before = 1 + int(half.max())  # words have their numbers in the order in which they come
        return round(words * (then / now) ** np.log2(max(words, before) / before))

    def numbers(self, text: str) -> list[int]:
        """The numbers of a text's words, without those that no document has."""
        return self._numbers(text, grow=False)

    def _numbers(self, text: str, grow: bool) -> list[int]:
        seen = self._seen
        text_words = words(text, self.language)
        numbers = [seen[word] if word in seen else self._look_up(word, grow) for word in text_words]
        return [number for number in numbers if number is not None]

    def _look_up(self, word: str, grow: bool) -> int | None:
        """The number of a word that was not met before; stemming is slow, so each word is stemmed once."""
        if word in self._stop:
            self._seen[word] = None
            return None
        stem = self._stem(word)
        if stem not in self._number:
            if not grow:
                return None  # not remembered: queries have no end, and memory has
            self._number[stem] = len(self.names)
            self.names.append(stem)
        self._seen[word] = self._number[stem]
        return self._seen[word]
