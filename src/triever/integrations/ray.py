"""Work on Ray, in processes of one machine or of many.

`triever.load("models/shards", on="ray")` has each shard in a process of its own. What asks and merges is the same as
for shards in one process. A process that dies is started again and asked once more.

`with elsewhere(RayWorkers(folder)): retriever.fit(data)` has documents encoded and teachers asked by Ray Data, in the
batches in which that is done without it, and `write_file(writer, data, out)` has questions written. What is done lies
in the folder, so that a work that is interrupted goes on where it was.

Every machine opens the same folders, so that they are on a disk that all of them see.

Ray reports how it is used to its makers. Whoever imports this module sends nothing, unless the environment variable
RAY_USAGE_STATS_ENABLED says that it is wanted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

REPORTS = "RAY_USAGE_STATS_ENABLED"
os.environ.setdefault(REPORTS, "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # workers without a GPU leave its settings alone
ADDRESS = "RAY_ADDRESS"
"""The environment variable with the address of a cluster; without it Ray is started on this machine."""
# A Ray of this machine alone listens on 127.0.0.1 alone. Ray's switch for that is named after the systems where it is
# on by itself; elsewhere Ray takes _node_ip_address="127.0.0.1" for the address of this machine in its network.
if (os.environ.get(ADDRESS) or "127.0.0.1").startswith("127.0.0.1"):
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

from triever import artifact  # noqa: E402
from triever.errors import ArtifactError, ServerError, TrieverError, UsageError, needed_for  # noqa: E402
from triever.files import atomic  # noqa: E402
from triever.index.shard import Shard  # noqa: E402
from triever.models.elsewhere import Block, Task, Work  # noqa: E402
from triever.progress import bar  # noqa: E402
from triever.shards import Bounds, Part  # noqa: E402

with needed_for("Ray", "pip install 'triever[ray]'"):
    import ray
    import ray.data

TRIES = 3
"""How often a process that dies while it is asked is asked once more."""


def started() -> None:
    """Connect to the cluster that RAY_ADDRESS names, or start Ray on this machine, unless that is done already."""
    if ray.is_initialized():
        return
    # Processes find Triever where this one does, installed or not.
    paths = [path for path in (str(Path(artifact.__file__).parent.parent), os.environ.get("PYTHONPATH", "")) if path]
    settings = {"PYTHONPATH": os.pathsep.join(paths), REPORTS: os.environ[REPORTS]}
    environment = {"env_vars": settings}
    try:
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False, runtime_env=environment)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = os.environ.get(ADDRESS, "this machine")
        problem = f"Ray cannot be reached on {where}: {str(error).splitlines()[0]}"
        hint = f"start it with `ray start --head`, or set {ADDRESS}, and RAY_AUTH_MODE=token if it wants a token"
        raise ServerError(problem, hint) from error


class Holder:
    """What a process of Ray runs: it opens one shard of a folder, and answers."""

    def __init__(self, path: str, number: int, bounds: Bounds, fingerprint: str) -> None:
        self.path, self.number, self.bounds, self.fingerprint = path, number, bounds, fingerprint

    @cached_property
    def shard(self) -> Shard:
        """The shard, once it is asked for."""
        snapshot = artifact.read(self.path)
        if snapshot.manifest.fingerprint != self.fingerprint:
            problem = f"{self.path} is another retriever on the machine of shard {self.number}, or was replaced"
            raise ArtifactError(problem, "let all machines see the same folder, and open it again")
        return Shard(snapshot, self.bounds, self.number)

    def ask(self, part: Part, method: str, arguments: Sequence[Any], keep: np.ndarray | None) -> Any:
        """What a part answers; a problem that Triever knows is answered too, since Ray would wrap it."""
        try:
            return self.shard.ask(part, method, arguments, keep)
        except (TrieverError, ValueError) as error:
            return error

    def pid(self) -> int:
        """The number of its process."""
        return os.getpid()


@dataclass
class RayShards:
    """Shards that are processes of Ray, all asked at once."""

    bounds: Bounds
    actors: Sequence[Any]

    def ask(
        self, part: Part, method: str, asked: Sequence[tuple[Any, ...] | None], keep: Sequence[np.ndarray | None]
    ) -> list[Any]:
        """For each shard what a method of a part answers."""
        each = zip(self.actors, asked, keep, strict=True)
        waiting = [
            None if arguments is None else actor.ask.remote(part, method, arguments, mask)
            for actor, arguments, mask in each
        ]
        try:
            answers = iter(ray.get([reference for reference in waiting if reference is not None]))
        except ray.exceptions.RayActorError as error:
            problem = f"a process with a shard has died: {str(error).splitlines()[0]}"
            raise ServerError(problem, "look at the logs of Ray, and open the retriever again") from error
        values = [None if reference is None else next(answers) for reference in waiting]
        for value in values:
            if isinstance(value, TrieverError | ValueError):
                raise value
        return values

    def held(self, part: Part) -> list[Any]:
        """Nothing: shards are in other processes."""
        return []

    @property
    def elsewhere(self) -> bool:
        """Shards are in other processes."""
        return True

    def pids(self) -> list[int]:
        """The numbers of the processes of the shards, each on its machine."""
        return ray.get([actor.pid.remote() for actor in self.actors])


def ray_shards(snapshot: artifact.Snapshot, bounds: Bounds) -> RayShards:
    """The shards of an artifact, each in a process of Ray that ends with this one."""
    started()
    # Shards wait for each other more than for a processor: a machine may hold more of them than it has processors.
    holder: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=TRIES)(Holder)
    path, fingerprint = str(snapshot.path.resolve()), snapshot.manifest.fingerprint
    spread = {"scheduling_strategy": "SPREAD"}
    actors = [holder.options(**spread).remote(path, number, bounds, fingerprint) for number in range(len(bounds))]
    return RayShards(bounds, actors)


LEAST = 1024
"""Fewer texts than these are encoded in this process: to send them would take longer."""
NO_PROBLEM = ("", "")


@dataclass(frozen=True)
class RayWorkers:
    """Has blocks made by so many workers (0: one for each GPU, or else for each processor), by way of a folder."""

    folder: Path
    workers: int = 0
    least: int = LEAST

    def work(self, task: Task, blocks: Iterable[Block], label: str) -> None:
        """Have the files of all blocks made."""
        asked = Path(os.path.abspath(self.folder)) / "asked"
        shutil.rmtree(asked, ignore_errors=True)
        asked.mkdir(parents=True)
        try:
            rows = []
            for number, block in enumerate(blocks):
                path = asked / f"{number:08}.parquet"
                pq.write_table(block.table, path)
                rows.append({"asked": str(path), "file": os.path.abspath(block.file)})
            if rows:
                self._have_made(task, rows, label)
        finally:
            shutil.rmtree(asked, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.folder.rmdir()  # unless something is kept there

    def clear(self) -> None:
        """Remove the folder: the work is finished."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _have_made(self, task: Task, rows: Sequence[dict[str, str]], label: str) -> None:
        """Have files made, and show how many are."""
        started()
        with bar(label, len(rows), unit="blocks") as show:
            for done, (problem, hint) in enumerate(self._made(task, rows), 1):
                if problem:
                    raise UsageError(problem, hint)
                show(done, "")

    def _made(self, task: Task, rows: Sequence[dict[str, str]]) -> Iterator[tuple[str, str]]:
        """What goes wrong in each block, as its file is made: mostly nothing."""
        gpus = int(ray.cluster_resources().get("GPU", 0))
        workers = self.workers or gpus or int(ray.cluster_resources().get("CPU", 1))
        _silence_ray_data()
        # Paths, and not their contents: Ray would put small files together, and give all of them to one worker.
        blocks = ray.data.from_items([*rows], override_num_blocks=len(rows))
        done = blocks.map_batches(
            BlockWorker,
            fn_constructor_args=(ray.put(task),),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(rows))),
            num_cpus=0.5,  # so that there is room for tasks of Ray Data itself
            num_gpus=1 if gpus else 0,
        )
        try:
            for batch in done.iter_batches(batch_size=None, batch_format="pyarrow"):
                yield from zip(batch["problem"].to_pylist(), batch["hint"].to_pylist(), strict=True)
        except ray.exceptions.RayError as error:
            problem = f"the workers of Ray cannot do their work: {str(error).splitlines()[-1]}"
            raise ServerError(problem, "look at the logs of Ray, and run the same command again") from error


