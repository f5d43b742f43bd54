"""Files of vectors that other programs write and read: NumPy arrays, Parquet tables and faiss indexes, with ids.

The order in a file does not matter: vectors are matched by their ids. Nothing is guessed: an id that is missing,
doubled or unknown, a number that is not finite, or vectors of another width are each an error that names the file and
the id.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from triever import config
from triever.arguments import as_path
from triever.config import option
from triever.data.formats.fields import DOCUMENT_IDS, QUERY_IDS, clean_id, shorten
from triever.data.formats.json_text import parse_object
from triever.data.formats.lines import read_lines, require_file
from triever.data.formats.problems import Problems
from triever.data.records import normalise
from triever.errors import BadRecord, DataError, Flaw, UsageError
from triever.files import atomic
from triever.index.finders import chunks, faiss_library
from triever.index.options import IndexOptions
from triever.index.vectors import VectorIndex
from triever.validation import is_finite

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

ID_COLUMNS = tuple(dict.fromkeys((*DOCUMENT_IDS, *QUERY_IDS)))
"""What the column of ids in a Parquet file may be called."""
VECTOR_COLUMNS = ("vector", "vectors", "embedding", "embeddings", "emb", "values")
"""What the column of vectors may be called."""
FAISS_ENDINGS = (".faiss", ".index")
IDS_ENDING = ".ids.txt"
"""What the file of ids beside vectors.npy is called where nothing else is said: vectors.ids.txt."""
PYSERINI = ("index", "docid")
"""The faiss index and its ids in a folder that pyserini has written."""
UNIT = 1e-3
"""How far the length of a vector may be from one for it to count as one."""

_log = logging.getLogger("triever")


@dataclass(frozen=True)
class VectorFile:
    """Vectors that exist already: `VectorFile("vectors.npy", ids="ids.txt")`."""

    file: str = option(
        "", "a .npy array, Parquet or JSON lines with id and vector, a faiss index, or a folder of pyserini"
    )
    ids: str = option(
        "", "the id of each row: a text file with one on each line, or a JSON list; none: beside it, NAME.ids.txt"
    )

    def __post_init__(self) -> None:
        config.validate(self)
        if self.ids and not self.file:
            raise UsageError(f"ids = {self.ids} are ids of no file", "name the file of vectors too: file=vectors.npy")

    def __bool__(self) -> bool:
        return bool(self.file)

    @property
    def paths(self) -> list[Path]:
        """The files that are read."""
        return [as_path(name) for name in (self.file, self.ids) if name]

    def read(self) -> IdVectors:
        """Its ids and vectors, checked."""
        path = as_path(self.file)
        if path.is_dir():
            return _pyserini(path)
        require_file(path)
        if path.suffix in FAISS_ENDINGS:
            return _from_faiss(path, self.ids_path)
        if path.suffix in (".parquet", ".jsonl") and self.ids:
            raise UsageError(f"{path} has ids itself, but ids = {self.ids}", "leave ids out")
        if path.suffix == ".parquet":
            return _from_parquet(path)
        if path.suffix == ".jsonl":
            return _from_json_lines(path)
        if path.suffix == ".npy":
            return _from_npy(path, self.ids_path)
        problem = f"{path} ends neither in .npy, .parquet, .jsonl, .faiss nor .index"
        raise UsageError(problem, "write the vectors with numpy.save, as a Parquet table, or with faiss.write_index")

    @property
    def ids_path(self) -> Path:
        """The file of ids: the one that is named, or the one beside."""
        path = as_path(self.file)
        return as_path(self.ids) if self.ids else path.with_name(path.stem + IDS_ENDING)


@dataclass(frozen=True)
class IdVectors:
    """Vectors of a file by their ids, each of which is there once."""

    path: Path
    ids: list[str]
    array: np.ndarray  # (ids, d)

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return self.array.shape[1]

    def of(self, wanted: Sequence[str], noun: str = "document") -> np.ndarray:
        """(wanted, d) the vectors of these ids, in their order; a file with others, or with fewer, is refused."""
        rows = {document: row for row, document in enumerate(self.ids)}
        missing = [name for name in wanted if name not in rows]
        passages = bool(missing) and missing[0].rpartition("#")[0] in rows
        _refuse(self.path, f"has no vector of {noun}", missing, PASSAGES if passages else NO_VECTOR)
        if len(rows) > len(wanted):
            known = set(wanted)
            others = [name for name in self.ids if name not in known]
            _refuse(self.path, f"has a vector of {noun}", others, f"leave it out, or add the {noun}", "is not there")
        order = np.array([rows[name] for name in wanted], np.int64)
        in_order = np.array_equal(order, np.arange(len(order)))
        return self.array if in_order else np.asarray(self.array[order])  # the first stays on the disk

    def among(self, wanted: Sequence[str]) -> tuple[list[str], np.ndarray]:
        """Those of the ids that are wanted, and their vectors; both may have others besides."""
        known = set(wanted)
        rows = [row for row, name in enumerate(self.ids) if name in known]
        return [self.ids[row] for row in rows], np.asarray(self.array[np.array(rows, np.int64)])


PASSAGES = "set cut.which=none: the file has vectors of whole documents"
NO_VECTOR = "make vectors of all of them with the same model"


def _refuse(path: Path, problem: str, ids: Sequence[str], hint: str, behind: str = "") -> None:
    if ids:
        more = f" and of {len(ids) - 1:,} more" if len(ids) > 1 else ""
        also = f", which {behind}" if behind else ""
        raise DataError(f"{path} {problem} {shorten(ids[0])!r}{also}{more}", hint)


def of_length_one(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, d) of length one; those that have it already stay as they are, and where they are."""
    lengths = np.concatenate([np.linalg.norm(part, axis=1) for part in chunks(vectors)] or [np.ones(0)])
    if (abs(lengths - 1) < UNIT).all():
        return vectors
    return (vectors / np.maximum(lengths, 1e-12)[:, None]).astype(np.float32)


