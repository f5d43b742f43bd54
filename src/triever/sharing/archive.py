"""A saved retriever as one zip, and back.

The files of an artifact are stored in it as they are, in the order of their names and without times, so that one
artifact always gives the same bytes. Nothing is compressed: tables are already, weights cannot be, and a zip that may
not compress cannot be a bomb. A retriever maps its files into memory, so that a zip is unpacked before it is opened.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zipfile
from collections.abc import Generator
from io import BytesIO
from pathlib import Path
from typing import IO

from triever import artifact
from triever.arguments import as_path
from triever.errors import ArtifactError, TrieverError
from triever.files import atomic, open_regular
from triever.manifest import LARGEST_MANIFEST
from triever.progress import phase
from triever.sharing.landing import Landing, landing

NO_TIME = (1980, 1, 1, 0, 0, 0)
"""The first time that a zip can hold."""
READABLE = 0o100644 << 16
"""An ordinary file that its owner may write and everybody may read, as a zip says it."""
ENCRYPTED = 0x1
PIECE = 2**20
AGAIN = "copy it again from where it came, or make a new one with: triever pack"
OTHERWISE = "unpack it with another program, then look at the folder with: triever status"


def pack(model: str | Path, out: str | Path) -> Path:
    """Write a saved retriever into one zip, whole or not at all. The same retriever always gives the same bytes."""
    out = as_path(out)
    with artifact.read(model) as snapshot, phase(f"packing {model}"), atomic(out) as file:
        files = sorted((entry.file, role) for role, entry in snapshot.manifest.files.items())
        manifest = snapshot.manifest_text.encode()
        with zipfile.ZipFile(file, "w") as archive:
            _add(archive, artifact.MANIFEST, BytesIO(manifest), len(manifest))
            for name, role in files:
                _add(archive, name, snapshot.file(role), snapshot.manifest.files[role].bytes)
    return out


def _add(archive: zipfile.ZipFile, name: str, content: IO[bytes], size: int) -> None:
    info = zipfile.ZipInfo(name, NO_TIME)
    info.create_system, info.external_attr, info.file_size = 3, READABLE, size
    with archive.open(info, "w") as file:
        shutil.copyfileobj(content, file, PIECE)


def unpack(path: str | Path, out: str | Path, *, replace: bool = False) -> Path:
    """Unpack what `pack` has written into a folder that `load` opens, after every file has been checked.

    A saved retriever that is there already is replaced only with `replace`; any other file is refused.
    """
    path, out = as_path(path), as_path(out)
    with _opened(path) as archive, landing(out, replace=replace, keep=False) as place, phase(f"unpacking {path}"):
        _refuse_tricks(path, archive)
        text = _manifest_text(path, archive)
        manifest = artifact.parse_manifest(text, path)
        _check_names(path, archive, manifest)
        for entry in manifest.files.values():
            _extract(path, archive, entry, place)
        place.land(text, manifest)
    return out


@contextlib.contextmanager
def _opened(path: Path) -> Generator[zipfile.ZipFile]:
    """A zip; whatever is wrong with it is an error in one sentence."""
    try:
        file = open_regular(path)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be opened: {error.strerror}", "check the path") from error
    try:
        with file, zipfile.ZipFile(file) as archive:
            yield archive
    except (TrieverError, OSError, MemoryError):
        raise
    except Exception as error:  # of the zip: zipfile raises errors of many kinds over broken ones
        raise ArtifactError(
            f"{path} is not a zip, or is damaged: {str(error) or type(error).__name__}", AGAIN
        ) from error


def _refuse_tricks(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse what `pack` never writes, and what could take more room than the zip itself."""
    for info in archive.infolist():
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & ENCRYPTED:
            raise ArtifactError(f"{path} was not made by triever pack: {info.filename!r} is compressed", OTHERWISE)
    if sum(info.file_size for info in archive.infolist()) > os.stat(path).st_size:
        raise ArtifactError(f"{path} holds more than its own size, as no zip of Triever does", "do not use this file")


def _manifest_text(path: Path, archive: zipfile.ZipFile) -> str:
    try:
        info = archive.getinfo(artifact.MANIFEST)
    except KeyError:
        problem = f"{path} is not a packed Triever artifact: it has no {artifact.MANIFEST}"
        raise ArtifactError(problem, "make one with: triever pack MODEL --out FILE") from None
    if info.file_size > LARGEST_MANIFEST:
        raise ArtifactError(f"{path} has a manifest of {info.file_size:,} bytes", "do not use this file")
    return archive.read(info).decode("utf-8")


def _check_names(path: Path, archive: zipfile.ZipFile, manifest: artifact.Manifest) -> None:
    """Refuse files that the manifest does not name, twice or at all; the names in a manifest lead nowhere else."""
    wanted = [artifact.MANIFEST, *(entry.file for entry in manifest.files.values())]
    held = archive.namelist()
    if missing := sorted({*wanted} - {*held}):
        raise ArtifactError(f"{path} lacks {missing[0]}", AGAIN)
    if len(held) > len(wanted):
        other = sorted({*held} - {*wanted}) or sorted(name for name in held if held.count(name) > 1)
        raise ArtifactError(f"{path} holds {other[0]!r}, which its manifest does not name", "do not use this file")


def _extract(path: Path, archive: zipfile.ZipFile, entry: artifact.ArtifactFile, place: Landing) -> None:
    arrived = place.scratch / entry.file
    with archive.open(entry.file) as source, open(arrived, "wb") as target:
        shutil.copyfileobj(source, target, PIECE)
    place.take(arrived, entry, path)
