"""Plain text and Markdown files, one document in each."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from triever.artifact import is_artifact
from triever.data.formats.fields import clean_id
from triever.data.formats.lines import MAX_LINE, read_head, read_text
from triever.data.formats.problems import Problems
from triever.data.formats.text_ids import real_folder, real_path, text_id
from triever.data.records import Document, normalise
from triever.errors import BadRecord, DataError, Flaw

ENDINGS = (".txt", ".md")
_HEAD_LINES = 200
_FENCES = ("```", "~~~")


def files_below(folder: str | Path, closed: Callable[[Path], None] = lambda _: None) -> Iterator[Path]:
    """The files at any depth, in the order of their names, without hidden files and Triever's own.

    Folders that are links are not entered, as they may lead in a circle; `closed` is called with each of them, and
    with each folder that cannot be opened.
    """
    for parent, folders, names in os.walk(folder, onerror=lambda error: closed(Path(error.filename))):
        here = Path(parent)
        folders[:] = sorted(name for name in folders if name[0] != "." and not is_artifact(here / name))
        for name in folders:
            if (here / name).is_symlink():
                closed(here / name)
        yield from (here / name for name in sorted(names) if name[0] != ".")


def is_prose(path: str | Path) -> bool:
    """Whether a file's name ends in .txt or .md."""
    return str(path).lower().endswith(ENDINGS)


def text_paths(path: str | Path) -> Iterator[Path]:
    """The text files of a folder, or the file itself."""
    return filter(is_prose, files_below(path)) if os.path.isdir(path) else iter([Path(path)])


def text_documents(path: str | Path, problems: Problems, root: str | Path = "") -> Iterator[Document]:
    """One document for each text file of a folder, or for one file.

    The id is the path of the file below the root; without a root, or outside it, the path below the given folder.
    The title is the first heading, or else the name of the file.
    """
    seen: set[int] = set()  # hashes, as of records
    for file, key in _text_ids(path, root):
        document = _document(file, key, problems)
        if document and hash(document.id) in seen:
            other = next(earlier for earlier, its_key in _text_ids(path, root) if normalise(its_key) == document.id)
            problems.report(file, 1, f"{other} has the id {document.id} too", _ONE_ID, "of one id")
        elif document:
            seen.add(hash(document.id))
            yield document


def _text_ids(path: str | Path, root: str | Path) -> Iterator[tuple[Path, str]]:
    """The text files of a folder, or one file, with their ids."""
    start = real_path(path, root)
    base, real_root = start if os.path.isdir(path) else start.parent, real_folder(root) if str(root) else None
    for file, real in real_texts(path, root):
        yield file, text_id(real, real_root, base)


_ONE_ID = "rename one, or say --root, the folder at which ids begin"


def real_texts(path: str | Path, root: str | Path = "") -> Iterator[tuple[Path, Path]]:
    """The text files of a folder, or one file, with their real paths."""
    start = real_path(path, root)
    if os.path.isdir(path):
        yield from ((file, start / file.relative_to(path)) for file in text_paths(path))
    else:
        yield Path(path), start


def text_file(path: str | Path, problems: Problems) -> Iterator[tuple[int, Document]]:
    """A single file as one document, on line 1; its name is the id."""
    for document in text_documents(path, problems):
        yield 1, document


def _document(path: Path, key: str, problems: Problems) -> Document | None:
    """The document of a file, or None if it is bad."""
    reason = "unreadable"
    try:
        read_head(path)
        reason = "not UTF-8"
        text = _whole_text(path)
        reason = "bad names"
        # A blank file is an empty document, and does not get its name as a title.
        return Document(clean_id(key), text, (_title(text) or path.stem) if text.strip() else "")
    except _TooLarge as flaw:
        problems.report(path, 1, flaw.problem, flaw.hint, "too large")
    except Flaw as flaw:
        problems.report(path, 1, flaw.problem, flaw.hint, reason)
    except BadRecord as error:  # half a file is not a document
        problems.report(*error.args, reason=reason)
    except DataError as error:
        if not problems.skip_bad:
            raise
        problems.report(path, 1, error.problem, error.hint, reason)
    return None


class _TooLarge(Flaw):
    """A file that is larger than any document."""


def _whole_text(path: Path) -> str:
    parts, size = [], path.stat().st_size
    for part in read_text(path, Problems()):
        parts.append(part)
        if max(size, sum(map(len, parts))) > MAX_LINE:
            raise _TooLarge(f"the file is larger than {MAX_LINE // 2**20} MiB", "split the document into passages")
    text = "".join(parts)
    if "\0" in text:
        raise Flaw("the text holds a NUL byte", "the file may be UTF-16 or binary: convert it to UTF-8")
    return text


def _title(text: str) -> str:
    """The first heading among the first lines, but not a comment inside a code fence."""
    before, fence = "", ""
    for line in map(str.rstrip, islice(io.StringIO(text), _HEAD_LINES)):
        mark = line.lstrip()[:3]
        if mark in _FENCES and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence and (heading := _heading(line) or _underlined(before, line)):
            return heading
        before = line
    return ""


def _heading(line: str) -> str:
    """The text after one to six # and a space, without the # that may close it.

    >>> _heading("## In C# #"), _heading("#tag")
    ('In C#', '')
    """
    rest = line.lstrip("#")
    if not 1 <= len(line) - len(rest) <= 6 or rest[:1] not in (" ", "\t"):
        return ""
    bare = rest.rstrip("#")
    return (bare if bare[-1:] in (" ", "\t") else rest).strip()


def _underlined(before: str, line: str) -> str:
    return before if line and not line.strip("=") and before[:1].strip() else ""
