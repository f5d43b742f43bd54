# ruff: noqa: E501 - one case, one line
"""Every kind of bad input, how it comes about, and what a person sees: the table behind docs/bad-input.md.

python -m tests.bad_input > docs/bad-input.md
"""

from __future__ import annotations

import gzip
import json
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from tests.web_archives import Captured, archive
from triever.data.datasets import load_dataset
from triever.data.formats.lines import MAX_LINE
from triever.data.readers import (
    Problems,
    read_documents,
    read_expansions,
    read_qrels,
    read_queries,
    read_run,
)
from triever.errors import TrieverError

Make = Callable[[Path], Path]
Read = Callable[[Path, Problems], int]


@dataclass(frozen=True)
class Case:
    """One kind of bad input. `left` is how many records lenient reading gives; None: there is nothing to give."""

    what: str
    make: Make
    read: Read
    sees: str
    left: int | None = None


# How files are read. Each gives the number of records.


def documents(path: Path, problems: Problems) -> int:
    return len(list(read_documents(path, problems)))


def queries(path: Path, problems: Problems) -> int:
    return len(list(read_queries(path, problems)))


def qrels(path: Path, problems: Problems) -> int:
    return sum(map(len, read_qrels(path, problems).values()))


def run(path: Path, problems: Problems) -> int:
    return sum(map(len, read_run(path, problems).values()))


def expansions(path: Path, problems: Problems) -> int:
    return len(list(read_expansions(path, problems)))


def dataset(path: Path, problems: Problems) -> int:
    return len(list(load_dataset(path, skip_bad=problems.skip_bad).documents()))


def named_dataset(path: Path, problems: Problems) -> int:
    with mock.patch.dict(os.environ, {"TRIEVER_DATA": str(path.parent)}):
        return len(load_dataset(path.name).splits)


def split(path: Path, problems: Problems) -> int:
    return len(load_dataset(path).queries("tset"))


def refused(path: Path, problems: Problems) -> int:
    with mock.patch("io.FileIO", side_effect=PermissionError(13, "Permission denied")):
        return documents(path, problems)


# How files are made.


def file(name: str, content: str | bytes) -> Make:
    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def lines(name: str, *rows: str | bytes) -> Make:
    return file(name, b"".join((row.encode() if isinstance(row, str) else row) + b"\n" for row in rows))


def corpus(*rows: Any) -> Make:
    """JSON lines; a string is a line as it stands."""
    return lines("corpus.jsonl", *(row if isinstance(row, str | bytes) else json.dumps(row) for row in rows))


def asked(*rows: Any) -> Make:
    return lines("queries.jsonl", *(row if isinstance(row, str) else json.dumps(row) for row in rows))


def folder(**files: str) -> Make:
    def make(root: Path) -> Path:
        for name, content in files.items():
            file(f"data/{name.replace('__', '/').replace('_', '.')}", content)(root)
        return root / "data"

    return make


def beside(name: str, content: str | bytes) -> Make:
    """A folder of texts with one more file."""

    def make(root: Path) -> Path:
        file("data/a.txt", "A cat.")(root)
        return file(f"data/{name}", content)(root).parent

    return make


def nothing(path: str, *others: str) -> Make:
    def make(root: Path) -> Path:
        for other in others:
            file(other, "{}")(root)
        return root / path

    return make


def pipe(root: Path) -> Path:
    os.mkfifo(root / "corpus.jsonl")
    return root / "corpus.jsonl"


def link(target: str) -> Make:
    def make(root: Path) -> Path:
        (root / "corpus.jsonl").symlink_to(target)
        return root / "corpus.jsonl"

    return make


def strings(*values: bytes) -> pa.Array:
    """A column of Parquet that says it is text."""
    return pa.array(values, pa.binary()).view(pa.string())


def renamed(root: Path) -> Path:
    path = parquet({"_id": ["d1"], "text": ["x"], "other": ["y"]})(root)
    path.write_bytes(path.read_bytes().replace(b"other", b"\xff\xfeher"))
    return path


def parquet(columns: dict[str, list[Any]], cut: int = 0) -> Make:
    def make(root: Path) -> Path:
        path = root / "corpus.parquet"
        pq.write_table(pa.table(columns), path)
        path.write_bytes(path.read_bytes()[: -cut or None])
        return path

    return make


