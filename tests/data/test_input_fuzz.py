# ruff: noqa: E501 - one example, one line
"""Files of every known format, broken at random: each gives records or a sentence, quickly and in little memory.

A batch is read in a process of its own, under limits of memory and time. To look for more, or to see one again:

    python -m tests.data.test_input_fuzz FIRST COUNT
"""

from __future__ import annotations

import faulthandler
import gzip
import io
import json
import random
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import triever
from tests import web_archives
from tests.web_archives import Captured, archive
from triever.data.formats.lines import MAX_LINE
from triever.data.readers import Problems, read_documents, read_expansions, read_qrels, read_queries, read_run
from triever.data.records import Document, Query, Result
from triever.errors import TrieverError

SECONDS = 5  # of the processor, for all readings of one file
MOST_MEMORY = 300 * 2**20  # above what the process takes before
MOST_ADDRESSES = 24 * 2**30  # of which Arrow reserves some it never uses
WORDS = ["cats", "and", "dogs", "drink", "milk,", "the", "café", "is", "open;", "東京", "is", "far", "🐈", "away"]


# Small valid files.


def sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(1, 9)))


def jsonl(rows: list[Any]) -> bytes:
    return "".join(
        json.dumps(row, ensure_ascii=row["n"] % 2 > 0 if "n" in row else False) + "\n" for row in rows
    ).encode()


def documents(chance: random.Random) -> list[dict[str, Any]]:
    return [
        {"_id": f"d{n}", "title": sentence(chance), "text": sentence(chance), "metadata": {"year": n, "tags": ["a"]}}
        for n in range(6)
    ]


def questions(chance: random.Random) -> list[dict[str, Any]]:
    return [{"_id": f"q{n}", "text": sentence(chance), "answers": [sentence(chance)] * (n % 3)} for n in range(6)]


def squad(chance: random.Random) -> dict[str, Any]:
    asked = [{"id": f"q{n}", "question": sentence(chance), "answers": [{"text": "milk"}]} for n in range(3)]
    paragraphs = [{"context": sentence(chance), "qas": asked}, {"context": sentence(chance), "qas": []}]
    return {"version": "1.1", "data": [{"title": "Cats_and_dogs", "paragraphs": paragraphs}]}


def dpr(chance: random.Random) -> list[dict[str, Any]]:
    contexts = [{"title": "T", "text": sentence(chance), "passage_id": "7"}, {"title": "", "text": sentence(chance)}]
    return [
        {"question": sentence(chance), "answers": ["milk"], "positive_ctxs": contexts, "negative_ctxs": contexts}
    ] * 2


def kilt_pages(chance: random.Random) -> list[dict[str, Any]]:
    return [{"wikipedia_id": str(n), "wikipedia_title": "Cat", "text": ["Cat\n", sentence(chance)]} for n in range(4)]


def kilt_task(chance: random.Random) -> list[dict[str, Any]]:
    output = [{"answer": "milk", "provenance": [{"wikipedia_id": "1"}, {"wikipedia_id": 2}]}, {"answer": "a"}]
    return [{"id": f"q{n}", "input": sentence(chance), "output": output, "meta": {}} for n in range(4)]


def table(chance: random.Random, delimiter: str, header: str, columns: int) -> bytes:
    rows = [delimiter.join([str(n), *(f'"{sentence(chance)}"' for _ in range(columns - 1))]) for n in range(6)]
    return "\n".join([header] * bool(header) + rows).encode() + b"\n"


def topics(chance: random.Random) -> bytes:
    return "".join(
        f"<top>\n<num> Number: {n}\n<title> {sentence(chance)}\n<desc> Description:\n{sentence(chance)} &amp; &#99;\n</top>\n\n"
        for n in range(4)
    ).encode()


def captured(chance: random.Random) -> list[Captured]:
    page = f"<title>{sentence(chance)}</title><p>{sentence(chance)}".encode()
    chunks, packing = ("Transfer-Encoding", "chunked"), ("Content-Encoding", "gzip")
    packed = web_archives.packed(page, "gzip")
    return [
        Captured("https://example.org/a", page),
        Captured("https://example.org/a", kind="request"),
        Captured("https://example.org/b", web_archives.chunked(page), headers=[chunks]),
        Captured("https://example.org/c", web_archives.chunked(packed), headers=[chunks, packing]),
        Captured("https://example.org/d.txt", sentence(chance), kind="resource", content_type="text/plain"),
    ]


def parquet(rows: list[dict[str, Any]], **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file, **options)
    return file.getvalue()


