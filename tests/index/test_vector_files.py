"""Files of vectors with ids, in every form that is read and written, and every way in which they can be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triever.errors import TrieverError
from triever.index.options import IndexOptions
from triever.index.vector_files import VectorFile, of_length_one, write_vectors
from triever.index.vectors import VectorIndex

IDS = ["tea", "bread", "größe", "東京", "two words", "7"]


def drawn(count: int = len(IDS), width: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def as_npy(folder: Path, ids: list[str], vectors: np.ndarray) -> VectorFile:
    np.save(folder / "v.npy", vectors)
    (folder / "names.txt").write_text("".join(f"{name}\n" for name in ids), encoding="utf-8")
    return VectorFile(str(folder / "v.npy"), str(folder / "names.txt"))


def as_npy_with_json(folder: Path, ids: list[str], vectors: np.ndarray) -> VectorFile:
    np.save(folder / "v.npy", vectors)
    (folder / "names.json").write_text(json.dumps(ids))
    return VectorFile(str(folder / "v.npy"), str(folder / "names.json"))


def as_parquet(folder: Path, ids: list[str], vectors: np.ndarray) -> VectorFile:
    pq.write_table(pa.table({"id": ids, "embedding": [*vectors]}), folder / "v.parquet")
    return VectorFile(str(folder / "v.parquet"))


def as_fixed_lists(folder: Path, ids: list[str], vectors: np.ndarray) -> VectorFile:
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    pq.write_table(pa.table({"text": ["x"] * len(ids), "_id": ids, "vector": column}), folder / "v.parquet")
    return VectorFile(str(folder / "v.parquet"))


def as_json_lines(folder: Path, ids: list[str], vectors: np.ndarray) -> VectorFile:
    """As pyserini.encode writes them."""
    rows = zip(ids, vectors.tolist(), strict=True)
    lines = [json.dumps({"id": key, "contents": "some text", "vector": vector}) for key, vector in rows]
    (folder / "v.jsonl").write_text("\n".join(lines))
    return VectorFile(str(folder / "v.jsonl"))


def as_index(folder: Path, ids: list[str], index: Any) -> VectorFile:
    faiss.write_index(index, str(folder / "v.faiss"))
    (folder / "v.ids.txt").write_text("".join(f"{name}\n" for name in ids), encoding="utf-8")
    return VectorFile(str(folder / "v.faiss"))


def filled(index: Any, vectors: np.ndarray) -> Any:
    if not index.is_trained:
        index.train(vectors)
    index.add(vectors)
    return index


def as_flat(folder: Path, ids: list[str], vectors: np.ndarray) -> VectorFile:
    return as_index(folder, ids, filled(faiss.IndexFlatIP(vectors.shape[1]), vectors))


def as_hnsw(folder: Path, ids: list[str], vectors: np.ndarray) -> VectorFile:
    graph = faiss.IndexHNSWFlat(vectors.shape[1], 4, faiss.METRIC_INNER_PRODUCT)
    return as_index(folder, ids, filled(graph, vectors))


def as_ivf(folder: Path, ids: list[str], vectors: np.ndarray) -> VectorFile:
    width = vectors.shape[1]
    lists = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, 2, faiss.METRIC_INNER_PRODUCT)
    return as_index(folder, ids, filled(lists, vectors))


def as_ivf_with_numbers(folder: Path, ids: list[str], vectors: np.ndarray) -> VectorFile:
    """The row n of faiss has the id of line 2n, and nothing has that of the other lines."""
    width = vectors.shape[1]
    lists = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, 2, faiss.METRIC_INNER_PRODUCT)
    lists.train(vectors)
    lists.add_with_ids(vectors, 2 * np.arange(len(ids)))
    return as_index(folder, [name for each in ids for name in (each, f"not {each}")], lists)


def as_numbered(folder: Path, ids: list[str], vectors: np.ndarray) -> VectorFile:
    index = faiss.IndexIDMap(faiss.IndexFlatIP(vectors.shape[1]))
    index.add_with_ids(vectors[::-1].copy(), np.arange(len(ids))[::-1].copy())
    return as_index(folder, ids, index)


def as_pyserini(folder: Path, ids: list[str], vectors: np.ndarray) -> VectorFile:
    faiss.write_index(filled(faiss.IndexFlatIP(vectors.shape[1]), vectors), str(folder / "index"))
    (folder / "docid").write_text("".join(f"{name}\n" for name in ids), encoding="utf-8")
    return VectorFile(str(folder))


FORMS: list[Callable[[Path, list[str], np.ndarray], VectorFile]] = [
    *(as_npy, as_npy_with_json, as_parquet, as_fixed_lists, as_flat, as_hnsw, as_ivf, as_ivf_with_numbers),
    *(as_numbered, as_pyserini, as_json_lines),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(len(IDS))), wanted=st.permutations(IDS))
def test_every_form_is_read_in_whatever_order(
    tmp_path: Path, form: Callable[..., VectorFile], order: list[int], wanted: list[str]
) -> None:
    vectors = drawn()
    file = form(tmp_path, [IDS[row] for row in order], vectors[order])
    taken = file.read().of(wanted)
    assert np.array_equal(taken, vectors[[IDS.index(name) for name in wanted]])


def test_numbers_of_faiss_are_ids_where_there_is_no_file_of_ids(tmp_path: Path) -> None:
    index = faiss.IndexIDMap(faiss.IndexFlatIP(8))
    index.add_with_ids(drawn(), np.array([5, 4, 3, 20, 1, 0]))
    faiss.write_index(index, str(tmp_path / "v.index"))
    read = VectorFile(str(tmp_path / "v.index")).read()
    assert read.ids == ["5", "4", "3", "20", "1", "0"]
    assert np.array_equal(read.array, drawn())


def test_vectors_in_order_stay_on_the_disk(tmp_path: Path) -> None:
    vectors = as_npy(tmp_path, IDS, drawn()).read().of(IDS)
    assert isinstance(vectors, np.memmap)


def test_an_index_by_distance_says_that_the_order_may_differ(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = as_index(tmp_path, IDS, filled(faiss.IndexFlatL2(8), drawn()))
    assert np.array_equal(file.read().of(IDS), drawn())
    assert "ranks by distance, and Triever by inner products" in caplog.text


def spoilt(row: int, value: float) -> np.ndarray:
    vectors = drawn()
    vectors[row, 3] = value
    return vectors


@pytest.mark.parametrize("form", [as_npy, as_parquet, as_flat], ids=lambda form: form.__name__)
@pytest.mark.parametrize(
    ("ids", "vectors", "problem"),
    [
        (IDS[:-1], drawn(5), "has no vector of document '7'; make vectors of all of them with the same model"),
        (IDS[:-2], drawn(4), "has no vector of document 'two words' and of 1 more"),
        ([*IDS, "milk"], drawn(7), "has a vector of document 'milk', which is not there; leave it out, or add"),
        ([*IDS, "tea"], drawn(7), "'tea' has two vectors, in rows 1 and 7; keep one of them"),
        (IDS, spoilt(2, np.nan), "the vector of 'größe' has a number that is not finite"),
        (IDS, spoilt(5, -np.inf), "the vector of '7' has a number that is not finite"),
    ],
    ids=["missing", "several missing", "extra", "doubled", "nan", "inf"],
)
def test_what_does_not_fit_is_said_in_one_sentence(
    tmp_path: Path, form: Callable[..., VectorFile], ids: list[str], vectors: np.ndarray, problem: str
) -> None:
    with pytest.raises(TrieverError) as error:
        form(tmp_path, ids, vectors).read().of(IDS)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (np.array([["a"] * 8] * 6), r"the type <U1; write a row of numbers for each id"),
        (np.ones((6, 8), bool), "the type bool"),
        (np.ones((6, 8), complex), "the type complex128"),
        (np.array([[object()]] * 6), "is not an array that NumPy can read"),
        (np.ones(6, np.float32), "the shape (6,)"),
        (np.ones((6, 0), np.float32), "the shape (6, 0)"),
        (np.ones((5, 8), np.float32), "has 5 vectors and 6 ids; give one id for each vector"),
        (np.full((6, 8), 1e300), "the vector of 'tea' has a number that is not finite"),
    ],
)
def test_arrays_that_are_no_vectors_are_refused(tmp_path: Path, array: np.ndarray, problem: str) -> None:
    with pytest.raises(TrieverError) as error, np.errstate(over="ignore"):
        as_npy(tmp_path, IDS, array).read()
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"id": ["a", "b"], "vector": [[1.0, 2.0], [1.0]]}, "the vector of 'b' has 1 numbers, and others have 2"),
        ({"id": ["a", "b"], "vector": [[1.0, 2.0], None]}, "the vector of 'b' has 0 numbers, and others have 2"),
        ({"id": ["a", "b"], "vector": [[1.0, 2.0], [None, 1.0]]}, "a vector lacks a number"),
        ({"id": ["a", "b"], "vector": [["x"], ["y"]]}, "the column of vectors has lists of string"),
        ({"id": ["a", "b"], "vector": [1.0, 2.0]}, "the column of vectors has the type double"),
        ({"id": ["a", "b"], "other": [[1.0], [2.0]]}, "has no column of vectors: it has id, other"),
        ({"name": ["a", "b"], "vector": [[1.0], [2.0]]}, "has no column of ids: it has name, vector"),
        ({"id": ["a", None], "vector": [[1.0], [2.0]]}, "v.parquet:2: the id is missing"),
    ],
)
def test_tables_that_are_no_vectors_are_refused(tmp_path: Path, table: dict[str, Any], problem: str) -> None:
    pq.write_table(pa.table(table), tmp_path / "v.parquet")
    with pytest.raises(TrieverError) as error:
        VectorFile(str(tmp_path / "v.parquet")).read()
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"id": "a", "vector": [1, "x"]}', "v.jsonl:2: 'a' has no vector of numbers"),
        ('{"id": "a", "vector": [[1], [2, 3]]}', "v.jsonl:2: "),
        ('{"id": "a", "vector": {"tea": 0.3}}', "v.jsonl:2: 'a' has no vector of numbers"),
        ('{"id": "a"}', "v.jsonl:2: 'a' has no vector of numbers"),
        ('{"id": "a", "vector": [1, 2]}', "v.jsonl:2: the vector of 'a' has 2 numbers, and others have 1"),
        ('{"vector": [1]}', "v.jsonl:2: the id is missing"),
        ("nothing", "v.jsonl:2: "),
    ],
)
def test_lines_that_are_no_vectors_are_refused(tmp_path: Path, line: str, problem: str) -> None:
    (tmp_path / "v.jsonl").write_text(f'{{"id": "first", "vector": [1]}}\n{line}\n')
    with pytest.raises(TrieverError) as error:
        VectorFile(str(tmp_path / "v.jsonl")).read()
    assert problem in str(error.value)


def test_files_that_are_not_there_or_something_else_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", drawn())
    (tmp_path / "junk.parquet").write_bytes(b"PAR1 but not really")
    (tmp_path / "junk.faiss").write_bytes(b"nothing of faiss")
    (tmp_path / "junk.npy").write_bytes(b"nothing of NumPy")
    (tmp_path / "junk.ids.txt").write_text("a\n")
    (tmp_path / "v.bin").write_bytes(b"x")
    (tmp_path / "dict.json").write_text("{}")
    expected = {
        VectorFile(str(tmp_path / "v.npy")): "there is no file .*v.ids.txt with the ids of v.npy; write the id of each",
        VectorFile(str(tmp_path / "none.npy")): "none.npy",
        VectorFile(str(tmp_path / "junk.parquet")): "is not a Parquet file that can be read",
        VectorFile(str(tmp_path / "junk.faiss")): "is not an index that faiss can read",
        VectorFile(str(tmp_path / "junk.npy")): "is not an array that NumPy can read",
        VectorFile(str(tmp_path / "v.bin")): "ends neither in .npy, .parquet, .jsonl, .faiss nor .index",
        VectorFile(str(tmp_path)): "is a folder without the files index and docid",
        VectorFile(str(tmp_path / "v.npy"), str(tmp_path / "dict.json")): "dict.json is not a list",
        VectorFile(str(tmp_path / "junk.parquet"), "x"): "has ids itself, but ids = x; leave ids out",
    }
    for file, problem in expected.items():
        with pytest.raises(TrieverError, match=problem):
            file.read()
    with pytest.raises(TrieverError, match="ids = x are ids of no file"):
        VectorFile("", "x")


@pytest.mark.parametrize("ending", [".npy", ".parquet", ".faiss"])
@pytest.mark.parametrize(
    "options", [IndexOptions(), IndexOptions(dtype="float16"), IndexOptions("hnsw", hnsw_m=4)], ids=str
)
def test_what_is_written_is_read_again(tmp_path: Path, ending: str, options: IndexOptions) -> None:
    index = VectorIndex.of(drawn(), options)
    write_vectors(tmp_path / f"v{ending}", IDS, index)
    again = VectorFile(str(tmp_path / f"v{ending}")).read()
    assert again.ids == IDS
    assert np.array_equal(np.asarray(again.array, np.float32), np.asarray(index.vectors(), np.float32))


@pytest.mark.parametrize("options", [IndexOptions(), IndexOptions("hnsw", hnsw_m=4)], ids=lambda options: options.kind)
def test_an_index_of_faiss_finds_what_ours_finds(tmp_path: Path, options: IndexOptions) -> None:
    index = VectorIndex.of(drawn(200), options)
    keep = np.arange(200) % 3 > 0
    changed = index.without(keep).with_added(drawn(5, seed=1))
    ids = [str(row) for row in range(len(changed))]
    write_vectors(tmp_path / "v.faiss", ids, changed)
    queries = drawn(20, seed=2)
    scores, rows = faiss.read_index(str(tmp_path / "v.faiss")).search(queries, 5)
    expected_scores, expected_rows = changed.rebuilt(IndexOptions()).search(queries, 5)
    assert np.array_equal(rows, expected_rows)
    assert scores == pytest.approx(expected_scores, rel=1e-5)


def test_short_codes_are_written_as_faiss_has_them(tmp_path: Path) -> None:
    index = VectorIndex.of(drawn(1000), IndexOptions("ivfpq", nbits=4, nlist=4, rescore=0))
    write_vectors(tmp_path / "v.faiss", [str(row) for row in range(1000)], index)
    queries = drawn(5, seed=2)
    written = faiss.read_index(str(tmp_path / "v.faiss"))
    scores, rows = index.search(queries, 3)
    assert written.search(queries, 3)[0] == pytest.approx(scores, rel=1e-5)
    assert np.array_equal(np.sort(written.search(queries, 3)[1]), np.sort(rows))
    near = VectorFile(str(tmp_path / "v.faiss")).read().array
    assert np.linalg.norm(near - drawn(1000)) < np.linalg.norm(drawn(1000))


def test_an_ending_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrieverError, match=r"ends in none of .npy, .parquet, .faiss"):
        write_vectors(tmp_path / "v.csv", IDS, VectorIndex.of(drawn()))
    assert not list(tmp_path.iterdir())


def test_length_one_is_left_as_it_is_where_it_is_one_already() -> None:
    vectors = drawn()
    ones = of_length_one(vectors)
    assert np.linalg.norm(ones, axis=1) == pytest.approx(np.ones(len(IDS)), rel=1e-6)
    assert of_length_one(ones) is ones
    assert np.isfinite(of_length_one(np.zeros((2, 3), np.float32))).all()
