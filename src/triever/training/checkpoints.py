"""The checkpoints of a training in its folder, which stays whole whenever the process is killed.

    training.json                    where the training stands, and every file with its hash; replacing it is the commit
    weights-00000500.safetensors     the model after 500 steps; there are files for the newest step, the best step,
                                     and the step before which the running round was made
    optimizer-00000500.safetensors   the state of the optimizer, of the newest step only
    metrics.jsonl, tensorboard/      the metrics
    .lock                            held by the one training that writes here

A file of tensors is written under a temporary name and renamed, and only then does training.json name it. So a kill
leaves the old state or the new one. Files that training.json does not name are removed. Every file is checked before
it is used: against its hash, and for what a training needs. Nothing here is ever executed: tensors are safetensors,
the rest is JSON.
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
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, TypeGuard, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from triever.artifact import digest_of
from triever.errors import ArtifactError, Busy, DataError, UsageError
from triever.files import append_regular, atomic, open_regular, sync_folder
from triever.models.named_weights import named_tensors, set_weights
from triever.training.optimizers import load_state_tensors, state_problem, state_tensors
from triever.training.options import FREE, TrainOptions, rate
from triever.validation import not_finite

STATE = "training.json"
LOCK = ".lock"
FORMAT, VERSION = "triever-training", 2
TENSORS = re.compile(r"(weights|optimizer)-\d{8,}\.safetensors")
FIRST = re.compile(r"(weights|optimizer)-0+\.safetensors")
OURS = re.compile(
    rf"{TENSORS.pattern}|\.({TENSORS.pattern}|training\.json)\.[0-9a-f]{{8}}\.tmp"
    r"|\.tmp[A-Za-z0-9]{6}"  # as safetensors names a file while it writes it
)
LARGEST = 2**28
"""The most bytes that training.json may have: it holds the values of a line of metrics, and a line may be long."""
ELSEWHERE = "name a new folder, or remove this one to begin again"
MORE_ROOM = (
    "make room on its disk, or allow larger files, and run the same again: it continues from its last checkpoint"
)


@dataclass
class Standing:
    """Where a training stands."""

    step: int = 0
    round: int = 0
    position: int = 0  # batches of the round that are used up
    length: int = 0  # batches of the round, once it has begun
    round_start: int = 0  # the step before which the round was made
    best_step: int = -1  # -1: nothing was evaluated yet
    best: dict[str, float] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)
    since_best: int = 0  # evaluations
    finished: str = ""  # the reason: "steps" or "patience"
    seconds: float = 0.0
    stepping: float = 0.0  # the part of these seconds that went into steps, not into rounds or evaluations
    waited: float = 0.0  # the part of these seconds that was spent waiting for data
    meter: dict[str, list[float]] = field(default_factory=dict)
    history: int = 0  # bytes
    # The measure that decides which step is best, at each evaluation after the first step.
    watched: list[float] = field(default_factory=list)
    start: dict[str, float] = field(default_factory=dict)  # the same measure before the first step, by its name

    @classmethod
    def of(cls, raw: object) -> Standing:
        """Read a standing from its JSON; a ValueError says what is impossible in it."""
        if isinstance(raw, dict):
            raw = {"watched": [], "start": {}, **raw}  # checkpoints of earlier versions have none
        if not isinstance(raw, dict) or raw.keys() != {field.name for field in dataclasses.fields(cls)}:
            raise ValueError("its standing has missing or unknown entries")
        for name, value in raw.items():
            if not _CHECKS[name](value):
                raise ValueError(f"{name} cannot be {value!r:.40}")
        standing = cls(**cast("dict[str, Any]", raw))  # each value has just been checked
        if not -1 <= standing.best_step <= standing.step or (standing.best_step < 0) != (not standing.best):
            raise ValueError(f"best_step cannot be {standing.best_step}")
        if not standing.round <= standing.round_start <= standing.step or (standing.round_start and not standing.round):
            raise ValueError(f"round {standing.round} cannot begin at step {standing.round_start}")
        return standing


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**62


def _is_duration(value: object) -> bool:
    return type(value) is float and 0 <= value < math.inf


def _are_measures(value: object) -> bool:
    return isinstance(value, dict) and all(type(measure) is float for measure in value.values())


def _is_meter(value: object) -> bool:
    if not isinstance(value, dict) or (value and "loss" not in value):
        return False
    return all(_are_numbers(numbers) for numbers in value.values())


def _are_numbers(value: object) -> bool:
    return _are_floats(value) and bool(value)


def _are_floats(value: object) -> bool:
    return isinstance(value, list) and all(type(number) is float for number in value)


_CHECKS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("step", "round", "position", "length", "round_start", "since_best", "history"), _is_count),
    **dict.fromkeys(("seconds", "stepping", "waited"), _is_duration),
    **dict.fromkeys(("best", "latest", "start"), _are_measures),
    "best_step": lambda value: type(value) is int,
    "finished": lambda value: value in ("", "steps", "patience"),
    "meter": _is_meter,
    "watched": _are_floats,
}


@dataclass(frozen=True)
class TensorFile:
    """The hash and the size of a file of tensors, as training.json lists them."""

    sha256: str
    bytes: int

    @classmethod
    def of(cls, raw: object) -> TensorFile:
        """Read them from their JSON; a ValueError says what is wrong."""
        if not isinstance(raw, dict) or raw.keys() != {"sha256", "bytes"} or not _is_count(raw["bytes"]):
            raise ValueError("a file has no hash or no size")
        if not isinstance(raw["sha256"], str) or not re.fullmatch(r"[0-9a-f]{64}", raw["sha256"]):
            raise ValueError("a file's hash is not a SHA-256")
        return cls(raw["sha256"], raw["bytes"])


@dataclass(frozen=True)
class _State:
    """The content of training.json."""

    settings: Mapping[str, object]
    given: Mapping[str, str]
    files: dict[str, TensorFile]
    standing: Standing
    steps: int  # of the settings

    @classmethod
    def of(cls, raw: Mapping[str, object]) -> _State:
        """Read and check all of it; a ValueError says what cannot be used."""
        settings, given, files = (raw.get(name) for name in ("settings", "given", "files"))
        if not isinstance(settings, dict) or not _is_count(steps := settings.get("steps")):
            raise ValueError("its settings are missing or damaged")
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise ValueError("its entry given is missing or damaged")
        if not isinstance(files, dict) or not all(TENSORS.fullmatch(name) for name in files):
            raise ValueError("it names files that no training writes")
        standing = Standing.of(raw.get("standing"))
        if standing.step > steps:
            raise ValueError("its step is beyond the steps of its settings")
        return cls(settings, given, {name: TensorFile.of(entry) for name, entry in files.items()}, standing, steps)


class Checkpoints:
    """The checkpoints in a folder: `Checkpoints(folder, settings)`. To go on, `settings` and `given` must be the same.

    `given` has fingerprints, by name, of what the training learns from besides its settings.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, object], given: Mapping[str, str] | None = None, *, keep_best: bool
    ) -> None:
        self.folder = folder
        self._settings = dict(settings)
        self._given = dict(given or {})
        self._keep_best = keep_best
        self._files: dict[str, TensorFile] = {}  # those of the newest checkpoint
        self._verified: dict[str, TensorFile] = {}  # those whose hashes were compared since the last save

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Hold the right to write here, for one training at a time; the system drops it when the process dies."""
        file = self._open_lock()
        with file:
            _lock(file, self.folder)
            yield

    def _open_lock(self) -> IO[bytes]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._check_owner()
            return append_regular(self.folder / LOCK)
        except OSError as error:
            problem = f"{self.folder} cannot be written to: {error.strerror or error}"
            raise DataError(problem, "check the folder") from error

    def _check_owner(self) -> None:
        """Refuse checkpoints without their training.json, and files that only have the names of a training's."""
        if os.path.lexists(self.folder / STATE):
            return
        for name in sorted(path.name for path in self.folder.iterdir()):
            if TENSORS.fullmatch(name) and not FIRST.fullmatch(name):  # a kill leaves those of the first step at most
                raise ArtifactError(f"{self.folder} holds {name} but no {STATE}", ELSEWHERE)
            if (OURS.fullmatch(name) or name == "metrics.jsonl") and not (self.folder / LOCK).exists():
                raise UsageError(f"{self.folder} holds {name} but no {STATE}, so it may be somebody else's", ELSEWHERE)

    def read(self, options: TrainOptions) -> Standing | None:
        """Return where the training stands, or None if none was begun here; one with other settings is refused.

        All files of the checkpoint are compared with their hashes.
        """
        state = self._read_state()
        if state is None:
            return None
        self._compare_given(state.given)
        self._compare_settings(state, options)
        self._check_position(state.standing, options)
        for name in self._names(state.standing):
            self._verify(name)
        return state.standing

    def _read_state(self) -> _State | None:
        """Read training.json and remember the files that it names; None if there is none."""
        path = self.folder / STATE
        try:
            with open_regular(path, LARGEST) as file:
                raw = json.loads(file.read())
            digest = digest_of(raw) if isinstance(raw, dict) else ""
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ArtifactError(f"{path} cannot be read: {error.strerror}", ELSEWHERE) from error
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{path} cannot be read: it is not valid JSON", ELSEWHERE) from error
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise ArtifactError(f"{path} was not written by Triever", ELSEWHERE)
        if raw.get("version") == 1:
            problem = f"{path} was begun by an earlier version of Triever, whose checkpoints have no hashes"
            raise ArtifactError(problem, f"finish it with that version, {ELSEWHERE}")
        if raw.get("version") != VERSION:
            problem = f"{path} was written by a later version of Triever"
            raise ArtifactError(problem, "run: pip install --upgrade triever")
        if raw.get("digest") != digest:
            raise ArtifactError(f"{path} was changed after it was written", ELSEWHERE)
        try:
            state = _State.of(raw)
        except ValueError as error:
            raise ArtifactError(f"{path} is damaged: {error}", ELSEWHERE) from error
        self._files = state.files
        return state

    def _check_position(self, standing: Standing, options: TrainOptions) -> None:
        """Refuse a position in a round that no training reaches, and a best step or an end without a reason."""
        used = min((standing.step - standing.round_start) * options.accumulate, standing.length)
        impatient = 0 < options.patience <= standing.since_best
        watch = str(self._settings.get("watch") or next(iter(standing.best), ""))
        unknown = standing.best and math.isnan(standing.best.get(watch, math.nan))
        if standing.position != used or unknown or (standing.finished == "patience" and not impatient):
            raise ArtifactError(
                f"{self.folder / STATE} is damaged: its position in the training is impossible", ELSEWHERE
            )

    def _compare_given(self, before: Mapping[str, str]) -> None:
        for name in sorted({*before, *self._given}):
            if before.get(name) != self._given.get(name):
                raise UsageError(f"{self.folder} holds a training with other {name}", ELSEWHERE)

    def _compare_settings(self, before: _State, options: TrainOptions) -> None:
        """Refuse other settings. More steps are welcome if they keep the learning rates of the steps that are done."""
        hint = f"continue with the same options, or {ELSEWHERE}"
        for name in sorted({*before.settings, *self._settings} - FREE - {"steps"}):
            old, new = before.settings.get(name), self._settings.get(name)
            if old != new:
                raise UsageError(f"{self.folder} holds a training with {name} = {old!r}, not {new!r}", hint)
        if before.steps == options.steps:
            return
        old_options, done = dataclasses.replace(options, steps=before.steps), before.standing.step
        if options.steps < done or any(rate(old_options, step) != rate(options, step) for step in range(done)):
            problem = f"{self.folder} holds {done} steps of a training with steps = {before.steps}"
            raise UsageError(f"{problem}, which does not fit steps = {options.steps}", hint)

    def clean(self) -> None:
        """Remove the files that training.json does not name: earlier checkpoints, and leftovers of a killed process."""
        for entry in list(os.scandir(self.folder)):
            if OURS.fullmatch(entry.name) and entry.name not in self._files and entry.is_file(follow_symlinks=False):
                Path(entry).unlink()

    def save(self, standing: Standing, model: nn.Module, optimizer: Optimizer) -> None:
        """Make this the newest checkpoint."""
        weights, state = self._weights(standing.step), self._optimizer(standing.step)
        files = dict(self._files)
        self._verified = {}  # a file that is loaded much later is compared again
        # At the end of a round the step may have been saved already; the model has not changed since.
        if weights.name not in files:
            files[weights.name] = _write(weights, named_tensors(model))
        if state.name not in files:
            files[state.name] = _write(state, state_tensors(optimizer, model))
        sync_folder(self.folder)  # the files must be there before the one that names them
        self._files = {name: files[name] for name in self._names(standing)}
        content = {"format": FORMAT, "version": VERSION, "settings": self._settings, "given": self._given}
        entries = {name: dataclasses.asdict(entry) for name, entry in self._files.items()}
        raw = {**content, "files": entries, "standing": dataclasses.asdict(standing)}
        text = json.dumps({**raw, "digest": digest_of(raw)}, indent=1)
        with atomic(self.folder / STATE) as file:
            file.write(text.encode())
        self.clean()

    def _names(self, standing: Standing) -> list[str]:
        """The names of the files of a checkpoint."""
        kept = {standing.step, standing.round_start, *([standing.best_step] if self._keep_best else [])} - {-1}
        return [self._optimizer(standing.step).name, *(self._weights(step).name for step in sorted(kept))]

    def load_weights(self, model: nn.Module, step: int) -> None:
        """Give a model the weights that it had after a step."""
        path = self._weights(step)
        tensors = self._load(path.name)
        if _forms(named_tensors(model)) != _forms(tensors):
            raise UsageError(f"{self.folder} holds the training of another model", ELSEWHERE)
        # Buffers are not checked: a mask is made of infinities.
        _check_finite(path, {name: tensors[name] for name, _ in model.named_parameters() if name in tensors})
        set_weights(model, tensors)

    def load_optimizer(self, optimizer: Optimizer, model: nn.Module, step: int) -> None:
        """Give an optimizer the state that it had after a step."""
        path = self._optimizer(step)
        tensors = self._load(path.name)
        if problem := state_problem(optimizer, model, tensors):
            raise ArtifactError(f"{path} does not fit the optimizer: {problem}", ELSEWHERE)
        _check_finite(path, tensors)
        load_state_tensors(optimizer, model, tensors)

    def _load(self, name: str) -> dict[str, Tensor]:
        """The tensors of a file, whose hash is compared unless `read` has just done so."""
        with self._opened(name) as file:
            content = file.read()
        if self._verified.get(name) != self._files[name]:
            self._compare_hash(name, hashlib.sha256(content).hexdigest())
        try:
            return load(content)
        except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:  # KeyError: an unknown type
            raise ArtifactError(f"{self.folder / name} does not hold tensors: {error}", ELSEWHERE) from error

    def _verify(self, name: str) -> None:
        """Compare a file with its size and its hash."""
        with self._opened(name) as file:
            digest = hashlib.file_digest(file, "sha256")
        self._compare_hash(name, digest.hexdigest())

    def _compare_hash(self, name: str, sha256: str) -> None:
        if sha256 != self._files[name].sha256:
            raise ArtifactError(f"{self.folder / name} was changed after it was written", ELSEWHERE)
        self._verified[name] = self._files[name]

    @contextlib.contextmanager
    def _opened(self, name: str) -> Generator[BufferedReader]:
        """Open a file that training.json names, unless it is larger than it says."""
        path, size = self.folder / name, self._listed(name).bytes
        try:
            with open_regular(path, size) as file:
                yield file
        except OSError as error:
            raise ArtifactError(f"{path} cannot be read: {error.strerror}", ELSEWHERE) from error

    def _listed(self, name: str) -> TensorFile:
        """What training.json lists for a file. Another process may have written it since it was read here."""
        if name not in self._files:
            self._read_state()
        if name not in self._files:
            raise ArtifactError(f"{self.folder / STATE} does not name {name}", ELSEWHERE)
        return self._files[name]

    def _weights(self, step: int) -> Path:
        return self.folder / f"weights-{step:08}.safetensors"

    def _optimizer(self, step: int) -> Path:
        return self.folder / f"optimizer-{step:08}.safetensors"


def _forms(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype, torch.Size]]:
    """The type and the shape of each tensor."""
    return {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}


def _check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    if (name := not_finite(tensors)) is not None:
        raise ArtifactError(f"{path} holds numbers that are not finite, in {name}", ELSEWHERE)


def _write(path: Path, tensors: Mapping[str, Tensor]) -> TensorFile:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        save_file(_separate(tensors), temporary)
        shutil.copymode(path.parent / LOCK, temporary)  # safetensors makes files that only their owner may read
        with temporary.open("rb") as file:
            written = TensorFile(hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path} cannot be written: {reason}", MORE_ROOM) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return written


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in the processor's memory, no two of them in the same bytes, as safetensors wants them."""
    seen: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        plain = tensor.cpu().contiguous()
        address = plain.untyped_storage().data_ptr()
        separate[name] = plain.clone() if address in seen else plain
        seen.add(address)
    return separate


def _lock(file: IO[bytes], folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: one training at a time is up to the person there
        return
    try:
        # Not flock: loader processes would inherit it and hold the folder some seconds longer than a killed parent.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise Busy(f"{folder} is in use by another training", "wait for it to end, or name a new folder") from error
