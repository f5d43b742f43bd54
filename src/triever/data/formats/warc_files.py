"""Web archives (WARC): the pages in them, read by warcio, which the extra `files` brings.

A page is what a server answered with the status 200, or a resource, in HTML or plain text. All other records are
counted by what they are. warcio parses headers and chunks, from bytes that are checked here: it takes an archive that
was cut short for a whole one, and headers may have any length.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from triever.data.formats.content import BadFile, Content, TooLarge
from triever.data.formats.extras import WARCIO, quiet
from triever.data.formats.html_pages import html_content
from triever.data.formats.lines import CHUNK, DAMAGE, GZIP, MAX_LINE, damage, open_bytes
from triever.data.formats.plain_text import plain_content
from triever.data.formats.problems import OR_KEEP, OR_SKIP, Problems
from triever.data.records import normalise
from triever.errors import Flaw

if TYPE_CHECKING:
    from warcio.recordloader import ArcWarcRecord, ArcWarcRecordLoader
    from warcio.statusandheaders import StatusAndHeaders

    from triever.validation import Json

HTML, PLAIN = "text/html", "text/plain"
AGAIN = "captured again"
"""The kind of a record with a page whose address an earlier record of the archive has."""

_MAX_HEADERS = 2**20  # bytes of the headers of one record
_MAX_BODY = MAX_LINE + MAX_LINE // 8  # bytes of a page with the headers of its chunks
_PIECE = 2**16
_OTHER_TYPES = ("warcinfo", "request", "metadata", "revisit", "conversion", "continuation")
_MEDIA_TYPE = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,60}")
_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([\w-]+)""", re.IGNORECASE)
_STATUS = re.compile("[0-9]{3}")
_DATE = re.compile(r"[0-9]{4}[0-9T:.Z-]{0,40}")
_ADDRESS = re.compile("[^:/?#]+:(?://([^/?#]*))?([^?#]*)")
_NOTES = ("metadata:", "urn:text:", "urn:pageinfo:")  # addresses under which crawlers keep what they note themselves
_NOT_UNPACKED = ("br", "zstd", "compress")  # Python's own library has none of them
_WINDOWS = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}  # as zlib knows them; servers deflate in two ways
_AGAIN = "download or copy the file again"


@dataclass(frozen=True, slots=True)
class _Sent:
    """What headers say about a body; the media type may be a description of one that nobody knows."""

    media_type: str
    charset: str
    encoding: str
    is_chunked: bool

    @classmethod
    def of(cls, headers: StatusAndHeaders) -> _Sent:
        """What these headers say."""
        content_type = headers.get_header("Content-Type", "")
        charset = _CHARSET.search(content_type)
        encoding, transfer = (headers.get_header(f"{name}-Encoding", "").lower() for name in ("Content", "Transfer"))
        return cls(_media_type(content_type), charset[1] if charset else "", encoding.strip(), "chunked" in transfer)

    @property
    def other_kind(self) -> str:
        """What the body is, if it is no page that can be read; else ""."""
        if self.media_type not in (HTML, PLAIN):
            return self.media_type
        packed = next((name for name in _NOT_UNPACKED if name in self.encoding), "")
        return f"compressed by {packed}" if packed else ""


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it was sent; the body may still be in chunks and compressed."""

    number: int  # of the record, from 1
    url: str
    date: str
    sent: _Sent
    body: bytes

    @property
    def name(self) -> str:
        """The last part of the address, which stands for a title where the page has none."""
        address = _ADDRESS.match(self.url)
        host, path = address.groups("") if address else ("", "")
        return " ".join(PurePosixPath(unquote(path)).stem.replace("\0", " ").split()) or host or self.url

    def content(self) -> Content:
        """The content of the page, with its address and the time of its capture; a Flaw if it cannot be read."""
        raw, charset = self._unpacked(), self.sent.charset
        content = html_content(raw, charset) if self.sent.media_type == HTML else plain_content(raw, ".txt", charset)
        facts: dict[str, Json] = {"url": self.url, **({"archived": self.date} if self.date else {})}
        return Content(content.text, content.title, {**content.metadata, **facts})

    def _unpacked(self) -> bytes:
        """The page without chunks and compression, which some archives have removed, though headers still name them."""
        if len(self.body) > _MAX_BODY:
            raise TooLarge("page", MAX_LINE)
        raw = _without_chunks(self.body) if self.sent.is_chunked else self.body
        if self.sent.encoding in _WINDOWS:
            raw = _decompressed(raw, _WINDOWS[self.sent.encoding])
        if len(raw) > MAX_LINE:
            raise TooLarge("page", MAX_LINE)
        return raw


def is_archive(path: str | Path) -> bool:
    """Whether a file's name is that of a web archive."""
    return WARCIO.reads(path)


def count_pages(path: str | Path, limit: int) -> int:
    """The number of pages in an archive, counted up to a limit."""
    with open_bytes(path) as stream:
        return sum(1 for _ in islice(read_pages(path, stream, Problems(skip_bad=True)), limit))


