"""The memory that Arrow will need for a Parquet file, from the headers of its pages, before it decodes any.

Arrow allocates as much as a page's header declares, and a page of a few bytes can stand for gigabytes: by compression,
by a dictionary whose one long value every row refers to, and by endless lists. The headers that are read here are
those that Arrow itself uses, so that a file cannot deceive this check.
"""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from triever.errors import Flaw
from triever.parquet.thrift import FALSE, I32, I64, LIST, STRUCT, Compact, Struct, Truncated

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

MAGIC = b"PAR1"
BATCH = 1000
_WINDOW = 64 * 2**20  # bytes of the rows that are decoded together
_PAGES = 112 * 2**20  # bytes of a page that is unpacked here
_LEVELS = 16  # bytes beside each value of a list
_LARGEST_FOOTER = 16 * 2**20
_MAX_STRUCTS = 250_000  # in a footer; Arrow takes up to a kilobyte for each
_MAX_PAGES = 2**20  # in a column of a row group
_MAX_ENTRIES = 2**20  # of a dictionary that are looked at one by one
_DEEPEST = 64  # levels of a schema
_ROWS_FREELY, _ROWS_FOR_EACH_BYTE = 10**6, 200
_LARGEST_HEADER = 16 * 2**20  # Arrow's own limit

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_PLAIN, _PLAIN_DICTIONARY, _DELTA_BINARY, _DELTA_LENGTH, _DELTA_BYTES, _RLE_DICTIONARY = 0, 2, 5, 6, 7, 8
_CODED = (_PLAIN_DICTIONARY, _RLE_DICTIONARY)
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}  # without Hadoop's LZ4, and LZO
_TEXT = 6  # BYTE_ARRAY
_RLE = 3
_DELTAS = (_DELTA_BINARY, _DELTA_LENGTH, _DELTA_BYTES)

_DAMAGED = ("the Parquet data is damaged", "the file is damaged: download or copy it again")
_UNUSUAL = ("the Parquet pages have an outdated encoding", "write the file again with zstd")
_REWRITE = "write the file again with smaller pages and row groups"


class Limits(NamedTuple):
    """Limits of the parts of a file that are in memory at once."""

    rows: int = BATCH
    pages: int = 112 * 2**20  # bytes of the pages of all columns that are open together; DuckDB's have 100 MB
    together: int = 128 * 2**20  # bytes of a column of lists in one row group, which may all be one row

    def batches(self) -> Iterator[int]:
        """The sizes to try for a batch, in rows, from the largest down to two."""
        rows = self.rows
        while rows > 1:
            yield rows
            rows //= 2


LIMITS = Limits()
"""For files that a person names."""


class Page(NamedTuple):
    """The header of a page: bytes unpacked and packed, the number of values, and their encoding."""

    kind: int
    size: int
    packed: int
    values: int
    encoding: int
    levels: int  # bytes of levels before the values, not packed; 0 in older pages, which pack them with the values
    spelled: tuple[int, int]  # the encodings of repetition and definition levels in older pages
    is_packed: bool
    start: int  # the offset after the header


class Leaf(NamedTuple):
    """A column as Parquet has it, without structure.

    If it is `together`, Arrow may have to hold all its values at once: those of lists, and of a dictionary type.
    """

    index: int
    name: str
    path: str
    together: bool
    repeated: bool
    optional: bool


class Chunk(NamedTuple):
    """A leaf in one row group, as the footer has it."""

    is_text: bool
    codec: int
    values: int
    start: int