GOOD = {"_id": "d1", "title": "Cats", "text": "A cat is a small animal."}
ROWS = "".join(
    json.dumps({"_id": f"d{n}", "title": "", "text": f"The cube of {n} is {n**3}."}) + "\n" for n in range(50)
)
CAPTURED = Captured("https://example.org/a", "<p>A dog.")
PACKED = gzip.compress(ROWS.encode(), mtime=0)
LONG = "".join(json.dumps({"_id": f"d{n}", "title": "", "text": "x" * 15_000_000}) + "\n" for n in range(5))
BOMB = pa.compress(LONG.encode(), codec="zstd", asbytes=True)
ZSTD = pa.compress(ROWS.encode(), codec="zstd", asbytes=True)


def opened_gzip() -> bytes:
    """Fifty records and no end: what follows is a new block of compressed data."""
    packer = zlib.compressobj(wbits=31)
    return packer.compress(ROWS.encode()) + packer.flush(zlib.Z_FULL_FLUSH)


SQUAD = {
    "title": "Cats",
    "paragraphs": [{"context": "A cat.", "qas": [{"id": "q1", "question": "What?", "answers": []}]}],
}
DPR = {"question": "What?", "answers": [], "positive_ctxs": [{"title": "Cats", "text": "A cat.", "passage_id": "7"}]}
PAGE = {"_id": "7", "wikipedia_id": "7", "wikipedia_title": "Cats", "text": ["Cats\n", "A cat.\n"]}
DSI_LINE = '{"text_id": 17, "text": "Question: what is a cat"}'
TASK = {"id": "q1", "input": "What?", "output": [{"answer": "a cat", "provenance": [{"wikipedia_id": "7"}]}]}


def changed(base: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**base, **fields}


def without(base: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in base.items() if name not in names}


def flipped(data: bytes, at: int, count: int = 1) -> bytes:
    return data[:at] + bytes(byte ^ 0xFF for byte in data[at : at + count]) + data[at + count :]


FILES = [
    Case(
        "the file is not there",
        nothing("corpsu.jsonl", "corpus.jsonl", "queries.jsonl"),
        documents,
        r"corpsu.jsonl does not exist; did you mean corpus.jsonl\?",
    ),
    Case("its folder is not there either", nothing("nowhere/corpus.jsonl"), documents, "check the path: the folder .*nowhere does not"),
    Case("a folder where a file belongs", folder(corpus_jsonl="{}"), queries, "is a folder, not a file; name one"),
    Case("a pipe, socket or device", pipe, documents, "is not a regular file .*; save it to a file first"),
    Case("a file that the system makes up", link("/proc/self/pagemap"), documents, "corpus.jsonl is a virtual file of the system; copy its content to a file first"),
    Case("a link to nothing", link("corpus-2.jsonl"), documents, "corpus.jsonl does not exist; it is a link to corpus-2.jsonl: put the file there"),
    Case("the file may not be read", corpus(GOOD), refused, "cannot be opened: Permission denied; run: chmod"),
    Case("the file is empty", corpus(), documents, "corpus.jsonl is empty; write it again"),
    Case("nothing but blank lines", corpus("", "  ", "\t"), documents, "corpus.jsonl is empty; write it again"),
    Case("a gzip file that was cut short", file("corpus.jsonl.gz", opened_gzip()), documents, "corpus.jsonl.gz:51: the compressed data ends too early; the file was cut short", 50),
    Case("gzip data damaged in the middle", file("corpus.jsonl.gz", opened_gzip() + b"\x07" + PACKED), documents, "corpus.jsonl.gz:1: the compressed data is damaged; download"),
    Case("a gzip checksum that does not match", file("corpus.jsonl.gz", flipped(PACKED, len(PACKED) - 8)), documents, "corpus.jsonl.gz:51: the gzip checksum does not match; download", 50),
    Case("something else behind the gzip data", file("corpus.jsonl.gz", PACKED + b"<html>"), documents, "corpus.jsonl.gz:51: the compressed data is damaged", 50),
    Case("a zstd file that was cut short", file("corpus.jsonl.zst", ZSTD[:-100]), documents, "corpus.jsonl.zst:1: the compressed data ends too early"),
    Case("damaged zstd data", file("corpus.jsonl.zst", flipped(ZSTD, 6, 3)), documents, "corpus.jsonl.zst:1: the compressed data is damaged"),
    Case("compressed data that grows beyond all measure", file("corpus.jsonl.zst", BOMB), documents, "corpus.jsonl.zst:5: the data unpacks to more than 200 times its size; unpack it yourself", 4),
    Case("compressed by a program that Triever does not read", file("corpus.jsonl.bz2", b"BZh91AY&SY"), documents, "is compressed with bzip2; run: bunzip2"),
    Case("an archive", file("corpus.zip", b"PK\x03\x04\x14\0"), documents, "is a zip archive; unpack it first"),
    Case("a web page in place of the download", file("corpus.jsonl", "<!DOCTYPE html>\n<title>Sign in"), documents, "is a web page, not data; the download"),
    Case("a Git LFS pointer in place of the file", file("corpus.jsonl", "version https://git-lfs.github.com/spec/v1\n"), documents, "is a Git LFS pointer, not the data; run: git lfs pull"),
    Case("a format that Triever does not know", file("corpus.dat", "Dear Sir or Madam,\n"), documents, "corpus.dat is not in a format that Triever knows; known formats:"),
    Case("a binary file", file("corpus.bin", bytes(range(8)) * 9), documents, "corpus.bin:1: there is a NUL byte at column 1; the file may be UTF-16 or binary"),
]  # fmt: skip

