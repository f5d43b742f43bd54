"""What systems find for questions that share few words with the titles that they look for, and for those with many.

Where a question and the title of its document have hardly a word in common, a system that writes titles must know what
the document says (CGR, section 5.2 and appendix C.6). Overlap is the cosine of TF-IDF vectors; low is what lies below
the average of all questions of the split, high is the rest.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import TypedDict

from triever.data.datasets import Dataset
from triever.data.records import Document, Hit, Qrels, Query, Run
from triever.data.words import words
from triever.evaluation.compare import questions
from triever.evaluation.finding import STEP, Finding, Part
from triever.evaluation.groups import (
    SHOWN,
    GroupedValues,
    by_question,
    check_runs,
    relevant,
    scores_by_group,
    scores_part,
)
from triever.evaluation.measures import Texts
from triever.evaluation.picture import Bars

log = logging.getLogger("triever")


class QuestionSet(TypedDict):
    """The questions that both, one or none of two systems find, and how many of them have low and high overlap."""

    set: str
    questions: int
    low: int
    high: int
    low_rate: float | None
    high_rate: float | None


class ShownHit(TypedDict):
    """A hit of an example."""

    title: str
    right: bool


class Example(TypedDict):
    """A question that the second system finds and the first does not, with the first hits of every system."""

    question: str
    overlap: float
    right: list[str]
    found: dict[str, list[ShownHit]]


class OverlapValues(GroupedValues):
    """The values of this analysis."""

    documents: int
    documents_without_title: int
    average_overlap: float
    sets: list[QuestionSet]
    examples: list[Example]


def overlap(
    runs: Mapping[str, Run],
    dataset: Dataset,
    split: str = "test",
    measure: str = "Success@1",
    *,
    examples: int = 5,
    texts: Texts | None = None,
) -> Finding:
    """Measure systems where questions share few words with titles, and where many.

    Of the first two systems it also says which questions one finds and the other does not: a question is found where
    the first hit is relevant, whatever the measure. At most `examples` questions that only the second finds are listed;
    0 leaves the list out.
    """
    asked = _Asked.of(dataset, split, runs)
    check_runs(runs, asked.qrels, asked.corpus.unknown, dataset, split, shown=": they are shown by their ids")
    if asked.corpus.untitled:
        message = "%s: %d of %d documents have no title: questions are compared with their texts"
        log.warning(message, dataset.name, asked.corpus.untitled, asked.corpus.documents)
    columns = by_question(runs, asked.qrels, measure, asked.queries, texts)
    answered = {
        name: {query for query in asked.shared if asked.right(run, query)[:1] == [True]} for name, run in runs.items()
    }
    values: OverlapValues = {
        "data": dataset.name,
        "split": split,
        "fingerprint": dataset.fingerprint[:16],
        "documents": asked.corpus.documents,
        "documents_without_title": asked.corpus.untitled,
        "measure": measure,
        "average_overlap": asked.average,
        "questions": {group: len(ids) for group, ids in asked.groups.items()},
        "scores": scores_by_group(columns, measure, asked.groups),
        "sets": _four_sets(answered, asked.groups),
        "examples": _examples(runs, answered, asked)[:examples],
    }
    return Finding(values, _parts(values, with_examples=examples > 0), _bars(values["sets"]))


# --- how much a question and a title share --------------------------------------------------------------------


@dataclass(frozen=True)
class TfIdf:
    """Texts as words weighted by how rare they are among `texts` texts: `TfIdf.of(texts).cosine(a, b)`.

    Term counts times log((1 + texts) / (1 + texts with the word)) + 1, scaled to length one, as scikit-learn has it.
    """

    texts: int
    frequency: Mapping[str, int]  # in how many of the texts each word is

    @classmethod
    def of(cls, texts: Iterable[str]) -> TfIdf:
        """The weights of words in these texts."""
        count, frequency = 0, Counter[str]()
        for text in texts:
            frequency.update(set(words(text)))
            count += 1
        return cls(count, frequency)

    def vector(self, text: str) -> dict[str, float]:
        """The weights of a text's words, of length one; nothing for a text without words."""
        weights = {word: count * self._rarity(word) for word, count in Counter(words(text)).items()}
        length = math.sqrt(math.fsum(weight**2 for weight in weights.values()))
        return {word: weight / length for word, weight in weights.items()}

    def cosine(self, left: str, right: str) -> float:
        """How much two texts have in common, from 0 to 1."""
        first, second = self.vector(left), self.vector(right)
        return min(1.0, math.fsum(weight * second[word] for word, weight in first.items() if word in second))

    def _rarity(self, word: str) -> float:
        return math.log((1 + self.texts) / (1 + self.frequency.get(word, 0))) + 1


