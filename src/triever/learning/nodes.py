"""Teaching docids whose every node has a row: an encoder learns to read questions so that the right rows are near."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from triever import artifact
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.docids.trie import Trie
from triever.engines import nodes
from triever.engines.docids import Reading
from triever.engines.nodes import NodeEngine, Rows, numbered, passage_vectors
from triever.errors import UsageError
from triever.learning.docids import ADVICE, DocidRetriever, DocidTeaching, R, VectorSystem, seen_by, view_names
from triever.learning.encoders import check_memory, device_name
from triever.learning.teachers import Teacher
from triever.models.encoder import encode
from triever.models.precision import device_of
from triever.models.row_model import RowModel
from triever.models.tokens import Tokens
from triever.ranks import reciprocal_rank
from triever.retriever import Retriever
from triever.training import fit_fingerprints
from triever.training.loop import train
from triever.training.losses import divergence
from triever.training.opinions import LABELLED, Teaching
from triever.training.pairs import Pairs
from triever.training.tuning import WATCH, quality, summary
from triever.training.views import Drawn, Generated, Labelled, View, ViewBatches, check_shares, coverage

ASKED = 0.9
"""The share of documents with a question from which on rows learn: where fewer have one, the others' would suffer."""
SCALE_RATE = 20.0
"""How many times faster the scale learns than rows do: it is a single number, and far from 0."""


@dataclass(frozen=True)
class TaughtBatches(ViewBatches):
    """Batches of texts with the rows of their documents, and with what a teacher thinks of them."""

    teaching: Teaching | None = None

    def batch_of(self, drawn: Sequence[Drawn]) -> dict[str, Tensor]:
        """The texts of all views together; `targets` (texts, 1) are the rows of their documents."""
        batch = super().batch_of(drawn)
        if self.teaching is None:
            return batch
        parts = [self.teaching.of(part.name, part.examples) for part in drawn]
        names = ("candidates", "taught")
        return batch | {
            name: torch.from_numpy(np.concatenate(part))
            for name, part in zip(names, zip(*parts, strict=True), strict=True)
        }


@dataclass(frozen=True)
class Material:
    """What stands for documents in a training, and how questions are read: what views are made for."""

    model: RowModel
    reading: Reading
    queries: tuple[int, str]


