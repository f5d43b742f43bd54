"""Web archives for tests, written by warcio."""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

DATE = "2024-01-31T08:00:00Z"


@dataclass(frozen=True)
class Captured:
    """A record of an archive; `headers` are those of HTTP, beside the content type."""

    url: str
    body: str | bytes = ""
    kind: str = "response"
    status: str = "200 OK"
    content_type: str = "text/html"
    headers: Sequence[tuple[str, str]] = ()
    date: str = DATE

    @property
    def raw(self) -> bytes:
        """The body as bytes."""
        return self.body.encode() if isinstance(self.body, str) else self.body


def archive(*records: Captured, gzip: bool = False) -> bytes:
    """An archive of these records; the same records make the same bytes."""
    return parts(*records, gzip=gzip)[-1]


def parts(*records: Captured, gzip: bool = False) -> list[bytes]:
    """The archive after each of its records; first the empty one."""
    buffer, written = io.BytesIO(), [b""]
    writer = WARCWriter(buffer, gzip=gzip, warc_version="WARC/1.1")
    for number, record in enumerate(records):
        fixed = {"WARC-Date": record.date, "WARC-Record-ID": f"<urn:uuid:{number:032}>"}
        headers, content_type = None, record.content_type
        if record.kind in ("response", "revisit"):
            listed = [("Content-Type", content_type)] if content_type else []
            headers, content_type = StatusAndHeaders(record.status, [*listed, *record.headers], "HTTP/1.1"), ""
        elif record.kind == "request":
            headers, content_type = StatusAndHeaders("GET / HTTP/1.1", [("Host", "x")], is_http_request=True), ""
        made = writer.create_warc_record(
            record.url,
            record.kind,
            payload=io.BytesIO(record.raw),
            length=len(record.raw),
            warc_content_type=content_type,
            warc_headers_dict=fixed,
            http_headers=headers,
        )
        writer.write_record(made)
        written.append(buffer.getvalue())
    return written


def chunked(raw: bytes, size: int = 7) -> bytes:
    """A body in chunks of this size."""
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])


def packed(raw: bytes, encoding: str) -> bytes:
    """A body in one of HTTP's content encodings."""
    if encoding not in ("gzip", "deflate", "raw deflate"):
        return raw
    packer = zlib.compressobj(wbits={"gzip": 31, "deflate": 15, "raw deflate": -15}[encoding])
    return packer.compress(raw) + packer.flush()
