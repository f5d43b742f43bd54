"""Arrays that are too large for memory, in files without a name: they are gone when the arrays are.

An array stays in memory while it is small. A larger one lies in a file of the folder that is given, or of the system's
folder for temporary files, and is mapped: the system holds as many of its pages as it has room for.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import DTypeLike

from triever.errors import DataError

IN_MEMORY = 2**30
"""The most bytes of an array that stays in memory."""
GROWN_IN_MEMORY = 2**26
"""The same for one that grows: its last blocks are in memory in addition, and there are many of them at a time."""


def room(shape: tuple[int, ...], dtype: DTypeLike, folder: str | Path | None = None) -> np.ndarray:
    """An array to be filled in: in memory if it is small, else in a file of the folder."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return np.empty(shape, dtype) if size <= IN_MEMORY else nameless(folder, shape, dtype)


def nameless(folder: str | Path | None, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """An array in a file that nobody else sees and that no kill leaves behind."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    with _as_sentence(folder, size), _opened(folder) as file:
        if hasattr(os, "posix_fallocate"):  # a disk that is full should be an error now, not a signal later
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, "r+", shape=shape)


class GrowingArray:
    """A flat array whose length is known only at its end: `grown.append(block)`, and at last `grown.array()`."""

    def __init__(self, dtype: DTypeLike, folder: str | Path | None = None, limit: int | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self._limit = GROWN_IN_MEMORY if limit is None else limit  # bytes that stay in memory
        self._folder = folder
        self._blocks: list[np.ndarray] = []
        self._waiting = 0  # bytes of blocks in memory
        self._file: IO[bytes] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, block: np.ndarray) -> None:
        """Put numbers behind those that are there."""
        kept = np.array(block, self.dtype)  # a copy: the caller may go on with its own
        self._blocks.append(kept)
        self._waiting += kept.nbytes
        self._count += kept.size
        if self._waiting > self._limit:
            self._spill()

    def array(self) -> np.ndarray:
        """All of it, to be read; nothing can be appended any more."""
        if self._file is None:
            return np.concatenate([np.empty(0, self.dtype), *self._blocks])
        self._spill()
        with self._file as file:
            file.flush()
            return np.memmap(file, self.dtype, "r", shape=(self._count,))

    def _spill(self) -> None:
        with _as_sentence(self._folder, self._count * self.dtype.itemsize):
            self._file = self._file or _opened(self._folder)
            for block in self._blocks:
                block.tofile(self._file)
        self._blocks, self._waiting = [], 0


def _opened(folder: str | Path | None) -> IO[bytes]:
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=folder)


@contextmanager
def _as_sentence(folder: str | Path | None, size: int) -> Generator[None]:
    try:
        yield
    except OSError as error:
        problem = f"{size / 2**30:.1f} GiB cannot be stored in {folder or tempfile.gettempdir()}: {error}"
        raise DataError(problem, "make room there, or name another folder: --work for a fit, else TMPDIR") from error
