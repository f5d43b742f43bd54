"""Work on Ray, in processes of one machine or of many.

`triever.load("models/shards", on="ray")` has each shard in a process of its own. What asks and merges is the same as
for shards in one process. A process that dies is started again and asked once more.

`with elsewhere(RayEncoding(folder)): retriever.fit(data)` has documents encoded by Ray Data, in the batches in which
they are encoded without it. What is done lies in the folder, so that a fit that is interrupted goes on where it was.

Every machine opens the same folders, so that they are on a disk that all of them see.

Ray reports how it is used to its makers. Whoever imports this module sends nothing, unless the environment variable
RAY_USAGE_STATS_ENABLED says that it is wanted.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

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
from triever.errors import ArtifactError, ServerError, TrieverError, needed_for  # noqa: E402
from triever.index.shard import Shard  # noqa: E402
from triever.models.elsewhere import Padded  # noqa: E402
from triever.models.encoder import of_chosen, reading_on  # noqa: E402
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
"""Fewer texts than these are read in this process: to send them would take longer."""
BATCHES = 16
"""Batches of a block, which is what a worker is given and what is kept of an interrupted work."""


@dataclass(frozen=True)
class RayEncoding:
    """Encodes texts by so many workers (0: one for each GPU, or else for each processor), by way of a folder."""

    folder: Path
    workers: int = 0
    least: int = LEAST

    def encoded(
        self, encoder: nn.Module, call: str, batches: Sequence[np.ndarray], padded: Callable[[np.ndarray], Padded]
    ) -> Iterator[np.ndarray]:
        """For each batch of rows in its order, what a method of the encoder makes of its texts."""
        started()
        made, asked = self.folder / "made", self.folder / "asked"
        for folder in (made, asked):
            folder.mkdir(parents=True, exist_ok=True)
        blocks = [batches[low : low + BATCHES] for low in range(0, len(batches), BATCHES)]
        weights = _digest(encoder)
        names, missing = [], []
        for number, block in enumerate(blocks):
            texts = [padded(rows) for rows in block]
            names.append(_block_name(weights, call, texts))
            if not (made / names[-1]).exists():
                missing.append(asked / f"{number:08}.parquet")
                pq.write_table(_block_table(names[-1], texts), missing[-1])
        if missing:
            self._make(encoder, call, missing, made)
        for name, block in zip(names, blocks, strict=True):
            vectors, sizes = _read_block(made / name, len(block))
            yield from np.split(vectors, np.cumsum(sizes)[:-1])
        shutil.rmtree(self.folder)

    def _make(self, encoder: nn.Module, call: str, asked: Sequence[Path], made: Path) -> None:
        """Have workers make the vectors of blocks, each in a file."""
        gpus = int(ray.cluster_resources().get("GPU", 0))
        workers = self.workers or gpus or int(ray.cluster_resources().get("CPU", 1))
        encoder_reference = ray.put(encoder)
        ray.data.DataContext.get_current().enable_progress_bars = False
        # Paths, and not their contents: Ray would put small files together, and give all of them to one worker.
        blocks = ray.data.from_items([{"path": str(path)} for path in asked], override_num_blocks=len(asked))
        done = blocks.map_batches(
            EncodingWorker,
            fn_constructor_args=(encoder_reference, call, str(made)),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(asked))),
            num_cpus=0.5,  # so that there is room for tasks of Ray Data itself
            num_gpus=1 if gpus else 0,
        )
        for _ in done.iter_batches(batch_size=None, batch_format="pyarrow"):
            pass


class EncodingWorker:
    """What a process of Ray runs: it holds an encoder, and makes the vectors of blocks."""

    def __init__(self, encoder: Any, call: str, folder: str) -> None:
        model = ray.get(encoder) if isinstance(encoder, ray.ObjectRef) else encoder
        self.device = torch.device("cuda" if torch.cuda.is_available() and ray.get_gpu_ids() else "cpu")
        self.encoder = model.to(self.device).eval()
        self.call, self.folder = getattr(self.encoder, call), Path(folder)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Make the vectors of blocks, a file for each, whole or not at all."""
        for asked in table.column("path").to_pylist():
            [block] = pq.read_table(asked, partitioning=None).to_pylist()
            vectors = [self._vectors(*batch) for batch in _block_batches(block)]
            path = self.folder / block["name"]
            temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.npz")
            np.savez(temporary, vectors=np.concatenate(vectors), sizes=np.array([len(own) for own in vectors]))
            os.replace(temporary, path)
        return table

    def _vectors(self, ids: np.ndarray, mask: np.ndarray, chosen: np.ndarray | None) -> np.ndarray:
        with reading_on(self.device):
            vectors = self.call(*(torch.from_numpy(values).to(self.device) for values in (ids, mask)))
            return (vectors if chosen is None else of_chosen(vectors, chosen)).cpu().numpy()


def _digest(encoder: nn.Module) -> bytes:
    """A hash of all weights."""
    digest = hashlib.sha256()
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.digest()


def _block_name(weights: bytes, call: str, texts: Sequence[Padded]) -> str:
    """The name of a file of vectors, which other weights or texts would change."""
    digest = hashlib.sha256(weights + call.encode())
    for batch in texts:
        for values in batch:
            digest.update(b"-" if values is None else repr(values.shape).encode() + np.ascontiguousarray(values).data)
    return f"{digest.hexdigest()[:32]}.npz"


def _block_table(name: str, texts: Sequence[Padded]) -> pa.Table:
    """A block as one row."""
    columns = {
        "name": name,
        "shapes": [list(batch.ids.shape) for batch in texts],
        "ids": [batch.ids.ravel().tolist() for batch in texts],
        "mask": [batch.mask.ravel().tolist() for batch in texts],
        "chosen": [None if batch.chosen is None else batch.chosen.ravel().tolist() for batch in texts],
    }
    return pa.Table.from_pylist([columns], _BLOCK)


_NUMBERS = pa.list_(pa.list_(pa.int64()))
_BLOCK = pa.schema(
    [
        ("name", pa.string()),
        *((name, _NUMBERS) for name in ("shapes", "ids", "mask")),
        ("chosen", pa.list_(pa.list_(pa.bool_()))),
    ]
)


def _block_batches(block: dict[str, Any]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """The batches of a block: ids, mask, and which tokens are chosen."""
    for shape, ids, mask, chosen in zip(*(block[key] for key in ("shapes", "ids", "mask", "chosen")), strict=True):
        wanted = None if chosen is None else np.array(chosen, bool).reshape(shape)
        yield np.array(ids, np.int64).reshape(shape), np.array(mask, np.int64).reshape(shape), wanted


def _read_block(path: Path, batches: int) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of a block, end to end, and how many each batch has."""
    with np.load(path, allow_pickle=False) as arrays:
        vectors, sizes = arrays["vectors"], arrays["sizes"]
    if len(sizes) != batches or sizes.sum() != len(vectors):
        raise ArtifactError(f"{path} is damaged", "remove it, and run the same command again")
    return vectors, sizes
