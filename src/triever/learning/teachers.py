"""Teachers: retrievers that are asked about the training questions of another one, which learns their order."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import zipfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa

from triever import config
from triever.data.cache import cache_folder
from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.engines.base import Engine
from triever.errors import DataError, TrieverError
from triever.files import atomic, locked
from triever.held import Held
from triever.models.elsewhere import Place, Work, made_at, place_of_work
from triever.progress import track
from triever.retriever import Retriever, learned_by, load
from triever.training import fit_fingerprints
from triever.training.opinions import LABELLED, Opinions, Teaching, fitted_temperature
from triever.training.pairs import Pairs
from triever.training.tuning import TaughtTuning

DEPTH = 48
"""Documents of a teacher that a training text is compared by."""
LONGEST = 3600.0
"""Seconds that a training waits for another one that asks the same teacher, before it asks itself."""
TOGETHER = 1024
"""Questions that a teacher is asked together, so that a bar can move."""
ASKING = "asking the teacher"
Found: TypeAlias = tuple[np.ndarray, np.ndarray]
"""(texts, depth) rows and scores."""

_log = logging.getLogger("triever")


@dataclass(frozen=True)
class Teacher:
    """A retriever that teaches another one the documents of a dataset; it is fitted to them if it was not."""

    retriever: Retriever[Any]
    dataset: Dataset
    store: DocumentStore
    work: Path | None  # a folder for its own training

    def teaching(
        self, texts: Mapping[str, Sequence[str]], judged: Pairs | None, training: TaughtTuning
    ) -> Teaching | None:
        """What it thinks of the texts of views, as the judged ones among them suggest; none where nobody listens."""
        if not texts or not training.teacher_weight:
            return None
        self._warn_of_known_queries(training)
        views = {name: self.opinions(view_texts) for name, view_texts in texts.items()}
        if judged is None:
            return Teaching(views, 1.0)
        relevant = [judged.of(query) for query in range(len(judged))]
        return Teaching(views, fitted_temperature(views[LABELLED], relevant))

    def opinions(self, texts: Sequence[str]) -> Opinions:
        """What it finds for texts; it is kept in the cache folder for all trainings with the same teacher."""
        depth = min(DEPTH, len(self.store))
        key = fit_fingerprints.fingerprint([self._made, self.store.fingerprint, depth, list(texts)])[:16]
        file = cache_folder() / f"teacher-{key}.npz"
        with _alone(file):  # of several trainings one asks, and the others wait for what it keeps
            if (kept := _kept(file, (len(texts), depth))) is not None:
                return kept
            asked = self._asked(texts, depth)
            with contextlib.suppress(DataError), atomic(file) as opened:
                np.savez(opened, rows=asked.rows, scores=asked.scores)
            return asked

    def _asked(self, texts: Sequence[str], depth: int) -> Opinions:
        """What it finds for texts, TOGETHER at a time, here or elsewhere."""
        blocks = [texts[first : first + TOGETHER] for first in range(0, len(texts), TOGETHER)]
        place = place_of_work()
        parts = self._asked_at(place, blocks, depth) if place and len(blocks) > 1 else self._asked_here(blocks, depth)
        asked = Opinions(np.zeros((len(texts), depth), np.int32), np.zeros((len(texts), depth), np.float32))
        for first, (rows, scores) in zip(range(0, len(texts), TOGETHER), parts, strict=True):
            asked.rows[first : first + TOGETHER], asked.scores[first : first + TOGETHER] = rows, scores
        return asked

    def _asked_here(self, blocks: Sequence[Sequence[str]], depth: int) -> Iterator[Found]:
        for block in track(blocks, ASKING, unit="batches of questions"):
            yield _found(self._engine, self.store, block, depth)

    def _asked_at(self, place: Place, blocks: Sequence[Sequence[str]], depth: int) -> Iterator[Found]:
        """The same at another place, where the teacher is opened from a folder."""
        mark = fit_fingerprints.fingerprint([self._made, self.store.fingerprint, depth])[:16]
        folder = place.folder / f"teacher-{mark}"
        if not folder.exists():  # it is written whole or not at all
            held = Held(self.store, self._engine, {"data": self.dataset.name}, self._made)
            copy.copy(self.retriever).holding(held).save(folder)
        tables = (pa.table({"text": pa.array(block, pa.large_string())}) for block in blocks)
        for arrays in made_at(place, Asking(Path(os.path.abspath(folder)), depth, mark), tables, ASKING):
            yield arrays["rows"], arrays["scores"]

    @cached_property
    def _engine(self) -> Engine:
        """What it searches with: made only if it has to be asked, because a teacher may have to be trained first."""
        return self.retriever.engine_for(self.dataset, self.store, self.work)

    @cached_property
    def _made(self) -> str:
        """A mark of what it was or will be made from."""
        retriever = self.retriever
        made = retriever.fingerprint_for(self.store) or retriever.lessons(self.dataset, self.store)
        expansions = fit_fingerprints.of_expansions(self.store) if retriever.reads_expansions else ""
        return fit_fingerprints.fingerprint([retriever.kind, config.to_dict(retriever), made, expansions])

    def _warn_of_known_queries(self, training: TaughtTuning) -> None:
        """Say so where the queries that judge a training were learned by its teacher."""
        if conflict := learned_by([self.retriever], training.split, training.holdout):
            system, split = conflict
            message = (
                "the teacher learned queries of %s that this training holds out, so held-out measures look too good: "
                "training.holdout of its %s is %s, here it is %s"
            )
            _log.warning(message, split, system.kind, system.tuning.holdout, training.holdout)


@contextlib.contextmanager
def _alone(file: Path) -> Generator[None]:
    """Wait until no other process makes this file; where there can be no lock, everyone makes it.

    Processes that train together have to go on together, so none of them waits for another.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(TrieverError):
            if os.environ.get("WORLD_SIZE", "1") == "1":
                held.enter_context(locked(file.with_suffix(".lock"), LONGEST))
        yield


def _kept(file: Path, shape: tuple[int, int]) -> Opinions | None:
    """What was kept in a file, or none if it is not there or cannot be read: it can be made again."""
    try:
        with np.load(file) as arrays:
            kept = Opinions(arrays["rows"], arrays["scores"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    return kept if kept.rows.shape == kept.scores.shape == shape else None


def _found(engine: Engine, store: DocumentStore, texts: Sequence[str], depth: int) -> Found:
    """(texts, depth) the rows and the scores of what an engine finds; -inf where it found fewer."""
    rows = np.zeros((len(texts), depth), np.int32)
    scores = np.full((len(texts), depth), -np.inf, np.float32)
    for number, result in enumerate(engine.search(store, texts, depth)):
        for at, hit in enumerate(result):
            rows[number, at], scores[number, at] = store.row(hit.id), hit.score
    return rows, scores


@dataclass(frozen=True)
class Asking:
    """What a worker elsewhere does: it opens a saved teacher, and asks it."""

    teacher: Path
    depth: int
    mark: str
    kind = "asking"

    def begin(self, device: str) -> Work:
        """Open the teacher."""
        retriever = load(self.teacher)

        def work(block: pa.Table, file: BinaryIO) -> None:
            rows, scores = _found(retriever.engine, retriever.searched, block["text"].to_pylist(), self.depth)
            np.savez(file, rows=rows, scores=scores)

        return work
