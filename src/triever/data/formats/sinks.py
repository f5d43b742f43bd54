"""Files that are compressed as their names say."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO, cast

from triever.files import atomic

_BUFFER = 2**20


@contextlib.contextmanager
def compressed(path: str | Path) -> Generator[BinaryIO, None, None]:
    """An atomic file whose content is compressed if its name ends in .gz or .zst."""
    with atomic(path) as file:
        if str(path).endswith(".gz"):
            packer: Any = gzip.GzipFile("", "wb", 6, file, mtime=0)  # no name, no time: equal data, equal bytes
        elif str(path).endswith((".zst", ".zstd")):
            packer = _zstd(file)
        else:
            yield file
            return
        with packer, io.BufferedWriter(cast(io.RawIOBase, packer), _BUFFER) as buffer:
            yield buffer


def _zstd(file: BinaryIO) -> Any:
    import pyarrow

    # Arrow closes it, and the file itself is still to be synced; it must be one that writes all it is given or fails:
    # of a short write, as on a disk that is nearly full, Arrow takes no notice.
    own = open(os.dup(file.fileno()), "wb")  # noqa: SIM115
    return pyarrow.CompressedOutputStream(pyarrow.PythonFile(own, "w"), "zstd")
