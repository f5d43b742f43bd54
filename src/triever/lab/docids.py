"""A description of the docids that a scheme gives to a corpus, before anything is trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from triever import config
from triever.data.datasets import Dataset
from triever.docids.code_use import code_use
from triever.docids.quantize import all_finite
from triever.docids.schemes import Scheme, scheme_class
from triever.docids.trie import Trie
from triever.errors import DataError, UsageError
from triever.index.top import shared

SHOWN = 3


def describe_docids(dataset: Dataset, kind: str, settings: Sequence[str], vectors: Path | None) -> dict[str, object]:
    """The shape of the trie, the number and the use of symbols, and a few docids as a person reads them."""
    scheme = config.from_words(scheme_class(kind), settings)
    documents = list(dataset.documents())
    docids = scheme.fit(documents, _vectors(scheme, vectors))
    trie = Trie.of(zip(docids, range(len(docids)), strict=True))
    use = code_use(trie, scheme)
    description: dict[str, object] = {
        "scheme": repr(scheme),
        "width": scheme.width,
        **trie.info(),
        **(use.facts() if use else {}),
    }
    examples = zip(documents[:SHOWN], docids, strict=False)
    return description | {document.id: scheme.readable(docid) for document, docid in examples}


def _vectors(scheme: Scheme, path: Path | None) -> Tensor | None:
    if path is None:
        if scheme.needs_vectors:
            raise UsageError(
                f"{scheme.kind} docids are made from vectors, but none are given", "add --vectors FILE.npy"
            )
        return None
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
