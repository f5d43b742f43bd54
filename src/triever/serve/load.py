"""A small load generator: some connections that stay open, each with one request after the other.

For servers on 127.0.0.1 alone, with at most so many connections for at most so long.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

HOST = "127.0.0.1"
MOST_CONNECTIONS = 1024
MOST_SECONDS = 120.0
PAUSE = 0.05
"""Seconds that a refused connection waits, so that refusals do not crowd out answers."""


@dataclass
class Load:
    """What became of requests: the seconds that answers took, and how many had each status."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    duration: float = 0.0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.seconds) / self.duration if self.duration else 0.0

    def percentile(self, share: float) -> float:
        """Milliseconds within which this share of all answers came."""
        return 1000 * float(np.percentile(self.seconds, share)) if self.seconds else float("nan")


async def generate(port: int, name: str, queries: Sequence[str], k: int, connections: int, seconds: float) -> Load:
    """Ask a server on this machine over so many connections, for so many seconds."""
    if not 0 < connections <= MOST_CONNECTIONS or not 0 < seconds <= MOST_SECONDS:
        raise ValueError(f"at most {MOST_CONNECTIONS} connections and {MOST_SECONDS:.0f} seconds")
    requests = [_request(name, query, k) for query in queries]
    load, turns = Load(), count()
    started = time.perf_counter()
    asked = [_ask(port, requests, turns, started + seconds, load) for _ in range(connections)]
    await asyncio.gather(*asked)
    load.duration = time.perf_counter() - started
    return load


def _request(name: str, query: str, k: int) -> bytes:
    body = json.dumps({"retriever": name, "query": query, "k": k, "show": "ids"}).encode()
    head = f"POST /v1/search HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _ask(port: int, requests: Sequence[bytes], turns: count[int], until: float, load: Load) -> None:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        while (started := time.perf_counter()) < until:
            writer.write(requests[next(turns) % len(requests)])
            status = await _answer(reader)
            load.statuses[status] += 1
            if status == 200:
                load.seconds.append(time.perf_counter() - started)
            else:
                await asyncio.sleep(PAUSE)
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> int:
    """The status of an answer, which is read whole."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = next(int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])
