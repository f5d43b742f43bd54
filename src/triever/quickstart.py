"""The main job on the default corpus: fit, train, compare, and answer some questions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path

from triever.data.cache import cache_folder
from triever.data.datasets import Dataset, load_dataset
from triever.data.records import Hit, Query
from triever.errors import TrieverError, UsageError, nearest
from triever.evaluation.compare import compare
from triever.retriever import Retriever, load
from triever.retrievers.bm25 import BM25
from triever.version import __version__

BACKBONES = ("auto", "minilm", "scratch", "none")
WORDS = "scratch:hidden=256,layers=0,vocabulary=8000"
"""A small model without pretrained weights, a bag of words: it can be trained in minutes."""
STEPS = 150
"""Steps of 256 questions: six passes over the training questions."""
SHOWN = 5
"""Hits that are shown for a question."""
LENGTH = 64
"""How many tokens of a document are read; most entries have fewer."""

NEXT = """
What to try next, on your own documents:
  triever fit generative --data FOLDER --out models/mine
  triever search models/mine "what you look for"
  triever compare bm25 dense models/mine --data FOLDER --split test
`fit` teaches dense retrieval first, which wants a GPU; with --set training.encoder_steps=0 it begins with MiniLM as it
comes, as here, and a processor is enough. docs/generative.md says what else to choose for which corpus."""


def quickstart(questions: int, emit: Callable[[object], None], backbone: str = "auto") -> None:
    """Run the quickstart; `emit` is called with every text and table as it comes."""
    if backbone not in BACKBONES:
        raise UsageError(f"there is no backbone {backbone!r} here", nearest(backbone, BACKBONES))
    data = load_dataset("python").with_expansions("python")
    emit("The documentation of your Python, questions about it as people ask them, and some that a model wrote.\n")
    systems: dict[str, Retriever] = {"bm25": BM25(expand=False).fit(data), "bm25, written questions": BM25().fit(data)}
    systems |= _learned(data, _start(backbone, emit), emit)
    against = "dense" if "dense" in systems else "bm25"
    measures = ["Success@1", "Success@10", "RR@10"]
    emit(compare(systems, data, split="test", measures=measures, baseline=against).table())
    emit("\n".join(_answers(*list(systems.items())[-1], data, questions)))
    emit(NEXT)


def _start(backbone: str, emit: Callable[[object], None]) -> str:
    """What models start from: pretrained weights if they can be installed, or else nothing."""
    if backbone in ("scratch", "none"):
        return backbone
    from triever.models.weights import install

    try:
        install("minilm")
    except TrieverError as error:
        if backbone == "minilm":
            raise
        emit(f"{error.problem}; so a small model is trained from random weights here.\n")
        return "scratch"
    return "minilm"


def _learned(data: Dataset, start: str, emit: Callable[[object], None]) -> dict[str, Retriever]:
    """Dense retrieval, if there are pretrained weights, and a model that learns to write docids."""
    if start == "none":
        return {}
    emit("Loading PyTorch.\n")
    import torch  # noqa: F401, which takes seconds

    if start == "scratch":
        dense, generative = None, _from_nothing(data, emit)
    else:
        dense = _as_it_comes(data, emit)
        generative = _from_vectors(data, dense, emit)
    with contextlib.suppress(TrieverError):  # for `triever serve`, which shows it
        generative.save(_kept("generative", data, start))
    return {**({"dense": dense} if dense else {}), "generative": generative}


def _kept(system: str, data: Dataset, backbone: str) -> Path:
    """The folder in which a system of the quickstart is kept."""
    from triever.training.fit_fingerprints import fingerprint

    digest = fingerprint([data.fingerprint, backbone, LENGTH])[:16]
    return cache_folder() / f"quickstart-{__version__}-{system}-{digest}"


def _as_it_comes(data: Dataset, emit: Callable[[object], None], backbone: str = "minilm") -> Retriever:
    """Dense retrieval without any training; it is kept in the cache folder, as reading all entries takes a while."""
    from triever.retrievers.dense import Dense

    kept = _kept("dense", data, backbone)
    with contextlib.suppress(TrieverError):
        dense = load(kept)
        emit(f"All entries were read with MiniLM before; their vectors are kept in {kept}.\n")
        return dense
    emit("Reading all entries with MiniLM: dense retrieval as it comes, and where generative retrieval begins.\n")
    dense = Dense(backbone=backbone, document_length=LENGTH).fit(data)
    with contextlib.suppress(TrieverError):  # without a folder to write to, they are read again next time
        dense.save(kept)
    return dense


def _from_vectors(data: Dataset, dense: Retriever, emit: Callable[[object], None]) -> Retriever:
    """Docids of several symbols, whose rows begin as vectors; what reads stays as it is, so a minute is enough."""
    from triever.docids.schemes import Semantic
    from triever.engines.docid_search import SearchOptions
    from triever.retrievers.generative import Generative
    from triever.training.tuning import DocidTuning
    from triever.training.views import ViewOptions

    emit(f"Training generative retrieval on {len(data.queries('train')):,} questions.\n")
    model = Generative(
        docids=Semantic(branch=20, leaf=20),
        vectors=dense,
        passages=0,
        views=ViewOptions(names=("labelled",)),
        training=DocidTuning(steps=STEPS, batch=256, rounds=3, learning_rate=4e-3),
        search_options=SearchOptions(width=50),
    )
    return model.fit(data)


def _from_nothing(data: Dataset, emit: Callable[[object], None]) -> Retriever:
    """Docids of one symbol, written by a small model that begins with random weights."""
    from triever.models.decoders import DecoderOptions
    from triever.retrievers.generative import Generative
    from triever.training.tuning import DocidTuning
    from triever.training.views import ViewOptions

    emit("Training a small model to write docids.\n")
    model = Generative(
        backbone=WORDS,
        decoder=DecoderOptions(layers=0),
        views=ViewOptions(names=("generated", "chunks"), length=24),
        document_length=LENGTH,
        training=DocidTuning(steps=400, batch=256, rounds=2, learning_rate=3e-3),
    )
    return model.fit(data)


def _answers(name: str, retriever: Retriever, data: Dataset, questions: int) -> list[str]:
    """Some questions, evenly spread over all, and what a system answers."""
    lines = [f"\nSome of the questions, and what {name} answers:"] if questions else []
    for query in _spread(data.queries("test"), questions):
        right = data.qrels("test")[query.id]
        hits = retriever.search(query, SHOWN)
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
    """`count` of the queries, evenly spread over the list."""
    step = max(1, len(queries) // count) if count else 1
    return queries[::step][:count]
