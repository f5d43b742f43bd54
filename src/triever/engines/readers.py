"""What every reader can do: answer questions from documents that something else has found.

A reader holds a model and the tokens of all documents. It is a value like an engine: changes make a new one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from triever.artifact import Writer
from triever.data.records import Document
from triever.engines import document_tokens
from triever.memory_parts import Products, Stored, weight_products, weights_in
from triever.models.language_model import LanguageModel
from triever.models.reatt import ReAttModel
from triever.models.tokens import Tokens

AT_ONCE = {"cpu": 16_384, "cuda": 262_144}
"""Tokens of questions with their documents that are read at once."""
NEVER = 2.0
"""A probability that no answer reaches: a reader that knows from there on gives none."""


class Texts(Protocol):
    """A model, and how much of questions and documents it reads."""

    @property
    def model(self) -> ReAttModel | LanguageModel:
        """What reads and answers."""
        ...

    @property
    def most_of_document(self) -> int:
        """How many tokens of a document are read at most."""
        ...

    def read_part(self, text: str) -> str:
        """What is read of the text of a document: its beginning, or all of it."""
        ...

    def documents(self, documents: Iterable[Document]) -> Tokens:
        """The tokens of documents."""
        ...


T = TypeVar("T", bound=Texts)


@dataclass(frozen=True)
class Written:
    """What was written for a question from some documents."""

    tokens: list[int]
    logprob: float
    shares: tuple[float, ...]  # of each document, of what `Reader.shared` says


NOTHING = Written([], -math.inf, ())
"""What is written from no document."""


@dataclass(frozen=True)
class Reader(ABC, Generic[T]):
    """A model that answers, and the tokens of the documents that it reads."""

    texts: T
    documents: Tokens
    known_from: float = 0.0  # below this probability an answer is not given
    trained: Mapping[str, Any] = field(default_factory=dict)

    @property
    def known(self) -> float | str:
        """The probability from which on answers are given, for a card."""
        return "never" if self.known_from >= NEVER else round(self.known_from, 4)

    @property
    def shared(self) -> str:
        """What documents have a share of: the attention when the answer began."""
        return "attention"

    @abstractmethod
    def answers(
        self,
        questions: Sequence[str],
        rows: Sequence[Sequence[int]],
        scores: Sequence[Sequence[float]],
        word_for_word: bool | None = None,
    ) -> list[Written]:
        """For each question the answer that is written from the documents in its rows, which have these scores.

        With `word_for_word` it stands in one of them; not set, that is so where the model copies.
        """

    @abstractmethod
    def write_model(self, writer: Writer) -> None:
        """Put the model into an artifact."""

    def text(self, answer: Written, rows: Sequence[int], texts: Sequence[str]) -> str:
        """An answer as the document writes it that got the most attention, if it stands there, or in another.

        The documents come as rows and texts.
        """
        tokenizer, tokens = self.texts.model.tokenizer, answer.tokens
        order = sorted(range(len(texts)), key=lambda number: -answer.shares[number])
        # To make tokens of a text again takes long; those that were read say whether it pays.
        having = (number for number in order if _stands_in(tokens, self.documents[rows[number]]))
        found = (tokenizer.text_in(tokens, texts[number]) for number in having)
        return next((text for text in found if text), None) or tokenizer.text(tokens).strip()

    def with_added(self, documents: Sequence[Document]) -> Self:
        """With the tokens of more documents."""
        return replace(self, documents=self.documents.joined(self.texts.documents(documents)))

    def keeping(self, keep: np.ndarray) -> Self:
        """With only the documents that are kept (shape: documents, bool)."""
        return replace(self, documents=self.documents.take(np.flatnonzero(keep)))

    def stored(self) -> Stored:
        """What takes memory."""
        return {"weights": [*weights_in(self.texts.model)], "tokens": document_tokens.stored(self.documents)}

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed."""
        model = self.texts.model
        tokens = document_tokens.products(self.documents, model.tokenizer.size, now, then)
        return {"weights": weight_products(weights_in(model)), "tokens": tokens}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact, and give back the state that is not a file."""
        self.write_model(writer)
        document_tokens.write(self.documents, writer)
        return {"trained": dict(self.trained), "known_from": self.known_from}


def _stands_in(part: Sequence[int], whole: np.ndarray) -> bool:
    """Whether some tokens stand among others, one behind the other.

    >>> _stands_in([2, 3], np.array([1, 2, 3])), _stands_in([2, 2], np.array([1, 2, 3])), _stands_in([], np.array([1]))
    (True, False, False)
    """
    count = len(part)
    if not 0 < count <= len(whole):
        return False
    places = np.flatnonzero(whole[: len(whole) - count + 1] == part[0])
    return any(np.array_equal(whole[place : place + count], part) for place in places.tolist())