class Footer:
    """The descriptions of columns in the footer of a file.

    pyarrow cannot be asked: it does not catch what Arrow throws about a wrong description, and ends the process.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._groups: list[list[int]] = []
        reader = Compact(data, _MAX_STRUCTS)
        for field in reader.fields():
            if field == (2, LIST):
                _check_schema(reader)
            elif field == (4, LIST):
                self._groups = [_columns(reader) for _ in _structs(reader)]
            else:
                reader.skip(field[1])

    def chunk(self, group: int, leaf: Leaf) -> Chunk:
        """The description of a leaf in a row group."""
        try:
            at = self._groups[group][leaf.index]
        except IndexError:
            raise Flaw(*_DAMAGED) from None
        description = Compact(self._data, _MAX_STRUCTS, at).struct().get((3, STRUCT), {})
        start, dictionary = description.get((9, I64), -1), description.get((11, I64), 0)
        if 0 < dictionary < start:
            start = dictionary
        return Chunk(
            description.get((1, I32)) == _TEXT, description.get((4, I32), -1), description.get((5, I64), 0), start
        )


def _structs(reader: Compact) -> range:
    count, kind = reader.list_header()
    if kind != STRUCT and count:
        raise ValueError("a list of something else")
    return range(count)


def _columns(reader: Compact) -> list[int]:
    """The offsets of the descriptions of the columns in the next row group."""
    offsets: list[int] = []
    for field in reader.fields():
        if field == (1, LIST):
            offsets = [_skipped_struct(reader) for _ in _structs(reader)]
        else:
            reader.skip(field[1])
    return offsets


def _skipped_struct(reader: Compact) -> int:
    at = reader.at
    reader.skip(STRUCT)
    return at


@dataclass(slots=True)
class Need:
    """The memory that decoding one leaf of a row group takes."""

    sizes: list[int] = dataclasses.field(default_factory=list)  # of pages that hold their values themselves
    rows: list[int] = dataclasses.field(default_factory=list)
    page: int = 0  # bytes of the largest page, and of the dictionary
    coded: int = 0  # values with only a known maximum length: of dictionaries, of deltas, and of large pages
    longest: int = 0
    wholly_coded: bool = True
    by_number: bool = False  # read as numbers in a dictionary

    def window(self, rows: int) -> int:
        """The largest number of bytes of `rows` consecutive rows."""
        ends = np.cumsum(self.rows)
        bytes_before = np.concatenate([[0], np.cumsum(self.sizes)])
        last = np.searchsorted(ends, ends + rows - 1, side="left").clip(max=len(ends) - 1)
        plain = int((bytes_before[last + 1] - bytes_before[:-1]).max(initial=0))
        return plain + min(rows, self.coded) * self.longest

    def together(self) -> int:
        """The bytes of all values."""
        return sum(self.rows) * _LEVELS + sum(self.sizes) + self.coded * self.longest


def read_footer(raw: IO[bytes], size: int) -> Footer | None:
    """The footer, or None if it is damaged; a Flaw if Arrow would need too much memory to open it."""
    tail = _read(raw, size - 8, 8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - 8:
        return None
    if length > _LARGEST_FOOTER:
        raise Flaw("the Parquet footer is larger than 16 MiB", "write the file again with larger row groups")
    try:
        return Footer(_read(raw, size - 8 - length, length))
    except OverflowError:
        raise Flaw("the Parquet footer describes too many columns and row groups", _REWRITE) from None
    except ValueError:
        return None


def check_rows(rows: int, size: int) -> None:
    """A Flaw if a file declares more rows than its bytes can sensibly hold."""
    if rows > max(_ROWS_FREELY, _ROWS_FOR_EACH_BYTE * size):
        raise Flaw(f"the Parquet footer claims {rows:,} rows in {size:,} bytes", "the file is damaged: get it again")


def leaves_of(file: ParquetFile, columns: Collection[str]) -> list[Leaf]:
    """The leaves of these columns of an open file."""
    from pyarrow import types

    dictionaries = {field.name for field in file.schema_arrow if types.is_dictionary(field.type)}
    leaves = []
    for at in range(len(file.schema)):
        leaf = file.schema.column(at)
        name = leaf.path.split(".")[0]
        repeated, optional = leaf.max_repetition_level > 0, leaf.max_definition_level > 0
        if name in columns:
            leaves.append(Leaf(at, name, leaf.path, repeated or name in dictionaries, repeated, optional))
    return leaves


def batch_rows(
    raw: IO[bytes], size: int, chunks: Mapping[Leaf, Chunk], limits: Limits = LIMITS
) -> tuple[int, list[str]]:
    """The number of rows of a row group to read at once, and the paths of leaves to read as dictionaries.

    A Flaw if even one row may take too much memory.
    """
    needs = {leaf: _need(raw, size, chunk, leaf, limits.rows) for leaf, chunk in chunks.items()}
    open_pages = sum(need.page for need in needs.values())
    if open_pages > limits.pages:
        raise Flaw(f"the Parquet pages take {open_pages:,} bytes at once", _REWRITE)
    for leaf, need in needs.items():
        if leaf.together and need.together() > limits.together:
            limit = f"{limits.together // 2**20} MiB"
            raise Flaw(f"the values of the column {leaf.name} take more than {limit} in one row group", _REWRITE)
    flat = [need for leaf, need in needs.items() if not leaf.together]
    fitting = (rows for rows in limits.batches() if sum(need.window(rows) for need in flat) <= _WINDOW)
    return next(fitting, 1), [leaf.path for leaf, need in needs.items() if need.by_number]


def _need(raw: IO[bytes], size: int, chunk: Chunk, leaf: Leaf, rows: int) -> Need:
    need, dictionary, is_text = Need(), None, chunk.is_text
    for page in _pages(raw, size, chunk):
        if page.kind == _DICTIONARY:
            dictionary = page
            continue
        longest = _longest_known(raw, page, chunk.codec, leaf) if is_text else None
        if is_text and page.encoding in (_DELTA_LENGTH, _DELTA_BYTES):
            _check_deltas(_content(raw, page, chunk.codec, leaf), page)
        coded = longest is not None
        need.longest = max(need.longest, longest or 0)
        need.rows.append(page.values)
        need.sizes.append(0 if coded else page.size)
        need.page = max(need.page, page.size + 8 * page.values * (page.encoding in _DELTAS))
        need.coded += page.values if coded else 0
        need.wholly_coded = need.wholly_coded and is_text and page.encoding in _CODED
        if len(need.rows) > _MAX_PAGES:
            raise Flaw(f"the column {leaf.name} has more than {_MAX_PAGES:,} pages in one row group", _REWRITE)
    if dictionary and is_text:
        at_once = need.coded if leaf.together else min(need.coded, rows)
        if at_once * dictionary.size < _WINDOW // 4:
            need.longest = max(need.longest, dictionary.size)
        elif need.wholly_coded and need.coded <= at_once and dictionary.size < _WINDOW // 4:
            need.by_number = True  # each value is held once, not once for each row; Arrow makes three copies
        else:
            content = _content(raw, dictionary, chunk.codec, leaf)
            need.longest = max(need.longest, _longest_text(content, dictionary))
    need.page += dictionary.size if dictionary else 0
    return need


def _pages(raw: IO[bytes], size: int, chunk: Chunk) -> Iterator[Page]:
    """The pages of a column in the order in which Arrow reads them, up to the declared number of values."""
    at, seen = chunk.start, 0
    while seen < chunk.values and 0 <= at < size:
        page = _page(raw, at)
        at = page.start + page.packed
        if min(page.size, page.packed, page.values, page.levels) < 0 or at > size:
            raise Flaw(*_DAMAGED)
        if page.kind in (_DATA, _DATA_V2):
            seen += page.values
        if page.kind in (_DATA, _DATA_V2, _DICTIONARY):
            yield page


def _page(raw: IO[bytes], at: int) -> Page:
    """The page whose header begins at an offset; headers are short unless they hold the minimum and maximum value."""
    for length in (2**8, 2**13, _LARGEST_HEADER):
        reader = Compact(_read(raw, at, length), 100)
        try:
            header = reader.struct()
        except Truncated:
            continue
        except (ValueError, OverflowError):
            break
        return _described(header, at + reader.at)
    raise Flaw(*_DAMAGED)


def _described(header: Struct, start: int) -> Page:
    kind = header.get((1, I32), -1)
    body = header.get(({_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}.get(kind, 0), STRUCT)) or {}
    encoding = body.get((4 if kind == _DATA_V2 else 2, I32), -1)
    sizes = header.get((2, I32), -1), header.get((3, I32), -1)
    levels = body.get((5, I32), 0) + body.get((6, I32), 0) if kind == _DATA_V2 else 0
    is_packed = (7, FALSE) not in body or kind != _DATA_V2
    spelled = body.get((4, I32), _RLE), body.get((3, I32), _RLE)
    return Page(kind, *sizes, body.get((1, I32), 0), encoding, levels, spelled, is_packed, start)


def _longest_known(raw: IO[bytes], page: Page, codec: int, leaf: Leaf) -> int | None:
    """The bytes of the longest text in a page, or an upper limit; None for a page whose own size is the limit."""
    if page.encoding in _CODED:
        return 0  # the dictionary knows
    if page.encoding == _DELTA_BYTES:
        return page.size  # each value may repeat all of those before it
    if page.encoding != _PLAIN or page.size < _WINDOW // 2 or leaf.together:
        return None
    return _longest_text(_content(raw, page, codec, leaf), page)


def _longest_text(content: memoryview | None, page: Page) -> int:
    """The bytes of the longest text of a page, or of the whole page if that is unknown."""
    if content is None or page.values > _MAX_ENTRIES:
        return page.size
    return min(_longest(content, page.values), page.size)


def _content(raw: IO[bytes], page: Page, codec: int, leaf: Leaf) -> memoryview | None:
    """The unpacked values of a page, without the levels before them; None if they cannot be unpacked here."""
    unpack = _unpacker(codec) if page.is_packed else lambda data, _size: data
    if unpack is None or page.size > _PAGES:
        return None
    if max(page.levels, 0) > min(page.packed, page.size):
        raise Flaw(*_DAMAGED)
    try:
        packed = _read(raw, page.start + page.levels, page.packed - page.levels)
        content = memoryview(unpack(packed, page.size - page.levels))
    except (OSError, ValueError):
        raise Flaw(*_DAMAGED) from None
    if page.kind != _DATA:
        return content
    for there, encoding in zip((leaf.repeated, leaf.optional), page.spelled, strict=True):
        if there and encoding != _RLE:  # without their length
            raise Flaw(*_UNUSUAL)
        content = content[4 + int.from_bytes(content[:4], "little") :] if there else content
    return content


def _check_deltas(content: memoryview | None, page: Page) -> None:
    """Raise a Flaw if a page declares more lengths than values: Arrow allocates memory for all that are declared."""
    if content is None:
        raise Flaw(*_UNUSUAL)
    reader = Compact(bytes(content), 0)
    try:
        if page.encoding == _DELTA_BYTES:
            _skip_deltas(reader, page.values)
        _deltas(reader, page.values)
    except ValueError:
        raise Flaw(*_DAMAGED) from None


def _deltas(reader: Compact, limit: int) -> tuple[int, int, int]:
    """The number of deltas, the number of parts in a block of them, and the length of a part."""
    block, parts, count, _first = (reader.varint() & 0xFFFFFFFF for _ in range(4))
    if count > limit or not 0 < parts <= block:
        raise ValueError("no deltas")
    return count, parts, block // parts


def _skip_deltas(reader: Compact, limit: int) -> None:
    count, parts, length = _deltas(reader, limit)
    left = count - 1
    while left > 0:
        reader.varint()  # the smallest delta of the block
        widths = reader.take(parts)
        for width in widths[: -(-left // length)]:
            reader.forward(width * length // 8)
        left -= length * parts


def _longest(data: memoryview, count: int) -> int:
    """The greatest length of up to `count` texts, each with its length before it; null texts are not there."""
    at = longest = 0
    length_at = struct.Struct("<I").unpack_from
    try:
        for _ in range(count):
            (length,) = length_at(data, at)
            at += 4 + length
            if length > longest:
                longest = length
    except struct.error:
        pass  # Arrow reads no further either
    return longest


def _unpacker(codec: int) -> Callable[[bytes, int], bytes] | None:
    import pyarrow

    if codec == 0:
        return lambda data, _size: data
    name = _CODECS.get(codec)
    return pyarrow.Codec(name).decompress if name and pyarrow.Codec.is_available(name) else None


def _check_schema(reader: Compact) -> None:
    if _depth(reader.struct().get((5, I32), 0) for _ in _structs(reader)) > _DEEPEST:
        raise Flaw("the Parquet schema is nested too deeply", "flatten the columns")


def _depth(children: Iterable[int]) -> int:
    """The depth of a tree, given the number of children of each node in the order in which they are written."""
    open_nodes: list[int] = []
    deepest = 0
    for count in children:
        while open_nodes and open_nodes[-1] <= 0:
            open_nodes.pop()
        if open_nodes:
            open_nodes[-1] -= 1
        open_nodes.append(count)
        deepest = max(deepest, len(open_nodes))
        if deepest > _DEEPEST:
            break
    return deepest


def _read(raw: IO[bytes], at: int, length: int) -> bytes:
    return os.pread(raw.fileno(), length, max(at, 0))
