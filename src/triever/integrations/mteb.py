"""A model for MTEB's tasks of retrieval: `mteb.evaluate(TrieverModel(triever.BM25()), tasks)`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from triever import config
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.errors import UsageError, needed_for
from triever.evaluation.trec_stand_in import standing_in
from triever.integrations.sources import Source, opened
from triever.remote import Remote, Searcher
from triever.retriever import Retriever
from triever.training.fit_fingerprints import fingerprint
from triever.version import __version__

with standing_in(), needed_for("the adapter for MTEB", "pip install 'triever[mteb]'"):
    from mteb.models import ModelMeta


class TrieverModel:
    """What searches in MTEB's tasks (`SearchProtocol`): a retriever that is fitted to the corpus of each task.

    A retriever that is fitted already, a saved folder or a server's address is searched as it is; then the task has to
    have the same documents. Tasks have no training queries for a retriever that learns from them: fit it before.
    `name` says what MTEB calls it in its results.
    """

    def __init__(self, source: Source, name: str | None = None) -> None:
        self._system: Retriever[Any] | None = None
        self._searcher: Searcher | None = None
        if isinstance(source, Retriever) and not source.is_fitted:
            described = self._system = source
        else:
            described = self._searcher = opened(source)
        about = {"name": name or f"triever/{described.kind}", "revision": _revision(described)}
        self._meta = ModelMeta.create_empty(about)

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """What MTEB calls it, and files its results under."""
        return self._meta

    def index(self, corpus: Iterable[Mapping[str, Any]], *, task_metadata: Any, **_: Any) -> None:
        """Fit to the corpus of a task, or see that the documents are those that are searched."""
        documents = [_document(row, task_metadata.name) for row in corpus]
        if self._system:
            self._searcher = copy.copy(self._system).fit(Dataset.of(task_metadata.name, documents))
        elif not _holds(self._searcher, documents):
            problem = f"the documents of {task_metadata.name} are not those of the retriever"
            raise UsageError(problem, "fit it to the task's corpus, or give a retriever that is not fitted")

    def search(
        self, queries: Iterable[Mapping[str, Any]], *, task_metadata: Any, top_k: int, top_ranked: Any = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """The scores of the best documents, by query and document."""
        if top_ranked:
            problem = f"{task_metadata.name} gives candidates to rank, and Triever searches whole corpora"
            raise UsageError(problem, "choose a task of retrieval")
        if self._searcher is None:
            raise UsageError("there is no corpus yet", "call index first, as mteb.evaluate does")
        rows = list(queries)
        results = self._searcher.search_many([_query(row, task_metadata.name) for row in rows], top_k)
        return {
            str(row["id"]): {hit.id: hit.score for hit in result} for row, result in zip(rows, results, strict=True)
        }


def _revision(searched: Searcher) -> str:
    """What tells its results from those of others: MTEB keeps them, and does not run the same twice."""
    if isinstance(searched, Remote):
        return searched.fingerprint[:12]
    held = searched.fingerprint_for(searched.searched) if searched.is_fitted else ""
    return fingerprint([__version__, searched.kind, config.to_dict(searched), held])[:12]


def _document(row: Mapping[str, Any], task: str) -> Document:
    return Document(str(row["id"]), _text(row, task), str(row.get("title") or ""))


def _query(row: Mapping[str, Any], task: str) -> str:
    """The words of a query, and its instruction behind them, as MTEB's own models read it."""
    instruction = row.get("instruction")
    return f"{_text(row, task)} {instruction}" if instruction else _text(row, task)


def _text(row: Mapping[str, Any], task: str) -> str:
    if not isinstance(row.get("text"), str):
        raise UsageError(f"{row['id']} of {task} has no text", "choose a task of texts")
    return row["text"]


def _holds(searcher: Searcher | None, documents: list[Document]) -> bool:
    """Whether it searches these documents, by their ids; of a server, by their number."""
    if isinstance(searcher, Retriever):
        return set(searcher.documents.ids) == {document.id for document in documents}
    return searcher is not None and len(searcher) == len(documents)
