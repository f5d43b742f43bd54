"""Teaching docids whose every node has a row: an encoder learns to read questions so that the right rows are near."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from triever import artifact
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.engines import nodes
from triever.engines.docids import Reading
from triever.engines.node_docids import Rows, fitted_trie, passage_vectors
from triever.engines.nodes import NodeEngine
from triever.errors import UsageError
from triever.learning.asked import Asked
from triever.learning.docid_options import DocidRetriever, R, VectorSystem, view_names
from triever.learning.docid_views import views_of
from triever.learning.docids import ADVICE, warn_of_codes
from triever.learning.encoders import check_memory, device_name
from triever.learning.node_lesson import Material, NodeLesson, Order, TaughtBatches, row_loss
from triever.learning.teachers import Teacher
from triever.models.adapters import AdapterOptions
from triever.models.encoder import Encoder
from triever.models.precision import device_of
from triever.models.row_model import RowModel
from triever.retriever import Retriever
from triever.training import fit_fingerprints
from triever.training.loop import train
from triever.training.opinions import LABELLED, Teaching
from triever.training.tuning import WATCH, summary
from triever.training.views import IGNORED, Labelled, View, check_shares, coverage, questions_of

_log = logging.getLogger("triever")

QUESTIONS = {"labelled", "generated"}
"""The views that are questions."""
ASKED = 0.9
"""The share of documents with a question from which on rows learn: where fewer have one, the others' would suffer."""
SLOW = (
    "dense retrieval is learned first, %s steps, which take long without a GPU; training.encoder_steps=0 leaves the "
    "encoder as it comes"
)
SCALE_RATE = 20.0
"""How many times faster the scale learns than rows do: it is a single number, and far from 0."""


