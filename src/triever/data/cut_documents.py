"""Documents that are searched by their passages: which passage is whose, and which of them a question is about."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from triever.data.cutting import Cut, headings
from triever.data.dataset import Dataset
from triever.data.records import Document, Qrels, Query
from triever.data.store import DocumentStore
from triever.data.words import words
from triever.validation import require

SPANS = pa.schema([("document", pa.int64()), ("start", pa.int64()), ("end", pa.int64())])
"""A passage in a file: the row of its document, and where it begins and ends in the text."""


@dataclass(frozen=True, eq=False)
class CutDocuments:
    """A store of passages, each a document with the title of its own: passage i is of document owners[i]."""

    passages: DocumentStore
    owners: np.ndarray  # (passages,) the rows of documents, rising
    spans: np.ndarray  # (passages, 2) where each begins and ends in the text of its document
    cut: Cut

    def __post_init__(self) -> None:
        self.passages.cut = self.cut

    @classmethod
    def of(cls, documents: Iterable[Document], cut: Cut) -> CutDocuments:
        """Cut documents."""
        return cls._made(documents, cut, ([*cut.spans(document.text)] for document in documents))

    @classmethod
    def _made(
        cls, documents: Iterable[Document], cut: Cut, spans_of_documents: Iterable[Sequence[tuple[int, int]]]
    ) -> CutDocuments:
        owners: list[int] = []
        spans: list[tuple[int, int]] = []

        def passages() -> Iterator[Document]:
            for row, (document, places) in enumerate(zip(documents, spans_of_documents, strict=True)):
                owners.extend([row] * len(places))
                spans.extend(places)
                yield from _passages(document, places)

        store = DocumentStore.of(passages())
        return cls(store, np.array(owners, np.int64), np.array(spans, np.int64).reshape(-1, 2), cut)

    @classmethod
    def opened(cls, table: pa.Table, documents: DocumentStore, cut: Cut) -> CutDocuments:
        """The passages of a file; a ValueError if they are not passages of these documents."""
        owners, starts, ends = (table.column(name).to_numpy() for name in SPANS.names)
        require((np.diff(owners) >= 0).all(), "the documents of its passages do not rise")
        require(np.array_equal(np.unique(owners), np.arange(len(documents))), "a document has no passages")
        places: list[list[tuple[int, int]]] = [[] for _ in range(len(documents))]
        for owner, start, end in zip(owners.tolist(), starts.tolist(), ends.tolist(), strict=True):
            places[owner].append((start, end))
        for document, spans in zip(documents, places, strict=True):
            inside = all(0 <= start <= end <= len(document.text) for start, end in spans)
            require(inside, f"a passage is not inside of document {document.id!r}")
        return cls._made(documents, cut, places)

    @property
    def table(self) -> pa.Table:
        """The passages as a file holds them."""
        columns = [self.owners, self.spans[:, 0], self.spans[:, 1]]
        return pa.table(dict(zip(SPANS.names, columns, strict=True)), SPANS)

    @cached_property
    def most(self) -> int:
        """How many passages a document has at most."""
        return int(np.bincount(self.owners).max(initial=0))

    @property
    def divided(self) -> int:
        """How many documents have several passages."""
        return int((np.bincount(self.owners) > 1).sum())

    def with_added(self, documents: Sequence[Document]) -> tuple[CutDocuments, list[Document]]:
        """The same with more documents behind its own, and the passages of these."""
        new = CutDocuments.of(documents, self.cut)
        first = int(self.owners[-1]) + 1 if len(self.owners) else 0
        owners = np.concatenate([self.owners, first + new.owners])
        passages = [*new.passages]
        store = self.passages.with_added(passages)
        return CutDocuments(store, owners, np.concatenate([self.spans, new.spans]), self.cut), passages

    def where(self, keep: np.ndarray) -> CutDocuments:
        """The passages of documents that are kept (shape: documents, bool), which are numbered as if alone."""
        rows = keep[self.owners]
        numbers = np.cumsum(keep) - 1
        return replace(
            self, passages=self.passages.where(rows), owners=numbers[self.owners[rows]], spans=self.spans[rows]
        )

    def dataset(self, dataset: Dataset, documents: DocumentStore) -> Dataset:
        """The dataset that its documents are from, with passages in their place.

        A question about a document is one about the passage that shares the most and the rarest words with it.
        """
        bounds = np.searchsorted(self.owners, np.arange(len(documents) + 1))
        known: dict[int, list[set[str]]] = {}

        def judged(queries: Sequence[Query], qrels: Qrels) -> Qrels:
            return {query.id: dict(judgements(query, qrels.get(query.id, {}))) for query in queries}

        def judgements(query: Query, grades: Mapping[str, int]) -> Iterator[tuple[str, int]]:
            for document, grade in grades.items():
                if document not in documents:
                    continue
                row = documents.row(document)
                first, last = int(bounds[row]), int(bounds[row + 1])
                if row not in known:
                    known[row] = [{*words(passage.full_text)} for passage in self.passages.slice(first, last)]
                yield self.passages.ids[first + _nearest(query.text, known[row])], grade

        return dataset.rejudged(self.passages, judged)


def _passages(document: Document, spans: Sequence[tuple[int, int]]) -> Iterator[Document]:
    """A document for each passage; texts that stand for the whole go to the passages that they are nearest to."""
    texts = [document.text[start:end] for start, end in spans]
    titles = _titles(document, spans)
    expansions: list[list[str]] = [[] for _ in texts]
    if document.expansions:
        known = [{*words(f"{title} {text}")} for title, text in zip(titles, texts, strict=True)]
        for expansion in document.expansions:
            expansions[_nearest(expansion, known)].append(expansion)
    for number, (title, text, own) in enumerate(zip(titles, texts, expansions, strict=True)):
        yield Document.stored(f"{document.id}#{number}", text, title, tuple(own), {})


def _titles(document: Document, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The title of each passage: that of the document, and the heading that the passage stands under.

    >>> document = Document("tea", "# Green\\nShort. Cool. Mild.", "Tea")
    >>> _titles(document, [(0, 14), (15, 26)])
    ['Tea', 'Tea: Green']
    """
    if len(spans) == 1:
        return [document.title]
    found, titles = headings(document.text), []
    for start, _ in spans:
        at = bisect_right(found, start, key=lambda heading: heading[0]) - 1
        above = found[at][1] if at >= 0 and found[at][0] < start else ""  # else the passage begins with it
        parts = dict.fromkeys(part for part in (document.title, above) if part)
        titles.append(": ".join(parts))
    return titles


def _nearest(text: str, passages: Sequence[set[str]]) -> int:
    """Which of the passages of a document shares the most words with a text; a word of all passages counts least.

    >>> _nearest("cold tea", [{"hot", "tea"}, {"cold", "tea"}, {"tea"}])
    1
    """
    if len(passages) == 1:
        return 0
    wanted = {*words(text)}
    having = Counter(word for passage in passages for word in wanted & passage)
    weights = [sum(1 / having[word] for word in wanted & passage) for passage in passages]
    return max(range(len(passages)), key=lambda number: (weights[number], -number))