TEXT = [
    Case("Latin-1 text", corpus(GOOD, '{"_id": "d2", "text": "caf\xe9"}'.encode("latin-1")), documents, "corpus.jsonl:2: byte 0xe9 at column 27 is not UTF-8; .*iconv -f LATIN1", 1),
    Case("UTF-16 text", file("corpus.jsonl", json.dumps(GOOD).encode("utf-16")), documents, "corpus.jsonl is UTF-16, not UTF-8; convert it: iconv"),
    Case("UTF-32 text", file("corpus.jsonl", json.dumps(GOOD).encode("utf-32")), documents, "corpus.jsonl is UTF-32, not UTF-8; convert it: iconv"),
    Case("a NUL byte", corpus(GOOD, b'{"_id": "d2", "text": "a\0b"}'), documents, "corpus.jsonl:2: there is a NUL byte at column 25", 1),
    Case("an escaped NUL", corpus(GOOD, r'{"_id": "d2", "text": "a\u0000b"}'), documents, r"corpus.jsonl:2: the escape \\u0000 is not text", 1),
    Case("half of a surrogate pair", corpus(GOOD, r'{"_id": "d2", "text": "\ud83d"}'), documents, r"corpus.jsonl:2: the escape \\ud83d is not text", 1),
    Case("more than a million blank lines", corpus(GOOD, "\n" * 10**6), documents, "corpus.jsonl:1000002: more than 1,000,000 blank lines; remove them", 1),
    Case("a line of more than 16 MiB", corpus(GOOD, '{"_id": "d2", "text": "' + "x" * MAX_LINE + '"}'), documents, "corpus.jsonl:2: the line is longer than 16 MiB; split", 1),
]  # fmt: skip

