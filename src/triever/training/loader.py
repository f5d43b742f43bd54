"""Batches fetched ahead of the device, and the time that was spent waiting for them all the same."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import torch
from accelerate.utils import recursively_apply, send_to_device
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from triever.errors import TrieverError
from triever.training.processes import own_rows

AHEAD = 4  # batches that are ready before they are asked for, of each worker
STEPS_AHEAD = 2  # steps that may be given to the GPU before it has finished them


class Batches(Protocol):
    """One round of batches. Random access, so that resuming is indexing.

    A batch is a nested dict, tuple or list of CPU tensors: the rows of all processes together, for one
    forward pass. The same step must give the same batch every time, on every process, and in any order:
    draw from a generator seeded by the step, not from the global ones.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, step: int, /) -> Any: ...


class ProcessBatches(Dataset[Any]):
    """What one process takes of each batch."""

    def __init__(self, batches: Batches, process: int, processes: int) -> None:
        self.batches = batches
        self.process = process
        self.processes = processes

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        try:
            return own_rows(self.batches[index], self.process, self.processes)
        except TrieverError as error:
            return error  # raised where it is taken: a worker process would wrap it into its traceback


class Feed:
    """The batches from one place of a round to another, on the device; knows how long it was waited for them."""

    def __init__(self, share: ProcessBatches, places: range, device: torch.device, workers: int) -> None:
        self.waited = 0.0
        self._device = device
        pin = device.type == "cuda"
        self._source = _by_workers(share, places, workers, pin) if workers else _by_thread(share, places, pin)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
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


def _by_workers(share: ProcessBatches, places: range, workers: int, pin: bool) -> Generator[Any]:
    yield from DataLoader(
        share,
        batch_size=None,  # the batches are made already
        sampler=places,
        num_workers=workers,
        prefetch_factor=AHEAD,
        pin_memory=pin,
        collate_fn=_as_it_is,
        generator=torch.Generator(),  # else it draws from the one whose next number is the dropout of a step
    )


def _as_it_is(batch: Any) -> Any:
    return batch


def _by_thread(share: ProcessBatches, places: range, pin: bool) -> Generator[Any]:
    with ThreadPoolExecutor(1, "triever-loader") as pool:
        ready: deque[Future[Any]] = deque()
        try:
            for place in places:
                ready.append(pool.submit(_fetch, share, place, pin))
                if len(ready) > AHEAD:
                    yield ready.popleft().result()
            while ready:
                yield ready.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _fetch(share: ProcessBatches, place: int, pin: bool) -> Any:
    batch = share[place]
    return recursively_apply(Tensor.pin_memory, batch) if pin else batch


class Pace:
    """Keeps Python at most some steps ahead of a GPU, which never has to wait for that.

    Without it, waiting for a batch while the GPU still has work would count as waiting for data.
    """

    def __init__(self, device: torch.device) -> None:
        self._open: deque[torch.cuda.Event] | None = deque() if device.type == "cuda" else None

    def step(self) -> None:
        """Say that a step has been given to the device."""
        if self._open is None:
            return
        event = torch.cuda.Event()
        event.record()
        self._open.append(event)
        if len(self._open) > STEPS_AHEAD:
            self._open.popleft().synchronize()


def rows(batch: Any) -> int:
    """How many rows the first tensor of a batch has."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 0
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else ()
    return next((count for part in parts if (count := rows(part))), 0)
