"""A corpus with its queries and judgements by split, read anew each time it is asked for.

Knows nothing of files: it is given functions that read.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import TypeAlias

from triever.arguments import as_path, brief, listed, table, text
from triever.data.formats.problems import Problems
from triever.data.readers import read_expansions
from triever.data.reading import IN_MEMORY, Reading, Source
from triever.data.records import Document, Qrels, Query, normalise
from triever.data.splits import ALL, named_splits
from triever.errors import DataError, UsageError, meant, nearest
from triever.printable import count_of

NAMED = 10
"""How many fields a warning names."""
SHIPPED = "python"
"""The name of the written questions that come with the package, for the corpus of the same name."""
Documents: TypeAlias = Callable[[Problems], Iterator[Document]]
Queries: TypeAlias = Callable[[Problems], Iterator[Query]]
Judged: TypeAlias = Callable[[Sequence[Query], Qrels], Qrels]
"""Other judgements for some queries and theirs."""
_log = logging.getLogger("triever")


@dataclass(frozen=True, slots=True)
class Split:
    """How a split is read; without qrels, nothing in it is judged.

    With `has_own_queries`, queries and judgements come from one file, as KILT's and DPR's do: then all of its
    queries belong to the split, judged or not.
    """

    queries: Queries
    qrels: Callable[[Problems], Qrels] | None = None
    has_own_queries: bool = False


class Dataset:
    """Documents, and queries and judgements by split; several splits are asked for together as `a+b`.

    Examples:
        >>> documents, queries = [Document("d1", "a cat")], [Query("q1", "cats?")]
        >>> data = Dataset.of("tiny", documents, queries, {"test": {"q1": {"d1": 1}}})
        >>> data.splits, [query.id for query in data.queries("test")]
        (('test',), ['q1'])
    """

    def __init__(
        self,
        name: str,
        documents: Documents,
        splits: Mapping[str, Split],
        *,
        skip_bad: bool = False,
        source: Source = IN_MEMORY,
    ) -> None:
        self.name = name
        self.skip_bad = skip_bad
        self.source = source
        self._documents = documents
        self._parts = dict(splits)
        self._qrels: dict[str, Qrels] = {}
        self._queries: dict[str, list[Query]] = {}
        self._fingerprint = ""
        self._reading: Reading | None = None
        self._warned: set[str] = set()

    @classmethod
    def of(
        cls,
        name: str,
        documents: Iterable[Document],
        queries: Iterable[Query] = (),
        qrels: Mapping[str, Qrels] | None = None,
        unjudged: Mapping[str, Iterable[Query]] | None = None,
    ) -> Dataset:
        """A dataset held in memory; each key of `unjudged` is a split; queries without qrels make the split "all"."""
        text(name, "name")
        kept, asked = listed(documents, Document, "Dataset.of", "documents"), _asked(queries)
        _refuse_duplicates("documents", (document.id for document in kept))
        _refuse_duplicates("queries", (query.id for query in asked))
        judged = table({} if qrels is None else qrels, "qrels", '{"test": {"q1": {"d1": 1}}}')
        unjudged_queries = table({} if unjudged is None else unjudged, "unjudged", '{"dev": queries}')
        splits = {text(split, "a split"): _held(asked, _normalised(grades)) for split, grades in judged.items()}
        splits |= {
            text(split, "a split"): _held(_asked(listed_queries), None)
            for split, listed_queries in unjudged_queries.items()
        }
        if asked and not splits:
            splits = {ALL: _held(asked, None)}
        return cls(name, lambda _problems: iter(kept), splits)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return tuple(self._parts)

    @property
    def root(self) -> str:
        """The absolute path of the folder at which the ids of text files begin; "" if there are no text files."""
        return self.source.root

    @property
    def ignored(self) -> tuple[str, ...]:
        """Files that look like data and were not read."""
        return self.source.ignored

    @property
    def unread(self) -> tuple[str, ...]:
        """Other files that were not read."""
        return self.source.unread

    def documents(self) -> Iterator[Document]:
        """All documents; each call starts from the first."""
        problems, digest, count = Problems(self.skip_bad), Digest(), 0
        unseen = {split: _relevant(qrels) for split, qrels in self._qrels.items() if split in self._parts}
        fields, has_text = "", False
        for document in self.stream(problems):
            for missing in unseen.values():
                missing.discard(document.id)
            digest.add(document)
            fields = fields if count else ", ".join([*document.metadata][:NAMED])
            has_text = has_text or bool(document.text)
            count += 1
            yield document
        self._fingerprint = digest.hex()
        self._reading = Reading.of(self.source, count, problems)
        self._tell_problems(problems)
        for split, missing in unseen.items():
            self._tell_unknown(split, len(missing))
        if fields and not has_text:
            outcome = f"a title and no text: {fields} became metadata; if one of these is the text, call it text, "
            self._tell(count, f"document has {outcome}contents or body", f"documents have {outcome}contents or body")

    def queries(self, split: str) -> list[Query]:
        """The judged queries of the split; all its queries if nothing is judged or it has its own file of queries."""
        self._check_name(split)
        if split not in self._queries:
            parts = self.parts_of(split)
            self._queries[split] = self._own_queries(split) if parts == [split] else self._joined_queries(parts)
        return list(self._queries[split])

    def questions(self) -> dict[str, str]:
        """The texts of the queries of all splits, by their ids."""
        return {query.id: query.text for split in self.splits for query in self.queries(split)}

    def qrels(self, split: str) -> Qrels:
        """The judgements of a split: query id -> document id -> grade."""
        self._check_name(split)
        if split not in self._qrels:
            parts = self.parts_of(split)
            self._qrels[split] = self._own_qrels(split) if parts == [split] else self._joined_qrels(parts)
        return self._qrels[split]

    def parts_of(self, split: str) -> list[str]:
        """The splits that `a+b` names, or the one split; an error if there is no such split."""
        self._check_name(split)
        names = [split] if split in self._parts else named_splits(split)
        for name in names:
            self._part(name)
        return names

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the ids, titles and texts of all documents in their order."""
        if not self._fingerprint:
            deque(self.documents(), maxlen=0)
        return self._fingerprint

    @property
    def reading(self) -> Reading:
        """Counts of documents and files that were read, and of files that were not."""
        if self._reading is None:
            deque(self.documents(), maxlen=0)
        assert self._reading is not None
        return self._reading

    def with_expansions(self, source: str | Path | Mapping[str, Iterable[str]]) -> Dataset:
        """The same dataset, with further expansions for its documents.

        The source is a file, or a mapping from document ids to texts; `python` names the questions that are shipped
        for the default corpus.
        """
        problems = Problems(self.skip_bad)
        shipped = str(source) == SHIPPED and not os.path.exists(SHIPPED)
        texts = _expansions(_shipped() if shipped else source, problems)
        self._tell_problems(problems)

        def documents(problems: Problems) -> Iterator[Document]:
            used = 0
            for document in self.stream(problems):
                extra = texts.get(document.id, ())
                used += document.id in texts
                yield replace(document, expansions=(*document.expansions, *extra)) if extra else document
            if not shipped:  # these cover the documents of several Python versions, and no version has all
                one, several = "expansion belongs to a document that is", "expansions belong to documents that are"
                self._tell(len(texts) - used, f"{one} not there", f"{several} not there")

        return Dataset(self.name, documents, self._parts, skip_bad=self.skip_bad, source=self.source)

    def rejudged(self, documents: Iterable[Document], judged: Judged) -> Dataset:
        """The same questions over other documents, on which `judged` gives judgements in place of its own."""

        def part(name: str) -> Split:
            def qrels(_problems: Problems) -> Qrels:
                return judged(self.queries(name), self.qrels(name))

            is_judged = self._part(name).qrels is not None
            return Split(lambda _problems: iter(self.queries(name)), qrels if is_judged else None, has_own_queries=True)

        splits = {name: part(name) for name in self._parts}
        return Dataset(self.name, lambda _problems: iter(documents), splits, source=self.source)

    def unknown_documents(self, split: str, known: Container[str]) -> list[str]:
        """The relevant documents of a split that are not in `known`; warns if there are any."""
        unknown: set[str] = set()
        for part in self.parts_of(split):  # each by itself, so that it is told in the words of `documents`, and once
            missing = {document for document in _relevant(self.qrels(part)) if document not in known}
            self._tell_unknown(part, len(missing))
            unknown |= missing
        return sorted(unknown)

    def _tell_unknown(self, split: str, count: int) -> None:
        judged, there = f"judged relevant in {split}", "not there"
        self._tell(count, f"document that is {judged} is {there}", f"documents that are {judged} are {there}")

    def queries_without_relevant(self, split: str) -> list[str]:
        """The judged queries of a split for which no document is relevant; warns if there are any."""
        judged = self.qrels(split)
        without = [query for query, grades in judged.items() if all(grade <= 0 for grade in grades.values())]
        among = f"of {count_of(len(judged), 'judged query', 'judged queries')} of {split}"
        one = f"{among} has no relevant document: whatever is found, it counts as a miss"
        several = f"{among} have no relevant document: whatever is found, they count as misses"
        self._tell(len(without), one, several)
        return without

    def _own_queries(self, split: str) -> list[Query]:
        judged = self.qrels(split)
        problems = Problems(self.skip_bad)
        queries = self.read_queries({split: judged}, problems)[split]
        self._tell_problems(problems)
        ids = {query.id for query in queries}
        one = f"judged query of {split} is not there; where it is measured, it counts as a miss"
        several = f"judged queries of {split} are not there; where they are measured, they count as misses"
        self._tell(len(judged.keys() - ids), one, several)
        return queries

    def _own_qrels(self, split: str) -> Qrels:
        problems = Problems(self.skip_bad)
        qrels = self.read_qrels(split, problems)
        self._tell_problems(problems)
        return qrels

    def _joined_queries(self, splits: Sequence[str]) -> list[Query]:
        """The queries of all the splits, in their order; of queries with the same id, only the first."""
        joined: dict[str, Query] = {}
        for split in splits:
            for query in self.queries(split):
                joined.setdefault(query.id, query)
        return list(joined.values())

    def _joined_qrels(self, splits: Sequence[str]) -> Qrels:
        """All judgements; where two splits judge the same document, the first split counts."""
        joined: dict[str, dict[str, int]] = {}
        for split in splits:
            for query, judged in self.qrels(split).items():
                joined[query] = {**judged, **joined.get(query, {})}
        return joined

    # Methods that read anew, and count bad records for the caller.

    def stream(self, problems: Problems) -> Iterator[Document]:
        """All documents."""
        return self._documents(problems)

    def read_queries(self, judged: Mapping[str, Container[str]], problems: Problems) -> dict[str, list[Query]]:
        """The queries of each split, as `queries` returns them.

        Splits often share one file of queries, so each source is read once for all of its splits.
        """
        kept: dict[str, dict[str, Query]] = {split: {} for split in judged}
        sources: dict[Queries, list[str]] = {}
        for split in judged:
            sources.setdefault(self._part(split).queries, []).append(split)
        for source, splits in sources.items():
            for query in source(problems):
                for split in splits:
                    if query.id in judged[split] or self._holds_all(split):
                        kept[split].setdefault(query.id, query)
        return {split: list(queries.values()) for split, queries in kept.items()}

    def read_qrels(self, split: str, problems: Problems) -> Qrels:
        """The judgements of a split; empty if nothing is judged."""
        part = self._part(split)
        return part.qrels(problems) if part.qrels else {}

    def is_judged(self, split: str, qrels: Qrels | None = None) -> bool:
        """Whether the split has judgements; they are read unless `qrels` has them.

        A qrels file counts even if it is empty; a file of questions counts only if one of them is judged.
        """
        part = self._part(split)
        if part.qrels is None or not part.has_own_queries:
            return part.qrels is not None
        return bool(self.qrels(split) if qrels is None else qrels)

    def _holds_all(self, split: str) -> bool:
        part = self._part(split)
        return part.has_own_queries or part.qrels is None

    def _check_name(self, split: str) -> None:
        if not isinstance(split, str):
            raise UsageError(f"{brief(split)} is not the name of a split", f"the splits are: {', '.join(self._parts)}")

    def _part(self, split: str) -> Split:
        if split not in self._parts:
            raise UsageError(f"{self.name} has no split {split!r}", _split_hint(split, self.splits))
        return self._parts[split]

    def _tell(self, count: int, problem: str, problems: str) -> None:
        """Log a warning of one thing or of several, each one once, because datasets are read many times."""
        message = f"{self.name}: {count_of(count, problem, problems)}"
        if count > 0 and message not in self._warned:
            self._warned.add(message)
            _log.warning("%s", message)

    def _tell_problems(self, problems: Problems) -> None:
        if problems.count:
            example = f"left out, such as {problems.examples[0]}"
            self._tell(problems.count, f"bad record was {example}", f"bad records were {example}")

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, splits={self.splits})"


