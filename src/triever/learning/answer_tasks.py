"""What a model that answers may learn from: questions with answers, judged documents, or the documents alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal, TypeAlias

import numpy as np

from triever.data.datasets import Dataset
from triever.data.entities import entities, sentences
from triever.data.records import Query
from triever.data.store import DocumentStore
from triever.data.words import is_unspaced
from triever.errors import UsageError
from triever.training.pairs import fraction

Task: TypeAlias = Literal["answers", "relevance", "masked"]
MASKED = "_____"
"""What stands in a sentence in place of a name or number."""
SHORTEST = 4
"""Words of a sentence that is asked with a gap, at least; in scripts without spaces, letters."""
TASKS = "answers, relevance and masked"


@dataclass(frozen=True)
class AskedAnswers:
    """Questions that have answers, of which any is right."""

    queries: list[Query]
    sentences: list[str] | None = None  # what each question was made from, where several may come from one
    unanswered: int = 0  # questions that were left out because they are blank or have no answer

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def texts(self) -> list[str]:
        """The questions."""
        return [query.text for query in self.queries]

    def held_out(self, share: float) -> tuple[AskedAnswers, AskedAnswers]:
        """Those to learn from, and about this share of them to judge by.

        Which ones depends on their ids alone, or on the sentences that they were made from: what is held out of a
        sentence stands in every other question about it.
        """
        keys = [query.id for query in self.queries] if self.sentences is None else self.sentences
        drawn = [(query, fraction(key)) for query, key in zip(self.queries, keys, strict=True)]
        learned = [query for query, number in drawn if number >= share]
        if not learned:
            raise UsageError("all training queries are held out", "lower training.holdout")
        return AskedAnswers(learned), AskedAnswers([query for query, number in drawn if number < share])


def asked(task: Task, dataset: Dataset, store: DocumentStore, split: str, seed: int, most: int) -> AskedAnswers:
    """What is learned by a task; an error if the dataset has nothing of the kind."""
    if task == "answers":
        return _with_answers(dataset, split)
    if task == "relevance":
        return _with_documents(dataset, store, split)
    return with_gaps(store, seed, most)


def _with_answers(dataset: Dataset, split: str) -> AskedAnswers:
    """Queries with their answers, without space around these; blank queries and answers count as none."""
    hint = 'give queries with answers, such as {"_id": "q1", "text": "…", "answers": ["…"]}; without answers, '
    hint += "training.task=relevance learns from judged documents and masked from texts"
    if not dataset.splits:
        raise UsageError(f"{dataset.name} has no queries", hint)
    asked = [replace(query, answers=_stripped(query.answers)) for query in dataset.queries(split)]
    queries = [query for query in asked if query.answers and query.text.strip()]
    if not queries:
        raise UsageError(f"no query of {dataset.name}'s {split} has an answer", hint)
    return AskedAnswers(queries, unanswered=len(asked) - len(queries))


def _stripped(answers: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text for answer in answers if (text := answer.strip()))


def _with_documents(dataset: Dataset, store: DocumentStore, split: str) -> AskedAnswers:
    """Judged documents as answers: how relevant each is, and what it says."""
    qrels, queries = dataset.qrels(split), []
    for query in dataset.queries(split):
        judged = {document: grade for document, grade in qrels.get(query.id, {}).items() if grade > 0}
        texts = tuple(
            f"relevance: {grade}. {store.document(document).full_text}"
            for document, grade in judged.items()
            if document in store
        )
        if texts and query.text.strip():
            queries.append(Query(query.id, query.text, answers=texts))
    if not queries:
        raise UsageError(f"no query of {dataset.name}'s {split} has a relevant document", "train on another split")
    return AskedAnswers(queries)


def with_gaps(store: DocumentStore, seed: int, most: int) -> AskedAnswers:
    """Different sentences of documents, each with a gap in place of a name or a number, which is the answer.

    There are at most `most`, drawn by the seed: one of every document, then another of every document that has more.
    Gaps of equal sentences are held out together, in whichever documents they stand.
    """
    made = list(islice(_round_by_round(store, seed, most), most))
    if not made:
        problem = "no sentence of the documents holds a name or a number"
        raise UsageError(problem, "learn from questions: training.task=answers")
    return AskedAnswers([query for query, _ in made], [sentence for _, sentence in made])


def _round_by_round(store: DocumentStore, seed: int, most: int) -> Iterator[tuple[Query, str]]:
    """Different gaps of documents with their sentences: one of each document, then another, in a random order.

    A pass takes as many gaps of each document as make up `most` if all documents have them. So not much more than that
    is kept, however many documents there are, and there are few passes, however long a document is.
    """
    order = np.random.default_rng(seed).permutation(len(store)).tolist()
    seen: set[tuple[str, tuple[str, ...]]] = set()
    before = 0
    while order and len(seen) < most:
        depth = -(-(most - len(seen)) // len(order))
        rounds: list[list[tuple[Query, str]]] = [[] for _ in range(depth)]
        left: list[int] = []
        for row in order:
            document = store.slice(row, row + 1)[0]
            places = _shuffled(_gaps(document.text), seed, row)
            for made, place in zip(rounds, places[before : before + depth], strict=False):
                query = _asked(document.id, place)
                if (query.text, query.answers) not in seen:
                    seen.add((query.text, query.answers))
                    made.append((query, place.text))
            if len(places) > before + depth:
                left.append(row)
            if depth == 1 and len(seen) >= most:
                break
        yield from chain.from_iterable(rounds)
        order, before = left, before + depth


@dataclass(frozen=True)
class _Gap:
    """A name or number in a sentence of a document."""

    text: str  # the sentence
    sentence: int  # its place in the document
    number: int  # the place of the gap among those of the sentence
    start: int
    end: int


def _gaps(text: str) -> list[_Gap]:
    """All gaps that the sentences of a text can have."""
    return [
        _Gap(sentence, place, number, start, end)
        for place, sentence in enumerate(sentences(text))
        if _is_long_enough(sentence)
        for number, (start, end) in enumerate(entities(sentence))
    ]


def _is_long_enough(sentence: str) -> bool:
    """Whether a sentence with a gap says enough to be asked about.

    >>> _is_long_enough("It is 12 metres."), _is_long_enough("In 1912."), _is_long_enough("高さは12メートル。")
    (True, False, True)
    """
    return len(sentence.split()) >= SHORTEST or sum(map(is_unspaced, sentence)) >= SHORTEST


def _shuffled(gaps: list[_Gap], seed: int, row: int) -> list[_Gap]:
    return [gaps[place] for place in np.random.default_rng((seed, row)).permutation(len(gaps)).tolist()]


def _asked(document: str, gap: _Gap) -> Query:
    """The sentence with its gap as a question, whose id tells the document, the sentence and the gap."""
    question = f"{gap.text[: gap.start]}{MASKED}{gap.text[gap.end :]}"
    answer = gap.text[gap.start : gap.end]
    return Query(f"{document}#{gap.sentence}-{gap.number}", question, answers=(answer,))
