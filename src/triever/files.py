"""Files and folders that appear whole or not at all. Knows nothing about what is in them."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from triever.errors import DataError

_BUFFER = 2**20
# These may lead to a file, which must neither be replaced under the shell nor be written from its start.
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


@contextlib.contextmanager
def atomic(path: str | Path) -> Generator[BinaryIO, None, None]:
    """A binary file under another name that takes its place on success and is removed on any failure.

    A link stays one: what it points to is replaced. Into pipes and devices it is written straight away.
    """
    target = Path(path)
    if _is_stream(target):
        with _straight(target) as file:
            yield file
        return
    target = Path(os.path.realpath(target))
    temporary = _beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb", buffering=_BUFFER) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        raise DataError(f"{target} cannot be written: {error.strerror or error}", "check the folder") from error
    finally:
        with contextlib.suppress(OSError):  # gone already if all went well
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Generator[Path, None, None]:
    """The same for a folder, which must not hold anything yet."""
    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} is there already", "name a new folder, or remove this one")
    temporary = _beside(target)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        os.replace(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        raise DataError(f"{target} cannot be written: {error.strerror or error}", "check the folder") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _is_stream(target: Path) -> bool:
    """Whether there is something that takes bytes but is no file: a pipe, a terminal, /dev/null."""
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
        raise DataError(f"{target} cannot be written: {error.strerror or error}", "check where it leads") from error


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")


def sync_folder(folder: Path) -> None:
    """Make the new name last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
