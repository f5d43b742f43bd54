"""Fingerprints of what a fit learns from, so that only the very same fit goes on in a work folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from triever.data.store import DocumentStore

if TYPE_CHECKING:
    from triever.training.pairs import Pairs


def fingerprint(values: Iterable[object]) -> str:
    """A SHA-256 over JSON values, in their order."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(json.dumps(value, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def of_pairs(pairs: Pairs) -> str:
    """The fingerprint of queries, their relevant documents, and what decides which of them are held out."""
    return fingerprint(
        (pairs.ids[query], pairs.texts[query], pairs.of(query).tolist(), float(pairs.held_from[query]))
        for query in range(len(pairs))
    )


def of_expansions(store: DocumentStore) -> str:
    """The fingerprint of the documents' expansions; an empty text where there are none."""
    chunks = store.table.column("expansions").chunks if store.expanded else ()
    return fingerprint(texts for chunk in chunks for texts in chunk.to_pylist()) if chunks else ""


def of_array(array: np.ndarray) -> str:
    """The fingerprint of an array: its numbers, its type and its shape."""
    return hashlib.sha256(f"{array.dtype.str} {array.shape}".encode() + array.tobytes()).hexdigest()


def of_folder(name: str) -> str:
    """The fingerprint of the files in a folder; an empty text if there is no such folder."""
    folder = Path(name).expanduser()
    if not name or not folder.is_dir():
        return ""
    # Contents, not times: a machine that takes over another's work has copied the folder.
    return fingerprint((path.name, _hash(path)) for path in sorted(folder.iterdir()) if path.is_file())


def of_files(paths: Iterable[Path]) -> str:
    """The fingerprint of files, and of the files in folders, in this order; what is not there is left out."""
    inside = (sorted(path.iterdir()) if path.is_dir() else [path] for path in paths)
    return fingerprint(_hash(path) for files in inside for path in files if path.is_file())


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
