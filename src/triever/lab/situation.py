"""What a suggestion is made from: how large a corpus is, which questions it has, and what the machine is.

`described` looks at a dataset in one pass over its documents, `this_machine` at the machine. Neither draws conclusions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from triever.data.cutting import Cut
from triever.data.datasets import Dataset
from triever.data.store import written_bytes
from triever.data.words import BEGINNING, LOOKED_AT, language_of
from triever.errors import UsageError, nearest
from triever.lab.measured import WIKI

TOKENS_OF_WORD = WIKI.tokens / WIKI.words
"""Tokens that MiniLM makes of a word of English prose: 1.35. Code and names have more."""
LENGTH = 256
"""Tokens of a document that encoders read where nothing is set."""

CUT = Cut()
"""How files of text are cut into passages where nothing is set."""

CHANGES = ("rarely", "daily", "hourly")
"""How often documents come, go or change."""


@dataclass(frozen=True)
class Corpus:
    """The documents and questions of a dataset, counted."""

    name: str  # as the command line names it
    documents: int
    words: float  # of a document, on average
    tokens: float  # of a document that encoders read, on average
    text_bytes: int  # of all documents with their ids, as an artifact holds them
    questions: int = 0  # judged training questions about documents that are there
    covered: float = 0.0  # the share of documents that they are about
    written: float = 0.0  # the share of documents with written questions
    train: str = ""  # the split of these questions, or several joined by +
    test: str = ""  # the split of questions to compare systems on
    language: str = "english"  # as `language_of` names it
    passages: int = 0  # into which files of text are cut, about; other documents are one each

    def __post_init__(self) -> None:
        if self.documents < 1:
            raise UsageError(f"{self.name} has no documents", "check it with: triever data info")

    @property
    def rows(self) -> int:
        """What an index has vectors of: documents, or their passages."""
        return self.passages or self.documents


@dataclass(frozen=True)
class Machine:
    """What computes."""

    cores: int
    memory: int  # bytes that are free
    gpu: str = ""  # its name
    has_weights: bool = True  # whether MiniLM is installed


@dataclass(frozen=True)
class Situation:
    """A corpus, the machine that is to search it, and how often documents change."""

    corpus: Corpus
    machine: Machine
    changes: str = "rarely"

    def __post_init__(self) -> None:
        check_changes(self.changes)


def check_changes(changes: str) -> None:
    """Refuse a word that does not say how often documents change."""
    if changes not in CHANGES:
        raise UsageError(f"changes = {changes!r} is unknown", nearest(changes, CHANGES))


def described(name: str, dataset: Dataset) -> Corpus:
    """A dataset, counted; its name is the one that commands are to use."""
    train, test = split_roles([split for split in dataset.splits if dataset.is_judged(split)])
    relevant = _relevant(dataset, train)
    asked: set[str] = set().union(*relevant)
    is_cut = CUT.cuts(dataset)
    documents = passages = words = written = size = 0
    tokens, there = 0.0, set()
    beginnings: list[str] = []
    for document in dataset.documents():
        if len(beginnings) < LOOKED_AT:
            beginnings.append(document.full_text[:BEGINNING])
        count = len(document.title.split()) + len(document.text.split())
        documents += 1
        words += count
        rows = -(-count // (CUT.words - CUT.overlap)) if is_cut and count > CUT.words else 1
        passages += rows
        tokens += min(LENGTH * rows, (count + (rows - 1) * CUT.overlap) * TOKENS_OF_WORD)
        written += bool(document.expansions)
        size += written_bytes(document)
        if document.id in asked:
            there.add(document.id)
    each = max(documents, 1)
    questions = sum(not ids.isdisjoint(there) for ids in relevant)
    shares = len(there) / each, written / each
    language = language_of(beginnings)
    counts = documents, words / each, tokens / each, size, questions
    return Corpus(name, *counts, *shares, train, test, language, passages)


def _relevant(dataset: Dataset, split: str) -> list[set[str]]:
    """For each judged question of a split the documents that are relevant to it."""
    if not split:
        return []
    qrels, asked = dataset.qrels(split), {query.id for query in dataset.queries(split)}
    by_question = ({document for document, grade in grades.items() if grade > 0} for grades in qrels.values())
    return [ids for query, ids in zip(qrels, by_question, strict=True) if ids and query in asked]


def split_roles(splits: Iterable[str]) -> tuple[str, str]:
    """Which of the judged splits to learn from and which to compare on, by their names; nothing where there is none.

    >>> split_roles(["dev", "test", "train"])
    ('train', 'test')
    >>> split_roles(["dev.nq", "train.nq", "train.web"])
    ('train.nq+train.web', 'dev.nq')
    >>> split_roles(["docseen_dev", "docseen_train"])
    ('docseen_train', 'docseen_dev')
    """
    names = sorted(splits)
    learned = [name for name in names if "train" in name]
    others = [name for name in names if name not in learned]
    train = "train" if "train" in learned else "+".join(learned)
    test = next((name for name in ("test", "dev") if name in others), others[0] if others else "")
    return train, test


def this_machine() -> Machine:
    """The machine that this runs on."""
    import torch

    from triever.models.weights import listed
    from triever.training.memory_estimate import available

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    has_weights = any(row["name"] == "minilm" and row["installed"] == "yes" for row in listed())
    return Machine(cores, available(), gpu, has_weights)
