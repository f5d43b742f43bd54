"""The one on-disk format: a folder that is always the old state or the new one, never a mixture.

    manifest.json                     what this is, and every file with its hash; replacing it is the commit
    documents_letters-3f9a0c1be5d27744.npy   every other file is named by its content and never changed
    .lock                             held by the one process that writes

A writer puts new files beside the old ones and then replaces the manifest in one step, so a crash
leaves the old state. A reader keeps all files of its snapshot open. Loading reads JSON,
Parquet, .npy, safetensors and plain text; nothing in a folder is ever executed. Knows nothing about retrieval.

A folder may come from a stranger, who can compute hashes too. So only ordinary files inside the folder are
opened, what a file declares about its size is compared with the file before memory is taken, and whoever reads
from a snapshot checks what it reads: `opening` turns every failed check into one sentence.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from triever.arguments import as_path
from triever.errors import ArtifactError, Flaw, TrieverError
from triever.files import locked, open_regular, sync_folder, write_hint
from triever.manifest import (
    FORMAT,
    MANIFEST,
    RESAVE,
    VERSION,
    ArtifactFile,
    Manifest,
    content_name,
    digest_of,
    how_to_mend,
    is_artifact,
    is_content_name,
    is_torn,
    manifest_bytes,
    parse_manifest,
    refuse_constant,
)
from triever.parquet.tables import decoded, most_decoded
from triever.shards import Bounds, Shards, shard_name
from triever.validation import not_finite, require_count

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import DTypeLike
    from torch import Tensor

LOCK = ".lock"
TEMPORARY = ".writing-"
LONGEST = 200
"""How many letters of another library's error are shown."""


@dataclass
class Snapshot:
    """An opened artifact. Its files stay readable even after a writer has replaced them."""

    path: Path
    manifest: Manifest
    manifest_text: str = field(repr=False)  # as it is on the disk
    _open: dict[str, BufferedReader] = field(repr=False)
    _checked: set[str] = field(default_factory=set, repr=False)
    _check_hashes: bool = field(default=True, repr=False)
    _inside: tuple[str, ...] = ()  # the names of the parts around this one
    backbone: str | None = None  # where weights lie that the artifact only names, by whoever opens it
    shards: Shards | None = None  # what holds the parts that are in shards, by whoever opens it

    def inside(self, name: str) -> Snapshot:
        """The part of it that was written by a `Writer.inside` of the same name."""
        return replace(self, _inside=(*self._inside, name))

    @property
    def place(self) -> tuple[str, ...]:
        """The names of the parts around this one."""
        return self._inside

    def of_shard(self, number: int, place: tuple[str, ...] = ()) -> Snapshot:
        """One shard, or a part of it."""
        return replace(self, _inside=(shard_name(number), *place), shards=None)

    @property
    def state(self) -> Mapping[str, Any]:
        """The state of the artifact, or of this part of it: all that is not in a file of its own."""
        state = self.manifest.state
        for name in self._inside:
            state = state.get(name)
            if not isinstance(state, Mapping):
                raise ArtifactError(f"{self.path / MANIFEST} has no state for {name}", RESAVE)
        return state

    @property
    def documents(self) -> int:
        """How many documents the artifact holds, by its manifest."""
        return require_count(self.manifest.state, "documents")

    @property
    def rows(self) -> int:
        """How many rows its engine has: one for each document, or one for each passage where these are searched."""
        return require_count(self.manifest.state, "passages") if "passages" in self.manifest.state else self.documents

    def has(self, role: str) -> bool:
        """Whether there is a file for a role."""
        return _role(self._inside, role) in self.manifest.files

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def array(self, role: str) -> np.ndarray:
        """An array, memory-mapped."""
        file = self.file(role)
        try:
            return _map_array(file)
        except (ValueError, TypeError, SyntaxError, OverflowError, MemoryError) as error:
            raise self._damaged(role, f"does not hold an array: {error}") from error

    def table(self, role: str, schema: pa.Schema) -> pa.Table:
        """A table of these columns, in memory."""
        import pyarrow as pa

        try:
            return decoded(self.file(role), schema)
        except Flaw as flaw:
            raise self._damaged(role, f"does not hold a valid table: {flaw.problem}") from flaw
        except (pa.ArrowException, ValueError, OSError) as error:
            raise self._damaged(role, f"does not hold a valid table: {_first_line(error)}") from error

    def tensors(self, role: str) -> dict[str, Tensor]:
        """Tensors by name, in memory. None of them holds a number that is not finite."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            tensors = load(self.file(role).read())
        except (SafetensorError, KeyError) as error:  # KeyError: a type of numbers that this version does not know
            raise self._damaged(role, f"does not hold tensors: {error}") from error
        if (name := not_finite(tensors)) is not None:
            raise self._damaged(role, f"holds numbers that are not finite in {name}")
        return tensors

    def json(self, role: str) -> Any:
        """A JSON value."""
        try:
            return json.loads(self.file(role).read(), parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            raise self._damaged(role, f"does not hold JSON: {error}") from error

    def text(self, role: str) -> str:
        """A text, such as the card."""
        try:
            return self.file(role).read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._damaged(role, f"does not hold text: {error}") from error

    def verify(self) -> None:
        """Check every file against its hash."""
        whole = replace(self, _inside=())
        for role in self.manifest.files:
            whole.file(role)

    def file(self, role: str) -> BufferedReader:
        """The open file of a role, at its start; the first time, after its content has been checked."""
        whole = _role(self._inside, role)
        if whole not in self._open:
            raise ArtifactError(f"{self.path / MANIFEST} lists no file for {whole}", RESAVE)
        file = self._open[whole]
        file.seek(0)
        if whole not in self._checked:
            self.manifest.files[whole].check(file, self.path, hashes=self._check_hashes)
            self._checked.add(whole)
        return file

    def _damaged(self, role: str, problem: str) -> ArtifactError:
        return self.manifest.files[_role(self._inside, role)].damaged(self.path, problem)


def _role(inside: tuple[str, ...], role: str) -> str:
    return "_".join((*inside, role))


def _map_array(file: BufferedReader) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which Triever never loads")
    if dtype.kind not in "biuf":
        raise ValueError(f"it holds values of type {dtype}, which are not numbers")
    offset, size = file.tell(), os.fstat(file.fileno()).st_size
    if min(shape, default=0) < 0 or offset + math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"its shape {shape} does not match its {size - offset} bytes")
    if 0 in shape:  # an empty file region cannot be mapped
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C")


def _first_line(error: BaseException) -> str:
    """The first line of another library's error, cut to a length that fits into a sentence."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


