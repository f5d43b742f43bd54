"""Commands for experiments and their results, docids of a corpus, and benchmarks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

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
from triever.commands.shared import check_before_work, check_result_file, command_words, open_data
from triever.config import from_words
from triever.errors import UsageError
from triever.lab.origin import OUT, WORK
from triever.printable import count_of
from triever.terminal import emit, note, table

_log = logging.getLogger("triever")

T = TypeVar("T")


def experiment(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe: a TOML file, or its name below recipes/.")],
    setting: Annotated[str, typer.Option(help="The size of the experiment: smoke, mini or paper.")] = "smoke",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Run only the cell with this label, or else cells with this text in theirs; repeat for several.",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="0,1", help="Run only these of the recipe's seeds.")] = "",
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for results.")] = OUT,
    work: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for parts and checkpoints.")] = WORK,
    models: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also save the retrievers here, as RECIPE/SETTING/CELL-seedN.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also run what has a result already.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the runs, and run nothing.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Show the results so far, and run nothing.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with exit code 1 if a result is not as expected.")
    ] = False,
    json_: Json = False,
) -> None:
    """Run a recipe cell by cell and compare its results with what it expects. Runs that have a result are skipped."""
    from triever.lab import experiment as lab
    from triever.lab.recipes import read
    from triever.lab.tables import aligned

    chosen, wanted, named = read(recipe, setting), _whole_numbers(seeds), only or ()
    if list_:
        rows = lab.listed(chosen, out, named, wanted)
        emit(rows if json_ else aligned(rows))
        return
    if report:
        table = lab.table_of(chosen, out, named)
    else:
        table = lab.run_recipe(
            chosen, out=out, work=work, only=named, seeds=wanted, again=again, models=models, tell=note
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
        Path,
        typer.Argument(metavar="FOLDER", help="A folder of files that `compare --out` or `experiment` has written."),
    ],
    pages: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write an index, results.md, and a page for each recipe into this folder."),
    ] = None,
) -> None:
    """Print all results of a folder as one Markdown page, or write them as several pages."""
    from triever.lab.pages import write_pages
    from triever.lab.results import render

    if pages is None:
        emit(render(folder))
        return
    index, *recipe_pages = write_pages(folder, pages)
    note(f"wrote {index} and {count_of(len(recipe_pages), 'page')} in {index.with_suffix('')}")


def docids_info(
    data: Data,
    scheme: Annotated[
        str, typer.Option(help="The kind of docids: atomic, naive, title, semantic, codebook, cluster or given.")
    ] = "title",
    vectors: Annotated[
        Path | None,
        typer.Option(
            help="The vectors that docids are made from: a .npy file with one for each document, in their order or "
            "with NAME.ids.txt beside it; a Parquet file, a faiss index, or a model of the system dense or given."
        ),
    ] = None,
    set_: SchemeSettings = None,
    read_as: ReadAs = "",
    json_: Json = False,
) -> None:
    """Describe the docids that a scheme gives to documents: depth, branching, use of symbols, collisions, bytes."""
    from triever.docids.code_use import WARNING
    from triever.lab.docids import describe_docids

    facts = describe_docids(open_data(data, read_as=read_as), scheme, set_ or (), vectors)
    if json_:
        emit(facts)
        return
    warning = facts.pop(WARNING, None)  # too long for a table
    emit(table([{"what": key, "value": value} for key, value in facts.items()]))
    if warning:
        _log.warning("%s", warning)


def bench_decode(
    set_: DecodeSettings = None,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Compare with the rows of an earlier --out, and fail if a ratio to generate is a third below its own.",
        ),
    ] = None,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Measure the speed of constrained decoding beside transformers' generate."""
    from triever.lab.bench_decode import DecodeOptions, compared
    from triever.lab.bench_decode import bench_decode as measure
    from triever.lab.results import earlier_rows

    options = from_words(DecodeOptions, set_)
    earlier = earlier_rows(check) if check else []
    rows = run_bench(lambda: measure(options), out, json_)
    if check:
        outcome = compared(rows, earlier)
        note(outcome.text())
        if outcome.slower or outcome.invalid or not outcome.matched:
            raise typer.Exit(1)


def bench_trie(
    titles: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file with one title a line, plain or compressed (gzip, zstd).")
    ],
    limit: Annotated[int | None, typer.Option(min=1, help="Read only this many titles.")] = None,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Measure the size of the trie and the time to build it, beside a dict and marisa-trie."""
    from triever.lab.bench_trie import bench_trie as measure

    run_bench(lambda: measure(titles, limit), out, json_)


def bench_train(set_: TrainSettings = None, out: Out = None, json_: Json = False) -> None:
    """Measure the speed of training beside a plain loop over transformers' model, as a share of the hardware's rate."""
    from triever.lab.bench_train import TrainBenchOptions
    from triever.lab.bench_train import bench_train as measure

    run_bench(lambda: measure(from_words(TrainBenchOptions, set_)), out, json_)


def bench_search(
    systems: Systems,
    data: DataOption,
    split: Split = "test",
    most: Annotated[int, typer.Option(min=1, help="Ask only this many questions.")] = 1000,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Measure only rows with this text in their name, such as 'beam 10'; repeat for several."),
    ] = None,
    read_as: ReadAs = "",
    out: Out = None,
    plot: Plot = None,
    json_: Json = False,
) -> None:
    """Measure the speed, size and quality of retrievers, with each kind of index or beam that they can have."""
    from triever.evaluation.compare import questions
    from triever.lab.bench_search import bench_search as measure
    from triever.lab.systems import ready_systems

    dataset = open_data(data, read_as=read_as)
    questions(dataset, split)
    check_before_work((), plot, out)
    rows = run_bench(lambda: measure(ready_systems(systems, dataset), dataset, split, most, only or ()), out, json_)
    if plot:
        from triever.evaluation.picture import draw_points

        beside = "Success@10" if any(row["agreement"] == "" for row in rows) else "agreement"
        draw_points(rows, "queries_per_second", ("Success@1", beside), plot)
        note(f"wrote {plot}")


def run_bench(measure: Callable[[], list[dict[str, T]]], out: Path | None, json_: bool) -> list[dict[str, T]]:
    """Run a benchmark, print its rows, and write them to a file together with the machine."""
    from triever.lab import results

    if out:
        check_result_file(out)
    rows = measure()
    if out:
        results.write(out, results.benchmark(["triever", *command_words()], rows))
        note(f"wrote {out}")
    keys = dict.fromkeys(key for row in rows for key in row)
    emit(rows if json_ else table([{key: row.get(key, "") for key in keys} for row in rows]))
    return rows
