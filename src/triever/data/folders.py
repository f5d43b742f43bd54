"""Which files of a folder hold documents, queries and judgements, and which splits they make."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from triever.artifact import is_artifact
from triever.data.formats.json_items import is_one_object
from triever.data.formats.sniff import Format, Kind, Role, is_called_documents, recognise, sniff
from triever.data.formats.text_files import ENDINGS, text_paths
from triever.data.splits import ALL, split_name
from triever.errors import DataError

Files: TypeAlias = tuple[Path, ...]
Found: TypeAlias = list[tuple[Path, Kind]]

_PACKED = r"\.(gz|zst|zstd|bz2|xz|lz4|br|zip|7z|rar|tar|tgz)$"
_DATA = re.compile(rf"\.(jsonl|jsonlines|ndjson|json|tsv|csv|parquet)$|{_PACKED}", re.IGNORECASE)
_ABOUT = re.compile(r"(readme|licen[cs]e|copying|notice|changelog|citation)\b", re.IGNORECASE)
_DEEPEST = 6
_SMALL = 2**16  # bytes

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
    """What lies where in a folder, or in one file; without document files it is a folder of texts.

    Ignored files look like data, but are in no known format, too deep, or overruled by others. The rest of
    what lies there and is not read, such as notes beside a corpus, is unread.
    """

    root: Path
    documents: Files
    splits: Mapping[str, SplitFiles]
    ignored: Files = ()
    unread: Files = ()


def survey(path: str | Path) -> Layout:
    """The layout of a folder or file; a DataError if there are no documents."""
    root = Path(path)
    if not root.is_dir():
        found = [(root, sniff(root))]
        return _checked(Layout(root, _documents(found), _splits(found)), found)
    files = sorted(_files(root))
    found = _scan(files)
    texts = _texts_win(root, files, found)
    splits = _splits([one for one in found if not _is_prose(one[0])] if texts else found)
    layout = Layout(root, () if texts else _documents(found), splits)
    left = _left(layout)
    ignored = _ignored(left, found)
    layout = replace(layout, ignored=ignored, unread=tuple(sorted({*left} - {*ignored})))
    return layout if texts else _checked(layout, found)


def _checked(layout: Layout, found: Found) -> Layout:
    if layout.documents:
        return layout
    said = [_said(layout.root, path, kind) for path, kind in found]
    seen = f"only {', '.join(said)}" if said else "nothing readable"
    if layout.ignored:
        names = (os.path.relpath(path, layout.root) for path in layout.ignored[:5])
        seen += f" beside {', '.join(names)}" if said else f" in {', '.join(names)}"
    raise DataError(f"{layout.root} holds no documents, {seen}", _EXPECTED)


def _scan(files: Sequence[Path]) -> Found:
    """The files with records.

    Text files count only beside documents of another format: TREC's topics and qrels often end in
    .txt, but so does every note of a folder of notes.
    """
    found = _recognised(one for one in files if not _is_prose(one))
    if _documents(found):
        found += _recognised(one for one in files if one.suffix.lower() == ".txt")
    return sorted(found, key=lambda one: one[0])


def _recognised(files: Iterable[Path]) -> Found:
    return [(path, kind) for path in files if (kind := recognise(path))]


def _files(folder: Path, depth: int = 2) -> Iterator[Path]:
    """The files here and one folder down, without what Triever itself saved."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"{folder} cannot be opened: {error.strerror}", f"run: chmod u+rx {folder}") from None
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_file():
            yield entry
        elif depth > 1 and entry.is_dir() and not is_artifact(entry):
            yield from _files(entry, depth - 1)


