"""The docids of passages and their rows, where every node has one.

A document has one docid for its whole text, one for each of its passages, and one for each question that it is known to
answer. They are all called passages here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from triever.data.passages import passages
from triever.data.records import Document
from triever.docids.schemes import Atomic, Docid, Scheme
from triever.docids.trie import Trie
from triever.engines.docids import Reading
from triever.models.encoder import Encoder, encode
from triever.models.tokens import Tokens
from triever.progress import phase


@dataclass(frozen=True)
class Rows:
    """The docids of passages, and the row of each: passage i is that of document owners[i]."""

    row: np.ndarray  # (passages, d) float16
    owners: np.ndarray  # (passages,) the document of each, rising
    numbers: np.ndarray  # (passages,) under which number each is in the trie, rising
    mass: np.ndarray  # (passages,) float32, how much each counts

    def __len__(self) -> int:
        return len(self.owners)

    def taken(self, keep: np.ndarray) -> Rows:
        """Those of the documents that are kept (documents, bool), which move up."""
        chosen = keep[self.owners]
        owners = (np.cumsum(keep) - 1)[self.owners[chosen]]
        return Rows(self.row[chosen], owners, self.numbers[chosen], self.mass[chosen])

    def places_of(self, numbers: np.ndarray) -> np.ndarray:
        """(numbers,) the positions of passages by their numbers; those of others for the ones that are deleted."""
        if len(self) and self.numbers[-1] == len(self) - 1:  # none was ever deleted, but perhaps the last ones
            return numbers if numbers.max(initial=0) < len(self) else numbers.clip(max=len(self) - 1)
        return np.searchsorted(self.numbers, numbers).clip(max=max(0, len(self) - 1))

    def joined(self, other: Rows) -> Rows:
        """These, and then others."""
        names = [each.name for each in fields(self)]
        return Rows(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))


def is_numbered(scheme: Scheme) -> bool:
    """Whether a scheme may give one docid to many vectors: then the number of a passage stands behind its docid."""
    return scheme.shared or not (scheme.needs_vectors or isinstance(scheme, Atomic))


def numbered(scheme: Scheme, docids: Sequence[Docid], numbers: np.ndarray) -> Sequence[Docid]:
    """Docids for passages with these numbers: those of a scheme, each of which is the docid of few."""
    if not is_numbered(scheme):
        return docids
    return [(*docid, number) for docid, number in zip(docids, numbers.tolist(), strict=True)]


@phase("making docids")
def fitted_trie(
    scheme: Scheme, documents: Sequence[Document], owners: np.ndarray, rows: Tensor, device: torch.device
) -> Trie:
    """The trie of the docids that a scheme gives to passages with these rows (passages, d), of documents `owners`."""
    docids = scheme.fit([documents[owner] for owner in owners], rows, device)
    numbers = np.arange(len(docids))
    return Trie.of(zip(numbered(scheme, docids, numbers), numbers.tolist(), strict=True))


def width_of(scheme: Scheme, numbers: np.ndarray) -> int:
    """How many symbols the docids of passages with these numbers may have."""
    return max(scheme.width, int(numbers[-1:].max(initial=-1)) + 1) if is_numbered(scheme) else scheme.width


def passage_vectors(
    encoder: Encoder,
    reading: Reading,
    documents: Iterable[Document],
    limit: int,
    whole: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors (passages, d) of whole texts and of their passages, and the number of each one's document.

    `whole` (documents, d) has the vectors of whole texts, where they are known.
    """
    owners: list[int] = []

    def texts() -> Iterable[str]:
        for number, document in enumerate(documents):
            whole_text = (document.full_text,) if whole is None else ()
            for text in (*whole_text, *passages(document, limit)):
                owners.append(number)
                yield reading.document_prefix + text

    tokens = Tokens.of(texts(), encoder.tokenizer, encoder.at_most(reading.document_length))
    vectors, of_documents = encode(encoder, tokens), np.array(owners, np.int64)
    if whole is None:
        return vectors, of_documents
    of_documents = np.concatenate([np.arange(len(whole)), of_documents])
    order = of_documents.argsort(kind="stable")
    return np.concatenate([whole, vectors])[order], of_documents[order]
