"""The folder for what can be made again: `$TRIEVER_CACHE`, or the user's cache folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

PATTERNS = ("python-*.jsonl", ".python-*.tmp")
"""What Triever puts there, and what a killed writer may leave: nothing else is listed or removed."""


def cache_folder() -> Path:
    """The cache folder, created where it is missing."""
    folder = _place()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def entries() -> list[Path]:
    """The files that are cached now."""
    return sorted(path for pattern in PATTERNS for path in _place().glob(pattern))


def clear() -> int:
    """Remove them, and say how many there were."""
    found = entries()
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def _place() -> Path:
    return Path(os.environ.get("TRIEVER_CACHE") or _user_cache() / "triever")


def _user_cache() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir())