def _split_hint(split: str, splits: Sequence[str]) -> str:
    """What to do about a split that is not there: a dataset without judgements has `all` alone."""
    if not splits:
        return "the dataset has no queries at all"
    if len(splits) == 1 and not meant(split, splits):
        return f"its only split is {splits[0]}: --set training.split={splits[0]} learns from it, and --split names it"
    return nearest(split, splits)


class Digest:
    """A running fingerprint of documents, and their size in bytes."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.bytes = 0

    def add(self, document: Document) -> None:
        """Take in the next document. Lengths keep fields apart: ("ab", "c") is not ("a", "bc")."""
        key, title, text = (
            field.encode("utf-8", "surrogatepass") for field in (document.id, document.title, document.text)
        )
        self.bytes += len(title) + len(text)
        self._hash.update(b"%d %d %d\n%b%b%b" % (len(key), len(title), len(text), key, title, text))

    def hex(self) -> str:
        """The fingerprint so far."""
        return self._hash.hexdigest()


def are_the_same(documents: Iterable[Document], others: Iterable[Document]) -> bool:
    """Whether these are the same documents, in whatever order.

    >>> tea, rice = Document("tea", "hot"), Document("rice", "soft")
    >>> are_the_same([tea, rice], [rice, tea]), are_the_same([tea, tea], [rice, rice])
    (True, False)
    """
    return _in_any_order(documents) == _in_any_order(others)


def _in_any_order(documents: Iterable[Document]) -> int:
    """The sum of the fingerprints of documents."""
    total = 0
    for document in documents:
        digest = Digest()
        digest.add(document)
        total += int(digest.hex(), 16)
    return total


def _held(queries: list[Query], qrels: Qrels | None) -> Split:
    return Split(lambda _problems: iter(queries), None if qrels is None else lambda _problems: qrels)


def _asked(queries: Iterable[Query]) -> list[Query]:
    return listed(queries, Query, "Dataset.of", "queries")


def _normalised(qrels: Qrels) -> Qrels:
    """The judgements with normalised ids; an error unless all grades are whole numbers."""
    example = '{"q1": {"d1": 1}}'
    return {
        normalise(query): {
            normalise(document): _grade(document, grade)
            for document, grade in table(judged, f"the judgements of {query}", example).items()
        }
        for query, judged in table(qrels, "qrels of a split", example).items()
    }


def _grade(document: str, grade: int) -> int:
    if not isinstance(grade, Real) or not float(grade).is_integer():
        raise UsageError(f"the grade of {document} is {brief(grade)}, not a whole number", "for example: 0, 1 or 2")
    return grade


def _relevant(qrels: Qrels) -> set[str]:
    return {document for grades in qrels.values() for document, grade in grades.items() if grade > 0}


def _shipped() -> Mapping[str, Iterable[str]]:
    from triever.data.python_docs import written_questions

    return written_questions()


def _expansions(source: str | Path | Mapping[str, Iterable[str]], problems: Problems) -> dict[str, tuple[str, ...]]:
    texts: dict[str, list[str]] = {}
    pairs = source.items() if isinstance(source, Mapping) else read_expansions(as_path(source), problems)
    for document, extra in pairs:
        key = normalise(document)
        texts.setdefault(key, []).extend(listed(extra, str, f"the expansions of {key}", "texts"))
    return {document: tuple(extra) for document, extra in texts.items()}


def _refuse_duplicates(kind: str, ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for record_id in ids:
        if record_id in seen:
            raise DataError(f"two {kind} have the id {record_id!r}", "give every record its own id")
        seen.add(record_id)