def _silence_ray_data() -> None:
    """Leave the word to our own bar; what Ray Data says is in its log files."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.issue_detectors_config.detectors = []  # they wonder about workers that are busy for long
    logging.getLogger("ray.data").setLevel(logging.ERROR)


class BlockWorker:
    """What a process of Ray runs: it has a task, and makes the files of blocks."""

    def __init__(self, task: Any) -> None:
        given: Task = ray.get(task) if isinstance(task, ray.ObjectRef) else task
        self.task = given
        self.device = "cuda" if torch.cuda.is_available() and ray.get_gpu_ids() else "cpu"

    @cached_property
    def do(self) -> Work:
        """What is done with a block, once there is one."""
        return self.task.begin(self.device)

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Make the files of blocks, each whole or not at all; what is wrong is answered, since Ray would wrap it."""
        problems = [self._problem(**row) for row in rows.to_pylist()]
        return pa.Table.from_pylist([{"problem": problem, "hint": hint} for problem, hint in problems])

    def _problem(self, asked: str, file: str) -> tuple[str, str]:
        if _times_tried(asked) > TRIES:  # Ray itself would try for ever
            return f"{TRIES + 1} workers have died of the same block", "give them more memory, or set a smaller batch"
        try:
            table = pq.read_table(asked, partitioning=None)
            with atomic(file) as opened:
                self.do(table, opened)
        except TrieverError as error:
            return error.problem, error.hint
        return NO_PROBLEM


def _times_tried(asked: str) -> int:
    """How often workers have begun with a block before."""
    with open(f"{asked}.tried", "ab") as file:
        file.write(b".")
        return file.tell() - 1
