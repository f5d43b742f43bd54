"""What a training of rows is about: a model, views of documents, the questions that are held out, and the loss."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from triever.data.store import DocumentStore
from triever.engines.docids import Reading
from triever.learning.asked import NOTHING_ASKED, Asked, is_worse
from triever.learning.docid_options import DocidRetriever
from triever.learning.docid_views import seen_by
from triever.learning.order import CONFUSED, PrefixTables, PrefixTree, confused
from triever.models.encoder import encode
from triever.models.node_rows import Steering
from triever.models.row_model import KEPT, RowModel
from triever.models.tokens import Tokens
from triever.training.losses import divergence
from triever.training.opinions import Teaching
from triever.training.pairs import Pairs
from triever.training.tuning import quality
from triever.training.views import Drawn, View, ViewBatches, questions_of

PASSAGE_MASSES = (1.0, 0.3, 0.1, 0.03)
"""What a passage may count beside a whole text."""
SCALES = (30.0, 45.0, 60.0)
"""What the products of questions and rows may be multiplied by, before it is learned."""


@dataclass(frozen=True)
class TaughtBatches(ViewBatches):
    """Batches of texts with the rows of their documents, and with what a teacher thinks of them."""

    teaching: Teaching | None = None
    vectors: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The vectors of the texts of each view, where what reads stays as it is: then no batch is read again."""
    confused: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The wrong documents (texts, c) that the texts of each view are compared with, if there are any."""

    def batch_of(self, drawn: Sequence[Drawn]) -> dict[str, Tensor]:
        """The texts of all views together; `targets` (texts, 1) say where their documents stand."""
        batch = super().batch_of(drawn)
        if self.vectors:
            read = np.concatenate([self.vectors[part.name][part.examples] for part in drawn])
            batch = {"vectors": torch.from_numpy(read), "targets": batch["targets"]}
        if self.confused:
            batch["compared"] = torch.from_numpy(np.concatenate([self._compared(part) for part in drawn]))
        if self.teaching is None:
            return batch
        parts = [self.teaching.of(part.name, part.examples) for part in drawn]
        names = ("candidates", "taught")
        return batch | {
            name: torch.from_numpy(np.concatenate(part))
            for name, part in zip(names, zip(*parts, strict=True), strict=True)
        }

    def _compared(self, part: Drawn) -> np.ndarray:
        """(texts, 1 + c) the right documents, and those that they are confused with; -1 for views without any."""
        nothing = np.full((len(part.rows), CONFUSED), -1)
        others = self.confused[part.name][part.examples] if part.name in self.confused else nothing
        return np.concatenate([part.rows[:, None], others], 1)


@dataclass(frozen=True)
class Material:
    """What stands for documents in a training, and how questions are read: what views are made for."""

    model: RowModel
    reading: Reading
    queries: tuple[int, str]


@dataclass(frozen=True)
class NodeLesson:
    """What a training is about: a model, views of documents, and the questions that are held out, if there are any."""

    model: RowModel
    material: Material
    views: Mapping[str, View]
    held: Pairs | None

    @cached_property
    def _held_once(self) -> Tensor:
        """The vectors of held-out questions, by the reader as it was first asked for them."""
        return self._read_held()

    def ranks(self) -> list[float]:
        """How early each held-out question finds its documents, by the rows of texts."""
        assert self.held is not None  # it is asked for only where there are some
        return NOTHING_ASKED.ranks(self.model, self._held_vectors(), self.held, 0.0)

    def quality(self) -> dict[str, float]:
        """The same as measures of all, and of those about seen and unseen documents."""
        return quality(self.ranks(), self._seen)

    def held_out(self) -> dict[str, float]:
        """The same for a card; nothing without held-out questions."""
        measures = self.quality() if self.held else {}
        return {f"held-out {name}": round(value, 4) for name, value in measures.items()}

    @property
    def _seen(self) -> np.ndarray:
        assert self.held is not None  # as above
        return seen_by(self.views, self.held)

    def _held_vectors(self) -> Tensor:
        """The vectors of held-out questions, by the reader as it is now."""
        return self._held_once if self.model.turns_rows is not None else self._read_held()

    def _read_held(self) -> Tensor:
        assert self.held is not None  # as above
        length, prefix = self.material.queries
        tokens = Tokens.of((prefix + text for text in self.held.texts), self.model.encoder.tokenizer, length)
        return torch.from_numpy(encode(self.model.encoder, tokens))

    def choose_start(self) -> None:
        """Begin as held-out questions ask for: how much passages count, and how sharply rows are told apart."""
        model = self.model
        if self.held is None or model.documents == len(model.rows):
            return  # without passages, neither changes the order of documents
        usual, vectors, ranks = (model.passage_mass, float(model.scale.detach())), self._held_vectors(), {}
        for start in dict.fromkeys([usual, *itertools.product(PASSAGE_MASSES, SCALES)]):
            self._begin(*start)
            ranks[start] = np.array(NOTHING_ASKED.ranks(model, vectors, self.held, 0.0))
        best = max(ranks, key=lambda start: float(ranks[start].sum()))
        self._begin(*(best if is_worse(ranks[usual], ranks[best]) else usual))

    def _begin(self, passage_mass: float, scale: float) -> None:
        self.model.passage_mass = passage_mass
        with torch.no_grad():
            self.model.scale.fill_(scale)

    def choose_kept(self) -> None:
        """Keep as much of what matrices have learned as held-out questions ask for: the least that is not worse."""
        if self.held is None:
            return
        ranks = {}
        for kept in KEPT:
            self.model.kept = kept
            ranks[kept] = np.array(self.ranks())
        best = max(ranks.values(), key=np.sum)
        self.model.kept = next(kept for kept in KEPT if not is_worse(ranks[kept], best))

    def question_vectors(self) -> dict[str, np.ndarray]:
        """The vectors of the questions of each view, by the reader as it is."""
        return {name: encode(self.model.encoder, view.tokens) for name, view in questions_of(self.views).items()}

    def asked(
        self, limit: int, vectors: Mapping[str, np.ndarray], start: Sequence[float]
    ) -> tuple[Asked, float, dict[str, float]]:
        """At most `limit` questions for each document, what each should count, and the quality with them.

        `vectors` are those of all questions by the reader, if they are known, and `start` has the ranks of held-out
        questions before the training. Without held-out questions, nothing says what they should count: then it is 0.
        """
        if not limit or self.held is None:
            return NOTHING_ASKED, 0.0, {}
        vectors, device = vectors or self.question_vectors(), self.model.rows.device
        with torch.inference_mode():
            as_compared = {
                name: self.model.questions(torch.from_numpy(of_view).to(device)).cpu().numpy()
                for name, of_view in vectors.items()
            }
        asked = Asked.of(self.views, as_compared, limit)
        held = self._held_vectors()
        mass = asked.fitted_mass(self.model, held, self.held, self._seen, start)
        found = quality(asked.ranks(self.model, held, self.held, mass), self._seen)
        return asked, mass, {f"held-out {name}": round(value, 4) for name, value in found.items()}


@dataclass
class Order:
    """The part of the loss that is about the order of prefixes; its tables are renewed in each round."""

    lesson: NodeLesson
    tree: PrefixTree
    weight: float
    tables: PrefixTables | None = None

    @classmethod
    def of(cls, lesson: NodeLesson, options: DocidRetriever[Any], store: DocumentStore) -> Order:
        """By the docids that rows have as a training begins."""
        return cls(lesson, PrefixTree.of(options.docids, list(store), lesson.model), options.training.order)

    def renewed(self, vectors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The documents that the model confuses now, for each view of questions; prefixes weigh what they do now."""
        model = self.lesson.model
        self.tables = self.tree.tables(model, Steering())
        return confused(model, self.lesson.views, vectors or self.lesson.question_vectors())

    def loss(self, questions: Tensor, compared: Tensor) -> Tensor:
        """The margins that right documents lack, as much as they count."""
        assert self.tables is not None  # a round has begun
        scale = self.lesson.model.scale.detach()  # which is learned by likelihood: a lower one would lower all margins
        return self.weight * self.tables.margin_loss(questions.float(), compared, scale)


def row_loss(
    module: nn.Module,
    batch: Mapping[str, Tensor],
    weight: float = 1.0,
    order: Order | None = None,
    among: Tensor | None = None,
) -> dict[str, Tensor]:
    """The likelihood of right documents, the distance from a teacher's order, and the margins that prefixes lack.

    The likelihood is over the documents `among` (n,), or over all that are scored; the teacher's order is over all.
    """
    scores, questions = module(batch.get("ids"), batch.get("mask"), batch.get("vectors"))
    likely = scores if among is None else scores[:, among]
    losses = {"likelihood": functional.cross_entropy(likely, batch["targets"][:, 0])}
    if "taught" in batch:
        losses["teacher"] = weight * divergence(scores.gather(1, batch["candidates"]), batch["taught"])
    if order and "compared" in batch:
        losses["order"] = order.loss(questions, batch["compared"])
    return losses
