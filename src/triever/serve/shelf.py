"""What the routes share: the retrievers by name, limits of requests, and the errors of the OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, Request

import triever.serve.bodies as bodies
from triever.errors import nearest
from triever.serve.answers import Show
from triever.serve.metrics import Metrics
from triever.serve.options import ServeOptions
from triever.serve.refusals import CODES, Refusal
from triever.serve.served import FAILED, Served, Source

DESCRIBED = 2000
"""Hits of one request at most that carry more than ids and scores."""
SNAPSHOT = 16
"""Letters of a fingerprint that name a state of documents."""


class Shelf:
    """All that the routes need: the options, and what is served, by name."""

    def __init__(self, sources: Mapping[str, Source], options: ServeOptions) -> None:
        self.sources, self.options, self.metrics = sources, options, Metrics()
        self.served: dict[str, Served] = {}

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Load everything in the background and watch it, until the end of the block."""
        self.served = {name: Served(name, source, self.options, self.metrics) for name, source in self.sources.items()}
        watching = [asyncio.create_task(served.watch()) for served in self.served.values()]
        try:
            yield
        finally:
            for task in watching:
                task.cancel()
            for served in self.served.values():
                await served.close()

    async def loaded(self) -> None:
        """Wait until every retriever can be searched; the error of one that cannot be loaded."""
        for served in self.served.values():
            if not served.is_ready:
                await served.refresh()
            if not served.is_ready and served.problem:
                raise served.problem

    def find(self, name: str | None) -> Served:
        """The retriever of this name, or the first."""
        chosen = next(iter(self.served)) if name is None else name
        if chosen not in self.served:
            problem = f"there is no retriever named {chosen!r:.80}"
            raise Refusal("unknown_retriever", problem, nearest(chosen, self.served))
        return self.served[chosen]

    def ready(self, name: str | None) -> Served:
        """The same, if it can be searched."""
        served = self.find(name)
        if not served.is_ready:
            raise not_ready(served)
        return served

    def texts(self, one: str | None, many: Sequence[str] | None, noun: str) -> list[str]:
        """The queries of a request."""
        if (one is None) == (many is None):
            problem = f"give either {noun} or {'queries' if noun == 'query' else 'questions'}"
            raise Refusal("invalid_request", problem, f'for example: {{"{noun}": "merge sorted lists"}}')
        texts = [one] if one is not None else [*(many or ())]
        if len(texts) > self.options.queries:
            problem = f"{len(texts)} are more than the {self.options.queries} that one request may have"
            raise Refusal("too_many", problem, "send several requests")
        if max(map(len, texts)) > self.options.query_length:
            problem = f"a {noun} has more than {self.options.query_length} letters"
            raise Refusal("too_many", problem, "shorten it")
        if not all(map(_is_text, texts)):
            raise Refusal("invalid_request", f"a {noun} holds half of a surrogate pair", "remove that character")
        return texts

    def check_hits(self, k: int, texts: int, show: Show) -> None:
        """Refuse more hits than an answer may have."""
        if k > self.options.hits:
            raise Refusal("too_many", f"k = {k} is more than {self.options.hits}", "ask for fewer hits")
        if show != "ids" and k * texts > DESCRIBED:
            problem = f"{k * texts} hits are more than the {DESCRIBED} that may carry texts"
            raise Refusal("too_many", problem, 'ask for fewer, or with "show": "ids"')

    def deadline(self, timeout: float | None) -> float:
        """When the time of a request is over, by the clock of the event loop."""
        return asyncio.get_running_loop().time() + min(timeout or self.options.deadline, self.options.deadline)


def _is_text(text: str) -> bool:
    """Whether a string can be written: JSON may hold halves of surrogate pairs, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def not_ready(served: Served) -> Refusal:
    """What is said of a retriever that cannot be searched."""
    if served.state == FAILED:
        return Refusal("unavailable", f"{served.name} cannot be loaded", "the server's log says why")
    return Refusal("loading", f"{served.name} is being loaded", "try again in a few seconds")


def shelf_of(request: Request) -> Shelf:
    """What the server of a request has."""
    return request.app.state.shelf


Shelved = Annotated[Shelf, Depends(shelf_of)]


def errors(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The answers to refused requests, for the OpenAPI document."""
    by_status: dict[int | str, dict[str, Any]] = {}
    for code in (*codes, "wrong_host", "too_large", "invalid_request", "internal_error"):
        status, meaning = CODES[code]
        known = by_status.setdefault(status, {"model": bodies.ErrorAnswer, "description": ""})
        known["description"] = f"{known['description']} `{code}`: {meaning}".strip()
    return by_status
