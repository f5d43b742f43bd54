"""The folder in which unfinished work is kept: whose it is, and what in it is Triever's to remove.

    m.work/triever-work.json      what is being made, and from what; only Triever writes a file of this name
           .triever-work.lock     held for the moment in which a process claims the folder
           training/, contrast/   checkpoints and metrics, as the training loop keeps them
           documents/             tokens of the documents
           vectors/, first/, …    the same for the parts of a retriever
           000003.jsonl           a shard of written questions

Only that work goes on here which began here. Files are removed one by one, by the table of names below, and
never a tree: what somebody else has put here stays. Links are not followed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from triever import artifact
from triever.errors import ArtifactError, DataError, UsageError
from triever.files import atomic, locked, open_regular

MARKER, LOCK = "triever-work.json", ".triever-work.lock"
FORMAT, VERSION = "triever-work", 1
EARLIER = "what.json"
"""The marker of earlier versions; a file of anybody's may have this name, so it says nothing by itself."""
LARGEST = 2**24
"""Bytes of a marker; a hundred times what the options of a large retriever take."""
WAIT = 60.0
"""Seconds to wait for another process that claims the folder, which takes it a moment."""

_PARTS = r"(?:(?:vectors|first|system\d+)/)*"
_TRAINING = rf"(?:{_PARTS}(?:training|contrast)/|)"  # a writer of questions that is tuned alone has it at the top
_STATE = re.compile(rf"{_TRAINING}training\.json")
_SHARD = re.compile(r"\d{6,}\.jsonl")
_FILES = [
    re.compile(r"triever-work\.json|\.triever-work\.lock"),
    _SHARD,
    _STATE,
    re.compile(rf"{_TRAINING}(?:\.lock|metrics\.jsonl|(?:weights|optimizer)-\d{{8,}}\.safetensors)"),
    re.compile(rf"{_TRAINING}tensorboard/events\.out\.tfevents\.[^/]+"),
    re.compile(rf"{_PARTS}documents/(?:(?:first|chunks|whole|behind titles)/)?(?:tokens|starts)\.npy"),
]
_FOLDERS = re.compile(
    rf"{_PARTS}(?:vectors|first|system\d+|training|contrast|documents|documents/(?:first|chunks|whole|behind titles))"
    rf"|{_TRAINING}tensorboard"
)
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp")  # as `files.atomic` names it
REMOVED = {"removed": True}  # what a folder is claimed for while it is removed
SHORT = 80  # characters of two values that are told; fingerprints are longer
AWAY = "work in a new folder, or move it away"
AGAIN = "remove that folder, or name another one"

_log = logging.getLogger("triever")


def claim(work: str | Path, what: Mapping[str, Any]) -> Path:
    """The folder to work in, unless it holds anything else, or the unfinished work of something else.

    Processes that work together may all claim it, at any time. Leftovers of other work from which nothing could
    go on are removed.
    """
    folder, plain = Path(work), json.loads(json.dumps(what))
    _check_place(folder)  # first: a folder that is refused does not get so much as a lock
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be made: {error.strerror}", "choose another place to work in") from error
    with locked(folder / LOCK, WAIT):
        _check_place(folder)
        before = _marked(folder)
        if before != plain:
            _take_over(folder, before, plain)
    return folder


def _take_over(folder: Path, before: dict[str, Any] | None, plain: dict[str, Any]) -> None:
    if before not in (None, REMOVED) and is_begun(folder):
        problem = f"{folder} holds unfinished work with other {', '.join(_differences(before, plain))}"
        raise UsageError(problem, AGAIN)
    _remove_files(folder, spare=(MARKER, LOCK))  # what failed before it could go on left nothing to lose
    _mark(folder, plain)


def _mark(folder: Path, what: Mapping[str, Any]) -> None:
    raw = {"format": FORMAT, "version": VERSION, "what": what}
    with atomic(folder / MARKER) as file:
        file.write(json.dumps({**raw, "digest": artifact.digest_of(raw)}, indent=1).encode())


def _differences(before: Mapping[str, Any], plain: Mapping[str, Any]) -> list[str]:
    """What differs, by name, with both values where they are short; of options in a table, the first.

    >>> _differences({"options": {"k": 1, "seed": 0}, "part": "1/2"}, {"options": {"k": 1, "seed": 5}, "part": "2/2"})
    ['options (seed = 0, not 5)', "part ('1/2', not '2/2')"]
    """
    found = []
    for name in {**plain, **before}:
        old, new, key = before.get(name), plain.get(name), ""
        while isinstance(old, dict) and isinstance(new, dict) and old != new:
            first = next(one for one in {**new, **old} if old.get(one) != new.get(one))
            old, new, key = old.get(first), new.get(first), f"{first} = "
        if old != new:
            values = f"{key}{old!r}, not {new!r}"
            found.append(f"{name} ({values})" if len(values) <= SHORT else name)
    return found


def is_begun(folder: Path) -> bool:
    """Whether there is something to go on from: a checkpoint, or a shard of questions."""
    begun = any(_STATE.fullmatch(name) or _SHARD.fullmatch(name) for name in _names(folder, "file"))
    return begun and _claimed_for(folder) != REMOVED


