"""How much memory Arrow will need for a Parquet file, from the headers of its pages, before it decodes any.

Arrow takes what a page's header declares, and a page of a few bytes can stand for gigabytes: through compression,
through a dictionary whose one long value is meant by every row, and through lists without end. The headers that are
read here are those that Arrow itself goes by, so that they may lie about anything but this.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from triever.data.formats.lines import MAX_GROWTH
from triever.data.formats.problems import Flaw
from triever.data.formats.thrift import FALSE, I32, LIST, STRUCT, Compact, Struct, Truncated

MAGIC = b"PAR1"
BATCH = 1000
_BATCHES = (BATCH, 500, 250, 125, 64, 32, 16, 8, 4, 2)
_WINDOW = 64 * 2**20  # bytes of the rows that are decoded together
_PAGES = 112 * 2**20  # bytes of the pages of all columns that are open together; DuckDB's have 100 MB
_LISTS = 128 * 2**20  # bytes of a column of lists in one row group, which may all be one row
_LEVELS = 16  # bytes beside each value of a list
_LARGEST_FOOTER = 16 * 2**20
_MOST_STRUCTS = 250_000  # in a footer; Arrow takes up to a kilobyte for each
_MOST_PAGES = 2**20  # in a column of a row group
_MOST_ENTRIES = 2**20  # of a dictionary that are looked at one by one
_DEEPEST = 64  # levels of a schema
_ROWS_FREELY = 10**6
_LARGEST_HEADER = 16 * 2**20  # Arrow's own limit

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_PLAIN, _PLAIN_DICTIONARY, _DELTA_BINARY, _DELTA_LENGTH, _DELTA_BYTES, _RLE_DICTIONARY = 0, 2, 5, 6, 7, 8
_CODED = (_PLAIN_DICTIONARY, _RLE_DICTIONARY)
_DELTAS = (_DELTA_BINARY, _DELTA_LENGTH, _DELTA_BYTES)

_DAMAGED = ("the Parquet data is damaged", "the file is damaged: download or copy it again")
_REWRITE = "write the file again with smaller pages and row groups"


class Page(NamedTuple):
    """What a page's header says: bytes unpacked and packed, the number of values, and how they are encoded."""

    kind: int
    size: int
    packed: int
    values: int
    encoding: int
    levels: int  # bytes before the values, never packed; in older pages they are packed with them
    is_packed: bool
    start: int  # of what follows the header


class Leaf(NamedTuple):
    """A column as Parquet has it: without structure, but perhaps inside lists."""

    index: int
    name: str
    in_list: bool
    optional: bool


@dataclass(slots=True)
class Need:
    """What decoding one leaf of a row group takes."""

    sizes: list[int] = field(default_factory=list)  # of pages that hold their values themselves
    rows: list[int] = field(default_factory=list)
    page: int = 0  # bytes of the largest page, and of the dictionary
    coded: int = 0  # values of which only the longest is known: those of a dictionary, of deltas, and of large pages
    longest: int = 0
    wholly_coded: bool = True

    def window(self, rows: int) -> int:
        """Bytes of so many rows at most, wherever they begin."""
        ends = np.cumsum(self.rows)
        bytes_before = np.concatenate([[0], np.cumsum(self.sizes)])
        last = np.searchsorted(ends, ends + rows - 1, side="left").clip(max=len(ends) - 1)
        plain = int((bytes_before[last + 1] - bytes_before[:-1]).max(initial=0))
        return plain + min(rows, self.coded) * self.longest

    def as_list(self) -> int:
        """Bytes of all values, which may be one row; by their numbers where all are in a dictionary."""
        values = sum(self.rows) * _LEVELS
        return values if self.wholly_coded else values + sum(self.sizes) + self.coded * self.longest


