"""The main job on the default corpus: fit, train, compare, and answer some questions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from triever.data.datasets import Dataset, load_dataset
from triever.data.records import Hit, Query
from triever.errors import TrieverError, UsageError, nearest
from triever.evaluation.compare import compare
from triever.retrievers.base import Retriever
from triever.retrievers.bm25 import BM25

BACKBONES = ("auto", "minilm", "scratch", "none")
SCRATCH = "scratch:hidden=128,layers=1,heads=2,vocabulary=8000"
STEPS = {"minilm": 120, SCRATCH: 300}
LENGTH = 64
"""Tokens of a document that are read: most entries have fewer."""

NEXT = """
Your own documents are the same commands:
  triever fit generative --data FOLDER --out models/mine
  triever search models/mine "what you look for"
  triever compare bm25 dense models/mine --data FOLDER --split test"""


def quickstart(questions: int, emit: Callable[[Any], None], backbone: str = "auto") -> None:
    """Run it, handing what there is to see to `emit` as it comes."""
    if backbone not in BACKBONES:
        raise UsageError(f"there is no backbone {backbone!r} here", nearest(backbone, BACKBONES))
    data = load_dataset("python")
    emit("The documentation of your Python, and questions about it as people ask them.\n")
    systems: dict[str, Retriever] = {"bm25": BM25().fit(data)}
    if start := _weights(backbone, emit):
        systems |= _learned(data, start, emit)
    emit(compare(systems, data, split="test", measures=["Success@1", "Success@10", "RR@10"]).table())
    emit("\n".join(_answers(list(systems.values())[-1], data, questions)))
    emit(NEXT)


def _weights(backbone: str, emit: Callable[[Any], None]) -> str:
    """What to start from: pretrained weights if they can be had; nothing where there is nothing to train."""
    if backbone in ("scratch", "none"):
        return SCRATCH if backbone == "scratch" else ""
    from triever.models.weights import install

    try:
        install("minilm")
    except TrieverError as error:
        if backbone == "minilm":
            raise
        emit(f"{error.problem}; so there is BM25 alone. To train from nothing, for long: --backbone scratch.\n")
        return ""
    return "minilm"


def _learned(data: Dataset, backbone: str, emit: Callable[[Any], None]) -> dict[str, Retriever]:
    """Dense retrieval as it comes, and a model that learns to write the docid of the answer."""
    from triever.retrievers.dense import Dense
    from triever.retrievers.generative import Generative
    from triever.training.tuning import DocidTuning
    from triever.training.views import ViewOptions

    dense = Dense(backbone=backbone, document_length=LENGTH).fit(data)
    emit(f"Training a model to write docids, {STEPS[backbone]} steps.\n")
    training = DocidTuning(steps=STEPS[backbone], batch=32, rounds=2, learning_rate=1e-3, reader=0.0)
    views = ViewOptions(length=24)
    generative = Generative(vectors=dense, views=views, document_length=LENGTH, training=training)
    return {"dense": dense, "generative": generative.fit(data)}


def _answers(retriever: Retriever, data: Dataset, questions: int) -> list[str]:
    lines = []
    for query in _spread(data.queries("test"), questions):
        right = data.qrels("test")[query.id]
        hits = retriever.search(query, 3)
        lines.append(f"\n{query.text}")
        lines += [f"  {'*' if hit.id in right else ' '} {_weight(hit)}  {hit.id}" for hit in hits]
        if not any(hit.id in right for hit in hits):
            lines.append(f"           not found: {', '.join(right)}")
    return [*lines, "\n* is a right answer."] if lines else []


def _weight(hit: Hit) -> str:
    """The probability and the docid of a hit, or its score where a system has neither."""
    if hit.logprob is None:
        return f"{hit.score:5.2f}"
    return f"p = {math.exp(hit.logprob):.3f}  docid {hit.docid:<6}"


def _spread(queries: list[Query], count: int) -> list[Query]:
    """Some of the queries, from all over the list and always the same."""
    step = max(1, len(queries) // count) if count else 1
    return queries[::step][:count]