JSON = [
    Case("invalid JSON", corpus(GOOD, '{"_id": "d2" "text": "x"}'), documents, "corpus.jsonl:2: invalid JSON at column 14: Expecting ',' delimiter; write one", 1),
    Case("invalid JSON in the first line", corpus('{"_id": "d1', GOOD), documents, "corpus.jsonl:1: invalid JSON at column 9: Unterminated string starting at; write one JSON object per line; if the file was cut short, copy it again", 1),
    Case("two objects on one line", corpus(GOOD, '{"_id": "d2", "text": "x"}{"_id": "d3", "text": "y"}'), documents, "corpus.jsonl:2: invalid JSON at column 27: Extra data", 1),
    Case("an object over several lines", file("corpus.jsonl", json.dumps(GOOD, indent=1)), documents, "corpus.jsonl:1: invalid JSON at column 2: Expecting property name"),
    Case("JSON that is not an object", corpus(GOOD, '["d2", "x"]'), documents, "corpus.jsonl:2: the record is a list, not a JSON object", 1),
    Case("the same in the first line", corpus('["d1", "x"]', GOOD), documents, "corpus.jsonl:1: the record is a list, not a JSON object", 1),
    Case("JSON of too many values", corpus(GOOD, '{"_id": "d2", "text": "x", "a": [' + "1," * 2_100_000 + "1]}"), documents, "corpus.jsonl:2: the JSON holds more than 2,097,152 values; split the record", 1),
    Case("JSON nested too deeply", corpus(GOOD, '{"_id": "d2", "text": "x", "metadata": ' + "[" * 100_000 + "]" * 100_000 + "}"), documents, "corpus.jsonl:2: the JSON is nested too deeply", 1),
    Case("a number of 5,000 digits", corpus(GOOD, f'{{"_id": {"7" * 5000}, "text": "x"}}'), documents, "corpus.jsonl:2: invalid JSON: a number has too many digits", 1),
    Case("NaN in JSON", corpus(GOOD, '{"_id": "d2", "text": "x", "price": NaN}'), documents, "corpus.jsonl:2: invalid JSON: NaN is not a JSON number; leave the field out", 1),
    Case("infinity in JSON", corpus(GOOD, '{"_id": "d2", "text": "x", "price": 1e999}'), documents, "corpus.jsonl:2: invalid JSON: 1e999 is not a JSON number", 1),
    Case("a JSON list that was cut short", file("corpus.json", json.dumps([GOOD, changed(GOOD, _id="d2")])[:-9]), documents, "corpus.json:1: the JSON ends too early; the file was cut short", 1),
    Case("a JSON list with something that is not an object", file("corpus.json", json.dumps([GOOD, 7])), documents, "corpus.json:1: the record is a number, not a JSON object", 1),
    Case("a broken item in a JSON list", file("corpus.json", f'[\n{json.dumps(GOOD)},\n{{"_id": d2, "text": "x"}}\n]' + " " * 99), documents, "corpus.json:3: invalid JSON near .*: Expecting value", 1),
]  # fmt: skip

RECORDS = [
    Case("no id", corpus(GOOD, {"text": "x"}), documents, "corpus.jsonl:2: the id is missing; give every record an id", 1),
    Case("no field that Triever knows", corpus({"name": "x"}), documents, "corpus.jsonl:1: the id is missing", 0),
    Case("an empty id", corpus(GOOD, {"_id": " ", "text": "x"}), documents, "corpus.jsonl:2: the id is empty; give every record", 1),
    Case("an id that is null", corpus(GOOD, {"_id": None, "text": "x"}), documents, "corpus.jsonl:2: the id is missing", 1),
    Case("an id that is a fraction", corpus(GOOD, {"_id": 1.5, "text": "x"}), documents, "corpus.jsonl:2: the id is a fraction; ids are", 1),
    Case("an id that is true or false", corpus(GOOD, {"_id": True, "text": "x"}), documents, "corpus.jsonl:2: the id is true or false; ids are", 1),
    Case("an id that is a list", corpus(GOOD, {"_id": ["d2"], "text": "x"}), documents, "corpus.jsonl:2: the id is a list; ids are", 1),
    Case("an id with a tab", corpus(GOOD, {"_id": "d\t2", "text": "x"}), documents, r"corpus.jsonl:2: the id 'd\\t2' holds a tab or line break; put an underscore", 1),
    Case("an id with a line break", corpus(GOOD, {"_id": "d\u20282", "text": "x"}), documents, r"corpus.jsonl:2: the id 'd\\u20282' holds a tab or line break", 1),
    Case("the same document id twice", corpus(GOOD, changed(GOOD, text="other")), documents, "corpus.jsonl:2: a second document with the id d1; give every record", 1),
    Case("a document without text and title", corpus(GOOD, {"_id": "d2", "url": "x"}), documents, "corpus.jsonl:2: the document has neither text nor title, only url; a document looks like", 1),
    Case("text that is not a string", corpus(GOOD, {"_id": "d2", "text": 7}), documents, "corpus.jsonl:2: text is a number, not a string; write text", 1),
    Case("a title that is not a string", corpus(GOOD, {"_id": "d2", "text": "x", "title": ["y"]}), documents, "corpus.jsonl:2: title is a list, not a string", 1),
    Case("metadata that is not an object", corpus(GOOD, {"_id": "d2", "text": "x", "metadata": [1]}), documents, "corpus.jsonl:2: metadata is a list, not an object", 1),
    Case("a query without text", asked({"_id": "q1", "text": "x"}, {"_id": "q2"}), queries, "queries.jsonl:2: the query has no text; a query looks like", 1),
    Case("the same query id twice", asked({"_id": "q1", "text": "x"}, {"_id": "q1", "text": "y"}), queries, "queries.jsonl:2: a second query with the id q1", 1),
    Case("answers that are not strings", asked({"_id": "q1", "text": "x"}, {"_id": "q2", "text": "y", "answers": [1998]}), queries, "queries.jsonl:2: answers is not a list of strings", 1),
    Case("expansions without texts", lines("more.jsonl", '{"_id": "d1", "texts": ["x"]}', '{"_id": "d2"}'), expansions, "more.jsonl:2: the record has no texts; expansions look like", 1),
]  # fmt: skip

