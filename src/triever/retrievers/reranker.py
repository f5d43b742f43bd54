"""A cross-encoder on top of any retriever: it reads the query and each candidate together, and orders them anew."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from triever import artifact, config
from triever.arrays import starts_of
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.errors import UsageError
from triever.models import encoder as encoders
from triever.models.backbones import load_backbone
from triever.models.encoder import Encoder, EncoderShape, encode
from triever.models.precision import device_of
from triever.models.tokens import TextTokenizer, Tokens, places
from triever.ranks import reciprocal_rank_by
from triever.retrievers.base import Parts, Retriever
from triever.retrievers.bm25 import BM25
from triever.retrievers.encoding import check_lengths, check_memory, device, most, new_encoder, weights_of
from triever.storage import Product, Products, Stored, inside, scaled, weight_products, weights_in
from triever.training.epochs import chance_of
from triever.training.loop import train
from triever.training.losses import listwise
from triever.training.pairs import Negatives, Pairs, hard_negatives, held_out, pairs_of, text_numbers
from triever.training.tuning import WATCH, RerankTuning, quality, summary
from triever.validation import require_array, require_starts, require_table, require_within

QUERIES = 1024
"""Queries whose candidates are laid side by side at once."""

_log = logging.getLogger("triever")


@dataclass(frozen=True)
class Reranker:
    """A cross-encoder and the tokens of the documents that it reads."""

    encoder: Encoder  # its vectors have one number: the score
    documents: Tokens
    trained: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def same(self) -> np.ndarray:
        """(documents,) the numbers of their texts: a copy of what is relevant is not wrong."""
        return text_numbers(self.documents)

    def scores(self, queries: Tokens, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(pairs,) the score of each pair of a query and a document, by their numbers."""
        pairs = joined(queries, query, self.documents, rows, self.encoder.tokenizer, self.encoder.longest)
        return encode(self.encoder, pairs, what="reranking")[:, 0]


@dataclass(frozen=True)
class RerankedEngine:
    """What finds candidates, and what orders them."""

    first: Any
    reranker: Reranker


