"""Plain text and Markdown files, one document in each."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from triever.artifact import is_artifact
from triever.data.formats.fields import clean_id
from triever.data.formats.lines import MAX_LINE, read_text, too_long
from triever.data.formats.problems import Flaw, Problems
from triever.data.records import Document

ENDINGS = (".txt", ".md")
_HEAD_LINES = 200
_FENCES = ("```", "~~~")


def text_paths(folder: str | Path) -> Iterator[Path]:
    """The text files at any depth, in the order of their names; hidden ones and Triever's own are left out."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not is_artifact(Path(root, name)))
        for name in sorted(names):
            path = Path(root, name)
            if name.lower().endswith(ENDINGS) and not name.startswith(".") and path.is_file():
                yield path


def text_documents(folder: str | Path, problems: Problems) -> Iterator[Document]:
    """One document for each file: its path is the id; its first heading, or else its name, the title."""
    for path in text_paths(folder):
        yield from _document(path, path.relative_to(folder).as_posix(), problems)


def text_file(path: str | Path, problems: Problems) -> Iterator[tuple[int, Document]]:
    """A file on its own, as the one document that it is; its name is the id."""
    for document in _document(Path(path), Path(path).name, problems):
        yield 1, document


def _document(path: Path, key: str, problems: Problems) -> Iterator[Document]:
    """The document, or nothing if it is bad."""
    before = problems.reports
    try:
        text = _whole_text(path, problems)
        if problems.reports == before:  # half a file is not a document
            # A name alone tells nothing: a blank file is an empty document.
            yield Document(clean_id(key), text, (_title(text) or path.stem) if text.strip() else "")
    except Flaw as flaw:
        problems.report(path, 1, flaw.problem, flaw.hint)


def _whole_text(path: Path, problems: Problems) -> str:
    text = "".join(_up_to(MAX_LINE, read_text(path, problems)))
    if "\0" in text:
        raise Flaw("the text holds a NUL byte", "the file may be UTF-16 or binary: convert it to UTF-8")
    return text


def _up_to(limit: int, chunks: Iterator[str]) -> Iterator[str]:
    """The chunks themselves; a Flaw if they are longer than this, as what is compressed may well be."""
    for chunk in chunks:
        limit -= len(chunk)
        if limit < 0:
            raise Flaw(*too_long("text"))
        yield chunk


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