def parquets(chance: random.Random) -> dict[str, bytes]:
    plain = [{**row, "metadata": json.dumps(row["metadata"])} for row in documents(chance)]
    judged = [{"query-id": f"q{n}", "corpus-id": f"d{n}", "score": n % 3} for n in range(6)]
    rows = [
        {"id": f"q{n}", "title": "Cat", "context": "A cat.", "question": "What?", "answers": {"text": ["a"]}}
        for n in range(6)
    ]
    deltas = {
        "column_encoding": {"_id": "DELTA_BYTE_ARRAY", "text": "DELTA_LENGTH_BYTE_ARRAY"},
        "use_dictionary": False,
    }
    return {
        "corpus.parquet": parquet(plain, compression="zstd"),
        "structured.parquet": parquet(documents(chance), row_group_size=2, compression="gzip"),
        "newer.parquet": parquet(plain, data_page_version="2.0", compression="snappy", write_page_index=True),
        "bare.parquet": parquet(plain, compression="none", use_dictionary=False, store_schema=False),
        "deltas.parquet": parquet([{"_id": row["_id"], "text": row["text"]} for row in plain], **deltas),
        "queries.parquet": parquet(questions(chance), compression="brotli"),
        "qrels.parquet": parquet(judged, compression="lz4"),
        "squad.parquet": parquet(rows),
    }


@cache
def examples() -> dict[str, bytes]:
    """A small file of every known format, by name."""
    chance = random.Random(0)
    pairs = [{"query-id": f"q{n}", "corpus-id": f"d{n}", "score": n % 2} for n in range(5)]
    expansions = [{"_id": f"d{n}", "texts": [sentence(chance), sentence(chance)]} for n in range(5)]
    plain = {
        "corpus.jsonl": jsonl(documents(chance)),
        "queries.jsonl": jsonl(questions(chance)),
        "judged.jsonl": jsonl(pairs),
        "expansions.jsonl": jsonl(expansions),
        "corpus.json": json.dumps(documents(chance), indent=1).encode(),
        "squad.json": json.dumps(squad(chance)).encode(),
        "dpr.json": json.dumps(dpr(chance), indent=2).encode(),
        "pages.jsonl": jsonl(kilt_pages(chance)),
        "task.jsonl": jsonl(kilt_task(chance)),
        "collection.tsv": table(chance, "\t", "", 2),
        "docs.tsv": table(chance, "\t", "", 4),
        "psgs.tsv": table(chance, "\t", "id\ttext\ttitle", 3),
        "docs.csv": table(chance, ",", "id,text,title", 3),
        "topics.txt": topics(chance),
        "topics.xml": b'<topics>\n<topic number="1">\n<query>cats</query>\n</topic>\n<topic number="2">dogs</topic>\n</topics>',
        "qrels.txt": "".join(f"q{n} 0 d{n} {n % 3}\n" for n in range(9)).encode(),
        "qrels.tsv": b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td1\t2\n",
        "x.run": "".join(f"q{n // 3} Q0 d{n} {n} {9.5 - n} tag\n" for n in range(9)).encode(),
        "notes.txt": b"# Cats\n\nA cat drinks milk.\n",
        "site.warc": archive(*captured(chance)),
        "notes.md": b"Title\n=====\n\n```\n# no heading\n```\nText.\n",
    }
    packed = {f"{name}.gz": gzip.compress(plain[name], mtime=0) for name in ("corpus.jsonl", "squad.json", "qrels.txt")}
    packed |= {f"{name}.zst": zstd(plain[name]) for name in ("queries.jsonl", "docs.csv", "topics.txt")}
    packed["site.warc.gz"] = archive(*captured(chance), gzip=True)
    return plain | packed | parquets(chance)


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


# How they are broken.

TOKENS = [
    *(
        b"\0",
        b"\r",
        b"\n",
        b"\t",
        b'"',
        b"'",
        b",",
        b";",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b"<",
        b">",
        b"</top>",
        b"<top>",
    ),
    *(
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\xe2\x80\xa8",
        b"\x85",
        b"\x1c",
    ),
    *(
        b"\\ud800",
        b"\\u0000",
        b"\\udc00\\ud800",
        b"\\",
        b"&#0;",
        b"&#xD800;",
        b"&#" + b"9" * 5000 + b";",
        b"&amp",
        b"&#x110000;",
    ),
    *(
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"-0",
        b"1e-400",
        b"9" * 5000,
        b"0x10",
        b"null",
        b"true",
        b"[]",
        b"{}",
        b'""',
        b" ",
    ),
    *(b"[" * 3000, b'{"a":' * 3000, b"[" * 100_000, b"(" * 1000, b"\n" * 3000, b" " * 50_000, "́̀".encode() * 5000),
    *(
        b"\x1f\x8b\x08",
        b"\x28\xb5\x2f\xfd",
        b"PAR1",
        b"BZh",
        b"PK\x03\x04",
        b"\x50\x2a\x4d\x18\xff\xff\xff\x7f",
        b"%PDF",
    ),
]
NUMBERS = [0, 1, 2**7 - 1, 2**15, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]

