"""Parquet files as rows of named fields, batch by batch, in both directions."""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from triever.data.formats.fields import (
    DOCUMENT_IDS,
    DOCUMENT_TEXTS,
    GRADES,
    JUDGED_DOCUMENTS,
    JUDGED_QUERIES,
    OTHER_TEXTS,
    QUERY_IDS,
    QUERY_TEXTS,
    check_names,
    names_shown,
)
from triever.data.formats.json_text import unclean
from triever.data.formats.lines import MAX_LINE, grows_too_much, growth, open_plain, too_long
from triever.data.formats.problems import OR_SKIP, Problems
from triever.errors import DataError, Flaw
from triever.files import atomic
from triever.parquet.pages import Footer, Leaf, batch_rows, check_rows, leaves_of, read_footer

if TYPE_CHECKING:
    from pyarrow import Array, DataType, Field, RecordBatch, Schema
    from pyarrow.parquet import ParquetFile

_ROW_GROUP = 10_000
_PIECE = 4 * 2**20  # bytes that become Python's strings at once
_BUFFER = 2**20  # bytes of the file that a column reads ahead
_BUFFERS = 16 * 2**20
_MOST_LEAVES = 256
_INDEX = re.compile(r"__index_level_[0-9]+__")  # the numbers of rows that pandas writes
_log = logging.getLogger("triever")
_IDS = frozenset((*DOCUMENT_IDS, *QUERY_IDS, *JUDGED_QUERIES, *JUDGED_DOCUMENTS))
_TEXTS = frozenset((*DOCUMENT_TEXTS, *QUERY_TEXTS, "title"))
_NAMED = _IDS | _TEXTS | frozenset((*GRADES, "metadata", "answers", "evidence", "expansions"))
_DAMAGED = ("the Parquet data is damaged", "the file is damaged: download or copy it again")


Row: TypeAlias = dict[str, Any]
"""Values by the names of their columns: Python's values for whatever types a file has."""


def parquet_rows(path: str | Path, problems: Problems) -> Iterator[tuple[int, Row]]:
    """Row numbers (from 1) and rows.

    Of columns with unknown names, those are read that hold texts, numbers, dates, truth values or lists of texts.
    """
    import pyarrow

    number = grown = 0
    with _Table(path) as table:
        try:
            for piece, size in table.pieces():
                grown += min(size, MAX_LINE)
                if grows_too_much(grown, table.size):
                    raise Flaw(growth(), "write the file again without dictionaries, if you trust it")
                for row in _rows(piece, size):
                    number += 1
                    if isinstance(row, Flaw):
                        problems.report(path, number, row.problem, row.hint)
                    else:
                        yield number, row
        except Flaw as flaw:
            problems.report_end(path, number + 1, flaw.problem, flaw.hint)
        except (pyarrow.ArrowException, OSError):
            problems.report_end(path, number + 1, *_DAMAGED)


def parquet_columns(path: str | Path) -> list[str]:
    """The columns whose names Triever knows."""
    with _Table(path) as table:
        return table.columns


