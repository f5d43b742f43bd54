"""A training's folder: where it stands, always whole, whenever the process was killed.

    training.json                    where the training stands; replacing it is the commit
    weights-00000500.safetensors     the model after so many steps: the newest, the best,
                                     and the one from which the running round was made
    optimizer-00000500.safetensors   the state of the optimizer, of the newest step only
    metrics.jsonl, tensorboard/      what it said about itself
    .lock                            held by the one training that writes here

A file of tensors is written under another name and renamed, and training.json names it only then; so
a kill leaves the old state or the new one. What training.json does not name is removed. Nothing here
is ever executed: tensors are safetensors, the rest is JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from triever.errors import ArtifactError, Busy, DataError, UsageError
from triever.files import atomic, sync_folder
from triever.training.optimizers import load_state_tensors, state_tensors
from triever.training.options import FREE, TrainOptions, rate

STATE = "training.json"
LOCK = ".lock"
FORMAT, VERSION = "triever-training", 1
OURS = re.compile(r"\.?(weights|optimizer)-\d{8,}\.safetensors(\.tmp)?|\.training\.json\.[0-9a-f]+\.tmp")
ELSEWHERE = "name a new folder, or remove this one to begin again"


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
            return (self.folder / LOCK).open("a+b")
        except OSError as error:
            problem = f"{self.folder} cannot be written to: {error.strerror or error}"
            raise DataError(problem, "check the folder") from error

    def read(self, options: TrainOptions) -> Standing | None:
        """Where the training stands, or nothing when none was begun here; one with other settings is refused."""
        try:
            raw = json.loads((self.folder / STATE).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{self.folder / STATE} cannot be read: {error}", ELSEWHERE) from error
        if not isinstance(raw, dict) or raw.get("format") != FORMAT or raw.get("version") != VERSION:
            raise ArtifactError(f"{self.folder / STATE} was not written by this Triever", ELSEWHERE)
        standing = Standing(**raw["standing"])
        self._compare_given(raw.get("given", {}))
        self._compare(raw["settings"], standing.step, options)
        return standing

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
        try:
            named = set(json.loads((self.folder / STATE).read_bytes())["files"])
        except FileNotFoundError:
            named = set()
        for path in self.folder.iterdir():
            if OURS.fullmatch(path.name) and path.name not in named:
                path.unlink()

    def save(self, standing: Standing, model: nn.Module, optimizer: Optimizer) -> None:
        """Make this the newest checkpoint."""
        weights, state = self._weights(standing.step), self._optimizer(standing.step)
        # At the end of a round the step may have been saved already; the model has not changed since.
        if not weights.exists():
            _write(weights, weights_of(model))
        if not state.exists():
            _write(state, state_tensors(optimizer, model))
        sync_folder(self.folder)  # the files must be there before the one that names them
        kept = {standing.step, standing.round_start, *([standing.best_step] if self._keep_best else [])} - {-1}
        files = [state.name, *(self._weights(step).name for step in sorted(kept))]
        content = {"format": FORMAT, "version": VERSION, "settings": self._settings, "given": self._given}
        where = {"files": files, "standing": dataclasses.asdict(standing)}
        with atomic(self.folder / STATE) as file:
            file.write(json.dumps({**content, **where}, indent=1).encode())
        self.clean()

    def load_weights(self, model: nn.Module, step: int) -> None:
        """Bring a model to where it was after a step."""
        tensors = _read(self._weights(step))
        own = weights_of(model)
        if {name: part.shape for name, part in own.items()} != {name: part.shape for name, part in tensors.items()}:
            raise UsageError(f"{self.folder} holds the training of another model", ELSEWHERE)
        set_weights(model, tensors)

    def load_optimizer(self, optimizer: Optimizer, model: nn.Module, step: int) -> None:
        """Bring an optimizer to where it was after a step."""
        load_state_tensors(optimizer, model, _read(self._optimizer(step)))

    def _weights(self, step: int) -> Path:
        return self.folder / f"weights-{step:08}.safetensors"

    def _optimizer(self, step: int) -> Path:
        return self.folder / f"optimizer-{step:08}.safetensors"


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a model by name; one that has several names goes by its first."""
    seen: set[int] = set()
    found: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def set_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy values that `weights_of` gave into a model."""
    for name, tensor in weights_of(model).items():
        tensor.copy_(tensors[name])


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        save_file(_separate(tensors), temporary)
        shutil.copymode(path.parent / LOCK, temporary)  # safetensors makes files that only their owner may read
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} cannot be written: {error}", "check the folder and the space on its disk") from error


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


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}", ELSEWHERE) from error


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
