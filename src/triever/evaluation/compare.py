"""Several systems on the same questions: search, measure, compare."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from triever.arguments import brief, whole
from triever.data.dataset import are_the_same
from triever.data.datasets import Dataset
from triever.data.records import Qrels, Query, Result, Run
from triever.data.store import DocumentStore
from triever.errors import UsageError
from triever.evaluation.calibration import claims
from triever.evaluation.measures import DEFAULT_MEASURES, check, check_questions, depth, per_query
from triever.evaluation.report import Report
from triever.printable import mean_text
from triever.progress import track
from triever.remote import Remote, Searcher
from triever.retriever import Asks, Retriever

ANSWERED = {"EM", "F1"}
"""The measures of answers; a retriever that can answer is asked for them."""
CLAIMED = {"Brier"}
"""The measures of probabilities; scores that can become some are made so for them."""
NEARLY_NOTHING = 0.01
"""Below such a mean claim the Brier score differs by less than twice of it from the share of right hits."""
PROBES = 16
"""How many queries tell whether a system gives probabilities: a single one may have no hit."""
BATCH = 256
DEEP = 1000
"""How many hits to search for a measure without a cutoff, as TREC does; all of a large corpus would not fit."""
log = logging.getLogger("triever")


def search_all(retriever: Searcher, queries: Sequence[Query], k: int = 100, name: str = "search") -> Run:
    """The hits of every query, by query id."""
    batches = [queries[start : start + BATCH] for start in range(0, len(queries), BATCH)]
    results = [
        retriever.search_many(batch, k)
        for batch in track(batches, f"searching with {name}", unit="questions", size=len)
    ]
    return dict(zip((query.id for query in queries), chain.from_iterable(results), strict=True))


def compare(
    retrievers: Mapping[str, Searcher],
    dataset: Dataset,
    split: str = "test",
    measures: Sequence[str] = DEFAULT_MEASURES,
    *,
    k: int = 100,
    baseline: str | None = None,
    keep: Callable[[str, Run], None] | None = None,
) -> Report:
    """Measure every retriever on a split; the first, or the one named, is what the others are tested against.

    At least `k` hits are searched for; a measure that reads deeper gets more. `keep` is called with the name and the
    run of each retriever.
    """
    if not isinstance(retrievers, Mapping) or not retrievers:
        raise UsageError("there is nothing to compare", 'give retrievers by name: compare({"bm25": bm25}, data)')
    for name, retriever in retrievers.items():
        if not isinstance(retriever, Retriever | Remote):
            raise UsageError(
                f"{brief(name)} is {brief(retriever)}, not a retriever", "give a fitted or loaded retriever"
            )
    if not isinstance(dataset, Dataset):
        problem = f"compare takes a Dataset, not {type(dataset).__name__}"
        raise UsageError(problem, "load one with triever.load_dataset(...)")
    if keep is not None and not callable(keep):
        raise UsageError(f"keep = {brief(keep)} should be a function", "it is called with a name and a run")
    check(measures)
    whole(k, "k")
    check_asked(retrievers, measures)
    queries, qrels = questions(dataset, split)
    check_questions(measures, queries, qrels)
    _check_probabilities(retrievers, measures, queries[:PROBES])
    read = depth(measures, qrels)
    searched = max(k, DEEP if read is None else read)
    values, extra = {}, {}
    for name, retriever in retrievers.items():
        warn_of_other_documents(name, retriever, dataset, split)
        started = time.perf_counter()
        run = search_all(retriever, queries, searched, name)
        speeds = {"queries/s": _per_second(queries, started)}
        if isinstance(retriever, Asks) and ANSWERED & {*measures}:
            started = time.perf_counter()
            run = with_answers(run, retriever, queries)
            speeds["answers/s"] = _per_second(queries, started)
        if CLAIMED & {*measures} and isinstance(retriever, Retriever):  # a server's scores are what they are
            run = with_probabilities(run, retriever, queries)
        if CLAIMED & {*measures}:
            _warn_of_small_claims(name, run, qrels)
        if keep:
            keep(name, run)
        values[name] = measure(run, qrels, queries, retriever, measures)
        extra[name] = {"documents": len(retriever), **speeds}
    about = {"data": dataset.name, "split": split, "fingerprint": dataset.fingerprint[:16]}
    return Report.of(values, baseline=baseline, extra=extra, about=about)


def _per_second(queries: Sequence[Query], started: float) -> float:
    speed = len(queries) / (time.perf_counter() - started)
    return round(speed) if speed >= 10 else speed


def check_asked(retrievers: Mapping[str, Searcher], measures: Sequence[str]) -> None:
    """Refuse measures of answers or probabilities for systems that never give any, before any work is done for them."""
    never = {name: never_given(retriever) for name, retriever in retrievers.items()}
    _refuse_answers([name for name, missing in never.items() if missing >= ANSWERED], measures)
    _refuse_probabilities([name for name, missing in never.items() if missing >= CLAIMED], measures)


def never_given(retriever: Searcher) -> set[str]:
    """The measures of answers and probabilities for which a system never gives anything, whatever it has learned."""
    missing = set() if isinstance(retriever, Asks) else {*ANSWERED}
    return missing | CLAIMED if isinstance(retriever, Retriever) and not retriever.gives_probabilities else missing


def _refuse_answers(silent: Sequence[str], measures: Sequence[str]) -> None:
    """Refuse measures of answers for these systems, which give none."""
    asked = [measure for measure in measures if measure in ANSWERED]
    if asked and silent:
        problem = f"{asked[0]} needs answers, and {', '.join(silent)} only finds documents"
        raise UsageError(problem, "measure systems that answer, such as reatt, or leave the measure out")


def _check_probabilities(retrievers: Mapping[str, Searcher], measures: Sequence[str], queries: Sequence[Query]) -> None:
    """Refuse a measure of probabilities for a system that gives none: a search for some queries tells."""
    if CLAIMED & {*measures}:
        silent = [name for name, retriever in retrievers.items() if not _is_probable(retriever, queries)]
        _refuse_probabilities(silent, measures)


def _refuse_probabilities(silent: Sequence[str], measures: Sequence[str]) -> None:
    """Refuse measures of probabilities for these systems, which give none."""
    asked = [measure for measure in measures if measure in CLAIMED]
    if asked and silent:
        problem = f"{asked[0]} needs probabilities, and the scores of {', '.join(silent)} are none"
        raise UsageError(
            problem, "measure systems that give them, such as generative or dense, or leave the measure out"
        )


def _is_probable(retriever: Searcher, queries: Sequence[Query]) -> bool:
    """Whether a retriever gives the hits of these queries probabilities."""
    results = retriever.search_many(queries, 1)
    if isinstance(retriever, Retriever):
        results = retriever.with_probabilities(queries, results)
    return have_probabilities(results)


def _warn_of_small_claims(name: str, run: Run, qrels: Qrels) -> None:
    """Say where claims are so small that the measure does not depend on them."""
    claimed, right = claims(run, qrels)
    if len(claimed) and claimed.mean() < NEARLY_NOTHING:
        said = "Brier of %s says little: it claims %.1g on average, so that this is about its Success@1, %s"
        log.warning(said, name, claimed.mean(), mean_text(right.mean()))


def measurable(retriever: Retriever, measures: Sequence[str], queries: Sequence[Query]) -> Sequence[str]:
    """The measures, without those of answers or probabilities for a retriever that gives none, if others are left.

    Whether it gives probabilities, a search for some queries tells.
    """
    others = [name for name in measures if name not in never_given(retriever)]
    if CLAIMED & {*others} and not _is_probable(retriever, queries):
        others = [name for name in others if name not in CLAIMED]
    return others or measures


def have_probabilities(results: Iterable[Result]) -> bool:
    """Whether all hits have a probability."""
    return all(hit.logprob is not None for result in results for hit in result)


def with_probabilities(run: Run, retriever: Retriever, queries: Sequence[Query]) -> Run:
    """The hits of every query with log-probabilities, where the scores of the retriever can become some."""
    results = retriever.with_probabilities(queries, [run[query.id] for query in queries])
    return dict(zip((query.id for query in queries), results, strict=True))


def with_answers(run: Run, retriever: Asks, queries: Sequence[Query]) -> Run:
    """The hits of every query together with what is answered from them, however sure the model is.

    A blank query gets no answer.
    """
    asked = [query for query in queries if query.text.strip()]
    answers = zip(asked, retriever.ask_many(asked, matches=False), strict=True)
    written = {query.id: answer.written for query, answer in answers}
    return {query.id: replace(run[query.id], answer=written.get(query.id, "")) for query in queries}


def questions(dataset: Dataset, split: str) -> tuple[list[Query], Qrels]:
    """The questions of a split and their judgements; an error if there is nothing to ask or to judge by."""
    qrels = dataset.qrels(split)
    queries = [query for query in dataset.queries(split) if query.id in qrels]
    if not qrels:
        raise UsageError(f"the split {split!r} of {dataset.name} has no judged query", "name a split with qrels")
    if not queries:
        problem = f"none of the questions judged in {split!r} is among the queries of {dataset.name}"
        raise UsageError(problem, "check that qrels and queries have the same ids")
    dataset.queries_without_relevant(split)
    return queries, qrels


def warn_of_other_documents(name: str, retriever: Searcher, dataset: Dataset, split: str) -> None:
    """Warn if a retriever holds other documents than this data, or if judged documents are missing."""
    if isinstance(retriever, Remote):  # few requests for many documents, instead of one for each
        judged = dataset.qrels(split).values()
        retriever.documents.look_up(key for grades in judged for key, grade in grades.items() if grade > 0)
    dataset.unknown_documents(split, retriever.documents)
    if not _holds(retriever, dataset):
        log.warning("%s holds other documents than %s: its measures are about its own documents", name, dataset.name)


def _holds(retriever: Searcher, dataset: Dataset) -> bool:
    """Whether a retriever holds the documents of a dataset; after changes they may stand in another order."""
    if retriever.fingerprint == dataset.fingerprint:
        return True
    documents = retriever.documents
    if not isinstance(documents, DocumentStore) or len(documents) != dataset.reading.documents:
        return False  # what is counted already need not be read again
    return are_the_same(documents, dataset.documents())


def measure(
    run: Run, qrels: Qrels, queries: Sequence[Query], retriever: Searcher, measures: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Measure -> query -> value; a measure that reads texts reads those of the retriever's documents."""
    texts = retriever.documents
    return per_query(
        run, qrels, measures, queries=queries, texts=lambda document_id: texts.document(document_id).full_text
    )
