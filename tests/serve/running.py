"""Servers for tests: real ones, on a free port of this machine, in a thread of the test's own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

WHY = "the server is tested where it is installed: pip install 'triever[serve]'"
httpx = pytest.importorskip("httpx", reason=WHY)
uvicorn = pytest.importorskip("uvicorn", reason=WHY)
pytest.importorskip("fastapi", reason=WHY)
pytest.importorskip("prometheus_client", reason=WHY)

from tests.retrievers.contract import dataset  # noqa: E402
from triever import BM25, Document, Query, Result, Retriever  # noqa: E402
from triever.serve import ServeOptions, create_app  # noqa: E402

KEY = "open-sesame"
HEADERS = {"Authorization": f"Bearer {KEY}"}
OPTIONS = ServeOptions(key=KEY, log="none", poll=0.02)


@dataclass
class Running:
    """A server that runs, and a client that asks it."""

    app: Any
    port: int
    client: Any

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, path: str, **values: Any) -> Any:
        return self.client.post(path, json=values)

    def waiting(self, name: str) -> int:
        return self.app.state.shelf.served[name].waiting


@contextmanager
def running(
    retrievers: Mapping[str, Retriever | str | Path],
    options: ServeOptions = OPTIONS,
    *,
    ready: bool = True,
    port: int = 0,
) -> Generator[Running]:
    """A server of these retrievers, which ends with the block as it would by SIGTERM."""
    app = create_app(retrievers, options)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        if ready:
            until(lambda: client.get("/readyz").status_code == 200)
        try:
            yield Running(app, port, client)
        finally:
            client.close()
            server.should_exit = True
            thread.join()


def until(true: Callable[[], Any], seconds: float = 20) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


class Gated(BM25):
    """BM25 that notes every call, and that can be held up as a slow system would be."""

    def prepare(self) -> Gated:
        self.calls: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        return self

    def search_many(
        self, queries: Sequence[str | Query], k: int = 10, *, where: Mapping[str, object] | None = None
    ) -> list[Result]:
        self.calls.append([str(query) for query in queries])
        assert self.gate.wait(20)
        return super().search_many(queries, k, where=where)


def gated() -> Gated:
    return Gated().fit(dataset()).prepare()


def bm25(*more: Document) -> BM25:
    fitted = BM25().fit(dataset())
    if more:
        fitted.add(more)
    return fitted


def options(**values: Any) -> ServeOptions:
    return replace(OPTIONS, **values)