Change = Callable[[random.Random, bytes], bytes]


def place(chance: random.Random, data: bytes) -> int:
    return chance.randrange(len(data) + 1)


def part(chance: random.Random, data: bytes) -> tuple[int, int]:
    start = place(chance, data)
    return start, min(len(data), start + int(chance.paretovariate(0.7)))


def flip(chance: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8)) if data else 0):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def cut(chance: random.Random, data: bytes) -> bytes:
    at = place(chance, data)
    return data[:at] if chance.random() < 0.8 else data[at:]


def repeat(chance: random.Random, data: bytes) -> bytes:
    start, end = part(chance, data)
    return data[:end] + data[start:end] * chance.choice((1, 1, 2, 50)) + data[end:]


def remove(chance: random.Random, data: bytes) -> bytes:
    start, end = part(chance, data)
    return data[:start] + data[end:]


def insert(chance: random.Random, data: bytes) -> bytes:
    at = place(chance, data)
    return data[:at] + chance.choice((chance.choice(TOKENS), chance.randbytes(chance.randint(1, 20)))) + data[at:]


def overwrite(chance: random.Random, data: bytes) -> bytes:
    at, token = place(chance, data), chance.choice(TOKENS)
    return data[:at] + token + data[at + len(token) :]


def replace_field(chance: random.Random, data: bytes) -> bytes:
    """One number, word or string becomes something else."""
    fields = list(re.finditer(rb'"[^"\n]*"|[\w.]+', data[:20_000]))
    if not fields:
        return data
    start, end = chance.choice(fields).span()
    return data[:start] + chance.choice(TOKENS) + data[end:]


def swap_fields(chance: random.Random, data: bytes) -> bytes:
    fields = list(re.finditer(rb'"[^"\n]*"|[\w.]+', data[:20_000]))
    if len(fields) < 2:
        return data
    first, second = sorted(chance.sample(fields, 2), key=lambda field: field.start())
    between = data[first.end() : second.start()]
    return data[: first.start()] + second.group() + between + first.group() + data[second.end() :]


def splice(chance: random.Random, data: bytes) -> bytes:
    """The beginning of this file and the end of another."""
    other = chance.choice(list(examples().values()))
    return data[: place(chance, data)] + other[place(chance, other) :]


def pack(chance: random.Random, data: bytes) -> bytes:
    """Compressed, and damaged after that."""
    packed = gzip.compress(data, mtime=0) if chance.random() < 0.5 else zstd(data)
    return chance.choice((flip, cut, insert, remove, repeat, lambda _, same: same))(chance, packed)


def edit_footer(chance: random.Random, data: bytes) -> bytes:
    """A number in a Parquet footer, or its length, becomes another."""
    if data[-4:] != b"PAR1" or len(data) < 12:
        return flip(chance, data)
    (length,) = struct.unpack("<I", data[-8:-4])
    if chance.random() < 0.1:
        return data[:-8] + struct.pack("<I", chance.choice(NUMBERS) & 0xFFFFFFFF) + data[-4:]
    start = max(4, len(data) - 8 - length)
    body, footer = data[:start], data[start:-8]
    changed = chance.choice((flip, insert, remove, repeat, put_number))(chance, footer)
    kept = changed if chance.random() < 0.3 else changed[: len(footer)].ljust(len(footer), b"\0")
    return body + kept + struct.pack("<I", len(kept)) + b"PAR1"


def put_number(chance: random.Random, data: bytes) -> bytes:
    """A number in Thrift's spelling in the place of what stands there, or beside it."""
    at, number = place(chance, data), varint(chance.choice(NUMBERS))
    return data[:at] + number + data[at + chance.choice((0, 1, len(number))) :]


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


CHANGES: list[Change] = [flip, cut, repeat, remove, insert, overwrite, replace_field, swap_fields, splice, pack]


def broken(seed: int) -> tuple[str, bytes]:
    """The name and the content of one broken file, the same at each call."""
    chance = random.Random(seed)
    name = chance.choice(list(examples()))
    data = examples()[name]
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        change = chance.choice(CHANGES)
        if name.endswith(".parquet") and chance.random() < 0.6:
            change = chance.choice((edit_footer, edit_footer, put_number, flip))
        data = change(chance, data)[: 4 * MAX_LINE]
    return name, data


