"""The bytes of a file, whatever its compression, as numbered lines or as chunks of clean text.

All trouble with files and bytes is dealt with here: missing or odd files, damaged compression, wrong
encodings, NUL bytes and endless lines. What comes out is valid Unicode, in bounded memory.
"""

from __future__ import annotations

import codecs
import functools
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from triever.arguments import as_path
from triever.data.formats.problems import OR_SKIP, Problems
from triever.errors import DataError, Flaw, nearest

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_LINE = 16 * 2**20
"""Bytes in a line; the longest real documents of the field stay far below."""

MAX_GROWTH = 200
"""The limit of the size of data in memory, as a multiple of its size in the file; compressed text rarely has 20."""

UNPACKED_FREELY = 64 * 2**20
"""The size in bytes to which any compressed data may grow: a small file of blanks is no bomb."""

CHUNK = 2**20
_PIECE = 2**16
_MOST_BLANKS = 10**6  # lines in a row

GZIP = b"\x1f\x8b"
"""The first bytes of gzip."""
_ZSTD = b"\x28\xb5\x2f\xfd"
BOMS = (  # the longer ones first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
"""The byte order marks that UTF-8 does not have, and their encodings."""


class _Bomb(OSError):
    """Compressed data that grows beyond the limit."""


DAMAGE = (EOFError, OSError, zlib.error)
"""The errors that reading a file may raise, if it is compressed and damaged, or if the disk is."""


def read_lines(path: str | Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """Line numbers (from 1) and lines without their ends; blank lines are left out."""
    number = blanks = 0
    with open_bytes(path) as stream:
        readline = stream.readline
        try:
            _skip_bom(path, stream)
            while raw := readline(MAX_LINE + 1):
                number += 1
                if len(raw) > MAX_LINE and not raw.endswith(b"\n"):
                    problems.report(path, number, *too_long("line"))
                    _skip_line(stream)
                    continue
                try:
                    line = raw.decode()
                except UnicodeDecodeError as error:
                    problems.report(path, number, *not_utf8(raw, error.start))
                    continue
                if "\0" in line:
                    problems.report(path, number, *_nul(line.index("\0")))
                elif not line.isspace():
                    blanks = 0
                    yield number, line.rstrip("\r\n")
                elif (blanks := blanks + 1) > _MOST_BLANKS:
                    problems.report_end(path, number, f"more than {_MOST_BLANKS:,} blank lines", "remove them")
                    return
        except DAMAGE as error:
            problems.report_end(path, number + 1, *damage(error))


def read_text(path: str | Path, problems: Problems) -> Iterator[str]:
    """The whole text in chunks of up to a megabyte, for formats that are not made of lines."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line, column = 1, 0  # where the next chunk begins
    with open_bytes(path) as stream:
        try:
            _skip_bom(path, stream)
            while raw := stream.read1(CHUNK):
                if text := decoder.decode(raw):
                    yield text
                line += raw.count(b"\n")
                column = len(raw) - 1 - raw.rfind(b"\n") if b"\n" in raw else column + len(raw)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            before = column - (len(error.object) - len(raw))  # the decoder had kept half a character
            fresh_lines = error.object.count(b"\n", 0, error.start)
            if error.start:
                yield error.object[: error.start].decode()
            flaw = not_utf8(error.object, error.start, 0 if fresh_lines else before)
            problems.report_end(path, line + fresh_lines, *flaw)
        except DAMAGE as error:
            problems.report_end(path, line, *damage(error))


def read_bytes(path: str | Path, limit: int) -> bytes:
    """All bytes of a file, or the first ones, of which there is one more than the limit; a Flaw if it is damaged."""
    with open_bytes(path) as stream:
        try:
            return stream.read(limit + 1)
        except DAMAGE as error:
            raise Flaw(*damage(error)) from None


def open_bytes(path: str | Path) -> io.BufferedReader:
    """The file's bytes, decompressed if its first bytes are those of gzip or zstd, whatever its name is."""
    raw = open_plain(path)
    head = raw.peek(4)[:4]
    if head.startswith(GZIP):
        return _Unpacked(gzip.GzipFile(fileobj=raw), raw)
    if head == _ZSTD or _skippable_frame(head):
        return _Unpacked(_zstd(raw), raw)
    return raw


def open_plain(path: str | Path) -> io.BufferedReader:
    """The file's bytes as they are; a DataError unless it is a regular file that can be read."""
    require_file(path)
    try:
        file: io.BufferedReader = io.BufferedReader(io.FileIO(path, opener=_open_at_once), CHUNK)
        file.peek(1)  # so that a file which opens but cannot be read is refused here too
        return file
    except OSError as error:
        raise DataError(*_refused(path, error)) from None


def grows_too_much(grown: int, size: int) -> bool:
    """Whether data that takes `size` bytes in a file takes too many, `grown`, in memory."""
    return grown > UNPACKED_FREELY and grown > MAX_GROWTH * size


def growth() -> str:
    """The problem with data that grows too much."""
    return f"the data unpacks to more than {MAX_GROWTH} times its size"


def require_file(path: str | Path) -> None:
    """Raise a DataError unless the path is a regular file."""
    as_path(path)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", _neighbours(Path(path))) from None
    except OSError as error:
        raise DataError(*_refused(path, error)) from None
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        raise DataError(f"{path} is a folder, not a file", "name one of the files in it")
    if not stat.S_ISREG(mode):
        raise DataError(f"{path} is not a regular file (a pipe, socket or device)", "save it to a file first")
    if any(status.st_dev == device for device in _kernel_devices()):
        raise DataError(f"{path} is a virtual file of the system", "copy its content to a file first")


@functools.cache
def _kernel_devices() -> tuple[int, ...]:
    """The devices of /proc and /sys, whose files look regular, and some of which never end."""
    return tuple(os.stat(path).st_dev for path in ("/proc/self", "/sys/kernel") if os.path.exists(path))


def read_head(path: str | Path) -> bytes:
    """The first bytes of a file, as they are."""
    with open_plain(path) as raw:
        return raw.read(512)


def is_compressed(path: str | Path) -> bool:
    """Whether the first bytes are those of gzip or zstd."""
    with open_bytes(path) as stream:
        return isinstance(stream, _Unpacked)


def foreign(head: bytes) -> tuple[str, str] | None:
    """What a file is and what to do, if its first bytes are those of a known format without records; else None."""
    start = head.lstrip()[:64].lower()
    for magic, description, hint in _FOREIGN:
        if head.startswith(magic) or start.startswith(magic):
            return description, hint
    return None


_REFETCH = "the download was probably refused: fetch it again"
_FOREIGN = (
    (b"BZh", "is compressed with bzip2", "run: bunzip2 FILE"),
    (b"\xfd7zXZ", "is compressed with xz", "run: unxz FILE"),
    (b"PK\x03\x04", "is a zip archive", "unpack it first"),
    (b"%PDF", "is a PDF", "convert it to text first"),
    (b"warc/", "is a web archive", "end its name in .warc or .warc.gz"),
    (b"version https://git-lfs", "is a Git LFS pointer, not the data", "run: git lfs pull"),
    (b"<!doctype html", "is a web page, not data", _REFETCH),
    (b"<html", "is a web page, not data", _REFETCH),
)


class _Decompressor(Protocol):
    """A file of gzip's or Arrow's that decompresses."""

    def read1(self, size: int, /) -> bytes: ...


class _Pieces(io.RawIOBase):
    """A decompressor that returns all data before damage; read() would lose a whole buffer of it."""

    def __init__(self, source: _Decompressor, size: int) -> None:
        self._source = source
        self._size = size
        self._grown = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        piece = self._source.read1(min(len(view), _PIECE))
        view[: len(piece)] = piece
        self._grown += len(piece)
        if grows_too_much(self._grown, self._size):
            raise _Bomb
        return len(piece)


class _Unpacked(io.BufferedReader):
    """Decompressed bytes; closing them closes the file below too, which gzip itself does not do."""

    def __init__(self, source: _Decompressor, below: io.BufferedReader) -> None:
        super().__init__(_Pieces(source, os.fstat(below.fileno()).st_size), CHUNK)
        self._below = below

    def close(self) -> None:
        super().close()
        self._below.close()


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe that has replaced the file meanwhile would block


def _zstd(raw: io.BufferedReader) -> _Decompressor:
    import pyarrow  # it takes a fifth of a second, which only readers of zstd should pay

    return pyarrow.CompressedInputStream(raw, "zstd")


def _skippable_frame(head: bytes) -> bool:
    return head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50  # pzstd begins its files with one


def _skip_bom(path: str | Path, stream: io.BufferedReader) -> None:
    head = stream.peek(4)[:4]
    if head.startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
    for bom, encoding in BOMS:
        if head.startswith(bom):
            raise DataError(
                f"{path} is {encoding}, not UTF-8",
                f"convert it: iconv -f {encoding} -t UTF-8 FILE > NEW",
            )


def _skip_line(stream: io.BufferedReader) -> None:
    while (part := stream.readline(CHUNK)) and not part.endswith(b"\n"):
        pass


def too_long(unit: str) -> tuple[str, str]:
    """The problem of a line, row or item that exceeds the limit, and what to do."""
    return f"the {unit} is longer than {MAX_LINE // 2**20} MiB", f"split the document into passages{OR_SKIP}"


def not_utf8(raw: bytes, at: int, before: int = 0) -> tuple[str, str]:
    """The problem of a byte that is not UTF-8, and what to do; `before` bytes of its line came earlier."""
    column = before + at - raw.rfind(b"\n", 0, at)
    return (
        f"byte 0x{raw[at]:02x} at column {column} is not UTF-8",
        f"if the file is Latin-1, convert it: iconv -f LATIN1 -t UTF-8 FILE > NEW{OR_SKIP}",
    )


def _nul(at: int) -> tuple[str, str]:
    hint = f"the file may be UTF-16 or binary: convert it, or remove the byte{OR_SKIP}"
    return f"there is a NUL byte at column {at + 1}", hint


def damage(error: Exception) -> tuple[str, str]:
    """A stable message for errors of gzip, zlib and Arrow, whose words change between versions, and what to do."""
    again = "download or copy the file again"
    if isinstance(error, _Bomb):
        return growth(), "unpack it yourself, if you trust it"
    if isinstance(error, EOFError) or "Truncated" in str(error):
        return "the compressed data ends too early", "the file was cut short: download or copy it again"
    if isinstance(error, gzip.BadGzipFile) and "CRC" in str(error):
        return "the gzip checksum does not match", again
    if isinstance(error, OSError) and error.errno is not None:
        return f"the rest cannot be read: {error.strerror}", "check the disk"
    return "the compressed data is damaged", again


def _refused(path: str | Path, error: OSError) -> tuple[str, str]:
    hint = f"run: chmod u+r {path}" if isinstance(error, PermissionError) else "check the path"
    return f"{path} cannot be opened: {error.strerror}", hint


def _neighbours(path: Path) -> str:
    if path.is_symlink():
        return f"it is a link to {path.readlink()}: put the file there, or remove the link"
    if not path.parent.is_dir():
        return f"check the path: the folder {path.parent} does not exist either"
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in islice(entries, 500)]
    except OSError:
        return f"check the path: the folder {path.parent} cannot be opened"
    hint = nearest(path.name, names) if names else f"the folder {path.parent} is empty"
    return hint if len(hint) < 200 else f"look into {path.parent}"
