"""What stands for documents while a model learns to write docids: views of texts, judged and written queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.engines.docids import Reading, ReadsTexts
from triever.errors import UsageError
from triever.learning.docid_options import DocidRetriever, has_queries, view_names
from triever.learning.encoders import tell_of_long_texts
from triever.models.tokens import Tokens
from triever.training.pairs import Pairs, held_out, pairs_there, written_pairs
from triever.training.views import Chunks, Generated, Labelled, View


class Taught(Protocol):
    """What views are made for: a model, and how queries are read for it."""

    @property
    def model(self) -> ReadsTexts:
        """What learns."""
        ...

    @property
    def reading(self) -> Reading:
        """What stands before texts."""
        ...

    @property
    def queries(self) -> tuple[int, str]:
        """How many tokens of a query are read, and what stands before it."""
        ...


def views_of(
    options: DocidRetriever[Any], docids: Taught, dataset: Dataset, store: DocumentStore, work: Path | None
) -> tuple[dict[str, View], Pairs | None]:
    """What there is to learn from, by name, and the judged queries that are held out, if there are any."""
    judged = pairs_there(dataset, options.training.split, store) if has_queries(options, dataset) else None
    train_on, held = held_out(judged, options.training.holdout) if judged else (None, None)
    views: dict[str, View] = {}
    for name in view_names(options, dataset, store.expanded):
        if name == "labelled":
            if train_on is None or not len(train_on):
                raise UsageError("there are no queries to train on", "leave labelled out of views.names")
            views[name] = Labelled(train_on, query_tokens(docids, train_on.texts))
        elif name == "generated":
            views[name] = _generated(options, docids, store)
        else:
            views[name] = _chunks(options, docids, store, name, work)
    return views, held if held is not None and len(held) else None


def query_tokens(docids: Taught, queries: Sequence[str]) -> Tokens:
    """Queries as a model reads them."""
    length, _ = docids.queries
    return docids.reading.query_tokens(docids.model, queries, length)


def _generated(options: DocidRetriever[Any], docids: Taught, store: DocumentStore) -> Generated:
    written = written_pairs(store, options.views.questions)
    if not len(written):
        problem = "no document has generated queries"
        raise UsageError(problem, "write queries with triever write-queries, and give the file with --expansions")
    return Generated(query_tokens(docids, written.texts), written.relevant, written.texts)


def _chunks(options: DocidRetriever[Any], docids: Taught, store: DocumentStore, name: str, work: Path | None) -> Chunks:
    model = docids.model
    tokenizer, views = model.encoder.tokenizer, options.views
    before, after = docids.reading.around(tokenizer)
    folder = work / "documents" / name if work else None
    # What is read in pieces may be longer than what can be read at once.
    texts = (document.full_text for document in store)
    length = min(views.length, options.document_length) if name == "first" else options.document_length
    tokens = Tokens.of(texts, tokenizer, length, folder)
    if name != "first":  # which is about the beginning alone
        tell_of_long_texts(tokens, length, store.cut)
    count = 0 if name == "first" else views.count
    fresh = name != "first" and views.fresh
    special = len(tokenizer.before) + len(tokenizer.after)
    longest = model.at_most(views.length + len(before) + len(after) - special)
    return Chunks(tokens, tokenizer, longest, count, fresh, options.training.seed, (before, after))


def texts_of(options: DocidRetriever[Any], docids: Taught, store: DocumentStore) -> dict[str, View]:
    """What there is of documents without judged queries."""
    views: dict[str, View] = {"chunks": _chunks(options, docids, store, "chunks", None)} if len(store) else {}
    return views | ({"generated": _generated(options, docids, store)} if store.expanded else {})


def seen_by(views: Mapping[str, View], held: Pairs) -> np.ndarray:
    """(queries,) whether a judged query of the training is about a document of each held-out query.

    Texts and written queries, which there may be for any document, do not count.
    """
    labelled = views.get("labelled")
    return held.about(labelled.covered() if labelled is not None else np.empty(0, np.int64))
