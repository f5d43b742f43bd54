"""Every error that Triever raises on purpose, and what the person should do next.

    TrieverError
    ├── UsageError          an option, a name or a value that does not fit
    │   ├── MissingExtra    a part that needs a package which is not installed
    │   └── UnknownKind     a system or docid scheme that nobody brings
    ├── DataError           a file or record that cannot be used
    │   └── BadRecord       one malformed line; knows its file and line
    ├── ArtifactError       a saved folder that cannot be used
    │   └── Busy            another process is writing to it
    └── ServerError         a server that cannot be reached, or cannot answer now

An error is one sentence in two halves, `what is wrong; what to do`, and the command line prints
exactly that. Anything that is not a TrieverError is a bug in Triever.
"""

from __future__ import annotations

import difflib
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path


class TrieverError(Exception):
    """What is wrong, and a hint that says what to do about it."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem, hint)  # both, so that errors survive being sent between processes
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.problem}; {self.hint}" if self.hint else self.problem


class UsageError(TrieverError):
    """An option, a name or a value that does not fit."""


class MissingExtra(UsageError):
    """A part of Triever that needs a package which is not installed."""

    def __init__(self, feature: str, install: str) -> None:
        super().__init__(f"{feature} needs a package that is not installed", f"run: {install}")
        self.args = (feature, install)


@contextmanager
def needed_for(feature: str, install: str) -> Generator[None]:
    """Inside of the block packages of an extra are imported; where one is missing, this says how to install it.

    A part that stands on another one names its own extra, which brings both.
    """
    try:
        yield
    except (ModuleNotFoundError, MissingExtra) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("triever"):
            raise
        raise MissingExtra(feature, install) from error


class UnknownKind(UsageError):
    """A system or a docid scheme that neither Triever nor an installed package brings."""

    def __init__(self, kind: str, problem: str, hint: str) -> None:
        super().__init__(problem, hint)
        self.args = (kind, problem, hint)
        self.kind = kind


class DataError(TrieverError):
    """A file or record that cannot be used."""


class BadRecord(DataError):
    """One malformed line or record, with its place: `file:line: what is wrong; what to do`."""

    def __init__(self, path: str | Path, line: int, problem: str, hint: str = "") -> None:
        super().__init__(f"{path}:{line}: {problem}", hint)
        self.args = (path, line, problem, hint)
        self.path = Path(path)
        self.line = line


class ArtifactError(TrieverError):
    """A saved folder that is torn, changed, newer than this Triever, or not Triever's at all."""


class Busy(ArtifactError):
    """Another process is writing to the folder."""


class ServerError(TrieverError):
    """A server that cannot be reached, or that cannot answer now."""


class Flaw(Exception):
    """Something wrong inside one record, raised where its file and line are not known; a reader adds them."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem, hint)
        self.problem = problem
        self.hint = hint


def cause(error: Exception) -> str:
    """What is wrong with a file's content, in plain words.

    >>> cause(KeyError("cell")), cause(ValueError("Expecting value"))
    ("it has no 'cell'", 'it is not valid JSON')
    """
    if isinstance(error, OSError):
        return error.strerror or "it cannot be read"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return "it is not valid JSON" if isinstance(error, ValueError) else "a value in it is of another type than expected"


def close_name(name: str, known: Iterable[str]) -> str:
    """The known name that is closest to another one, whatever its case; "" where none is close."""
    folded = {other.casefold(): other for other in sorted(map(str, known), reverse=True)}
    close = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    return folded[close[0]] if close else ""


def meant(name: str, known: Iterable[str]) -> str:
    """A hint that names the closest known name; "" where none is close.

    >>> meant("Lanugage", ["language", "k1"]), meant("zzz", ["b"])
    ('did you mean language?', '')
    """
    close = close_name(name, known)
    return f"did you mean {close}?" if close else ""


def nearest(name: str, known: Iterable[str], *, listed: int = 20) -> str:
    """A hint that names the closest known name, whatever its case, or lists the first of them.

    >>> nearest("Lanugage", ["language", "k1"])
    'did you mean language?'
    >>> nearest("zzz", ["b", "a"])
    'known: a, b'
    """
    names = sorted(map(str, known))
    if hint := meant(name, names):
        return hint
    more = ", …" if len(names) > listed else ""
    return f"known: {', '.join(names[:listed])}{more}" if listed and names else "check the name"