@dataclass(frozen=True)
class _Corpus:
    """What one pass over the documents keeps: weights of words, and the documents that the analysis shows."""

    weights: TfIdf
    kept: Mapping[str, Document]
    unknown: set[str]  # retrieved, and not there
    documents: int
    untitled: int

    @classmethod
    def read(cls, dataset: Dataset, queries: Sequence[Query], qrels: Qrels, runs: Mapping[str, Run]) -> _Corpus:
        """The corpus, as far as these questions and their hits need it."""
        kept: dict[str, Document] = {}
        results = [run[query.id] for run in runs.values() for query in queries if query.id in run]
        wanted = {document for grades in qrels.values() for document in relevant(grades)}
        wanted |= {hit.id for result in results for hit in result[:SHOWN]}
        unseen = {hit.id for result in results for hit in result}
        counted = {"documents": 0, "untitled": 0}

        def texts() -> Iterator[str]:
            for document in dataset.documents():
                counted["documents"] += 1
                counted["untitled"] += not document.title
                unseen.discard(document.id)
                if document.id in wanted:
                    kept[document.id] = document
                yield _compared(document)
            yield from (query.text for query in queries)

        return cls(TfIdf.of(texts()), kept, unseen, **counted)

    def title(self, document_id: str) -> str:
        """The title as an example shows it, or else the id."""
        document = self.kept.get(document_id)
        return document.title if document and document.title else document_id


@dataclass(frozen=True)
class _Asked:
    """The judged questions of a split, and how much each shares with the titles that it looks for."""

    queries: Sequence[Query]
    qrels: Qrels
    corpus: _Corpus

    @classmethod
    def of(cls, dataset: Dataset, split: str, runs: Mapping[str, Run]) -> _Asked:
        queries, judged = questions(dataset, split)
        qrels = {query.id: judged[query.id] for query in queries}
        return cls(queries, qrels, _Corpus.read(dataset, queries, qrels, runs))

    @cached_property
    def shared(self) -> dict[str, float]:
        """Question -> overlap with the nearest of its right titles; 0 if none of them is in the corpus."""
        weights, kept = self.corpus.weights, self.corpus.kept
        return {
            query.id: max(
                (
                    weights.cosine(query.text, _compared(kept[document]))
                    for document in relevant(self.qrels[query.id])
                    if document in kept
                ),
                default=0.0,
            )
            for query in self.queries
        }

    @cached_property
    def average(self) -> float:
        return mean(self.shared.values())  # exact: if all values are the same, none is below it

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """The questions with low overlap, with high overlap, and all."""
        low = [query for query, value in self.shared.items() if value < self.average]
        high = [query for query, value in self.shared.items() if value >= self.average]
        return {"low": low, "high": high, "all": list(self.shared)}

    def right(self, run: Run, query: str) -> list[bool]:
        """Of the first hits for a question, whether each is relevant."""
        return [self.qrels[query].get(hit.id, 0) > 0 for hit in _top(run, query)]


def _top(run: Run, query: str) -> tuple[Hit, ...]:
    return run[query][:SHOWN] if query in run else ()


def _compared(document: Document) -> str:
    """The text of a document that questions are compared with."""
    return document.title or document.text


# --- what is found --------------------------------------------------------------------------------------------


