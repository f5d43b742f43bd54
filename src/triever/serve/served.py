"""One retriever that is served: loaded in the background, watched, exchanged when it changes on disk, and changed.

A search takes the retriever that is there when it begins, and keeps it to its end. Another one is loaded beside it and
takes its place in one step, so that no request ever sees a part of each. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from triever.artifact import MANIFEST
from triever.errors import TrieverError
from triever.retriever import Retriever, edit, load
from triever.serve.answers import described
from triever.serve.batches import Batcher, Job
from triever.serve.metrics import Metrics
from triever.serve.options import ServeOptions

T = TypeVar("T")
Mark: TypeAlias = tuple[int, int, int] | None
"""What a look at a manifest sees: it is replaced, never changed, so that a new one has another number and time."""
Change: TypeAlias = Callable[[Retriever], T]
LOADING, READY, FAILED = "loading", "ready", "failed"
_log = logging.getLogger("triever.serve")


@dataclass(frozen=True)
class Source:
    """Where a retriever comes from: a saved folder, or a function that makes it, which is in memory alone."""

    folder: Path | None
    make: Callable[[], Retriever]

    @classmethod
    def of(cls, retriever: Retriever | str | Path) -> Source:
        """The source of a retriever that is there, or of a saved folder."""
        if isinstance(retriever, Retriever):
            return cls(None, lambda: retriever)
        folder = Path(retriever)
        return cls(folder, lambda: load(folder))

    def mark(self) -> Mark:
        """How its manifest looks now; nothing where there is none."""
        try:
            state = os.stat(self.folder / MANIFEST) if self.folder else None
        except OSError:
            return None
        return (state.st_ino, state.st_mtime_ns, state.st_size) if state else None


class NotSaved(Exception):
    """A retriever in memory cannot be changed where several processes have one each."""


class Served:
    """A retriever by its name, with its queue."""

    def __init__(self, name: str, source: Source, options: ServeOptions, metrics: Metrics) -> None:
        self.name, self.source = name, source
        self.state, self.about = LOADING, dict[str, Any]()
        self.problem: Exception | None = None  # why it could not be loaded when that was tried last
        self._retriever: Retriever | None = None
        self._options, self._metrics = options, metrics
        self._mark: Mark = None
        self._turn = asyncio.Lock()  # of whoever loads or changes it
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="triever-load")
        self._batcher = Batcher(
            lambda: self.retriever,
            window=options.window,
            most=options.most,
            queue=options.queue,
            observe=self._observe,
        )
        metrics.ready.labels(name).set(0)
        metrics.waiting.labels(name)

    @property
    def retriever(self) -> Retriever:
        """What answers now."""
        assert self._retriever is not None, "nobody asks before it is loaded"
        return self._retriever

    @property
    def is_ready(self) -> bool:
        """Whether it can be searched."""
        return self._retriever is not None

    @property
    def waiting(self) -> int:
        """How many queries are in its queue."""
        return self._batcher.waiting

    async def submit(self, job: Job[T]) -> T:
        """What became of a job."""
        return await self._batcher.submit(job)

    async def watch(self) -> None:
        """Load it, and load it again whenever its folder has changed, for ever."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._options.poll)

    async def refresh(self) -> None:
        """Load it if it was not loaded yet, or if its folder has changed since."""
        async with self._turn:
            await self._refresh()

    async def change(self, change: Change[T]) -> T:
        """Change it: on disk, where it is from a folder, and here. The next request finds what was changed."""
        async with self._turn:
            if self.source.folder is None:
                return await self._in_thread(lambda: self._change_copy(change))
            folder = self.source.folder
            outcome = await self._in_thread(lambda: _edited(folder, self._options.wait, change))
            await self._refresh()
            return outcome

    async def close(self) -> None:
        """Stop answering."""
        await self._batcher.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _refresh(self) -> None:
        """The same, for whoever has the turn."""
        mark = self.source.mark()
        if self._retriever is not None and (mark is None or mark == self._mark):
            return
        if self.state == FAILED and mark == self._mark:
            return  # the same folder would fail again
        self._mark = mark  # taken before it is loaded: what changes meanwhile is seen next time
        try:
            new, about = await self._in_thread(self._load)
        except Exception as error:
            reason = error if isinstance(error, TrieverError) else f"{type(error).__name__}: {error}"
            _log.error("%s cannot be loaded: %s", self.name, reason)
            self._metrics.loads.labels(self.name, "failed").inc()
            self.problem = error
            self.state = READY if self._retriever is not None else FAILED
            return
        self._exchange(new, about)

    def _load(self) -> tuple[Retriever, dict[str, Any]]:
        retriever = self.source.make()
        retriever.search_many(["ready?"], 1)  # what is prepared by the first search is not left to a client's
        return retriever, described(retriever)

    def _exchange(self, retriever: Retriever, about: dict[str, Any]) -> None:
        verb = "loaded" if self._retriever is None else "exchanged"
        self._retriever, self.about, self.state = retriever, about, READY
        self._metrics.loads.labels(self.name, "done").inc()
        self._metrics.ready.labels(self.name).set(1)
        self._metrics.documents.labels(self.name).set(about["documents"])
        _log.info("%s %s: %d documents", verb, self.name, about["documents"])

    def _change_copy(self, change: Change[T]) -> T:
        """Change a copy of a retriever that is in memory alone, which then takes its place."""
        if self._options.workers > 1:
            raise NotSaved
        changed = copy.copy(self.retriever)
        outcome = change(changed)
        self._exchange(changed, described(changed))
        return outcome

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def _observe(self, texts: int, seconds: float) -> None:
        self._metrics.batch.labels(self.name).observe(texts)
        self._metrics.search.labels(self.name).observe(seconds)


def _edited(folder: Path, wait: float, change: Change[T]) -> T:
    with edit(folder, wait=wait) as retriever:
        return change(retriever)
