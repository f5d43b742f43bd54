"""The small immutable records that everything else passes around.

Ids are always strings. Text is in Unicode NFC: every record sees to that itself, so no part of
Triever ever compares two spellings of the same character. Nothing here reads a file.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, overload

from triever.errors import UsageError

Qrels: TypeAlias = Mapping[str, Mapping[str, int]]
"""Relevance judgements: query id -> document id -> grade (above zero is relevant)."""


def normalise(text: str) -> str:
    """Unicode NFC, the one form in which Triever holds text and ids."""
    try:
        if text.isascii() or unicodedata.is_normalized("NFC", text):
            return text
        return unicodedata.normalize("NFC", _MARKS.sub(_in_order, text) if len(text) > _FEW else text)
    except AttributeError:
        raise UsageError(f"{text!r} is not text", "ids and texts are strings") from None


_FEW = 100
_MARKS = re.compile(f"[\u0300-\U0001ffff]{{{_FEW},}}")


def _in_order(run: re.Match[str]) -> str:
    """Long runs of accents in the order that NFC gives them, for Python takes quadratic time to sort them."""
    apart = "".join(unicodedata.normalize("NFD", character) for character in run.group())
    groups = itertools.groupby(apart, key=lambda character: unicodedata.combining(character) > 0)
    return "".join("".join(sorted(group, key=unicodedata.combining) if marks else group) for marks, group in groups)


def _normalise_fields(record: object, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        if isinstance(value, tuple):
            clean: Any = tuple(normalise(item) for item in value)
        else:
            clean = normalise(value)
        object.__setattr__(record, name, clean)  # the record is still being made: frozen only after


@dataclass(frozen=True, slots=True)
class Document:
    """A document; `expansions` are texts that stand for it too, such as generated queries."""

    id: str
    text: str
    title: str = ""
    expansions: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _normalise_fields(self, "id", "text", "title", "expansions")

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
        _normalise_fields(self, "id", "text", "answers")
        clean = tuple(tuple(normalise(item) for item in one) for one in self.evidence)
        object.__setattr__(self, "evidence", clean)


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved document; systems that write docids say its docid and its log-probability.

    The probability of a docid that several documents share is divided among them, so that `logprob` is less than that
    of the docid there.
    """

    id: str
    score: float
    docid: str | None = None
    logprob: float | None = None


@dataclass(frozen=True, slots=True)
class Result(Sequence[Hit]):
    """The hits of one query, best first, and what the search has to say about them."""

    hits: tuple[Hit, ...] = ()
    note: str = ""
    certificate: str = ""
    trace: Any = None
    answer: str | None = None

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


Run: TypeAlias = Mapping[str, Result]
"""What a system retrieved: query id -> its hits."""


def ranked(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """Hits in the one order used everywhere: higher score first, then the larger id.

    The second key is trec_eval's, so our ranks are the ranks that any tool of the field computes
    from a run we wrote.
    """
    by_id = sorted(hits, key=lambda hit: hit.id, reverse=True)
    return tuple(sorted(by_id, key=lambda hit: hit.score, reverse=True))