@dataclass(eq=False)
class NodeRetriever(DocidRetriever[R]):
    """The options of a retriever whose docids may have a row for every node: `decoder.rows = nodes`."""

    passages: int = option(
        7, "with rows of nodes: docids for at most so many passages of a document, besides one for its whole text"
    )
    teacher: Retriever[Any] | None = option(
        None, "with rows of nodes: a retriever, or its folder, whose order of documents the training follows too"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passages < 0:
            raise UsageError(f"passages = {self.passages} should not be negative", "0 reads whole texts alone")
        if self.asks_for_nodes:
            self.check_nodes()
        elif self.teacher is not None:
            raise UsageError("a teacher is followed only by rows of nodes", "set decoder.rows=nodes, or leave it out")
        else:
            self.check_symbols()

    def check_nodes(self) -> None:
        """Refuse what rows of nodes cannot be combined with."""
        if self.search_options.method == "free" or self.search_options.normalisation == "vocabulary":
            problem = (
                "rows of nodes score no symbols, so a free search or a vocabulary normalisation has nothing to score"
            )
            raise UsageError(problem, "leave search_options.method and search_options.normalisation out")
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
        return NodeTeaching(self, self.dense or self._own_dense(dataset), self.teacher, self.passages)

    def _own_dense(self, dataset: Dataset) -> VectorSystem:
        """Dense retrieval with the same backbone, trained first where there are judged queries, to begin rows with."""
        training = self.training
        steps = training.encoder_steps if self.learns_queries(dataset) else 0
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

    options: DocidRetriever[Any]
    vectors: VectorSystem
    teacher: Retriever[Any] | None
    limit: int
    """Passages of a document that have docids, besides its whole text."""

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None) -> NodeEngine:
        """Give every passage a docid and a row, and train."""
        options = self.options
        names = self._view_names(dataset, store)
        if options.training.steps and names:
            check_shares(names, options.views.weights or [1.0] * len(names), options.training.batch)
        dense = self.vectors.engine_for(dataset, store, work / "vectors" if work else None)
        placer = dense.encoder
        reading = Reading(self.vectors.query_prefix, self.vectors.document_prefix, self.vectors.document_length)
        row, owners = passage_vectors(placer, reading, store, self.limit)
        scheme = copy.deepcopy(options.docids)
        texts = list(store)
        fitted = scheme.fit([texts[owner] for owner in owners], torch.from_numpy(row), placer.device)
        numbers = np.arange(len(fitted))
        trie = Trie.of(zip(numbered(scheme, fitted, numbers), numbers.tolist(), strict=True))
        model = RowModel(copy.deepcopy(placer), torch.from_numpy(row), torch.from_numpy(owners))
        model = model.to(device_name(options.device)).eval()
        trained = self._train(model, reading, dataset, store, work)
        rows = Rows(model.rows.detach().half().cpu().numpy(), owners, numbers)
        return NodeEngine(
            model.reader,
            placer,
            rows,
            scheme,
            trie,
            float(model.scale.detach()),
            reading,
            options.read_length,
            self.limit,
            options.search_options,
            trained=trained,
        )

    def _view_names(self, dataset: Dataset, store: DocumentStore) -> Sequence[str]:
        """The views that are asked for, or else the questions that there are: pieces of texts are no questions."""
        names = view_names(self.options, dataset, store.expanded)
        return names if self.options.views.names else [name for name in names if name != "chunks"]

    def _train(
        self, model: RowModel, reading: Reading, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> dict[str, Any]:
        options, names = self.options.training, self._view_names(dataset, store)
        if not options.steps or not names:
            return {}
        material = Material(model, reading, (model.at_most(self.options.read_length), reading.query_prefix))
        asked = replace(self.options, views=replace(self.options.views, names=tuple(names)))
        views, held = DocidTeaching(asked, row_loss).views(material, dataset, store, work)
        teaching = self._teaching(views, dataset, store, work)
        learns = self._rows_learn(views, len(store))
        model.rows.requires_grad_(learns)
        trained = train(
            model,
            lambda module, batch: row_loss(module, batch, options.teacher_weight),
            self._rounds(model, views, teaching, len(store)),
            options,
            evaluate=(lambda _module: quality(_ranks(model, material, held), seen_by(views, held))) if held else None,
            watch=WATCH if held else "",
            folder=work / "training" if work else None,
            given={"rows": fit_fingerprints.of_array(model.rows.detach().cpu().numpy())},
            device=self.options.device,
            share=_rate_share(options.reader),
            advice=ADVICE if teaching else f"{ADVICE}, or a teacher",
        )
        covered = {f"view {name}": about for name, about in coverage(views, len(store)).items()}
        about = {"rows": "learned" if learns else "fixed"}
        if teaching:
            about |= teaching.about
        return {**summary(trained), **about, **covered}

    def _rounds(
        self, model: RowModel, views: Mapping[str, View], teaching: Teaching | None, documents: int
    ) -> Callable[[int], TaughtBatches]:
        options = self.options.training
        weights = self.options.views.weights or [1.0] * len(views)
        targets, pad = np.arange(documents)[:, None], model.encoder.tokenizer.pad
        longest = max(self.options.read_length, self.options.views.length)
        scores, device = 2 * options.batch * len(model.rows), str(model.rows.device)
        check_memory(
            model.encoder, options, options.batch, longest, device, scores=scores, parameters=model.rows.numel()
        )
        return lambda number: TaughtBatches(
            views, weights, targets, options.batch, options.batches, options.seed, number, pad, teaching
        )

    def _rows_learn(self, views: Mapping[str, View], documents: int) -> bool:
        """Whether rows learn too: by default where nearly every document has a question."""
        wanted = self.options.training.rows
        asked = [view.covered() for view in views.values() if isinstance(view, Labelled | Generated)]
        share = len(np.unique(np.concatenate(asked))) / max(1, documents) if asked else 0.0
        return wanted == "learned" or (wanted == "auto" and share >= ASKED)

    def _teaching(
        self, views: Mapping[str, View], dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> Teaching | None:
        """What the teacher thinks of labelled and written questions."""
        if self.teacher is None:
            return None
        texts = {name: view.texts for name, view in views.items() if isinstance(view, Labelled | Generated)}
        labelled = views.get(LABELLED)
        judged = labelled.pairs if isinstance(labelled, Labelled) else None
        teacher = Teacher(self.teacher, dataset, store, work / "teacher" if work else None)
        return teacher.teaching(texts, judged, self.options.training)


def row_loss(module: nn.Module, batch: Mapping[str, Tensor], weight: float = 1.0) -> dict[str, Tensor]:
    """The likelihood of right documents, and the distance from a teacher's order."""
    scores = module(batch["ids"], batch["mask"])
    losses = {"likelihood": functional.cross_entropy(scores, batch["targets"][:, 0])}
    if "taught" in batch:
        losses["teacher"] = weight * divergence(scores.gather(1, batch["candidates"]), batch["taught"])
    return losses


def _rate_share(reader: float) -> Callable[[str], float]:
    return lambda name: SCALE_RATE if name == "scale" else 1.0 if name == "rows" else reader


@torch.inference_mode()
def _ranks(model: RowModel, material: Material, held: Pairs) -> list[float]:
    """How early each held-out question finds its documents, by the rows of all."""
    length, prefix = material.queries
    tokens = Tokens.of((prefix + text for text in held.texts), model.encoder.tokenizer, length)
    vectors = torch.from_numpy(encode(model.encoder, tokens)).to(model.rows.device)
    ranks: list[float] = []
    for low in range(0, len(vectors), 64):
        best = model.weights(vectors[low : low + 64]).topk(min(10, model.documents)).indices.cpu().numpy()
        ranks += [reciprocal_rank(np.isin(rows, held.of(low + at)).tolist()) for at, rows in enumerate(best)]
    return ranks
