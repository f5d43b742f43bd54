"""The process that listens, or several that share one socket. SIGTERM lets them finish what they have begun."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from triever import artifact
from triever.config import build
from triever.errors import UsageError, needed_for
from triever.serve.options import EXTRA, ServeOptions

if TYPE_CHECKING:
    from fastapi import FastAPI
    from uvicorn import Config

SETTINGS = "TRIEVER_SERVE_SETTINGS"
"""The variable by which workers learn what to serve."""
KEY = "TRIEVER_KEY"
"""The variable with the key for changes."""
TOGETHER = "PROMETHEUS_MULTIPROC_DIR"
LATER = 5.0
"""Seconds that requests get beyond their deadline, once the server is to end."""
BACKLOG = 2048


def run(folders: Mapping[str, str | Path], options: ServeOptions, tell: Callable[[str], None]) -> None:
    """Serve saved retrievers by name, or the default ones, until a signal comes; `tell` is called with the address."""
    check(folders)
    sock = bound(options)
    tell(f"listening on {address(*sock.getsockname()[:2])}")
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn has its own while it runs, and raises it again afterwards
    if options.workers == 1:
        _serve_alone(folders, options, sock)
    else:
        _serve_together(folders, options, sock)


def check(folders: Mapping[str, str | Path]) -> None:
    """Refuse to serve where a package is missing, or a folder: this is told here, and not by a log."""
    with needed_for(*EXTRA):
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    for folder in folders.values():
        with artifact.read(folder, check=False):
            pass


def _serve_alone(folders: Mapping[str, str | Path], options: ServeOptions, sock: socket.socket) -> None:
    import uvicorn

    uvicorn.Server(_config(_app(folders, options), options)).run([sock])


def _serve_together(folders: Mapping[str, str | Path], options: ServeOptions, sock: socket.socket) -> None:
    """Start workers, which read their settings from the environment, and add up their numbers in a folder."""
    from uvicorn.supervisors import Multiprocess

    settings = {"folders": {name: str(folder) for name, folder in folders.items()}, "options": asdict(options)}
    with tempfile.TemporaryDirectory(prefix="triever-metrics-") as numbers:
        os.environ |= {SETTINGS: json.dumps(settings), TOGETHER: numbers}
        Multiprocess(_config("triever.serve.process:worker", options), sockets=[sock]).run()


def worker() -> FastAPI:
    """The application of one worker."""
    settings = json.loads(os.environ[SETTINGS])
    options = build(ServeOptions, settings["options"])
    log_in_worker(options)
    return _app(settings["folders"], options)


def log_in_worker(options: ServeOptions) -> None:
    """Have a process that others have started write its log to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler])
    set_log(options)


def set_log(options: ServeOptions) -> None:
    """Have requests logged, where that is wanted."""
    logging.getLogger("triever.serve").setLevel(logging.ERROR if options.log == "none" else logging.INFO)


def _app(folders: Mapping[str, str | Path], options: ServeOptions) -> FastAPI:
    from triever.serve.app import app_of, create_app
    from triever.serve.defaults import default_sources

    return create_app(folders, options) if folders else app_of(default_sources(), options)


def _config(app: FastAPI | str, options: ServeOptions) -> Config:
    import uvicorn

    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        workers=options.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(options.deadline + LATER),
    )


def bound(options: ServeOptions) -> socket.socket:
    """A socket that listens where the options say."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # An answer goes out in two pieces: without this, the second waits 40 ms for a sign that the first has come.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        sock.bind((options.host, options.port))
    except (OSError, UnicodeError, TypeError) as error:  # the last one for names that cannot be encoded
        sock.close()
        reason = getattr(error, "strerror", None) or "there is no such address"
        problem = f"{options.host}:{options.port} cannot be listened on: {reason}"
        raise UsageError(problem, "choose another with --port, or end what listens there") from error
    sock.listen(BACKLOG)
    sock.set_inheritable(True)
    return sock


def address(host: str, port: int) -> str:
    """The address of a server."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