class _Table:
    """An open Parquet file, read in pieces of bounded size."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._raw = open_plain(path)
        self._leaves: list[Leaf] = []
        try:
            self.size = os.fstat(self._raw.fileno()).st_size
            self._footer, self._file = self._checked()
            check_names(self._file.schema_arrow.names)
            self.columns = _known_columns(path, self._file)
            self._leaves = self._leaves_of(self.columns)
            self._file = self._open(metadata=self._file.metadata)  # with buffers for as many columns
        except Flaw as flaw:
            self._raw.close()
            raise DataError(f"{path}: {flaw.problem}", flaw.hint) from None
        except UnicodeDecodeError:
            self._raw.close()
            hint = "write the file again with other names"
            raise DataError(f"{path}: the name of a column is not UTF-8", hint) from None
        except BaseException:
            self._raw.close()
            raise

    def __enter__(self) -> _Table:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._raw.close()

    def pieces(self) -> Iterator[tuple[RecordBatch, int]]:
        """Small batches of rows, or single rows, with their sizes in bytes."""
        groups = range(self._file.metadata.num_row_groups)
        names, plans = self._with_metadata(groups) or (self.columns, (self._plan(one, self._leaves) for one in groups))
        for number, (rows, dictionaries) in enumerate(plans):
            file = self._file
            if dictionaries:
                file = self._open(metadata=file.metadata, read_dictionary=dictionaries)
            for batch in file.iter_batches(rows, row_groups=[number], columns=names):
                yield from _split(batch, _size(batch))

    def _plan(self, group: int, leaves: list[Leaf]) -> tuple[int, list[str]]:
        """How many rows of a row group to read at once, and the paths of leaves to read as dictionaries."""
        chunks = {leaf: self._footer.chunk(group, leaf) for leaf in leaves}
        return batch_rows(self._raw, self.size, chunks)

    def _with_metadata(self, groups: range) -> tuple[list[str], list[tuple[int, list[str]]]] | None:
        """The columns with those of metadata, and the plan of each row group; None if there are none to add.

        A file is not refused for what its further columns need: it is read without them, and a warning says so.
        """
        more = [field.name for field in self._file.schema_arrow if _is_metadata(field)]
        if not more:
            return None
        names = [*self.columns, *more]
        try:
            leaves = self._leaves_of(names)
            plans = [self._plan(group, leaves) for group in groups]
        except Flaw as flaw:
            left = "%s: the columns %s are not read as metadata, since %s"
            _log.warning(left, self._path, names_shown(more), flaw.problem)
            return None
        self._leaves = leaves
        self._file = self._open(metadata=self._file.metadata)
        return names, plans

    def _checked(self) -> tuple[Footer, ParquetFile]:
        import pyarrow

        try:
            if footer := read_footer(self._raw, self.size):
                file = self._open()
                check_rows(file.metadata.num_rows, self.size)
                return footer, file
        except (pyarrow.ArrowException, OSError):
            pass
        hint = "the file was cut short or damaged: download or copy it again"
        raise DataError(f"{self._path} has no readable Parquet footer", hint)

    def _open(self, **options: Any) -> ParquetFile:
        from pyarrow import parquet

        buffer = min(_BUFFER, _BUFFERS // max(1, len(self._leaves)))
        return parquet.ParquetFile(self._path, buffer_size=buffer, pre_buffer=False, **options)

    def _leaves_of(self, columns: list[str]) -> list[Leaf]:
        leaves = leaves_of(self._file, columns)
        if len(leaves) > _MOST_LEAVES:
            raise Flaw(
                f"the columns have {len(leaves):,} parts", f"leave columns out: at most {_MOST_LEAVES} parts are read"
            )
        return leaves


def _split(batch: RecordBatch, size: int) -> Iterator[tuple[RecordBatch, int]]:
    if size <= _PIECE or len(batch) == 1:
        yield batch, size
        return
    half = len(batch) // 2
    for part in (batch.slice(0, half), batch.slice(half)):
        yield from _split(part, _size(part))


def _size(batch: RecordBatch) -> int:
    """The bytes of the values of a batch; Arrow's own count leaves out that dictionaries and views repeat values."""
    plain = not any("dictionary" in str(kind) or "view" in str(kind) for kind in batch.schema.types)
    return batch.nbytes if plain else sum(map(_array_size, batch.columns))


def _array_size(values: Array) -> int:
    """The bytes of the values of an array, each counted as often as it occurs."""
    from pyarrow import types
    from pyarrow.compute import call_function

    kind = values.type
    if types.is_dictionary(kind):
        lengths = call_function("binary_length", [values.dictionary]) if _is_text(kind) else None
        return len(values) * 8 + (call_function("sum", [lengths.take(values.indices)]).as_py() or 0 if lengths else 0)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return values.cast("large_binary").nbytes
    if types.is_struct(kind):
        return sum(map(_array_size, values.flatten()))
    if types.is_nested(kind):
        return len(values) * 8 + _array_size(values.flatten())
    return values.nbytes


def _rows(batch: RecordBatch, size: int) -> list[Row | Flaw]:
    """The rows as named fields without nulls; a Flaw instead of each bad row."""
    if size > MAX_LINE and len(batch) == 1:
        return [Flaw(*too_long("row"))]
    names = batch.schema.names
    columns = [_values(name, column) for name, column in zip(names, batch.columns, strict=True)]
    rows = zip(*(values for values, _ in columns), strict=True)
    if any(suspect for _, suspect in columns):
        return [_first_flaw(values) or _fields(names, values) for values in rows]
    return [_fields(names, values) for values in rows]


def _fields(names: list[str], values: tuple[object, ...]) -> Row:
    return {name: value for name, value in zip(names, values) if value is not None}  # noqa: B905 - for each row


def _first_flaw(values: tuple[object, ...]) -> Flaw | None:
    return next((value for value in values if isinstance(value, Flaw)), None)


def _values(name: str, column: Array) -> tuple[list[object], bool]:
    """Python's values, with a Flaw instead of each bad one; and whether there may be any Flaw."""
    from pyarrow import Array, types

    if types.is_nested(column.type):
        return [_value(name, value.as_py) for value in column], True
    if types.is_dictionary(column.type):
        column = column.dictionary.take(column.indices)
    read = Array.to_pylist if _is_named(name) else _json_values
    try:
        return read(column), False
    except _UNREADABLE:
        rows = (column.slice(row, 1) for row in range(len(column)))
        return [_value(name, lambda row=row: read(row)[0]) for row in rows], True


