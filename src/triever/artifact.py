"""The one on-disk format: a folder that is always the old state or the new one, never a mixture.

    manifest.json                     what this is, and every file with its hash; replacing it is the commit
    documents-3f9a0c1be5d27744.parquet   every other file is named by its content and never changed
    .lock                             held by the one process that writes

A writer puts new files beside the old ones and then replaces the manifest in one step, so a crash
leaves the old state. A reader holds every file of the snapshot it opened. Loading reads JSON,
Parquet, .npy, safetensors and plain text; nothing in a folder is ever executed. Knows nothing about retrieval.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, field, replace
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from triever.errors import ArtifactError
from triever.files import locked, sync_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor

FORMAT = "triever"
VERSION = 1
MANIFEST = "manifest.json"
LOCK = ".lock"
TEMPORARY = ".writing-"
CONTENT_NAME = re.compile(r"[a-z0-9_]+-[0-9a-f]{16}\.(json|md|npy|parquet|safetensors)")
RESAVE = "save the retriever again, or copy the folder again from where it came"


@dataclass(frozen=True)
class Entry:
    """One file of an artifact."""

    file: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """What an artifact is: the kind of thing, its options, its state, and its files by role."""

    kind: str
    options: Mapping[str, Any]
    state: Mapping[str, Any]
    files: Mapping[str, Entry]
    written_by: str = ""
    version: int = VERSION

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(entry.bytes for entry in self.files.values())


@dataclass
class Snapshot:
    """An opened artifact. Its files stay readable even after a writer has replaced them."""

    path: Path
    manifest: Manifest
    _open: dict[str, BufferedReader] = field(repr=False)
    _checked: set[str] = field(default_factory=set, repr=False)
    _check_hashes: bool = field(default=True, repr=False)
    _place: tuple[str, ...] = ()

    def inside(self, name: str) -> Snapshot:
        """The part of it that was written by a `Writer.inside` of the same name."""
        return replace(self, _place=(*self._place, name))

    @property
    def state(self) -> Mapping[str, Any]:
        """What is not a file, of the whole or of this part."""
        state = self.manifest.state
        for name in self._place:
            state = state[name]
        return state

    def has(self, role: str) -> bool:
        """Whether there is a file for a role."""
        return _role(self._place, role) in self.manifest.files

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def array(self, role: str) -> np.ndarray:
        """An array, memory-mapped."""
        file = self._file(role)
        try:
            return _map_array(file)
        except ValueError as error:
            raise self._damaged(_role(self._place, role), str(error)) from error

    def table(self, role: str) -> pa.Table:
        """A table, in memory."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.read_table(pa.PythonFile(self._file(role), mode="r"))
        except pa.ArrowException as error:
            raise self._damaged(_role(self._place, role), str(error)) from error

    def tensors(self, role: str) -> dict[str, Tensor]:
        """Tensors by name, in memory."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            return load(self._file(role).read())
        except (SafetensorError, KeyError) as error:  # KeyError: a type of numbers that this version does not know
            raise self._damaged(role, f"does not hold tensors: {error}") from error

    def json(self, role: str) -> Any:
        """A JSON value."""
        return json.loads(self._file(role).read())

    def text(self, role: str) -> str:
        """A text, such as the card."""
        return self._file(role).read().decode("utf-8")

    def verify(self) -> None:
        """Check every file against its hash."""
        whole = replace(self, _place=())
        for role in self.manifest.files:
            whole._file(role)

    def _file(self, role: str) -> BufferedReader:
        """The file of a role, at its start; the first time, after its content has been checked."""
        role = _role(self._place, role)
        if role not in self._open:
            raise ArtifactError(f"{self.path / MANIFEST} lists no file for {role}", RESAVE)
        file = self._open[role]
        file.seek(0)
        if role not in self._checked:
            self._check(role, file)
            self._checked.add(role)
        return file

    def _check(self, role: str, file: BufferedReader) -> None:
        entry = self.manifest.files[role]
        size = os.fstat(file.fileno()).st_size
        if size != entry.bytes:
            raise self._damaged(role, f"has {size} bytes where {entry.bytes} were saved")
        if self._check_hashes and hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
            raise self._damaged(role, "was changed after it was saved")
        file.seek(0)

    def _damaged(self, role: str, what: str) -> ArtifactError:
        return ArtifactError(f"{self.path / self.manifest.files[role].file} {what}", RESAVE)


def _role(place: tuple[str, ...], role: str) -> str:
    return "_".join((*place, role))


def _map_array(file: BufferedReader) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    if dtype.hasobject:
        raise ValueError("holds Python objects, which Triever never loads")
    if 0 in shape:  # an empty file region cannot be mapped
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, mode="r", offset=file.tell(), shape=shape, order="F" if fortran else "C")


def read(path: str | Path, *, check: bool = True) -> Snapshot:
    """Open an artifact as it is now, or say which file makes that impossible.

    Without `check` the files' sizes are compared, but not their hashes, which takes a pass over all of them.
    """
    folder = Path(path)
    while True:
        text = _manifest_text(folder)
        manifest = _parse_manifest(folder, text)
        try:
            return Snapshot(folder, manifest, _open_all(folder, manifest), _check_hashes=check)
        except FileNotFoundError as error:
            # A writer may have replaced the manifest and swept the old files between our two reads.
            if _manifest_text(folder) == text:
                raise ArtifactError(f"{error.filename} is missing", RESAVE) from error
        except OSError as error:
            problem = f"{error.filename} cannot be opened: {error.strerror}"
            raise ArtifactError(problem, "check its permissions") from error


def _open_all(folder: Path, manifest: Manifest) -> dict[str, BufferedReader]:
    with contextlib.ExitStack() as stack:
        files = {role: stack.enter_context((folder / entry.file).open("rb")) for role, entry in manifest.files.items()}
        stack.pop_all()  # all of them opened: they belong to the snapshot now
        return files


def _manifest_text(folder: Path) -> str:
    if not folder.is_dir():
        what = "is a file, not a saved folder" if folder.exists() else "does not exist"
        raise ArtifactError(f"{folder} {what}", "name a folder that `triever fit` or `save` has written")
    try:
        return (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        hint = "save again: it was interrupted before its end" if (folder / LOCK).exists() else "check the path"
        raise ArtifactError(f"{folder} is not a Triever artifact: it has no {MANIFEST}", hint) from error
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{folder / MANIFEST} is torn or not text", RESAVE) from error


def _parse_manifest(folder: Path, text: str) -> Manifest:
    place = folder / MANIFEST
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{place} is torn: it is not valid JSON", RESAVE) from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise ArtifactError(f"{place} was not written by Triever", "name a folder saved by Triever")
    version = raw.get("version")
    if not isinstance(version, int) or version > VERSION:
        problem = f"{place} has format version {version}, and this Triever reads versions up to {VERSION}"
        raise ArtifactError(problem, "run: pip install --upgrade triever")
    if raw.get("digest") != _digest(raw):
        raise ArtifactError(f"{place} was changed after it was saved", RESAVE)
    return _manifest_of(place, raw)


def _manifest_of(place: Path, raw: Mapping[str, Any]) -> Manifest:
    try:
        files = {role: Entry(**entry) for role, entry in raw["files"].items()}
        manifest = Manifest(raw["kind"], raw["options"], raw["state"], files, raw["written_by"], raw["version"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{place} lacks what a manifest needs: {error}", RESAVE) from error
    for entry in files.values():
        # A name with a folder in it could point outside: a stranger's manifest must not reach there.
        if not CONTENT_NAME.fullmatch(entry.file):
            raise ArtifactError(f"{place} names {entry.file!r}, which no Triever writes", "do not use this folder")
    return manifest


def _digest(raw: Mapping[str, Any]) -> str:
    body = {key: value for key, value in raw.items() if key != "digest"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


class Writer:
    """Puts files beside the old ones; `commit` makes them the artifact. Made by `writing`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Entry] = {}
        self._place: tuple[str, ...] = ()

    def inside(self, name: str) -> Writer:
        """A writer for one part of the whole: its roles are told apart from those of other parts."""
        part = copy.copy(self)
        part._place = (*self._place, name)
        return part

    def array(self, role: str, array: np.ndarray) -> None:
        """Add an array."""
        self._put(role, "npy", lambda file: np.lib.format.write_array(file, np.asarray(array), allow_pickle=False))

    def table(self, role: str, table: pa.Table) -> None:
        """Add a table."""
        import pyarrow.parquet as pq

        self._put(role, "parquet", lambda file: pq.write_table(table, file, compression="zstd"))

    def tensors(self, role: str, tensors: Mapping[str, Tensor]) -> None:
        """Add tensors by name, wherever they are. Each is written in full, those that share memory too."""
        from safetensors.torch import save

        self._put(role, "safetensors", lambda file: file.write(save(_apart(tensors), {"format": "pt"})))

    def json(self, role: str, value: Any) -> None:
        """Add a JSON value."""
        self._put(role, "json", lambda file: file.write(json.dumps(value, ensure_ascii=False).encode()))

    def text(self, role: str, text: str) -> None:
        """Add a text, such as the card."""
        self._put(role, "md", lambda file: file.write(text.encode()))

    def commit(self, kind: str, options: Mapping[str, Any], state: Mapping[str, Any], written_by: str) -> None:
        """Make the files added so far the content of the artifact, in one step."""
        raw: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "kind": kind,
            "written_by": written_by,
            "options": dict(options),
            "state": dict(state),
            "files": {role: asdict(entry) for role, entry in self._files.items()},
        }
        raw["digest"] = _digest(raw)
        text = json.dumps(raw, indent=1, ensure_ascii=False)
        temporary = self._write_temporary(lambda file: file.write(text.encode()))
        sync_folder(self._folder)  # the new files must be there before the manifest that names them
        os.replace(temporary, self._folder / MANIFEST)
        sync_folder(self._folder)
        self._sweep()

    def _put(self, role: str, ending: str, write: Callable[[IO[bytes]], object]) -> None:
        role = _role(self._place, role)
        temporary = self._write_temporary(write)
        with temporary.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        name = f"{role}-{sha256[:16]}.{ending}"
        self._files[role] = Entry(name, sha256, temporary.stat().st_size)
        os.replace(temporary, self._folder / name)

    def _write_temporary(self, write: Callable[[IO[bytes]], object]) -> Path:
        path = self._folder / f"{TEMPORARY}{secrets.token_hex(8)}"
        with path.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        return path

    def _sweep(self) -> None:
        """Remove what no manifest names: earlier states, and leftovers of writers that died."""
        wanted = {entry.file for entry in self._files.values()}
        for path in self._folder.iterdir():
            if _is_ours(path.name) and path.name not in wanted:
                with contextlib.suppress(OSError):  # Windows keeps a file that a reader still holds
                    path.unlink()


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in the processor's memory, contiguous, copied where another one lies in the same memory."""
    import torch

    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        if tensor.is_meta or tensor.layout != torch.strided:
            what = "has no values" if tensor.is_meta else "is sparse"
            raise ArtifactError(f"tensor {name} {what} and cannot be saved", "make it an ordinary tensor first")
        dense = tensor.detach().cpu().contiguous()
        memory = dense.untyped_storage().data_ptr()
        apart[name] = dense.clone() if memory in seen else dense
        seen.add(memory)
    return apart


