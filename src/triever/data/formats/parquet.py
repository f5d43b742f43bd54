"""Parquet files as rows of named fields, batch by batch, in both directions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from triever.data.formats.fields import (
    DOCUMENT_IDS,
    DOCUMENT_TEXTS,
    GRADES,
    JUDGED_DOCUMENTS,
    JUDGED_QUERIES,
    OTHER_TEXTS,
    QUERY_IDS,
    QUERY_TEXTS,
)
from triever.data.formats.json_text import unclean
from triever.data.formats.lines import require_file
from triever.data.formats.problems import Problems
from triever.errors import DataError
from triever.files import atomic

MAGIC = b"PAR1"
_BATCH = 1000
_ROW_GROUP = 10_000
_IDS = frozenset((*DOCUMENT_IDS, *QUERY_IDS, *JUDGED_QUERIES, *JUDGED_DOCUMENTS))
_TEXTS = frozenset((*DOCUMENT_TEXTS, *QUERY_TEXTS, "title"))
_OTHERS = frozenset((*GRADES, "metadata", "answers", "evidence", "expansions"))


def parquet_rows(path: str | Path, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """Row numbers (from 1) and rows; columns whose names mean nothing here are not read."""
    import pyarrow

    file = _open(path)
    number = 0
    try:
        for batch in file.iter_batches(_BATCH, columns=_known_columns(path, file)):
            for row in batch.to_pylist():
                number += 1
                yield number, {name: value for name, value in row.items() if value is not None}
    except (pyarrow.ArrowException, OSError):
        hint = "the file is damaged: download or copy it again"
        problems.report_end(path, number + 1, "the Parquet data is damaged", hint)
    finally:
        file.close()


def parquet_columns(path: str | Path) -> list[str]:
    """The names of the columns that mean something here."""
    file = _open(path)
    with file:
        return _known_columns(path, file)


def _open(path: str | Path) -> Any:
    import pyarrow
    from pyarrow import parquet

    require_file(path)
    try:
        return parquet.ParquetFile(path, buffer_size=2**20, pre_buffer=False)
    except (pyarrow.ArrowException, OSError):
        hint = "the file was cut short or damaged: download or copy it again"
        raise DataError(f"{path} has no readable Parquet footer", hint) from None


def _known_columns(path: str | Path, file: Any) -> list[str]:
    fields = [field for field in file.schema_arrow if _is_known(field)]
    for field in fields:
        name = field.name.lower()
        if name in _IDS and not (_is_text(field.type) or _is_integer(field.type)):
            raise DataError(f"{path}: the column {field.name} is {field.type}", "ids are strings or whole numbers")
        if name in _TEXTS and not _is_text(field.type):
            raise DataError(f"{path}: the column {field.name} is {field.type}", "write it as strings")
    return [field.name for field in fields]


def _is_known(field: Any) -> bool:
    """Whether a column means something here; a `document` or `context` may also be a structure, which does not."""
    name = field.name.lower()
    return name in _IDS | _TEXTS | _OTHERS and (name not in OTHER_TEXTS or _is_text(field.type))


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    value = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(value) or types.is_large_string(value) or types.is_string_view(value)


def _is_integer(kind: Any) -> bool:
    from pyarrow import types

    return types.is_integer(kind)


def write_parquet(path: str | Path, rows: Iterable[dict[str, Any]], what: str) -> None:
    """Rows of documents, queries or qrels; metadata becomes JSON, for Parquet has no open-ended objects."""
    import pyarrow
    from pyarrow import parquet

    schema, rest = _schema(what), iter(rows)
    with atomic(path) as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(rest, _ROW_GROUP)):
            try:
                writer.write_batch(pyarrow.RecordBatch.from_pylist([_flat(row) for row in group], schema))
            except (pyarrow.ArrowException, ValueError, TypeError, RecursionError) as error:
                raise DataError(f"{path} cannot be written: {error}", "clean the texts or metadata") from error


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    if unclean(row):
        raise ValueError(f"{row['_id']} holds a NUL or half a character")
    if "metadata" not in row:
        return row
    metadata = dict(row["metadata"])
    answers, evidence = metadata.pop("answers", None), metadata.pop("evidence", None)
    packed = json.dumps(metadata, ensure_ascii=False, allow_nan=False) if metadata else None
    return {**row, "answers": answers, "evidence": evidence, "metadata": packed}


def _schema(what: str) -> Any:
    from pyarrow import int32, large_string, list_, schema, string

    texts = list_(string())
    fields = {
        "documents": {"_id": string(), "title": string(), "text": large_string(), "expansions": texts},
        "queries": {"_id": string(), "text": string(), "answers": texts, "evidence": list_(texts)},
        "qrels": {"query-id": string(), "corpus-id": string(), "score": int32()},
    }
    metadata = {} if what == "qrels" else {"metadata": string()}
    return schema(list({**fields[what], **metadata}.items()))