# What may come of it.


def check_id(value: str) -> None:
    assert type(value) is str
    assert value.strip(), "an empty id"
    assert not re.search("[\0\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029\ud800-\udfff]", value), f"the id {value!r}"


def check_text(value: str) -> None:
    assert type(value) is str
    assert "\0" not in value
    value.encode()


def check_record(record: Any) -> None:
    if isinstance(record, Document):
        check_id(record.id)
        for text in (record.title, record.text, *record.expansions):
            check_text(text)
    elif isinstance(record, Query):
        check_id(record.id)
        for text in (record.text, *record.answers, *(one for several in record.evidence for one in several)):
            check_text(text)
    elif isinstance(record, tuple):  # expansions
        check_id(record[0])
        for text in record[1]:
            check_text(text)
    if isinstance(record, Document | Query):
        json.dumps(record.metadata, ensure_ascii=False, allow_nan=False).encode()


def check_judgements(found: Mapping[str, Any]) -> None:
    for query, judged in found.items():
        check_id(query)
        for one in judged:
            check_id(one.id if isinstance(judged, Result) else one)


def check_all(found: Any) -> None:
    if isinstance(found, Mapping):
        check_judgements(found)
    else:
        for record in found:
            check_record(record)


READERS = (read_documents, read_queries, read_qrels, read_run, read_expansions)


def readings(path: Path) -> Iterator[Callable[[], None]]:
    for skip_bad in (False, True):
        for read in READERS:
            yield lambda read=read, skip_bad=skip_bad: check_all(read(path, Problems(skip_bad=skip_bad)))
        yield lambda skip_bad=skip_bad: check_dataset(path, skip_bad)
        yield lambda skip_bad=skip_bad: check_dataset(path.parent, skip_bad)


def check_dataset(path: Path, skip_bad: bool) -> None:
    data = triever.load_dataset(path, skip_bad=skip_bad)
    check_all(data.documents())
    for split in data.splits:
        check_all(data.qrels(split))
        check_all(data.queries(split))


def failure_of(seed: int, folder: Path) -> str:
    """What went wrong with one broken file; nothing, if all went well."""
    name, data = broken(seed)
    path = folder / name
    path.write_bytes(data)
    started = time.process_time()
    try:
        for reading in readings(path):
            try:
                reading()
            except TrieverError as error:
                if "; " not in str(error):
                    return f"{name}: {error}: what is there to do?"
    except Exception:
        return f"{name}\n{traceback.format_exc(limit=-6)}"
    finally:
        path.unlink()
    spent = time.process_time() - started
    return f"{name} took {spent:.1f} s" if spent > SECONDS else ""


def peak() -> int:
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text()).group(1)) * 1024


def run(first: int, count: int) -> int:
    """Read so many broken files; one line for each that fails."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    failed, before = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            print("seed", seed, file=sys.stderr, flush=True)  # the last one, if the process dies
            faulthandler.dump_traceback_later(20 * SECONDS, exit=True)
            found = failure_of(seed, Path(folder))
            before = before or peak()  # with all modules that the first file needed
            if not found and peak() - before > MOST_MEMORY:
                found, before = f"{broken(seed)[0]} took {(peak() - before) >> 20} MiB", peak()
            if found:
                failed += 1
                print(f"{seed}: {found}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    return failed


def fuzz(first: int, count: int) -> None:
    """Read so many broken files in a process of its own, and show what failed."""
    command = [sys.executable, "-m", "tests.data.test_input_fuzz", str(first), str(count)]
    root = Path(__file__).parents[2]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60 + count, cwd=root, check=False)
    assert child.returncode == 0, f"{child.stdout[-5000:]}\n{child.stderr[-3000:]}"


def test_examples_are_read() -> None:
    """Whole, each file gives records to at least one reader: what is broken was in order before."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in examples().items():
            path = Path(folder, name)
            path.write_bytes(data)
            assert any(map(has_records, [path] * len(READERS), READERS)), name


def has_records(path: Path, read: Callable[..., Any]) -> bool:
    try:
        return bool(list(read(path)))
    except TrieverError:
        return False


def test_broken_files_give_records_or_a_sentence() -> None:
    fuzz(0, 200)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 3000, 500))
def test_many_broken_files_give_records_or_a_sentence(first: int) -> None:
    fuzz(first, 500)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), int(sys.argv[2])) > 0)
