"""Loads a dataset by name or path; also exports the functions that sample and describe one."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from triever.arguments import as_path
from triever.data.dataset import Dataset, Queries, Split
from triever.data.folders import NAMED, Files, Layout, SplitFiles, listed, survey
from triever.data.formats.extras import INSTALL, PACKAGES, Package, missing_package
from triever.data.formats.lines import require_file
from triever.data.formats.problems import Problems
from triever.data.formats.sniff import is_blank
from triever.data.formats.text_files import real_texts
from triever.data.formats.text_ids import lies_in, real_folder, root_to_keep
from triever.data.readers import count_documents, read_qrels, read_queries, stream_layout
from triever.data.reading import RECORDS, TEXT, Source
from triever.data.records import Qrels, Query
from triever.data.sampling import sample
from triever.data.splits import without_endings
from triever.data.summary import info
from triever.errors import DataError, UsageError, meant
from triever.printable import count_of

__all__ = ["Dataset", "info", "load_dataset", "sample"]

VARIABLE = "TRIEVER_DATA"
"""The environment variable with the folder in which datasets are found by name."""

_PYTHON = "python"
_log = logging.getLogger("triever")


def load_dataset(
    name_or_path: str | Path, *, skip_bad: bool = False, read_as: str = "", root: str | Path = ""
) -> Dataset:
    """A dataset by path, by its name under $TRIEVER_DATA, or `python` for this interpreter's own docs.

    Formats are recognised by content. A bad record is an error, or with `skip_bad` is counted and left out. Of a
    folder with both text files and records, the majority is read, or what `read_as` names: "text" or "records". The
    id of a text file is its path below the folder, or below `root` if it lies in that.
    """
    as_path(name_or_path)
    if isinstance(name_or_path, str) and not name_or_path.strip():
        raise UsageError("the name of the dataset is empty", "give a path or a name; the current folder is .")
    if isinstance(name_or_path, str) and name_or_path.partition(":")[0] == _PYTHON:
        return _python(name_or_path)
    path = _find(name_or_path)
    layout = survey(path, count_documents, read_as=read_as, text_root=str(root), skip_bad=skip_bad)
    sources = {files.queries: partial(_read_queries, files.queries) for files in layout.splits.values()}
    splits = {name: _split(files, sources) for name, files in layout.splits.items()}
    name = without_endings(path.resolve().name)
    for warning in filter(None, (layout.doubt, _ignored(layout), *_unreadable(layout))):
        _log.warning("%s: %s", name, warning)
    return Dataset(name, partial(stream_layout, layout), splits, skip_bad=skip_bad, source=_source(name, layout))


def _ignored(layout: Layout) -> str:
    """A warning with the first few ignored files: a corpus without them looks like any other."""
    if not layout.ignored:
        return ""
    shown, others = layout.ignored[:NAMED], layout.ignored[NAMED:]
    names = [*(_with_reason(layout.root, name) for name in shown), *others]
    said = count_of(len(names), "file looks like data and was", "files look like data and were")
    return f"{said} not used: {listed(names)}"


def _with_reason(root: Path, name: str) -> str:
    """The name of a file that was not used, and where that is why, that it is empty."""
    with contextlib.suppress(DataError):  # what is damaged is not empty
        return f"{name} (empty)" if is_blank(root / name) else name
    return name


def _unreadable(layout: Layout) -> list[str]:
    """Warnings about files that could be documents, if a package were installed."""
    counts = Counter() if layout.documents else _missing_packages(layout)
    return [
        f"{count_of(counts[package], f'{package.kind} file was', f'{package.kind} files were')} not read, as "
        f"{package.name} is not installed; run: {INSTALL}"
        for package in PACKAGES
        if counts[package]
    ]


def _missing_packages(layout: Layout) -> Counter[Package]:
    """The number of files that each missing package would read."""
    return Counter(package for path in layout.unread if (package := missing_package(path)))


def _source(name: str, layout: Layout) -> Source:
    missing = {ending: package.name for package in _missing_packages(layout) for ending in package.endings}
    left = layout.ignored, layout.unread, missing
    if layout.documents:
        return Source(RECORDS, len(layout.documents), "", *left)
    return Source(TEXT, 0, _root(name, layout), *left)


def _root(name: str, layout: Layout) -> str:
    """The folder at which ids of text files begin: the root, if one was given and a text file lies in it."""
    start = layout.root if layout.root.is_dir() else layout.root.parent
    if not layout.text_root or lies_in(layout.root, layout.text_root):
        return root_to_keep(layout.text_root or start)
    root = real_folder(layout.text_root)
    outside = [file for file, real in real_texts(layout.root) if not real.is_relative_to(root)]
    if outside:
        shown = outside[0].relative_to(start).as_posix()
        lie = count_of(len(outside), "text file lies", "text files lie")
        ids = "its id begins" if len(outside) == 1 else "their ids begin"
        message = "%s: %s outside the root %s: %s at %s, such as %s"
        _log.warning(message, name, lie, layout.text_root, ids, root_to_keep(start), shown)
    return root_to_keep(layout.text_root if lies_in(layout.text_root, start) else start)


def _python(name: str) -> Dataset:
    from triever.data import python_docs

    package = name.partition(":")[2]
    documents = python_docs.documents(package)
    queries, qrels = ([], {}) if package else python_docs.questions()
    return Dataset.of(name, documents, queries, qrels)


def _find(name: str | Path) -> Path:
    path = Path(name)
    if os.path.exists(path):  # not Path.exists, which fails below a folder that may not be read
        return path
    shelf = os.environ.get(VARIABLE, "")
    if shelf and os.path.exists(Path(shelf) / path):
        return Path(shelf) / path
    if isinstance(name, Path) or path.parent != Path():
        require_file(path)  # says what is wrong with the path, and what lies beside it
    raise DataError(f"there is no file, folder or dataset called {name}", _known(str(name), shelf))


def _known(name: str, shelf: str) -> str:
    """What to name instead: a file or folder that lies here or a dataset, if one is near; or what is known."""
    datasets = [_PYTHON, *(_names(Path(shelf)) if shelf else ())]
    hint = meant(name, [*datasets, *_here()])
    if shelf:
        return f"{hint} known: {', '.join(sorted(datasets))}".lstrip()
    return hint or f"give a path, or set {VARIABLE} to the folder that holds your datasets"


def _here() -> list[str]:
    """The files and folders of the current folder; none where it is gone, or may not be read."""
    with contextlib.suppress(OSError):
        return [name for name in os.listdir() if not name.startswith(".")]
    return []


def _names(shelf: Path) -> list[str]:
    try:
        return [entry.name for entry in shelf.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"{VARIABLE}={shelf} cannot be read: {error.strerror}", "set it to a folder") from None


def _split(files: SplitFiles, sources: Mapping[Files, Queries]) -> Split:
    qrels = partial(_read_qrels, files.qrels) if files.qrels else None
    return Split(sources[files.queries], qrels, has_own_queries=files.queries == files.qrels)


def _read_queries(files: Files, problems: Problems) -> Iterator[Query]:
    for path in files:
        yield from read_queries(path, problems)


def _read_qrels(files: Files, problems: Problems) -> Qrels:
    merged: dict[str, dict[str, int]] = {}
    for path in files:
        for query, judged in read_qrels(path, problems).items():
            merged[query] = {**judged, **merged.get(query, {})}
    return merged
