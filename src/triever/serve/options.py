"""What can be set for a server. Knows nothing of HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from triever import config
from triever.config import option
from triever.errors import UsageError

EXTRA = ("the server", "pip install 'triever[serve]'")
"""What needs packages that a plain installation does not have, and what installs them."""
LOCAL = ("127.0.0.1", "localhost", "::1")
"""Names of this machine for itself."""


@dataclass(frozen=True)
class ServeOptions:
    """How a server listens, batches, and refuses: `create_app({"mine": "models/mine"}, ServeOptions(most=8))`."""

    host: str = option("127.0.0.1", "the address to listen on; 0.0.0.0 is every network of this machine")
    port: int = option(8000, "the port to listen on; 0 takes one that is free")
    workers: int = option(1, "processes that answer; each loads every retriever, and shares its mapped arrays")
    window: float = option(2.0, "milliseconds that a query waits for others, to be searched together with them")
    most: int = option(64, "queries that are searched together at most; 1 switches batching off")
    queue: int = option(512, "queries that may wait for a retriever; further ones are refused with 429")
    deadline: float = option(10.0, "seconds after which a request that was not answered is given up")
    body: int = option(1_000_000, "bytes of a request at most")
    write_body: int = option(32_000_000, "bytes of a request that adds or replaces documents at most")
    query_length: int = option(4000, "letters of a query at most")
    queries: int = option(256, "queries of one request at most")
    hits: int = option(1000, "hits for a query at most")
    poll: float = option(1.0, "seconds between two looks at saved folders, for retrievers that were changed")
    wait: float = option(5.0, "seconds that a change of documents waits while another process writes")
    origins: tuple[str, ...] = option(
        (), "web sites whose pages may ask this server (CORS), such as https://example.org"
    )
    hosts: tuple[str, ...] = option((), "names of this server that requests may use; by default those of this machine")
    log: Literal["none", "requests", "queries"] = option(
        "requests", "what is logged: nothing, a line for each request, or that with the queries"
    )
    results: str = option("", "a folder of results, as `triever experiment` writes it, whose tables the page shows")
    key: str = field(
        default="",
        repr=False,
        metadata={"help": "the key that changes of documents need; without one, nobody can change anything"},
    )

    def __post_init__(self) -> None:
        config.validate(self)
        for name in ("workers", "most", "queue", "deadline", "body", "write_body", "query_length", "queries", "hits"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} = {getattr(self, name)} should be above zero", "leave it out for the default")
        for name in ("window", "wait"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} = {getattr(self, name)} should not be below zero", "0 does not wait at all")
        if not self.poll > 0:
            raise UsageError(f"poll = {self.poll} should be above zero", "for example: poll=1")
        if not 0 <= self.port < 2**16:
            raise UsageError(f"port = {self.port} is no port", "choose one from 1 to 65535, or 0 for one that is free")
        if self.queries > self.queue:
            problem = f"queries = {self.queries} is more than queue = {self.queue}, so that such a request never fits"
            raise UsageError(problem, "set a larger queue, or fewer queries")
        if self.key and (not self.key.isascii() or not self.key.isprintable() or " " in self.key):
            raise UsageError(
                "the key has a space or a letter that headers cannot carry", "use ASCII letters and digits"
            )

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names by which requests may call this server; none means that all are right.

        A server for this machine alone refuses others, or a web site could reach it by a name that leads here.
        """
        return self.hosts or (LOCAL if self.host in LOCAL else ())
