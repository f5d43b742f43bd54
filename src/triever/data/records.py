"""The small immutable records that everything else passes around.

Ids are always strings. Every record converts its text to Unicode NFC, so that no part of Triever compares two
spellings of the same character. Nothing here reads a file.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, overload

from triever.arguments import brief
from triever.data.snippets import Snippet, snippet
from triever.errors import UsageError

Qrels: TypeAlias = Mapping[str, Mapping[str, int]]
"""Relevance judgements: query id -> document id -> grade (above zero is relevant)."""


def normalise(text: str) -> str:
    """Unicode NFC, the one form in which Triever holds text and ids."""
    if not isinstance(text, str):
        raise UsageError(f"{brief(text)} is not text", "ids and texts are strings")
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", _MARKS.sub(_in_order, text) if len(text) > _FEW else text)


_FEW = 100
_MARKS = re.compile(f"[\u0300-\U0001ffff]{{{_FEW},}}")


def _in_order(run: re.Match[str]) -> str:
    """A long run of accents in NFC's order; Python itself takes quadratic time to sort them."""
    apart = "".join(unicodedata.normalize("NFD", character) for character in run.group())
    groups = itertools.groupby(apart, key=lambda character: unicodedata.combining(character) > 0)
    return "".join("".join(sorted(group, key=unicodedata.combining) if marks else group) for marks, group in groups)


def wrong_id(value: str, field: str = "id") -> tuple[str, str] | None:
    """What is wrong with an id and what to do about it; None if every format of the field can hold the id."""
    if not value.strip():
        return f"the {field} is empty", "give every record its own id"
    if value.isprintable():  # nearly all of them
        return None
    if _BREAKS.search(value):
        return f"the {field} {brief(value)} holds a tab or line break", "put an underscore in its place"
    if _UNCLEAN.search(value):
        return (
            f"the {field} {brief(value)} holds a NUL character or half of a surrogate pair",
            "put an underscore in its place",
        )
    return None


