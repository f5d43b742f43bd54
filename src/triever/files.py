"""Files and folders that appear whole or not at all, and locks on them. Knows nothing about what is in them."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Generator
from io import BufferedReader
from pathlib import Path
from typing import IO, BinaryIO

from triever.arguments import as_path
from triever.errors import ArtifactError, Busy, DataError

PAUSE = 0.05  # seconds between two tries to get a lock
_BUFFER = 2**20
# These may lead to a file, which must neither be replaced under the shell nor be written from its start.
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


# No link is followed, a pipe without a writer does not wait, and no child inherits it; Windows knows none of these.
_SAFELY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))


def open_regular(path: str | Path, limit: int | None = None) -> BufferedReader:
    """Open an ordinary file of at most `limit` bytes for reading; anything else is an OSError, without waiting.

    Somebody who can change the folder may have put a link, a pipe or a device there.
    """
    _check_regular(path, os.lstat(path), limit)  # first: to open a device may already do something
    descriptor = os.open(path, os.O_RDONLY | _SAFELY)
    try:
        _check_regular(path, os.fstat(descriptor), limit)  # it may have been replaced in between
    except OSError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def append_regular(path: str | Path) -> BinaryIO:
    """Open an ordinary file for writing at its end; it is made if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        _check_regular(path, os.lstat(path), None)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFELY, 0o666)
    try:
        _check_regular(path, os.fstat(descriptor), None)
    except OSError:
        os.close(descriptor)
        raise
    return open(descriptor, "ab")


def _check_regular(path: str | Path, status: os.stat_result, limit: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not an ordinary file", str(path))
    if limit is not None and status.st_size > limit:
        raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, more than {limit:,}", str(path))


@contextlib.contextmanager
def atomic(path: str | Path) -> Generator[BinaryIO, None, None]:
    """A binary file under a temporary name, which replaces `path` on success and is removed on any failure.

    A link stays a link: the file that it points to is replaced. Pipes and devices are written to directly.
    """
    target = as_path(path)
    if _is_stream(target):
        with _straight(target) as file:
            yield file
        return
    target = Path(os.path.realpath(target))
    temporary = _beside(target)
    with as_sentence(target), contextlib.ExitStack() as stack:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb", buffering=_BUFFER) as file:
            stack.callback(_remove, temporary)  # it is ours, as it was not there before
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        stack.pop_all()
        sync_folder(target.parent)


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Generator[Path, None, None]:
    """The same for a folder; a folder at `path` must be empty."""
    target = as_path(path)
    temporary = _beside(target)
    with as_sentence(target), contextlib.ExitStack() as stack:
        if os.path.exists(target) and (not target.is_dir() or any(target.iterdir())):
            raise DataError(f"{target} already exists", "name a new folder, or remove this one")
        temporary.mkdir(parents=True)
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)  # all of it is ours: it was not there before
        yield temporary
        os.replace(temporary, target)
        stack.pop_all()
        sync_folder(target.parent)


@contextlib.contextmanager
def as_sentence(target: Path) -> Generator[None]:
    """Turn a failure to write into an error in one sentence."""
    try:
        yield
    except OSError as error:
        raise _unwritten(target, error, "check the folder") from error


def write_hint(error: OSError, otherwise: str = "check the folder") -> str:
    """What to do if a file cannot be written: the second half of an error."""
    return _HINTS.get(error.errno or 0, otherwise)


_HINTS = {
    errno.ENOSPC: "make room on its disk, then run the same again",
    errno.EDQUOT: "make room on its disk, or ask for a larger quota, then run the same again",
    errno.EFBIG: "allow larger files (ulimit -f), then run the same again",
    errno.EROFS: "choose a disk that can be written to",
}


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _is_stream(target: Path) -> bool:
    """Whether the path takes bytes but is no file: a pipe, a terminal, /dev/null."""
    try:
        mode = os.stat(target).st_mode
    except OSError:
        return False
    return str(target) in _STANDARD or not (stat.S_ISDIR(mode) or stat.S_ISREG(mode))


@contextlib.contextmanager
def _straight(target: Path) -> Generator[BinaryIO, None, None]:
    try:
        standard = _STANDARD.get(str(target))
        with open(target if standard is None else os.dup(standard), "wb", buffering=_BUFFER) as file:
            yield file
    except OSError as error:
        raise _unwritten(target, error, "check where it leads") from error


def _unwritten(target: Path, error: OSError, otherwise: str) -> DataError:
    return DataError(f"{target} cannot be written: {error.strerror or error}", write_hint(error, otherwise))


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, wait: float = 0) -> Generator[None]:
    """An advisory lock on a file, for one holder at a time; the system drops it when the holder dies.

    `wait` is how many seconds to wait for another holder. Errors name the folder of the file.
    """
    try:
        file = append_regular(path)
    except OSError as error:
        problem = f"{path.parent} cannot be written to: {error.strerror}"
        raise ArtifactError(problem, "check its permissions, or save elsewhere") from error
    with file:  # closing it releases the lock
        deadline = time.monotonic() + wait
        while not _lock(file):
            if time.monotonic() >= deadline:
                raise Busy(f"{path.parent} is being written to by another process", "wait for it to end")
            time.sleep(PAUSE)
        yield


if os.name == "nt":
    import msvcrt

    def _take(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock(file: IO[bytes]) -> bool:
    """Take the lock; whether that succeeded."""
    try:
        _take(file)
    except OSError:
        return False
    return True
