"""Commands that measure how well systems find, and that analyse why."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from triever.commands.option_groups import Output, Questions, grouped
from triever.commands.options import (
    SYSTEMS_HELP,
    Expansions,
    Hits,
    Json,
    Measures,
    Model,
    Plot,
    ReadAs,
    SkipBad,
    Split,
    Systems,
)
from triever.commands.shared import check_before_work, command_words, open_data
from triever.errors import UsageError
from triever.terminal import emit, note, table

if TYPE_CHECKING:
    from triever.data.datasets import Dataset
    from triever.data.records import Run
    from triever.evaluation.finding import Finding
    from triever.evaluation.report import Report
    from triever.remote import Searcher
    from triever.retriever import Retriever

_log = logging.getLogger("triever")
MOST_DOCUMENTS = 10**12


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A TREC run, as `triever run` writes it.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="A dataset, as for other commands, or a file of qrels.")],
    split: Split = "test",
    measure: Measures = None,
    json_: Json = False,
    plot: Plot = None,
    read_as: ReadAs = "",
    skip_bad: SkipBad = False,
) -> None:
    """Measure a TREC run against relevance judgements."""
    from triever.data.readers import Problems, read_qrels, read_run
    from triever.evaluation.compare import questions
    from triever.evaluation.measures import DEFAULT_MEASURES
    from triever.evaluation.report import evaluate as measure_run

    measures = measure or DEFAULT_MEASURES
    check_before_work(measures, plot)
    hits = read_run(run, Problems(skip_bad))
    if _is_qrels(data):
        qrels = read_qrels(data, Problems(skip_bad))
        report = measure_run(hits, qrels, measures, name=run.stem)
        about = {"qrels": Path(data).name}
        documents = {hit.id for result in hits.values() for hit in result}.union(*qrels.values())
    else:
        dataset = open_data(data, skip_bad, read_as)
        queries, qrels = questions(dataset, split)
        texts = _texts(dataset, measures)
        report = measure_run(hits, qrels, measures, name=run.stem, queries=queries, texts=texts)
        about = {"data": dataset.name, "split": split, "fingerprint": dataset.fingerprint[:16]}
        documents = dataset.documents()
    _show(replace(report, about=about | _shallow(run, hits, measures, documents)), json_, plot)


def _is_qrels(data: str) -> bool:
    """Whether DATA is a file of judgements alone, which is enough to measure a run by."""
    from triever.data.formats.sniff import Role, recognise

    recognised = recognise(data) if os.path.isfile(data) else None
    return recognised is not None and recognised.roles == (Role.QRELS,)


@grouped
def compare(
    systems: Systems,
    asked: Questions,
    measure: Measures = None,
    k: Hits = 100,
    *,
    told: Output,
    expansions: Expansions = None,
) -> None:
    """Measure several retrievers on the same questions; the others are tested against the first."""
    from triever.evaluation.compare import check_asked, questions
    from triever.evaluation.compare import compare as measure_all
    from triever.evaluation.measures import DEFAULT_MEASURES, check_questions
    from triever.lab import results
    from triever.lab.systems import ready_searchers

    dataset = asked.dataset()
    measures = measure or DEFAULT_MEASURES
    told.check(measures)
    check_questions(measures, *questions(dataset, asked.split))  # as `compare` does, but before anything is trained
    learned = dataset.with_expansions(expansions) if expansions else dataset
    retrievers = ready_searchers(systems, learned, partial(check_asked, measures=measures))
    report = measure_all(retrievers, dataset, asked.split, measures, k=k)
    if told.out:
        about = {name: _about(retriever) for name, retriever in retrievers.items()}
        results.write(told.out, results.record(report, command=command_words(), seconds=told.seconds, systems=about))
        note(f"wrote {told.out}")
    _show(report, told.json_, told.plot)


def _about(retriever: Searcher) -> dict[str, object]:
    from triever.config import to_dict
    from triever.remote import Remote

    if isinstance(retriever, Remote):
        return {"server": retriever.url, "kind": retriever.kind, "fingerprint": retriever.fingerprint[:16]}
    return {"kind": retriever.kind, **to_dict(retriever), "fingerprint": retriever.fingerprint[:16]}


def _show(report: Report, as_json: bool, plot: Path | None) -> None:
    emit(report.to_dict() if as_json else report.table())
    if plot:
        report.plot(plot)
        note(f"wrote {plot}")


SystemsAndRuns = Annotated[
    list[str],
    typer.Argument(
        metavar="SYSTEM...", help=f"{SYSTEMS_HELP} A file that `triever run` has written is a system here too."
    ),
]
OneMeasure = Annotated[
    list[str] | None,
    typer.Option("--measure", "-m", help="A measure, such as Success@10, Rprec or KILT-Rprec. Default: Success@1."),
]


def _one(measures: Sequence[str] | None) -> str:
    """The measure that was asked for, which is the only one."""
    if measures and len(measures) > 1:
        raise UsageError(f"-m is given {len(measures)} times, and this analysis has one measure", "run it for each")
    return measures[0] if measures else "Success@1"


@grouped
def analyse_overlap(
    systems: SystemsAndRuns,
    asked: Questions,
    measure: OneMeasure = None,
    examples: Annotated[
        int, typer.Option(min=0, help="How many questions to show that the second system finds and the first does not.")
    ] = 5,
    *,
    told: Output,
) -> None:
    """Measure systems on questions that share few words with the titles that they look for, and on those with many."""
    from triever.evaluation.overlap import overlap

    chosen = _one(measure)
    told.check([chosen])
    if told.plot and len(systems) < 2:
        raise UsageError(
            "--plot compares the questions that two systems find, but only one is named", "name another system"
        )
    told.tell(_analysed(partial(overlap, examples=examples), systems, asked.dataset(), asked.split, chosen))


@grouped
def analyse_seen(
    systems: SystemsAndRuns,
    asked: Questions,
    train: Annotated[str, typer.Option(help="The split that systems were trained on.")] = "train",
    measure: OneMeasure = None,
    *,
    told: Output,
) -> None:
    """Measure systems on questions about documents that training questions were about, and about other documents."""
    from triever.evaluation.groups import relevant
    from triever.evaluation.seen import seen

    chosen = _one(measure)
    told.check([chosen])
    dataset = asked.dataset()
    if not any(map(relevant, dataset.qrels(train).values())):
        problem = f"no question of {train!r} has a relevant document, so no document counts as seen"
        raise UsageError(problem, "name the split that systems were trained on with --train")
    told.tell(_analysed(partial(seen, train=train), systems, dataset, asked.split, chosen))


def _analysed(
    analysis: Callable[..., Finding], systems: list[str], dataset: Dataset, split: str, measure: str
) -> Finding:
    """An analysis of systems on the questions of a split; systems search as deep as the measure reads."""
    from triever.evaluation.compare import questions
    from triever.evaluation.groups import hits_needed
    from triever.lab.systems import is_run, labels, ready_runs

    runs = ready_runs(systems, dataset, split, hits_needed(measure, *questions(dataset, split)))
    for label, source in labels(systems).items():
        if is_run(source):
            _shallow(Path(source), runs[label], [measure], dataset.documents())
    return analysis(runs, dataset, split, measure, texts=_texts(dataset, [measure]))


MostQuestions = Annotated[int, typer.Option(min=1, help="How many questions are looked at, at most.")]
Seed = Annotated[int, typer.Option(min=0, help="The seed of all that is drawn at random.")]


@grouped
def analyse_heads(
    model: Model,
    asked: Questions,
    questions: MostQuestions = 200,
    depth: Annotated[int, typer.Option(min=2, help="How many documents BM25 finds for each.")] = 100,
    json_: Json = False,
) -> None:
    """Say how well each attention head of a reatt model tells relevant documents from others that BM25 finds."""
    from triever.evaluation.heads import heads
    from triever.retriever import load

    found = heads(load(model), asked.dataset(), asked.split, depth=depth, most=questions)
    emit(found.to_dict() if json_ else table(found.rows()))
    note(f"{found.queries:,} questions, {found.pairs:,} documents")


@grouped
def analyse_calibration(
    model: Model,
    asked: Questions,
    fit_on: Annotated[
        str, typer.Option("--fit-on", help="The split that a temperature and a threshold are fitted on, such as dev.")
    ] = "",
    risk: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Fit the threshold that allows this share of wrong answers. Default: 0.1."),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Fit the threshold that answers this share of questions, in place of --risk."),
    ] = None,
    *,
    told: Output,
) -> None:
    """Say whether a model is as sure as it is right, and what it gains if it abstains where it is not sure."""
    from triever.evaluation.calibration_analysis import calibration

    measured = partial(calibration, split=asked.split, fit_on=fit_on or None, risk=risk, coverage=coverage)
    _tell_of_model(measured, model, asked, told)


@grouped
def analyse_normalisation(
    model: Model,
    asked: Questions,
    temperature: Annotated[
        float | None, typer.Option(help="What scores are divided by. Default: the temperature of the model's training.")
    ] = None,
    questions: MostQuestions = 200,
    draws: Annotated[int, typer.Option(min=1, help="How often candidates are drawn for each question.")] = 100,
    seed: Seed = 0,
    *,
    told: Output,
) -> None:
    """Measure how far a dense model's loss over 8 to 1,024 drawn documents is below its loss over all of them."""
    from triever.evaluation.normalisation import normalisation

    how = {"temperature": temperature, "most": questions, "draws": draws, "seed": seed}
    measured = partial(normalisation, split=asked.split, **how)
    _tell_of_model(measured, model, asked, told)


