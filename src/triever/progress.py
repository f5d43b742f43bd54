"""Progress of long work: silent inside a program, a bar on the terminal once `show` has been called.

Where there is no terminal, `tell` has a line given out every few seconds instead: by the work itself as it counts, and
where it does not count, or takes long over one thing, by a thread that says what goes on.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from dataclasses import dataclass, field
from typing import TypeVar

from triever.printable import duration, printable

T = TypeVar("T")
EVERY = 5.0
"""Seconds between two lines about work that goes on."""
SILENCE = 15.0
"""Seconds without a line after which there is one all the same."""
LONG = 60.0
"""Seconds from which on a line says how long the rest will take."""
REDRAWN = 0.1
"""Seconds between two pictures of a bar: to draw one takes as long as to read some documents."""
_shown = False
_line: Callable[[str], object] | None = None
_last = 0.0  # when the last line was given out, whatever it was about: short pieces of work add up
_lock = threading.Lock()
_stop = threading.Event()  # ends the thread of the last `tell`


@dataclass(eq=False)
class _Work:
    """Something that takes long, and how much of it is done where it is counted."""

    title: str
    total: int | None = None
    unit: str = ""  # of what is counted; nothing is counted without one
    done: int = 0
    note: str = ""
    began: float = field(default_factory=lambda: time.monotonic())

    def __post_init__(self) -> None:
        self.done_before = self.done  # by an earlier call, say

    def __str__(self) -> str:
        of_all = f" of {self.total:,}" if self.total else ""
        counted = f": {self.done:,}{of_all} {self.unit}" if self.unit else ""
        notes = [note for note in (self._left(), self.note) if note]
        return "; ".join([f"{self.title}{counted}", *notes])

    def _left(self) -> str:
        """How long the rest will take, if that is known and long."""
        done = self.done - self.done_before
        if not self.total or done <= 0:
            return ""
        seconds = (time.monotonic() - self.began) / done * (self.total - self.done)
        return f"{duration(seconds)} left" if seconds >= LONG else ""


_works: list[_Work] = []  # what goes on now: the last is a part of the one before it


def show(on: bool) -> None:
    """Switch the bars on or off; the command line does this for a person at a terminal."""
    global _shown
    _shown = on


def is_shown() -> bool:
    """Whether bars are shown, so that another library may draw its own."""
    return _shown


def tell(line: Callable[[str], object] | None, *, always: bool = False) -> None:
    """Where no bars are shown, give a line about long work to this function every few seconds; None: no more.

    With `always` there is a line after SILENCE seconds also where nothing is counted, from another thread.
    """
    global _line, _last, _stop
    _stop.set()
    _line, _last, _stop = line, time.monotonic(), threading.Event()
    if line and always:
        threading.Thread(target=_break_silence, args=(_stop,), name="progress", daemon=True).start()


def _break_silence(stop: threading.Event) -> None:
    while not stop.wait(1.0):
        _say_after(SILENCE, beside_work=True)


def _say_after(seconds: float, *, beside_work: bool = False) -> None:
    """Give out a line about what goes on, if the last one is so many seconds ago."""
    global _last
    with _lock:
        now = time.monotonic()
        if _line is None or now - _last < seconds:
            return
        _last, line = now, _line
        work = _works[-1] if _works else _Work("working", began=now)
    line(f"{work}; {now - work.began:.0f} s so far" if beside_work else str(work))


@contextlib.contextmanager
def phase(title: str) -> Generator[None, None, None]:
    """Name work that counts nothing, such as opening a model, for lines about it."""
    with _going_on(_Work(title)):
        yield


@contextlib.contextmanager
def _going_on(work: _Work) -> Generator[None, None, None]:
    _works.append(work)
    try:
        yield
    finally:
        _works.remove(work)  # which need not be the last: a generator may be closed late


def track(
    items: Iterable[T], title: str, total: int | None = None, *, unit: str, size: Callable[[T], int] = lambda _item: 1
) -> Iterator[T]:
    """The same items, with a bar that counts them as they pass; `size` says how many units an item is."""
    if total is None and isinstance(items, Sized):
        total = sum(map(size, items))
    with bar(title, total, unit=unit) as count:
        done = 0
        for item in items:
            yield item
            done += size(item)
            count(done, "")


@contextlib.contextmanager
def bar(
    title: str, total: int | None, done: int = 0, *, unit: str
) -> Generator[Callable[[int, str], object], None, None]:
    """A bar for work that is no iterable. It gives a function that takes how much is done, and a note to show."""
    work = _Work(title, total, unit, done)
    if _shown:
        with _drawn(work) as count:
            yield count
        return

    def count(done: int, note: str) -> None:
        work.done, work.note = done, note
        _say_after(EVERY)

    with _going_on(work):
        count(done, "")
        yield count


@contextlib.contextmanager
def _drawn(work: _Work) -> Generator[Callable[[int, str], object], None, None]:
    """A bar on the terminal, which is taken away at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    texts = (TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[unit]", "fields[note]"))
    title, unit, note = texts
    columns = (title, BarColumn(), MofNCompleteColumn(), unit, TimeRemainingColumn(), note)
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(printable(work.title), total=work.total, completed=work.done, unit=work.unit, note="")
        drawn = 0.0

        def count(done: int, note: str) -> None:
            nonlocal drawn
            if (now := time.monotonic()) - drawn >= REDRAWN or done == work.total:
                drawn = now
                shown.update(task, completed=done, note=printable(note))

        yield count
