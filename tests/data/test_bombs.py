# ruff: noqa: E501 - one bomb, one line
"""Small files that would take gigabytes or hours: each is read in bounded memory, within seconds, or refused."""

from __future__ import annotations

import gzip
import random
import re
import struct
import subprocess
import sys
import textwrap
import time
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import web_archives
from tests.web_archives import Captured, archive
from triever.data.dataset import Dataset
from triever.data.formats.problems import KNOWN
from triever.data.readers import Problems, read_queries
from triever.data.records import Document, normalise

MEBIBYTE = 2**20
ALLOWED = 300 * MEBIBYTE
SECONDS = 60  # a busy machine takes several times the few that are needed

CHILD = textwrap.dedent(
    """
    import sys
    from triever.data import readers
    from triever.errors import TrieverError
    import pyarrow.parquet, pyarrow.compute

    def peak():  # not ru_maxrss, which begins with that of the parent
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

    role, path, skip_bad = sys.argv[1], sys.argv[2], sys.argv[3] == "skip"
    before = peak()
    problems = readers.Problems(skip_bad=skip_bad)
    try:
        records = getattr(readers, f"read_{role}")(path, problems)
        said = f"{sum(1 for _ in records)} records"
    except TrieverError as error:
        said = str(error)
    print(peak() - before, (problems.examples or [""])[0], said, sep="\\n")
    """
)


def read_apart(role: str, path: Path, skip_bad: bool) -> tuple[int, str, str]:
    """In a process of its own: by how many bytes it grew, the first bad record, and what came out."""
    command = [sys.executable, "-c", CHILD, role, str(path), "skip" if skip_bad else "strict"]
    child = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    grown, bad, said = child.stdout.splitlines()
    return int(grown), bad, said


Make = Callable[[Path], Any]


def parquet(columns: dict[str, Any], **options: Any) -> Make:
    return lambda path: pq.write_table(pa.table(columns), path, **options)


def repeated(value: Any, times: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), pa.array([value]))


def dictionary_of_a_long_text(path: Path) -> None:
    texts = repeated("x" * 8_000_000, 1000)
    table = pa.table({"_id": [f"d{n}" for n in range(1000)], "text": texts})
    pq.write_table(table, path, compression="zstd", dictionary_pagesize_limit=2**30, store_schema=False)


def stored_as_a_dictionary(path: Path) -> None:
    texts = repeated("x" * 8_000_000, 1000)
    table = pa.table({"_id": [f"d{n}" for n in range(1000)], "text": texts})
    pq.write_table(table, path, compression="zstd", dictionary_pagesize_limit=2**30)


def dictionary_of_lists(path: Path) -> None:
    answers = pa.ListArray.from_arrays(pa.array([0, 1, 1001], pa.int32()), repeated("x" * 8_000_000, 1001))
    table = pa.table({"_id": ["q1", "q2"], "text": ["a", "b"], "answers": answers})
    pq.write_table(table, path, compression="zstd", dictionary_pagesize_limit=2**30, store_schema=False)


def long_texts(codec: str) -> Make:
    """A gigabyte of pages of 8 MB each, of which little is left on the disk."""

    def make(path: Path) -> None:
        schema = pa.schema({"_id": pa.string(), "text": pa.string()})
        with pq.ParquetWriter(path, schema, compression=codec, use_dictionary=False, write_batch_size=1) as writer:
            writer.write_table(pa.table([[f"d{n}" for n in range(120)], ["x" * 8_000_000] * 120], schema=schema))

    return make


def shared_prefixes(path: Path) -> None:
    """DELTA_BYTE_ARRAY: each value repeats the 8 MB of the one before."""
    table = pa.table({"_id": [f"d{n}" for n in range(200)], "text": ["x" * 8_000_000] * 200})
    encodings = {"_id": "PLAIN", "text": "DELTA_BYTE_ARRAY"}
    pq.write_table(table, path, use_dictionary=False, column_encoding=encodings, data_page_size=2**30)


def two_huge_values_side_by_side(path: Path) -> None:
    """At the end of one page and at the start of the next."""
    schema = pa.schema({"_id": pa.string(), "text": pa.string()})
    options = {"compression": "zstd", "use_dictionary": False, "data_page_size": 90_000_000, "write_batch_size": 1}
    with pq.ParquetWriter(path, schema, **options) as writer:
        texts = ["a"] * 50 + ["x" * 90_000_000] * 3 + ["b"] * 50
        writer.write_table(pa.table([[f"d{n}" for n in range(len(texts))], texts], schema=schema))