@dataclass(eq=False)
class NodeRetriever(DocidRetriever[R]):
    """The options of a retriever whose docids may have a row for every node: `decoder.rows = nodes`."""

    passages: int = option(
        7, "with rows of nodes: docids for at most so many passages of a document, besides one for its whole text"
    )
    asked: int = option(
        8, "with rows of nodes: docids for at most so many training questions that a document answers; 0: for none"
    )
    teacher: Retriever[Any] | None = option(
        None, "with rows of nodes: a retriever, or its folder, whose order of documents the training follows too"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passages < 0:
            raise UsageError(f"passages = {self.passages} should not be negative", "0 reads whole texts alone")
        if self.asked < 0:
            raise UsageError(f"asked = {self.asked} should not be negative", "0 gives questions no docids")
        if self.asks_for_nodes:
            self.check_nodes()
        elif self.teacher is not None:
            raise UsageError("a teacher is followed only by rows of nodes", "set decoder.rows=nodes, or leave it out")
        else:
            self.check_symbols()

    def check_nodes(self) -> None:
        """Refuse what rows of nodes cannot be combined with."""
        if self.given:
            problem = "rows of nodes begin as vectors of what reads questions, and given vectors are of another model"
            raise UsageError(problem, "leave decoder.rows and teacher out, or name a dense retriever with given.file")
        if self.search_options.writes_freely or self.search_options.normalisation == "vocabulary":
            problem = (
                "rows of nodes score no symbols, so a free search or a vocabulary normalisation has nothing to score"
            )
            raise UsageError(problem, "leave search_options.method and search_options.normalisation out")
        if self.adapter != AdapterOptions():
            problem = "an adapter is part of a model with rows of symbols, but nodes have rows here"
            raise UsageError(problem, "set decoder.rows=symbols, or the adapter of the encoder: vectors.adapter.kind")
        if self.training.normalisation == "trie":
            if self.decoder.rows == "auto" and self.teacher is None:
                problem = "search_options.normalisation = documents needs a row for every node, and "
                problem += "training.normalisation = trie trains a model that has none"
                raise UsageError(problem, "leave one of the two out")
            problem = "training.normalisation = trie, but rows of nodes are trained over all documents"
            raise UsageError(problem, "leave training.normalisation out")
        if self.training.add_steps:
            problem = "training.add_steps has nothing to train where nodes have rows: new documents bring theirs"
            raise UsageError(problem, "leave training.add_steps out")

    def check_symbols(self) -> None:
        """Refuse what rows of symbols cannot be combined with."""
        if self.search_options.normalisation == "documents":
            problem = "search_options.normalisation = documents needs a row for every node"
            raise UsageError(problem, "set decoder.rows=nodes, or leave search_options.normalisation out")

    @property
    def asks_for_nodes(self) -> bool:
        """Whether something that is set has a meaning for rows of nodes only."""
        implied = self.teacher is not None or self.search_options.normalisation == "documents"
        return self.decoder.rows == "nodes" or (self.decoder.rows == "auto" and implied)

    @property
    def members(self) -> tuple[Retriever[Any], ...]:
        """The retriever whose vectors docids are made from, and the teacher, where they are named."""
        return (*super().members, *((self.teacher,) if self.teacher is not None else ()))

    def node_teaching(self, dataset: Dataset) -> NodeTeaching:
        """How rows and what reads questions are trained."""
        return NodeTeaching(self, self.dense or self._own_dense(dataset))

    def _own_dense(self, dataset: Dataset) -> VectorSystem:
        """Dense retrieval with the same backbone, trained first where there are judged queries, to begin rows with."""
        training = self.training
        steps = training.encoder_steps if self.learns_queries(dataset) else 0
        if steps and device_name(self.device) == "cpu" and not self.backbone.startswith("scratch"):
            _log.warning(SLOW, steps)
        options = {
            "kind": "dense",
            "backbone": self.backbone,
            "fetch": self.fetch,
            "query_length": self.read_length,
            "document_length": min(self.document_length, 256),
            "training": {
                "steps": steps,
                "split": training.split,
                "holdout": training.holdout,
                "seed": training.seed,
            },
            "device": self.device,
        }
        return cast("VectorSystem", Retriever.of_options(options, "vectors"))

    def read_nodes(self, snapshot: artifact.Snapshot) -> NodeEngine | None:
        """The rows and docids of an artifact, if its nodes have rows."""
        if "nodes" not in snapshot.state and self.decoder.rows != "nodes":
            return None
        device = device_of(self.device, opening=True)
        return nodes.read(snapshot, self.docids, self.search_options, device, self.read_length)


@dataclass(frozen=True)
class NodeTeaching:
    """How an encoder and rows are trained, by the options of a retriever that holds this."""

    options: NodeRetriever[Any]
    vectors: VectorSystem

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None) -> NodeEngine:
        """Train an encoder, or what turns its vectors, and give every text a docid and a row."""
        options = self.options
        names = self._view_names(dataset, store)
        if options.training.steps and names:
            self._check_views(names)
        dense = self.vectors.engine_for(dataset, store, work / "vectors" if work else None)
        placer = dense.encoder
        reading = Reading(self.vectors.query_prefix, self.vectors.document_prefix, self.vectors.document_length)
        whole = np.asarray(dense.index.vectors(), np.float32)
        row, owners = passage_vectors(placer, reading, store, options.passages, whole)
        learns = bool(names) and options.training.steps > 0
        rows, turned = torch.from_numpy(row), learns and not self._reader_share(names)
        model = RowModel(copy.deepcopy(placer), rows, torch.from_numpy(owners), turned=turned)
        model = model.to(device_name(options.device)).eval()
        lesson = self._lesson(model, reading, dataset, store, work)
        trained, asked, mass = self._train(lesson, dataset, store, work) if lesson else ({}, None, 0.0)
        return self._engine(model, placer, reading, store, asked, mass, trained)

    def _reader_share(self, names: Sequence[str]) -> float:
        """The reader's share of the learning rate; with 0 it stays as it is, and what turns its vectors learns instead.

        Where none is given, that is how questions are learned: it is faster by far, and other documents suffer less.
        """
        training = self.options.training
        return 0.0 if training.reader is None and set(names) <= QUESTIONS else training.reader_share

    def _check_views(self, names: Sequence[str]) -> None:
        options = self.options
        check_shares(names, options.views.weights or [1.0] * len(names), options.training.batch)
        if not self._reader_share(names) and not set(names) <= QUESTIONS:
            problem = "training.reader = 0 learns from questions only where nodes have rows, and views.names has others"
            raise UsageError(problem, "leave views.names out, or raise training.reader")

    def _engine(
        self,
        model: RowModel,
        placer: Encoder,
        reading: Reading,
        store: DocumentStore,
        asked: Asked | None,
        mass: float,
        trained: Mapping[str, Any],
    ) -> NodeEngine:
        """What searches, with docids for texts, and for questions that count so much."""
        options = self.options
        row, owners = model.rows_now().detach().cpu().numpy(), model.owners.cpu().numpy()
        counts = model.masses().cpu().numpy().astype(np.float32)
        if asked is not None and mass:
            row, owners = np.concatenate([row, asked.vectors]), np.concatenate([owners, asked.owners])
            counts = np.concatenate([counts, np.full(len(asked), mass, np.float32)])
            order = owners.argsort(kind="stable")
            row, owners, counts = row[order], owners[order], counts[order]
        scheme, numbers = copy.deepcopy(options.docids), np.arange(len(row))
        trie = fitted_trie(scheme, list(store), owners, torch.from_numpy(row), placer.device)
        warn_of_codes(trie, scheme, ranked=True)
        return NodeEngine(
            model.reader_now(),
            model.placer_now(placer),
            Rows(row.astype(np.float16), owners, numbers, counts),
            scheme,
            trie,
            float(model.scale.detach()),
            reading,
            options.read_length,
            options.passages,
            options.search_options,
            passage_mass=model.passage_mass,
            trained=trained,
        )

    def _view_names(self, dataset: Dataset, store: DocumentStore) -> Sequence[str]:
        """The views that are asked for, or else the questions that there are: pieces of texts are no questions."""
        names = view_names(self.options, dataset, store.expanded)
        return names if self.options.views.names else [name for name in names if name != "chunks"]

    def _lesson(
        self, model: RowModel, reading: Reading, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> NodeLesson | None:
        """What the model is to learn from, if there is anything."""
        names = self._view_names(dataset, store)
        if not self.options.training.steps or not names:
            return None
        material = Material(model, reading, (model.at_most(self.options.read_length), reading.query_prefix))
        asked = replace(self.options, views=replace(self.options.views, names=tuple(names)))
        views, held = views_of(asked, material, dataset, store, work)
        return NodeLesson(model, material, views, held)

    def _train(
        self, lesson: NodeLesson, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> tuple[dict[str, Any], Asked, float]:
        """How the training went, the questions that documents are known to answer, and how much each should count."""
        model = lesson.model
        vectors = lesson.question_vectors() if model.turns_rows is not None else {}
        lesson.choose_start()
        start = lesson.ranks() if lesson.held else []
        teaching = self._teaching(lesson.views, dataset, store, work)
        lesson, about = self._best_trial(lesson, teaching, vectors, store, work)
        if model.passage_mass != 1.0:
            about["mass of a passage"] = model.passage_mass
        if model.turns_rows is not None:
            about |= {"kept of matrices": model.kept, **lesson.held_out()}
        asked, mass, quality_with = lesson.asked(self.options.asked, vectors, start)
        if teaching:
            about |= teaching.about
        if mass:
            about["docids of questions"] = {"count": len(asked), "mass": round(mass, 5), **quality_with}
        covered = {f"view {name}": share for name, share in coverage(lesson.views, len(store)).items()}
        return {**about, **covered}, asked, mass

    def _best_trial(
        self,
        lesson: NodeLesson,
        teaching: Teaching | None,
        vectors: Mapping[str, np.ndarray],
        store: DocumentStore,
        work: Path | None,
    ) -> tuple[NodeLesson, dict[str, Any]]:
        """What was learned from, and how that went: of several trials the one that held-out questions find best."""
        model, trials = lesson.model, self._trials(lesson)
        begun, results = model.learned() if len(trials) > 1 else None, []
        for folder, trial in trials.items():
            if begun:
                model.restore(begun)
            about = self._learn_from(trial, teaching, vectors, store, work / folder if work else None)
            if model.turns_rows is not None:
                trial.choose_kept()
            if not begun:
                return trial, about
            results.append((sum(trial.ranks()), trial, about, model.learned()))
        _, trial, about, learned = max(results, key=lambda result: result[0])
        model.restore(learned)
        return trial, about

    def _trials(self, lesson: NodeLesson) -> dict[str, NodeLesson]:
        """All views; where some are judged and some written, and nobody said which to take, the judged ones alone too.

        Written questions may be better or worse than those that people ask. By matrices a trial takes little time.
        """
        trials, given = {"training": lesson}, self.options.views
        is_open = not given.names and not given.weights and lesson.held and lesson.model.turns_rows is not None
        if is_open and set(lesson.views) == QUESTIONS:
            trials["training-judged"] = replace(lesson, views={LABELLED: lesson.views[LABELLED]})
        return trials

    def _learn_from(
        self,
        lesson: NodeLesson,
        teaching: Teaching | None,
        vectors: Mapping[str, np.ndarray],
        store: DocumentStore,
        folder: Path | None,
    ) -> dict[str, Any]:
        """Train on the views of a lesson, and tell how it went."""
        options, model = self.options.training, lesson.model
        learns = self._rows_learn(lesson.views, len(store))
        model.rows.requires_grad_(learns)
        asked = np.unique(np.concatenate([view.covered() for view in lesson.views.values()]))
        among = self._among(model, asked, teaching)
        order = Order.of(lesson, self.options, store) if options.order else None
        trained = train(
            model,
            lambda module, batch: row_loss(module, batch, options.teacher_weight, order, among),
            self._rounds(lesson, teaching, vectors, _positions(asked, len(store)), order),
            options,
            evaluate=(lambda _module: lesson.quality()) if lesson.held else None,
            watch=WATCH if lesson.held else "",
            folder=folder,
            given={"rows": fit_fingerprints.of_array(model.rows.detach().cpu().numpy())},
            device=self.options.device,
            share=_rate_share(self._reader_share([*lesson.views])),
            advice=ADVICE if teaching else f"{ADVICE}, or a teacher",
        )
        return {**summary(trained), "rows": "learned" if learns else "fixed"}

    @staticmethod
    def _among(model: RowModel, asked: np.ndarray, teaching: Teaching | None) -> Tensor | None:
        """The documents that likelihoods are over, if the model scores others too: those that questions are about.

        Others would only ever be wrong, and sink. Of them a teacher alone has something to say, so without one the
        model does not score them.
        """
        among = torch.from_numpy(asked)
        if teaching is None:
            model.train_among(among)
            return None
        return among.to(model.rows.device) if len(asked) < model.documents else None

    def _rounds(
        self,
        lesson: NodeLesson,
        teaching: Teaching | None,
        vectors: Mapping[str, np.ndarray],
        positions: np.ndarray,
        order: Order | None,
    ) -> Callable[[int], TaughtBatches]:
        options, model = self.options.training, lesson.model
        weights = self.options.views.weights or [1.0] * len(lesson.views)
        pad = model.encoder.tokenizer.pad
        longest = 1 if vectors else max(self.options.read_length, self.options.views.length)
        scores, device = 2 * options.batch * len(model.rows), str(model.rows.device)
        check_memory(
            model.encoder, options, options.batch, longest, device, scores=scores, parameters=model.rows.numel()
        )
        return lambda number: TaughtBatches(
            lesson.views,
            weights,
            positions,
            options.batch,
            options.batches,
            options.seed,
            number,
            pad,
            teaching,
            vectors,
            order.renewed(vectors) if order else {},
        )

    def _rows_learn(self, views: Mapping[str, View], documents: int) -> bool:
        """Whether rows learn too: by default where people asked about nearly every document."""
        wanted, labelled = self.options.training.rows, views.get(LABELLED)
        share = len(labelled.covered()) / max(1, documents) if labelled else 0.0
        return wanted == "learned" or (wanted == "auto" and share >= ASKED)

    def _teaching(
        self, views: Mapping[str, View], dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> Teaching | None:
        """What the teacher thinks of labelled and written questions."""
        if self.options.teacher is None:
            return None
        texts = {name: view.texts for name, view in questions_of(views).items()}
        labelled = views.get(LABELLED)
        judged = labelled.pairs if isinstance(labelled, Labelled) else None
        teacher = Teacher(self.options.teacher, dataset, store, work / "teacher" if work else None)
        return teacher.teaching(texts, judged, self.options.training)


def _positions(asked: np.ndarray, documents: int) -> np.ndarray:
    """(documents, 1) where each document stands among those that questions are about."""
    positions = np.full((documents, 1), IGNORED)
    positions[asked, 0] = np.arange(len(asked))
    return positions


def _rate_share(reader: float) -> Callable[[str], float]:
    return lambda name: SCALE_RATE if name == "scale" else reader if name.startswith("reader.") else 1.0
