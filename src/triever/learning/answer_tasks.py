"""What a model that answers may learn from: questions with answers, judged documents, or the documents alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from triever.data.datasets import Dataset
from triever.data.entities import entities, sentences
from triever.data.records import Query
from triever.data.store import DocumentStore
from triever.errors import UsageError
from triever.training.pairs import fraction

Task: TypeAlias = Literal["answers", "relevance", "masked"]
MASKED = "_____"
"""What stands in a sentence in place of a name or number."""
SHORTEST = 4
"""Words of a sentence that is asked with a gap, at least."""
TASKS = "answers, relevance and masked"


@dataclass(frozen=True)
class AskedAnswers:
    """Questions that have answers, of which any is right."""

    queries: list[Query]

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def texts(self) -> list[str]:
        """The questions."""
        return [query.text for query in self.queries]

    def held_out(self, share: float) -> tuple[AskedAnswers, AskedAnswers]:
        """Those to learn from, and about this share of them to judge by; which ones depends on their ids alone."""
        learned = [query for query in self.queries if fraction(query.id) >= share]
        if not learned:
            raise UsageError("all training queries are held out", "lower training.holdout")
        return AskedAnswers(learned), AskedAnswers([query for query in self.queries if fraction(query.id) < share])


def asked(task: Task, dataset: Dataset, store: DocumentStore, split: str, seed: int, most: int) -> AskedAnswers:
    """What is learned by a task; an error if the dataset has nothing of the kind."""
    if task == "answers":
        return _with_answers(dataset, split)
    if task == "relevance":
        return _with_documents(dataset, store, split)
    return with_gaps(store, seed, most)


def _with_answers(dataset: Dataset, split: str) -> AskedAnswers:
    queries = [query for query in dataset.queries(split) if any(query.answers)]
    if not queries:
        problem = f"no query of {dataset.name}'s {split} has an answer"
        hint = 'give queries with answers, such as {"_id": "q1", "text": "…", "answers": ["…"]}; without answers, '
        raise UsageError(problem, f"{hint}training.task=relevance learns from judged documents and masked from texts")
    return AskedAnswers(queries)


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
        if texts:
            queries.append(Query(query.id, query.text, answers=texts))
    if not queries:
        raise UsageError(f"no query of {dataset.name}'s {split} has a relevant document", "train on another split")
    return AskedAnswers(queries)


def with_gaps(store: DocumentStore, seed: int, most: int) -> AskedAnswers:
    """Sentences of documents, each with a gap in place of a name or a number, which is the answer."""
    chance = np.random.default_rng(seed)
    order = chance.permutation(len(store))
    queries: list[Query] = []
    rounds = max(1, -(-most // max(1, len(store))))
    for number in range(rounds):
        for row in order.tolist():
            if len(queries) >= most:
                break
            document = store.slice(row, row + 1)[0]
            if made := _gap(document.text, chance):
                queries.append(Query(f"{document.id}#{number}", made[0], answers=(made[1],)))
    if not queries:
        raise UsageError(
            "no sentence of the documents holds a name or a number", "learn from questions: training.task=answers"
        )
    return AskedAnswers(queries)


def _gap(text: str, chance: np.random.Generator) -> tuple[str, str] | None:
    """A sentence with a gap, and what stood there; None if no sentence has a name or number."""
    known = [sentence for sentence in sentences(text) if len(sentence.split()) >= SHORTEST and entities(sentence)]
    if not known:
        return None
    sentence = known[int(chance.integers(len(known)))]
    places = entities(sentence)
    start, end = places[int(chance.integers(len(places)))]
    return f"{sentence[:start]}{MASKED}{sentence[end:]}", sentence[start:end]
