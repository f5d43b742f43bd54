"""Holds Ctrl-C, and the signal by which a batch system ends a process, until a training step is complete."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self, TypeAlias

SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | signal.Handlers | None
"""What `signal.signal` takes."""

logger = logging.getLogger("triever")


class Interrupts:
    """Holds the first signal that would end the process: `with Interrupts() as held: ...`, then `held.deliver()`.

    A second signal acts at once. Signals that the process ignores stay ignored. Outside the main thread no signal is
    held, because Python does not allow it there.
    """

    def __init__(self, *, hold: bool = True) -> None:
        self.came: int | None = None
        self._hold = hold and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS if self._hold else ():
            before = signal.getsignal(number)
            if before not in (signal.SIG_IGN, None):  # None: set by C code, which Python cannot restore
                self._before[number] = before
                signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def deliver(self) -> None:
        """Raise the signal that was held, if one came."""
        if self.came is not None:
            signal.raise_signal(self.came)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self.came = number
        self._restore()
        logger.warning("stopping after this step; a second signal stops at once")

    def _restore(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before = {}
