"""Generative dense retrieval (GDR): a model writes the cluster, and vectors are matched inside it.

One encoder reads the query. A decoder attends to its states and writes the beginnings of docids; the same states,
pooled, are the vector that the documents below those beginnings are compared with. How much is written and how much is
matched is a dial: `matching.depth`, from 0, which is dense retrieval, to the whole docid.

With `decoder.rows = nodes` there is no decoder: a beam follows the heaviest prefixes, and documents are always ranked
by their own rows.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor, nn

from triever import artifact, config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.docids.branches import Branches
from triever.docids.schemes import Cluster, Scheme
from triever.engines import clusters
from triever.engines.clusters import ClusterEngine
from triever.engines.docids import Docids, attending, vectors_of
from triever.engines.match_fits import fit_for
from triever.engines.match_scores import RULES, MatchOptions
from triever.engines.nodes import NodeEngine
from triever.errors import UsageError
from triever.index.trie_vectors import TrieVectors
from triever.index.vectors import IndexOptions, VectorIndex
from triever.learning.docids import (
    Course,
    DocidTeaching,
    Lesson,
    WithEncoder,
    reciprocal_ranks,
    written_by,
)
from triever.learning.encoders import bm25_finder, check_memory
from triever.learning.nodes import NodeRetriever
from triever.models.cross_decoder import CrossDecoder
from triever.models.docid_model import laid_out
from triever.models.encoder import Encoder, encode
from triever.models.tokens import Tokens
from triever.retriever import learned_by
from triever.training.clusters import (
    ClusterBatches,
    ClusterNegatives,
    FixedVectors,
    Texts,
    cluster_numbers,
)
from triever.training.loop import gathered
from triever.training.losses import contrastive
from triever.training.mining import Find, JudgedQueries, asked_in, mined
from triever.training.pairs import Pairs, copies, held_out, pairs_of
from triever.training.views import IGNORED

QUERY = 64
"""Tokens of a query that are read where nothing says how many."""

_log = logging.getLogger("triever")


@dataclass(frozen=True)
class LossWeights:
    """What each part of the loss counts for: `LossWeights(contrastive=0.5)`."""

    likelihood: float = option(1.0, "minus the log-probability of the cluster; 0 leaves it out")
    contrastive: float = option(1.0, "minus the log-probability of the document among negatives; 0 leaves it out")

    def __post_init__(self) -> None:
        config.validate(self)
        if min(self.likelihood, self.contrastive) < 0 or not (self.likelihood or self.contrastive):
            problem = (
                f"losses.likelihood = {self.likelihood} and losses.contrastive = {self.contrastive} cannot be used"
            )
            raise UsageError(problem, "set both to 0 or more, and at least one above 0")


@dataclass(eq=False)
class GDR(NodeRetriever[ClusterEngine | NodeEngine]):
    """Generative dense retrieval: `GDR(vectors=Dense(training=Tuning(steps=700)), docids=Cluster(1000)).fit(data)`."""

    kind: ClassVar[str] = "gdr"
    search_only: ClassVar[tuple[str, ...]] = ("search_options", "matching")

    docids: Scheme = option(Cluster(), "what is written: cluster, or the beginning of any other, see matching.depth")
    matching: MatchOptions = option(MatchOptions(), "how much is written, and how it is joined with the match")
    losses: LossWeights = option(LossWeights(), "what the parts of the loss count for")
    negatives: ClusterNegatives = option(ClusterNegatives(), "where negatives come from")
    query_length: int = option(0, f"tokens of a query that are read; 0: as many as vectors reads, {QUERY} without it")
    joint: bool = option(False, "train the document encoder too, and make all vectors anew; clusters stay")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search_options.method != "beam":
            problem = f"search_options.method = {self.search_options.method}, but gdr searches clusters by a beam only"
            raise UsageError(problem, "leave search_options.method out, or use the system generative")
        if self.training.add_steps:
            problem = f"training.add_steps = {self.training.add_steps}, but gdr adds documents without training"
            raise UsageError(problem, "leave training.add_steps out, or use the system generative")

    def check_nodes(self) -> None:
        """Refuse what belongs to a decoder that writes, and what would rank documents by more than their rows."""
        super().check_nodes()
        ranked = "documents are ranked by their own rows where nodes have rows"
        if replace(self.matching, depth=None) != MatchOptions():
            problem = f"{ranked}, so that matching.rule, alpha, fit and temperature have nothing to join"
            raise UsageError(problem, "set nothing of matching but matching.depth")
        if self.search_options.normalisation == "trie":
            problem = f"{ranked}, and search_options.normalisation = trie ranks them by what prefixes weigh"
            raise UsageError(problem, "leave search_options.normalisation out, or use the system generative")
        given = (self.losses, self.negatives, self.joint)
        if given != (LossWeights(), ClusterNegatives(), False):
            problem = "losses, negatives and joint train a decoder, and rows of nodes have none"
            raise UsageError(problem, "leave all three out, or leave decoder.rows out")
        if isinstance(self.docids, Cluster) and self.docids.margin:
            problem = f"docids.margin = {self.docids.margin}, but every passage has one row and so one cluster"
            raise UsageError(problem, "leave docids.margin out: passages of a document may be in several clusters")

    @property
    def read_length(self) -> int:
        """How many tokens of a query are read."""
        return self.query_length or (self.dense.query_length if self.dense else QUERY)

    def searched_with(self, values: Mapping[str, Any]) -> Self:
        """The same with other options of the search; says so where alpha was fitted for others than these.

        An alpha that is given here is used, also where one was fitted.
        """
        given = values.get("matching")
        if isinstance(given, Mapping) and "alpha" in given and "fit" not in given:
            values = {**values, "matching": {**given, "fit": False}}
        other = super().searched_with(values)
        engine = other.engine
        if isinstance(engine, NodeEngine):
            return other
        other._check_rule()
        matching, fitted = other.matching, engine.fitted
        if matching.fit and matching.rule != "learned" and matching.depth != 0 and matching.way not in fitted:
            message = "matching.fit is set, but no alpha was fitted for %s: matching.alpha = %s is used"
            _log.warning(message, matching.way, matching.alpha)
        return other

    @property
    def depths(self) -> range:
        """What `matching.depth` may be: how many symbols of docids it can write."""
        return range(self.engine.deepest + 1)

    def compared(self, queries: Sequence[str], k: int = 10) -> float:
        """How often a query's vector is compared for so many hits, as a mean, and as a share of all documents.

        One that is in several clusters of the beam is compared in each: more than 1 is more work than dense retrieval.
        """
        held = self._checked()
        if not queries or not len(held.searched):
            return 0.0
        if isinstance(held.engine, NodeEngine):
            return held.engine.compared(queries, k)
        return float(np.mean(held.engine.searcher(self.matching.depth).compared(queries, k))) / len(held.searched)

    # Learning

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> ClusterEngine | NodeEngine:
        """Put documents into clusters, and teach a model to write these and to match vectors in them."""
        if self.asks_for_nodes:
            return self.configured(self.node_teaching(dataset).learn(dataset, store, work))
        self._check(dataset, store)
        begun, targets, vectors = self._teaching.begun(dataset, store, work)
        assert vectors is not None  # all schemes place documents by vectors here
        docids = attending(begun)
        taught = self.matching.depth if self.training.steps else None
        below, documents = self._laid_out(docids, vectors), self._learned_encoder(docids)
        engine = ClusterEngine(docids, below, self.search_options, self.matching, documents, taught=taught)
        trained = self._teaching.train(engine, targets, dataset, store, work, course=self._course, judge=self._ranks)
        engine = self._finished(replace(engine, docids=replace(docids, trained=trained)), store)
        return self._fitted_at_depths(engine, self._held_out(dataset, store)) if self.matching.fits else engine

    def configured(self, engine: ClusterEngine | NodeEngine) -> ClusterEngine | NodeEngine:
        """The engine, searched and matched as the options say."""
        if isinstance(engine, NodeEngine):
            self.check_nodes()
            return replace(engine, options=self.search_options, depth=self.matching.depth)
        self.check_symbols()
        return replace(engine, options=self.search_options, matching=self.matching)

    def read(self, snapshot: artifact.Snapshot) -> ClusterEngine | NodeEngine:
        """The clusters of an artifact, and the vectors in them."""
        if by_nodes := self.read_nodes(snapshot):
            return self.configured(by_nodes)
        return clusters.read(snapshot, attending(self._teaching.read(snapshot)), self.search_options, self.matching)

    @property
    def _teaching(self) -> DocidTeaching[ClusterEngine]:
        return DocidTeaching(self, self._loss_of_batch, attends=True, by_vectors=True)

    def _check(self, dataset: Dataset, store: DocumentStore) -> None:
        """Refuse what is known to be impossible before any text is read."""
        self._teaching.check(dataset, store)
        self._check_rule()
        if self.training.steps:
            self._check_training()
        if self.matching.fits:
            self._check_unseen()
            self._held_out(dataset, store)

    def _check_rule(self) -> None:
        if self.matching.rule == "sum" and self.dense and not self.dense.unit:
            problem = "matching.rule = sum needs vectors of length one: otherwise tanh makes most scores equal"
            raise UsageError(problem, "use matching.rule=loglinear, or a dense retriever with unit=true")

    def _check_training(self) -> None:
        """Refuse a training in which something that should learn does not."""
        reads = self.begins_anew or self.training.reader_share > 0
        writes = self.losses.likelihood and self.matching.depth != 0
        if not writes and not self.losses.contrastive:
            problem = "matching.depth = 0 and losses.contrastive = 0 leave nothing to learn"
            raise UsageError(problem, "raise matching.depth or losses.contrastive")
        if not writes and not reads:
            problem = "with matching.depth = 0 or losses.likelihood = 0, training.reader = 0 leaves nothing to train"
            raise UsageError(problem, "raise training.reader, losses.likelihood or matching.depth")
        if self.joint and not (self.losses.contrastive and reads):
            problem = "joint = true needs losses.contrastive and training.reader above 0 to train the document encoder"
            raise UsageError(problem, "leave joint out, or raise both")
        if self.losses.contrastive and not reads:
            problem = f"losses.contrastive = {self.losses.contrastive}, but training.reader = 0 trains no vectors"
            raise UsageError(problem, "set losses.contrastive=0, or raise training.reader")

    def _check_unseen(self) -> None:
        """Refuse vectors that learn the queries on which the score is to be fitted."""
        if conflict := learned_by(self.members, self.training.split, self.training.holdout):
            system, split = conflict
            problem = f"vectors = {system.kind} is trained on queries of {split} that the score is fitted on"
            details = (
                f"vectors.training.holdout is {system.tuning.holdout}, training.holdout is {self.training.holdout}"
            )
            raise UsageError(f"{problem}: {details}", "set vectors.training.holdout to training.holdout or more")

    def _written(self, docids: np.ndarray) -> np.ndarray:
        """(documents, depth) as much of docids as is written."""
        return docids[:, : self.matching.depth]

    def _laid_out(self, docids: Docids[CrossDecoder], vectors: Tensor) -> TrieVectors:
        """Vectors (documents, d) in the order of the trie, stored as those of the dense retriever are."""
        source = self.dense or self.given
        dtype = getattr(source, "index", IndexOptions()).dtype
        return TrieVectors.of(docids.trie, docids.numbers, vectors.numpy().astype(dtype), docids.model.device)

    def _learned_encoder(self, docids: Docids[CrossDecoder]) -> Encoder | None:
        """The document encoder that is trained, where one is: at first, the one that documents are placed by."""
        if not (self.joint and self.training.steps and self.losses.contrastive):
            return None
        if docids.placer is None:
            return None
        encoder = copy.deepcopy(docids.placer).requires_grad_(True)
        self._teaching.adapt(encoder)
        return encoder

    def _finished(self, engine: ClusterEngine, store: DocumentStore) -> ClusterEngine:
        engine = self._with_vectors_of_now(engine, store)
        laid_out(engine.docids.model)
        return replace(engine, documents=engine.documents.eval()) if engine.documents else engine

    def _with_vectors_of_now(self, engine: ClusterEngine, store: DocumentStore) -> ClusterEngine:
        """The engine with vectors by the document encoder as it is now, where it is trained."""
        if engine.documents is None:
            return engine
        vectors = vectors_of(engine.documents, engine.docids.reading, store)
        return replace(engine, below=self._laid_out(engine.docids, vectors))

    def _course(self, lesson: Lesson[ClusterEngine]) -> Course:
        """What goes through the training: the model, with the document encoder where that is trained too."""
        engine, store = lesson.engine, lesson.store
        written = self._written(lesson.targets)
        rounds = self._teaching.rounds(engine.docids.model, lesson.views, written)
        if not self.losses.contrastive:
            return Course(engine.docids.model, rounds)
        module, documents = self._documents(engine, store, lesson.work)
        same, cluster = copies(document.full_text.encode() for document in store), cluster_numbers(written)
        miner = self._miner(lesson, same)
        return Course(
            module, lambda number: ClusterBatches(rounds(number), documents, cluster, same, self.negatives, miner())
        )

    def _documents(
        self, engine: ClusterEngine, store: DocumentStore, work: Path | None
    ) -> tuple[nn.Module, FixedVectors | Texts]:
        """What goes through the training, and what a batch holds of documents: vectors, or texts to learn them from."""
        docids, encoder = engine.docids, engine.documents
        if encoder is None:
            return docids.model, FixedVectors(engine.below.take)
        length = encoder.at_most(docids.reading.document_length)
        each = 1 + self.negatives.inside + self.negatives.count
        check_memory(encoder, self.training, self.training.batch * each, length, str(encoder.device))
        texts = (docids.reading.document_prefix + document.full_text for document in store)
        folder = work / "documents" / "whole" if work else None
        tokens = Tokens.of(texts, encoder.tokenizer, length, folder)
        return WithEncoder(docids.model, encoder), Texts(tokens, encoder.tokenizer.pad)

    def _miner(self, lesson: Lesson[ClusterEngine], same: np.ndarray) -> Callable[[], Mapping[str, np.ndarray]]:
        """What gives hard negatives of the queries of each view, for a round."""
        options, store = self.negatives, lesson.store
        written = {"generated": options.generated, "questions": self.views.questions}
        asked = asked_in(lesson.views, store, **written) if options.mined else {}
        if not asked:
            return dict
        depth = options.searched(len(store))
        if options.source == "bm25":
            lexical = bm25_finder(store)
            negatives = mined(asked, lambda queries: lexical(queries.pairs.texts, depth), options, same)
            return lambda: negatives
        return lambda: mined(asked, self._finder(lesson.engine, store, depth), options, same)

    def _finder(self, engine: ClusterEngine, store: DocumentStore, k: int) -> Find:
        """What finds the documents with the nearest vectors, by the encoders as they are now."""
        reader = engine.docids.model.encoder
        vectors = self._with_vectors_of_now(engine, store).below.take(engine.docids.numbers).astype(np.float32)
        index = VectorIndex.of(vectors, IndexOptions(device=str(reader.device)))

        def find(queries: JudgedQueries) -> list[list[int]]:
            return index.search(encode(reader, queries.tokens), k)[1].tolist()

        return find

    def _loss_of_batch(
        self, module: nn.Module, batch: Mapping[str, Tensor], branches: Branches | None = None
    ) -> dict[str, Tensor]:
        model = written_by(module)
        assert isinstance(model, CrossDecoder)  # the teaching refuses others
        states, weights = model.encode(batch["ids"], batch["mask"]), self.losses
        parts: dict[str, Tensor] = {}
        if weights.likelihood and batch["targets"].shape[1]:
            read = model.looked_up(states, batch["mask"])
            likelihood = model.loss_after(read, batch["targets"], IGNORED, branches)
            parts["likelihood"] = weights.likelihood * likelihood
        if weights.contrastive:
            queries = model.encoder.vectors(states, batch["mask"])
            scores = self._products(queries, module, batch) / self.matching.temperature
            loss = contrastive(scores, batch["positive"], batch["excluded"], batch["weights"])
            parts["contrastive"] = weights.contrastive * loss
        return parts

    def _products(self, queries: Tensor, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """(texts, documents) what texts and documents are matched by, as the rule has it."""
        if isinstance(module, WithEncoder):
            documents = module.encoder(batch["document_ids"], batch["document_mask"])
        else:
            documents = batch["document_vectors"]
        products = queries @ gathered(documents).T
        return products.float().tanh() if self.matching.rule == "sum" else products

    def _ranks(self, engine: ClusterEngine, store: DocumentStore, held: Pairs) -> list[float]:
        engine = self._with_vectors_of_now(engine, store)
        # A model is judged as it will be used: with what suits it, and not with what suited the one before.
        return reciprocal_ranks(self._fitted(engine, held) if self.matching.fits else engine, store, held)

    def _held_out(self, dataset: Dataset, store: DocumentStore) -> Pairs:
        """The queries that the score is fitted on, which no training has seen."""
        _, held = held_out(pairs_of(dataset, self.training.split, store), self.training.holdout)
        if not len(held):
            asked = "matching.fit = true" if self.matching.fit else "matching.rule = learned"
            problem = f"{asked} needs held-out queries, but no query of {self.training.split} is held out"
            raise UsageError(problem, "raise training.holdout, or set matching.alpha with the rule sum or loglinear")
        return held

    def _fitted_at_depths(self, engine: ClusterEngine, held: Pairs) -> ClusterEngine:
        """With weights for every depth and every rule that may be asked for later, and for what was asked for now."""
        for depth in dict.fromkeys((*range(1, engine.deepest + 1), self.matching.depth)):
            engine = self._fitted(engine, held, *(replace(self.matching, depth=depth, rule=rule) for rule in RULES))
        return engine

    def _fitted(self, engine: ClusterEngine, held: Pairs, *ways: MatchOptions) -> ClusterEngine:
        """With the weights that suit held-out queries, among the documents of their beams; for ways of one depth."""
        fits = {matching.way: fit_for(matching) for matching in ways or (self.matching,)}
        depth = ways[0].depth if ways else self.matching.depth
        for query, candidates in engine.searcher(depth).candidates(held.texts):
            for fit in fits.values():
                fit.see(candidates, engine.docids.numbers[held.of(query)])
        return replace(engine, fitted={**engine.fitted, **{way: fit.weights() for way, fit in fits.items()}})
