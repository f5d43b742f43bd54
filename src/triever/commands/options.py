"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

DATA_HELP = "A folder, a file, a name under $TRIEVER_DATA, or `python` for the documentation of your Python."
SYSTEMS_HELP = (
    "Saved models (folders), or systems that are fitted first, such as bm25 or bm25:k1=0.9,b=0.4. "
    "NAME=bm25:k1=0.9 gives one a name for the report. A value may have commas itself, if no name of an option "
    "follows them: dense:backbone=scratch:hidden=64,layers=1,size=32 sets backbone and size. `compare` also takes a "
    "server: http://127.0.0.1:8000/NAME."
)

Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
DataOption = Annotated[str, typer.Option("--data", metavar="DATA", help=DATA_HELP)]
Systems = Annotated[list[str], typer.Argument(metavar="SYSTEM...", help=SYSTEMS_HELP)]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `triever fit` has written.")]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="ray",
        help="Where the shards of MODEL are: in processes of Ray. Default: in this process.",
        show_default=False,
    ),
]
WorkOn = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="ray",
        help="Have documents encoded, a teacher asked and questions written by workers of Ray, on the cluster that "
        "RAY_ADDRESS names or on this machine. Default: this process does it.",
        show_default=False,
    ),
]
Workers = Annotated[
    int,
    typer.Option("--workers", min=0, help="How many workers --on ray has; 0: one for each GPU, or each processor."),
]
Processes = Annotated[
    int,
    typer.Option(
        "--processes",
        min=0,
        help="With --on ray: how many processes train together, started by Ray Train as torchrun would start them; "
        "each has a GPU where there are some. 0: the training is in this process.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Hits = Annotated[int, typer.Option("-k", "--hits", min=1, help="How many documents to find for a query.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="Find only documents with this metadata, such as 'year>=2020' or lang=de,fr; repeat for several.",
    ),
]
Split = Annotated[
    str, typer.Option("--split", help="The split with the questions, which is the name of a qrels file; a+b joins two.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave malformed records out and count them.")]
ReadAs = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="text|records",
        help="What a folder holds: text files or records. Default: what most of its files are.",
    ),
]
Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="FOLDER",
        help="The ids of text files are their paths below this folder, instead of the usual one.",
    ),
]
Measures = Annotated[
    list[str] | None,
    typer.Option("--measure", "-m", help="A measure, such as nDCG@10 or Success@1; repeat for several."),
]
Wait = Annotated[
    float,
    typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait if another process is writing to MODEL."),
]
Plot = Annotated[Path | None, typer.Option("--plot", help="Also draw the result to this file (.png, .svg, .pdf).")]
Expansions = Annotated[
    Path | None,
    typer.Option(
        help="Further texts for documents, such as generated queries: a file with lines of {_id, texts}, or `python` "
        "for the queries that come with Triever. bm25 searches them and generative retrieval is trained on them; "
        "encoders do not use them."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Also write the result to this JSON file, with the command and the machine."),
]


def _set(text: str) -> Any:
    """The option --set of a command, with its own help."""
    return typer.Option("--set", metavar="KEY=VALUE", help=text)


Settings = Annotated[
    list[str] | None,
    _set("Set an option, such as k1=0.9 or training.steps=700; repeat for several."),
]
SearchSettings = Annotated[
    list[str] | None,
    _set(
        "Change an option of the search, such as search_options.method=exact for generative retrieval; "
        "repeat for several."
    ),
]
SchemeSettings = Annotated[
    list[str] | None, _set("Set an option of the scheme, such as branch=10; repeat for several.")
]
DecodeSettings = Annotated[
    list[str] | None,
    _set(
        "Set an option, such as device=cuda or beams=10,40; repeat for several. Options: docids, length, "
        "symbols, queries, beams, rounds, query_tokens, device, dtypes, layers, width, finish, ways, peer, peer_dtype."
    ),
]
TrainSettings = Annotated[
    list[str] | None,
    _set(
        "Set an option, such as device=cuda or batch=64; repeat for several. Options: batch, length, layers, "
        "width, inner, steps, device, compile, matrix, peer."
    ),
]
ServeSettings = Annotated[
    list[str] | None,
    _set(
        "Set an option, such as window=5 or deadline=30; repeat for several. Options: window, most, queue, deadline, "
        "body, write_body, query_length, queries, hits, poll, wait, origins, hosts, log."
    ),
]
ServeBenchSettings = Annotated[
    list[str] | None,
    _set(
        "Set an option, such as connections=1,64 or seconds=5; repeat for several. Options: connections, seconds, k, "
        "window, most, queue, memory_seconds."
    ),
]
