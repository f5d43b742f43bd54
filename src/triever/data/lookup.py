"""One document of a dataset by its id, or the ids that are nearest to it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from triever.data.dataset import Dataset
from triever.data.records import Document, normalise
from triever.errors import UsageError

_COMPARED = 100_000  # ids: about two seconds
_NAMED = 3


def find_document(dataset: Dataset, doc_id: str) -> Document:
    """The document with this id; a UsageError with the nearest ids if there is none."""
    wanted, ids = normalise(doc_id), []
    for document in dataset.documents():
        if document.id == wanted:
            return document
        if len(ids) < _COMPARED:
            ids.append(document.id)
    raise UsageError(f"{dataset.name} has no document with the id {doc_id}", _nearest_ids(wanted, ids))


def _nearest_ids(doc_id: str, ids: Sequence[str]) -> str:
    """A hint with ids that hold the given one, or else look like it, or else are the first.

    >>> _nearest_ids("bash", ["man1/bash.1.txt", "man1/ls.1.txt"])
    'did you mean man1/bash.1.txt?'
    >>> _nearest_ids("d12", ["d11", "d21"]), _nearest_ids("x", ["d11", "d21"])
    ('did you mean d21 or d11?', 'the first ids are d11, d21')
    """
    wanted = doc_id.casefold()
    folded = {known.casefold(): known for known in ids}
    names = [known for name, known in folded.items() if wanted in name][:_NAMED]
    names = names or [folded[name] for name in difflib.get_close_matches(wanted, folded, n=_NAMED)]
    if names:
        listed = ", ".join(names[:-1])
        return f"did you mean {f'{listed} or ' if listed else ''}{names[-1]}?"
    return f"the first ids are {', '.join(ids[:_NAMED])}" if ids else "the dataset is empty"