# --- reading ------------------------------------------------------------------------------------------------------


def _from_npy(path: Path, ids: Path) -> IdVectors:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        problem = f"{path} is not an array that NumPy can read: {str(error).splitlines()[0]}"
        raise DataError(problem, "write it with numpy.save, as numbers and not as Python objects") from error
    return _checked(path, _read_ids(ids, path), array)


def _from_parquet(path: Path) -> IdVectors:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            columns = [_column(path, names, ID_COLUMNS, "ids"), _column(path, names, VECTOR_COLUMNS, "vectors")]
            ids, blocks = _batches(path, file.iter_batches(columns=columns))
    except (pyarrow.ArrowException, OSError) as error:
        problem = f"{path} is not a Parquet file that can be read: {str(error).splitlines()[0]}"
        raise DataError(problem, "write it again") from error
    return _checked(path, ids, np.concatenate(blocks) if blocks else np.empty((0, 1), np.float32))


def _from_json_lines(path: Path) -> IdVectors:
    """Lines of {"id": …, "vector": […]}, of which other fields are left out."""
    ids: list[str] = []
    vectors: list[np.ndarray] = []
    for number, line in read_lines(path, Problems()):
        try:
            record = parse_object(line)
            key = clean_id(next((record[name] for name in ID_COLUMNS if name in record), None))
            vector = np.array(next((record[name] for name in VECTOR_COLUMNS if name in record), None))
        except (Flaw, ValueError) as error:
            problem, hint = (error.problem, error.hint) if isinstance(error, Flaw) else ("its vector is no list", LINES)
            raise BadRecord(path, number, problem, hint) from None
        if vector.ndim != 1 or not vector.size or vector.dtype.kind not in "fiu":
            raise BadRecord(path, number, f"{shorten(key)!r} has no vector of numbers", LINES)
        if vectors and len(vector) != len(vectors[0]):
            problem = f"the vector of {shorten(key)!r} has {len(vector)} numbers, and others have {len(vectors[0])}"
            raise BadRecord(path, number, problem, "make all vectors with one model")
        ids.append(normalise(key))
        vectors.append(vector.astype(np.float32))
    return _checked(path, ids, np.stack(vectors) if vectors else np.empty((0, 1), np.float32))


LINES = 'write lines such as {"id": "tea", "vector": [0.1, -0.4]}'


def _column(path: Path, names: Sequence[str], known: Sequence[str], noun: str) -> str:
    column = next((name for name in known if name in names), None)
    if column is None:
        problem = f"{path} has no column of {noun}: it has {', '.join(names) or 'none'}"
        raise DataError(problem, f"call the column {known[0]}")
    return column


def _batches(path: Path, batches: Iterator[RecordBatch]) -> tuple[list[str], list[np.ndarray]]:
    ids: list[str] = []
    blocks: list[np.ndarray] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        names = [_id(path, number, name) for number, name in enumerate(batch.column(0).to_pylist(), len(ids) + 1)]
        width = blocks[0].shape[1] if blocks else None
        blocks.append(_listed(path, names, batch.column(1), width))
        ids += names
    return ids, blocks


