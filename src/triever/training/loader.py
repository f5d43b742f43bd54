"""Fetches batches ahead of the device, and counts the time that is still spent waiting for them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from triever.errors import TrieverError
from triever.training.processes import own_rows

T = TypeVar("T")

AHEAD = 4  # batches that each worker prepares before they are asked for
STEPS_AHEAD = 2  # steps that may be queued on the GPU before it has finished them


class Batches(Protocol):
    """One round of batches, with random access, so that a training resumes at any of them.

    A batch is a nested dict, tuple or list of CPU tensors: the rows of all processes together, for one
    forward pass. The same step must give the same batch every time, in every process, and in any order:
    draw from a generator seeded by the step, not from the global ones.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, step: int, /) -> object: ...


class ProcessBatches(Dataset[object]):
    """The rows that one process takes of each batch."""

    def __init__(self, batches: Batches, process: int, processes: int) -> None:
        self.batches = batches
        self.process = process
        self.processes = processes

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> object:
        try:
            return own_rows(self.batches[index], self.process, self.processes)
        except TrieverError as error:
            return error  # `Feed` raises it: a worker process would wrap it into its traceback


class Feed:
    """The batches of some steps of a round, on the device; `waited` counts the seconds spent waiting for them."""

    def __init__(self, share: ProcessBatches, steps: range, device: torch.device, workers: int) -> None:
        self.waited = 0.0
        self._device = device
        pin = device.type == "cuda"
        self._source = _by_workers(share, steps, workers, pin) if workers else _by_thread(share, steps, pin)

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        from accelerate.utils import send_to_device

        started = time.perf_counter()
        try:
            batch = next(self._source)
        finally:
            self.waited += time.perf_counter() - started
        if isinstance(batch, TrieverError):
            raise batch
        return send_to_device(batch, self._device, non_blocking=True)

    def close(self) -> None:
        """Stop fetching."""
        self._source.close()


def _by_workers(share: ProcessBatches, steps: range, workers: int, pin: bool) -> Generator[object]:
    yield from DataLoader(
        share,
        batch_size=None,  # each item is a whole batch already
        sampler=steps,
        num_workers=workers,
        prefetch_factor=AHEAD,
        pin_memory=pin,
        collate_fn=_as_it_is,
        generator=torch.Generator(),  # else it draws from the global one, and changes the dropout of the next step
    )


def _as_it_is(batch: T) -> T:
    return batch


def _by_thread(share: ProcessBatches, steps: range, pin: bool) -> Generator[object]:
    with ThreadPoolExecutor(1, "triever-loader") as pool:
        ready: deque[Future[object]] = deque()
        try:
            for step in steps:
                ready.append(pool.submit(_fetch, share, step, pin))
                if len(ready) > AHEAD:
                    yield ready.popleft().result()
            while ready:
                yield ready.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _fetch(share: ProcessBatches, step: int, pin: bool) -> object:
    batch = share[step]
    if not pin:
        return batch
    from accelerate.utils import recursively_apply

    return recursively_apply(Tensor.pin_memory, batch)


class Pace:
    """Keeps Python at most `STEPS_AHEAD` steps ahead of a GPU, which always has work meanwhile.

    Otherwise Python would wait for a batch while the GPU still computes, and that would count as waiting for data.
    """

    def __init__(self, device: torch.device) -> None:
        self._open: deque[torch.cuda.Event] | None = deque() if device.type == "cuda" else None

    def step(self) -> None:
        """Note that a step was queued on the device; wait if too many are."""
        if self._open is None:
            return
        event = torch.cuda.Event()
        event.record()
        self._open.append(event)
        if len(self._open) > STEPS_AHEAD:
            self._open.popleft().synchronize()


def rows(batch: object) -> int:
    """The number of rows of the first tensor in a batch; 0 where there is none."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 0
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else ()
    return next((count for part in parts if (count := rows(part))), 0)
