"""The id of a text file is its path below a root, and the same however the file is named.

Folders count by their real paths, with links and `..` resolved. A file counts by its own name in its folder: a corpus
may hold links to files elsewhere.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from triever.data.records import normalise


def text_id(path: Path, root: Path | None, start: Path) -> str:
    """The id of a file with this real path: its path below the root, or if it lies outside, below the start folder."""
    base = root if root and path.is_relative_to(root) else start
    return path.relative_to(base).as_posix()


def lies_in(path: str | Path, root: str | Path) -> bool:
    """Whether a file or folder is the root or lies in it, however both are named."""
    return bool(str(root)) and real_path(path, root).is_relative_to(real_folder(root))


def real_path(path: str | Path, root: str | Path = "") -> Path:
    """The real path of a folder or a file; of a link to a file of the root, the path of that file."""
    if os.path.isdir(path):
        return real_folder(path)
    folder, name = os.path.split(path)
    here = real_folder(folder or os.curdir)
    file = here / spelled(str(here), name)
    if str(root) and not file.is_relative_to(real_folder(root)):
        target = Path(os.path.realpath(file))
        return target if target.is_relative_to(real_folder(root)) else file
    return file


def real_folder(path: str | Path) -> Path:
    """The real path of a folder, each name as its own folder spells it."""
    real = Path(os.path.realpath(path))
    spelled_path = Path(real.anchor)
    for name in real.parts[1:]:
        spelled_path /= spelled(str(spelled_path), name)
    return spelled_path


def spelled(folder: str, name: str) -> str:
    """A name as its folder spells it, for file systems in which Docs and docs are the same."""
    if os.path.lexists(os.path.join(folder, name.swapcase())):
        with suppress(OSError):
            names = os.listdir(folder)
            if name not in names:
                return next((other for other in names if _folded(other) == _folded(name)), name)
    return name


def _folded(name: str) -> str:
    return normalise(name).casefold()


def root_to_keep(path: str | Path) -> str:
    """A folder as an absolute path to be saved; links stay, as they may point elsewhere one day.

    The result is "" for a path that is not valid Unicode.
    """
    plain = os.path.abspath(path)
    kept = plain if os.path.realpath(plain) == os.path.realpath(path) else os.path.realpath(path)  # .. behind a link
    return kept if _is_text(kept) else ""


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
