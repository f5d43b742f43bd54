"""Which file a recipe's results came from, and how a command names files and folders.

A recipe's name is its file's name, so two recipes may have the same one: a note beside the results tells them apart.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

OUT, WORK = Path("results"), Path("models/lab")
"""The folders for results, and for parts and checkpoints, where none are given."""
_HASHED = "sha256:"


def shown(path: str | Path) -> str:
    """A path as a command in the current folder names it: an absolute one becomes relative where it can.

    Results keep no folders of a machine, so a command with an absolute path could not be run again from them.
    """
    given = Path(path)
    return (_between(given, Path.cwd()) if given.is_absolute() else "") or given.as_posix()


def note_of(recipe: Path, folder: Path) -> str:
    """The note of a recipe's file for the folder of its results: the path from there, or else a hash of its path."""
    return _between(recipe, folder) or _hashed(recipe)


def other_recipe(note: str, folder: Path, recipe: Path) -> str:
    """The recipe that a note names, if it is another one; "" if it is this file, or one that is no longer there.

    A file that was edited is still the same recipe, and so is one that was moved: nothing is left where it was.
    """
    if note.startswith(_HASHED):
        elsewhere = "a recipe in another folder (if it is this one, moved, remove its recipe.json)"
        return "" if note == _hashed(recipe) else elsewhere
    other = _real(folder / "x").parent / note  # as the note was made: a link to the folder has other parents
    if not os.path.isfile(other) or other.samefile(recipe):
        return ""
    return shown(other.resolve())


def _between(path: Path, folder: Path) -> str:
    """The way from a folder to a path; "" where it would go through the root or by the folders of all users."""
    end, start = _real(path), _real(folder / "x").parent
    try:
        common = os.path.commonpath([end, start])
    except ValueError:  # two drives of Windows
        return ""
    if common in (end.anchor, os.path.dirname(os.path.expanduser("~"))):  # the names on it may tell who ran it
        return ""
    return Path(os.path.relpath(end, start)).as_posix()


def _real(path: Path) -> Path:
    """The path without links on the way; one that is a link itself keeps its name."""
    return Path(os.path.realpath(path.parent), path.name)


def _hashed(path: Path) -> str:
    return _HASHED + hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:16]
