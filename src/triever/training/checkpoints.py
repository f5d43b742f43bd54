"""A training's folder: where it stands, always whole, whenever the process was killed.

    training.json                    where the training stands, and every file with its hash; replacing it is the commit
    weights-00000500.safetensors     the model after so many steps: the newest, the best,
                                     and the one from which the running round was made
    optimizer-00000500.safetensors   the state of the optimizer, of the newest step only
    metrics.jsonl, tensorboard/      what it said about itself
    .lock                            held by the one training that writes here

A file of tensors is written under another name and renamed, and training.json names it only then; so
a kill leaves the old state or the new one. What training.json does not name is removed. All that is read is
checked first: against its hash, and for what a training needs. Nothing here is ever executed: tensors are
safetensors, the rest is JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from triever.artifact import digest_of
from triever.errors import ArtifactError, Busy, DataError, UsageError
from triever.files import append_regular, atomic, open_regular, sync_folder
from triever.training.optimizers import load_state_tensors, state_problem, state_tensors
from triever.training.options import FREE, TrainOptions, rate

STATE = "training.json"
LOCK = ".lock"
FORMAT, VERSION = "triever-training", 2
TENSORS = re.compile(r"(weights|optimizer)-\d{8,}\.safetensors")
FIRST = re.compile(r"(weights|optimizer)-0+\.safetensors")
OURS = re.compile(rf"{TENSORS.pattern}|\.({TENSORS.pattern}|training\.json)\.[0-9a-f]{{8}}\.tmp")
LARGEST = 2**28
"""Bytes of training.json: the values of a line of metrics are in it, and a line may be long."""
ELSEWHERE = "name a new folder, or remove this one to begin again"
MORE_ROOM = "make room on its disk, or allow larger files, and run the same again: it goes on from its last checkpoint"


@dataclass
class Standing:
    """Where a training stands."""

    step: int = 0
    round: int = 0
    position: int = 0  # batches of the round that are used up
    length: int = 0  # of the round, once it has begun
    round_start: int = 0  # the step before which the round was made
    best_step: int = -1  # -1: nothing was evaluated yet
    best: dict[str, float] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)
    since_best: int = 0  # evaluations
    finished: str = ""  # why: "steps" or "patience"
    seconds: float = 0.0
    stepping: float = 0.0  # seconds of these in steps, neither in rounds nor in evaluations
    waited: float = 0.0  # seconds of these for data
    meter: dict[str, list[float]] = field(default_factory=dict)
    history: int = 0  # bytes

    @classmethod
    def of(cls, raw: Any) -> Standing:
        """Where a training stands by its JSON; a ValueError says what cannot be so."""
        if not isinstance(raw, dict) or raw.keys() != {one.name for one in dataclasses.fields(cls)}:
            raise ValueError("it lacks what a standing has, or has more")
        for name, value in raw.items():
            if not _KINDS[name](value):
                raise ValueError(f"{name} cannot be {value!r:.40}")
        standing = cls(**raw)
        if not -1 <= standing.best_step <= standing.step or (standing.best_step < 0) != (not standing.best):
            raise ValueError(f"best_step cannot be {standing.best_step}")
        if not standing.round <= standing.round_start <= standing.step or (standing.round_start and not standing.round):
            raise ValueError(f"round {standing.round} cannot begin at step {standing.round_start}")
        return standing


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


def _is_time(value: Any) -> bool:
    return type(value) is float and 0 <= value < math.inf


def _are_measures(value: Any) -> bool:
    return isinstance(value, dict) and all(type(one) is float for one in value.values())


def _is_meter(value: Any) -> bool:
    if not isinstance(value, dict) or (value and "loss" not in value):
        return False
    lists = list(value.values())
    return all(isinstance(some, list) and some for some in lists) and all(type(one) is float for one in chain(*lists))


_KINDS = {
    **dict.fromkeys(("step", "round", "position", "length", "round_start", "since_best", "history"), _is_count),
    **dict.fromkeys(("seconds", "stepping", "waited"), _is_time),
    **dict.fromkeys(("best", "latest"), _are_measures),
    "best_step": lambda value: type(value) is int,
    "finished": lambda value: value in ("", "steps", "patience"),
    "meter": _is_meter,
}


@dataclass(frozen=True)
class Named:
    """A file of tensors as training.json names it."""

    sha256: str
    bytes: int

    @classmethod
    def of(cls, raw: Any) -> Named:
        """By its JSON; a ValueError says that it cannot be so."""
        if not isinstance(raw, dict) or raw.keys() != {"sha256", "bytes"} or not _is_count(raw["bytes"]):
            raise ValueError("a file has no hash or no size")
        if not isinstance(raw["sha256"], str) or not re.fullmatch(r"[0-9a-f]{64}", raw["sha256"]):
            raise ValueError("a file's hash is none")
        return cls(**raw)


class Checkpoints:
    """The checkpoints in a folder: `Checkpoints(folder, settings)`; `settings` and `given` must be the same to go on.

    `given` are fingerprints, by name, of what the training learns from besides its settings.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], given: Mapping[str, str] | None = None, *, keep_best: bool
    ) -> None:
        self.folder = folder
        self._settings = dict(settings)
        self._given = dict(given or {})
        self._keep_best = keep_best
        self._files: dict[str, Named] = {}  # those of the newest checkpoint

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """The right to write here, for one training at a time; the system drops it when the process dies."""
        file = self._open_lock()
        with file:
            _take(file, self.folder)
            yield

    def _open_lock(self) -> IO[bytes]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._check_whose()
            return append_regular(self.folder / LOCK)
        except OSError as error:
            problem = f"{self.folder} cannot be written to: {error.strerror or error}"
            raise DataError(problem, "check the folder") from error

    def _check_whose(self) -> None:
        """Refuse checkpoints without their training.json, and files that only have the names of a training's."""
        if os.path.lexists(self.folder / STATE):
            return
        for name in sorted(path.name for path in self.folder.iterdir()):
            if TENSORS.fullmatch(name) and not FIRST.fullmatch(name):  # a kill leaves those of the first step at most
                raise ArtifactError(f"{self.folder} holds {name} but no {STATE}", ELSEWHERE)
            if (OURS.fullmatch(name) or name == "metrics.jsonl") and not (self.folder / LOCK).exists():
                raise UsageError(f"{self.folder} holds {name} but no {STATE}, so it may be somebody else's", ELSEWHERE)

    def read(self, options: TrainOptions) -> Standing | None:
        """Where the training stands, or nothing when none was begun here; one with other settings is refused.

        All files of the checkpoint are compared with their hashes.
        """
        raw = self._state()
        if raw is None:
            return None
        standing = Standing.of(raw["standing"])
        self._compare_given(raw["given"])
        self._compare(raw["settings"], standing.step, options)
        self._check_place(standing, options)
        for name in self._wanted(standing):
            self._check(name)
        return standing

    def _state(self) -> dict[str, Any] | None:
        """What training.json holds, checked, with the files that it names; nothing where there is none."""
        place = self.folder / STATE
        try:
            with open_regular(place, LARGEST) as file:
                raw = json.loads(file.read())
            digest = digest_of(raw) if isinstance(raw, dict) else ""
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ArtifactError(f"{place} cannot be read: {error.strerror}", ELSEWHERE) from error
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{place} cannot be read: it is not valid JSON", ELSEWHERE) from error
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise ArtifactError(f"{place} was not written by Triever", ELSEWHERE)
        if raw.get("version") == 1:
            problem = f"{place} was begun by an earlier version of Triever, whose checkpoints have no hashes"
            raise ArtifactError(problem, f"finish it with that version, {ELSEWHERE}")
        if raw.get("version") != VERSION:
            raise ArtifactError(
                f"{place} was written by a later version of Triever", "run: pip install --upgrade triever"
            )
        if raw.get("digest") != digest:
            raise ArtifactError(f"{place} was changed after it was written", ELSEWHERE)
        try:
            self._files = _checked(raw)
        except ValueError as error:
            raise ArtifactError(f"{place} is damaged: {error}", ELSEWHERE) from error
        return raw

    def _check_place(self, standing: Standing, options: TrainOptions) -> None:
        """Refuse a place in a round to which no training comes, and a best step or an end without a reason."""
        used = min((standing.step - standing.round_start) * options.accumulate, standing.length)
        impatient = 0 < options.patience <= standing.since_best
        watch = self._settings.get("watch") or next(iter(standing.best), "")
        unknown = standing.best and math.isnan(standing.best.get(watch, math.nan))
        if standing.position != used or unknown or (standing.finished == "patience" and not impatient):
            raise ArtifactError(f"{self.folder / STATE} is damaged: no training comes to where it stands", ELSEWHERE)

    def _compare_given(self, before: Mapping[str, str]) -> None:
        for name in sorted({*before, *self._given}):
            if before.get(name) != self._given.get(name):
                raise UsageError(f"{self.folder} was begun with other {name}", ELSEWHERE)

    def _compare(self, before: Mapping[str, Any], done: int, options: TrainOptions) -> None:
        """More steps are welcome if they leave the learning rates of those already made as they were."""
        hint = f"go on with the same options, or {ELSEWHERE}"
        for name in sorted({*before, *self._settings} - FREE - {"steps"}):
            old, new = before.get(name), self._settings.get(name)
            if old != new:
                raise UsageError(f"{self.folder} was begun with {name} = {old!r}, not {new!r}", hint)
        old_steps = before["steps"]
        if old_steps == options.steps:
            return
        was = dataclasses.replace(options, steps=old_steps)
        if options.steps < done or any(rate(was, step) != rate(options, step) for step in range(done)):
            problem = f"{self.folder} was begun with steps = {old_steps}, and its first {done} steps"
            raise UsageError(f"{problem} would have been others with steps = {options.steps}", hint)

    def clean(self) -> None:
        """Remove what training.json does not name: earlier checkpoints, and leftovers of a killed process."""
        for entry in list(os.scandir(self.folder)):
            if OURS.fullmatch(entry.name) and entry.name not in self._files and entry.is_file(follow_symlinks=False):
                Path(entry).unlink()

    def save(self, standing: Standing, model: nn.Module, optimizer: Optimizer) -> None:
        """Make this the newest checkpoint."""
        weights, state = self._weights(standing.step), self._optimizer(standing.step)
        files = dict(self._files)
        # At the end of a round the step may have been saved already; the model has not changed since.
        if weights.name not in files:
            files[weights.name] = _write(weights, named_tensors(model))
        if state.name not in files:
            files[state.name] = _write(state, state_tensors(optimizer, model))
        sync_folder(self.folder)  # the files must be there before the one that names them
        self._files = {name: files[name] for name in self._wanted(standing)}
        content = {"format": FORMAT, "version": VERSION, "settings": self._settings, "given": self._given}
        named = {name: dataclasses.asdict(one) for name, one in self._files.items()}
        raw = {**content, "files": named, "standing": dataclasses.asdict(standing)}
        text = json.dumps({**raw, "digest": digest_of(raw)}, indent=1)
        with atomic(self.folder / STATE) as file:
            file.write(text.encode())
        self.clean()

    def _wanted(self, standing: Standing) -> list[str]:
        """The files of a checkpoint."""
        kept = {standing.step, standing.round_start, *([standing.best_step] if self._keep_best else [])} - {-1}
        return [self._optimizer(standing.step).name, *(self._weights(step).name for step in sorted(kept))]

    def load_weights(self, model: nn.Module, step: int) -> None:
        """Bring a model to where it was after a step."""
        place = self._weights(step)
        tensors = self._read(place.name)
        own = named_tensors(model)
        if {name: _form(part) for name, part in own.items()} != {name: _form(part) for name, part in tensors.items()}:
            raise UsageError(f"{self.folder} holds the training of another model", ELSEWHERE)
        # Buffers may hold what they like: a mask is made of infinities.
        _check_finite(place, {name: tensors[name] for name, _ in model.named_parameters() if name in tensors})
        set_weights(model, tensors)

    def load_optimizer(self, optimizer: Optimizer, model: nn.Module, step: int) -> None:
        """Bring an optimizer to where it was after a step."""
        place = self._optimizer(step)
        tensors = self._read(place.name)
        if problem := state_problem(optimizer, model, tensors):
            raise ArtifactError(f"{place} does not fit the optimizer: {problem}", ELSEWHERE)
        _check_finite(place, tensors)
        load_state_tensors(optimizer, model, tensors)

    def _read(self, name: str) -> dict[str, Tensor]:
        content = self._check(name, keep=True)
        try:
            return load(content)
        except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:  # KeyError: an unknown type
            raise ArtifactError(f"{self.folder / name} does not hold tensors: {error}", ELSEWHERE) from error

    def _check(self, name: str, *, keep: bool = False) -> bytes:
        """Compare a file with its size and its hash, and give what is in it if that is to be kept."""
        place, named = self.folder / name, self._named(name)
        try:
            with open_regular(place, named.bytes) as file:
                content = file.read() if keep else b""
                digest = hashlib.sha256(content) if keep else hashlib.file_digest(file, "sha256")
        except OSError as error:
            raise ArtifactError(f"{place} cannot be read: {error.strerror}", ELSEWHERE) from error
        if digest.hexdigest() != named.sha256:
            raise ArtifactError(f"{place} was changed after it was written", ELSEWHERE)
        return content

    def _named(self, name: str) -> Named:
        """A file as training.json names it, which another process may have written since it was read here."""
        if name not in self._files:
            self._state()
        if name not in self._files:
            raise ArtifactError(f"{self.folder / STATE} does not name {name}", ELSEWHERE)
        return self._files[name]

    def _weights(self, step: int) -> Path:
        return self.folder / f"weights-{step:08}.safetensors"

    def _optimizer(self, step: int) -> Path:
        return self.folder / f"optimizer-{step:08}.safetensors"


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a model by name; one that has several names goes by its first."""
    seen: set[int] = set()
    found: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def set_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy values that `named_tensors` gave into a model."""
    for name, tensor in named_tensors(model).items():
        tensor.copy_(tensors[name])


