"""Samples questions for documents from a language model, cleans them, and drops duplicates; a judge may keep the best.

It knows nothing about how the model was made, nor about files.
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
    """A tokenizer that makes the prompt of a document."""
    longest: int
    """The most tokens of a prompt."""
    how: Sampling
    count: int
    """Questions to draw for each document."""
    seed: int
    whole: bool
    """Whether the whole continuation is the question, as after a tuning; else the question ends with its line."""
    judge: Judge | None = None

    def write(
        self, documents: Sequence[Document], tell: Callable[[int, int], object] = lambda _documents, _questions: None
    ) -> tuple[list[Questions], Counter[str]]:
        """The questions of these documents, and counts of those drawn, empty, duplicates, and judged out.

        `tell` is called after each batch, with its number of documents and of drawn questions.
        """
        texts = self._texts(documents, tell)
        kept = [distinct(drawn) for drawn in texts]
        counts = Counter(drawn=sum(map(len, texts)), empty=sum(not text for drawn in texts for text in drawn))
        counts["duplicates"] = counts["drawn"] - counts["empty"] - sum(map(len, kept))
        if self.judge:
            best = self.judge.best(documents, kept)
            counts["judged out"] = sum(map(len, kept)) - sum(map(len, best))
            kept = best
        return [(document.id, tuple(texts)) for document, texts in zip(documents, kept, strict=True)], counts

    def _texts(self, documents: Sequence[Document], tell: Callable[[int, int], object]) -> list[list[str]]:
        """The texts that were drawn for each document."""
        prompts = Tokens.of((document.full_text for document in documents), self.frame, self.longest)
        texts: list[list[str]] = [[] for _ in documents]
        for rows in by_length(prompts.lengths, max(1, self.how.batch // self.count)):
            chance = np.stack([self._chance(documents[row]) for row in rows])
            with _memory_hint(self.how.batch):
                drawn = continued(self.module, prompts.take(rows), chance, self.how, self.frame.pad)
            for row, continuations in zip(rows, drawn, strict=True):
                texts[row] = [question_of(self.frame.text(tokens), whole=self.whole) for tokens in continuations]
            tell(len(rows), len(rows) * self.count)
        return texts

    def _chance(self, document: Document) -> np.ndarray:
        """(questions, tokens) random numbers from 0 to 1, which depend only on the seed and the id of the document."""
        name = hashlib.blake2b(document.id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        chance = np.random.default_rng([self.seed, int.from_bytes(name)])
        return chance.random((self.count, self.how.limit), np.float32)


@contextmanager
def _memory_hint(batch: int) -> Generator[None]:
    """Turn torch's out-of-memory errors into a hint about what to change."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        problem = f"the device has too little memory for {batch} questions at once"
        raise UsageError(problem, f"set batch to {max(1, batch // 2)} or less") from error


def question_of(text: str, *, whole: bool) -> str:
    r"""A continuation as a question on one line; unless `whole`, it ends at its first question mark or line break.

    >>> question_of(" Why? Because", whole=False), question_of(" who  was Ada\n", whole=True)
    ('Why?', 'who was Ada')
    """
    if not whole:
        head, mark, _ = text.partition("\n")[0].partition("?")
        text = head + mark
    return normalise(" ".join(text.replace("\0", " ").split()))


def distinct(questions: Iterable[str]) -> list[str]:
    """The questions without empty ones; of those that differ only in case, the first.

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
    """A cross-encoder that scores how well a document answers a question, and the share of questions that it keeps."""

    reranked: Reranked
    share: float

    def best(self, documents: Sequence[Document], questions: Sequence[Sequence[str]]) -> list[list[str]]:
        """The questions of each document with the highest scores, at least one, in their old order."""
        ends = np.cumsum([len(texts) for texts in questions])
        scores = np.split(self.scores(documents, questions), ends[:-1])
        return [
            [texts[at] for at in np.sort(np.argsort(-scores_of_texts, kind="stable")[: self._kept(len(texts))])]
            for texts, scores_of_texts in zip(questions, scores, strict=True)
        ]

    def _kept(self, count: int) -> int:
        """How many of `count` questions are kept."""
        return math.ceil(self.share * count)

    def scores(self, documents: Sequence[Document], questions: Sequence[Sequence[str]]) -> np.ndarray:
        """(all questions,) the scores of the first document's questions, then of the second's, and so on."""
        flat = [question for texts in questions for question in texts]
        rows = np.repeat(np.arange(len(documents)), [len(texts) for texts in questions])
        return self.reranked.engine.reranker.scores_of(documents, flat, rows)
