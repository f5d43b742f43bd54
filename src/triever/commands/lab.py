"""Experiments and their results, docids of a corpus, and benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from triever.commands.options import (
    Data,
    DataOption,
    DecodeSettings,
    Json,
    Out,
    Plot,
    ReadAs,
    SchemeSettings,
    Split,
    Systems,
    TrainSettings,
)
from triever.commands.shared import check_before_work, check_file, command_words, open_data
from triever.config import from_words
from triever.errors import UsageError
from triever.terminal import emit, note, table


def experiment(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A TOML file, or its name below recipes/.")],
    setting: Annotated[str, typer.Option(help="smoke, mini or paper.")] = "smoke",
    only: Annotated[str, typer.Option(metavar="TEXT", help="Only cells with this text in their label.")] = "",
    seeds: Annotated[str, typer.Option(metavar="0,1", help="Only these of the recipe's seeds.")] = "",
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where results are kept.")] = Path("results"),
    work: Annotated[Path, typer.Option(metavar="FOLDER", help="For parts and checkpoints.")] = Path("models/lab"),
    models: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also save the retrievers, as RECIPE/SETTING/CELL-seedN.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Run also what has its result already.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show what would be run, and run nothing.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Show what is in the results, and run nothing.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="End with 1 if something is not as expected.")] = False,
    json_: Json = False,
) -> None:
    """Run a recipe cell by cell: measured, expected, OK or DRIFT; what was run before is not run again."""
    from triever.lab import experiment as lab
    from triever.lab.recipes import read
    from triever.lab.tables import aligned

    found, wanted = read(recipe, setting), _whole_numbers(seeds)
    if list_:
        rows = lab.listed(found, out, only, wanted)
        emit(rows if json_ else aligned(rows))
        return
    if report:
        table = lab.table_of(found, out, only)
    else:
        table = lab.run_recipe(
            found, out=out, work=work, only=only, seeds=wanted, again=again, models=models, tell=note
        )
    emit(table.to_dict() if json_ else table.text())
    if table.failed or (strict and table.drifted):
        raise typer.Exit(1)


def _whole_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"--seeds {text!r} should be whole numbers", "for example: --seeds 0,1") from None


def results(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder of files written by `compare --out` or `experiment`.")
    ],
    pages: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write an index, results.md, and a page for each recipe into this folder."),
    ] = None,
) -> None:
    """Print all measured results of a folder as one Markdown page, or write them as several."""
    from triever.lab.pages import write_pages
    from triever.lab.results import render

    if pages is None:
        emit(render(folder))
        return
    index, *others = write_pages(folder, pages)
    note(f"wrote {index} and {len(others)} pages in {index.with_suffix('')}")


def docids_info(
    data: Data,
    scheme: Annotated[str, typer.Option(help="atomic, naive, title, semantic, codebook or cluster.")] = "title",
    vectors: Annotated[Path | None, typer.Option(help="A .npy file with a row for each document.")] = None,
    set_: SchemeSettings = None,
    read_as: ReadAs = "",
    json_: Json = False,
) -> None:
    """What the docids of a corpus would be like: depth, branching, collisions, bytes."""
    from triever.lab.docids import describe_docids

    found = describe_docids(open_data(data, read_as=read_as), scheme, set_ or (), vectors)
    emit(found if json_ else table([{"what": key, "value": value} for key, value in found.items()]))


def bench_decode(set_: DecodeSettings = None, out: Out = None, json_: Json = False) -> None:
    """Speed of constrained decoding beside transformers' generate."""
    from triever.lab.bench_decode import DecodeOptions
    from triever.lab.bench_decode import bench_decode as measure

    _bench(lambda: measure(from_words(DecodeOptions, set_)), out, json_)


def bench_trie(
    titles: Annotated[Path, typer.Argument(metavar="FILE", help="One title a line; gzip and zstd as they are.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many titles.")] = None,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Time to build the trie, and its size, beside a dict and marisa-trie."""
    from triever.lab.bench_trie import bench_trie as measure

    _bench(lambda: measure(titles, limit), out, json_)


def bench_train(set_: TrainSettings = None, out: Out = None, json_: Json = False) -> None:
    """Speed of training beside a plain loop over transformers' model, as a share of the hardware's rate."""
    from triever.lab.bench_train import TrainBenchOptions
    from triever.lab.bench_train import bench_train as measure

    _bench(lambda: measure(from_words(TrainBenchOptions, set_)), out, json_)


def bench_search(
    systems: Systems,
    data: DataOption,
    split: Split = "test",
    most: Annotated[int, typer.Option(min=1, help="Only the first so many questions.")] = 1000,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only ways to search with this text in their names, such as 'beam 10'; repeat for several."),
    ] = None,
    read_as: ReadAs = "",
    out: Out = None,
    plot: Plot = None,
    json_: Json = False,
) -> None:
    """Speed, size and quality of retrievers, with each kind of index or beam that they can have."""
    from triever.evaluation.compare import questions
    from triever.lab.bench_search import bench_search as measure
    from triever.lab.systems import ready_systems

    dataset = open_data(data, read_as=read_as)
    questions(dataset, split)
    check_before_work((), plot, out)
    rows = _bench(lambda: measure(ready_systems(systems, dataset), dataset, split, most, only or ()), out, json_)
    if plot:
        from triever.evaluation.picture import draw_points

        beside = "Success@10" if any(row["agreement"] == "" for row in rows) else "agreement"
        draw_points(rows, "queries_per_second", ("Success@1", beside), plot)
        note(f"wrote {plot}")


def _bench(measure: Callable[[], list[dict[str, Any]]], out: Path | None, json_: bool) -> list[dict[str, Any]]:
    """Run a benchmark, print its rows, and write them down with the machine that they were measured on."""
    from triever.lab import results

    if out:
        check_file(out)
    rows = measure()
    if out:
        results.write(out, results.benchmark(["triever", *command_words()], rows))
        note(f"wrote {out}")
    keys = dict.fromkeys(key for row in rows for key in row)
    emit(rows if json_ else table([{key: row.get(key, "") for key in keys} for row in rows]))
    return rows
