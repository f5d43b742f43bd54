"""Commands that give saved retrievers to others, and take them from others."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from triever.commands.options import Json, Model
from triever.commands.shared import check_file, check_parents
from triever.terminal import emit, note

Repository = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="A repository of the Hugging Face hub.")]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="The address of another hub. Default: HF_ENDPOINT, or else https://huggingface.co.",
        show_default=False,
    ),
]
Folder = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The folder to write.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace a saved retriever that is there already.")]


def push(
    model: Model,
    repository: Repository,
    revision: Annotated[str, typer.Option("--revision", metavar="BRANCH", help="The branch to push to.")] = "main",
    public: Annotated[
        bool, typer.Option("--public", help="Let everybody read the repository. It holds the documents in full.")
    ] = False,
    endpoint: Endpoint = None,
    json_: Json = False,
) -> None:
    """Upload a saved retriever, with its card, to a repository of the Hugging Face hub. HF_TOKEN has your token."""
    from triever.sharing import hub

    done = hub.push(model, repository, revision=revision, public=public, endpoint=endpoint)
    if json_:
        emit(asdict(done))
        return
    sent = f"{done.uploaded} files were new" if done.uploaded else "nothing was new"
    emit(f"{done.url} has {model} at commit {done.commit}: {done.files} files, {done.bytes:,} bytes; {sent}")
    if done.card_kept:
        note("README.md was left as it is, because somebody else has written it; remove it on the hub to get a new one")


def pull(
    repository: Repository,
    out: Folder,
    revision: Annotated[
        str, typer.Option("--revision", metavar="REVISION", help="A branch, a tag or a commit.")
    ] = "main",
    replace: Replace = False,
    endpoint: Endpoint = None,
    json_: Json = False,
) -> None:
    """Fetch a saved retriever from a repository of the Hugging Face hub. HF_TOKEN opens private ones."""
    from triever.sharing import hub

    check_parents(out)
    done = hub.pull(repository, out, revision=revision, replace=replace, endpoint=endpoint)
    if json_:
        emit({**asdict(done), "folder": str(done.folder)})
        return
    came = f"{done.fetched} were fetched" if done.fetched else "all were here already"
    emit(f"wrote {out}: {done.kind}, {done.files} files, {done.bytes:,} bytes, {came}; commit {done.commit}")


def pack(model: Model, out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The zip to write.")]) -> None:
    """Write a saved retriever into one zip; the same retriever always gives the same bytes."""
    from triever.sharing import archive

    check_file(out)
    archive.pack(model, out)
    note(f"wrote {out}: {out.stat().st_size:,} bytes")


def unpack(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A zip that `triever pack` has written.")],
    out: Folder,
    replace: Replace = False,
) -> None:
    """Unpack a zip into a folder that all other commands take, after a check of every file."""
    from triever.sharing import archive

    check_parents(out)
    archive.unpack(path, out, replace=replace)
    note(f"wrote {out}; look at it with: triever status {out}")