@grouped
def analyse_rank(
    model: Model,
    asked: Questions,
    questions: MostQuestions = 500,
    documents: Annotated[
        int, typer.Option(min=0, help="How many documents are scored: relevant ones and a random sample; 0 for all.")
    ] = 2000,
    seed: Seed = 0,
    *,
    told: Output,
) -> None:
    """Measure what vectors of each size could keep of the scores of a dense or multivector model."""
    from triever.evaluation.rank import rank

    measured = partial(rank, split=asked.split, most=questions, documents=documents, seed=seed)
    _tell_of_model(measured, model, asked, told)


@grouped
def analyse_posterior(
    model: Model,
    asked: Questions,
    questions: MostQuestions = 100,
    *,
    told: Output,
) -> None:
    """Measure how near the weights of prefixes come to exact sums, where every node of a generative model has a row."""
    from triever.evaluation.posterior import posterior

    measured = partial(posterior, split=asked.split, most=questions)
    _tell_of_model(measured, model, asked, told)


@grouped
def analyse_vocabulary(
    model: Model,
    words: Annotated[
        str,
        typer.Option(
            metavar="WORD,WORD", help="Show the clusters of these tokens. Default: those in the most clusters."
        ),
    ] = "",
    clusters: Annotated[
        int,
        typer.Option(
            min=0, help="How many clusters the tokens of all titles are put into; 0 for as many as there are ids."
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random samples of ids and tokens.")] = 0,
    *,
    told: Output,
) -> None:
    """Describe the vocabulary of a contextual retriever: size, uniformity, neighbours, clusters."""
    from triever.evaluation.vocabulary import vocabulary
    from triever.retriever import load

    told.check()
    chosen = [word.strip() for word in words.split(",") if word.strip()]
    told.tell(vocabulary(load(model), words=chosen, clusters=clusters, seed=seed))


@grouped
def analyse_memory(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Folders that `triever fit` has written; NAME=... names one."),
    ],
    grow: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Also compute the memory for these numbers of documents.")
    ] = "1e7,1e8,1e9",
    open_: Annotated[
        bool, typer.Option("--open", help="Also measure a process that opens and searches each model (Linux only).")
    ] = False,
    *,
    told: Output,
) -> None:
    """Show the memory and disk space of models, part by part, and compute the memory for more documents."""
    from triever.evaluation.memory_analysis import memory
    from triever.lab.systems import labels

    told.check()
    told.tell(memory(labels(models), grow=_documents(grow), opening=open_))


