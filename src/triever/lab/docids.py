"""A description of the docids that a scheme gives to a corpus, before anything is trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from triever import config
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.docids.code_use import code_facts
from triever.docids.quantize import all_finite
from triever.docids.schemes import Scheme, scheme_class
from triever.docids.trie import Trie
from triever.engines.encoded import DenseEngine
from triever.engines.given import GivenEngine
from triever.errors import DataError, UsageError
from triever.index.top import shared
from triever.index.vector_files import VectorFile, is_pyserini
from triever.printable import an
from triever.retriever import load

SHOWN = 3


def describe_docids(dataset: Dataset, kind: str, settings: Sequence[str], vectors: Path | None) -> dict[str, object]:
    """The shape of the trie, the number and the use of symbols, and a few docids as a person reads them."""
    scheme = config.from_words(scheme_class(kind), settings)
    documents = list(dataset.documents())
    docids = scheme.fit(documents, _vectors(scheme, vectors, documents))
    trie = Trie.of(zip(docids, range(len(docids)), strict=True))
    description: dict[str, object] = {
        "scheme": repr(scheme),
        "width": scheme.width,
        **trie.info(),
        **code_facts(trie, scheme),
    }
    examples = zip(documents[:SHOWN], docids, strict=False)
    return description | {document.id: scheme.readable(docid) for document, docid in examples}


def _vectors(scheme: Scheme, path: Path | None, documents: Sequence[Document]) -> Tensor | None:
    """The vectors of documents: those of a file, or of a saved dense retriever."""
    if path is None:
        if scheme.needs_vectors:
            problem = f"{scheme.kind} docids are made from vectors, but none are given"
            raise UsageError(problem, "add --vectors and a .npy file, or a model that triever fit dense has written")
        return None
    if path.is_dir() and not is_pyserini(path):
        return _of_model(path, documents)
    file = VectorFile(str(path))
    if path.suffix == ".npy" and not file.ids_path.exists():  # then they are in the order of documents
        return _of_file(path)
    return shared(file.read().of([document.id for document in documents]))


def _of_model(path: Path, documents: Sequence[Document]) -> Tensor:
    """The vectors that a saved dense retriever has of these documents, which need not be all of its documents."""
    retriever = load(path)
    if not isinstance(retriever.engine, DenseEngine | GivenEngine):
        hint = "name a model that triever fit dense or triever fit given has written"
        raise UsageError(f"{path} is {an(retriever.kind)} retriever, which has no vector for each document", hint)
    if retriever.searched is not retriever.documents:
        problem = f"{path} has vectors of passages, and none for each document"
        raise UsageError(problem, "fit it with --set cut.which=none")
    missing = next((document.id for document in documents if document.id not in retriever.documents), None)
    if missing is not None:
        raise DataError(f"{path} has no document {missing}", "name a model that was fitted on these documents")
    rows = np.array([retriever.documents.row(document.id) for document in documents])
    return shared(retriever.engine.index.take(rows))


def _of_file(path: Path) -> Tensor:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a .npy file of numbers: {error}", "write it with numpy.save") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu" or array.ndim != 2 or not array.size:
        problem = f"{path} does not hold a row of numbers for each document"
        raise DataError(problem, "write an array of (documents, numbers) with numpy.save")
    vectors = shared(array)
    if not all_finite(vectors):
        raise DataError(f"{path} holds numbers that are not finite", "correct the vectors of those documents")
    return vectors
