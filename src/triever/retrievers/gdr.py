"""Generative dense retrieval (GDR): a model writes the cluster, and vectors are matched inside it.

One encoder reads the query. A decoder attends to its states and writes the beginnings of docids; the same states,
pooled, are the vector that the documents below those beginnings are compared with. How much is written and how much is
matched is a dial: `matching.depth`, from 0, which is dense retrieval, to the whole docid.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from torch import Tensor, nn

from triever import artifact, config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.docids.schemes import Cluster, Scheme
from triever.errors import UsageError
from triever.index.trie_vectors import Below, TrieVectors
from triever.index.vectors import IndexOptions, VectorIndex
from triever.models import encoder as encoders
from triever.models.docid_model import reader_of
from triever.models.encoder import Encoder, encode
from triever.models.matching import MatchingCache, MatchingGenerator
from triever.models.precision import device_of
from triever.models.t5 import T5, laid_out
from triever.models.tokens import Tokens
from triever.retrievers.base import Parts
from triever.retrievers.encoding import bm25_rows, check_memory, most
from triever.retrievers.generative import Generative, Lesson, Writing
from triever.search.beam import beam
from triever.search.many import search_each
from triever.storage import Products, Stored, weight_products, weights_in
from triever.training.clusters import ClusterBatches, ClusterNegatives, Known, Texts, cluster_numbers
from triever.training.loop import Batches, gathered
from triever.training.losses import contrastive
from triever.training.pairs import Pairs, hard_negatives, held_out, pairs_of
from triever.training.tuning import DocidTuning
from triever.training.views import IGNORED, Labelled, View

T = TypeVar("T")

SHORTER = 0.8
"""By this power of its length a log-probability is divided in the authors' rule."""
ALPHAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""What a fit of alpha tries."""
DOCUMENTS = "document_encoder"
"""The name under which a document encoder goes through a training with the model, and into an artifact."""


@dataclass(frozen=True)
class MatchOptions:
    """How clusters and vectors make one score: `MatchOptions(rule="loglinear", fit=True)`."""

    depth: int | None = option(
        None, "symbols of a docid that are written, before vectors are matched; 0: none; not set: the whole docid"
    )
    rule: Literal["sum", "loglinear"] = option(
        "sum", "tanh(q·d) + alpha · softmax over the beam (sum), or q·d / temperature + alpha · log P (loglinear)"
    )
    alpha: float = option(1.0, "what the cluster counts for beside the vector")
    fit: bool = option(False, "choose alpha by held-out training queries; the given one where none was chosen")
    temperature: float = option(0.05, "what products of vectors are divided by, in training and by the rule loglinear")

    def __post_init__(self) -> None:
        config.validate(self)
        if (self.depth or 0) < 0 or self.alpha < 0 or self.temperature <= 0:
            problem = f"matching: depth {self.depth}, alpha {self.alpha}, temperature {self.temperature}"
            raise UsageError(problem, "depth and alpha are not negative, and temperature is above 0")


@dataclass(frozen=True)
class LossWeights:
    """What each part of the loss counts for: `LossWeights(contrastive=0.5)`."""

    likelihood: float = option(1.0, "minus the log-probability of the cluster; 0 leaves it out")
    contrastive: float = option(1.0, "minus the log-probability of the document among negatives; 0 leaves it out")

    def __post_init__(self) -> None:
        config.validate(self)
        if min(self.likelihood, self.contrastive) < 0 or not (self.likelihood or self.contrastive):
            problem = f"losses: likelihood {self.likelihood}, contrastive {self.contrastive}"
            raise UsageError(problem, "none is negative, and one is above 0")


@dataclass(frozen=True)
class Candidates:
    """The documents of the clusters that a beam found, each once, and what both halves say of them."""

    numbers: np.ndarray  # (n,) rising
    match: np.ndarray  # (n,) by their vectors
    cluster: np.ndarray  # (n,) by their clusters
    clusters: int  # how many the beam found

    def scores(self, alpha: float) -> np.ndarray:
        """(n,) both as one."""
        return self.match + alpha * self.cluster


def candidates(below: Below, logprob: np.ndarray, length: np.ndarray, matching: MatchOptions) -> Candidates:
    """What a rule makes of the documents below prefixes with these log-probabilities and lengths (prefixes,).

    What several clusters give to a document that is in all of them is added up. A document with several docids may be
    below one prefix several times, and counts once there.
    """
    prefixes = max(1, len(logprob))
    key, line = np.unique(below.numbers * prefixes + below.places, return_index=True)
    places = below.places[line]
    numbers, first = np.unique(key // prefixes, return_index=True)  # where the lines of each document begin
    product = below.products[line[first]].astype(np.float64)
    if matching.rule == "sum":
        share = np.add.reduceat(beam_shares(logprob, length)[places], first)
        return Candidates(numbers, np.tanh(product), share, len(logprob))
    mass = np.logaddexp.reduceat(logprob[places], first)
    return Candidates(numbers, product / matching.temperature, mass, len(logprob))


def beam_shares(logprob: np.ndarray, length: np.ndarray) -> np.ndarray:
    """(prefixes,) a softmax over the beam of log-probabilities by length, as the authors have it."""
    by_length = logprob / np.maximum(length, 1) ** SHORTER
    weight = np.exp(by_length - by_length.max())
    return weight / weight.sum()


@dataclass(frozen=True, kw_only=True)
class Clustered(Writing):
    """A model that writes clusters, and the vectors of the documents in them."""

    below: TrieVectors
    documents: Encoder | None = None  # what makes vectors, where it is not what places documents
    alphas: Mapping[str, float] = field(default_factory=dict)  # what was fitted, by rule
    taught: int | None = None  # how many symbols of docids it has learned to write; None is no limit


@dataclass(eq=False)
class GDR(Generative):
    """Generative dense retrieval: `GDR(vectors=Dense(training=Tuning(steps=700)), docids=Cluster(1000)).fit(data)`."""

    kind: ClassVar[str] = "gdr"
    search_only: ClassVar[tuple[str, ...]] = ("search_options", "matching")

    docids: Scheme = option(Cluster(), "what is written: cluster, or the beginning of any other, see matching.depth")
    matching: MatchOptions = option(MatchOptions(), "how much is written, and how it is joined with the match")
    losses: LossWeights = option(LossWeights(), "what the parts of the loss count for")
    negatives: ClusterNegatives = option(ClusterNegatives(), "where negatives come from")
    joint: bool = option(False, "train the document encoder too, and make all vectors anew; clusters stay")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search_options.method != "beam":
            problem = f"search_options.method = {self.search_options.method}, and clusters are searched by a beam"
            raise UsageError(problem, "leave it out, or use kind generative")
        if self.training.add_steps:
            problem = f"training.add_steps = {self.training.add_steps}, and new documents are matched without training"
            raise UsageError(problem, "leave it out, or use kind generative")

    # Learning

    def _learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> Clustered:
        begun, docids, vectors = self._begun(dataset, store, work)
        assert vectors is not None  # all schemes place documents by vectors here
        taught = self.matching.depth if self.training.steps else None
        engine = Clustered(**_fields(begun), below=self._laid_out(begun, vectors), taught=taught)
        sizes = np.bincount(cluster_numbers(self._written(docids)))
        about = {"clusters": len(sizes), "documents of the largest cluster": int(sizes.max())}
        trained = self._train(engine, docids, dataset, store, work)
        engine = self._finished(replace(engine, trained={**trained, **about}), store)
        return self._with_alpha(engine, dataset, store) if self.matching.fit else engine

    def _places(self, scheme: Scheme) -> bool:
        return True

    def _check_early(self, dataset: Dataset, store: DocumentStore) -> None:
        super()._check_early(dataset, store)
        if self.matching.rule == "sum" and self._dense and not self._dense.unit:
            problem = "matching.rule = sum takes the tanh of products, which is 1 for all of vectors of any length"
            raise UsageError(problem, "use matching.rule=loglinear, or a dense retriever with unit=true")
        if self.training.steps:
            self._check_training()
        if self.matching.fit:
            self._held_out(dataset, store)

    def _check_training(self) -> None:
        """Refuse a training in which something that should learn does not."""
        writes = self.losses.likelihood and self.matching.depth != 0
        if not writes and not self.training.reader:
            problem = "training.reader = 0, and nothing but what reads learns without a likelihood of clusters"
            raise UsageError(problem, "raise training.reader, losses.likelihood or matching.depth")
        if self.joint and not (self.losses.contrastive and self.training.reader):
            problem = "joint, and the document encoder learns by losses.contrastive and training.reader, one of them 0"
            raise UsageError(problem, "leave joint out, or raise them")

    def _written(self, docids: np.ndarray) -> np.ndarray:
        """(documents, depth) as much of docids as is written."""
        return docids[:, : self.matching.depth]

    def _laid_out(self, engine: Writing, vectors: Tensor) -> TrieVectors:
        """Vectors (documents, d) in the order of the trie, stored as those of the dense retriever are."""
        dtype = self._dense.index.dtype if self._dense else "float32"
        return TrieVectors.of(engine.trie, engine.numbers, vectors.numpy().astype(dtype), engine.model.device)

    def _finished(self, engine: Clustered, store: DocumentStore) -> Clustered:
        engine = self._with_vectors_of_now(engine, store)
        documents = engine.model._modules.pop(DOCUMENTS, None)
        laid_out(engine.model)
        return replace(engine, documents=documents.eval()) if isinstance(documents, Encoder) else engine

    def _with_vectors_of_now(self, engine: Clustered, store: DocumentStore) -> Clustered:
        """The engine with vectors by the document encoder as it is now, where it is trained."""
        encoder = engine.model._modules.get(DOCUMENTS)
        if encoder is None:
            return engine
        assert isinstance(encoder, Encoder)
        return replace(engine, below=self._laid_out(engine, self._vectors(encoder, engine.reading, store)))

    def _share(self, model: T5, options: DocidTuning) -> Callable[[str], float]:
        shares = super()._share(model, options)
        return lambda name: shares("reader." if name.startswith(f"{DOCUMENTS}.") else name)

    def _taught(self, lesson: Lesson) -> Callable[[int], Batches]:
        engine, store = lesson.engine, lesson.store
        assert isinstance(engine, Clustered)
        written = self._written(lesson.docids)
        rounds = self._rounds(engine.model, lesson.views, self.views.weights, written, self.training)
        if not self.losses.contrastive:
            return rounds
        documents = self._learned_documents(engine, store, lesson.work) if self.joint else Known(engine.below.take)
        same = _text_numbers(store)
        mined = self._miner(engine, lesson.views, same, lesson.dataset, store)
        cluster = cluster_numbers(written)
        return lambda number: ClusterBatches(rounds(number), documents, cluster, same, self.negatives, mined())

    def _learned_documents(self, engine: Clustered, store: DocumentStore, work: Path | None) -> Texts:
        """The texts of all documents, for an encoder that goes through the training with the model."""
        encoder = copy.deepcopy(engine.placer)
        assert encoder is not None
        engine.model.add_module(DOCUMENTS, encoder.requires_grad_(True))
        length, each = most(encoder, engine.reading.document_length), 1 + self.negatives.inside + self.negatives.count
        check_memory(encoder, self.training, self.training.batch * each, length, str(encoder.device))
        texts = (engine.reading.document_prefix + one.full_text for one in store)
        folder = work / "documents" / "whole" if work else None
        return Texts(Tokens.of(texts, encoder.tokenizer, length, folder), encoder.tokenizer.pad)

    def _miner(
        self, engine: Clustered, views: Mapping[str, View], same: np.ndarray, dataset: Dataset, store: DocumentStore
    ) -> Callable[[], np.ndarray | None]:
        """What gives hard negatives of the judged queries, (queries, most) rows, for a round."""
        options = self.negatives
        labelled = next((view for view in views.values() if isinstance(view, Labelled)), None)
        if not options.mined or labelled is None:
            return lambda: None
        pairs, depth = labelled.pairs, min(options.depth + options.skip + 20, len(store))
        if options.source == "bm25":
            found = hard_negatives(bm25_rows(dataset, store, pairs.texts, depth), pairs, options, same)
            return lambda: found
        return lambda: hard_negatives(
            self._nearest(engine, store, labelled.tokens, depth).tolist(), pairs, options, same
        )

    def _nearest(self, engine: Clustered, store: DocumentStore, queries: Tokens, k: int) -> np.ndarray:
        """(queries, k) the rows of the documents with the nearest vectors, by the encoders as they are now."""
        reader = reader_of(engine.model)
        vectors = self._with_vectors_of_now(engine, store).below.take(engine.numbers).astype(np.float32)
        return VectorIndex.of(vectors, IndexOptions(device=str(reader.device))).search(encode(reader, queries), k)[1]

    def _loss_of_batch(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        assert isinstance(model, T5)
        states, weights = model.encode(batch["ids"], batch["mask"]), self.losses
        parts: dict[str, Tensor] = {}
        if weights.likelihood and batch["docids"].shape[1]:
            likelihood = model.loss_of(model.looked_up(states, batch["mask"]), batch["docids"], IGNORED)
            parts["likelihood"] = weights.likelihood * likelihood
        if weights.contrastive:
            scores = self._products(model, states, batch) / self.matching.temperature
            loss = contrastive(scores, batch["positive"], batch["excluded"], batch["weights"])
            parts["contrastive"] = weights.contrastive * loss
        return parts

    def _products(self, model: T5, states: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """(texts, documents) what texts and documents are matched by, as the rule has it."""
        queries = reader_of(model).vectors(states, batch["mask"])
        if self.joint:
            documents = model.get_submodule(DOCUMENTS)(batch["document_ids"], batch["document_mask"])
        else:
            documents = batch["document_vectors"]
        products = queries @ gathered(documents).T
        return products.float().tanh() if self.matching.rule == "sum" else products

    def _quality(self, engine: Writing, store: DocumentStore, held: Pairs) -> dict[str, float]:
        assert isinstance(engine, Clustered)
        return super()._quality(self._with_vectors_of_now(engine, store), store, held)

    def _held_out(self, dataset: Dataset, store: DocumentStore) -> Pairs:
        """The queries that alpha is fitted on, which no training has seen."""
        _, held = held_out(pairs_of(dataset, self.training.split, store), self.training.holdout)
        if not len(held):
            problem = f"matching.fit, and no query of {self.training.split} is held out"
            raise UsageError(problem, "raise training.holdout, or give matching.alpha instead")
        return held

    def _with_alpha(self, engine: Clustered, dataset: Dataset, store: DocumentStore) -> Clustered:
        """With the alpha of the best mean reciprocal rank; of equal ones, the one that was given."""
        held = self._held_out(dataset, store)
        found = self._each(engine, held.texts, lambda one: one)
        relevant = [engine.numbers[held.of(query)] for query in range(len(held))]

        def quality(alpha: float) -> float:
            return sum(map(_reciprocal_rank, (one.scores(alpha) for one in found), found, relevant))

        best = max((self.matching.alpha, *ALPHAS), key=quality)
        return replace(engine, alphas={self.matching.rule: best})

    # Searching

    def _search(self, engine: Writing, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        assert isinstance(engine, Clustered)
        alpha = self._alpha(engine)
        return self._each(engine, queries, lambda found: self._hits(engine, store, found, alpha, k))

    def _alpha(self, engine: Clustered) -> float:
        given = self.matching
        return engine.alphas.get(given.rule, given.alpha) if given.fit else given.alpha

    def _each(self, engine: Clustered, queries: Sequence[str], use: Callable[[Candidates], T]) -> list[T]:
        """What is made of the candidates of each query; of a batch at a time, as they may be many."""
        self._check_depth(engine)
        generator = self._generator(engine)
        return search_each(
            generator,
            queries,
            lambda cache, hidden: [use(one) for one in self._candidates(engine, generator, cache, hidden)],
        )

    def _candidates(
        self, engine: Clustered, generator: MatchingGenerator, cache: MatchingCache, hidden: Tensor
    ) -> Iterator[Candidates]:
        """For each query that was read, the documents of its best clusters."""
        # Lengths count in the rule `sum`: so a prefix that is alone goes on to its depth like all others.
        options = replace(self.search_options.beam(1), finish=False)
        frontier = beam(generator, cache, hidden, engine.walk, options, depth=self.matching.depth)
        clusters = [
            (state[there].tolist(), logprob[there].double().cpu().numpy(), length[there].cpu().numpy())
            for state, logprob, length, there in zip(
                frontier.state, frontier.logprob, frontier.length, frontier.logprob.isfinite(), strict=True
            )
        ]
        found = engine.below.below(engine.walk, cache.vectors, [states for states, _, _ in clusters])
        for below, (_, logprob, length) in zip(found, clusters, strict=True):
            yield candidates(below, logprob, length, self.matching)

    def _generator(self, engine: Writing) -> MatchingGenerator:
        plain = super()._generator(engine)
        return MatchingGenerator(plain.model, plain.tokenise)

    def _check_depth(self, engine: Clustered) -> None:
        """Refuse to have more written than was learned."""
        wanted, taught = self.matching.depth, engine.taught
        if taught is not None and (wanted is None or wanted > taught):
            asked = "whole docids" if wanted is None else f"{wanted}"
            problem = f"this model has learned to write {taught} symbols of docids, and {asked} are asked for"
            raise UsageError(problem, f"set matching.depth to {taught} at most, or fit it anew")

    def _hits(self, engine: Clustered, store: DocumentStore, found: Candidates, alpha: float, k: int) -> Result:
        scores = found.scores(alpha)
        # Every document that ties with the k-th stays in, so that which of them go is decided by their ids.
        least = np.partition(scores, len(scores) - k)[len(scores) - k] if len(scores) > k else -np.inf
        chosen = np.flatnonzero(scores >= least)
        rows = np.searchsorted(engine.numbers, found.numbers[chosen])
        columns = (rows.tolist(), scores[chosen].tolist())
        # Without a logprob: that of a cluster is no probability of a document.
        best = ranked(Hit(store.ids[row], score) for row, score in zip(*columns, strict=True))
        hits = (replace(hit, docid=engine.scheme.readable(self._docid(engine, store, hit))) for hit in best[:k])
        few = f"the {found.clusters} clusters of the beam hold {len(scores)} documents; search_options.width has more"
        return Result(tuple(hits), note=few if len(scores) < k else "")

    def _explain(self, engine: Writing, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """What the vectors and the clusters give to each hit."""
        assert isinstance(engine, Clustered)
        found, alpha = self._each(engine, [query], lambda one: one)[0], self._alpha(engine)
        at = np.searchsorted(found.numbers, engine.numbers[[store.row(hit.id) for hit in result]])
        columns = (found.match[at].tolist(), (alpha * found.cluster[at]).tolist())
        return tuple((("vector", match), ("cluster", cluster)) for match, cluster in zip(*columns, strict=True))

    # Changing

    def _enlarged(
        self, engine: Writing, documents: Sequence[Document], vectors: Tensor | None, store: DocumentStore
    ) -> Writing:
        assert isinstance(engine, Clustered)
        larger = super()._enlarged(engine, documents, vectors, store)
        if engine.documents is not None:  # clusters are those of the placer, and vectors are not
            vectors = self._vectors(engine.documents, engine.reading, documents)
        assert vectors is not None
        new = larger.numbers[len(engine.numbers) :], vectors.numpy()
        return replace(larger, below=engine.below.moved(larger.trie, new))

    def _without(self, engine: Writing, keep: np.ndarray) -> Writing:
        assert isinstance(engine, Clustered)
        smaller = super()._without(engine, keep)
        return replace(smaller, below=engine.below.moved(smaller.trie))

    # Memory

    def _stored(self, engine: Writing) -> Stored:
        assert isinstance(engine, Clustered)
        parts, below = super()._stored(engine), engine.below.stored()
        parts["changes"] += below.pop("changes")
        parts["placer"] += weights_in(engine.documents)
        return {**parts, **below}

    def _computed(self, engine: Writing, now: int, then: int) -> dict[str, Products]:
        assert isinstance(engine, Clustered)
        parts = super()._computed(engine, now, then)
        parts["placer"] = weight_products(weights_in(engine.placer, engine.documents))
        return {**parts, "cluster vectors": engine.below.products(self._trie_shape(engine, now, then).entries)}

    def _made_from(self, engine: Writing) -> dict[str, Any]:
        assert isinstance(engine, Clustered)
        size = {
            "parameters": sum(weight.numel() for weight in engine.model.parameters()),
            "bytes of the trie": engine.trie.bytes,
            "bytes of vectors": engine.below.bytes,
        }
        return {**super()._made_from(engine), **size, "alpha": self._alpha(engine)}

    # Keeping

    def _write(self, engine: Writing, writer: artifact.Writer) -> dict[str, Any]:
        assert isinstance(engine, Clustered)
        engine.below.write(writer)
        if engine.documents is not None:
            encoders.write(engine.documents, writer, DOCUMENTS)
        return {**super()._write(engine, writer), "alphas": dict(engine.alphas), "taught": engine.taught}

    def _read(self, snapshot: artifact.Snapshot) -> Clustered:
        engine, state = super()._read(snapshot), snapshot.state
        place = device_of(self.device, opening=True)
        documents = encoders.read(snapshot, DOCUMENTS).to(place) if snapshot.has(DOCUMENTS) else None
        below = TrieVectors.read(snapshot, engine.trie, engine.model.device)
        kept = {"alphas": state["alphas"], "taught": state["taught"]}
        return Clustered(**_fields(engine), below=below, documents=documents, **kept)


def _fields(engine: Writing) -> dict[str, Any]:
    return {one.name: getattr(engine, one.name) for one in fields(engine)}


def _reciprocal_rank(scores: np.ndarray, found: Candidates, relevant: np.ndarray) -> float:
    """One by the rank of the first relevant document, behind others that tie with it; 0 where none is found."""
    is_right = np.isin(found.numbers, relevant)
    best = scores[is_right].max(initial=-np.inf)
    return 1 / (1 + int((scores[~is_right] >= best).sum())) if is_right.any() else 0.0


def _text_numbers(store: DocumentStore) -> np.ndarray:
    """(documents,) a number for the text of each: those with the same text have the same one."""
    digests = (hashlib.blake2b(one.full_text.encode(), digest_size=8).digest() for one in store)
    whole = np.fromiter((int.from_bytes(digest) for digest in digests), np.uint64, len(store))
    return np.unique(whole, return_inverse=True)[1]
