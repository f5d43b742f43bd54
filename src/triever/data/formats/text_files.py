"""Files of text, one document in each: plain text, Markdown, reStructuredText, web pages, Word documents and PDF."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from triever.artifact import is_artifact
from triever.data.formats.content import Content, TooLarge
from triever.data.formats.docx_files import docx_content
from triever.data.formats.encodings import Undecodable, decode
from triever.data.formats.fields import clean_id
from triever.data.formats.front_matter import split_front_matter
from triever.data.formats.headings import first_heading
from triever.data.formats.html_pages import html_content
from triever.data.formats.lines import MAX_LINE, UNPACKED_FREELY, read_bytes, read_head
from triever.data.formats.pdf_files import pdf_content, reads_pdf
from triever.data.formats.problems import OR_SKIP, Problems
from triever.data.formats.text_ids import real_folder, real_path, text_id
from triever.data.records import Document, normalise
from triever.errors import DataError, Flaw

PLAIN_ENDINGS = (".txt", ".md", ".markdown", ".rst")
ENDINGS = (*PLAIN_ENDINGS, ".html", ".htm", ".docx", ".pdf")
"""The endings of files that are one document each."""
_README = "readme"


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
    """Whether a file's name is that of a text that can be read here; a README needs no ending."""
    return has_text_name(path) and not needs_package(path)


def has_text_name(path: str | Path) -> bool:
    """Whether a file's name is that of a text."""
    name = os.path.basename(path).lower()
    return name.endswith(ENDINGS) or name == _README


def needs_package(path: str | Path) -> bool:
    """Whether a file is a PDF, and nothing is installed that reads one."""
    return str(path).lower().endswith(".pdf") and not reads_pdf()


def text_paths(path: str | Path) -> Iterator[Path]:
    """The text files of a folder, or the file itself."""
    return filter(is_prose, files_below(path)) if os.path.isdir(path) else iter([Path(path)])


def text_documents(path: str | Path, problems: Problems, root: str | Path = "") -> Iterator[Document]:
    """One document for each text file of a folder, or for one file.

    The id is the path of the file below the root; without a root, or outside it, the path below the given folder.
    The title is what the file calls its title, or else the first heading, or else the name of the file.
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
        content = _content(path)
        reason = "bad names"
        # A blank file is an empty document, and does not get its name as a title.
        title = content.title or (path.stem if content.text.strip() else "")
        return Document(clean_id(key), content.text, title, (), content.metadata)
    except Flaw as flaw:
        reason = next((name for kind, name in _REASONS.items() if isinstance(flaw, kind)), reason)
        line = flaw.line if isinstance(flaw, Undecodable) else 1
        problems.report(path, line, flaw.problem, f"{flaw.hint}{OR_SKIP}", reason)
    except DataError as error:
        if not problems.skip_bad:
            raise DataError(error.problem, f"{error.hint}{OR_SKIP}") from None
        problems.report(path, 1, error.problem, error.hint, reason)
    return None


_REASONS = {TooLarge: "too large", Undecodable: "unknown encoding"}


def _content(path: Path) -> Content:
    """What a file says, by its ending."""
    ending = path.suffix.lower()
    limit = UNPACKED_FREELY if ending in _PACKED else MAX_LINE
    raw = read_bytes(path, limit)
    if len(raw) > limit:
        raise TooLarge("file", limit)
    return _READERS[ending](raw) if ending in _READERS else _plain_content(raw, ending)


_READERS: dict[str, Callable[[bytes], Content]] = {
    ".html": html_content,
    ".htm": html_content,
    ".docx": docx_content,
    ".pdf": pdf_content,
}
_PACKED = (".docx", ".pdf")  # pictures and fonts make most of such a file, and only its text counts


def _plain_content(raw: bytes, ending: str) -> Content:
    fields, text = split_front_matter(decode(raw))
    titles = [" ".join(str(fields.pop(name)).split()) for name in [*fields] if name.lower() == "title"]
    return Content(text, titles[0] if titles else first_heading(text, ending), fields)
