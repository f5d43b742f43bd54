"""Memory that is counted and memory that is computed, each against Python's and NumPy's own word."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triever.memory_parts import (
    ENTRY,
    PARTS,
    Product,
    Size,
    about,
    computed,
    counted,
    dict_size,
    fitted,
    inside,
    part_sizes,
    python_bytes,
    readable,
    scaled,
    weight_products,
    weights_in,
    width_of,
)


def test_arrays_tensors_and_numbers_are_counted_once_each() -> None:
    array, tensor = np.zeros((3, 5), np.float32), torch.zeros(7, dtype=torch.int64)
    assert counted([array, tensor, 100]) == Size(3 * 5 * 4 + 7 * 8 + 100)
    assert counted([array, array, array.view()]).bytes == 60
    assert counted([torch.from_numpy(array), torch.from_numpy(array)]).bytes == 60
    assert counted([np.zeros(0), torch.zeros(0)]) == Size(0)


def test_what_is_mapped_from_a_file_is_told_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10.0))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    found = counted([mapped, np.asarray(mapped)[:5], np.arange(4)])
    assert (found.bytes, found.mapped, found.memory) == (80 + 40 + 32, 80 + 40, 32)


def test_lists_and_dicts_are_counted_with_what_is_in_them() -> None:
    texts = ["one", "two", "three"]
    rows = {text: 1000 + at for at, text in enumerate(texts)}
    own = sum(map(sys.getsizeof, texts))
    assert python_bytes(texts) == sys.getsizeof(texts) + own
    assert python_bytes(texts, rows) == sys.getsizeof(texts) + own + sys.getsizeof(rows) + 3 * sys.getsizeof(1000)
    assert python_bytes([(1, 2), (3, 256)]) == sys.getsizeof([1, 2]) + 2 * sys.getsizeof((1, 2)), "small numbers"


@pytest.mark.parametrize("text", ["école", "東京 tower", "fox 🦊", "plain"])
def test_what_python_keeps_beside_a_text_is_not_counted(text: str) -> None:
    fresh = "".join(list(text))
    before, least = python_bytes([fresh]), sys.getsizeof([fresh]) + sys.getsizeof(fresh)
    ctypes.pythonapi.PyUnicode_AsUTF8(ctypes.py_object(fresh))
    assert python_bytes([fresh]) == before == least


@pytest.mark.parametrize("count", [0, 1, 5, 6, 10, 11, 170, 171, 1000, 5461, 5462, 43_690, 43_691, 200_000])
def test_the_size_of_a_dict_is_known_without_making_one(count: int) -> None:
    by_text = {str(number): number for number in range(count)}
    by_tuple = {(number, number): number for number in range(count)}
    if count:
        assert dict_size(count) == pytest.approx(sys.getsizeof(by_text), abs=64)
        assert dict_size(count, ENTRY) == pytest.approx(sys.getsizeof(by_tuple), abs=64)


def test_a_product_is_shown_with_its_numbers() -> None:
    assert str(Product(10**7, "documents", 1536, "384 numbers of 4")) == (
        "10,000,000 documents × 1,536 bytes (384 numbers of 4)"
    )
    assert str(Product(3, "letters", 1)) == "3 letters × 1 byte"
    assert computed([Product(3, "letters", 2), Product(5, "words", 10)]) == 3 * 2 + 5 * 10


def test_weights_are_counted_by_their_types() -> None:
    module = torch.nn.Linear(3, 4)
    module.register_buffer("places", torch.arange(5))
    module.half_sized = torch.nn.Parameter(torch.zeros(2, dtype=torch.float16))
    products = weight_products(weights_in(module, None))
    assert [(one.count, one.noun, one.size) for one in products] == [
        (3 * 4 + 4, "parameters", 4),
        (2, "parameters", 2),
        (5, "other numbers", 8),
    ]
    assert computed(products) == counted(weights_in(module)).bytes


def test_counts_grow_with_documents_and_numbers_with_counts() -> None:
    assert scaled(12, 4, 4) == 12
    assert scaled(12, 4, 400) == 1200
    assert scaled(7, 0, 100) == 7, "nothing is known of how it grows"
    assert (width_of(2**31 - 1), width_of(2**31)) == (4, 8)


@given(st.dictionaries(st.integers(1, 10**6), st.integers(0, 10**12), min_size=2, max_size=6))
def test_the_line_is_the_one_of_least_squares(sizes: dict[int, int]) -> None:
    each, fixed = np.polyfit([*sizes], [*sizes.values()], 1)
    line = fitted(sizes)
    slack = 1e-4 * max(sizes.values()) + 1
    for documents in sizes:
        assert line.at(documents) == pytest.approx(fixed + each * documents, rel=1e-4, abs=slack)


def test_parts_have_names_that_are_known_also_inside_others() -> None:
    assert about("first: postings") is PARTS["postings"]
    assert inside("bm25 1", {"terms": 3}) == {"bm25 1: terms": 3}
    with pytest.raises(KeyError):
        about("postage")
    assert part_sizes({"trie": [np.zeros(3)], "changes": []}) == {"trie": Size(24)}


def test_bytes_are_readable() -> None:
    said = [readable(size) for size in (0, 999, 1000, 99_949, 123_456_789, 1.5e12, 5e18)]
    assert said == ["0 bytes", "999 bytes", "1.00 kB", "99.9 kB", "123 MB", "1.50 TB", "5,000 PB"]
