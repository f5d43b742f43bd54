"""What the tests of all adapters share: a retriever, the same one saved and served, and what it finds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.retrievers.contract import dataset
from triever import BM25

QUESTION = "boiling water for tea leaves"


def bm25() -> BM25:
    return BM25().fit(dataset())


@contextmanager
def every_source(folder: Path) -> Iterator[dict[str, Any]]:
    """One retriever as each thing that an adapter takes."""
    from tests.serve.running import running

    retriever = bm25()
    retriever.save(folder / "saved")
    with running({"saved": folder / "saved"}) as server:
        import triever

        address = f"{server.url}/saved"
        yield {
            "retriever": retriever,
            "folder": folder / "saved",
            "word": str(folder / "saved"),
            "address": address,
            "client": triever.connect(address),
        }


class Slow(BM25):
    """BM25 whose searches wait until they may go on."""

    def prepare(self) -> Slow:
        self.gate = threading.Event()
        return self

    def search_many(self, *arguments: Any, **named: Any) -> Any:
        assert self.gate.wait(20), "the loop was blocked by the search that it should end"
        return super().search_many(*arguments, **named)


def slow() -> Slow:
    return Slow().fit(dataset()).prepare()


def loop_stays_free(retriever: Slow, search: Callable[[], Awaitable[Any]]) -> Any:
    """What a search returns that ends only because the event loop goes on meanwhile."""

    async def both() -> Any:
        task = asyncio.ensure_future(search())
        await asyncio.sleep(0.05)
        assert not task.done()
        retriever.gate.set()
        return await task

    return asyncio.run(both())
