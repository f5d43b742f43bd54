"""Runs the cells of a recipe: one result file for each run, parts made once, and no run twice.

A run that fails writes its error into its file, and the others go on. An interrupted run goes on from its checkpoints
in the work folder; they are removed once the run has its result.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import math
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

from triever import work_folder
from triever.data.dataset import SHIPPED
from triever.data.datasets import VARIABLE, Dataset, load_dataset, sample
from triever.data.records import Run as Hits
from triever.data.writers import write_run
from triever.errors import DataError, TrieverError, UsageError
from triever.evaluation.compare import compare, measurable, measure, questions
from triever.evaluation.seen import SeenScores, seen_scores
from triever.files import atomic, locked
from triever.lab import results
from triever.lab.cells import Data, System, decisive, digest, file_name
from triever.lab.origin import OUT, WORK, note_of, other_recipe
from triever.lab.recipes import SETTINGS, Recipe, Run, shipped
from triever.lab.run_results import RunResult, packed
from triever.lab.tables import PLAN, Plan, RecipeTable, read_plan, read_result
from triever.memory_parts import index_size
from triever.printable import mean_text
from triever.retriever import Retriever, learned_splits, load
from triever.training.fit_fingerprints import of_folder

WARM = 8  # queries that are asked before the time is taken: the first ones prepare things
COUNTED = 500
"""How many questions of the first split are searched once more to count the vectors that are compared."""
log = logging.getLogger("triever")


class TooLong(TrieverError):
    """A run that took longer than its recipe allows."""


def run_recipe(
    recipe: Recipe,
    *,
    out: str | Path = OUT,
    work: str | Path = WORK,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (),
    again: bool = False,
    models: str | Path | None = None,
    tell: Callable[[str], None] = lambda _line: None,
) -> RecipeTable:
    """Run what has no result yet and return the table; `again` runs all of it, `models` is a folder for retrievers."""
    _refuse_several_processes()
    _refuse_results_of_another(recipe, out)
    folder = results_folder(recipe, out)
    chosen = recipe.runs(only, seeds)
    missing = [run for run in chosen if again or not is_done(folder, run)]
    kept = results_folder(recipe, models) if models else None
    workshop = Workshop(Path(work), f"{recipe.name}/{recipe.setting}", recipe.timeout, kept)
    workshop.check([run.cell.data for run in missing])
    results.write(folder / PLAN, _plan(recipe, folder))
    for number, run in enumerate(chosen, 1):
        label = f"[{number}/{len(chosen)}] {run.cell.label}, seed {run.seed}"
        if run not in missing:
            tell(f"{label}: there already")
            continue
        with working_in(workshop.folder_of(run)) as working:
            result = _result(recipe, run, workshop, folder)
            results.write(folder / run.file, result)
            working.is_done = "problem" not in result
        tell(f"{label}: {_summary(recipe, run, result)}")
    return table_of(recipe, out, only)


def table_of(recipe: Recipe, out: str | Path = OUT, only: Sequence[str] = ()) -> RecipeTable:
    """The table of the results that a recipe has now, for all cells or for those that `only` names."""
    whole = RecipeTable.of(recipe.plan(), results_folder(recipe, out))
    return whole.narrowed([cell.label for cell in recipe.chosen(only)])


def listed(
    recipe: Recipe, out: str | Path = OUT, only: Sequence[str] = (), seeds: Sequence[int] = ()
) -> list[dict[str, object]]:
    """The runs of a recipe, and which of them have their result."""
    folder = results_folder(recipe, out)
    return [
        {
            "cell": run.cell.label,
            "seed": run.seed,
            "system": run.cell.system.kind,
            "data": run.cell.data.name,
            "done": "yes" if is_done(folder, run) else "no",
        }
        for run in recipe.runs(only, seeds)
    ]


def results_folder(recipe: Recipe, out: str | Path) -> Path:
    """The folder of a recipe's results in one setting."""
    return Path(out) / recipe.name / recipe.setting


def _command(recipe: Recipe) -> list[str]:
    """The words that run a recipe again; where its results and parts go, is left to whoever runs it."""
    return ["experiment", recipe.word, "--setting", recipe.setting]