@contextlib.contextmanager
def opening(path: str | Path, kind: str) -> Generator[None]:
    """Turn every error about the content of an artifact into one sentence.

    Readers raise a ValueError for what they check; unexpected content may raise any error.
    """
    try:
        yield
    except (TrieverError, MemoryError):
        raise
    except Exception as error:
        problem = f"{path} is not a valid saved {kind}: {_first_line(error)}"
        raise ArtifactError(problem, RESAVE) from error


def read(path: str | Path, *, check: bool = True) -> Snapshot:
    """Open an artifact as it is now, or say which file makes that impossible.

    Without `check` the files' sizes are compared, but not their hashes, which takes a pass over all of them.
    """
    folder = as_path(path)
    while True:
        text = _manifest_text(folder)
        manifest = parse_manifest(text, folder)
        try:
            return Snapshot(folder, manifest, text, _open_all(folder, manifest), _check_hashes=check)
        except FileNotFoundError as error:
            # A writer may have replaced the manifest and swept the old files between our two reads.
            if _manifest_text(folder) == text:
                raise ArtifactError(f"{error.filename} is missing", RESAVE) from error
        except OSError as error:
            problem = f"{error.filename} cannot be opened: {error.strerror}"
            raise ArtifactError(problem, "check its permissions") from error


def _open_all(folder: Path, manifest: Manifest) -> dict[str, BufferedReader]:
    with contextlib.ExitStack() as stack:
        files = {role: stack.enter_context(open_regular(folder / entry.file)) for role, entry in manifest.files.items()}
        stack.pop_all()  # all of them opened: they belong to the snapshot now
        return files


def _manifest_text(folder: Path) -> str:
    if not _is_folder(folder):
        if address := re.match("https?:/+", str(folder)):  # a path has lost a slash
            problem = f"{address[0].rstrip('/')}//{str(folder)[address.end() :]} is the address of a server"
            raise ArtifactError(problem, "name a saved folder: triever.connect and triever compare take servers")
        if is_zip(folder):
            raise ArtifactError(f"{folder} is a zip, not a folder", f"run: triever unpack {folder} --out FOLDER")
        problem = "is a file, not a saved folder" if os.path.lexists(folder) else "does not exist"
        raise ArtifactError(f"{folder} {problem}", "name a folder that `triever fit` or `save` has written")
    try:
        content = manifest_bytes(folder)
    except FileNotFoundError as error:
        hint = "save again: the last save was interrupted" if (folder / LOCK).exists() else "check the path"
        raise ArtifactError(f"{folder} is not a Triever artifact: it has no {MANIFEST}", hint) from error
    except OSError as error:
        raise ArtifactError(
            f"{folder / MANIFEST} cannot be opened: {error.strerror}", "check its permissions"
        ) from error
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{folder / MANIFEST} is damaged: it is not UTF-8 text", how_to_mend(content)) from error