def _four_sets(answered: Mapping[str, set[str]], groups: Mapping[str, Sequence[str]]) -> list[QuestionSet]:
    """The questions that both of the first two systems find, one of them, or neither, with their overlap."""
    if len(answered) < 2:
        return []
    (first, by_first), (second, by_second) = list(answered.items())[:2]
    sets: list[QuestionSet] = []
    for in_first, in_second in ((True, True), (True, False), (False, True), (False, False)):
        inside = {query for query in groups["all"] if (query in by_first, query in by_second) == (in_first, in_second)}
        low, high = (len(inside.intersection(groups[group])) for group in ("low", "high"))
        name = f"{first}{_sign(in_first)}/{second}{_sign(in_second)}"
        low_rate, high_rate = (count / len(inside) if inside else None for count in (low, high))
        sets.append(
            {
                "set": name,
                "questions": len(inside),
                "low": low,
                "high": high,
                "low_rate": low_rate,
                "high_rate": high_rate,
            }
        )
    return sets


def _sign(is_right: bool) -> str:
    return "+" if is_right else "-"


def _examples(runs: Mapping[str, Run], answered: Mapping[str, set[str]], asked: _Asked) -> list[Example]:
    """Questions that the second system finds and the first does not, those with the least overlap first."""
    if len(answered) < 2:
        return []
    first, second = list(answered.values())[:2]
    gained = [query for query in asked.queries if query.id in second - first]
    gained.sort(key=lambda query: asked.shared[query.id])
    return [
        {
            "question": query.text,
            "overlap": asked.shared[query.id],
            "right": [asked.corpus.title(document) for document in relevant(asked.qrels[query.id])],
            "found": {
                name: [
                    {"title": asked.corpus.title(hit.id), "right": right}
                    for hit, right in zip(_top(run, query.id), asked.right(run, query.id), strict=True)
                ]
                for name, run in runs.items()
            },
        }
        for query in gained
    ]


# --- what a person sees ---------------------------------------------------------------------------------------


def _parts(values: OverlapValues, *, with_examples: bool) -> list[Part]:
    names, sets = list(values["scores"]), values["sets"]
    parts = [scores_part("by the overlap of questions and titles", values, _comparison(values))]
    if sets:
        parts.append(
            Part("Questions whose first hit is right (+) or not (-)", [_set_row(questions) for questions in sets])
        )
    if sets and with_examples:
        title = f"Found by {names[1]} and not by {names[0]}, least overlap first; right titles stand between asterisks"
        lines = [line for example in values["examples"] for line in _example_lines(example)]
        parts.append(Part(title, lines=lines or ["none"]))
    return parts


def _comparison(values: OverlapValues) -> str:
    untitled = values["documents_without_title"]
    instead = f", or texts, as {untitled:,} of {values['documents']:,} documents have no title" if untitled else ""
    average = f"{values['average_overlap']:.3f}"
    return f"low is below {average}, the average TF-IDF cosine of questions and titles{instead}"


def _set_row(questions: QuestionSet) -> dict[str, str]:
    rates = {"low rate": questions["low_rate"], "high rate": questions["high_rate"]}
    shown = {name: "none" if rate is None else f"{rate:.3f}" for name, rate in rates.items()}
    return {"set": questions["set"], "questions": f"{questions['questions']:,}", **shown}


def _example_lines(example: Example) -> list[str]:
    width = max(map(len, example["found"]))
    right = " / ".join(example["right"])
    return [f"{example['question']} (overlap {example['overlap']:.3f}; right: {right})"] + [
        f"{STEP}{name.ljust(width)}  {' / '.join(map(_marked, titles)) or 'nothing'}"
        for name, titles in example["found"].items()
    ]


def _marked(hit: ShownHit) -> str:
    return f"*{hit['title']}*" if hit["right"] else hit["title"]


def _bars(sets: Sequence[QuestionSet]) -> list[Bars]:
    labels = [f"{questions['set']} ({questions['questions']:,})" for questions in sets]
    series = {
        "low overlap": [questions["low_rate"] for questions in sets],
        "high overlap": [questions["high_rate"] for questions in sets],
    }
    return [Bars("Share of questions with low and high overlap", labels, series)] if sets else []