@dataclass(eq=False)
class Reranked(Retriever):
    """Two stages: `Reranked(first=BM25(), training=RerankTuning(steps=1500)).fit(data)`."""

    kind: ClassVar[str] = "reranked"

    first: Retriever = option(BM25(), "what finds the candidates: a system's name, or a table with its kind")
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
            raise UsageError("a cross-encoder learns from wrong candidates", "set negatives.count to 1 or more")
        if self.negatives.source != Negatives().source:
            problem = f"negatives.source = {self.negatives.source!r} is not asked: the first stage finds the hard ones"
            raise UsageError(problem, "leave it out, and choose the first stage")

    def _learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> RerankedEngine:
        reranker = self._reranker(store)  # first: a backbone that is not there is no reason to train for hours
        first = self.first._engine_for(dataset, store, work / "first" if work else None)
        engine = RerankedEngine(first, reranker)
        if not self.training.steps:
            _log.warning("the cross-encoder is not trained, so the order that it gives means nothing: training.steps=0")
            return engine
        trained = self._tune(engine, dataset, store, work)
        return replace(engine, reranker=replace(reranker, trained=trained))

    def _members(self) -> tuple[Retriever, ...]:
        return (self.first,)

    def _made_from(self, engine: RerankedEngine) -> dict[str, Any]:
        first = self.first._made_from(engine.first)
        both = [first["weights"]] if "weights" in first else []
        return {"weights": "; ".join([*both, weights_of(engine.reranker.encoder)]), **engine.reranker.trained}

    def _reranker(self, store: DocumentStore) -> Reranker:
        place = device(self.device)  # first: to read the texts for a backbone may take long
        backbone = load_backbone(self.backbone, texts=(one.full_text for one in store), fetch=self.fetch)
        shape = EncoderShape("last" if backbone.causal else "mean", 1, "linear", unit=False)
        encoder = new_encoder(backbone, shape, self.training.seed, place)
        return Reranker(encoder, self._document_tokens(encoder, store))

    def _document_tokens(self, encoder: Encoder, documents: Sequence[Document] | DocumentStore) -> Tokens:
        return Tokens.of((one.full_text for one in documents), encoder.tokenizer, most(encoder, self.document_length))

    def _query_tokens(self, encoder: Encoder, queries: Sequence[str]) -> Tokens:
        # The document needs room behind it.
        longest = encoder.longest // 2 if encoder.longest else self.query_length
        return Tokens.of(queries, encoder.tokenizer, min(self.query_length, longest))

    def _tune(
        self, engine: RerankedEngine, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> dict[str, Any]:
        train_on, held = held_out(pairs_of(dataset, self.training.split, store), self.training.holdout)
        learned, judged = (self._candidates(engine, store, some) for some in (train_on, held))
        rows = self.training.batch * (1 + self.negatives.count)
        encoder = engine.reranker.encoder
        longest = most(encoder, self.query_length + self.document_length)
        check_memory(encoder, self.training, rows, longest, str(encoder.device))
        steps = self.training.batches

        def rounds(number: int) -> CandidateBatches:
            return CandidateBatches(learned, engine.reranker, self.negatives, self.training, steps, number)

        trained = train(
            encoder,
            _loss,
            rounds,
            self.training,
            evaluate=(lambda _model: _quality(judged, engine.reranker)) if len(held) else None,
            watch=WATCH if len(held) else "",
            folder=work / "training" if work else None,
            device=self.device,
        )
        return summary(trained)

    def _candidates(self, engine: RerankedEngine, store: DocumentStore, pairs: Pairs) -> Candidates:
        """The wrong hits of the first stage for each query."""
        depth = self.negatives.searched(len(store))
        found = self.first._search(engine.first, store, pairs.texts, depth) if len(pairs) else []
        rows = [[store.row(hit.id) for hit in result] for result in found]
        tokens = self._query_tokens(engine.reranker.encoder, pairs.texts)
        return Candidates(pairs, tokens, hard_negatives(rows, pairs, self.negatives, engine.reranker.same))

    def _with_added(
        self, engine: RerankedEngine, documents: Sequence[Document], store: DocumentStore
    ) -> RerankedEngine:
        more = self._document_tokens(engine.reranker.encoder, documents)
        reranker = replace(engine.reranker, documents=engine.reranker.documents.joined(more))
        return RerankedEngine(self.first._with_added(engine.first, documents, store), reranker)

    def _without(self, engine: RerankedEngine, keep: np.ndarray) -> RerankedEngine:
        left = engine.reranker.documents.take(np.flatnonzero(keep))
        return RerankedEngine(self.first._without(engine.first, keep), replace(engine.reranker, documents=left))

    def _search(self, engine: RerankedEngine, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        some = [queries[low : low + QUERIES] for low in range(0, len(queries), QUERIES)]
        return [result for one in some for result in self._search_some(engine, store, one, k)]

    def _search_some(
        self, engine: RerankedEngine, store: DocumentStore, queries: Sequence[str], k: int
    ) -> list[Result]:
        found = self.first._search(engine.first, store, queries, min(max(self.depth, k), len(store)))
        rows = [np.array([store.row(hit.id) for hit in result[: self.depth]], np.int64) for result in found]
        query = np.repeat(np.arange(len(queries)), [len(row) for row in rows])
        tokens = self._query_tokens(engine.reranker.encoder, queries)
        scores = engine.reranker.scores(tokens, query, np.concatenate([np.empty(0, np.int64), *rows]))
        split = np.split(scores, np.cumsum([len(row) for row in rows])[:-1])
        return [_reordered(result, one.tolist(), k) for result, one in zip(found, split, strict=True)]

    def _explain(self, engine: RerankedEngine, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        names = ("cross-encoder" if place < self.depth else "first stage's order" for place in range(len(result)))
        return tuple(((name, hit.score),) for name, hit in zip(names, result, strict=True))

    def _stored(self, engine: RerankedEngine) -> Stored:
        own, encoder = engine.reranker.documents, engine.reranker.encoder
        parts: Stored = {"weights": [*weights_in(encoder)], "tokens": [own.flat, own.starts]}
        return {**parts, **inside("first", self.first._stored(engine.first))}

    def _computed(self, engine: RerankedEngine, now: int, then: int) -> dict[str, Products]:
        own, encoder = engine.reranker.documents, engine.reranker.encoder
        number = 2 if encoder.tokenizer.size <= 2**16 else 4
        parts = {
            "weights": weight_products(weights_in(encoder)),
            "tokens": [
                Product(scaled(len(own.flat), now, then), "tokens", number),
                Product(then + 1, "documents", 8, "where it begins, and the end"),
            ],
        }
        return {**parts, **inside("first", self.first._computed(engine.first, now, then))}

    def _write(self, engine: RerankedEngine, writer: artifact.Writer) -> dict[str, Any]:
        encoders.write(engine.reranker.encoder, writer)
        writer.array("document_tokens", engine.reranker.documents.flat)
        writer.array("document_starts", engine.reranker.documents.starts)
        first = self.first._write(engine.first, writer.inside("first"))
        return {"first": first, "trained": dict(engine.reranker.trained)}

    def _read(self, snapshot: artifact.Snapshot) -> RerankedEngine:
        encoder = encoders.read(snapshot).to(device_of(self.device, opening=True))
        documents = _read_tokens(snapshot, encoder.tokenizer.size)
        first = self.first._read(snapshot.inside("first"))
        return RerankedEngine(first, Reranker(encoder, documents, require_table(snapshot.state, "trained")))


def _read_tokens(snapshot: artifact.Snapshot, size: int) -> Tokens:
    """The documents as numbers below `size`; a ValueError if they are not."""
    flat = require_array(snapshot.array("document_tokens"), "document_tokens", ("uint16", "int32"), (None,))
    require_within(flat, "document_tokens", 0, size)
    starts = np.asarray(snapshot.array("document_starts"))
    return Tokens(flat, require_starts(starts, "document_starts", snapshot.documents, len(flat)))


def _reordered(result: Result, scores: Sequence[float], k: int) -> Result:
    """The candidates that were read in their new order, and behind them the others as they stood."""
    read, others = result[: len(scores)], result[len(scores) :]
    least = min(scores, default=0.0)
    tail = [Hit(hit.id, least - place) for place, hit in enumerate(others, 1)]
    new = ranked(Hit(hit.id, score) for hit, score in zip(read, scores, strict=True))
    return Result((*new, *tail)[:k], note=result.note)


def joined(
    queries: Tokens,
    query: np.ndarray,
    documents: Tokens,
    rows: np.ndarray,
    tokenizer: TextTokenizer,
    longest: int | None,
) -> Tokens:
    """Each query with its document behind it, as one text; what is too long is cut but ends as texts do."""
    left, right = queries.take(query), documents.take(rows)
    begin = len(tokenizer.before)  # what stands before a text stands before the query alone
    room = (longest or 2**31) - left.lengths
    length = np.clip(right.lengths - begin, 0, np.maximum(room, 0))
    starts = starts_of(left.lengths + length)
    flat = np.empty(starts[-1], np.promote_types(left.flat.dtype, right.flat.dtype))
    flat[places(starts[:-1], left.lengths)] = left.flat
    flat[places(starts[:-1] + left.lengths, length)] = right.flat[places(right.starts[:-1] + begin, length)]
    for back, symbol in enumerate(reversed(tokenizer.after), 1):
        cut = (length < right.lengths - begin) & (length >= back)
        flat[starts[1:][cut] - back] = symbol
    return Tokens(flat, starts)


@dataclass(frozen=True)
class Candidates:
    """Queries with what is relevant to them, and with the wrong hits of a first stage."""

    pairs: Pairs
    queries: Tokens
    wrong: np.ndarray  # (queries, depth) rows, -1 where there are no more


@dataclass(frozen=True)
class CandidateBatches:
    """A round of batches: for each query the right document first, then wrong ones."""

    candidates: Candidates
    reranker: Reranker
    negatives: Negatives
    options: RerankTuning
    steps: int
    round: int

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        chance = chance_of(step, self.steps, self.options.seed, self.round)
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
        ids, mask = tokens.padded(np.arange(len(tokens)), encoder.tokenizer.pad)
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


def _quality(judged: Candidates, reranker: Reranker) -> dict[str, float]:
    """How early a relevant document comes when it is put among the wrong hits."""
    count = len(judged.pairs)
    right = np.array([judged.pairs.of(query)[0] for query in range(count)])
    rows = np.concatenate([right[:, None], judged.wrong], 1)
    query, place = np.nonzero(rows >= 0)
    scores = np.full(rows.shape, -np.inf)
    scores[query, place] = reranker.scores(judged.queries, query, rows[query, place])
    first = np.arange(rows.shape[1]) == 0
    return quality([reciprocal_rank_by(row, first, 10) for row in scores])
