"""Teachers: retrievers that are asked about the training questions of another one, which learns their order."""

from __future__ import annotations

import contextlib
import logging
import os
import zipfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from triever import config
from triever.data.cache import cache_folder
from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.engines.base import Engine
from triever.errors import DataError, TrieverError
from triever.files import atomic, locked
from triever.progress import track
from triever.retriever import Retriever, learned_by
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
            asked = _asked(self._engine, self.store, texts, depth)
            with contextlib.suppress(DataError), atomic(file) as opened:
                np.savez(opened, rows=asked.rows, scores=asked.scores)
            return asked

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


def _asked(engine: Engine, store: DocumentStore, texts: Sequence[str], depth: int) -> Opinions:
    rows = np.zeros((len(texts), depth), np.int32)
    scores = np.full((len(texts), depth), -np.inf, np.float32)
    blocks = range(0, len(texts), TOGETHER)
    for first in track(blocks, "asking the teacher", len(blocks), unit="batches of questions"):
        for number, result in enumerate(engine.search(store, texts[first : first + TOGETHER], depth), first):
            for at, hit in enumerate(result):
                rows[number, at], scores[number, at] = store.row(hit.id), hit.score
    return Opinions(rows, scores)
