"""Shards on Ray: `triever.load("models/shards", on="ray")` has each shard in a process of its own, on any machine.

Every machine opens the same folder, so that it is on a disk that all of them see, or copied to the same path. What asks
and merges is the same as for shards in one process. A process that dies is started again and asked once more.

Ray reports how it is used to its makers. Whoever imports this module sends nothing, unless the environment variable
RAY_USAGE_STATS_ENABLED says that it is wanted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

REPORTS = "RAY_USAGE_STATS_ENABLED"
os.environ.setdefault(REPORTS, "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # workers without a GPU leave its settings alone

from triever import artifact  # noqa: E402
from triever.errors import ArtifactError, ServerError, TrieverError, needed_for  # noqa: E402
from triever.index.shard import Shard  # noqa: E402
from triever.shards import Bounds, Part  # noqa: E402

with needed_for("Ray", "pip install 'triever[ray]'"):
    import ray

ADDRESS = "RAY_ADDRESS"
"""The environment variable with the address of a cluster; without it Ray is started on this machine."""
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
        raise ServerError(problem, "start it with `ray start --head`, or set RAY_ADDRESS") from error


class Holder:
    """What a process of Ray runs: it opens one shard of a folder, and answers."""

    def __init__(self, path: str, number: int, bounds: Bounds, fingerprint: str) -> None:
        snapshot = artifact.read(path)
        if snapshot.manifest.fingerprint != fingerprint:
            hint = "copy the folder to all machines, and open it again"
            raise ArtifactError(f"{path} is another retriever where its shard {number} is opened", hint)
        self.shard = Shard(snapshot, bounds, number)

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