def _documents(text: str) -> list[int]:
    """Numbers of documents; they may be written as 1e7."""
    try:
        numbers = [float(word) for word in text.split(",") if word.strip()]
    except ValueError:
        numbers = [0.0]
    if not all(1 <= number <= MOST_DOCUMENTS and number % 1 == 0 for number in numbers):
        problem = f"--grow {text} should be whole numbers of documents, up to {MOST_DOCUMENTS:,}"
        raise UsageError(problem, "for example: --grow 1e7,1e8,1e9")
    return [int(number) for number in numbers]


def _tell_of_model(
    analysis: Callable[[Retriever, Dataset], Finding], model: Path, asked: Questions, told: Output
) -> None:
    """Tell what an analysis finds of a saved model on some data; the files to write are looked at before any work."""
    from triever.retriever import load

    told.check()
    dataset = asked.dataset()
    told.tell(analysis(load(model), dataset))


def _shallow(path: Path, run: Run, measures: Sequence[str], documents: Iterable[object]) -> dict[str, int]:
    """Warn if a measure reads deeper than the run goes for any query; return a note for the report.

    If there are no more documents than the run holds, it is as deep as it can be.
    """
    from triever.evaluation.measures import depth

    depths = {measure: depth([measure]) or 0 for measure in measures}  # None: it reads all hits of the run
    measure = max(depths, key=lambda measure: depths[measure])
    deepest = max(map(len, run.values()), default=0)
    if not 0 < deepest < depths[measure] or sum(1 for _ in islice(documents, deepest + 1)) <= deepest:
        return {}
    _log.warning(
        "%s has at most %d hits a query, but %s reads %d: lower ranks count as missed; if the system finds more, "
        "write them: triever run -k %d",
        *(path, deepest, measure, depths[measure], depths[measure]),
    )
    return {"deepest rank": deepest}


def _texts(dataset: Dataset, measures: Sequence[str]) -> dict[str, str] | None:
    """The texts of the documents; None if no measure reads them."""
    from triever.evaluation.measures import reads_texts

    if not reads_texts(measures):
        return None
    return {document.id: document.full_text for document in dataset.documents()}
