"""A run of another system as a retriever for its own questions: a part of a fusion, or a line of a comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from triever import artifact, config
from triever.arguments import as_path
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.formats.fields import shorten
from triever.data.readers import read_run
from triever.data.records import Result
from triever.data.store import DocumentStore
from triever.engines import recorded
from triever.engines.recorded import Lacking, RunEngine
from triever.errors import DataError, UsageError
from triever.retriever import Retriever
from triever.training import fit_fingerprints


@dataclass(eq=False)
class GivenRun(Retriever[RunEngine]):
    """A TREC run of another system: `Fused(systems=(BM25(), GivenRun("splade.run")))`."""

    kind: ClassVar[str] = "run"
    search_only: ClassVar[tuple[str, ...]] = ("lacking",)

    file: str = option("", "a TREC run: lines of query, Q0, document, rank, score, tag")
    lacking: Lacking = option(
        "refuse", "what a question that the run lacks gets: an error (refuse), or no hits (nothing)"
    )

    def __post_init__(self) -> None:
        config.validate(self)

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> RunEngine:
        """Read the hits, and find the texts of their questions in the dataset."""
        if not self.file:
            raise UsageError("there is no run", "name it: file=other.run")
        path = as_path(self.file)
        run = read_run(path)
        self._check_documents(path, run, store)
        return RunEngine.of(path.stem, _by_text(path, run, dataset), store, self.lacking)

    def _check_documents(self, path: Path, run: dict[str, Result], store: DocumentStore) -> None:
        unknown = list(dict.fromkeys(hit.id for hits in run.values() for hit in hits if hit.id not in store))
        if unknown:
            more = f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
            problem = f"{path} has hits that are no documents here: {shorten(unknown[0])!r}{more}"
            cut = f"{unknown[0]}#0" in store
            hint = "set cut.which=none: a run has whole documents" if cut else "give the run over these documents"
            raise DataError(problem, hint)

    def lessons(self, dataset: Dataset, store: DocumentStore) -> dict[str, Any]:
        """What is learned from besides documents, as fingerprints: the run."""
        run = fit_fingerprints.of_files([as_path(self.file)] if self.file else [])
        return {**super().lessons(dataset, store), "run": run}

    def configured(self, engine: RunEngine) -> RunEngine:
        """The engine, for which a question that it lacks is what the options say."""
        return replace(engine, lacking=self.lacking)

    def read(self, snapshot: artifact.Snapshot) -> RunEngine:
        """The hits of an artifact."""
        return recorded.read(snapshot, self.lacking)


def _by_text(path: Path, run: dict[str, Result], dataset: Dataset) -> dict[str, Result]:
    """Hits by the text of their question, since a question is asked by its text; the others are left out."""
    questions, hits_of, id_of = dataset.questions(), {}, {}
    for query, hits in run.items():
        if query not in questions:
            continue
        text = questions[query]
        if text in hits_of and hits_of[text] != hits:
            problem = f"{path} has different hits for {id_of[text]!r} and {query!r}, which are the same question"
            raise DataError(problem, "leave one of them out of the run")
        hits_of[text], id_of[text] = hits, query
    if run and not hits_of:
        problem = f"{path} has no question of {dataset.name}, but others, such as {next(iter(run))!r}"
        raise DataError(problem, "give the run of questions that the dataset has, by their ids")
    return hits_of
