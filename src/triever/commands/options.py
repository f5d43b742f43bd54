"""Options that several commands share, and the ways to say `--set`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

DATA_HELP = "A folder, a file, a name under $TRIEVER_DATA, or `python`: the documentation of your Python."
SYSTEMS_HELP = (
    "Saved folders, or systems that are fitted here, such as bm25 or bm25:k1=0.9,b=0.4; NAME=... names one. "
    "A comma begins the next option where an option's name and = follow it, and else belongs to the value: "
    "dense:backbone=scratch:hidden=64,layers=1,size=32."
)

Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
DataOption = Annotated[str, typer.Option("--data", metavar="DATA", help=DATA_HELP)]
Systems = Annotated[list[str], typer.Argument(metavar="SYSTEM...", help=SYSTEMS_HELP)]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `triever fit` has written.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Hits = Annotated[int, typer.Option("-k", "--hits", min=1, help="How many documents.")]
Split = Annotated[str, typer.Option("--split", help="Which questions: the name of a qrels file, or several: a+b.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Count malformed records and go on without them.")]
ReadAs = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="text|records",
        help="What the documents of a folder are: text files or records. Without it, what most of the folder is.",
    ),
]
Root = Annotated[
    Path | None,
    typer.Option(
        "--root", metavar="FOLDER", help="The folder at which the ids of text files begin, in place of the usual one."
    ),
]
Measures = Annotated[
    list[str] | None, typer.Option("--measure", "-m", help="Such as nDCG@10 or Success@1; repeat for several.")
]
Wait = Annotated[
    float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait while another process writes to it.")
]
Plot = Annotated[Path | None, typer.Option("--plot", help="Also draw the report to this file (.png, .svg).")]
Expansions = Annotated[
    Path | None,
    typer.Option(
        help="Texts that stand for documents too, such as generated queries: a file with lines of {_id, texts}, or "
        "`python`, what is shipped for it. bm25 finds documents by them, generative retrieval learns from them; "
        "encoders do neither."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="Also write the result, with how it was made, as JSON.")]


def _set(text: str) -> Any:
    """The option --set, with what this command can be told by it."""
    return typer.Option("--set", metavar="KEY=VALUE", help=text)


Settings = Annotated[
    list[str] | None,
    _set("An option of the system, such as k1=0.9, or training.steps=700 for a part of one; repeat for several."),
]
SearchSettings = Annotated[
    list[str] | None,
    _set(
        "Search in another way than was said in `triever fit`, such as search_options.method=exact of generative "
        "retrieval; repeat for several."
    ),
]
SchemeSettings = Annotated[list[str] | None, _set("An option of the scheme, such as branch=10; repeat for several.")]
DecodeSettings = Annotated[
    list[str] | None,
    _set(
        "Such as device=cuda or beams=10,40; repeat for several. There are: docids, length, symbols, queries, "
        "beams, rounds, query_tokens, device, dtypes, layers, width, finish, peer, peer_dtype."
    ),
]
TrainSettings = Annotated[
    list[str] | None,
    _set(
        "Such as device=cuda or batch=64; repeat for several. There are: batch, length, layers, width, inner, "
        "steps, device, compile, matrix, peer."
    ),
]
