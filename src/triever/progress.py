"""Progress of long work: silent inside a program, a bar on the terminal once `show` has been called."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TypeVar

from triever.printable import printable

T = TypeVar("T")
_shown = False


def show(on: bool) -> None:
    """Switch the bars on or off; the command line does this for a person at a terminal."""
    global _shown
    _shown = on


def track(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """The same items, with a bar that counts them as they pass."""
    if not _shown:
        yield from items
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
        yield lambda _done, _note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    note_column = TextColumn("{task.fields[note]}", markup=False)
    with Progress(*columns, note_column, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(printable(title), total=total, completed=done, note="")
        yield lambda done, note: shown.update(task, completed=done, note=printable(note))