def read_pages(path: str | Path, stream: io.BufferedReader, problems: Problems) -> Iterator[Page]:
    """The pages of an archive with these bytes, in their order, each address once; `problems` counts other records.

    An archive that breaks off gives the pages before the break.
    """
    complete, seen, archive = 0, set(), _Archive(stream)
    try:
        for record in archive.records():
            page = archive.page(complete + 1, record)
            complete += 1
            problems.files += complete == 1
            if isinstance(page, Page) and (key := hash(normalise(page.url))) not in seen:
                seen.add(key)
                yield page
            else:
                problems.pass_over(AGAIN if isinstance(page, Page) else page)
    except Flaw as flaw:
        problem, hint = flaw.problem, flaw.hint
    except DAMAGE as error:
        problem, hint = damage(error)
    except Exception:  # headers of strangers may make warcio raise anything
        problem, hint = "the record is damaged", _AGAIN
    else:
        if complete:
            return
        problem, hint = "the web archive is empty", _AGAIN
    if complete:
        problems.report_end(path, complete + 1, problem, f"{hint}{OR_KEEP}", "damaged archives")
    else:
        problems.report(path, 1, problem, f"{hint}{OR_SKIP}", "unreadable")


class _Archive:
    """The records of an archive; `read` and `readline` are what warcio needs, and raise where bytes are missing."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self._headers_left = _MAX_HEADERS
        self._loader = _loader()

    def records(self) -> Iterator[ArcWarcRecord]:
        """The records, one after the other; each has to be read to its end."""
        while line := self._first_line():
            if not line.startswith(b"WARC/"):
                raise BadFile("no record begins here: its first line is not WARC/1.0 or WARC/1.1", _AGAIN)
            with quiet(WARCIO.name):
                record = self._loader.parse_record_stream(self, line, "warc", no_record_parse=True)
            if record.length is None:
                raise BadFile("the record has no Content-Length", _AGAIN)
            yield record

    def page(self, number: int, record: ArcWarcRecord) -> Page | str:
        """The page of a record, or if it holds none, what it is; the record is read to its end."""
        page = self._begun(number, record)
        while record.raw_stream.read(CHUNK):
            pass
        return page

    def _begun(self, number: int, record: ArcWarcRecord) -> Page | str:
        headers, url = record.rec_headers, record.rec_headers.get_header("WARC-Target-URI", "")
        if record.rec_type not in ("response", "resource"):
            return record.rec_type if record.rec_type in _OTHER_TYPES else "unknown records"
        if not url:
            return "no address"
        if url.startswith(_NOTES):
            return "metadata"
        if record.rec_type == "response":
            headers = self._loader.load_http_headers(record.rec_type, url, record.raw_stream, record.length)
            if headers is None:  # an answer without a byte, or one of another protocol, such as DNS
                return "no status" if record.length == 0 else _Sent.of(record.rec_headers).media_type
            if (status := headers.get_statuscode()) != "200":
                return f"status {status}" if _STATUS.fullmatch(status) else "no status"
        sent = _Sent.of(headers)
        if kind := sent.other_kind:
            return kind
        date = _DATE.fullmatch(record.rec_headers.get_header("WARC-Date", "").strip())
        return Page(number, url, date[0] if date else "", sent, record.raw_stream.read(_MAX_BODY + 1))

    def read(self, size: int) -> bytes:
        """As many bytes as that."""
        content = self._stream.read(size)
        if len(content) < size:
            raise _cut_short()
        return content

    def readline(self, size: int = -1) -> bytes:
        """The next line of the headers."""
        line = self._stream.readline(min(size, self._headers_left) if size >= 0 else self._headers_left)
        if not line:
            raise _cut_short()
        self._headers_left -= len(line)
        if self._headers_left <= 0:
            raise BadFile(f"the headers are longer than {_MAX_HEADERS // 2**20} MiB", _AGAIN)
        return line

    def _first_line(self) -> bytes:
        """The first line of the next record, or b"" at the end of the archive."""
        self._headers_left = _MAX_HEADERS
        while self._stream.peek(1):
            if line := self.readline().strip():
                return line
        return b""


def _loader() -> ArcWarcRecordLoader:
    try:
        from warcio.recordloader import ArcWarcRecordLoader
    except ImportError as error:
        raise WARCIO.missing() from error
    return ArcWarcRecordLoader(verify_http=False, arc2warc=False)


def _cut_short() -> BadFile:
    return BadFile("the archive ends in the middle of a record", "the file was cut short: download or copy it again")


def _media_type(content_type: str) -> str:
    written = content_type.partition(";")[0].strip().lower()
    if not written:
        return "no content type"
    return written if _MEDIA_TYPE.fullmatch(written) else "unknown content types"


def _without_chunks(body: bytes) -> bytes:
    from warcio.bufferedreaders import ChunkedDataReader

    reader = ChunkedDataReader(io.BytesIO(body))
    return b"".join(iter(partial(reader.read, _PIECE), b""))  # it holds an object for each chunk of what it reads


def _decompressed(raw: bytes, windows: Iterable[int]) -> bytes:
    """The data that were compressed, at most one byte more than a page may have; other data as they are."""
    for window in windows:
        unpacker = zlib.decompressobj(window)
        try:
            page = unpacker.decompress(raw, MAX_LINE + 1)
        except zlib.error:
            continue
        ends = unpacker.eof and not (window < 0 and unpacker.unused_data)  # plain text may begin like deflated data
        if ends or len(page) > MAX_LINE:
            return page
    if raw.startswith(GZIP):
        raise BadFile("the compressed page is damaged")
    return raw
