"""Commands that show, convert and sample datasets, and that manage the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from triever.commands.options import Data, Json, ReadAs, SkipBad
from triever.commands.shared import open_data
from triever.terminal import describe, emit, note, table

MADE_AGAIN = "made again when it is needed"
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.")]


def data_info(data: Data, read_as: ReadAs = "", skip_bad: SkipBad = False, json_: Json = False) -> None:
    """Show what is in a dataset, and what is wrong with it."""
    from triever.data.datasets import info

    facts = info(open_data(data, skip_bad, read_as))
    emit(facts) if json_ else describe(facts)


def data_show(
    data: Data,
    doc_id: Annotated[str, typer.Argument(metavar="ID", help="The id of a document; of a text file, its path.")],
    read_as: ReadAs = "",
    skip_bad: SkipBad = False,
    json_: Json = False,
) -> None:
    """Show what a file or a record became: the title, the metadata and the text of one document."""
    from triever.data.lookup import find_document

    document = find_document(open_data(data, skip_bad, read_as), doc_id)
    names = {"id": document.id, "title": document.title}
    if json_:
        expansions = {"expansions": list(document.expansions)} if document.expansions else {}
        emit({**names, "metadata": dict(document.metadata), **expansions, "text": document.text})
        return
    rows = [*names.items(), *document.metadata.items()]  # the metadata may have an id and a title, too
    emit(table([{"what": name, "value": _shown(value)} for name, value in rows]))
    emit("\n".join(["", document.text, *document.expansions]))


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def data_convert(
    data: Data,
    out: Folder,
    to: Annotated[
        str,
        typer.Option(
            help="The format to write: beir, parquet, or msmarco, which has no room for metadata, answers and line "
            "breaks."
        ),
    ] = "beir",
    read_as: ReadAs = "",
    skip_bad: SkipBad = False,
) -> None:
    """Write a dataset in another format."""
    from triever.data.writers import write_dataset

    write_dataset(out, open_data(data, skip_bad, read_as), to=to)
    note(f"wrote {out}")


def data_sample(
    data: Data,
    out: Folder,
    documents: Annotated[int, typer.Option(min=1, help="How many documents the sample has.")],
    seed: Annotated[int, typer.Option(help="The seed of the random sample.")] = 0,
    first: Annotated[
        list[str] | None,
        typer.Option(
            help="Take the relevant documents of this split first; repeat for several. Default: those of all splits."
        ),
    ] = None,
    read_as: ReadAs = "",
    skip_bad: SkipBad = False,
) -> None:
    """Write a random sample of a dataset; relevant documents come first. Larger samples contain smaller ones."""
    from triever.data.datasets import sample
    from triever.data.writers import write_dataset

    write_dataset(out, sample(open_data(data, skip_bad, read_as), documents, seed=seed, first=first or None))
    note(f"wrote {out}")


def cache_list(json_: Json = False) -> None:
    """List what is in Triever's cache on this computer, with installed weights."""
    from triever.data.cache import entries, size
    from triever.models.weights import in_cache

    described = dict.fromkeys(entries(), MADE_AGAIN) | {path: f"weights: {name}" for name, path in in_cache().items()}
    sizes = {path: size(path) for path in described}
    if json_:
        emit([{"file": str(path), "bytes": sizes[path], "what": kind} for path, kind in described.items()])
    elif described:
        emit(
            table([{"file": str(path), "bytes": f"{sizes[path]:,}", "what": kind} for path, kind in described.items()])
        )
        note(f"{sum(sizes.values()):,} bytes in all; triever cache clear keeps weights")
    else:
        emit("nothing is cached")


def cache_clear() -> None:
    """Remove everything from the cache but installed weights; it is made again when it is needed."""
    from triever.data.cache import clear

    note(f"removed {clear()} files and folders")
