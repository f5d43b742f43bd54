"""The server on Ray Serve: replicas of the application on one machine or many, behind the proxies of Ray.

`deploy({"handbook": "models/new"}, ServeOptions(workers=2))` serves folders, and returns the address. Where folders are
served already, it rolls the new ones out: an old replica answers until a new one in its place has loaded everything,
and ends when it has finished what it has begun. So no request fails. `end()` ends the server.

Each replica is the application of `triever.serve` with its own queues: requests are searched together there, and Ray's
own batching is not used.
"""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from triever import artifact
from triever.arguments import table
from triever.errors import ServerError, UsageError, needed_for
from triever.retriever import SHARDS, Retriever, load
from triever.serve.options import ServeOptions
from triever.serve.process import LATER, address, bound, check, log_in_worker

with needed_for("serving on Ray", "pip install 'triever[ray-serve]'"):
    from triever.integrations.ray import ADDRESS, started  # first: it sets what Ray reads when it is imported

    import ray  # isort: skip
    from ray import serve  # isort: skip
    from ray.serve.schema import LoggingConfig  # isort: skip

MODE = "RAY_AUTH_MODE"
NAME = "triever"
"""The name of the application among all that a Ray serves."""
AT_ONCE = 20
"""Percent of the replicas that are exchanged at the same time, and at least one."""
STARTS = 2
"""How often a replica that cannot start is started, for each that there should be."""
WAIT = 30.0
"""Seconds in which a replica has to say what it serves."""


def run(folders: Mapping[str, str | Path], options: ServeOptions, tell: Callable[[str], None]) -> None:
    """Serve folders until a signal comes; where a server runs on this Ray, roll them out on it, and return."""
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    started()
    rolled_out = is_running()
    url = deploy(folders, options)
    if rolled_out:
        replicas = "1 replica" if options.workers == 1 else f"{options.workers} replicas"
        tell(f"rolled out on {url}, with {replicas}: {', '.join(folders)}")
        return
    tell(f"listening on {url}")
    is_own = not os.environ.get(ADDRESS)
    if is_own:
        # A Ray of this machine wants a token, which Ray makes and finds by itself where it is told to.
        here = f"{MODE}={os.environ.get(MODE, 'token')} {ADDRESS}={ray.get_runtime_context().gcs_address}"
        tell(f"to roll out other folders: {here} triever serve NAME=FOLDER --on ray")
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    stopped.wait()
    if is_own:
        serve.delete(NAME)
        ray.shutdown()
    else:
        end()


def deploy(folders: Mapping[str, str | Path], options: ServeOptions | None = None) -> str:
    """Serve saved retrievers by name with `options.workers` replicas, or roll them out; returns the address."""
    paths, options = _absolute(folders), options or ServeOptions()
    check(paths)
    started()
    earlier = is_running()
    options = _as_before(paths, options) if earlier else _listening(options)
    try:
        if not earlier:
            http = {"host": options.host, "port": options.port}
            serve.start(proxy_location="EveryNode", http_options=http, logging_config=_quiet())
        serve.run(_application(paths, options), name=NAME)
    except RuntimeError as error:
        failure = _failed(str(error), earlier)
        if not earlier:
            end()
        raise failure from error
    return address(options.host, options.port)


def is_running() -> bool:
    """Whether this Ray serves retrievers."""
    return NAME in serve.status().applications


def end() -> None:
    """End the server, once it has finished what it has begun; Ray itself goes on."""
    serve.delete(NAME)
    if not serve.status().applications:
        serve.shutdown()


class Replica:
    """What Ray asks a replica beside its requests."""

    app: Any  # the application, by Ray

    async def check_health(self) -> None:
        """Wait until every retriever can be searched. Ray sends no request before, and lets an older replica go on."""
        await self.app.state.shelf.loaded()

    def about(self) -> tuple[list[str], str, int]:
        """The names of the retrievers, and where the server listens."""
        shelf = self.app.state.shelf
        return [*shelf.served], shelf.options.host, shelf.options.port


