"""Finds the files of documents, queries and judgements in a folder, and the splits that they make."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from triever.artifact import is_artifact
from triever.data.formats.extras import missing_package
from triever.data.formats.json_items import is_one_object
from triever.data.formats.lines import require_file
from triever.data.formats.problems import OR_SKIP
from triever.data.formats.sniff import Format, Kind, Role, is_called_documents, recognise, sniff
from triever.data.formats.text_files import ENDINGS, files_below, is_prose, needs_package, text_paths
from triever.data.formats.text_ids import lies_in
from triever.data.formats.warc_files import count_pages, is_archive
from triever.data.reading import RECORDS, TEXT
from triever.data.splits import ALL, split_name
from triever.errors import DataError, MissingExtra, TrieverError, UsageError, nearest
from triever.printable import count_of

Files: TypeAlias = tuple[Path, ...]
FilesOfKinds: TypeAlias = list[tuple[Path, Kind]]
Broken: TypeAlias = dict[Path, DataError]
Count: TypeAlias = Callable[[Sequence[Path], int], int]

_PACKED = r"\.(gz|zst|zstd|bz2|xz|lz4|br|zip|7z|rar|tar|tgz)$"
_DATA = re.compile(rf"\.(jsonl|jsonlines|ndjson|json|tsv|csv|parquet|warc)$|{_PACKED}", re.IGNORECASE)
_ABOUT = re.compile(r"(readme|licen[cs]e|copying|notice|changelog|citation)\b", re.IGNORECASE)
_SMALL = 2**16  # bytes
NAMED = 3
"""How many files a message names."""
_CLOSE = 10  # two numbers are close if one is less than this many times the other
_COUNT_LIMIT = 100_000  # records are counted up to here: about a second
_PAGE_LIMIT = 10_000  # pages of web archives are counted up to here: a few seconds
_TEXT_ENDINGS = f"text files end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"

_EXPECTED = (
    "expected corpus.jsonl (with queries.jsonl and qrels/*.tsv beside it), a TSV or Parquet collection, "
    "a SQuAD or DPR file, or text files: .txt, .md, .rst, .html, .warc, .docx, .pdf"
)


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The files of one split; without qrels, nothing in it is judged."""

    queries: Files
    qrels: Files


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of a dataset, in a folder or in one file; without document files its text files are the documents.

    Ids of text files begin at `text_root`, or else at the folder. Ignored files look like data, but are in no known
    format, too deep in the folder, or less likely to be the corpus than other files. Unread files, such as notes
    beside a corpus, do not look like data; folders among them end in a slash. If both text files and records could
    have been meant, `doubt` says which were taken.
    """

    root: Path
    documents: Files
    splits: Mapping[str, SplitFiles]
    text_root: str = ""
    ignored: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    doubt: str = ""


def survey(path: str | Path, count: Count, *, read_as: str = "", text_root: str = "", skip_bad: bool = False) -> Layout:
    """The layout of a folder or file; a DataError if there are no documents.

    A file of a folder that cannot be recognised is an error, or with `skip_bad` is left out if others have documents.

    `read_as` says whether the documents are text files or records; without it, the majority of the folder decides,
    except that a folder below `text_root` holds text files. `count(files, limit)` counts documents up to a limit.
    """
    if read_as not in ("", TEXT, RECORDS):
        raise UsageError(f"read_as = {read_as!r} is unknown", nearest(read_as, (TEXT, RECORDS)))
    root = Path(path)
    if not read_as and lies_in(root, text_root) and any(map(is_prose, text_paths(root))):
        read_as = TEXT
    layout = _survey_folder(root, count, read_as, skip_bad) if root.is_dir() else _survey_file(root, read_as)
    return replace(layout, text_root=text_root)


def _survey_file(path: Path, read_as: str) -> Layout:
    if missing := _missing([path]):
        raise missing
    if read_as == TEXT:
        if not is_prose(path):
            raise DataError(f"{path} is not a text file", _TEXT_ENDINGS)
        require_file(path)
        return Layout(path, (), {})
    kind = sniff(path)
    if kind.format is not Format.TEXT:
        files = [(path, kind)]
        return _checked(Layout(path, _documents(files), _splits(files)), files)
    if read_as == RECORDS:
        raise DataError(f"{path} is plain text, not a file of records", "use --as text, or name another file")
    return Layout(path, (), {})


def _survey_folder(root: Path, count: Count, read_as: str, skip_bad: bool) -> Layout:
    files = sorted(_files(root))
    record_files, broken = _scan(files, with_texts=read_as == RECORDS)
    choice = _Choice(root, record_files, broken, count, read_as)
    texts = choice.is_text()
    if broken and not texts:
        error = next(iter(broken.values()))
        if not _documents(record_files):
            raise error
        if not skip_bad:
            raise DataError(error.problem, f"{error.hint.removesuffix(OR_SKIP)}{OR_SKIP}")
    splits = _splits([file for file in record_files if not is_prose(file[0])] if texts else record_files)
    layout = Layout(root, () if texts else _documents(record_files), splits, doubt=choice.doubt)
    left = _left(layout)
    ignored = _ignored(root, left, record_files)
    layout = replace(layout, ignored=ignored, unread=tuple(sorted({*left} - {*ignored})))
    return layout if texts else _checked(layout, record_files)


class _Choice:
    """Whether the documents of a folder are its text files or its records.

    Files with the name of a corpus are the corpus. Otherwise each side has a number of files and a number of
    documents, and the larger product wins: many text files beside a stray table, but also a file of many records
    beside a few notes.
    """

    def __init__(self, root: Path, record_files: FilesOfKinds, broken: Broken, count: Count, read_as: str) -> None:
        self.root, self.record_files, self.broken, self.count, self.read_as = root, record_files, broken, count, read_as
        self.doubt = ""

    def is_text(self) -> bool:
        """Whether the text files are the documents; sets `doubt` if that is not clear."""
        if self.read_as == TEXT and not any(text_paths(self.root)):
            raise _no_texts(self.root)
        if self.read_as:
            return self.read_as == TEXT
        documents = [path for path in _documents(self.record_files) if not is_prose(path)]
        if not documents and not self.broken:
            return any(not self.record_files or not _ABOUT.match(path.name) for path in text_paths(self.root))
        kinds, text_files = dict(self.record_files), self._texts({path.parent for path in documents})
        records = [*(path for path in documents if not _is_stray(path, kinds[path])), *self.broken]
        texts = len(text_files)
        if not records or not texts:
            return texts > len(documents)
        whole = [path for path in records if path not in self.broken]
        pages = _count_texts(text_files)
        if any(map(is_called_documents, records)):
            return self._chosen(False, texts, records, close=self.count(whole, pages) < pages)
        enough = min(_CLOSE * texts * pages // len(records) + 1, _COUNT_LIMIT)
        counted = self.count(whole, enough)
        weights = texts * pages, len(records) * counted
        close = max(weights) < _CLOSE * min(weights) or counted == _COUNT_LIMIT
        return self._chosen(weights[0] > weights[1], texts, records, close)

    def _texts(self, record_folders: set[Path]) -> list[Path]:
        """The text files, without files of questions or judgements and without a README beside records."""
        not_documents = {path for path, kind in self.record_files if Role.DOCUMENTS not in kind.roles}
        about = {self.root, *record_folders}
        files = (path for path in text_paths(self.root) if path not in not_documents)
        return [path for path in files if path.parent not in about or not _ABOUT.match(path.name)]

    def _chosen(self, is_text: bool, texts: int, records: Sequence[Path], close: bool) -> bool:
        names = listed([path.relative_to(self.root).as_posix() for path in records])
        those = "it" if texts == 1 else "those"
        message = f"the records of {names} were read, but not {count_of(texts, 'text file')}; to read {those}, use "
        message += "--as text"
        if is_text:
            read = count_of(texts, "text file was", "text files were")
            message = f"{read} read, but not the records of {names}; to read those, use --as records"
        self.doubt = message if close else ""
        return is_text


def _count_texts(text_files: Sequence[Path]) -> int:
    """The number of documents in text files: one in each, but of web archives their pages, up to a limit."""
    archives = [path for path in text_files if is_archive(path)]
    pages = 0
    for path in archives:
        with contextlib.suppress(DataError):  # the reader will say that it cannot be opened
            pages += count_pages(path, _PAGE_LIMIT - pages)
    return len(text_files) - len(archives) + pages


def _missing(paths: Iterable[str | Path]) -> MissingExtra | None:
    """The error for the first of these files that cannot be read because a package is not installed."""
    package = next(filter(None, map(missing_package, paths)), None)
    return package.missing() if package else None


def _no_texts(root: Path) -> TrieverError:
    return _missing(files_below(root)) or DataError(f"{root} holds no text files", _TEXT_ENDINGS)


def _checked(layout: Layout, record_files: FilesOfKinds) -> Layout:
    if layout.documents:
        return layout
    if missing := _missing(layout.unread):
        raise missing
    descriptions = [_description(layout.root, path, kind) for path, kind in record_files]
    seen = f"only {', '.join(descriptions)}" if descriptions else "nothing readable"
    if layout.ignored:
        names = ", ".join(layout.ignored[:5])
        seen += f" beside {names}" if descriptions else f" in {names}"
    raise DataError(f"{layout.root} holds no documents, {seen}", _EXPECTED)


def _scan(files: Sequence[Path], with_texts: bool) -> tuple[FilesOfKinds, Broken]:
    """The files of records, and those that are too broken to be recognised.

    Text files are looked at only beside documents of another format, or `with_texts`: TREC's topics and qrels often
    end in .txt, but so do all files in a folder of notes.
    """
    record_files, broken = _recognised(file for file in files if not is_prose(file))
    if with_texts or _documents(record_files):
        record_files += _recognised(file for file in files if file.suffix.lower() == ".txt")[0]
    return sorted(record_files, key=lambda file: file[0]), broken


def _recognised(files: Iterable[Path]) -> tuple[FilesOfKinds, Broken]:
    recognised: FilesOfKinds = []
    broken: Broken = {}
    for path in files:
        try:
            if kind := recognise(path):
                recognised.append((path, kind))
        except DataError as error:
            broken[path] = error
    return recognised, broken


def _files(folder: Path, depth: int = 2) -> Iterator[Path]:
    """The files of this folder and of its subfolders, without saved artifacts."""
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


def _is_stray(path: Path, kind: Kind) -> bool:
    if path.suffix.lower() == ".json" and kind.format is Format.JSONL and is_one_object(path):
        return True
    return not kind.sure and kind.format is Format.PAIRS and not is_called_documents(path)


def _left(layout: Layout) -> tuple[str, ...]:
    """The files and folders that are not read, as paths below the folder."""
    used = {*layout.documents, *_flat_splits(layout.splits)}
    closed: list[Path] = []
    left = [
        path
        for path in files_below(layout.root, closed.append)
        if path not in used and (layout.documents or not is_prose(path))
    ]
    entered = {parent for path in used for parent in path.parents}
    names = [path.relative_to(layout.root).as_posix() for path in left]
    return *names, *(f"{folder.relative_to(layout.root).as_posix()}/" for folder in closed if folder not in entered)


def _ignored(root: Path, left: tuple[str, ...], record_files: FilesOfKinds) -> tuple[str, ...]:
    """Those of the unread files that look like data and are not known to be something else, such as a run."""
    not_documents = {path for path, kind in record_files if Role.DOCUMENTS not in kind.roles}
    looks = (name for name in left if _DATA.search(name) and not needs_package(name))
    return tuple(
        name for name in looks if root / name not in not_documents and not _describes(root / name, record_files)
    )


def _describes(path: Path, record_files: FilesOfKinds) -> bool:
    """Whether a file only describes the data, as dataset_info.json does: a small JSON object that is no record."""
    small = path.suffix.lower() == ".json" and path.is_file() and path.stat().st_size < _SMALL
    return small and path not in dict(record_files) and is_one_object(path)


def _documents(record_files: FilesOfKinds) -> Files:
    """The files that hold only documents, or if there are none, those that hold documents and questions."""
    alone = tuple(path for path, kind in record_files if kind.roles == (Role.DOCUMENTS,))
    return alone or tuple(path for path, kind in record_files if Role.DOCUMENTS in kind.roles)


def _splits(record_files: FilesOfKinds) -> dict[str, SplitFiles]:
    """The files of each split: its own file of queries, or else all files of queries that belong to no split."""
    queries, qrels = _by_split(record_files, Role.QUERIES), _by_split(record_files, Role.QRELS)
    spare = {name: files for name, files in queries.items() if name not in qrels}
    shared = _flat(spare) or _flat(queries)
    splits = {name: SplitFiles(queries.get(name, shared), files) for name, files in qrels.items()}
    unjudged = dict(spare)
    if not qrels.keys() <= queries.keys():  # the spare ones are shared
        unjudged = {name: files for name, files in spare.items() if name != ALL} if ALL in spare else {}
    splits |= {name: SplitFiles(files, ()) for name, files in unjudged.items()}
    return dict(sorted(splits.items()))


def _by_split(record_files: FilesOfKinds, role: Role) -> dict[str, Files]:
    named: dict[str, Files] = {}
    for path, kind in record_files:
        if role in kind.roles:
            named[split_name(path)] = (*named.get(split_name(path), ()), path)
    return named


def _flat(named: Mapping[str, Files]) -> Files:
    """All files, first those whose name has no split: the first of two queries with the same id is kept."""
    ordered = sorted(named, key=lambda name: name != ALL)
    return tuple(path for name in ordered for path in named[name])


def _flat_splits(splits: Mapping[str, SplitFiles]) -> set[Path]:
    return {path for files in splits.values() for path in (*files.queries, *files.qrels)}


def listed(names: Sequence[str]) -> str:
    """The first few names, as one text."""
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")


def _description(root: Path, path: Path, kind: Kind) -> str:
    return f"{os.path.relpath(path, root) if path != root else path.name} ({', '.join(kind.roles)})"