def _listed(path: Path, names: list[str], column: Array, width: int | None) -> np.ndarray:
    """(rows, width) the vectors of a column of lists, which all have the same length."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    kind = column.type
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        raise DataError(f"{path}: the column of vectors has the type {kind}", "write lists of float32")
    if not (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
        raise DataError(f"{path}: the column of vectors has lists of {kind.value_type}", "write lists of float32")
    lengths = pc.call_function("list_value_length", [column]).fill_null(0).to_numpy(zero_copy_only=False)
    width = int(lengths[0]) if width is None else width
    if (lengths != width).any():
        row = int(np.flatnonzero(lengths != width)[0])
        problem = f"{path}: the vector of {shorten(names[row])!r} has {lengths[row]} numbers, and others have {width}"
        raise DataError(problem, "make all vectors with one model")
    flat = column.flatten()
    if flat.null_count:
        raise DataError(f"{path}: a vector lacks a number", "write a number at every place")
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(-1, width)


def _from_faiss(path: Path, ids: Path) -> IdVectors:
    numbers, array = faiss_vectors(path)
    if not ids.exists() and numbers is not None:  # its own numbers are ids
        return _checked(path, [str(number) for number in numbers.tolist()], array)
    names = _read_ids(ids, path)
    if numbers is None:
        return _checked(path, names, array)
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(names):
        problem = f"{path} has numbers up to {int(numbers.max())}, and {ids} has {len(names)} ids"
        raise DataError(problem, "give an id on the line of each number, from 0 on")
    return _checked(path, [names[number] for number in numbers.tolist()], array)


def is_pyserini(folder: Path) -> bool:
    """Whether a folder has a faiss index and its ids, as pyserini writes them."""
    return all((folder / name).is_file() for name in PYSERINI)


def _pyserini(folder: Path) -> IdVectors:
    index, ids = (folder / name for name in PYSERINI)
    if not is_pyserini(folder):
        problem = f"{folder} is a folder without the files index and docid"
        raise DataError(problem, "name a file of vectors, or a folder that pyserini has encoded")
    return _from_faiss(index, ids)


def faiss_vectors(path: Path) -> tuple[np.ndarray | None, np.ndarray]:
    """The numbers that a faiss index has for its vectors, if it has some, and the vectors (n, d) in its order.

    Vectors that it holds as codes are what the codes stand for.
    """
    faiss = faiss_library()
    try:
        whole = faiss.read_index(str(path))  # which what it holds does not outlive
    except RuntimeError as error:
        raise DataError(f"{path} is not an index that faiss can read", "write it with faiss.write_index") from error
    numbers, index = None, faiss.downcast_index(whole)
    if isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2):
        numbers, index = faiss.vector_to_array(index.id_map), faiss.downcast_index(index.index)
    _warn_of_metric(faiss, path, index)
    try:
        if isinstance(index, faiss.IndexIVF):
            return _by_lists(faiss, index) if numbers is None else (numbers, _by_lists(faiss, index)[1])
        return numbers, index.reconstruct_n(0, index.ntotal)
    except RuntimeError as error:
        problem = f"{path} holds a {type(index).__name__}, which does not give its vectors back"
        raise DataError(problem, "give the vectors themselves, as .npy") from error


def _by_lists(faiss: Any, index: Any) -> tuple[np.ndarray | None, np.ndarray]:
    """The numbers in the lists of an IVF index, and their vectors; no numbers where they are those of rows."""
    lists = index.invlists
    sizes = [lists.list_size(number) for number in range(index.nlist)]
    parts = [faiss.rev_swig_ptr(lists.get_ids(number), size).copy() for number, size in enumerate(sizes) if size]
    numbers = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
    rows = np.arange(index.ntotal)
    in_order = np.array_equal(numbers, rows)
    index.set_direct_map_type(faiss.DirectMap.Array if in_order else faiss.DirectMap.Hashtable)
    vectors = index.reconstruct_batch(numbers) if len(numbers) else np.empty((0, index.d), np.float32)
    return None if in_order else numbers, vectors


def _warn_of_metric(faiss: Any, path: Path, index: Any) -> None:
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:
        message = "%s ranks by distance, and Triever by inner products: the same order if all vectors are of one length"
        _log.warning(message, path)


def _read_ids(path: Path, vectors: Path) -> list[str]:
    if not path.exists():
        problem = f"there is no file {path} with the ids of {vectors.name}"
        raise DataError(problem, "write the id of each row on a line of its own, and name the file: ids=ids.txt")
    if path.suffix == ".json":
        return _json_ids(path)
    return [_id(path, number, line) for number, line in read_lines(path, Problems())]


def _json_ids(path: Path) -> list[str]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}", 'write a list: ["id of row 0", "id of row 1"]') from error
    if not isinstance(values, list):
        raise DataError(f"{path} is not a list", 'write a list: ["id of row 0", "id of row 1"]')
    return [_id(path, number, value) for number, value in enumerate(values, 1)]


def _id(path: Path, line: int, value: object) -> str:
    try:
        return normalise(clean_id(value))
    except Flaw as flaw:
        raise BadRecord(path, line, flaw.problem, flaw.hint) from None


def _checked(path: Path, ids: list[str], array: np.ndarray) -> IdVectors:
    """Ids and vectors that fit each other: as many of both, each id once, numbers that can be compared."""
    if array.ndim != 2 or not array.shape[1] or array.dtype.kind not in "fiu":
        problem = f"{path} has the shape {array.shape} and the type {array.dtype}"
        raise DataError(problem, "write a row of numbers for each id: an array (rows, numbers) of float32")
    if len(ids) != len(array):
        raise DataError(f"{path} has {len(array):,} vectors and {len(ids):,} ids", "give one id for each vector")
    seen: set[str] = set()
    for row, name in enumerate(ids):
        if name in seen:
            first = ids.index(name)
            problem = f"{path}: {shorten(name)!r} has two vectors, in rows {first + 1:,} and {row + 1:,}"
            raise DataError(problem, "keep one of them")
        seen.add(name)
    _refuse_odd_numbers(path, ids, array)
    return IdVectors(path, ids, array)


def _refuse_odd_numbers(path: Path, ids: Sequence[str], array: np.ndarray) -> None:
    first = 0
    for part in chunks(array):  # as float32, which is what they are compared as
        if not is_finite(part):
            row = first + int(np.flatnonzero(~np.isfinite(part).all(1))[0])
            problem = f"{path}: the vector of {shorten(ids[row])!r} has a number that is not finite"
            raise DataError(problem, "make it again with the same model, or leave its text out")
        first += len(part)


# --- writing ------------------------------------------------------------------------------------------------------


def write_vectors(path: str | Path, ids: Sequence[str], index: VectorIndex) -> list[Path]:
    """Write the vectors of an index, and which ids they have; what was written.

    The ending decides: .npy and .faiss with a text file of ids beside them, or .parquet with both.
    """
    target = as_path(path)
    write = _WRITERS.get(target.suffix)
    if write is None:
        raise UsageError(f"{target} ends in none of {', '.join(_WRITERS)}", "the ending decides what is written")
    write(target, ids, index)
    if target.suffix == ".parquet":
        return [target]
    names = target.with_name(target.stem + IDS_ENDING)
    with atomic(names) as file:
        file.writelines(f"{name}\n".encode() for name in ids)
    return [target, names]


def _write_npy(path: Path, _ids: Sequence[str], index: VectorIndex) -> None:
    with atomic(path) as file:
        np.lib.format.write_array(file, np.asarray(index.vectors()), allow_pickle=False)


def _write_parquet(path: Path, ids: Sequence[str], index: VectorIndex) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    kind = pa.float16() if index.vectors().dtype == np.float16 else pa.float32()
    schema = pa.schema([("id", pa.string()), ("vector", pa.list_(kind, index.width))])
    names = iter(ids)
    with atomic(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for part in _blocks(index.vectors()):
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(part.ravel(), kind), index.width)
            column = pa.array([*islice(names, len(part))], pa.string())
            writer.write_batch(pa.record_batch([column, vectors], schema=schema))


def _blocks(vectors: np.ndarray, rows: int = 8192) -> Iterator[np.ndarray]:
    for first in range(0, len(vectors), rows):
        yield np.asarray(vectors[first : first + rows])


def _write_faiss(path: Path, _ids: Sequence[str], index: VectorIndex) -> None:
    faiss = faiss_library()
    # An index of deleted and added vectors is built anew: faiss has no place for either.
    compact = index if index.changes.none else index.rebuilt(index.options)
    if compact.finder is not None:
        made = compact.finder.index
    else:
        made = faiss.IndexFlatIP(compact.width)
        for part in chunks(compact.vectors()):
            made.add(part)
    with atomic(path) as file:
        faiss.write_index(made, faiss.PyCallbackIOWriter(file.write))


_WRITERS: dict[str, Callable[[Path, Sequence[str], VectorIndex], None]] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".faiss": _write_faiss,
}


def index_of(vectors: np.ndarray, options: IndexOptions, *, unit: bool) -> VectorIndex:
    """An index of vectors (n, d) of a file, of length one where that is wanted."""
    return VectorIndex.of(of_length_one(vectors) if unit else vectors, options)