def check_footer(raw: Any, size: int) -> None:
    """A Flaw unless Arrow can open the file in little memory; what is merely damaged is left to Arrow."""
    tail = _read(raw, size - 8, 8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - 8:
        return
    if length > _LARGEST_FOOTER:
        raise Flaw("the Parquet footer is larger than 16 MiB", "write the file again with larger row groups")
    try:
        _check_metadata(Compact(_read(raw, size - 8 - length, length), _MOST_STRUCTS))
    except OverflowError:
        raise Flaw("the Parquet footer describes too many columns and row groups", _REWRITE) from None
    except ValueError:
        return


def check_rows(rows: int, size: int) -> None:
    """A Flaw if a file declares more rows than its bytes can sensibly hold."""
    if rows > max(_ROWS_FREELY, MAX_GROWTH * size):
        raise Flaw(f"{rows:,} rows in {size:,} bytes", "the file is damaged or hostile: ask for another")


def batch_rows(raw: Any, size: int, group: Any, leaves: list[Leaf]) -> tuple[int, list[str]]:
    """How many rows of a row group to read at once, and the paths of lists to be read as numbers in a dictionary.

    A Flaw if even one row may take too much.
    """
    needs = {leaf: _need(raw, size, group.column(leaf.index), leaf) for leaf in leaves}
    open_pages = sum(need.page for need in needs.values())
    if open_pages > _PAGES:
        raise Flaw(f"the Parquet pages take {open_pages:,} bytes at once", _REWRITE)
    lists = [leaf for leaf in leaves if leaf.in_list]
    for leaf in lists:
        if needs[leaf].as_list() > _LISTS:
            raise Flaw(f"the lists of the column {leaf.name} take more than 128 MiB in one row group", _REWRITE)
    flat = [need for leaf, need in needs.items() if not leaf.in_list]
    fitting = (rows for rows in _BATCHES if sum(need.window(rows) for need in flat) <= _WINDOW)
    dictionaries = [group.column(leaf.index).path_in_schema for leaf in lists if _by_number(needs[leaf])]
    return next(fitting, 1), dictionaries


def _by_number(need: Need) -> bool:
    return need.wholly_coded and need.coded * need.longest > _WINDOW


def _need(raw: Any, size: int, chunk: Any, leaf: Leaf) -> Need:
    need, dictionary = Need(), None
    is_text = chunk.physical_type == "BYTE_ARRAY"
    for page in _pages(raw, size, chunk):
        if page.kind == _DICTIONARY:
            dictionary = page
            continue
        longest = _longest_known(raw, page, chunk.compression, leaf) if is_text else None
        coded = longest is not None
        need.longest = max(need.longest, longest or 0)
        need.rows.append(page.values)
        need.sizes.append(0 if coded else page.size)
        need.page = max(need.page, page.size + 8 * page.values * (page.encoding in _DELTAS))
        need.coded += page.values if coded else 0
        need.wholly_coded = need.wholly_coded and is_text and page.encoding in _CODED
        if len(need.rows) > _MOST_PAGES:
            raise Flaw(f"the column {leaf.name} has more than {_MOST_PAGES:,} pages in one row group", _REWRITE)
    if dictionary and is_text:
        small = min(need.coded, need.coded if leaf.in_list else BATCH) * dictionary.size < _WINDOW // 4
        entry = dictionary.size if small else _longest_text(raw, dictionary, chunk.compression)
        need.longest = max(need.longest, entry)
    need.page += dictionary.size if dictionary else 0
    return need


def _pages(raw: Any, size: int, chunk: Any) -> Iterator[Page]:
    """The pages of a column in the order in which Arrow reads them, up to the declared number of values."""
    at, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    if chunk.has_dictionary_page and dictionary is not None and 0 < dictionary < at:
        at = dictionary
    seen = 0
    while seen < chunk.num_values and 0 <= at < size:
        page = _page(raw, at)
        at = page.start + page.packed
        if min(page.size, page.packed, page.values, page.levels) < 0 or at > size:
            raise Flaw(*_DAMAGED)
        if page.kind in (_DATA, _DATA_V2):
            seen += page.values
        if page.kind in (_DATA, _DATA_V2, _DICTIONARY):
            yield page


def _page(raw: Any, at: int) -> Page:
    """The header of the page that begins here, which is short unless it tells the least and the greatest value."""
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
    return Page(kind, *sizes, body.get((1, I32), 0), encoding, levels, is_packed, start)


def _longest_known(raw: Any, page: Page, codec: str, leaf: Leaf) -> int | None:
    """Bytes of the longest text in a page, where rows are few beside the bytes that they may have; None elsewhere."""
    if page.encoding in _CODED:
        return 0  # the dictionary knows
    if page.encoding == _DELTA_BYTES:
        return page.size  # each value may repeat all of those before it
    if page.encoding != _PLAIN or page.size < _WINDOW // 2 or leaf.in_list:
        return None
    return _longest_text(raw, page, codec, optional=leaf.optional)


def _longest_text(raw: Any, page: Page, codec: str, *, optional: bool = False) -> int:
    """Bytes of the longest text of a page; of the whole page where that is not known."""
    unpack = _unpacker(codec) if page.is_packed else lambda data, _size: data
    if page.values > _MOST_ENTRIES or page.size > _PAGES or unpack is None or page.levels > page.packed:
        return page.size
    try:
        packed = _read(raw, page.start + page.levels, page.packed - page.levels)
        data = unpack(packed, page.size - page.levels)
    except (OSError, ValueError):
        raise Flaw(*_DAMAGED) from None
    at = 4 + int.from_bytes(data[:4], "little") if optional and page.kind == _DATA else 0
    return min(_longest(data, at, page.values), page.size)


def _longest(data: Any, at: int, count: int) -> int:
    """The greatest length of so many texts, or of fewer if some are null, each of which has its length before it."""
    longest = 0
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


def _unpacker(codec: str) -> Callable[[bytes, int], Any] | None:
    import pyarrow

    if codec == "UNCOMPRESSED":
        return lambda data, _size: data
    try:
        found = pyarrow.Codec(codec.lower())
    except (pyarrow.ArrowException, ValueError):  # Hadoop's LZ4, LZO, and what this Arrow was built without
        return None
    return found.decompress if codec != "LZ4" else None


def _check_metadata(footer: Compact) -> None:
    for number, kind in footer.fields():
        if (number, kind) != (2, LIST):
            footer.skip(kind)
            continue
        count, element = footer.list_header()
        children = (footer.struct().get((5, I32), 0) for _ in range(count)) if element == STRUCT else ()
        if _depth(children) > _DEEPEST:
            raise Flaw("the Parquet schema is nested too deeply", "flatten the columns")


def _depth(children: Any) -> int:
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


def _read(raw: Any, at: int, length: int) -> bytes:
    return os.pread(raw.fileno(), length, max(at, 0))
