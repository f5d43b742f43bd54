"""The folder in which unfinished work is kept: which work it belongs to, and which files Triever may remove.

    m.work/triever-work.json      what is being made, and from what; only Triever writes a file of this name
           .triever-work.lock     held for the moment in which a process claims the folder
           training/, answers/    checkpoints and metrics, as the training loop keeps them
           documents/             tokens of the documents
           vectors/, first/, …    the same for the parts of a retriever
           000003.jsonl           a shard of written questions

Only work that began in a folder goes on in it. Files are removed one by one, by the table of names below, and never a
whole tree: files of others stay. Links are not followed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from triever import artifact
from triever.errors import ArtifactError, DataError, UsageError
from triever.files import atomic, locked, open_regular

MARKER, LOCK = "triever-work.json", ".triever-work.lock"
FORMAT, VERSION = "triever-work", 1
EARLIER = "what.json"
"""The marker of earlier versions; other files may have this name too, so it proves nothing by itself."""
LARGEST = 2**24
"""The most bytes of a marker: a hundred times what the options of a large retriever take."""
WAIT = 60.0
"""Seconds to wait for another process that claims the folder, which takes it a moment."""

_PART = r"vectors|first|teacher|system\d+"
_PARTS = rf"(?:(?:{_PART})/)*"
_COURSE = "training|contrast|answers"
_TRAINING = rf"(?:{_PARTS}(?:{_COURSE})/|)"  # a writer of questions that is tuned alone has it at the top
_STATE = re.compile(rf"{_TRAINING}training\.json")
_SHARD = re.compile(r"\d{6,}\.jsonl")
_FILES = [
    re.compile(r"triever-work\.json|\.triever-work\.lock"),
    _SHARD,
    _STATE,
    re.compile(rf"{_TRAINING}(?:\.lock|metrics\.jsonl|(?:weights|optimizer)-\d{{8,}}\.safetensors)"),
    re.compile(rf"{_TRAINING}\.tmp[A-Za-z0-9]{{6}}"),  # as safetensors names a file while it writes it
    re.compile(rf"{_TRAINING}tensorboard/events\.out\.tfevents\.[^/]+"),
    re.compile(rf"{_PARTS}documents/(?:(?:first|chunks|whole|behind titles)/)?(?:tokens|starts)\.npy"),
]
_FOLDERS = re.compile(
    rf"{_PARTS}(?:{_PART}|{_COURSE}|documents|documents/(?:first|chunks|whole|behind titles))"
    rf"|{_TRAINING}tensorboard"
)
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp")  # as `files.atomic` names it
REMOVED = {"removed": True}  # the claim of a folder that is being removed
SHORT = 80  # the most characters of two values that an error shows; fingerprints are longer
AWAY = "work in a new folder, or move that file away"
AGAIN = "remove that folder, or name another one"

_log = logging.getLogger("triever")


def claim(work: str | Path, job: Mapping[str, object]) -> Path:
    """The folder to work in; an error if it holds other files, or the unfinished work of another job.

    Processes that work together may all claim it, at any time. Leftovers of another job are removed if it could not go
    on from them.
    """
    folder, plain = Path(work), json.loads(json.dumps(job))
    _check_folder(folder)  # first: a folder that is refused does not get so much as a lock
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be created: {error.strerror}", "choose another folder to work in") from error
    with locked(folder / LOCK, WAIT):
        _check_folder(folder)
        before = _marked(folder)
        if before != plain:
            _take_over(folder, before, plain)
    return folder


def _take_over(folder: Path, before: dict[str, object] | None, plain: dict[str, object]) -> None:
    if before is not None and before != REMOVED and is_begun(folder):
        problem = f"{folder} holds unfinished work with other {', '.join(_differences(before, plain))}"
        raise UsageError(problem, AGAIN)
    _remove_files(folder, spare=(MARKER, LOCK))  # what failed before it could go on left nothing to lose
    _mark(folder, plain)


def _mark(folder: Path, job: Mapping[str, object]) -> None:
    raw = {"format": FORMAT, "version": VERSION, "what": job}
    with atomic(folder / MARKER) as file:
        file.write(json.dumps({**raw, "digest": artifact.digest_of(raw)}, indent=1).encode())


def _differences(before: Mapping[str, object], plain: Mapping[str, object]) -> list[str]:
    """The names of what differs, with both values if they are short; of a table, only the first difference.

    >>> _differences({"options": {"k": 1, "seed": 0}, "part": "1/2"}, {"options": {"k": 1, "seed": 5}, "part": "2/2"})
    ['options (seed = 0, not 5)', "part ('1/2', not '2/2')"]
    """
    differences = []
    for name in {**plain, **before}:
        old, new, key = before.get(name), plain.get(name), ""
        while isinstance(old, dict) and isinstance(new, dict) and old != new:
            first = next(option for option in {**new, **old} if old.get(option) != new.get(option))
            old, new, key = old.get(first), new.get(first), f"{first} = "
        if old != new:
            values = f"{key}{old!r}, not {new!r}"
            differences.append(f"{name} ({values})" if len(values) <= SHORT else name)
    return differences


def is_begun(folder: Path) -> bool:
    """Whether work can go on from this folder: it has a checkpoint, or a shard of questions."""
    begun = any(_STATE.fullmatch(name) or _SHARD.fullmatch(name) for name in _names(folder, "file"))
    return begun and _claimed_for(folder) != REMOVED


def remove(folder: Path) -> None:
    """Remove the files that Triever has written in a folder that it has claimed, and the folder if it is empty then."""
    if _claimed_for(folder) is None:
        return
    with contextlib.suppress(DataError):  # a full disk
        _mark(folder, REMOVED)  # so that after a kill nobody goes on from the half of it that is left
    strangers = _names(folder, "stranger")
    if strangers:
        _log.warning("%s is not removed, because it holds %s, which Triever does not write there", folder, strangers[0])
    _remove_files(folder)
    with contextlib.suppress(OSError):
        folder.rmdir()


def discard(folder: Path) -> None:
    """Remove a folder after a failure, unless work can go on from it or it holds files of others."""
    if not is_begun(folder) and not _names(folder, "stranger"):
        remove(folder)


def _check_folder(folder: Path) -> None:
    """Refuse a file, a saved retriever, a folder inside one, and a folder with files of others."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", "name a folder to work in")
    path = folder.resolve()
    if saved := next((parent for parent in (path, *path.parents) if artifact.is_artifact(parent)), None):
        raise UsageError(f"{folder} lies inside the saved retriever {saved}", "work in another folder")
    # Listed before the marker is read, as another process may write the marker meanwhile.
    strangers, files = _names(folder, "stranger"), _names(folder, "file")
    if _is_of_earlier_version(strangers, files):
        problem = f"{folder} holds the unfinished work of an earlier version of Triever"
        raise UsageError(problem, "finish it with that version, or remove the folder to begin again")
    if strangers:
        raise UsageError(f"{folder} holds {strangers[0]}, which Triever does not write there", AWAY)
    if _marked(folder) is None and (foreign := [name for name in files if not _is_of_claim(name)]):
        raise UsageError(f"{folder} holds {foreign[0]} but no {MARKER}, so it may be somebody else's", AWAY)