TABLES = [
    Case("a line with one column in a collection", lines("collection.tsv", "1\tcats", "2 dogs"), documents, "collection.tsv:2: the line has 1 column instead of 2; tab-separated columns are: id, text", 1),
    Case("a line with three columns in a collection", lines("collection.tsv", "1\tcats", "2\tdogs\tbirds"), documents, "collection.tsv:2: the line has 3 columns instead of 2", 1),
    Case("a column is missing in MS MARCO's documents", lines("docs.tsv", "D1\thttp://a\tA\tcats", "D2\thttp://b\tB"), documents, "docs.tsv:2: the line has 3 columns instead of 4; .* id, address, title, body", 1),
    Case("a column is missing below a header", lines("psgs.tsv", "id\ttext\ttitle", "1\tcats\tCats", "2\tdogs"), documents, "psgs.tsv:3: the line has 2 columns instead of 3; .* id, text, title", 1),
    Case("a column is missing in CSV", lines("docs.csv", "id,text,title", "1,cats,Cats", "2,dogs"), documents, "docs.csv:3: the line has 2 columns instead of 3; comma-separated columns are: id, text, title", 1),
    Case("a quoted cell that is not closed", lines("docs.csv", "id,text", "1,cats", '2,"dogs'), documents, 'docs.csv:3: a quoted cell is not closed; write quotes inside', 1),
    Case("a missing id in a table", lines("collection.tsv", "1\tcats", "\tdogs"), documents, "collection.tsv:2: the id is empty", 1),
    Case("a table without columns of ids and texts", file("docs.csv", "Ticket Nr,Betreff\n1,x\n"), documents, "docs.csv has no columns with ids and texts: its columns are Ticket Nr, Betreff; name its columns"),
    Case("a table without a column of texts", file("docs.csv", "ID,Subject,Message\n1,x,y\n"), documents, "docs.csv has no columns with texts: its columns are ID, Subject, Message; name its columns"),
    Case("Parquet without a column of ids", parquet({"key": ["d1"], "text": ["x"]}), documents, "corpus.parquet has no columns with ids and texts; name its columns"),
    Case("Parquet with text of a wrong type", parquet({"_id": ["d1"], "text": [7]}), documents, "the column text has the type int64; write it as strings"),
    Case("Parquet with ids of a wrong type", parquet({"_id": [0.5], "text": ["x"]}), documents, "the column _id has the type double; ids are strings or whole numbers"),
    Case("Parquet with an id that is null", parquet({"_id": ["d1", None], "text": ["x", "y"]}), documents, "corpus.parquet:2: the id is missing", 1),
    Case("Parquet with text that is not UTF-8", parquet({"_id": ["d1", "d2"], "text": strings(b"x", b"caf\xe9")}), documents, "corpus.parquet:2: text holds the byte 0xe9, which is not UTF-8; write the column again", 1),
    Case("Parquet with an id that is not UTF-8", parquet({"_id": strings(b"d1", b"d\xff"), "text": ["x", "y"]}), documents, "corpus.parquet:2: _id holds the byte 0xff, which is not UTF-8; write the column again", 1),
    Case("Parquet with half a surrogate pair", parquet({"_id": ["d1", "d2"], "text": strings(b"x", b"\xed\xa0\x80")}), documents, "corpus.parquet:2: text holds the byte 0xed, which is not UTF-8", 1),
    Case("Parquet with a NUL in a list", parquet({"_id": ["q1", "q2"], "text": ["x", "y"], "answers": [["a"], ["b\0"]]}), queries, "corpus.parquet:2: answers holds a NUL character; remove it", 1),
    Case("Parquet with a column whose name is not UTF-8", renamed, documents, "corpus.parquet: the name of a column is not UTF-8; write the file again with other names"),
    Case("Parquet with a row beyond all measure", parquet({"_id": ["d1", "d2"], "text": ["x", "y" * (MAX_LINE + 1)]}), documents, "corpus.parquet:2: the row is longer than 16 MiB; split the document", 1),
    Case("a table of too many columns", lines("docs.csv", "id,text" + ",x" * 20_000, "1,cats"), documents, "docs.csv:1: the table has more than 10,000 columns; leave out", 0),
    Case("a line of too many columns", lines("collection.tsv", "1\tcats", "2\tdogs" + "\tx" * 20_000), documents, "collection.tsv:2: the line has more than 10,000 columns instead of 2", 1),
    Case("a Parquet file that was cut short", parquet({"_id": ["d1"], "text": ["x"]}, cut=7), documents, "corpus.parquet has no readable Parquet footer; the file was cut short"),
]  # fmt: skip

