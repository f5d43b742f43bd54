"""The folder in which a fit works: which fit it belongs to, so that only that one goes on with what it finds there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from triever import artifact
from triever.data.store import DocumentStore
from triever.errors import UsageError
from triever.files import atomic

if TYPE_CHECKING:
    from triever.training.pairs import Pairs

CLAIM = "what.json"


def claim(work: str | Path, mine: Mapping[str, Any]) -> Path:
    """The folder to work in, unless it holds something else or the unfinished training of another fit.

    Processes that train together may all claim it, at any time: they write the same.
    """
    folder = Path(work)
    _check_place(folder)
    plain = json.loads(json.dumps(mine))
    # What failed before its first checkpoint left nothing to lose.
    if any(folder.rglob("training.json")) and (changed := _changed(folder / CLAIM, plain)):
        problem = f"{folder} holds an unfinished training with other {', '.join(changed)}"
        raise UsageError(problem, "remove that folder, or name another one")
    with atomic(folder / CLAIM) as file:
        file.write(json.dumps(plain).encode())
    return folder


def _check_place(folder: Path) -> None:
    """Refuse what is no folder, a saved retriever or a folder in one, and one with somebody's files."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", "work in a new folder")
    place = folder.resolve()
    if saved := next((one for one in (place, *place.parents) if artifact.is_artifact(one)), None):
        raise UsageError(f"{folder} lies in the saved retriever {saved}", "work in a folder of its own")
    # The names first: another process of the same fit may be putting its claim there, and then other things.
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    if not (folder / CLAIM).exists() and any(CLAIM not in name for name in names):
        raise UsageError(f"{folder} holds other files", "work in a new folder, or move them away")


def _changed(file: Path, mine: Mapping[str, Any]) -> list[str]:
    """The names of what differs from an earlier claim."""
    before = json.loads(file.read_text(encoding="utf-8"))
    return [name for name in {**mine, **before} if before.get(name) != mine.get(name)]


def fingerprint(values: Iterable[Any]) -> str:
    """SHA-256 over plain values, one after the other."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(json.dumps(value, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def of_pairs(pairs: Pairs) -> str:
    """The fingerprint of queries and what is relevant to them."""
    return fingerprint((pairs.ids[one], pairs.texts[one], pairs.of(one).tolist()) for one in range(len(pairs)))


def of_expansions(store: DocumentStore) -> str:
    """The fingerprint of the documents' expansions; nothing where there are none."""
    chunks = store.table.column("expansions").chunks if store.expanded else ()
    return fingerprint(texts for chunk in chunks for texts in chunk.to_pylist()) if chunks else ""


def of_array(array: np.ndarray) -> str:
    """The fingerprint of numbers and how they lie."""
    return hashlib.sha256(f"{array.dtype.str} {array.shape}".encode() + array.tobytes()).hexdigest()


def of_folder(name: str) -> str:
    """The fingerprint of the files in a folder; nothing where the name is not that of one."""
    folder = Path(name).expanduser()
    if not name or not folder.is_dir():
        return ""
    # Contents, not times: a machine that takes over another's work has copied the folder.
    return fingerprint((path.name, _hash(path)) for path in sorted(folder.iterdir()) if path.is_file())


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