def remove(folder: Path) -> None:
    """Remove what Triever has made in a folder that it has claimed, and the folder if nothing else is in it."""
    if _claimed_for(folder) is None:
        return
    with contextlib.suppress(DataError):  # a full disk
        _mark(folder, REMOVED)  # so that after a kill nobody goes on from the half of it that is left
    strangers = _names(folder, "stranger")
    if strangers:
        _log.warning("%s stays, as it holds %s, which Triever does not write there", folder, strangers[0])
    _remove_files(folder)
    with contextlib.suppress(OSError):
        folder.rmdir()


def discard(folder: Path) -> None:
    """The same after a failure, if there is nothing to go on from; a folder with other things in it stays as it is."""
    if not is_begun(folder) and not _names(folder, "stranger"):
        remove(folder)


def _check_place(folder: Path) -> None:
    """Refuse what is no folder, a saved retriever or a folder in one, and one with somebody's files."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", "work in a new folder")
    place = folder.resolve()
    if saved := next((one for one in (place, *place.parents) if artifact.is_artifact(one)), None):
        raise UsageError(f"{folder} lies in the saved retriever {saved}", "work in a folder of its own")
    strangers, own = _names(folder, "stranger"), _names(folder, "file")  # before the marker, which others may put there
    if _is_of_earlier_version(strangers, own):
        problem = f"{folder} holds the unfinished work of an earlier version of Triever"
        raise UsageError(problem, "finish it with that version, or remove the folder to begin again")
    if strangers:
        raise UsageError(f"{folder} holds {strangers[0]}, which Triever does not write there", AWAY)
    if _marked(folder) is None and (foreign := [name for name in own if not _is_of_claim(name)]):
        raise UsageError(f"{folder} holds {foreign[0]} but no {MARKER}, so it may be somebody else's", AWAY)


def _is_of_earlier_version(strangers: list[str], own: list[str]) -> bool:
    """Whether nothing but the marker of earlier versions, and what a kill left of their files, is strange there."""
    others = [name for name in strangers if name != EARLIER and not name.endswith(".tmp")]
    return EARLIER in strangers and not others and MARKER not in own and bool(own)


def _is_of_claim(name: str) -> bool:
    """Whether it is the lock, or a marker that is being written, or was when its process was killed."""
    return name == LOCK or _bare(name) == MARKER


def _marked(folder: Path) -> dict[str, Any] | None:
    """What a folder was claimed for; nothing where it has not been."""
    place = folder / MARKER
    try:
        with open_regular(place, LARGEST) as file:
            raw = json.loads(file.read())
        digest = artifact.digest_of(raw) if isinstance(raw, dict) else ""
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not valid JSON"
        raise ArtifactError(f"{place} is damaged: {said}", AGAIN) from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT or not isinstance(raw.get("what"), dict):
        raise ArtifactError(f"{place} was not written by Triever", AGAIN)
    if raw.get("version") != VERSION or raw.get("digest") != digest:
        raise ArtifactError(f"{place} was changed, or written by a later version of Triever", AGAIN)
    return raw["what"]


def _claimed_for(folder: Path) -> dict[str, Any] | None:
    """The same, and nothing where the marker is damaged."""
    try:
        return _marked(folder)
    except ArtifactError:
        return None


def _names(folder: Path, kind: str) -> list[str]:
    """The names below a folder, as paths in it, of one kind: Triever's own `file`s and `folder`s, and each `stranger`.

    A stranger is anything that Triever does not write at that place; if it is a folder, its content is not looked at.
    """
    return sorted(name for name, found in _walk(folder, "") if found == kind)


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, str]]:
    try:
        entries = list(os.scandir(folder / prefix))
    except (FileNotFoundError, NotADirectoryError):  # it is not there, or no longer
        return
    except OSError as error:
        raise DataError(f"{folder / prefix} cannot be read: {error.strerror}", "check its permissions") from error
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if entry.is_dir(follow_symlinks=False) and _FOLDERS.fullmatch(name):
            yield name, "folder"
            yield from _walk(folder, f"{name}/")
        else:
            yield name, "file" if entry.is_file(follow_symlinks=False) and _is_own(name) else "stranger"


def _is_own(name: str) -> bool:
    return any(pattern.fullmatch(one) for pattern in _FILES for one in (name, _bare(name)))


def _bare(name: str) -> str:
    """The name for which a temporary one stands; any other as it is.

    >>> _bare("training/.training.json.0a1b2c3d.tmp")
    'training/training.json'
    """
    folder, slash, last = name.rpartition("/")
    found = _TEMPORARY.fullmatch(last)
    return f"{folder}{slash}{found[1]}" if found else name


def _remove_files(folder: Path, spare: tuple[str, ...] = ()) -> None:
    """Remove Triever's own files, the marker after all others, and its folders that are empty then."""
    own = [name for name in _names(folder, "file") if name not in spare]
    for name in sorted(own, key=lambda name: name in (MARKER, LOCK)):
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    for name in reversed(_names(folder, "folder")):
        with contextlib.suppress(OSError):  # somebody's files are in it
            (folder / name).rmdir()