def _application(paths: Mapping[str, str], options: ServeOptions) -> Any:
    """The application, as Ray deploys it."""

    def build() -> Any:
        from triever.serve.app import app_of
        from triever.serve.served import Source

        log_in_worker(options)
        sources = {name: Source(Path(path), lambda path=path: _loaded(path)) for name, path in paths.items()}
        return app_of(sources, options)

    # A request that comes while the queues are full is refused by the application, with a body that clients know.
    ongoing = len(paths) * (options.queue + options.most) + options.queue
    deployment = serve.deployment(
        serve.ingress(build)(Replica),
        num_replicas=options.workers,
        max_surge_percent=AT_ONCE,
        max_constructor_retry_count=STARTS * options.workers,
        max_ongoing_requests=ongoing,
        max_queued_requests=options.queue,
        graceful_shutdown_timeout_s=options.deadline + LATER,
        # Replicas wait more than they compute, and two have to fit while one is exchanged.
        ray_actor_options={"num_cpus": 0, "num_gpus": share_of_gpu(options.workers)},
        logging_config=_quiet(),
    )
    return deployment.bind()


def _loaded(path: str) -> Retriever:
    """A saved retriever; one in shards has them in processes of Ray, on any machine."""
    with artifact.read(path, check=False) as snapshot:
        in_shards = SHARDS in snapshot.manifest.state
    return load(path, on="ray" if in_shards else None)


def share_of_gpu(replicas: int) -> float:
    """A GPU for each replica and those in exchange, or as large a part of one as leaves room for all."""
    gpus = int(ray.cluster_resources().get("GPU", 0))
    together = replicas + math.ceil(replicas * AT_ONCE / 100)
    return 1 / math.ceil(together / gpus) if gpus else 0


def _absolute(folders: Mapping[str, str | Path]) -> dict[str, str]:
    """Folders by their whole paths: replicas work elsewhere."""
    table(folders, "folders", '{"mine": "models/mine"}')
    if not folders:
        raise UsageError("there is nothing to serve on Ray", "name saved retrievers: triever serve MODEL --on ray")
    for name, folder in folders.items():
        if not isinstance(folder, str | Path):
            problem = f"{name} is {folder!r:.80}, not a folder, which is what replicas can open"
            raise UsageError(problem, "save the retriever, and give its folder")
    return {name: os.path.abspath(folder) for name, folder in folders.items()}


def _listening(options: ServeOptions) -> ServeOptions:
    """Options with a port that is free, where that can be seen from here."""
    if os.environ.get(ADDRESS):
        if not options.port:
            raise UsageError("port = 0 fits one machine alone", f"choose a port, or leave {ADDRESS} out")
        return options
    with bound(options) as sock:
        return replace(options, port=sock.getsockname()[1])


def _as_before(paths: Mapping[str, str], options: ServeOptions) -> ServeOptions:
    """Options with the address of the server that runs, if nothing changes for clients: neither that, nor a name."""
    try:
        names, host, port = serve.get_app_handle(NAME).about.remote().result(timeout_s=WAIT)
    except (TimeoutError, ray.exceptions.RayError) as error:
        raise ServerError("the server on this Ray does not answer", "look at its state: serve status") from error
    fresh = ServeOptions()
    if options.host not in (fresh.host, host) or options.port not in (fresh.port, 0, port):
        problem = f"the server on this Ray listens on {address(host, port)}"
        raise UsageError(problem, "leave out host and port, or end it first")
    if lost := [name for name in names if name not in paths]:
        problem = f"{lost[0]} is served now, and clients that ask for it would fail"
        raise UsageError(problem, f"give it a folder too, such as {lost[0]}=models/new, or end the server first")
    return replace(options, host=host, port=port)


def _failed(message: str, earlier: bool) -> ServerError:
    """Why replicas could not start: the error of Triever that Ray quotes, or else the first line of what Ray says."""
    application = serve.status().applications.get(NAME)
    for deployment in application.deployments.values() if application else ():
        if quoted := re.findall(r"^triever\.errors\.\w+: (.+)$", deployment.message, re.MULTILINE):
            message = quoted[-1]
    hint = "the old ones go on; roll out a folder that works" if earlier else "the logs of Ray say more"
    return ServerError(f"replicas cannot start: {message.strip().splitlines()[0]}", hint)


def _quiet() -> LoggingConfig:
    """The application has a log of requests, without queries and ids."""
    return LoggingConfig(enable_access_log=False, log_level="WARNING")