def _is_prose(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def _texts_win(root: Path, files: Sequence[Path], found: Found) -> bool:
    """Whether the text files are the documents: there is nothing better, and more than a README.

    A package.json with an id is a record, and a table of two columns may be anything: among more
    notes than that, they are strays.
    """
    known = {path for path, _ in found}
    prose = [path for path in files if _is_prose(path) and path not in known and not _ABOUT.match(path.name)]
    documents = _documents(found)
    if not documents:
        return any(not found or not _ABOUT.match(path.name) for path in text_paths(root))
    kinds = dict(found)
    return len(prose) > len(documents) and all(_is_stray(path, kinds[path]) for path in documents)


def _is_stray(path: Path, kind: Kind) -> bool:
    if path.suffix.lower() == ".json" and kind.format is Format.JSONL and is_one_object(path):
        return True
    return not kind.sure and kind.format is Format.PAIRS and not is_called_documents(path)


def _left(layout: Layout) -> Files:
    """What is not read."""
    used = {*layout.documents, *_flat_splits(layout.splits)}
    texts = not layout.documents
    return tuple(path for path in _all_files(layout.root) if path not in used and not (texts and _is_prose(path)))


def _ignored(left: Files, found: Found) -> Files:
    """What is left, looks like data, and is not known to be something else, such as a run."""
    other = {path for path, kind in found if Role.DOCUMENTS not in kind.roles}
    looks = (path for path in left if _DATA.search(path.name))
    return tuple(path for path in looks if path not in other and not _describes(path, found))


def _all_files(root: Path) -> Iterator[Path]:
    """The files at any sensible depth; a folder that cannot be opened holds none."""
    for place, folders, names in os.walk(root):
        here = Path(place)
        deep = len(here.relative_to(root).parts) >= _DEEPEST
        folders[:] = [] if deep else sorted(one for one in folders if one[0] != "." and not is_artifact(here / one))
        yield from (here / name for name in sorted(names) if name[0] != ".")


def _describes(path: Path, found: Found) -> bool:
    """A small JSON object that is no record tells about the data, as dataset_info.json does."""
    small = path.suffix.lower() == ".json" and path.stat().st_size < _SMALL
    return small and path not in dict(found) and is_one_object(path)


def _documents(found: Found) -> Files:
    """A file of nothing but documents is the corpus; questions with passages are one only without it."""
    alone = tuple(path for path, kind in found if kind.roles == (Role.DOCUMENTS,))
    return alone or tuple(path for path, kind in found if Role.DOCUMENTS in kind.roles)


def _splits(found: Found) -> dict[str, SplitFiles]:
    """Every split with its own queries file, or with all those that belong to no split."""
    queries, qrels = _by_split(found, Role.QUERIES), _by_split(found, Role.QRELS)
    spare = {name: files for name, files in queries.items() if name not in qrels}
    shared = _flat(spare) or _flat(queries)
    splits = {name: SplitFiles(queries.get(name, shared), files) for name, files in qrels.items()}
    unjudged = dict(spare)
    if not qrels.keys() <= queries.keys():  # the spare ones are shared
        unjudged = {name: files for name, files in spare.items() if name != ALL} if ALL in spare else {}
    splits |= {name: SplitFiles(files, ()) for name, files in unjudged.items()}
    return dict(sorted(splits.items()))


def _by_split(found: Found, role: Role) -> dict[str, Files]:
    named: dict[str, Files] = {}
    for path, kind in found:
        if role in kind.roles:
            named[split_name(path)] = (*named.get(split_name(path), ()), path)
    return named


def _flat(named: Mapping[str, Files]) -> Files:
    """All files, and first those whose name says no split: of two queries with one id, theirs is kept."""
    ordered = sorted(named, key=lambda name: name != ALL)
    return tuple(path for name in ordered for path in named[name])


def _flat_splits(splits: Mapping[str, SplitFiles]) -> set[Path]:
    return {path for files in splits.values() for path in (*files.queries, *files.qrels)}


def _said(root: Path, path: Path, kind: Kind) -> str:
    return f"{os.path.relpath(path, root) if path != root else path.name} ({', '.join(kind.roles)})"
