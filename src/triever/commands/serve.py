"""Commands that serve retrievers over HTTP or to language models, and measure how fast that is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from triever import progress
from triever.commands.lab import run_bench
from triever.commands.options import Json, Out, ReadAs, ServeBenchSettings, ServeSettings, Split
from triever.commands.shared import open_data
from triever.config import assignments, build, from_words
from triever.errors import UsageError
from triever.terminal import note

if TYPE_CHECKING:
    from triever.serve.options import ServeOptions

Runs: TypeAlias = "Callable[[Mapping[str, str | Path], ServeOptions, Callable[[str], None]], None]"
"""Serves folders by name until a signal comes, and tells where."""
Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL...",
        help="Folders that `triever fit` has written; NAME=FOLDER gives one another name than its folder's. Without "
        "any, BM25 on the documentation of your Python, and what the quickstart has saved.",
        show_default=False,
    ),
]


def serve(
    models: Models = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8000,
    workers: Annotated[
        int, typer.Option(min=1, help="How many processes answer; with --on ray, how many replicas there are.")
    ] = 1,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            metavar="FILE",
            help="A file with the key that changes of documents need; $TRIEVER_KEY does the same. Without a key, "
            "nobody can change anything.",
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Results that `triever experiment` has written; the page shows their tables."
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="ray",
            help="Where MODELs are served: by replicas of Ray Serve, on the cluster that RAY_ADDRESS names or on this "
            "machine. If they are served there already, the new ones are rolled out. Default: by this process.",
            show_default=False,
        ),
    ] = None,
    set_: ServeSettings = None,
) -> None:
    """Serve saved retrievers over HTTP, until Ctrl-C or SIGTERM."""
    from triever.lab.systems import labels
    from triever.serve.options import ServeOptions
    from triever.serve.process import KEY, set_log

    values = {"host": host, "port": port, "workers": workers, "key": _key(key_file) or os.environ.get(KEY, "")}
    values |= {"results": str(results)} if results else {}
    options = build(ServeOptions, values | assignments(set_ or ()))
    set_log(options)
    _run_on(on)(labels(models or ()), options, _told)


def _told(line: str) -> None:
    """Say where a server listens. From then on only its own log speaks: it is not at work on anything."""
    progress.tell(None)
    note(line)


def _run_on(on: str | None) -> Runs:
    """What serves retrievers, in this process or on Ray."""
    if on is None:
        from triever.serve.process import run
    elif on == "ray":
        from triever.integrations.ray_serve import run
    else:
        raise UsageError(f"--on {on} is not known", "the only other place to serve is: --on ray")
    return run


def _key(path: Path | None) -> str:
    try:
        key = path.read_text(encoding="utf-8").strip() if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--key-file {path} cannot be read: {error}", "name a file with one line of text") from error
    if path and not key:
        raise UsageError(f"--key-file {path} is empty", "write a key into it")
    return key


def mcp(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Folders that `triever fit` has written, or addresses of a server's retrievers; NAME=FOLDER gives one "
            "another name than its folder's.",
            show_default=False,
        ),
    ],
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Listen on this port of 127.0.0.1, at /mcp, instead of standard input."),
    ] = None,
) -> None:
    """Give a language model tools to search saved retrievers: an MCP server, over standard input and output."""
    from triever.integrations.mcp import create_server
    from triever.lab.systems import labels

    server = create_server(labels(models))
    if port is None:
        server.run()
        return
    note(f"listening on http://127.0.0.1:{port}/mcp")
    server.run("streamable-http", port=port, stateless_http=True, json_response=True)


def bench_serve(
    models: Models = None,
    data: Annotated[
        str, typer.Option("--data", metavar="DATA", help="The dataset whose questions are asked.")
    ] = "python",
    split: Split = "test",
    read_as: ReadAs = "",
    set_: ServeBenchSettings = None,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Measure a server on this machine: requests a second and how long they take, with and without batching."""
    from triever.lab.systems import labels
    from triever.serve.bench import ServeBenchOptions
    from triever.serve.bench import bench_serve as measure

    queries = [query.text for query in open_data(data, read_as=read_as).queries(split)]
    options = from_words(ServeBenchOptions, set_)
    run_bench(lambda: measure(labels(models or ()), queries, options), out, json_)
