"""A place of work in this process, which sends and interrupts as other places do."""

from __future__ import annotations

import io
import pickle
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from triever.files import atomic
from triever.models.elsewhere import Block, Task


@dataclass
class LocalPlace:
    """Makes blocks from what could have come from another process, and may be interrupted."""

    folder: Path
    least: int = 1
    stop_after: int | None = None
    made: list[str] = field(default_factory=list)
    """The names of the files that were made."""

    def work(self, task: Task, blocks: Iterable[Block], label: str) -> None:
        assert label
        work = None
        for block in blocks:
            if self.stop_after == len(self.made):
                raise KeyboardInterrupt
            work = work or pickle.loads(pickle.dumps(task)).begin("cpu")
            sent = io.BytesIO()
            pq.write_table(block.table, sent)
            with atomic(block.file) as file:
                work(pq.read_table(sent), file)
            self.made.append(block.file.name)

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
