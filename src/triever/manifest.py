"""What an artifact says of itself: its kind, options and state, and every file with its hash.

A manifest may come from a stranger, so that everything in it is checked before it is believed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from triever.errors import ArtifactError
from triever.files import open_regular

FORMAT = "triever"
VERSION = 2
"""Version 1 had documents in a Parquet table, which is still read."""
MANIFEST = "manifest.json"
CONTENT_NAME = re.compile(r"[a-z0-9_]+-[0-9a-f]{16}\.(json|md|npy|parquet|safetensors)")
ROLE = re.compile(r"[a-z0-9_]+")
RESAVE = "save the retriever again, or copy the folder again from where it came"
LARGEST_MANIFEST = 2**30
"""The most bytes that a manifest may have; the largest known ones have a hundredth of it."""
BEGINNING = f'{{\n "format": "{FORMAT}",'
"""The beginning of every manifest; a torn one still has it."""


@dataclass(frozen=True)
class ArtifactFile:
    """One file of an artifact."""

    file: str
    sha256: str
    bytes: int

    def is_in(self, folder: Path) -> bool:
        """Whether a folder has this very file."""
        try:
            with open_regular(folder / self.file) as file:
                self.check(file, folder)
        except (OSError, ArtifactError):
            return False
        return True

    def check(self, file: BufferedReader, shown: Path, *, hashes: bool = True) -> None:
        """Compare an open file with what was saved. Errors name it below `shown`. The file is left at its start."""
        size = os.fstat(file.fileno()).st_size
        if size != self.bytes:
            raise self.damaged(shown, f"has {size} bytes, but {self.bytes} were saved")
        if hashes and hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
            raise self.damaged(shown, "was changed after it was saved")
        file.seek(0)

    def damaged(self, shown: Path, problem: str) -> ArtifactError:
        """An error that says what is wrong with the file."""
        return ArtifactError(f"{shown / self.file} {problem}", RESAVE)


@dataclass(frozen=True)
class Manifest:
    """What an artifact is: the kind of thing, its options, its state, and its files by role."""

    kind: str
    options: Mapping[str, Any]
    state: Mapping[str, Any]
    files: Mapping[str, ArtifactFile]
    written_by: str = ""
    version: int = VERSION

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(entry.bytes for entry in self.files.values())

    @property
    def fingerprint(self) -> str:
        """A hash of all files and of the state."""
        hashes = {role: entry.sha256 for role, entry in self.files.items()}
        return hashlib.sha256(json.dumps([hashes, self.state], sort_keys=True).encode()).hexdigest()


def manifest_bytes(folder: Path) -> bytes:
    """The manifest of a folder as it is on the disk."""
    with open_regular(folder / MANIFEST, LARGEST_MANIFEST) as file:
        return file.read()


def is_artifact(folder: Path) -> bool:
    """Whether the manifest of this folder is Triever's; it may be damaged or of a later version."""
    try:
        manifest = json.loads(manifest_bytes(folder))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def parse_manifest(text: str, folder: Path) -> Manifest:
    """The manifest of a folder, or of what stands for one; errors name it below `folder`."""
    path = folder / MANIFEST
    try:
        raw = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is damaged: it is not valid JSON", how_to_mend(text.encode())) from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise ArtifactError(f"{path} was not written by Triever", "name a folder saved by Triever")
    version = raw.get("version")
    if type(version) is not int or version < 1:
        raise ArtifactError(f"{path} has format version {version!r}, which no Triever has written", RESAVE)
    if version > VERSION:
        problem = f"{path} has format version {version}, but this Triever reads versions up to {VERSION}"
        raise ArtifactError(problem, "run: pip install --upgrade triever")
    if raw.get("digest") != digest_of(raw):
        raise ArtifactError(f"{path} was changed after it was saved", RESAVE)
    return _manifest_of(path, raw)


def how_to_mend(content: bytes) -> str:
    """What to do about a torn manifest, as far as `check_place` will allow it."""
    return RESAVE if is_torn(content) else "if it was a saved retriever, copy it again, or save to a new folder"


def is_torn(content: bytes) -> bool:
    """Whether this is the beginning of a manifest, or what a crash of the machine leaves of one."""
    beginning = BEGINNING.encode()
    return not content.strip(b"\0") or content.startswith(beginning) or beginning.startswith(content)


def _manifest_of(path: Path, raw: Mapping[str, Any]) -> Manifest:
    try:
        files = {role: ArtifactFile(**entry) for role, entry in raw["files"].items()}
        manifest = Manifest(raw["kind"], raw["options"], raw["state"], files, raw["written_by"], raw["version"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path} is not a valid manifest: {error}", RESAVE) from error
    typed = (manifest.kind, str), (manifest.options, dict), (manifest.state, dict), (manifest.written_by, str)
    if not all(isinstance(value, kind) for value, kind in typed):
        raise ArtifactError(f"{path} is not a valid manifest: an entry has the wrong type", RESAVE)
    for role, entry in files.items():
        # A name with a folder in it could point outside: a stranger's manifest must not reach there.
        if not _is_entry(role, entry):
            name = entry.file if isinstance(entry.file, str) else role
            raise ArtifactError(f"{path} names the file {name!r}, which Triever never writes", "do not use this folder")
    return manifest


def _is_entry(role: str, entry: ArtifactFile) -> bool:
    """Whether a file of this role has the name that its content gives it."""
    if not (isinstance(entry.file, str) and isinstance(entry.sha256, str) and type(entry.bytes) is int):
        return False
    named = CONTENT_NAME.fullmatch(entry.file) and ROLE.fullmatch(role)
    return bool(named) and entry.file.startswith(f"{role}-{entry.sha256[:16]}.") and entry.bytes >= 0


def digest_of(raw: Mapping[str, object]) -> str:
    """The hash that a JSON object carries of itself, over all but its own `digest`."""
    body = {key: value for key, value in raw.items() if key != "digest"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def refuse_constant(name: str) -> None:
    """Refuse what Python's JSON reads beyond JSON: NaN and infinities."""
    raise ValueError(f"{name} is not a number that JSON knows")


def content_name(role: str, sha256: str, ending: str) -> str:
    """The name of a file, which other content would change."""
    return f"{role}-{sha256[:16]}.{ending}"


def is_content_name(name: str) -> bool:
    """Whether a file of this name is one that an artifact names by its content."""
    return bool(CONTENT_NAME.fullmatch(name))
