"""Work of models on many blocks that is done elsewhere: in other processes, on this machine or on others.

Whoever wants that says so for a while: `with elsewhere(place): retriever.fit(data)`. Whoever has such work asks
`place_of_work`, and gives the place a task and its blocks. Each block becomes a file, whole or not at all, so that a
worker may die, and that an interrupted work goes on with the blocks that are missing. Knows nothing about the places.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from triever.errors import ArtifactError

Work: TypeAlias = Callable[[pa.Table, BinaryIO], None]
"""Reads a block, and writes to a file what it makes of it."""


class Task(Protocol):
    """What is done with blocks. It is pickled and sent to every worker once."""

    def begin(self, device: str) -> Work:
        """Make ready for many blocks on a device, such as cpu or cuda."""
        ...


class MarkedTask(Task, Protocol):
    """A task that can be told from others, so that what it has made can be found again."""

    @property
    def kind(self) -> str:
        """What it does, in one word."""
        ...

    @property
    def mark(self) -> str:
        """A hash of all that decides the result, besides the block."""
        ...


@dataclass(frozen=True)
class Block:
    """A part of a work: what is read, and the file that becomes of it."""

    file: Path
    table: pa.Table


class Place(Protocol):
    """Where tasks are done."""

    @property
    def folder(self) -> Path:
        """A folder that all workers see, for files of unfinished work."""
        ...

    @property
    def least(self) -> int:
        """Fewer texts than these are encoded here: to send them would take longer."""
        ...

    def work(self, task: Task, blocks: Iterable[Block], label: str) -> None:
        """Have the files of all blocks made; `label` names the work on a bar."""
        ...

    def clear(self) -> None:
        """Remove the folder: the work is finished."""
        ...


_PLACE: ContextVar[Place | None] = ContextVar("place", default=None)


@contextmanager
def elsewhere(place: Place | None) -> Generator[None]:
    """Have long work done at this place until the end of the block; after an error, what was made stays there."""
    token = _PLACE.set(place)
    try:
        yield
    finally:
        _PLACE.reset(token)
    if place:
        place.clear()


def place_of_work() -> Place | None:
    """Where long work should be done, if not here."""
    return _PLACE.get()


def place_for(texts: int) -> Place | None:
    """Where so many texts should be encoded, if not here."""
    place = _PLACE.get()
    return place if place and texts >= place.least else None


def made_at(
    place: Place, task: MarkedTask, tables: Iterable[pa.Table], label: str
) -> Iterator[Mapping[str, np.ndarray]]:
    """For each table in its order the arrays that a task writes for it as .npz.

    Those that are there already are not made again. They stay until the same kind of task is done with another model,
    or until all work is finished.
    """
    folder = place.folder / f"{task.kind}-{task.mark}"
    for other in place.folder.glob(f"{task.kind}-*"):
        if other != folder:
            shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []

    def missing() -> Iterator[Block]:
        for table in tables:
            files.append(folder / f"{_name(table)}.npz")
            if not files[-1].exists():
                yield Block(files[-1], table)

    place.work(task, missing(), label)
    for file in files:
        yield _arrays(file)


def _name(table: pa.Table) -> str:
    """A name for a table, which other content would change."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()[:32]


def _arrays(file: Path) -> Mapping[str, np.ndarray]:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{file} is damaged", "remove it, and run the same command again") from error
