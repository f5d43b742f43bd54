"""Files and folders that appear whole or not at all. Knows nothing about what is in them."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from triever.errors import DataError

_BUFFER = 2**20


@contextlib.contextmanager
def atomic(path: str | Path) -> Generator[BinaryIO, None, None]:
    """A binary file under another name that takes its place on success and is removed on any failure."""
    target = Path(path)
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
