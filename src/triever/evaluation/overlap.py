"""Questions by how many words they share with the titles that they look for, and what systems find of each kind.

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
from typing import Any

from triever.data.datasets import Dataset
from triever.data.records import Document, Hit, Qrels, Query, Run
from triever.data.words import words
from triever.evaluation.compare import questions
from triever.evaluation.finding import STEP, Finding, Part
from triever.evaluation.groups import SHOWN, by_question, check_runs, relevant, scores_by_group, scores_part
from triever.evaluation.measures import Texts
from triever.evaluation.picture import Bars

log = logging.getLogger("triever")


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
        what = "%s: %d of %d documents have no title: questions are compared with their texts"
        log.warning(what, dataset.name, asked.corpus.untitled, asked.corpus.documents)
    columns = by_question(runs, asked.qrels, measure, asked.queries, texts)
    found = {
        name: {query for query in asked.shared if asked.right(run, query)[:1] == [True]} for name, run in runs.items()
    }
    values = {
        "data": dataset.name,
        "split": split,
        "fingerprint": dataset.fingerprint[:16],
        "documents": asked.corpus.documents,
        "documents_without_title": asked.corpus.untitled,
        "measure": measure,
        "average_overlap": asked.average,
        "questions": {group: len(ids) for group, ids in asked.groups.items()},
        "scores": scores_by_group(columns, measure, asked.groups),
        "sets": _four_sets(found, asked.groups),
        "examples": _examples(runs, found, asked)[:examples],
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

    def cosine(self, one: str, other: str) -> float:
        """How much two texts have in common, from 0 to 1."""
        first, second = self.vector(one), self.vector(other)
        return min(1.0, math.fsum(weight * second[word] for word, weight in first.items() if word in second))

    def _rarity(self, word: str) -> float:
        return math.log((1 + self.texts) / (1 + self.frequency.get(word, 0))) + 1


@dataclass(frozen=True)
class _Corpus:
    """What one pass over the documents leaves: weights of words, and the documents that are spoken of."""

    weights: TfIdf
    kept: Mapping[str, Document]
    unknown: set[str]  # retrieved, and not there
    documents: int
    untitled: int

    @classmethod
    def read(cls, dataset: Dataset, queries: Sequence[Query], qrels: Qrels, runs: Mapping[str, Run]) -> _Corpus:
        """The corpus, as far as these questions and what was found for them need it."""
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
        """By question, what it shares with the nearest of its right titles; 0 where none of them is there."""
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
        return mean(self.shared.values())  # exact, so that of values which are all the same none is below it

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
    """What questions are compared with."""
    return document.title or document.text


# --- what is found --------------------------------------------------------------------------------------------


def _four_sets(found: Mapping[str, set[str]], groups: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Which questions the first two systems find: both, one of them, neither; and how many of each are low and high."""
    if len(found) < 2:
        return []
    (first, by_first), (second, by_second) = list(found.items())[:2]
    sets = []
    for one, other in ((True, True), (True, False), (False, True), (False, False)):
        inside = {query for query in groups["all"] if (query in by_first, query in by_second) == (one, other)}
        low, high = (len(inside.intersection(groups[group])) for group in ("low", "high"))
        name = f"{first}{_sign(one)}/{second}{_sign(other)}"
        rates = {
            f"{key}_rate": count / len(inside) if inside else None for key, count in (("low", low), ("high", high))
        }
        sets.append({"set": name, "questions": len(inside), "low": low, "high": high, **rates})
    return sets


def _sign(found: bool) -> str:
    return "+" if found else "-"


def _examples(runs: Mapping[str, Run], found: Mapping[str, set[str]], asked: _Asked) -> list[dict[str, Any]]:
    """Questions that the second system finds and the first does not, those with the least overlap first."""
    if len(found) < 2:
        return []
    first, second = list(found.values())[:2]
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


def _parts(values: Mapping[str, Any], *, with_examples: bool) -> list[Part]:
    names, sets = list(values["scores"]), values["sets"]
    parts = [scores_part("by the overlap of questions and titles", values, _what_was_compared(values))]
    if sets:
        parts.append(Part("Questions whose first hit is right (+) or not (-)", [_set_row(one) for one in sets]))
    if sets and with_examples:
        title = f"Found by {names[1]} and not by {names[0]}, least overlap first; right titles stand between asterisks"
        lines = [line for example in values["examples"] for line in _example_lines(example)]
        parts.append(Part(title, lines=lines or ["none"]))
    return parts


def _what_was_compared(values: Mapping[str, Any]) -> str:
    untitled = values["documents_without_title"]
    instead = f", or texts, as {untitled:,} of {values['documents']:,} documents have no title" if untitled else ""
    average = f"{values['average_overlap']:.3f}"
    return f"low is below {average}, the average TF-IDF cosine of questions and titles{instead}"


def _set_row(one: Mapping[str, Any]) -> dict[str, str]:
    rates = {f"{group} rate": one[f"{group}_rate"] for group in ("low", "high")}
    shown = {name: "none" if rate is None else f"{rate:.3f}" for name, rate in rates.items()}
    return {"set": one["set"], "questions": f"{one['questions']:,}", **shown}


def _example_lines(example: Mapping[str, Any]) -> list[str]:
    width = max(map(len, example["found"]))
    right = " / ".join(example["right"])
    return [f"{example['question']} (overlap {example['overlap']:.3f}; right: {right})"] + [
        f"{STEP}{name.ljust(width)}  {' / '.join(map(_marked, titles)) or 'nothing'}"
        for name, titles in example["found"].items()
    ]


def _marked(hit: Mapping[str, Any]) -> str:
    return f"*{hit['title']}*" if hit["right"] else hit["title"]


def _bars(sets: Sequence[Mapping[str, Any]]) -> list[Bars]:
    labels = [f"{one['set']} ({one['questions']:,})" for one in sets]
    series = {f"{group} overlap": [one[f"{group}_rate"] for one in sets] for group in ("low", "high")}
    return [Bars("Share of questions with low and high overlap", labels, series)] if sets else []
