"""A query writer at work: documents in, their questions out: clean, each once, and with a judge only the best.

Knows nothing of how the model was made, nor of files.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from triever.data.records import Document, normalise
from triever.errors import UsageError
from triever.models.sampling import Sampling, continued
from triever.models.tokens import TextTokenizer, Tokens, by_length
from triever.retrievers.reranker import Reranked

Questions = tuple[str, tuple[str, ...]]
"""A document's id and its questions."""


@dataclass(frozen=True)
class QuestionSampler:
    """A model and how it writes."""

    module: nn.Module
    frame: TextTokenizer
    """Makes the prompt of a document."""
    longest: int
    """Tokens of the longest prompt."""
    how: Sampling
    count: int
    """Questions that are drawn for a document."""
    seed: int
    whole: bool
    """Whether a question is all that was written, as after a tuning; else it ends with its line."""
    judge: Judge | None = None

    def write(
        self, documents: Sequence[Document], tell: Callable[[int, int], object] = lambda _documents, _questions: None
    ) -> tuple[list[Questions], Counter[str]]:
        """The questions of some documents, and how many were drawn, empty, duplicates, and judged out.

        After each batch `tell` is told how many documents and drawn questions it had.
        """
        texts = self._texts(documents, tell)
        kept = [distinct(some) for some in texts]
        counts = Counter(drawn=sum(map(len, texts)), empty=sum(not text for some in texts for text in some))
        counts["duplicates"] = counts["drawn"] - counts["empty"] - sum(map(len, kept))
        if self.judge:
            best = self.judge.best(documents, kept)
            counts["judged out"] = sum(map(len, kept)) - sum(map(len, best))
            kept = best
        return [(document.id, tuple(some)) for document, some in zip(documents, kept, strict=True)], counts

    def _texts(self, documents: Sequence[Document], tell: Callable[[int, int], object]) -> list[list[str]]:
        """All that was drawn for each document."""
        prompts = Tokens.of((document.full_text for document in documents), self.frame, self.longest)
        texts: list[list[str]] = [[] for _ in documents]
        for rows in by_length(prompts.lengths, max(1, self.how.batch // self.count)):
            chance = np.stack([self._chance(documents[row]) for row in rows])
            with _memory_hint(self.how.batch):
                drawn = continued(self.module, prompts.take(rows), chance, self.how, self.frame.pad)
            for row, some in zip(rows, drawn, strict=True):
                texts[row] = [question_of(self.frame.text(tokens), whole=self.whole) for tokens in some]
            tell(len(rows), len(rows) * self.count)
        return texts

    def _chance(self, document: Document) -> np.ndarray:
        """(questions, tokens) numbers from 0 to 1 that belong to the document, wherever it stands."""
        name = hashlib.blake2b(document.id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        chance = np.random.default_rng([self.seed, int.from_bytes(name)])
        return chance.random((self.count, self.how.most), np.float32)


@contextmanager
def _memory_hint(batch: int) -> Generator[None]:
    """Turn what torch says about memory into what to do about it."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        problem = f"the memory of the device was not enough for {batch} questions at once"
        raise UsageError(problem, f"set batch to {max(1, batch // 2)} or less") from error


def question_of(text: str, *, whole: bool) -> str:
    r"""What was written as a question on one line, up to the end of its line or its question mark unless all is one.

    >>> question_of(" Why? Because", whole=False), question_of(" who  was Ada\n", whole=True)
    ('Why?', 'who was Ada')
    """
    if not whole:
        head, mark, _ = text.partition("\n")[0].partition("?")
        text = head + mark
    return normalise(" ".join(text.replace("\0", " ").split()))


def distinct(questions: Iterable[str]) -> list[str]:
    """The first of those that differ in nothing but the case of letters, and none that is empty.

    >>> distinct(["Why?", "why?", "", "How?"])
    ['Why?', 'How?']
    """
    seen: dict[str, str] = {}
    for question in questions:
        if question:
            seen.setdefault(question.casefold(), question)
    return list(seen.values())


@dataclass(frozen=True)
class Judge:
    """A cross-encoder that says how well a document answers a question, and the share of questions that pass."""

    reranked: Reranked
    share: float

    def best(self, documents: Sequence[Document], questions: Sequence[Sequence[str]]) -> list[list[str]]:
        """The questions of each document with the highest scores, one at least, in the order that they had."""
        ends = np.cumsum([len(some) for some in questions])
        scores = np.split(self.scores(documents, questions), ends[:-1])
        counts = [math.ceil(self.share * len(some)) for some in questions]
        places = [np.sort(np.argsort(-own, kind="stable")[:count]) for own, count in zip(scores, counts, strict=True)]
        return [[some[place] for place in chosen] for some, chosen in zip(questions, places, strict=True)]

    def scores(self, documents: Sequence[Document], questions: Sequence[Sequence[str]]) -> np.ndarray:
        """(all questions,) the scores of the first document's questions, then of the second's, and so on."""
        asked = [question for some in questions for question in some]
        rows = np.repeat(np.arange(len(documents)), [len(some) for some in questions])
        return self.reranked.engine.reranker.scores_of(documents, asked, rows)