def many_huge_columns(path: Path) -> None:
    names = ["text", "title", "contents", "content", "body", "passage", "segment", "abstract", "query", "question"]
    columns = {"_id": ["d1"], **{name: ["x" * 50_000_000] for name in names}}
    pq.write_table(pa.table(columns), path, compression="zstd", use_dictionary=False)


def list_without_end(path: Path) -> None:
    answers = pa.ListArray.from_arrays(pa.array([0, 40_000_000], pa.int32()), pa.nulls(40_000_000, pa.string()))
    pq.write_table(pa.table({"_id": ["q1"], "text": ["a"], "answers": answers}), path, compression="zstd")


def million_columns(path: Path) -> None:
    """A footer of 3 MB in which a row group has a million columns of which nothing is said."""
    schema = _list(_element(b"root", children=1) + _element(b"text"), 2, of=12)
    chunks = _list(b"\x26\x00\x00" * 1_000_000, 1_000_000, of=12)  # file_offset = 0, and no more
    group = b"\x19" + chunks + b"\x16\x00\x16\x02\x00"
    _footer(path, b"\x15\x02\x19" + schema + b"\x16\x02\x19" + _list(group, 1, of=12) + b"\x00")


def deep_schema(path: Path) -> None:
    elements = b"".join(_element(b"text", children=1) for _ in range(20_000)) + _element(b"text")
    schema = _list(elements, 20_001, of=12)
    _footer(path, b"\x15\x02\x19" + schema + b"\x16\x00\x19" + _list(b"", 0, of=12) + b"\x00")


def _element(name: bytes, children: int = 0) -> bytes:
    kind = b"" if children else b"\x15\x0c"  # BYTE_ARRAY
    named = (b"\x48" if children else b"\x38") + _varint(len(name)) + name
    return kind + named + (b"\x15" + _varint(2 * children) if children else b"") + b"\x00"


def _list(content: bytes, count: int, of: int) -> bytes:
    return bytes([0xF0 | of]) + _varint(count) + content


def _varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + _varint(value >> 7) if value > 127 else bytes([value])


def _footer(path: Path, footer: bytes) -> None:
    path.write_bytes(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")


def more_lengths_than_values(encoding: str) -> Make:
    """A page that says of itself that it holds the lengths of 2^30 texts, all of them equal, in a few bytes."""

    def make(path: Path) -> None:
        schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("_id", "text")])
        table = pa.Table.from_arrays([pa.array([f"d{n}" for n in range(300)]), pa.array(["abc"] * 300)], schema=schema)
        options = {"compression": "none", "use_dictionary": False, "store_schema": False, "write_statistics": False}
        pq.write_table(table, path, column_encoding={"_id": "PLAIN", "text": encoding}, **options)
        data = path.read_bytes()
        at = data.index(b"\x80\x01\x04" + _varint(300))  # blocks of 128, in 4 parts, of 300 values
        lie = _varint(2**30) + b"\x04" + _varint(2**30) + b"\x06" + bytes(5)
        path.write_bytes(data[:at] + lie + data[at + len(lie) :])

    return make


