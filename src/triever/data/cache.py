"""The folder for files that can be made again: `$TRIEVER_CACHE`, or `triever` in the user's cache folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

PATTERNS = ("python-*.jsonl", ".python-*.tmp", "teacher-*.npz", "teacher-*.lock", ".teacher-*.tmp", "quickstart-*")
"""Triever's own files and folders, and those that a killed writer leaves; no other is listed or removed."""


def cache_folder() -> Path:
    """The cache folder, created where it is missing."""
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def entries() -> list[Path]:
    """The cached files and folders."""
    return sorted(path for pattern in PATTERNS for path in _folder().glob(pattern))


def size(path: Path) -> int:
    """The bytes of a cached file, or of all files in a cached folder."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def clear() -> int:
    """Remove the cached files and folders; returns how many there were."""
    cached = entries()
    for path in cached:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return len(cached)


def _folder() -> Path:
    return Path(os.environ.get("TRIEVER_CACHE") or _user_cache() / "triever")


def _user_cache() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir())
