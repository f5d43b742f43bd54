"""Where an artifact arrives: in a folder beside its target, which takes the target's place once it is whole.

    .NAME.part/.lock     held by the one process that fetches
    .NAME.part/files/    files that have arrived, each checked against the manifest
    .NAME.part/scratch/  what is under way

A target that does not exist yet appears in one step. One that is replaced gets the new files beside its old ones and
then the new manifest, as by any save: open readers keep what they have, and a crash leaves the old state.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from triever import artifact
from triever.arguments import as_path
from triever.errors import ArtifactError
from triever.files import as_sentence, locked, sync_folder

FILES, SCRATCH = "files", "scratch"


@dataclass(frozen=True)
class Landing:
    """The folder beside a target, for the one process that holds it."""

    target: Path
    beside: Path
    replace: bool

    @property
    def files(self) -> Path:
        """The folder for files that have arrived."""
        return self.beside / FILES

    @property
    def scratch(self) -> Path:
        """The folder for what is under way."""
        return self.beside / SCRATCH

    def has(self, entry: artifact.ArtifactFile) -> bool:
        """Whether a file is here already: from an earlier try, or in the artifact that is to be replaced."""
        return entry.is_in(self.files) or (self.replace and entry.is_in(self.target))

    def take(self, arrived: Path, entry: artifact.ArtifactFile, shown: Path) -> None:
        """Keep a file that has arrived, from `shown`, if it is the one that was saved; else remove it."""
        try:
            with open(arrived, "rb") as file:
                entry.check(file, shown)
                os.fsync(file.fileno())
        except ArtifactError:
            arrived.unlink()
            raise
        os.replace(arrived, self.files / entry.file)

    def land(self, text: str, manifest: artifact.Manifest) -> None:
        """Make what has arrived the artifact, with this manifest."""
        with open(self.files / artifact.MANIFEST, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if not self.target.exists() or not any(self.target.iterdir()):
            sync_folder(self.files)
            os.replace(self.files, self.target)
            sync_folder(self.target.parent)
            return
        with artifact.writing(self.target, replace=self.replace) as writer:
            writer.adopt(self.files, manifest)


@contextlib.contextmanager
def landing(path: str | Path, *, replace: bool, keep: bool) -> Generator[Landing]:
    """A place for an artifact on its way to `path`, for one process at a time.

    With `keep`, files that have arrived stay there after an error, for the next try.
    """
    target = Path(os.path.realpath(as_path(path)))
    artifact.check_place(target, replace=replace)
    place = Landing(target, target.with_name(f".{target.name}.part"), replace)
    _refuse_strangers(place.beside)
    with as_sentence(target):
        place.files.mkdir(parents=True, exist_ok=True)
        with locked(place.beside / artifact.LOCK):
            try:
                _empty(place.scratch)
                yield place
            finally:
                if not keep or not place.files.is_dir() or not any(place.files.iterdir()):
                    shutil.rmtree(place.beside, ignore_errors=True)


def _empty(folder: Path) -> None:
    """Make a folder, without what a process that was killed has left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _refuse_strangers(beside: Path) -> None:
    """Refuse a folder that Triever has not made: all that is in it is removed in the end."""
    known = {artifact.LOCK, FILES, SCRATCH}
    if os.path.lexists(beside) and (
        beside.is_symlink() or not beside.is_dir() or {path.name for path in beside.iterdir()} - known
    ):
        raise ArtifactError(f"{beside} stands in the way, and is not Triever's", "rename it, or name another folder")