def gz(*parts: tuple[bytes, int]) -> Make:
    """Each part so many times, compressed."""

    def make(path: Path) -> None:
        with gzip.open(path, "wb", 6) as file:
            for content, times in parts:
                block = content * min(times, max(1, MEBIBYTE // len(content)))
                written = 0
                while written < len(content) * times:
                    written += file.write(block)

    return make


def zst(content: bytes, times: int) -> Make:
    def make(path: Path) -> None:
        with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as file:
            for _ in range(times // 1000):
                file.write(content * 1000)

    return make


def text(content: str) -> Make:
    return lambda path: path.write_text(content, encoding="utf-8")


def word(content: bytes) -> Make:
    """A Word document with this inside its body."""

    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("word/document.xml", b"<document>" + content + b"</document>")

    return make


def archived(body: bytes, *headers: tuple[str, str]) -> Make:
    """A web archive with one page."""
    return lambda path: path.write_bytes(archive(Captured("https://example.org/a", body, headers=headers)))


RESOURCE = (
    b"WARC/1.0\r\nWARC-Type: resource\r\nWARC-Target-URI: https://example.org/a\r\n"
    b"Content-Type: text/html\r\nContent-Length: %d\r\n\r\n"
)
MUCH = 200_000_000  # bytes
LINE = b'{"_id": "d1", "text": "a"}\n'
LISTS = b'{"_id": "d2", "text": "x", "metadata": {"a": [' + b"[]," * 5_000_000 + b"1]}}\n"
ITEM = b'{"_id": "d1", "title": "", "text": "a"}'

BOMBS: dict[str, tuple[str, str, Make, str]] = {
    "a dictionary of one long text": ("documents", "x.parquet", dictionary_of_a_long_text, "unpacks to more than 200 times"),
    "a dictionary in Arrow's schema": ("documents", "x.parquet", stored_as_a_dictionary, "unpacks to more than 200 times"),
    "a dictionary inside lists": ("queries", "x.parquet", dictionary_of_lists, ":2: the row is longer than 16 MiB"),
    **{
        f"Parquet pages in {codec}": ("documents", "x.parquet", long_texts(codec), "unpacks to more than 200 times")
        for codec in ("zstd", "gzip", "brotli")
    },
    "values that repeat the one before": ("documents", "x.parquet", shared_prefixes, ""),
    "more lengths than values": ("documents", "x.parquet", more_lengths_than_values("DELTA_LENGTH_BYTE_ARRAY"), "is damaged"),
    "more prefixes than values": ("documents", "x.parquet", more_lengths_than_values("DELTA_BYTE_ARRAY"), "is damaged"),
    "huge values side by side": ("documents", "x.parquet", two_huge_values_side_by_side, ":51: the row is longer"),
    "many huge columns": ("documents", "x.parquet", many_huge_columns, "the Parquet pages take 500,.* bytes at once"),
    "a list without end": ("queries", "x.parquet", list_without_end, "the values of the column answers take more than"),
    "a million columns in a footer": ("documents", "x.parquet", million_columns, "describes too many columns"),
    "a schema of 20,000 levels": ("documents", "x.parquet", deep_schema, "nested too deeply"),
    "a long line in gzip": ("documents", "x.jsonl", gz((LINE, 1), (b"x", MUCH)), ":2: the line is longer"),
    "a line of ten gigabytes in zstd": ("documents", "x.jsonl", zst(b" " * 10_000, 1_000_000), ":1: the line is longer"),
    "too many blank lines": ("documents", "x.jsonl", gz((LINE, 1), (b"\n", MUCH)), "more than 1,000,000 blank lines"),
    "an object without end": ("documents", "x.json", gz((b"{", 1), (b'"a": "' + b"x" * 10_000_000 + b'",', 50)), "longer than"),
    "an item without end": ("documents", "x.json", gz((b"[" + ITEM + b",{", 1), (b'"a": "x",', MUCH // 9)), "longer than"),
    "a record of empty lists": ("documents", "x.jsonl", gz((LINE, 1), (LISTS, 1)), ":2: the JSON holds more than 2,097,152 values"),
    "an item of empty lists": ("documents", "x.json", gz((b"[" + ITEM + b"," + LISTS + b"]", 1)), "the JSON holds more than"),
    "a text file in gzip": ("documents", "x.txt", gz((b"some words\n", MUCH // 11)), ":1: the file is larger than 16 MiB"),
    "a page of open tags": ("documents", "x.html", text("<div><a b='" * 400_000), ""),
    "a page of one tag": ("documents", "x.html", text("<div " + "a=1 " * 3_000_000), ""),
    "a Word document of blanks": ("documents", "x.docx", word(b" " * MUCH), ":1: the unpacked document is larger than 64 MiB"),
    "a Word document of open elements": ("documents", "x.docx", word(b"<p>" * 20_000_000), ":1: the XML of the Word document is nested too deeply"),
    "a web archive with a header without end": ("documents", "x.warc.gz", gz((b"WARC/1.0\r\nX: ", 1), (b"x", MUCH)), ":1: the headers are longer than 1 MiB"),
    "a web archive of blank lines": ("documents", "x.warc.gz", gz((b"\r\n", MUCH // 2)), ":1: the headers are longer than 1 MiB"),
    "a web archive with a page without end": ("documents", "x.warc.gz", gz((RESOURCE % MUCH, 1), (b"x ", MUCH // 2)), ":1: the data unpacks to more than 200 times its size"),
    "a web archive with a page of open tags": ("documents", "x.warc", archived(b"<div><a b='" * 400_000), ""),
    "a web archive with a compressed page of blanks": ("documents", "x.warc", archived(web_archives.packed(b" " * MUCH, "gzip"), ("Content-Encoding", "gzip")), ":1: https://example.org/a: the page is larger than 16 MiB"),
    "a web archive with a page of tiny chunks": ("documents", "x.warc", archived(b"1\r\nx\r\n" * 3_000_000, ("Transfer-Encoding", "chunked")), ""),
    "a topic without end": ("queries", "x.txt", gz((b"<top>\n<num> 1\n<title> a\n", 1), (b"ab\n", 3_000_000)), ":1: the topic is longer"),
    "a line of tabs": ("documents", "x.tsv", gz((b"1\ta\n2\tb\n", 1), (b"ab\t", 5_000_000)), ":3: the line has more than 10,000 columns"),
    "a header of commas": ("documents", "x.csv", gz((b"id,text" + b",ab" * 5_000_000, 1)), "more than 10,000 columns"),
    "a row of commas": ("documents", "x.csv", gz((b"id,text\nd1,a\nd2" + b",ab" * 5_000_000, 1)), ":3: the line has more than 10,000 columns"),
    "a cell without end": ("documents", "x.csv", gz((b'id,text\nd1,a\nd2,"', 1), (b"words\n", 500_000)), ":3: a quoted cell is not closed"),
    "long ids": ("qrels", "x.txt", gz((b"q1 0 " + b"d" * 9_000_000 + b" 1\n", 20)), "judged twice for query q1"),
}  # fmt: skip


QUICK = (
    "a web archive with a header without end",
    "a dictionary of one long text",
    "a million columns in a footer",
    "a long line in gzip",
)


@pytest.mark.parametrize("skip_bad", [False, True], ids=["strict", "skip_bad"])
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in BOMBS]
)
def test_a_bomb_takes_little_memory_and_time(name: str, skip_bad: bool, tmp_path: Path) -> None:
    role, file, make, sees = BOMBS[name]
    make(tmp_path / file)
    grown, bad, said = read_apart(role, tmp_path / file, skip_bad)
    assert grown < ALLOWED
    assert re.search(sees, bad or said), (bad, said)


@pytest.mark.long
@pytest.mark.parametrize("page", [2**20, 95_000_000], ids=["small pages", "large pages"])
@pytest.mark.parametrize("dictionary", [True, False], ids=["dictionary", "plain"])
def test_a_row_group_of_a_gigabyte_is_streamed(page: int, dictionary: bool, tmp_path: Path) -> None:
    """As other tools write it; DuckDB's pages have up to 100 MB."""
    chance = random.Random(0)
    pool = pa.array([" ".join(chance.choices(("cats", "dogs", "milk", "Tokyo", "far"), k=250)) for _ in range(2000)])
    rows = 850_000
    ids = pa.array([f"d{n}" for n in range(rows)])
    table = pa.table({"_id": ids, "text": pool.take(pa.array(chance.choices(range(len(pool)), k=rows)))})
    assert table.nbytes > 2**30
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, row_group_size=rows, data_page_size=page, use_dictionary=dictionary)
    del table
    grown, bad, said = read_apart("documents", path, skip_bad=False)
    assert (bad, said) == ("", f"{rows} records")
    assert grown < ALLOWED


def test_accents_without_end_are_normalised_in_time() -> None:
    """Python sorts them in quadratic time: these would take hours."""
    started = time.process_time()
    assert len(normalise("a" + "\u0301\u0327" * 200_000)) == 400_000
    normalise("a" + "\u0f73" * 200_000)
    assert time.process_time() - started < 10


@given(
    st.text("a é中\u0301\u0327\u0344\u0f71\u0f73\uac00\u1100\u1161\u11a8\u1e69\U0001d15e", max_size=40),
    st.integers(1, 12),
)
def test_long_runs_of_accents_are_normalised_as_python_does(text: str, times: int) -> None:
    assert normalise(text * times) == unicodedata.normalize("NFC", text * times)


@pytest.mark.parametrize(
    "field", ["<title>" + " " * 300_000, "<title>" + "<a" * 300_000, "<title>" + "<a " * 200_000 + "<num>"]
)
def test_topics_are_read_in_linear_time(field: str, tmp_path: Path) -> None:
    path = tmp_path / "topics.txt"
    path.write_text(f"<top>\n<num> 1\n<desc> cats\n{field}\n</top>\n", encoding="utf-8")
    started = time.process_time()
    list(read_queries(path, Problems(skip_bad=True)))
    assert time.process_time() - started < 10


def test_expansions_of_one_document_are_gathered_in_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "more.jsonl"
    path.write_text('{"_id": "d1", "texts": ["a"]}\n' * 100_000, encoding="utf-8")
    started = time.process_time()
    data = Dataset.of("x", [Document("d1", "cats")]).with_expansions(path)
    assert len(next(data.documents()).expansions) == 100_000
    assert time.process_time() - started < 10


def test_many_bad_records_take_little_memory() -> None:
    problems = Problems(skip_bad=True)
    for line in range(KNOWN + 50_000):
        problems.report("x.jsonl", line, "the id is empty")
    assert problems.count == problems.reports == KNOWN + 50_000
    assert len(problems._known) == KNOWN