_BREAKS = re.compile("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_UNCLEAN = re.compile("[\0\ud800-\udfff]")


# Functions that set fields of a frozen record while it is made.


def _take_id(record: Document | Query) -> None:
    _take_text(record, "id")
    if wrong := wrong_id(record.id):
        raise UsageError(*wrong)


def _take_text(record: Document | Query, name: str) -> None:
    value = getattr(record, name)
    clean = normalise(value)
    if clean is not value:
        object.__setattr__(record, name, clean)


def _take_texts(record: Document | Query, name: str) -> None:
    value = getattr(record, name)
    if value != ():
        object.__setattr__(record, name, _texts(value, name))


def _texts(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, tuple | list):
        raise UsageError(f"{name} = {brief(value)} should be a tuple of texts", f'for example: {name}=("one", "two")')
    return tuple(map(normalise, value))


def _check_metadata(record: Document | Query) -> None:
    """Refuse metadata that cannot be saved as JSON."""
    value = record.metadata
    if not isinstance(value, Mapping):
        raise UsageError(f"metadata = {brief(value)} should be a mapping", 'for example: metadata={"year": 1999}')
    try:
        if value and not _is_plain(value):
            json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "use texts, finite numbers, lists and dicts of them"
        raise UsageError(f"the metadata of {record.id} cannot be written as JSON: {error}", hint) from None


_PLAIN = frozenset((str, bool, type(None)))
_LONG = 2**63  # whole numbers beyond may have more digits than Python writes


def _is_plain(value: Any) -> bool:
    """Whether the value is certainly JSON; this is far faster than writing it."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is float:
        return math.isfinite(value)
    if kind is int:
        return -_LONG < value < _LONG
    if kind is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    return kind is list and all(map(_is_plain, value))


@dataclass(frozen=True, slots=True)
class Document:
    """A document; `expansions` are further texts that stand for it, such as generated queries."""

    id: str
    text: str
    title: str = ""
    expansions: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _take_id(self)
        _take_text(self, "text")
        _take_text(self, "title")
        _take_texts(self, "expansions")
        _check_metadata(self)

    @classmethod
    def stored(
        cls, key: str, text: str, title: str, expansions: tuple[str, ...], metadata: Mapping[str, Any]
    ) -> Document:
        """A document as it was stored, unchecked, so that documents of earlier versions stay readable."""
        document = cls.__new__(cls)
        values = {"id": key, "text": text, "title": title, "expansions": expansions, "metadata": metadata}
        for name, value in values.items():
            object.__setattr__(document, name, value)
        return document

    @property
    def full_text(self) -> str:
        """Title and text as one string."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Query:
    """A question; `answers` are strings that answer it.

    `evidence` holds alternative sets of documents, each of which is enough on its own (KILT).
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    evidence: tuple[tuple[str, ...], ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _take_id(self)
        _take_text(self, "text")
        _take_texts(self, "answers")
        _check_metadata(self)
        if self.evidence != ():
            if not isinstance(self.evidence, tuple | list):
                problem = f"evidence = {brief(self.evidence)} should be a tuple of tuples of ids"
                raise UsageError(problem, 'for example: evidence=(("d1", "d2"), ("d3",))')
            object.__setattr__(self, "evidence", tuple(_texts(ids, "evidence") for ids in self.evidence))


class Documents(Protocol):
    """What has documents by id."""

    def document(self, document_id: str) -> Document:
        """The document with this id."""
        ...


@dataclass(frozen=True)
class Found:
    """Where hits come from: the documents that were searched, and the query."""

    documents: Documents
    query: str


class _Readable:
    """What a hit can be asked for if it comes from a search, and not from a file of hits.

    Where it comes from is no field, so that hits are compared, printed and saved without their documents.
    """

    __slots__ = ("_found",)
    id: str
    span: tuple[int, int] | None
    _found: Found

    def came_from(self, found: Found) -> None:
        """Note where it comes from."""
        object.__setattr__(self, "_found", found)

    def _source(self) -> Found:
        try:
            return self._found
        except AttributeError:
            problem = f"the hit {self.id} does not come from a search, so its document is not known"
            raise UsageError(problem, "look it up: retriever.documents.document(hit.id)") from None

    @property
    def document(self) -> Document:
        """The document."""
        return self._source().documents.document(self.id)

    @property
    def title(self) -> str:
        """The title of the document."""
        return self.document.title

    @property
    def text(self) -> str:
        """The text of the document."""
        return self.document.text

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the document."""
        return self.document.metadata

    @property
    def passage(self) -> str:
        """The passage of the document that matched best; the whole text, where no passages are searched."""
        start, end = self.span or (0, None)
        return self.text[start:end]

    @property
    def snippet(self) -> Snippet:
        """The sentences of the passage that say most about the query, and where the query's words stand in them."""
        found = snippet(self.passage, self._source().query)
        return replace(found, start=found.start + self.span[0]) if self.span else found


@dataclass(frozen=True, slots=True)
class Hit(_Readable):
    """One retrieved document; systems that write docids give its docid and log-probability.

    Documents that share a docid divide its probability among them, so that `logprob` is less than the docid's. A hit of
    a search also has the document's `title`, `text` and `metadata`, and the `snippet` that fits the query best. Where
    passages are searched, `span` says where the best one begins and ends in the text, and `passage` what it says.
    """

    id: str
    score: float
    docid: str | None = None
    logprob: float | None = None
    span: tuple[int, int] | None = None

    def within(self, start: int, end: int) -> Hit:
        """The same hit, of a part of its document."""
        made = replace(self, span=(start, end))
        made.came_from(self._source())
        return made


@dataclass(frozen=True, slots=True)
class Result(Sequence[Hit]):
    """The hits of one query, best first, and what else the search returns.

    `thought` is what a language model wrote about the query before it searched, where it was asked to think.
    """

    hits: tuple[Hit, ...] = ()
    note: str = ""
    certificate: str = ""
    answer: str | None = None
    thought: str = ""

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


@dataclass(frozen=True, slots=True)
class Source:
    """A document that an answer was written from; `share` is how much of the attention it got as the answer began.

    Where documents are read one by one (RAG), `share` is how probable dense retrieval finds the document. `matches` has
    for each token of the question the token of the document that it attends to most, and how much, where the model that
    answers has found the document by its own attention. `holds_answer` says whether what was written stands in what was
    read of the document, if it was looked for; where that is not all of its text, `hit.span` says which part it is.
    """

    hit: Hit
    share: float
    matches: tuple[tuple[str, str, float], ...] = ()
    holds_answer: bool | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, with the documents that it was written from, the one with the largest share first.

    `text` is None where the model does not know: `probability`, that of the written answer, is too low then. `written`
    is what was written all the same. `note` is what the search says, such as why it found nothing to read.
    """

    question: str
    text: str | None
    probability: float
    written: str
    sources: tuple[Source, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        return "I do not know" if self.text is None else self.text

    def given_from(self, probability: float) -> Answer:
        """What is answered if answers are given from this probability on.

        >>> lit = Answer("who lit it", None, 0.4, "Maria")
        >>> lit.given_from(0.3).text, lit.given_from(0.5).text
        ('Maria', None)
        """
        known = bool(self.written) and self.probability >= probability
        return replace(self, text=self.written if known else None)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        sources = [
            {
                "id": source.hit.id,
                "title": source.hit.title,
                **({"span": list(source.hit.span)} if source.hit.span else {}),
                "share": source.share,
                "holds_answer": source.holds_answer,
                "score": source.hit.score,
                "snippet": str(source.hit.snippet),
                "matches": [list(match) for match in source.matches],
            }
            for source in self.sources
        ]
        own = {"question": self.question, "answer": self.text, "probability": self.probability, "written": self.written}
        return {**own, "sources": sources, "note": self.note}


Run: TypeAlias = Mapping[str, Result]
"""The results of a system: query id -> its hits."""


def ranked(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """Hits in the one order used everywhere: higher score first, then the larger id.

    The second key is trec_eval's, so our ranks are the ranks that any tool of the field computes
    from a run we wrote.
    """
    by_id = sorted(hits, key=lambda hit: hit.id, reverse=True)
    return tuple(sorted(by_id, key=lambda hit: hit.score, reverse=True))