@contextlib.contextmanager
def writing(path: str | Path, *, replace: bool = True, wait: float = 0) -> Generator[Writer]:
    """The right to write to a folder, for one process at a time; `wait` is how long to wait for another, in seconds.

    Leaving without `commit`, by an error or a kill, leaves the artifact as it was. Without `replace` an
    artifact that is there already is refused.
    """
    folder = Path(path)
    _make(folder)
    with locked(folder / LOCK, wait):
        check_place(folder, replace=replace)  # under the lock: another process may have saved just now
        writer = Writer(folder)
        try:
            yield writer
        finally:
            for path in folder.glob(f"{TEMPORARY}*"):
                path.unlink(missing_ok=True)


def check_place(path: str | Path, *, replace: bool = True) -> None:
    """Refuse a place that holds somebody's other files or, without `replace`, an artifact."""
    folder = Path(path)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ArtifactError(f"{folder} is a file", "choose another place to save to")
    if strangers := _strangers(folder):
        problem = f"{folder} holds other files ({strangers[0]}) and is not a Triever artifact"
        raise ArtifactError(problem, "save to a new folder")
    if not replace and is_artifact(folder):
        raise ArtifactError(f"{folder} is there already", "replace it with --replace, or name another folder")


def is_artifact(folder: Path) -> bool:
    """Whether the manifest of this folder is Triever's, be the rest damaged or of a later version."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def _make(folder: Path) -> None:
    check_place(folder)  # first: a refused folder does not get so much as a lock
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"{folder} cannot be made: {error.strerror}"
        raise ArtifactError(problem, "choose another place to save to") from error


def _strangers(folder: Path) -> list[str]:
    """What lies in a folder that is neither an artifact nor the beginning of one, which has a lock before all else."""
    names = sorted(path.name for path in folder.iterdir())  # first: a writer may be adding its own meanwhile
    if is_artifact(folder):
        return []
    begun = (folder / LOCK).exists()
    return [name for name in names if name != LOCK and not (begun and _is_ours(name))]


def _is_ours(name: str) -> bool:
    return name.startswith(TEMPORARY) or bool(CONTENT_NAME.fullmatch(name))