TREC = [
    Case("too few columns in qrels", lines("qrels.txt", "q1 0 d1 1", "q1 d2"), qrels, "qrels.txt:2: the line has 2 columns instead of 3 or 4; columns are: query 0 document grade", 1),
    Case("a relevance that is not a number", lines("qrels.txt", "q1 0 d1 1", "q1 0 d2 yes"), qrels, "qrels.txt:2: the relevance 'yes' is not a whole number", 1),
    Case("a relevance that is a fraction", lines("qrels.tsv", "query-id\tcorpus-id\tscore", "q1\td1\t1.0", "q1\td2\t0.5"), qrels, "qrels.tsv:3: the relevance '0.5' is not a whole number", 1),
    Case("a relevance of NaN", lines("qrels.txt", "q1 0 d1 1", "q1 0 d2 nan"), qrels, "qrels.txt:2: the relevance 'nan' is not a whole number", 1),
    Case("a relevance beyond all measure", lines("qrels.txt", "q1 0 d1 1", "q1 0 d2 99999999999"), qrels, "qrels.txt:2: the relevance 99999999999 is too large", 1),
    Case("the same pair judged twice", lines("qrels.txt", "q1 0 d1 1", "q1 0 d1 2"), qrels, "qrels.txt:2: d1 is judged twice for query q1; keep one", 1),
    Case("a run where qrels belong", lines("x.run", "q1 Q0 d1 1 2.5 bm25"), qrels, "x.run is a TREC run .*, not qrels; name the file"),
    Case("qrels where documents belong", lines("qrels.txt", "q1 0 d1 1"), documents, "qrels.txt is TREC or BEIR qrels .*, not documents; name the file"),
    Case("too few columns in a run", lines("x.run", "q1 Q0 d1 1 2.5 bm25", "q1 Q0 d2 2 1.5"), run, "x.run:2: the line has 5 columns instead of 6; columns are: query Q0 document rank score tag", 1),
    Case("a score of NaN", lines("x.run", "q1 Q0 d1 1 2.5 bm25", "q1 Q0 d2 2 nan bm25"), run, "x.run:2: the score 'nan' is not a finite number", 1),
    Case("an infinite score", lines("x.run", "q1 Q0 d1 1 2.5 bm25", "q1 Q0 d2 2 -inf bm25"), run, "x.run:2: the score '-inf' is not a finite number", 1),
    Case("a score that is not a number", lines("x.run", "q1 Q0 d1 1 2.5 bm25", "q1 Q0 d2 2 high bm25"), run, "x.run:2: the score 'high' is not a finite number", 1),
    Case("the same document twice for a query", lines("x.run", "q1 Q0 d1 1 2.5 bm25", "q1 Q0 d1 2 1.5 bm25"), run, "x.run:2: d1 is retrieved twice for query q1; keep one", 1),
    Case("a topic that is not closed", lines("topics.txt", "<top>", "<num> 1", "<title> a", "<top>", "<num> 2", "<title> b", "</top>"), queries, "topics.txt:1: a <top> has no </top>", 1),
    Case("a topic beyond all measure", lines("topics.txt", "<top>", "<num> 1", "<title> a", "</top>", "<top>", "<num> 2", *["x" * 2**20] * 17, "</top>"), queries, "topics.txt:5: the topic is longer than 16 MiB", 1),
    Case("a character by a number of 5,000 digits", lines("topics.txt", "<top>", "<num> 1", "<title> a", "</top>", "<top>", "<num> 2", f"<title> &#{'9' * 5000};", "</top>"), queries, "topics.txt:5: a character's number has too many digits; write the character itself", 1),
    Case("a topic without number", lines("topics.txt", "<top>", "<num> 1", "<title> a", "</top>", "<top>", "<title> b", "</top>"), queries, "topics.txt:5: the topic has no <num>", 1),
    Case("a topic without title and description", lines("topics.txt", "<top>", "<num> 1", "<title> a", "</top>", "<top>", "<num> 2", "</top>"), queries, "topics.txt:5: the topic has neither <title> nor <desc>", 1),
]  # fmt: skip

