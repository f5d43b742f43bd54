"""Datasets, looked at, converted and cut, and what is cached of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triever.commands.options import Data, Json, ReadAs, SkipBad
from triever.commands.shared import open_data
from triever.terminal import describe, emit, note, table

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.")]


def data_info(data: Data, read_as: ReadAs = "", skip_bad: SkipBad = False, json_: Json = False) -> None:
    """What is in a dataset, and what is wrong with it."""
    from triever.data.datasets import info

    found = info(open_data(data, skip_bad, read_as))
    emit(found) if json_ else describe(found)


def data_convert(
    data: Data,
    out: Folder,
    to: Annotated[str, typer.Option(help="beir, parquet or msmarco.")] = "beir",
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
    documents: Annotated[int, typer.Option(min=1, help="How many documents to keep.")],
    seed: Annotated[int, typer.Option(help="Another seed, another sample.")] = 0,
    first: Annotated[
        list[str] | None,
        typer.Option(
            help="A split whose relevant documents come first, and only those do; may be given several times."
        ),
    ] = None,
    read_as: ReadAs = "",
    skip_bad: SkipBad = False,
) -> None:
    """Cut a dataset: judged documents first; a larger sample contains every smaller one of its seed."""
    from triever.data.datasets import sample
    from triever.data.writers import write_dataset

    write_dataset(out, sample(open_data(data, skip_bad, read_as), documents, seed=seed, first=first or None))
    note(f"wrote {out}")


def cache_list(json_: Json = False) -> None:
    """What Triever keeps on this computer besides what you saved."""
    from triever.data.cache import entries

    rows = [{"file": str(path), "bytes": path.stat().st_size} for path in entries()]
    emit(rows if json_ else table(rows) if rows else "nothing is cached")


def cache_clear() -> None:
    """Remove all that is cached; it is made again when it is needed."""
    from triever.data.cache import clear

    note(f"removed {clear()} files")
