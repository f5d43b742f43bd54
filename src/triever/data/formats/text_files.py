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
    """The files at any depth, in the order of their names; hidden ones and Triever's own are left out.

    Folders that are links are not entered, as they may lead in a circle: they are handed to `closed`, together with
    those that cannot be opened.
    """
    for place, folders, names in os.walk(folder, onerror=lambda error: closed(Path(error.filename))):
        here = Path(place)
        folders[:] = sorted(name for name in folders if name[0] != "." and not is_artifact(here / name))
        for name in folders:
            if (here / name).is_symlink():
                closed(here / name)
        yield from (here / name for name in sorted(names) if name[0] != ".")


def is_prose(path: str | Path) -> bool:
    """Whether a file's name ends as those of text files do."""
    return str(path).lower().endswith(ENDINGS)


def text_paths(path: str | Path) -> Iterator[Path]:
    """The text files of a folder, or a file that is one itself."""
    return filter(is_prose, files_below(path)) if os.path.isdir(path) else iter([Path(path)])


def text_documents(path: str | Path, problems: Problems, root: str | Path = "") -> Iterator[Document]:
    """One document for each text file of a folder, or for one file.

    Its path below the root is the id, or where it lies outside or there is none, its path below the folder that was
    named. Its first heading is the title, or else its name.
    """
    seen: set[int] = set()  # hashes, as of records
    for file, key in _text_ids(path, root):
        document = _document(file, key, problems)
        if document and hash(document.id) in seen:
            other = next(one for one, its_key in _text_ids(path, root) if normalise(its_key) == document.id)
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
    """A file on its own, as the one document that it is; its name is the id."""
    for document in text_documents(path, problems):
        yield 1, document


def _document(path: Path, key: str, problems: Problems) -> Document | None:
    """The document, or nothing if it is bad."""
    reason = "unreadable"
    try:
        read_head(path)
        reason = "not UTF-8"
        text = _whole_text(path)
        reason = "bad names"
        # A name alone tells nothing: a blank file is an empty document.
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
    """What stands behind one to six # and a space, without the # that may close it.

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