QUESTIONS = [
    Case("SQuAD with an article without paragraphs", file("dev.json", json.dumps({"data": [SQUAD, {"title": "Dogs"}]})), documents, "dev.json:1: paragraphs is not a list of objects in article 2; expected SQuAD's layout", 1),
    Case("SQuAD with a question without text", file("dev.json", json.dumps({"data": [SQUAD, {"title": "Dogs", "paragraphs": [{"context": "A dog.", "qas": [{"id": "q2"}]}]}]})), queries, r"dev.json:1: question is not a string \(record 2 from this line on\); expected SQuAD's layout", 1),
    Case("a SQuAD file that was cut short", file("dev.json", json.dumps({"version": "1.1", "data": [SQUAD, SQUAD]})[:-40]), documents, "dev.json:1: the JSON ends too early", 1),
    Case("DPR data with a passage without text", file("train.json", json.dumps([DPR, changed(DPR, positive_ctxs=[{"passage_id": "8"}])])), documents, r"train.json:1: text is not a string \(record 2 from this line on\); expected DPR's layout", 1),
    Case("DPR data with answers that are no list", file("train.json", json.dumps([DPR, changed(DPR, answers="a cat")])), queries, "train.json:1: answers is not a list of strings.*; expected DPR's layout", 1),
    Case("a KILT page whose text is no list", lines("kilt.jsonl", json.dumps(PAGE), json.dumps(changed(PAGE, _id="8", text="A dog."))), documents, "kilt.jsonl:2: text is not a list of paragraphs; expected a page of KILT", 1),
    Case("a KILT task whose output is no list", lines("nq.jsonl", json.dumps(TASK), json.dumps(changed(TASK, id="q2", output="a cat"))), queries, "nq.jsonl:2: output is not a list of objects; expected an item of a KILT task", 1),
    Case("a line of DSI-QG without a docid", lines("dsi.json", DSI_LINE, '{"text_id": null, "text": "Question: x"}'), queries, "dsi.json:2: the text_id is missing; give every record an id", 1),
    Case("a line of DSI-QG without a text", lines("dsi.json", DSI_LINE, '{"text_id": 4, "text": []}'), queries, "dsi.json:2: the record has no text; a line looks like", 1),
    Case("a KILT task without input", lines("nq.jsonl", json.dumps(TASK), json.dumps(without(changed(TASK, id="q2"), "input"))), queries, "nq.jsonl:2: input is not a string", 1),
]  # fmt: skip