def _is_folder(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError as error:
        raise ArtifactError(f"{folder} cannot be accessed: {error.strerror}", "check the path") from error


def is_zip(path: Path) -> bool:
    """Whether this is a file that begins as a zip does."""
    try:
        with open_regular(path) as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


class Writer:
    """Puts files beside the old ones; `commit` makes them the artifact. Made by `writing`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, ArtifactFile] = {}
        self._inside: tuple[str, ...] = ()
        self.bounds: Bounds | None = None  # of the shards that what is searched is put into

    def in_shards(self) -> list[Writer]:
        """A writer for each shard, to the same part of it; none unless the artifact is in shards."""
        shards = []
        for number in range(len(self.bounds) if self.bounds else 0):
            shard = copy.copy(self)
            shard.bounds, shard._inside = None, (shard_name(number), *self._inside)
            shards.append(shard)
        return shards

    def inside(self, name: str) -> Writer:
        """A writer for one part of the artifact: the name of the part stands before its roles."""
        part = copy.copy(self)
        part._inside = (*self._inside, name)
        return part

    def array(self, role: str, array: np.ndarray) -> None:
        """Add an array."""
        self._put(role, "npy", lambda file: np.lib.format.write_array(file, np.asarray(array), allow_pickle=False))

    def blocks(self, role: str, dtype: DTypeLike, shape: tuple[int, ...], blocks: Iterable[np.ndarray]) -> None:
        """Add an array of this shape whose numbers come in blocks, each of which is written before the next is made."""
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}

        def write(file: IO[bytes]) -> None:
            np.lib.format.write_array_header_1_0(file, header)
            for block in blocks:
                file.write(np.ascontiguousarray(block, dtype).data)

        self._put(role, "npy", write)

    def table(self, role: str, table: pa.Table) -> None:
        """Add a table."""
        import pyarrow.parquet as pq

        # Without dictionaries, which would let a few kilobytes stand for gigabytes.
        packed = {"compression": "zstd", "use_dictionary": False}
        self._put(role, "parquet", lambda file: pq.write_table(table, file, **packed))
        if table.nbytes > most_decoded(self._files[_role(self._inside, role)].bytes):
            # Nearly all of it is repeated. Written out in full it is not taken for a bomb.
            plain = {**packed, "compression": "none"}
            self._put(role, "parquet", lambda file: pq.write_table(table, file, **plain))

    def tensors(self, role: str, tensors: Mapping[str, Tensor]) -> None:
        """Add tensors by name, wherever they are. Each is written in full, those that share memory too."""
        from safetensors.torch import save

        raw = save(_apart(tensors), {"format": "pt"})
        if not self._is_there(role, "safetensors", raw):
            self._put(role, "safetensors", lambda file: file.write(raw))

    def json(self, role: str, value: object) -> None:
        """Add a JSON value."""
        self._put(role, "json", lambda file: file.write(json.dumps(value, ensure_ascii=False).encode()))

    def text(self, role: str, text: str) -> None:
        """Add a text, such as the card."""
        self._put(role, "md", lambda file: file.write(text.encode()))

    def commit(self, kind: str, options: Mapping[str, object], state: Mapping[str, object], written_by: str) -> None:
        """Make the files added so far the content of the artifact, in one step."""
        raw: dict[str, object] = {
            "format": FORMAT,
            "version": VERSION,
            "kind": kind,
            "written_by": written_by,
            "options": dict(options),
            "state": dict(state),
            "files": {role: asdict(entry) for role, entry in self._files.items()},
        }
        raw["digest"] = digest_of(raw)
        text = json.dumps(raw, indent=1, ensure_ascii=False)
        self._finish(self._write_temporary(lambda file: file.write(text.encode())))

    def adopt(self, source: Path, manifest: Manifest) -> None:
        """Move an artifact in that lies in another folder of the same disk; files that are here already may lack there.

        The files are moved first and the manifest last, so that a crash leaves the old state.
        """
        for entry in manifest.files.values():
            if os.path.lexists(source / entry.file):
                self._rename(source / entry.file, entry.file)
            elif not entry.is_in(self._folder):
                raise ArtifactError(f"{self._folder} was changed meanwhile", "run the same again")
        self._files = dict(manifest.files)
        self._finish(source / MANIFEST)

    def _finish(self, manifest: Path) -> None:
        sync_folder(self._folder)  # the new files must be there before the manifest that names them
        self._rename(manifest, MANIFEST)
        sync_folder(self._folder)
        self._sweep()

    def _put(self, role: str, ending: str, write: Callable[[IO[bytes]], object]) -> None:
        role = _role(self._inside, role)
        temporary = self._write_temporary(write)
        with temporary.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        name = content_name(role, sha256, ending)
        self._files[role] = ArtifactFile(name, sha256, temporary.stat().st_size)
        self._rename(temporary, name)

    def _is_there(self, role: str, ending: str, raw: bytes) -> bool:
        """Whether the last state has these very bytes, as it has of weights that no change of documents touches."""
        role, sha256 = _role(self._inside, role), hashlib.sha256(raw).hexdigest()
        name = content_name(role, sha256, ending)
        try:
            with (self._folder / name).open("rb") as file:
                is_there = hashlib.file_digest(file, "sha256").hexdigest() == sha256
        except OSError:
            return False
        if is_there:
            self._files[role] = ArtifactFile(name, sha256, len(raw))
        return is_there

    def _write_temporary(self, write: Callable[[IO[bytes]], object]) -> Path:
        path = self._folder / f"{TEMPORARY}{secrets.token_hex(8)}"
        with _as_sentence(self._folder), path.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        return path

    def _rename(self, temporary: Path, name: str) -> None:
        with _as_sentence(self._folder):
            os.replace(temporary, self._folder / name)

    def _sweep(self) -> None:
        """Remove files that the manifest does not name: earlier states, and leftovers of writers that died."""
        wanted = {entry.file for entry in self._files.values()}
        for path in self._folder.iterdir():
            if _is_ours(path.name) and path.name not in wanted:
                with contextlib.suppress(OSError):  # Windows keeps a file that a reader still holds
                    path.unlink()


@contextlib.contextmanager
def _as_sentence(folder: Path) -> Generator[None]:
    """Turn a failure to write, such as a full disk, into an error in one sentence."""
    try:
        yield
    except OSError as error:
        problem = f"{folder} cannot be written to: {error.strerror or error}"
        raise ArtifactError(problem, write_hint(error, "check the folder, or save to another one")) from error


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in main memory, contiguous; a tensor that shares memory with another is copied."""
    import torch

    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        if tensor.is_meta or tensor.layout != torch.strided:
            problem = "has no values" if tensor.is_meta else "is sparse"
            raise ArtifactError(f"tensor {name} {problem} and cannot be saved", "make it an ordinary tensor first")
        dense = tensor.detach().cpu().contiguous()
        memory = dense.untyped_storage().data_ptr()
        apart[name] = dense.clone() if memory in seen else dense
        seen.add(memory)
    return apart


@contextlib.contextmanager
def writing(path: str | Path, *, replace: bool = True, wait: float = 0) -> Generator[Writer]:
    """A writer to a folder, for one process at a time; `wait` is how many seconds to wait for another process.

    Leaving without `commit`, by an error or a kill, leaves the artifact as it was. Without `replace` an
    artifact that is there already is refused.
    """
    folder = as_path(path)
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
    """Refuse a folder that holds other files or, without `replace`, an artifact."""
    folder = as_path(path)
    if not _is_folder(folder):
        if os.path.lexists(folder):
            raise ArtifactError(f"{folder} is a file", "name a folder to save to")
        return
    if strangers := _strangers(folder):
        problem = f"{folder} holds other files ({strangers[0]}) and is not a Triever artifact"
        raise ArtifactError(problem, "save to a new folder")
    if not replace and is_artifact(folder):
        raise ArtifactError(f"{folder} already exists", "replace it with --replace, or name another folder")


def _make(folder: Path) -> None:
    check_place(folder)  # first: a refused folder does not get so much as a lock
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.is_dir())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        new = [parent for parent in folder.absolute().parents if there in (parent, *parent.parents)]
        for parent in new:  # a power cut must not remove the folder after it was reported as saved
            sync_folder(parent)
    except OSError as error:
        problem = f"{folder} cannot be created: {error.strerror}"
        raise ArtifactError(problem, "save to another folder") from error


def _strangers(folder: Path) -> list[str]:
    """The names of files in a folder that are not Triever's; the folder may be an artifact, or one that was begun."""
    try:
        names = sorted(path.name for path in folder.iterdir())  # first: a writer may be adding its own meanwhile
    except OSError as error:
        raise ArtifactError(f"{folder} cannot be opened: {error.strerror}", "check its permissions") from error
    if is_artifact(folder):
        return []
    begun = (folder / LOCK).exists()
    ours = {LOCK, *([MANIFEST] if begun and _was_manifest(folder, names) else [])}
    return [name for name in names if name not in ours and not (begun and _is_ours(name))]


def _was_manifest(folder: Path, names: Sequence[str]) -> bool:
    """Whether the manifest here is Triever's and torn, so that the folder may be saved to again."""
    try:
        return any(map(_is_ours, names)) and is_torn(manifest_bytes(folder))
    except OSError:
        return False


def _is_ours(name: str) -> bool:
    return name.startswith(TEMPORARY) or is_content_name(name)
