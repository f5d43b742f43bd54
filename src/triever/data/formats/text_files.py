"""Files of text: plain text, Markdown, reStructuredText, web pages, Word documents, PDF, and archives of web pages.

Each file is one document, but an archive has one for each of its pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from triever.artifact import is_artifact
from triever.data.formats.content import Content, TooLarge
from triever.data.formats.docx_files import docx_content
from triever.data.formats.encodings import Undecodable
from triever.data.formats.extras import missing_package
from triever.data.formats.fields import shorten
from triever.data.formats.html_pages import html_content
from triever.data.formats.lines import MAX_LINE, UNPACKED_FREELY, open_bytes, read_bytes, read_head
from triever.data.formats.pdf_files import pdf_content
from triever.data.formats.plain_text import plain_content
from triever.data.formats.problems import OR_SKIP, Problems
from triever.data.formats.text_ids import real_folder, real_path, text_id
from triever.data.formats.warc_files import is_archive, read_pages
from triever.data.records import Document, normalise, wrong_id
from triever.errors import BadRecord, DataError, Flaw

PLAIN_ENDINGS = (".txt", ".md", ".markdown", ".rst")
ENDINGS = (*PLAIN_ENDINGS, ".html", ".htm", ".warc", ".warc.gz", ".docx", ".pdf")
"""The endings of text files."""
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
    """Whether a file is a PDF or a web archive, and nothing is installed that reads one."""
    return missing_package(path) is not None


def text_paths(path: str | Path) -> Iterator[Path]:
    """The text files of a folder, or the file itself."""
    return filter(is_prose, files_below(path)) if os.path.isdir(path) else iter([Path(path)])


def text_documents(path: str | Path, problems: Problems, root: str | Path = "") -> Iterator[Document]:
    """One document for each text file of a folder, or for one file; of a web archive, one for each page.

    The id is the path of the file below the root; without a root, or outside it, the path below the given folder. The
    id of a page is that path, a slash, and the address of the page. The title is what the file calls its title, or
    else the first heading, or else the name of the file.
    """
    seen: set[int] = set()  # hashes, as of records
    for file, key in _text_ids(path, root):
        for document in _documents(file, key, problems):
            if hash(document.id) in seen:
                same = (other for other, its_key in _text_ids(path, root) if normalise(its_key) == normalise(key))
                problems.report(file, 1, f"{next(same)} has the id {document.id} too", _ONE_ID, "of one id")
            else:
                seen.add(hash(document.id))
                problems.files += not is_archive(file)  # those count when they are opened
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
    """The document of a single file, on line 1, with its name as the id; of a web archive, all of its pages."""
    for document in text_documents(path, problems):
        yield 1, document


def _documents(path: Path, key: str, problems: Problems) -> Iterator[Document]:
    """The document of a file, or those of an archive; none if the file is bad."""
    try:
        yield from (_page_documents if is_archive(path) else _file_document)(path, key, problems)
    except BadRecord:
        raise
    except DataError as error:  # the file cannot be opened
        if not problems.skip_bad:
            raise DataError(error.problem, f"{error.hint}{OR_SKIP}") from None
        problems.report(path, 1, error.problem, error.hint, _UNREADABLE)


def _file_document(path: Path, key: str, problems: Problems) -> Iterator[Document]:
    try:
        read_head(path)
        document = _named(key, path.stem, _content(path))
    except Flaw as flaw:
        line = flaw.line if isinstance(flaw, Undecodable) else 1
        problems.report(path, line, flaw.problem, f"{flaw.hint}{OR_SKIP}", _reason(flaw))
    else:
        yield document


def _page_documents(path: Path, key: str, problems: Problems) -> Iterator[Document]:
    with open_bytes(path) as stream:
        for page in read_pages(path, stream, problems):
            try:
                document = _named(f"{key}/{page.url}", page.name, page.content())
            except Flaw as flaw:
                problem = f"{shorten(page.url)}: {flaw.problem}"
                problems.report(path, page.number, problem, _NO_EDITING, _reason(flaw))
            else:
                yield document


_NO_EDITING = f"take the page out of the archive{OR_SKIP}"  # other hints are about files, which can be saved again


def _named(key: str, name: str, content: Content) -> Document:
    """A document with the name of its file as its title if it has no other; a blank file is an empty document."""
    if wrong := wrong_id(key):
        raise _BadName(*wrong)
    title = content.title or (name if content.text.strip() else "")
    return Document(key, content.text, title, (), content.metadata)


class _BadName(Flaw):
    """The name of a file that cannot be an id."""


_UNREADABLE = "unreadable"
_REASONS = {TooLarge: "too large", Undecodable: "unknown encoding", _BadName: "bad names"}


def _reason(flaw: Flaw) -> str:
    """The reason by which a file or page is counted that was left out."""
    return next((name for kind, name in _REASONS.items() if isinstance(flaw, kind)), _UNREADABLE)


def _content(path: Path) -> Content:
    """What a file says, by its ending."""
    ending = path.suffix.lower()
    limit = UNPACKED_FREELY if ending in _PACKED else MAX_LINE
    raw = read_bytes(path, limit)
    if len(raw) > limit:
        raise TooLarge("file", limit)
    return _READERS[ending](raw) if ending in _READERS else plain_content(raw, ending)


_READERS: dict[str, Callable[[bytes], Content]] = {
    ".html": html_content,
    ".htm": html_content,
    ".docx": docx_content,
    ".pdf": pdf_content,
}
_PACKED = (".docx", ".pdf")  # pictures and fonts make most of such a file, and only its text counts