def _json_values(column: Array) -> list[object]:
    """The values of a column of metadata as JSON has them: moments as texts, and None where there is no number."""
    from pyarrow import float32, timestamp, types

    kind = column.type
    if types.is_date(kind):
        return [day and day.isoformat() for day in column.to_pylist()]
    if types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        return [moment and moment.isoformat() + zone for moment in column.cast(timestamp("us"), safe=False).to_pylist()]
    if types.is_decimal(kind):
        return [None if value is None else float(value) for value in column.to_pylist()]
    if types.is_float64(kind):
        return [None if value is None or math.isnan(value) else value for value in column.to_pylist()]
    if types.is_floating(kind):  # .1 in half as many bits is .1, and not .10000000149
        return [
            None if text in (None, "nan") else float(text) for text in column.cast(float32()).cast("str").to_pylist()
        ]
    return column.to_pylist()


def _value(name: str, read: Callable[[], object]) -> object:
    try:
        value = read()
    except UnicodeDecodeError as error:
        problem = f"{name} holds the byte 0x{error.object[error.start]:02x}, which is not UTF-8"
        return Flaw(problem, f"write the column again as UTF-8{OR_SKIP}")
    except _UNREADABLE:
        return Flaw(f"{name} holds a value that Python cannot hold", "write the column again as strings")
    return Flaw(f"{name} holds a NUL character", "remove it") if unclean(value) else value


_UNREADABLE = (ValueError, ArithmeticError, LookupError, ImportError, NotImplementedError)


def _known_columns(path: str | Path, file: ParquetFile) -> list[str]:
    fields = [field for field in file.schema_arrow if _is_known(field)]
    for field in fields:
        name = field.name.lower()
        if name in _IDS and not (_is_text(field.type) or _is_integer(field.type)):
            raise DataError(
                f"{path}: the column {field.name} has the type {field.type}", "ids are strings or whole numbers"
            )
        if name in _TEXTS and not _is_text(field.type):
            raise DataError(f"{path}: the column {field.name} has the type {field.type}", "write it as strings")
    return [field.name for field in fields]


def _is_known(field: Field) -> bool:
    """Whether a column has a meaning; a `document` or `context` has one only if it is a text, and no structure."""
    return _is_named(field.name) and (field.name.lower() not in OTHER_TEXTS or _is_text(field.type))


def _is_named(name: str) -> bool:
    return name.lower() in _NAMED


def _is_metadata(field: Field) -> bool:
    """Whether a column of an unknown name holds what JSON can; pictures, vectors and structures are not read."""
    from pyarrow import types

    if _is_named(field.name) or _INDEX.fullmatch(field.name):
        return False
    if types.is_list(field.type) or types.is_large_list(field.type):
        return _is_text(field.type.value_type) and not types.is_dictionary(field.type.value_type)
    number = types.is_integer(field.type) or types.is_floating(field.type) or types.is_decimal(field.type)
    moment = types.is_date(field.type) or types.is_timestamp(field.type)
    return number or moment or types.is_boolean(field.type) or _is_text(field.type)


def _is_text(kind: DataType) -> bool:
    from pyarrow import types

    value = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(value) or types.is_large_string(value) or types.is_string_view(value)


def _is_integer(kind: DataType) -> bool:
    from pyarrow import types

    return types.is_integer(kind)


def write_parquet(path: str | Path, rows: Iterable[Row], kind: str) -> None:
    """Write rows of documents, queries or qrels; metadata becomes JSON, as Parquet has no open-ended objects."""
    import pyarrow
    from pyarrow import parquet

    schema, rest = _schema(kind), iter(rows)
    with atomic(path) as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(rest, _ROW_GROUP)):
            try:
                writer.write_batch(pyarrow.RecordBatch.from_pylist([_flat(row) for row in group], schema))
            except (pyarrow.ArrowException, ValueError, TypeError, RecursionError) as error:
                raise DataError(f"{path} cannot be written: {error}", "clean the texts or metadata") from error


def _flat(row: Row) -> Row:
    if unclean(row):
        raise ValueError(f"{row['_id']} holds a NUL character or half of a surrogate pair")
    if "metadata" not in row:
        return row
    metadata = dict(row["metadata"])
    answers, evidence = metadata.pop("answers", None), metadata.pop("evidence", None)
    packed = json.dumps(metadata, ensure_ascii=False, allow_nan=False) if metadata else None
    return {**row, "answers": answers, "evidence": evidence, "metadata": packed}


def _schema(kind: str) -> Schema:
    from pyarrow import int32, large_string, list_, schema, string

    texts = list_(string())
    fields = {
        "documents": {"_id": string(), "title": string(), "text": large_string(), "expansions": texts},
        "queries": {"_id": string(), "text": string(), "answers": texts, "evidence": list_(texts)},
        "qrels": {"query-id": string(), "corpus-id": string(), "score": int32()},
    }
    metadata = {} if kind == "qrels" else {"metadata": string()}
    return schema(list({**fields[kind], **metadata}.items()))
