"""Training by several processes that Ray Train starts, on one machine or on many, in place of torchrun.

`call_together(function, arguments, processes, folder)` calls the same function in every process. Each finds its number
among them where torchrun would have put it, so that the only training loop does what it does under torchrun. When a
process is lost, all are started again, and the training goes on from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

from triever import progress
from triever.errors import ServerError, TrieverError, UsageError, needed_for

with needed_for("training on Ray", "pip install 'triever[ray-train]'"):
    from triever.integrations.ray import TRIES, started  # which also sees to it that Ray reports nothing
with needed_for("training on Ray", "pip install 'triever[ray-train]'"):
    import pydantic  # noqa: F401 - Ray Train says in other words that it is missing
    import ray
    import ray.train
    import ray.train.torch

SAID = "said.txt"
"""The file in which the first process says how far it is."""
LISTENED = 0.5
"""Seconds until that file is read again."""

_log = logging.getLogger("triever")


def call_together(
    function: Callable[..., object],
    arguments: Mapping[str, Any],
    processes: int,
    folder: str | Path,
    say: Callable[[str], object] = lambda _line: None,
) -> None:
    """Call a function with arguments by name in so many processes, which train together.

    `folder` is for Ray's own notes, is seen by all machines, and is removed at the end. `say` takes the lines that the
    first process writes to standard error. An error that Triever knows is raised here as the process raised it.
    """
    started()
    unit = "GPU" if ray.cluster_resources().get("GPU") else "CPU"
    there = int(ray.cluster_resources().get(unit, 0))
    if processes > there:
        name = "GPUs" if unit == "GPU" else "processors"
        raise UsageError(f"{processes} processes need as many {name}, and Ray has {there}", "start fewer processes")
    notes = Path(os.path.abspath(folder))
    # Processes work where this one does, so that they find the same files under the same relative names.
    call = {"function": function, "arguments": dict(arguments), "folder": os.getcwd(), "level": _log.level}
    for left in reversed(range(TRIES)):
        notes.mkdir(parents=True, exist_ok=True)
        trainer = ray.train.torch.TorchTrainer(
            _called,
            train_loop_config={**call, "said": notes / SAID},
            scaling_config=ray.train.ScalingConfig(num_workers=processes, use_gpu=unit == "GPU"),
            run_config=ray.train.RunConfig(name="together", storage_path=str(notes)),
        )
        try:
            with progress.phase(f"{processes} processes of Ray"), _heard(notes / SAID, say), _interruptible():
                trainer.fit()
            return
        except ray.train.TrainingFailedError as error:
            raise_unless_lost(error, again=left > 0)
        finally:
            shutil.rmtree(notes, ignore_errors=True)


def _called(call: Mapping[str, Any]) -> None:
    """What each process runs; what the first one says goes to a file."""
    _log.setLevel(call["level"])
    try:
        os.chdir(call["folder"])
    except OSError as error:
        problem = f"{call['folder']} cannot be opened on {os.uname().nodename}: {error.strerror}"
        raise UsageError(problem, "start in a folder that all machines have") from error
    with contextlib.ExitStack() as stack:
        if ray.train.get_context().get_world_rank() == 0:
            file = stack.enter_context(call["said"].open("w", encoding="utf-8", buffering=1))
            stack.enter_context(contextlib.redirect_stderr(file))
            progress.tell(lambda line: file.write(f"{line}\n"), always=True)
            stack.callback(progress.tell, None)
        call["function"](**call["arguments"])


@contextlib.contextmanager
def _heard(file: Path, say: Callable[[str], object]) -> Generator[None]:
    """Say what the first process says, as it comes."""
    over = threading.Event()

    def listen() -> None:
        end, is_over = 0, False
        while not is_over:
            is_over = over.wait(LISTENED)
            with contextlib.suppress(OSError), file.open("rb") as said:
                said.seek(end)
                *lines, _unfinished = said.read().split(b"\n")
                end += sum(len(line) + 1 for line in lines)
                for line in lines:
                    say(line.decode(errors="replace"))

    thread = threading.Thread(target=listen, name="listener", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def raise_unless_lost(error: Exception, *, again: bool) -> None:
    """Raise what is wrong, unless a process was lost and all may be started again."""
    failures = [*getattr(error, "worker_failures", {}).values()]
    for failure in failures:
        if isinstance(failure, TrieverError):
            raise failure
    words = str(failures[0] if failures else error).strip().splitlines()[-1]
    if not again:
        problem = f"the processes of Ray cannot train: {words}"
        raise ServerError(problem, "look at the logs of Ray, and run the same command again") from error
    _log.warning("a process was lost, so all go on from the last checkpoint: %s", words)


@contextlib.contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl-C end this as it ends everything else: Ray Train takes it for itself, and keeps it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except (SystemExit, ray.exceptions.RayActorError) as error:  # what is left of a run that was interrupted
        raise KeyboardInterrupt from error
    finally:
        signal.signal(signal.SIGINT, before)