def _is_of_earlier_version(strangers: list[str], files: list[str]) -> bool:
    """Whether the only strangers are the marker of an earlier version, and leftovers of a killed one."""
    unexplained = [name for name in strangers if name != EARLIER and not name.endswith(".tmp")]
    return EARLIER in strangers and not unexplained and MARKER not in files and bool(files)


def _is_of_claim(name: str) -> bool:
    """Whether the file is the lock, or a marker that is being written or was not finished."""
    return name == LOCK or _bare(name) == MARKER


def _marked(folder: Path) -> dict[str, object] | None:
    """The job that a folder was claimed for; None if it has not been claimed."""
    path = folder / MARKER
    try:
        with open_regular(path, LARGEST) as file:
            raw = json.loads(file.read())
        digest = artifact.digest_of(raw) if isinstance(raw, dict) else ""
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not valid JSON"
        raise ArtifactError(f"{path} is damaged: {problem}", AGAIN) from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT or not isinstance(raw.get("what"), dict):
        raise ArtifactError(f"{path} was not written by Triever", AGAIN)
    if raw.get("version") != VERSION or raw.get("digest") != digest:
        raise ArtifactError(f"{path} was changed, or written by a later version of Triever", AGAIN)
    return raw["what"]


def _claimed_for(folder: Path) -> dict[str, object] | None:
    """The same, and None if the marker is damaged."""
    try:
        return _marked(folder)
    except ArtifactError:
        return None


def _names(folder: Path, kind: str) -> list[str]:
    """The names below a folder, as paths in it, of one kind: Triever's own `file`s and `folder`s, and each `stranger`.

    A stranger is anything that Triever does not write at that place; if it is a folder, its content is not looked at.
    """
    return sorted(name for name, name_kind in _walk(folder, "") if name_kind == kind)


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
    return any(pattern.fullmatch(candidate) for pattern in _FILES for candidate in (name, _bare(name)))


def _bare(name: str) -> str:
    """The final name of a temporary file; any other name as it is.

    >>> _bare("training/.training.json.0a1b2c3d.tmp")
    'training/training.json'
    """
    folder, slash, last = name.rpartition("/")
    temporary = _TEMPORARY.fullmatch(last)
    return f"{folder}{slash}{temporary[1]}" if temporary else name


def _remove_files(folder: Path, spare: tuple[str, ...] = ()) -> None:
    """Remove Triever's own files, the marker and the lock last, and its folders that are empty then."""
    files = [name for name in _names(folder, "file") if name not in spare]
    for name in sorted(files, key=lambda name: name in (MARKER, LOCK)):
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    for name in reversed(_names(folder, "folder")):
        with contextlib.suppress(OSError):  # somebody's files are in it
            (folder / name).rmdir()
