"""Which files of a folder hold documents, queries and judgements, and which splits they make."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from triever.data.formats.sniff import Kind, Role, recognise, sniff
from triever.data.formats.text_files import text_paths
from triever.data.splits import split_name
from triever.errors import DataError

Files: TypeAlias = tuple[Path, ...]

_EXPECTED = (
    "expected corpus.jsonl (with queries.jsonl and qrels/*.tsv beside it), a TSV or Parquet collection, "
    "a SQuAD or DPR file, or .txt and .md files"
)


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The files of one split; without qrels, nothing in it is judged."""

    queries: Files
    qrels: Files


@dataclass(frozen=True, slots=True)
class Layout:
    """What lies where in a folder, or in one file; without document files it is a folder of texts."""

    root: Path
    documents: Files
    splits: Mapping[str, SplitFiles]


def survey(path: str | Path) -> Layout:
    """The layout of a folder or file; a DataError if there are no documents."""
    root = Path(path)
    found = _scan(root) if root.is_dir() else [(root, sniff(root))]
    documents = _documents(found)
    if not documents and (found or not _holds_texts(root)):
        seen = f"only {', '.join(_said(root, one, kind) for one, kind in found)}" if found else "nothing readable"
        raise DataError(f"{path} holds no documents, {seen}", _EXPECTED)
    return Layout(root, documents, _splits(found))


def _scan(folder: Path) -> list[tuple[Path, Kind]]:
    """The files with records, here and one folder down.

    Text files count only beside documents of another format: TREC's topics and qrels often end in
    .txt, but so does every note of a folder of notes.
    """
    files = sorted(_files(folder))
    found = _recognised(one for one in files if not _is_prose(one))
    if _documents(found):
        found += _recognised(one for one in files if one.suffix.lower() == ".txt")
    return sorted(found, key=lambda one: one[0])


def _recognised(files: Iterator[Path]) -> list[tuple[Path, Kind]]:
    return [(path, kind) for path in files if (kind := recognise(path))]


def _files(folder: Path, depth: int = 2) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"{folder} cannot be opened: {error.strerror}", f"run: chmod u+rx {folder}") from None
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_file():
            yield entry
        elif depth > 1 and entry.is_dir():
            yield from _files(entry, depth - 1)


def _is_prose(path: Path) -> bool:
    return path.suffix.lower() in (".txt", ".md")


def _holds_texts(root: Path) -> bool:
    return root.is_dir() and next(text_paths(root), None) is not None


def _documents(found: list[tuple[Path, Kind]]) -> Files:
    """A file of nothing but documents is the corpus; questions with passages are one only without it."""
    alone = tuple(path for path, kind in found if kind.roles == (Role.DOCUMENTS,))
    return alone or tuple(path for path, kind in found if Role.DOCUMENTS in kind.roles)


def _splits(found: list[tuple[Path, Kind]]) -> dict[str, SplitFiles]:
    """Every split with its own queries file, or with all those that belong to no split."""
    queries, qrels = _by_split(found, Role.QUERIES), _by_split(found, Role.QRELS)
    spare = {name: files for name, files in queries.items() if name not in qrels}
    shared = _flat(spare) or _flat(queries)
    splits = {name: SplitFiles(queries.get(name, shared), files) for name, files in qrels.items()}
    if qrels.keys() <= queries.keys():  # nobody shares the spare ones: they are splits without judgements
        splits |= {name: SplitFiles(files, ()) for name, files in spare.items()}
    return dict(sorted(splits.items()))


def _by_split(found: list[tuple[Path, Kind]], role: Role) -> dict[str, Files]:
    named: dict[str, Files] = {}
    for path, kind in found:
        if role in kind.roles:
            named[split_name(path)] = (*named.get(split_name(path), ()), path)
    return named


def _flat(named: Mapping[str, Files]) -> Files:
    return tuple(path for files in named.values() for path in files)


def _said(root: Path, path: Path, kind: Kind) -> str:
    return f"{os.path.relpath(path, root) if path != root else path.name} ({', '.join(kind.roles)})"
