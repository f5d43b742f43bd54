"""Files to write to, compressed if their names end in .gz or .zst."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from triever.files import atomic

if TYPE_CHECKING:
    from pyarrow import NativeFile

_BUFFER = 2**20


@contextlib.contextmanager
def compressed(path: str | Path) -> Generator[BinaryIO, None, None]:
    """An atomic file whose content is compressed if its name ends in .gz or .zst."""
    with atomic(path) as file:
        if str(path).endswith(".gz"):
            # Without name and time, so that equal data gives equal bytes.
            packer: gzip.GzipFile | NativeFile = gzip.GzipFile("", "wb", 6, file, mtime=0)
        elif str(path).endswith((".zst", ".zstd")):
            packer = _zstd(file)
        else:
            yield file
            return
        with packer, io.BufferedWriter(cast(io.RawIOBase, packer), _BUFFER) as buffer:
            yield buffer


def _zstd(file: BinaryIO) -> NativeFile:
    import pyarrow

    # Arrow closes its file, and the file itself is still to be synced: hence a duplicate. It must be buffered, as that
    # writes all or fails; Arrow does not notice a short write, as on a disk that is nearly full.
    duplicate = open(os.dup(file.fileno()), "wb")  # noqa: SIM115
    return pyarrow.CompressedOutputStream(pyarrow.PythonFile(duplicate, "w"), "zstd")
