"""PDF files, read by pypdf, which the extra `files` brings."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from triever.data.formats.content import BadFile, Content, TooLarge
from triever.data.formats.extras import PYPDF, quiet
from triever.data.formats.lines import MAX_LINE
from triever.errors import Flaw

if TYPE_CHECKING:
    from pypdf import PdfReader

    from triever.validation import Json


def pdf_content(raw: bytes) -> Content:
    """The content of a PDF; a BadFile if it is damaged, locked, or holds no text."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import LimitReachedError
    except ImportError as error:
        raise PYPDF.missing() from error
    with quiet(PYPDF.name):
        try:
            return _content(PdfReader(io.BytesIO(raw)))
        except Flaw:
            raise
        except LimitReachedError:
            raise BadFile("the PDF unpacks to more than pypdf reads", "split it into smaller files") from None
        except Exception:  # a damaged file may raise anything, from a KeyError to a RecursionError
            raise BadFile("the PDF is damaged", "open it in another program and print it to a new PDF") from None


def _content(reader: PdfReader) -> Content:
    if reader.is_encrypted and not _opens(reader):
        raise BadFile("the PDF has a password", "save it without one")
    pages, size = [], 0
    for page in reader.pages:
        pages.append(page.extract_text().replace("\0", "").strip())
        size += len(pages[-1])
        if size > MAX_LINE:
            raise TooLarge("text", MAX_LINE)
    text = "\n\n".join(filter(None, pages)).encode("utf-8", "replace").decode()
    if not text:
        raise BadFile("the PDF has no text, only pictures of it", "recognise the text first, for example: ocrmypdf")
    title, facts = _facts(reader)
    return Content(text, title, facts)


def _opens(reader: PdfReader) -> bool:
    """Whether an empty password opens the file: many are locked only against changes."""
    try:
        return bool(reader.decrypt(""))
    except Exception:  # also where the package for this encryption is not installed
        return False


def _facts(reader: PdfReader) -> tuple[str, dict[str, Json]]:
    """The title, and the author and the time of creation, where the file has them."""
    properties = reader.metadata
    if not properties:
        return "", {}
    try:
        created = properties.creation_date
    except ValueError:  # it is no date
        created = None
    facts = {"author": _line(properties.author), "created": created.isoformat() if created else ""}
    return _line(properties.title), {name: value for name, value in facts.items() if value}


def _line(value: object) -> str:
    return " ".join(str(value or "").replace("\0", "").split()).encode("utf-8", "replace").decode()