def _plan(recipe: Recipe, folder: Path) -> Plan:
    """The plan of a recipe, with its file if Triever does not bring it, and its command if its name is not enough."""
    plan = recipe.plan()
    if recipe.path and not _is_shipped(recipe):
        plan["file"] = note_of(recipe.path, folder)
    if recipe.word != recipe.name:
        plan["command"] = results.without_paths(shlex.join(["triever", *_command(recipe)]))
    return plan


def _is_shipped(recipe: Recipe) -> bool:
    file = shipped(recipe.name)
    return bool(file and recipe.path and file.samefile(recipe.path))


def _refuse_results_of_another(recipe: Recipe, out: str | Path) -> None:
    """Refuse to write into the results of another recipe with the same name, in any of their settings."""
    if recipe.path is None:
        return
    for setting in SETTINGS:
        folder = Path(out) / recipe.name / setting
        try:
            plan = read_plan(folder)
        except DataError:  # there is none, or a damaged one is written anew
            continue
        note = plan.get("file")
        if note is None:  # of a recipe that Triever brings, or from a version that noted nothing
            other = recipe.name if shipped(recipe.name) and recipe.word != recipe.name else ""
        else:
            other = other_recipe(note, folder, recipe.path)
        if other:
            problem = f"{folder.parent.as_posix()} holds the results of {other}"
            raise UsageError(problem, "give another --out, or rename one of the recipes")


def is_done(folder: Path, run: Run) -> bool:
    """Whether a run has a result with its definition; a run that failed has none and is tried again."""
    result = read_result(folder / run.file, run.definition)
    return result is not None and "problem" not in result


# --- one run --------------------------------------------------------------------------------------------------


def _result(recipe: Recipe, run: Run, workshop: Workshop, folder: Path) -> RunResult:
    """The result of a run: its measures, or the error with which it failed. The time that parts took is not counted."""
    started = time.perf_counter()
    try:
        dataset = workshop.begin(run)
        system = run.cell.system.completed(run.seed, run.cell.data.train)
        retriever = system.make(partial(workshop.part, system.parts))
        results.forget_peaks()
        started = time.perf_counter()
        with limit(recipe.timeout):
            spent = {} if system.is_part else fit_in(workshop.folder_of(run), retriever, dataset)
            workshop.keep(run, retriever)
            outcome = _measured(recipe, run, retriever, dataset, folder)
        outcome |= {"system": system.to_dict(), **_start(system), **spent, "parts": workshop.spent(system.parts)}
    except Exception as error:
        log.debug("%s, seed %d failed", run.cell.label, run.seed, exc_info=True)
        outcome = {"problem": sentence(error)}
    seconds = time.perf_counter() - started
    words = [*_command(recipe), "--only", run.cell.label, "--seeds", str(run.seed)]
    return results.run_record({**_about(recipe, run), **outcome}, command=words, seconds=seconds)


def _start(system: System) -> dict[str, object]:
    """The fingerprint of the saved model that a system starts from, since its folder may be written anew."""
    start = system.options.get("start")
    found = of_folder(start)[:16] if isinstance(start, str) else ""
    return {"start": found} if found else {}


def _about(recipe: Recipe, run: Run) -> dict[str, object]:
    return {
        "recipe": recipe.name,
        "setting": recipe.setting,
        "cell": run.cell.label,
        "seed": run.seed,
        "values": dict(run.cell.values),
        "definition": run.definition,
        "data": asdict(run.cell.data),
        "system": run.cell.system.to_dict(),
    }


def _measured(recipe: Recipe, run: Run, retriever: Retriever, dataset: Dataset, folder: Path) -> dict[str, object]:
    data, systems = run.cell.data, {run.cell.label: retriever}
    reports = {}
    for split in data.test:
        first = dataset.queries(split)[:WARM]
        retriever.search_many(first, recipe.hits)
        hits: dict[str, Hits] = {}
        measures = measurable(retriever, recipe.measures, first)
        report = compare(systems, dataset, split, measures, k=recipe.hits, keep=hits.__setitem__)
        if recipe.keeps_runs:
            write_run(folder / run.hits_file(split), hits[run.cell.label], tag=file_name(run.cell.label))
        reports[split] = {
            **report.to_dict(),
            **_seen(hits[run.cell.label], retriever, dataset, split, recipe.measures[0]),
            "each": packed(report.values[run.cell.label], recipe.judged),
        }
    memory = retriever.memory
    counted = dataset.queries(data.test[0])[:COUNTED]
    compared = retriever.compared([query.text for query in counted], recipe.hits)
    return {
        "data": asdict(data) | {"dataset": dataset.name, "fingerprint": dataset.fingerprint[:16]},
        "reports": reports,
        **({"runs": {split: run.hits_file(split) for split in reports}} if recipe.keeps_runs else {}),
        "made_from": retriever.engine.made_from(),
        "documents": len(retriever),
        "index_bytes": index_size(memory),
        "memory": memory,
        **({} if compared is None else {"compared": round(compared, 5)}),
    }


