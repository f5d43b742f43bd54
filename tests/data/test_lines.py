"""Bytes to lines: compression, line ends, encodings and bounded memory."""

from __future__ import annotations

import gzip
import tempfile
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.data.formats import lines
from triever.data.formats.lines import MAX_LINE, read_lines, read_text
from triever.data.formats.problems import Problems
from triever.errors import BadRecord

LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"), min_size=1).filter(str.strip)


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


def read(path: Path, content: bytes) -> list[tuple[int, str]]:
    path.write_bytes(content)
    return list(read_lines(path, Problems()))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
@given(rows=st.lists(LINE))
def test_lines_come_back_whatever_the_compression(pack: type, rows: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = read(Path(folder, "x"), pack("".join(row + "\n" for row in rows).encode()))
    assert [line for _, line in found] == rows
    assert [number for number, _ in found] == list(range(1, len(rows) + 1))


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_several_members_in_one_file_are_read_on(pack: type, tmp_path: Path) -> None:
    assert read(tmp_path / "x", pack(b"a\nb") + pack(b"c\nd\n")) == [(1, "a"), (2, "bc"), (3, "d")]


def test_padding_behind_gzip_data_is_ignored(tmp_path: Path) -> None:
    assert read(tmp_path / "x.gz", gzip.compress(b"a\n") + b"\0" * 512) == [(1, "a")]


def test_the_content_decides_not_the_name(tmp_path: Path) -> None:
    assert read(tmp_path / "plain.gz", b"a\n") == [(1, "a")]
    assert read(tmp_path / "packed.txt", gzip.compress(b"a\n")) == [(1, "a")]


def test_windows_files_are_read(tmp_path: Path) -> None:
    assert read(tmp_path / "x", b"\xef\xbb\xbfa\r\nb\r\n") == [(1, "a"), (2, "b")]


def test_blank_lines_count_but_are_left_out(tmp_path: Path) -> None:
    assert read(tmp_path / "x", b"a\n\n \t\nb") == [(1, "a"), (4, "b")]


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    text = "a\x0bb\x0cc\x1dd\x85e\u2028f\u2029g"
    assert read(tmp_path / "x", text.encode()) == [(1, text)]


def test_an_endless_line_is_skipped_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\n" + b"x" * 50_000_000 + b"\nb\n")
    problems = Problems(skip_bad=True)
    tracemalloc.start()
    found = list(read_lines(path, problems))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [(1, "a"), (3, "b")]
    assert problems.count == 1
    assert peak < 3 * MAX_LINE  # one line of the allowed length, while its parts are put together


def test_a_line_of_exactly_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 10)
    assert read(tmp_path / "x", b"x" * 10 + b"\n" + b"y" * 10) == [(1, "x" * 10), (2, "y" * 10)]
    with pytest.raises(BadRecord, match=":2: the line is longer"):
        read(tmp_path / "x", b"x\n" + b"y" * 11)


@given(text=st.text(st.characters(exclude_categories=["Cs"])), chunk=st.integers(1, 9))
def test_characters_may_lie_across_chunks(text: str, chunk: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK", chunk)
        path = Path(folder, "x")
        path.write_bytes(b"x" + text.encode())  # not at the start, where a byte order mark means something
        assert "".join(read_text(path, Problems())) == "x" + text


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"ab\nc\xffd", ":2: byte 0xff at column 2 "),
        ("äö".encode() + b"\xe9", ":1: byte 0xe9 at column 5 "),
        (b"abcdef\xc3", ":1: byte 0xc3 at column 7 "),
        (b"\n\n\xe2\x82x", ":3: byte 0xe2 at column 1 "),
    ],
)
def test_a_bad_byte_is_found_where_it_is(
    content: bytes, place: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "CHUNK", chunk)
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(BadRecord, match=place):
        list(read_text(path, Problems()))


def test_damage_costs_only_what_comes_after_it(tmp_path: Path) -> None:
    rows = b"".join(b"line %d of a long file\n" % number for number in range(100_000))
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(rows)[:-20])
    problems = Problems(skip_bad=True)
    assert len(list(read_lines(path, problems))) > 90_000
    assert problems.count == 1
    assert "ends too early, and the rest of the file is missing; the file was cut short" in problems.examples[0]
