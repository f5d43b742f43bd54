"""A cross-encoder on top of any retriever: it reads the query and each candidate together, and orders them anew."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from triever import artifact, config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.engines.reranked import FIRST, RerankedEngine, Reranker, joined, read_reranker
from triever.errors import UsageError
from triever.learning.encoders import check_lengths, check_memory, device_name, new_encoder, tell_of_long_texts
from triever.models.backbones import load_backbone
from triever.models.encoder import EncoderShape
from triever.models.tokens import Tokens
from triever.ranks import reciprocal_rank_by
from triever.retriever import Retriever
from triever.retrievers.bm25 import BM25
from triever.training.loop import train
from triever.training.losses import listwise
from triever.training.pairs import Negatives, Pairs, hard_negatives, held_out, pairs_of
from triever.training.tuning import WATCH, RerankTuning, TuningBatches, quality, summary

_log = logging.getLogger("triever")


@dataclass(eq=False)
class Reranked(Retriever[RerankedEngine]):
    """Two stages: `Reranked(first=BM25(), training=RerankTuning(steps=1500)).fit(data)`."""

    kind: ClassVar[str] = "reranked"
    gives_probabilities: ClassVar[bool] = False

    first: Retriever[Any] = option(BM25(), "what finds the candidates: a system's name, or a table with its kind")
    depth: int = option(50, "candidates that are read again; hits behind them stay in their order")
    backbone: str = option("minilm", "what the cross-encoder starts from: minilm, scratch, a folder, an id of the hub")
    fetch: bool = option(False, "fetch the backbone from the hub if it is not here")
    query_length: int = option(64, "tokens of a query that are read, at most half of what the backbone can read")
    document_length: int = option(192, "tokens of a document that are read, so far as there is room behind the query")
    training: RerankTuning = option(RerankTuning(), "how the cross-encoder is trained")
    negatives: Negatives = option(
        Negatives(count=7, depth=30),
        "candidates beside the right one: hits of the first stage, which is their only source, and drawn at random",
    )
    device: str = option("auto", "cpu, cuda, or auto: cuda where there is one")

    def __post_init__(self) -> None:
        if self.first is type(self).first:  # one object for all rerankers, and a retriever holds documents
            self.first = BM25()
        config.validate(self)
        if self.depth < 1:
            raise UsageError(f"depth = {self.depth} should be above zero", "the usual range is 20 to 100")
        check_lengths(self.query_length, self.document_length)
        if self.negatives.count < 1:
            problem = f"negatives.count = {self.negatives.count}, but a cross-encoder needs negatives to learn"
            raise UsageError(problem, "set negatives.count to 1 or more")
        if self.negatives.source != Negatives().source:
            problem = f"negatives.source = {self.negatives.source!r} has no effect: the first stage finds the negatives"
            raise UsageError(problem, "leave negatives.source out, and choose first instead")
        self.negatives.check_not_shared("a cross-encoder compares the candidates of each query by themselves")

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> RerankedEngine:
        """Learn the first stage, then train the cross-encoder on its wrong hits."""
        reranker = self._reranker(store)  # first: a backbone that is not there is no reason to train for hours
        first = self.first.engine_for(dataset, store, work / FIRST if work else None)
        engine = RerankedEngine(first, reranker, self.depth)
        if not self.training.steps:
            _log.warning("training.steps=0: the cross-encoder is not trained, so its order of the hits means nothing")
            return engine
        trained = self._tune(engine, dataset, store, work)
        return replace(engine, reranker=replace(reranker, trained=trained))

    def read(self, snapshot: artifact.Snapshot) -> RerankedEngine:
        """Both stages of an artifact."""
        reranker = read_reranker(snapshot, self.device, self.query_length, self.document_length)
        return RerankedEngine(self.first.read(snapshot.inside(FIRST)), reranker, self.depth)

    def tuned(self, engine: RerankedEngine, documents: Sequence[Document], store: DocumentStore) -> RerankedEngine:
        """With the first stage tuned on new documents, where it wants that."""
        return replace(engine, first=self.first.tuned(engine.first, documents, store))

    @property
    def members(self) -> tuple[Retriever[Any], ...]:
        """What finds the candidates."""
        return (self.first,)

    def _reranker(self, store: DocumentStore) -> Reranker:
        device = device_name(self.device)  # first: to read the texts for a backbone may take long
        backbone = load_backbone(self.backbone, texts=store.sample_texts(), fetch=self.fetch)
        shape = EncoderShape("last" if backbone.causal else "mean", 1, "linear", unit=False)
        encoder = new_encoder(backbone, shape, self.training.seed, device)
        empty = Tokens.from_lists([], encoder.tokenizer.size)
        reranker = Reranker(encoder, empty, self.query_length, self.document_length)
        documents = reranker.document_tokens(store)
        tell_of_long_texts(documents, encoder.at_most(self.document_length), store.cut)
        return replace(reranker, documents=documents)

    def _tune(
        self, engine: RerankedEngine, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> dict[str, Any]:
        train_on, held = held_out(pairs_of(dataset, self.training.split, store), self.training.holdout)
        learned, judged = (self._candidates(engine, store, pairs) for pairs in (train_on, held))
        seen = held.about(train_on.relevant)
        rows = self.training.batch * (1 + self.negatives.count)
        encoder = engine.reranker.encoder
        longest = encoder.at_most(self.query_length + self.document_length)
        check_memory(encoder, self.training, rows, longest, str(encoder.device))
        steps = self.training.batches

        def rounds(number: int) -> CandidateBatches:
            return CandidateBatches(self.training, steps, number, learned, engine.reranker, self.negatives)

        trained = train(
            encoder,
            _loss,
            rounds,
            self.training,
            evaluate=(lambda _model: quality(_ranks(judged, engine.reranker), seen)) if len(held) else None,
            watch=WATCH if len(held) else "",
            folder=work / "training" if work else None,
            device=self.device,
        )
        return summary(trained)

    def _candidates(self, engine: RerankedEngine, store: DocumentStore, pairs: Pairs) -> Candidates:
        """The wrong hits of the first stage for each query."""
        depth = self.negatives.searched(len(store))
        results = engine.first.search(store, pairs.texts, depth) if len(pairs) else []
        rows = [[store.row(hit.id) for hit in result] for result in results]
        tokens = engine.reranker.query_tokens(pairs.texts)
        return Candidates(pairs, tokens, hard_negatives(rows, pairs, self.negatives, engine.reranker.same))


@dataclass(frozen=True)
class Candidates:
    """Queries with what is relevant to them, and with the wrong hits of a first stage."""

    pairs: Pairs
    queries: Tokens
    wrong: np.ndarray  # (queries, depth) rows, -1 where there are no more


@dataclass(frozen=True)
class CandidateBatches(TuningBatches):
    """A round of batches: for each query the right document first, then wrong ones."""

    candidates: Candidates
    reranker: Reranker
    negatives: Negatives

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        chance = self.chance(step)
        pairs = self.candidates.pairs
        queries = chance.choice(len(pairs), min(self.options.batch, len(pairs)), replace=False)
        rows = np.stack([self._row(query, chance) for query in queries])
        encoder = self.reranker.encoder
        tokens = joined(
            self.candidates.queries,
            np.repeat(queries, rows.shape[1]),
            self.reranker.documents,
            rows.ravel(),
            encoder.tokenizer,
            encoder.longest,
        )
        ids, mask = tokens.all_padded(encoder.tokenizer.pad)
        shape = (*rows.shape, ids.shape[1])
        return {"ids": ids.view(shape), "mask": mask.view(shape)}

    def _row(self, query: int, chance: np.random.Generator) -> np.ndarray:
        """One right document and the wrong ones: mined as far as there are, the others drawn."""
        relevant, wrong, same = self.candidates.pairs.of(query), self.candidates.wrong[query], self.reranker.same
        there = wrong[wrong >= 0]
        hard = chance.permutation(there)[: self.negatives.mined]
        needed = self.negatives.count - len(hard)
        drawn = chance.integers(len(self.reranker.documents), size=8 * needed)
        wrong_ones = drawn[~np.isin(same[drawn], same[relevant])][:needed]
        # In a corpus where nearly all is relevant, a right one may stand among the wrong.
        filled = np.concatenate([wrong_ones, drawn[: needed - len(wrong_ones)]])
        return np.concatenate([[chance.choice(relevant)], hard, filled])


def _loss(model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    queries, candidates, length = batch["ids"].shape
    scores = model(batch["ids"].view(-1, length), batch["mask"].view(-1, length))
    return {"listwise": listwise(scores.view(queries, candidates))}


def _ranks(judged: Candidates, reranker: Reranker) -> list[float]:
    """How early a relevant document comes when it is put among the wrong hits."""
    count = len(judged.pairs)
    right = np.array([judged.pairs.of(query)[0] for query in range(count)])
    rows = np.concatenate([right[:, None], judged.wrong], 1)
    query, column = np.nonzero(rows >= 0)
    scores = np.full(rows.shape, -np.inf)
    scores[query, column] = reranker.scores(judged.queries, query, rows[query, column])
    first = np.arange(rows.shape[1]) == 0
    return [reciprocal_rank_by(row, first, 10) for row in scores]
