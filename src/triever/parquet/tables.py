"""Tables in untrusted Parquet files, decoded in as much memory as a file of that size may take."""

from __future__ import annotations

import os
from io import BufferedReader
from typing import TYPE_CHECKING

import numpy as np

from triever.parquet.pages import Limits, batch_rows, check_rows, leaves_of, read_footer

if TYPE_CHECKING:
    import pyarrow as pa

DECODED_LEAST, DECODED_RATIO = 2**28, 200
"""A table may take this many bytes of memory, or this many times the bytes of its file."""
ROWS = 2**14
"""How many rows of a table are decoded together."""


def most_decoded(size: int) -> int:
    """The most bytes of memory that a table may take whose file has so many."""
    return max(DECODED_LEAST, DECODED_RATIO * size)


def decoded(file: BufferedReader, schema: pa.Schema) -> pa.Table:
    """A Parquet file as a table of these columns, unless it takes far more memory than a file of its size should."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = os.fstat(file.fileno()).st_size
    limit = most_decoded(size)
    footer = read_footer(file, size)
    if footer is None:  # which pyarrow must not see: over some it ends the process
        raise ValueError("its footer is damaged")
    source = pa.PythonFile(file, mode="r")
    table = pq.ParquetFile(source, pre_buffer=False)
    if sorted(table.schema_arrow.names) != sorted(schema.names):
        raise ValueError(f"its columns are {', '.join(table.schema_arrow.names)}, not {', '.join(schema.names)}")
    check_rows(table.metadata.num_rows, size)
    leaves, limits = leaves_of(table, schema.names), Limits(ROWS, limit, limit)
    batches, counted = [], 0
    for group in range(table.num_row_groups):
        rows, dictionaries = batch_rows(file, size, {leaf: footer.chunk(group, leaf) for leaf in leaves}, limits)
        reader = pq.ParquetFile(source, read_dictionary=dictionaries, pre_buffer=False) if dictionaries else table
        for batch in reader.iter_batches(rows, row_groups=[group], columns=schema.names):
            counted += sum(map(_decoded_bytes, batch.columns))
            if counted > limit:
                raise ValueError(f"its {size} bytes unpack to more than {limit:,} bytes")
            batches.append(pa.Table.from_batches([batch]).select(schema.names).cast(schema))
    whole = pa.concat_tables(batches) if batches else schema.empty_table()
    whole.validate(full=True)  # texts are UTF-8, and lists lie inside their columns
    return whole


def _decoded_bytes(column: pa.Array) -> int:
    """How many bytes a column takes once each row has a text of its own."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column.nbytes
    column.validate(full=True)  # first: its numbers may point outside
    texts = column.dictionary.cast(pa.large_string())
    begins = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    used = column.indices.drop_null().to_numpy(zero_copy_only=False)
    return int(np.diff(begins)[used].sum())
