"""The metrics of a training: means of the loss's parts, one JSON line at a time.

Losses stay on the device until a line is written, so that a GPU does not have to be waited for at every step.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import torch
from torch import Tensor

from triever.errors import DataError, MissingExtra, UsageError
from triever.files import append_regular, write_hint
from triever.printable import duration
from triever.training.loader import Feed

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch.utils.tensorboard import SummaryWriter

logger = logging.getLogger("triever")

Line: TypeAlias = Mapping[str, float | Mapping[str, float]]
"""One line of metrics; a nested mapping has the parts of a loss, or the measures of an evaluation."""

HISTORY = "metrics.jsonl"
HELD = 500  # values of so many micro batches may stay on the device; more are fetched before the line ends


class Meter:
    """Named values since the last line. They stay on the device until a method needs them, and only that waits."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self.load({})

    def load(self, state: Mapping[str, list[float]]) -> None:
        """Go on from a `state`."""
        self._known = {name: list(values) for name, values in state.items()}
        self._open: dict[str, list[Tensor]] = {}
        self._steps: list[int] = []  # the steps of the losses that are still on the device

    def clear(self) -> None:
        """Begin a new line."""
        self.load({})

    def loss(self, step: int, values: Mapping[str, Tensor]) -> None:
        """Add the values of one micro batch, of which `loss` must be finite."""
        self._steps.append(step)
        self.add(values)

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Add one value for each name."""
        for name, value in values.items():
            self._open.setdefault(name, []).append(value.detach())
        if len(self._steps) >= HELD:
            self._fetch()

    def means(self) -> dict[str, float]:
        """The mean of each value over the micro batches and the processes; waits for the device.

        A loss that is not finite ends the training here, before a line or a checkpoint is written.
        """
        self._fetch()
        return {name: _mean(values) for name, values in self._known.items()}

    def state(self) -> dict[str, list[float]]:
        """All values of the line so far, as plain numbers."""
        self._fetch()
        return self._known

    def _fetch(self) -> None:
        """Fetch the values from the device, each as its mean over the processes."""
        if not self._open:
            return
        flat = torch.cat([torch.stack(values).float() for values in self._open.values()])
        means = iter(self._accelerator.gather(flat[None]).cpu().double().mean(0).tolist())
        fetched = {name: [next(means) for _ in values] for name, values in self._open.items()}
        _check_finite(self._steps, fetched.get("loss", []))
        for name, values in fetched.items():
            self._known.setdefault(name, []).extend(values)
        self._open, self._steps = {}, []


def _mean(values: list[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except (OverflowError, ValueError):  # fsum refuses infinities
        return sum(values) / len(values)


def _check_finite(steps: list[int], losses: list[float]) -> None:
    for step, loss in zip(steps, losses, strict=True):
        if not math.isfinite(loss):
            raise UsageError(
                f"the loss was not finite at step {step}",
                "lower learning_rate, set clip = 1.0 or precision = float32, or look for a bad batch",
            )


class Timed:
    """Says once that a training takes long, as soon as its first steps show it."""

    KNOWN = 20.0
    """Seconds of steps after which their speed is known: early steps are slower than the others."""
    COMPILED = 360.0
    """Seconds that a first step may take without telling of the others."""
    LONG = 3600.0
    """Seconds that a person should hear of before they have passed."""

    def __init__(self) -> None:
        self.steps, self.seconds, self.is_begun, self.is_told = 0, 0.0, False, False

    def tell(self, name: str, seconds: float, left: int) -> None:
        """Count a step of so many seconds; `left` more are to come."""
        first, self.is_begun = not self.is_begun, True
        # The first step compiles the model, or waits for what is loaded, for minutes at most.
        if self.is_told or (first and seconds < self.COMPILED):
            return
        self.steps, self.seconds = self.steps + 1, self.seconds + seconds
        if self.seconds < self.KNOWN:
            return
        self.is_told = True
        each = self.seconds / self.steps
        if each * left >= self.LONG:
            message = "%s: at %s a step the other %s steps take %s; a GPU, fewer steps or smaller batches take less"
            speed = f"{each:.3g} s" if each < 100 else duration(each)
            logger.warning(message, name, speed, f"{left:,}", duration(each * left))


class Window:
    """Time, examples and waiting since the last line of metrics."""

    def __init__(self) -> None:
        self.clear()
        self.restart()

    def clear(self) -> None:
        """Begin a new line."""
        self.steps, self.examples, self.seconds, self.waited = 0, 0, 0.0, 0.0

    def restart(self) -> None:
        """Begin to count another feed."""
        self._fed = 0.0
        self.pause()

    def pause(self) -> None:
        """Leave out the time since the last step."""
        self._last = time.perf_counter()

    def lap(self, feed: Feed) -> tuple[float, float]:
        """Count a step; return the seconds that it took and how many of them were spent waiting for data."""
        now = time.perf_counter()
        seconds, waited = now - self._last, feed.waited - self._fed
        self._last, self._fed = now, feed.waited
        self.steps, self.seconds, self.waited = self.steps + 1, self.seconds + seconds, self.waited + waited
        return seconds, waited

    def speeds(self) -> dict[str, float]:
        """Steps and examples per second, and the share of the time that was spent waiting."""
        seconds = max(self.seconds, 1e-9)
        return {
            "steps_per_second": self.steps / seconds,
            "examples_per_second": self.examples / seconds,
            "waited": self.waited / seconds,
        }


class History:
    """Writes lines of metrics into a folder, and to TensorBoard if asked; without a folder it writes nothing."""

    def __init__(self, folder: Path | None, *, tensorboard: bool) -> None:
        self.path = folder / HISTORY if folder else None
        self._board = _board() if tensorboard and folder else None
        self._writer: SummaryWriter | None = None

    def open(self, size: int, step: int) -> None:
        """Cut the file to the size that it had at a checkpoint, and go on from there."""
        if self.path is None:
            return
        with self._appended() as file:
            file.truncate(min(size, os.fstat(file.fileno()).st_size))
        if self._board:
            self._writer = self._board(str(self.path.parent / "tensorboard"), purge_step=step + 1)

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return self.path.stat().st_size if self.path and self.path.exists() else 0

    def write(self, line: Line) -> None:
        """Append one line; numbers that are not finite become null, as JSON has none."""
        if self.path is None:
            return
        with self._appended() as file:
            file.write(json.dumps(_finite(line), ensure_ascii=False).encode() + b"\n")
        if self._writer:
            step = line["step"]
            for name, value in _flat(line):
                self._writer.add_scalar(name, value, step)

    @contextlib.contextmanager
    def _appended(self) -> Generator[BinaryIO]:
        """Open the file to be written at its end; refuse anything that is not an ordinary file."""
        assert self.path is not None  # the caller has checked
        try:
            with append_regular(self.path) as file:
                yield file
        except OSError as error:
            raise DataError(f"{self.path} cannot be written: {error.strerror}", write_hint(error)) from error

    def close(self) -> None:
        """Write what TensorBoard still buffers."""
        if self._writer:
            self._writer.close()


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flat(line: Line, prefix: str = "") -> list[tuple[str, float]]:
    """The numbers of a line, nested ones as `parent/name`; the step is the axis, not a value."""
    scalars: list[tuple[str, float]] = []
    for name, value in line.items():
        if isinstance(value, Mapping):
            scalars += _flat(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name != "step":
            scalars.append((f"{prefix}{name}", float(value)))
    return scalars


def _board() -> type[SummaryWriter]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra("tensorboard = true", "pip install tensorboard") from error
    return SummaryWriter
