"""The server: saved retrievers over HTTP, for people and programs. It needs the extra `triever[serve]`.

    options.py   what can be set
    batches.py   requests of several clients, searched together
    served.py    one retriever that is served: loaded, watched, exchanged, changed
    answers.py   hits, documents and retrievers as JSON
    bodies.py    what requests and answers look like, for checks and for the OpenAPI document
    refusals.py  every error that a client can see
    guard.py     what holds for every request: limits, headers, the log, no traceback
    metrics.py   numbers for Prometheus
    front.py     the page at /; what is built of it is in page/
    shelf.py     what the routes share
    docid_routes.py, result_routes.py, result_tables.py    docids and results, for the page
    app.py       the other routes, and the application
    process.py   the process that listens, or several of them
    load.py      a small load generator, for 127.0.0.1 alone
    bench.py     `triever bench serve`

Whatever needs FastAPI is imported when a server is made: `import triever.serve` works without the extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from triever.errors import needed_for
from triever.retriever import Retriever
from triever.serve.options import EXTRA, ServeOptions

if TYPE_CHECKING:
    from fastapi import FastAPI


def create_app(retrievers: Mapping[str, Retriever | str | Path], options: ServeOptions | None = None) -> FastAPI:
    """The server of these retrievers by name, as an ASGI application: each is a retriever, or a saved folder."""
    with needed_for(*EXTRA):
        from triever.serve.app import create_app as create
    return create(retrievers, options or ServeOptions())