def _checked(raw: Mapping[str, Any]) -> dict[str, Named]:
    """The files that a training.json names, if all of it can be used; a ValueError says what cannot."""
    settings, given, files = (raw.get(name) for name in ("settings", "given", "files"))
    if not isinstance(settings, dict) or not _is_count(settings.get("steps")):
        raise ValueError("it has no settings")
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise ValueError("it does not say what was given")
    if not isinstance(files, dict) or not all(TENSORS.fullmatch(name) for name in files):
        raise ValueError("it names files that no training writes")
    if Standing.of(raw.get("standing")).step > settings["steps"]:
        raise ValueError("it has more steps than its settings")
    return {name: Named.of(one) for name, one in files.items()}


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape)


def _check_finite(place: Path, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ArtifactError(f"{place} holds numbers that are not finite, in {name}", ELSEWHERE)


def _write(path: Path, tensors: Mapping[str, Tensor]) -> Named:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        save_file(_separate(tensors), temporary)
        shutil.copymode(path.parent / LOCK, temporary)  # safetensors makes files that only their owner may read
        with temporary.open("rb") as file:
            named = Named(hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path} cannot be written: {said}", MORE_ROOM) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return named


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in plain memory, no two of them in the same, as safetensors wants them."""
    seen: set[int] = set()
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        plain = tensor.cpu().contiguous()
        place = plain.untyped_storage().data_ptr()
        result[name] = plain.clone() if place in seen else plain
        seen.add(place)
    return result


def _take(file: IO[bytes], folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: one training at a time is up to the person there
        return
    try:
        # Not flock: loader processes would inherit it and hold the folder some seconds longer than a killed parent.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise Busy(f"{folder} is in use by another training", "wait for it to end, or name a new folder") from error
