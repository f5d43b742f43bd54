"""Word documents (.docx): a zip of XML, of which the text, the first heading and the core properties are read.

Nothing is unpacked beyond a limit, and XML that declares entities is refused: no Word document does.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import TYPE_CHECKING
from xml.parsers import expat

from triever.data.formats.content import BadFile, Content, TooLarge
from triever.data.formats.lines import CHUNK, MAX_LINE, UNPACKED_FREELY

if TYPE_CHECKING:
    from triever.validation import Json

_LOCKED = b"\xd0\xcf\x11\xe0"  # the container of old .doc files, and of .docx files with a password
_DOCUMENT, _PROPERTIES = "word/document.xml", "docProps/core.xml"
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError, KeyError)
_TITLES = ("title", "heading1")
_FACTS = {"creator": "author", "created": "created"}
_DEEPEST = 1000  # elements in each other; tables in tables of a real document have dozens
_AGAIN = "save it again as .docx"


def docx_content(raw: bytes) -> Content:
    """The content of a document; a BadFile if it is damaged or locked."""
    if raw.startswith(_LOCKED):
        raise BadFile("the document has a password, or is a .doc", "save it as .docx without a password")
    body, properties = _Body(), _Properties()
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            _parse(archive, _DOCUMENT, body)
            if _PROPERTIES in archive.namelist():
                _parse(archive, _PROPERTIES, properties)
    except expat.ExpatError:
        raise BadFile("the XML of the Word document is damaged", _AGAIN) from None
    except _DAMAGE:
        raise BadFile("the file is not a Word document, or is damaged", _AGAIN) from None
    return Content(body.text(), properties.title or body.title, properties.facts)


class _Handler:
    """Takes the elements of one XML file, by their names without namespaces."""

    def __init__(self) -> None:
        self._depth = 0

    def enter(self, name: str, attributes: dict[str, str]) -> None:
        """Take the beginning of an element with its full name; the parser keeps all elements that are open."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise BadFile("the XML of the Word document is nested too deeply", _AGAIN)
        self.start(_local(name), attributes)

    def leave(self, name: str) -> None:
        """Take the end of an element with its full name."""
        self._depth -= 1
        self.end(_local(name))

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Take the beginning of an element."""

    def end(self, name: str) -> None:
        """Take the end of an element."""

    def data(self, text: str) -> None:
        """Take text."""


class _Body(_Handler):
    """The paragraphs of a document, and the first one that is a title."""

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self._paragraphs: list[str] = []
        self._pieces: list[str] = []
        self._style, self._in_text, self._repeats, self._size = "", False, 0, 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "Fallback":  # the same text again, for old programs
            self._repeats += 1
        elif name == "pStyle":
            self._style = next((value for key, value in attributes.items() if _local(key) == "val"), "")
        elif name in ("tab", "br", "cr"):
            self._pieces.append("\t" if name == "tab" else "\n")
        self._in_text = name == "t" and not self._repeats

    def end(self, name: str) -> None:
        self._in_text = False
        if name == "Fallback":
            self._repeats -= 1
        elif name == "p":
            paragraph = "".join(self._pieces).strip()
            if paragraph and not self.title and self._style.lower().replace(" ", "") in _TITLES:
                self.title = " ".join(paragraph.split())
            self._paragraphs += [paragraph] if paragraph else []
            self._pieces, self._style = [], ""

    def data(self, text: str) -> None:
        if self._in_text:
            self._pieces.append(text)
            self._size += len(text)
            if self._size > MAX_LINE:
                raise TooLarge("text", MAX_LINE)

    def text(self) -> str:
        """All paragraphs."""
        return "\n".join(self._paragraphs)


class _Properties(_Handler):
    """The title of a document and the facts that Word keeps about it."""

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self.facts: dict[str, Json] = {}
        self._pieces: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._pieces = []

    def end(self, name: str) -> None:
        value = " ".join("".join(self._pieces).split())
        if name == "title":
            self.title = value
        elif name in _FACTS and value:
            self.facts[_FACTS[name]] = value
        self._pieces = []

    def data(self, text: str) -> None:
        self._pieces.append(text)


def _parse(archive: zipfile.ZipFile, name: str, handler: _Handler) -> None:
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartDoctypeDeclHandler = _refuse_entities
    parser.StartElementHandler = handler.enter
    parser.EndElementHandler = handler.leave
    parser.CharacterDataHandler = handler.data
    unpacked = 0
    with archive.open(name) as file:
        while part := file.read(CHUNK):
            unpacked += len(part)
            if unpacked > UNPACKED_FREELY:
                raise TooLarge("unpacked document", UNPACKED_FREELY)
            parser.Parse(part)
    parser.Parse(b"", True)


def _refuse_entities(*_: object) -> None:
    raise BadFile("the XML of the Word document declares entities", _AGAIN)


def _local(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition(" ")[2]
