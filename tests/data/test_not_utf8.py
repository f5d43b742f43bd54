"""Parquet declares strings and checks nothing: what is no text is a bad record, wherever in a row it stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from triever.data.readers import Problems, read_documents, read_qrels, read_queries
from triever.errors import BadRecord, DataError

GOOD = pa.array(["d1", "d2", "d3"])
BAD = {"Latin-1": b"caf\xe9", "half a surrogate pair": b"\xed\xa0\x80", "NUL": b"a\0b", "cut short": b"a\xe2\x82"}


def strings(*values: bytes | None) -> pa.Array:
    """A column that says it is text."""
    return pa.array(values, pa.binary()).view(pa.string())


def lists(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)


def texts(bad: bytes) -> pa.Array:
    return strings(b"a", bad, b"c")


Make = Callable[[bytes], dict[str, Any]]
DOCUMENTS: dict[str, Make] = {
    "id": lambda bad: {"_id": texts(bad), "text": GOOD},
    "title": lambda bad: {"_id": GOOD, "title": texts(bad), "text": GOOD},
    "text": lambda bad: {"_id": GOOD, "text": texts(bad)},
    "dictionary": lambda bad: {"_id": GOOD, "text": texts(bad).dictionary_encode()},
    "expansions": lambda bad: {"_id": GOOD, "text": GOOD, "expansions": lists(texts(bad))},
    "metadata": lambda bad: {"_id": GOOD, "text": GOOD, "metadata": strings(None, b'{"a": "%b"}' % bad, None)},
    "structure": lambda bad: {"_id": GOOD, "text": GOOD, "metadata": pa.StructArray.from_arrays([texts(bad)], ["a"])},
}
QUERIES: dict[str, Make] = {
    "answers": lambda bad: {"_id": GOOD, "text": GOOD, "answers": lists(texts(bad))},
    "evidence": lambda bad: {"_id": GOOD, "text": GOOD, "evidence": lists(lists(texts(bad)))},
    "question of SQuAD": lambda bad: {
        "id": GOOD,
        "title": GOOD,
        "context": GOOD,
        "question": texts(bad),
        "answers": pa.StructArray.from_arrays([lists(GOOD)], ["text"]),
    },
}
CASES = [(make, read_documents) for make in DOCUMENTS.values()] + [(make, read_queries) for make in QUERIES.values()]


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize(("make", "read"), CASES, ids=[*DOCUMENTS, *QUERIES])
def test_it_is_told_with_its_row_and_left_out(make: Make, read: Any, bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(make(bad)), path)
    with pytest.raises(BadRecord, match=r"x\.parquet:2: .*; "):
        list(read(path))
    problems = Problems(skip_bad=True)
    assert len(list(read(path, problems))) == 2
    assert problems.count == 1


def test_a_judgement_is_told_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "qrels.parquet"
    pq.write_table(pa.table({"query-id": texts(b"\xff"), "corpus-id": GOOD, "score": [1, 1, 1]}), path)
    with pytest.raises(BadRecord, match=r"qrels\.parquet:2: query-id holds the byte 0xff, which is not UTF-8; write"):
        read_qrels(path)
    assert read_qrels(path, Problems(skip_bad=True)) == {"a": {"d1": 1}, "c": {"d3": 1}}


def test_the_name_of_a_column(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"_id": GOOD, "text": GOOD, "other": GOOD}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"other", b"\xff\xfeher"))
    with pytest.raises(DataError, match=r"x\.parquet: the name of a column is not UTF-8; write the file again"):
        read_documents(path)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(1)])
def test_a_column_of_bytes_is_no_text(kind: pa.DataType, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"_id": GOOD, "text": pa.array([b"a", b"\xff", b"c"], kind)}), path)
    with pytest.raises(DataError, match=r"the column text has the type .*binary.*; write it as strings"):
        read_documents(path)


def test_values_that_python_or_json_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    far = pa.array([1, 2**62, 3], pa.timestamp("ns"))
    pq.write_table(pa.table({"_id": GOOD, "text": GOOD, "metadata": pa.StructArray.from_arrays([far], ["when"])}), path)
    problems = Problems(skip_bad=True)
    assert list(read_documents(path, problems)) == []
    assert problems.count == 3
