"""Large JSON values, item by item: nothing is lost at the borders of chunks, and memory stays flat."""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.data.formats import json_items, lines
from triever.data.formats.json_items import first_item, read_items
from triever.data.formats.problems import Problems
from triever.errors import BadRecord, Flaw

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NUMBER = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=9,
)


def write(folder: str | Path, text: str) -> Path:
    path = Path(folder, "x.json")
    path.write_text(text, encoding="utf-8")
    return path


@given(
    items=st.lists(VALUE),
    before=st.dictionaries(TEXT.filter(lambda key: key != "data"), VALUE, max_size=2),
    wrapped=st.booleans(),
    indent=st.none() | st.integers(0, 2),
    ascii_only=st.booleans(),
    chunk=st.integers(1, 40),
)
def test_items_come_back_whatever_the_layout(
    items: list[Any], before: dict[str, Any], wrapped: bool, indent: int | None, ascii_only: bool, chunk: int
) -> None:
    value = {**before, "data": items, "version": 1.1} if wrapped else items
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK", chunk)
        patch.setattr(json_items, "CHUNK", chunk)
        path = write(folder, json.dumps(value, indent=indent, ensure_ascii=ascii_only))
        assert [item for _, item in read_items(path, Problems())] == items
        shape, first = first_item(path)
    assert (shape, first) == ("data" if wrapped else "array", items[0] if items else None)


def test_every_item_knows_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, '{"version":\n1, "data": [\n{"a": "x"},\n\n{"b":\n "y"}, {"c": 1}\n]}')
    assert list(read_items(path, Problems())) == [(3, {"a": "x"}), (5, {"b": "y"}), (6, {"c": 1})]


def test_a_large_file_is_read_in_flat_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with open(path, "w") as file:
        file.write('{"data": [')
        file.writelines(("," if n else "") + json.dumps({"n": n, "text": "word " * 2000}) for n in range(4000))
        file.write("]}")
    assert path.stat().st_size > 40_000_000
    tracemalloc.start()
    count = sum(1 for _ in read_items(path, Problems()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 4000
    assert peak < 12_000_000


def test_an_item_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHUNK", 10)
    monkeypatch.setattr(json_items, "CHUNK", 10)
    monkeypatch.setattr(json_items, "MAX_LINE", 100)
    path = write(tmp_path, json.dumps([{"text": "short"}, {"text": "x" * 1000}]))
    with pytest.raises(BadRecord, match="JSON item is longer than"):
        list(read_items(path, Problems()))


@pytest.mark.parametrize("text", ["[1, 2", "[1, 2,", '[{"a": 1}, {"a', '{"data": [1', '{"data"'])
def test_what_is_cut_short_says_so(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match="the JSON ends too early"):
        list(read_items(write(tmp_path, text), Problems()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1 2]" + " " * 50, "invalid JSON: '2' instead of , or ]"),
        ("[1, x, 2]" + " " * 50, "invalid JSON near 'x, 2"),
        ('{"a": 1}', 'has no "data" list'),
        ("[1] 2", "there is more text after the JSON list"),
        ("7", r"invalid JSON: '7' instead of \["),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match=said):
        list(read_items(write(tmp_path, text), Problems()))


def test_lenient_reading_keeps_what_came_before(tmp_path: Path) -> None:
    problems = Problems(skip_bad=True)
    path = write(tmp_path, '[{"a": 1}, {"a": 2}, {"a": }]' + " " * 50)
    assert [item for _, item in read_items(path, problems)] == [{"a": 1}, {"a": 2}]
    assert problems.count == 1


@pytest.mark.parametrize("text", ["{[[1]]: 2}", "{7: 1}", "{" + "[" * 900 + "]" * 900 + ": 1}"])
def test_a_key_is_a_string(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match=r'invalid JSON: .* instead of "; check the file'):
        list(read_items(write(tmp_path, text), Problems()))


def test_deep_items_with_escapes_are_told(tmp_path: Path) -> None:
    """The escape makes the strings be looked at, for which the item is too deep."""
    path = write(tmp_path, "[" + "[" * 900 + r'"\ud83d\ude00"' + "]" * 901)
    with pytest.raises(BadRecord, match="nested too deeply; flatten the record"):
        list(read_items(path, Problems()))


def test_an_object_beyond_the_limit_is_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_items, "MAX_LINE", 100)
    path = write(tmp_path, json.dumps({f"key {n}": "x" * 50 for n in range(10)}))
    with pytest.raises(Flaw, match="JSON object is longer than"):
        first_item(path)
