"""Progress of long work: silent inside a program, a bar on the terminal once `show` has been called.

Where there is no terminal, `tell` has a line given out every few seconds instead.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from typing import TypeVar

from triever.printable import printable

T = TypeVar("T")
EVERY = 5.0
"""Seconds between two lines about work that goes on."""
_shown = False
_line: Callable[[str], object] | None = None
_last = 0.0  # when the last line was given out, whatever it was about: short pieces of work add up


def show(on: bool) -> None:
    """Switch the bars on or off; the command line does this for a person at a terminal."""
    global _shown
    _shown = on


def tell(line: Callable[[str], object] | None) -> None:
    """Where no bars are shown, give a line about long work to this function every few seconds; None: no more."""
    global _line, _last
    _line, _last = line, time.monotonic()


def _counter(title: str, total: int | None, done: int = 0) -> Callable[[int, str], object]:
    """What is called with how much is done, and now and then gives a line about it."""
    of_all = f" of {total:,}" if total else ""

    def count(done: int, note: str = "") -> None:
        global _last
        if _line is not None and (now := time.monotonic()) - _last >= EVERY:
            _last = now
            _line(f"{title}: {done:,}{of_all}{f'; {note}' if note else ''}")

    count(done)
    return count


def track(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """The same items, with a bar that counts them as they pass."""
    if not _shown:
        count = _counter(title, total if total is not None or not isinstance(items, Sized) else len(items))
        for number, item in enumerate(items, 1):
            yield item
            count(number, "")
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield from bar.track(items, total=total, description=printable(title))


@contextlib.contextmanager
def bar(title: str, total: int, done: int = 0) -> Generator[Callable[[int, str], object], None, None]:
    """A bar for work that is no iterable. It gives a function that takes how much is done, and a note to show."""
    if not _shown:
        yield _counter(title, total, done)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    note_column = TextColumn("{task.fields[note]}", markup=False)
    with Progress(*columns, note_column, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(printable(title), total=total, completed=done, note="")
        yield lambda done, note: shown.update(task, completed=done, note=printable(note))