DATASETS = [
    Case("a folder without documents", folder(queries_jsonl='{"_id": "q1", "text": "What?"}\n', qrels__test_tsv="query-id\tcorpus-id\tscore\n"), dataset, "data holds no documents, only qrels/test.tsv .qrels., queries.jsonl .queries.; expected corpus.jsonl"),
    Case("an empty folder", nothing("data", "data/.hidden"), dataset, "data holds no documents, nothing readable; expected corpus.jsonl"),
    Case("a folder with a damaged corpus", lambda root: file("data/corpus.jsonl.gz", PACKED[:20])(root).parent, dataset, "corpus.jsonl.gz:1: the compressed data ends too early"),
    Case("a name that no dataset has", nothing("scifcat", "scifact/corpus.jsonl", "squad/corpus.jsonl"), named_dataset, r"there is no file, folder or dataset called scifcat; did you mean scifact\? known: python, scifact, squad"),
    Case("a split that the dataset does not have", folder(corpus_jsonl=json.dumps(GOOD), queries_jsonl='{"_id": "q1", "text": "What?"}', qrels__test_tsv="query-id\tcorpus-id\tscore\nq1\td1\t1\n"), split, r"data has no split 'tset'; did you mean test\?"),
    Case("a text file of an unknown encoding", beside("b.txt", "A cat.\nКошка.".encode("cp1251")), dataset, "b.txt:2: byte 0xca at column 1 is not UTF-8, and its encoding is not certain; .*skip-bad", 1),
    Case("a text file with a NUL byte", beside("b.txt", b"A\0cat."), dataset, "b.txt:1: the text holds a NUL byte; .*skip-bad", 1),
    Case("a text file of more than 16 MiB", beside("b.txt", "x" * (MAX_LINE + 1)), dataset, "b.txt:1: the file is larger than 16 MiB; split .*skip-bad", 1),
    Case("a PDF that is damaged", beside("b.pdf", b"%PDF-1.4\n%%EOF"), dataset, "b.pdf:1: the PDF is damaged; open it .*skip-bad", 1),
    Case("a web archive that was cut short", beside("b.warc", archive(CAPTURED, CAPTURED)[:-99]), dataset, "b.warc:2: the archive ends in the middle of a record; the file was cut short: download or copy it again, or keep what comes before with --skip-bad", 2),
    Case("a compressed web archive that was cut short", beside("b.warc.gz", archive(CAPTURED, CAPTURED, gzip=True)[:-99]), dataset, "b.warc.gz:2: the compressed data ends too early; the file was cut short: download or copy it again, or keep what comes before with --skip-bad", 2),
    Case("a web archive with a wrong length", beside("b.warc", archive(CAPTURED, CAPTURED).replace(b"Content-Length: 53", b"Content-Length: 43")), dataset, "b.warc:2: no record begins here: .*; download or copy the file again, or keep", 2),
    Case("a file that is no web archive", beside("b.warc", "A cat."), dataset, "b.warc:1: no record begins here: .*; download or copy the file again, or leave it out with --skip-bad", 1),
    Case("a page of an unknown encoding in a web archive", beside("b.warc", archive(CAPTURED, Captured("https://example.org/b", "Кошка.".encode("cp1251")))), dataset, "b.warc:2: https://example.org/b: byte 0xca at column 1 is not UTF-8, and its encoding is not certain; take the page out .*skip-bad", 2),
    Case("a Word document that is damaged", beside("b.docx", b"PK\x03\x04"), dataset, "b.docx:1: the file is not a Word document, or is damaged; .*skip-bad", 1),
    Case("a Word document with a password", beside("b.docx", b"\xd0\xcf\x11\xe0"), dataset, "b.docx:1: the document has a password, or is a .doc; .*skip-bad", 1),
]  # fmt: skip

CASES = [*FILES, *TEXT, *JSON, *RECORDS, *TABLES, *TREC, *QUESTIONS, *DATASETS]
SECTIONS = {
    "Files": FILES,
    "Text": TEXT,
    "JSON": JSON,
    "Records": RECORDS,
    "Tables": TABLES,
    "TREC's formats": TREC,
    "Questions with passages": QUESTIONS,
    "Datasets": DATASETS,
}

INTRODUCTION = f"""# What Triever says about bad input

Every message is made of two halves: what is wrong, with its file and line where there is one, and what to do
about it. Reading stops at the first bad record; with `--skip-bad` (or `skip_bad=True`) bad records are counted
and left out, and reading goes on. This page is made by running all {len(CASES)} cases of `tests/bad_input.py`."""


def message(case: Case) -> str:
    """What a person sees, without the temporary folder."""
    with tempfile.TemporaryDirectory() as root:
        try:
            case.read(case.make(Path(root)), Problems())
        except TrieverError as error:
            return re.sub(re.escape(root) + "/?", "", str(error))
    raise AssertionError(f"{case.what}: nothing was said")


def render() -> str:
    """The page docs/bad-input.md."""
    return "\n\n".join([INTRODUCTION, *(_section(name, cases) for name, cases in SECTIONS.items())]) + "\n"


def _section(name: str, cases: Iterable[Case]) -> str:
    rows = [f"| {case.what} | `{message(case).replace('|', chr(92) + '|')}` |" for case in cases]
    return "\n".join(
        [f"## {name}", "", "| what is wrong with the input | what a person sees |", "| --- | --- |", *rows]
    )


if __name__ == "__main__":
    print(render(), end="")
