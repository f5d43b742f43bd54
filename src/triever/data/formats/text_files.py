"""A folder of plain text and Markdown files, one document in each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from triever.data.formats.fields import clean_id
from triever.data.formats.lines import MAX_LINE, read_text
from triever.data.formats.problems import Flaw, Problems
from triever.data.records import Document

ENDINGS = (".txt", ".md")
_HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*?)[ \t#]*$|^(\S.*)\n=+[ \t]*$", re.MULTILINE)


def text_paths(folder: str | Path) -> Iterator[Path]:
    """The text files at any depth, in the order of their names; hidden ones are left out."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(ENDINGS) and not name.startswith("."):
                yield Path(root, name)


def text_documents(folder: str | Path, problems: Problems) -> Iterator[Document]:
    """One document for each file: its path is the id; its first heading, or else its name, the title."""
    for path in text_paths(folder):
        before = problems.reports
        try:
            text = _whole_text(path, problems)
            if problems.reports == before:  # half a file is not a document
                yield Document(clean_id(path.relative_to(folder).as_posix()), text, _title(text) or path.stem)
        except Flaw as flaw:
            problems.report(path, 1, flaw.problem, flaw.hint)


def _whole_text(path: Path, problems: Problems) -> str:
    if path.stat().st_size > MAX_LINE:
        raise Flaw(f"the file is larger than {MAX_LINE // 2**20} MiB", "split the document into passages")
    text = "".join(read_text(path, problems))
    if "\0" in text:
        raise Flaw("the text holds a NUL byte", "the file may be UTF-16 or binary: convert it to UTF-8")
    return text


def _title(text: str) -> str:
    found = _HEADING.search(text)
    return (found.group(1) or found.group(2)).strip() if found else ""
