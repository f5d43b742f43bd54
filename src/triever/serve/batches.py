"""Requests of several clients, searched together: one batcher, with one thread, for each retriever.

A query waits for a few milliseconds; what has come by then and asks for the same is one call of the retriever. While
the thread is busy, queries gather, so that under load nobody waits for the window. Whoever was alone in the last call
does not wait either. The queue is bounded. Who has left,
or has waited too long, is taken out of it before anything is computed. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from triever.retriever import Retriever

T = TypeVar("T")
Compute: TypeAlias = Callable[[Retriever, Sequence[str]], list[Any]]
"""What is asked of a retriever about many texts at once: something for each of them."""
Observe: TypeAlias = Callable[[int, float], None]
"""Is told of every call: how many texts, and how many seconds."""


class QueueFull(Exception):
    """So many queries are waiting already that another one would wait too long."""


class DeadlinePassed(Exception):
    """The time of a request was over before it was answered."""


@dataclass(eq=False)
class Job(Generic[T]):
    """The texts of one request, what is asked about them, and what is made of the outcome in the same thread."""

    kind: Hashable  # jobs of one kind are computed together
    texts: Sequence[str]
    compute: Compute
    finish: Callable[[Retriever, list[Any]], T]
    deadline: float = 0.0  # by the clock of the event loop
    arrived: float = field(default=0.0, init=False)
    future: asyncio.Future[T] = field(init=False, repr=False)


class Batcher:
    """The queue of one retriever, and the thread that works it off."""

    def __init__(
        self, retriever: Callable[[], Retriever], *, window: float, most: int, queue: int, observe: Observe
    ) -> None:
        self._retriever, self._observe = retriever, observe
        self._window, self._most, self._limit = window / 1000, most, queue
        self._jobs: dict[Job[Any], None] = {}  # in the order of their arrival
        self._some, self._enough = asyncio.Event(), asyncio.Event()
        self._several = True  # whether the last call was for more than one request, so that others may be on their way
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="triever-search")
        self._task = asyncio.create_task(self._work())

    @property
    def waiting(self) -> int:
        """How many texts are in the queue."""
        return sum(len(job.texts) for job in self._jobs)

    async def submit(self, job: Job[T]) -> T:
        """What became of a job. Whoever stops waiting takes it out of the queue."""
        loop = asyncio.get_running_loop()
        if self.waiting + len(job.texts) > self._limit:
            raise QueueFull
        job.arrived, job.future = loop.time(), loop.create_future()
        self._jobs[job] = None
        self._some.set()
        if self.waiting >= self._most:
            self._enough.set()
        limit = asyncio.timeout_at(job.deadline or None)
        try:
            async with limit:
                return await job.future
        except TimeoutError:
            if limit.expired():  # also where the answer came at that very moment
                raise DeadlinePassed from None
            raise  # the retriever's own
        finally:
            self._jobs.pop(job, None)

    async def close(self) -> None:
        """Stop; whoever still waits is told so."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        for job in [*self._jobs]:
            job.future.cancel()
        self._thread.shutdown(wait=False)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._some.wait()
            await self._gather(loop)
            batch = self._take(loop.time())
            if batch:
                self._several = len(batch) > 1
                outcomes = await loop.run_in_executor(self._thread, self._compute, batch)
                for job, outcome in zip(batch, outcomes, strict=True):
                    _tell(job, outcome)

    async def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until the oldest job has waited for the window, or until there are enough."""
        first = next(iter(self._jobs), None)
        left = first.arrived + self._window - loop.time() if first and self._most > 1 and self._several else 0
        if left <= 0 or self.waiting >= self._most:
            return
        self._enough.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._enough.wait(), left)

    def _take(self, now: float) -> list[Job[Any]]:
        """The oldest job and those that can be computed together with it, out of the queue."""
        # Whoever has left, or has waited too long, takes its job out by itself.
        live = [job for job in self._jobs if not job.future.done() and not (job.deadline and job.deadline <= now)]
        batch: list[Job[Any]] = []
        texts = 0
        for job in live:
            fits = not batch or (job.kind == batch[0].kind and texts + len(job.texts) <= self._most)
            if fits:
                batch.append(job)
                texts += len(job.texts)
                del self._jobs[job]
        if len(batch) == len(live):
            self._some.clear()
        return batch

    # In the thread

    def _compute(self, batch: Sequence[Job[Any]]) -> list[Any]:
        """What became of each job: its value, or the error."""
        live = [job for job in batch if not job.future.cancelled()]
        outcomes = self._together(live) if live else []
        by_job = dict(zip(live, outcomes, strict=True))
        return [by_job.get(job) for job in batch]

    def _together(self, jobs: Sequence[Job[Any]]) -> list[Any]:
        retriever, started = self._retriever(), time.perf_counter()
        texts = [text for job in jobs for text in job.texts]
        try:
            values = jobs[0].compute(retriever, texts)
        except Exception as error:
            # One bad query must not fail those of others.
            return [error] if len(jobs) == 1 else [self._together([job])[0] for job in jobs]
        self._observe(len(texts), time.perf_counter() - started)
        outcomes, at = [], 0
        for job in jobs:
            outcomes.append(_finished(job, retriever, values[at : at + len(job.texts)]))
            at += len(job.texts)
        return outcomes


def _finished(job: Job[Any], retriever: Retriever, values: list[Any]) -> Any:
    if job.future.cancelled():
        return None
    try:
        return job.finish(retriever, values)
    except Exception as error:
        return error


def _tell(job: Job[Any], outcome: Any) -> None:
    if job.future.done():
        return
    if isinstance(outcome, Exception):
        job.future.set_exception(outcome)
    else:
        job.future.set_result(outcome)