def _seen(hits: Hits, retriever: Retriever, dataset: Dataset, split: str, name: str) -> dict[str, SeenScores]:
    """A measure on seen and on unseen questions, where a system learned from questions and both groups are large."""
    learned = learned_splits(retriever, dataset)
    if not learned:
        return {}
    queries, qrels = questions(dataset, split)
    values = measure(hits, qrels, queries, retriever, [name])[name]
    scores = seen_scores(values, dataset, split, name, train="+".join(learned))
    return {"seen": scores} if scores else {}


def _summary(recipe: Recipe, run: Run, result: RunResult) -> str:
    if "problem" in result:
        return f"failed: {result['problem']}"
    score = result["reports"][recipe.split]["scores"][run.cell.label][recipe.measure]
    mean, low, high = (mean_text(score[key]) for key in ("mean", "low", "high"))
    return f"{recipe.measure} {mean} [{low}, {high}], {result['seconds']} s"


def sentence(error: Exception) -> str:
    """An error as one line; an error that is not Triever's own begins with its class."""
    if isinstance(error, TrieverError):
        return str(error)
    return " ".join(f"{type(error).__name__}: {error}".split())


@contextmanager
def limit(seconds: float) -> Generator[None]:
    """Stop what takes longer than this; there is no limit on Windows, nor outside the main thread."""
    if not seconds or not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooLong(
            f"the run took longer than {seconds:g} s", "raise timeout, or run it again: its training continues"
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _refuse_several_processes() -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("an experiment runs in one process", "start it without torchrun or accelerate launch")


# --- what runs share ------------------------------------------------------------------------------------------


@dataclass
class Workshop:
    """The dataset and the parts that runs share, and the folder in which they are made; recipes share parts."""

    folder: Path
    name: str  # of the recipe and its setting
    timeout: float = 0
    kept: Path | None = None  # a folder for the retrievers of runs
    _opened: dict[tuple[str, bool, str], Dataset] = field(default_factory=dict)
    _at: tuple[Data, int] | None = None  # the data and the seed of the run under way
    _dataset: tuple[Data, Dataset] | None = None
    _parts: dict[Path, Retriever] = field(default_factory=dict)
    _broken: dict[Path, str] = field(default_factory=dict)
    _part_folders: dict[str, Path] = field(default_factory=dict)

    def check(self, datasets: Sequence[Data]) -> None:
        """Refuse data that does not exist, or that lacks a split which the recipe names."""
        for data in dict.fromkeys(datasets):
            for split in filter(None, (*data.test, data.train, *data.first)):
                self._whole(data).parts_of(split)
            if data.expansions:
                expansions_file(data.expansions)

    def keep(self, run: Run, retriever: Retriever) -> None:
        """Save the retriever of a run, if there is a folder for retrievers."""
        if self.kept:
            retriever.save(self.kept / run.file.removesuffix(".json"))

    def begin(self, run: Run) -> Dataset:
        """The data of a run. Runs that share data or parts follow each other, so only the latest data is kept."""
        data = run.cell.data
        if self._at != (data, run.seed):
            self._parts.clear()
            self._at = data, run.seed
        if self._dataset is None or self._dataset[0] != data:
            self._dataset = data, self._cut(data)
        _free_memory()
        return self._dataset[1]

    def folder_of(self, run: Run) -> Path:
        """The folder in which a run keeps its checkpoints."""
        return self.folder / self.name / f"{run.file.removesuffix('.json')}-{run.definition}"

    def part(self, parts: Mapping[str, System], name: str) -> Retriever:
        """A fitted part: loaded if it was saved earlier, or else made now and saved."""
        folder = self._part_folders[name] = self._part_folder(parts[name])
        if folder not in self._parts and folder not in self._broken:
            try:
                self._parts[folder] = self._made(folder, parts[name])
            except Exception as error:  # every run that needs the part fails with it; the part is not tried again
                self._broken[folder] = f"part {name!r}: {sentence(error)}"
        if folder in self._broken:
            raise TrieverError(self._broken[folder])
        return self._parts[folder]

    def spent(self, parts: Mapping[str, System]) -> dict[str, object]:
        """How long the parts of a run took when they were made."""
        return {name: json.loads(_beside(self._part_folders[name], "json").read_bytes()) for name in parts}

    def _part_folder(self, system: System) -> Path:
        """The folder of a part; other options, another seed or other data give another folder, another speed none."""
        assert self._dataset is not None  # parts are asked for after `begin`
        data, dataset = self._dataset
        # Without the questions, in which recipes that share parts differ. The training split is the system's option.
        learned = {"name": data.name, "documents": data.documents, "first": data.first, "skip_bad": data.skip_bad}
        options = decisive(system.to_dict())
        made = {"system": options, **_start(system), "data": learned, "fingerprint": dataset.fingerprint}
        if data.expansions:
            file = expansions_file(data.expansions)
            made["expansions"] = hashlib.sha256(file.read_bytes() if file else data.expansions.encode()).hexdigest()
        return self.folder / "parts" / f"{system.kind}-{digest(made)}"

    def _made(self, folder: Path, system: System) -> Retriever:
        """A part that is saved already or is made now; of several experiments one makes it, and the others wait."""
        assert self._dataset is not None
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(_beside(folder, "lock"), math.inf):
            if (folder / "manifest.json").exists() and _beside(folder, "json").exists():
                return load(folder)
            retriever = system.make(partial(self.part, system.parts))
            work = _beside(folder, "work")
            with working_in(work) as working:
                with limit(self.timeout):  # of the fit alone: a save is not cut short
                    spent = fit_in(work, retriever, self._dataset[1])
                spent |= {"commit": results.commit(), "beside": results.beside()}
                if system.parts:
                    spent["parts"] = self.spent(system.parts)
                with atomic(_beside(folder, "json")) as file:
                    file.write(json.dumps(spent).encode())
                retriever.save(folder)
                working.is_done = True
            return load(folder)  # as every later run does, so that it can go on with work that this run begins

    def _whole(self, data: Data) -> Dataset:
        key = data.name, data.skip_bad, data.read_as
        if key not in self._opened:
            self._opened[key] = load_dataset(data.name, skip_bad=data.skip_bad, read_as=data.read_as)
        return self._opened[key]

    def _cut(self, data: Data) -> Dataset:
        whole = self._whole(data)
        cut = sample(whole, data.documents, first=data.first or None) if data.documents else whole
        return cut.with_expansions(expansions_file(data.expansions) or data.expansions) if data.expansions else cut


def _free_memory() -> None:
    """Free the memory that the last run held."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        torch.cuda.empty_cache()


@dataclass
class Working:
    """Work in a folder; it is done once its outcome is kept elsewhere."""

    is_done: bool = False


@contextmanager
def working_in(folder: Path) -> Generator[Working]:
    """A folder to fit in, removed once the work is done; until then it stays if a later run can go on from it."""
    working = Working()
    try:
        yield working
    finally:
        if working.is_done:
            work_folder.remove(folder)
        else:
            work_folder.discard(folder)


def fit_in(folder: Path, retriever: Retriever, dataset: Dataset) -> dict[str, object]:
    """Fit a retriever with a folder to work in; return how long it took."""
    resumed = work_folder.is_begun(folder)
    started = time.perf_counter()
    retriever.fit(dataset, work=folder)
    return {"fit_seconds": round(time.perf_counter() - started, 2)} | ({"resumed": True} if resumed else {})


def expansions_file(name: str) -> Path | None:
    """A file of expansions by its path, or by its name below $TRIEVER_DATA; None for those that the package has."""
    for path in (Path(name), Path(os.environ.get(VARIABLE, ""), name)):
        if os.path.isfile(path):
            return path
    if name == SHIPPED:
        return None
    raise DataError(f"there is no file of expansions {name}", f"write the file first, or set {VARIABLE}")


def _beside(folder: Path, ending: str) -> Path:
    return folder.with_name(f"{folder.name}.{ending}")
