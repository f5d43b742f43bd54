"""Generative retrieval: a model reads the query and writes the docid of a document (DSI).

A scheme gives docids, views teach them, and a search over the trie of those that exist finds the best.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from triever import artifact, config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.docids.schemes import Atomic, Docid, Scheme
from triever.docids.trie import Trie
from triever.errors import UsageError
from triever.index.top import shared
from triever.models import docid_model
from triever.models.backbones import SCRATCH, Backbone, load_backbone
from triever.models.docid_model import DecoderOptions, check_backbone, generator_of, reader_of, takes_vectors
from triever.models.encoder import Encoder, EncoderShape, encode
from triever.models.precision import device_of
from triever.models.seq2seq import Seq2SeqGenerator
from triever.models.t5 import T5, laid_out, widened
from triever.models.tokens import Tokens
from triever.ranks import reciprocal_rank
from triever.retrievers import claims
from triever.retrievers.base import Parts, Retriever
from triever.retrievers.dense import Dense
from triever.retrievers.docid_search import Found, SearchOptions, found_by
from triever.retrievers.encoding import check_lengths, check_memory, device, most, new_encoder, weights_of
from triever.retrievers.writing import Reading, Writing, entries_of
from triever.search.many import search_each
from triever.search.paths import path_scores
from triever.storage import Products, Stored
from triever.training.loop import Batches, train
from triever.training.pairs import Pairs, held_out, pairs_there, written_pairs
from triever.training.tuning import WATCH, DocidTuning, quality, summary
from triever.training.views import (
    IGNORED,
    Behind,
    Chunks,
    Generated,
    Labelled,
    View,
    ViewBatches,
    ViewOptions,
    check_shares,
    coverage,
    docid_rows,
)
from triever.validation import require

REPLAYED = 10
"""Old documents that are gone over again for each new one, at most."""


@dataclass(frozen=True)
class Lesson:
    """What a training is about: a model, what stands for the documents of a store, and what they are called."""

    engine: Writing
    views: Mapping[str, View]
    docids: np.ndarray
    dataset: Dataset
    store: DocumentStore
    work: Path | None  # a folder for what is too large for memory


@dataclass(eq=False)
class Generative(Retriever):
    """Generative retrieval: `Generative(docids=Semantic(), training=DocidTuning(steps=4000)).fit(data)`."""

    kind: ClassVar[str] = "generative"
    search_only: ClassVar[tuple[str, ...]] = ("search_options",)

    docids: Scheme = option(Atomic(), "atomic, naive, title, semantic, codebook or cluster, or a table with its kind")
    backbone: str = option("minilm", "what reads: minilm, scratch, a folder, an id of the hub; a T5 brings its decoder")
    fetch: bool = option(False, "fetch the backbone from the hub if it is not here")
    vectors: Retriever | None = option(
        None, "a dense retriever, or its folder, whose vectors docids are made from; none: the backbone as it comes"
    )
    decoder: DecoderOptions = option(DecoderOptions(), "what writes")
    views: ViewOptions = option(ViewOptions(), "what stands for documents in training")
    query_length: int = option(64, "tokens of a query that are read")
    document_length: int = option(512, "tokens of a document that chunks are taken from")
    training: DocidTuning = option(DocidTuning(), "how it is trained")
    search_options: SearchOptions = option(SearchOptions(), "how docids are searched")
    device: str = option("auto", "cpu, cuda, or auto: cuda where there is one")

    def __post_init__(self) -> None:
        config.validate(self)
        check_lengths(self._query_length, self.document_length)
        if self.vectors is not None and self.vectors.kind != "dense":
            raise UsageError(f"vectors = {self.vectors.kind} has no vector for a document", "name a dense retriever")
        if self.decoder.rows == "vectors":
            self._check_rows()

    def _check_rows(self) -> None:
        """Refuse to begin output rows as vectors where there are none that would do."""
        if not self.docids.names_vectors:
            problem = f"decoder.rows = vectors, and the symbols of these {self.docids.kind} docids stand for none"
            raise UsageError(
                problem, "leave it out, or use atomic docids, cluster without a branch, or codebook with positions"
            )
        if self._dense and self._dense.size:
            problem = f"decoder.rows = vectors, and vectors.size = {self._dense.size} projects them to another space"
            raise UsageError(problem, "leave it out, or name a dense retriever with size = 0")

    @property
    def _dense(self) -> Dense | None:
        """The retriever whose vectors docids are made from, where one is named."""
        return self.vectors if isinstance(self.vectors, Dense) else None

    @property
    def _spells(self) -> bool:
        """Whether what the decoder writes is not the symbols of docids themselves."""
        return False

    @property
    def _query_length(self) -> int:
        """How many tokens of a query are read."""
        return self.query_length

    def _members(self) -> tuple[Retriever, ...]:
        return (self.vectors,) if self.vectors is not None else ()

    def _learns_queries(self, dataset: Dataset) -> bool:
        return self._training is not None and "labelled" in (self.views.names or self._there(dataset))

    def _reads_expansions(self) -> bool:
        return not self.views.names or "generated" in self.views.names or super()._reads_expansions()

    # Learning

    def _learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> Writing:
        engine, docids, _ = self._begun(dataset, store, work)
        trained = self._train(engine, docids, dataset, store, work)
        laid_out(engine.model)
        return replace(engine, trained=trained)

    def _begun(
        self, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> tuple[Writing, np.ndarray, Tensor | None]:
        """What is trained, the docids (documents, longest) that it is taught, and the vectors they were made from."""
        self._check_early(dataset, store)
        placer, vectors = self._placed(dataset, store, work)
        scheme = copy.deepcopy(self.docids)  # the option stays as it was given
        docids = scheme.fit(list(store), vectors, placer.device)
        trie = Trie.of(entries_of(docids, scheme.others(vectors, docids), range(len(docids))))
        placed = placer if self._places(scheme) else None
        model = self._model(scheme, placer)
        engine = Writing(model, scheme, trie, np.arange(len(docids)), placed, reading=self._reading)
        return engine, docid_rows(docids), vectors

    def _check_early(self, dataset: Dataset, store: DocumentStore) -> None:
        """Refuse what is known to be impossible before any text is read."""
        if self.training.steps:
            names = self.views.names or self._there(dataset, store.expanded)
            check_shares(names, self.views.weights or [1.0] * len(names), self.training.batch)
        if backbone := self._known_backbone():
            check_backbone(backbone, self._decoder_for(backbone))

    def _decoder_for(self, backbone: Backbone) -> DecoderOptions:
        """What is to write where this reads."""
        return self.decoder

    def _known_backbone(self) -> Backbone | None:
        """What is going to read; scratch, which suits every decoder, is made from texts and not known yet."""
        source = self._dense or self
        if self._dense and self._dense._held:
            return self._dense._held.engine.encoder.backbone
        is_made = source.backbone.partition(":")[0] == SCRATCH
        return None if is_made else load_backbone(source.backbone, fetch=source.fetch)

    @property
    def _reading(self) -> Reading:
        dense = self._dense
        return Reading(dense.query_prefix, dense.document_prefix, dense.document_length) if dense else Reading()

    def _placed(self, dataset: Dataset, store: DocumentStore, work: Path | None) -> tuple[Encoder, Tensor | None]:
        """The encoder whose vectors docids are made from, and where they are needed the vectors."""
        wanted = self._places(self.docids)
        if self.vectors is not None:
            engine = self.vectors._engine_for(dataset, store, work / "vectors" if work else None)
            return engine.encoder, shared(np.asarray(engine.index.vectors(), np.float32)) if wanted else None
        backbone = load_backbone(self.backbone, texts=(one.full_text for one in store), fetch=self.fetch)
        shape = EncoderShape("last" if backbone.causal else "mean", 0, "none", unit=True)
        placer = new_encoder(backbone, shape, self.training.seed, device(self.device))
        return placer, self._vectors(placer, self._reading, store) if wanted else None

    def _places(self, scheme: Scheme) -> bool:
        """Whether documents get their docids by a vector, or, new ones at least, the rows of their docids."""
        return scheme.needs_vectors or isinstance(scheme, Atomic)

    def _vectors(self, placer: Encoder, reading: Reading, documents: Sequence[Document] | DocumentStore) -> Tensor:
        texts = (reading.document_prefix + one.full_text for one in documents)
        tokens = Tokens.of(texts, placer.tokenizer, most(placer, reading.document_length))
        return torch.from_numpy(encode(placer, tokens))

    def _model(self, scheme: Scheme, placer: Encoder) -> T5:
        reader = copy.deepcopy(placer)
        rows = scheme.rows() if takes_vectors(placer, self.decoder) else None
        model = docid_model.docid_model(
            reader, scheme.width, self.decoder, rows, self.training.seed, single=scheme.single
        )
        return model.to(device(self.device)).eval()

    def _train(
        self, engine: Writing, docids: np.ndarray, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> dict[str, Any]:
        if not self.training.steps:
            return {}
        views, held = self._views(engine, dataset, store, work)
        judged = held is not None and len(held) > 0
        trained = train(
            engine.model,
            self._loss_of_batch,
            self._taught(Lesson(engine, views, docids, dataset, store, work)),
            self.training,
            evaluate=(lambda _model: self._quality(engine, store, held)) if judged else None,
            watch=WATCH if judged else "",
            folder=work / "training" if work else None,
            given={"docids": claims.of_array(docids)},
            device=self.device,
            share=self._share(engine.model, self.training),
        )
        covered = {f"view {name}": about for name, about in coverage(views, len(store)).items()}
        return {**summary(trained), **covered}

    def _taught(self, lesson: Lesson) -> Callable[[int], Batches]:
        """What each round teaches."""
        return self._rounds(lesson.engine.model, lesson.views, self.views.weights, lesson.docids, self.training)

    def _loss_of_batch(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is made smaller."""
        return _loss(model, batch)

    def _rounds(
        self, model: T5, views: Mapping[str, View], weights: Sequence[float], docids: np.ndarray, options: DocidTuning
    ) -> Callable[[int], ViewBatches]:
        """What the loop asks for its batches."""
        reader = reader_of(model)
        longest = max(self._query_length, self.views.length)
        parameters = sum(weight.numel() for weight in model.parameters())
        symbols = options.batch * np.count_nonzero(docids != IGNORED) / max(1, len(docids))
        logits = math.ceil(symbols * model.shape.width / model.shape.shards)
        check_memory(reader, options, options.batch, longest, str(model.device), scores=logits, parameters=parameters)
        steps = options.batches
        shares, pad = weights or [1.0] * len(views), reader.tokenizer.pad
        check_shares([*views], shares, options.batch)
        return lambda number: ViewBatches(views, shares, docids, options.batch, steps, options.seed, number, pad)

    def _share(self, model: T5, options: DocidTuning) -> Callable[[str], float]:
        """The reader's share of the learning rate; one that is to stay as it is learns nothing."""
        share = 1.0 if self._begins_anew else options.reader
        model.reader.requires_grad_(share > 0)
        return lambda name: share if name.startswith("reader.") else 1.0

    @property
    def _begins_anew(self) -> bool:
        """Whether what reads has learned nothing yet."""
        return self.backbone.startswith("scratch") and self.vectors is None

    def _views(
        self, engine: Writing, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> tuple[dict[str, View], Pairs | None]:
        """What there is to learn from, by name, and the judged queries that are held out."""
        judged = pairs_there(dataset, self.training.split, store) if self._has_queries(dataset) else None
        train_on, held = held_out(judged, self.training.holdout) if judged else (None, None)
        views: dict[str, View] = {}
        for name in self.views.names or self._there(dataset, store.expanded):
            if name == "labelled":
                if train_on is None or not len(train_on):
                    raise UsageError("there are no queries to train on", "leave labelled out of views.names")
                views[name] = Labelled(train_on, self._query_tokens(engine, train_on.texts))
            elif name == "generated":
                views[name] = self._generated(engine, store)
            else:
                views[name] = self._chunks(engine, store, name, work)
        return views, held

    def _has_queries(self, dataset: Dataset) -> bool:
        """Whether there are judged queries; a split that was asked for by name must be there."""
        named = "labelled" in self.views.names or self.training.split != "train"
        return named or self.training.split in dataset.splits

    def _there(self, dataset: Dataset, expanded: int = 0) -> list[str]:
        """The views that a dataset has something for, but for the beginnings, which chunks hold too."""
        there = {"labelled": self._has_queries(dataset), "generated": expanded > 0, "chunks": True}
        return [name for name, is_there in there.items() if is_there]

    def _query_tokens(self, engine: Writing, queries: Sequence[str]) -> Tokens:
        reader, prefix = reader_of(engine.model), engine.reading.query_prefix
        return Tokens.of((prefix + query for query in queries), reader.tokenizer, most(reader, self._query_length))

    def _generated(self, engine: Writing, store: DocumentStore) -> Generated:
        written = written_pairs(store, self.views.questions)
        if not len(written):
            problem = "no document has generated queries"
            raise UsageError(problem, "write some with triever write-queries, and name the file by --expansions")
        return Generated(self._query_tokens(engine, written.texts), written.relevant)

    def _chunks(self, engine: Writing, store: DocumentStore, name: str, work: Path | None) -> Chunks:
        reader = reader_of(engine.model)
        # Without the space at its end, which belongs to the word behind it where it counts at all.
        prefix = reader.tokenizer.ids([engine.reading.query_prefix.rstrip()], special=False)[0]
        folder = work / "documents" if work else None
        # What is read in pieces may be longer than what can be read at once.
        texts = (one.full_text for one in store)
        length = min(self.views.length, self.document_length) if name == "first" else self.document_length
        tokens = Tokens.of(texts, reader.tokenizer, length, folder / name if folder else None)
        views = self.views
        count = 0 if name == "first" else views.count
        fresh = name != "first" and views.fresh
        longest = most(reader, views.length + len(prefix))
        return Chunks(tokens, reader.tokenizer, longest, count, fresh, self.training.seed, prefix)

    def _quality(self, engine: Writing, store: DocumentStore, held: Pairs) -> dict[str, float]:
        """How early the held-out queries find their documents, among all of them."""
        ranks = []
        for query, result in enumerate(self._search(engine, store, held.texts, 10)):
            right = {store.ids[row] for row in held.of(query).tolist()}
            ranks.append(reciprocal_rank([hit.id in right for hit in result]))
        return quality(ranks)

    # Searching

    def _search(self, engine: Writing, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        return [self._result(engine, store, one, k) for one in self._found(engine, queries, k)]

    def _found(self, engine: Writing, queries: Sequence[str], k: int) -> list[Found]:
        """For each query the numbers of the best documents, and of all that tie with the k-th."""
        generator = self._generator(engine)
        return search_each(
            generator, queries, lambda cache, hidden: self._found_by(engine, generator, cache, hidden, k)
        )

    def _generator(self, engine: Writing) -> Seq2SeqGenerator:
        longest = most(reader_of(engine.model), self._query_length)
        return generator_of(engine.model, longest, engine.reading.query_prefix)

    def _found_by(self, engine: Writing, generator: Any, cache: Any, hidden: Tensor, k: int) -> list[Found]:
        return found_by(self.search_options, engine, generator, cache, hidden, k)

    def _result(self, engine: Writing, store: DocumentStore, found: Found, k: int) -> Result:
        rows = np.searchsorted(engine.numbers, [number for number, _ in found.documents])
        logprobs = [logprob for _, logprob in found.documents]
        best = ranked(Hit(store.ids[row], one, logprob=one) for row, one in zip(rows.tolist(), logprobs, strict=True))
        # Of many documents that share a docid, and so tie, few are left after the cut: only these look theirs up.
        hits = (replace(hit, docid=engine.scheme.readable(self._docid(engine, store, hit))) for hit in best[:k])
        return Result(tuple(hits), found.note, found.certificate)

    def _docid(self, engine: Writing, store: DocumentStore, hit: Hit) -> Docid:
        return engine.docid(int(engine.numbers[store.row(hit.id)]))

    def _explain(self, engine: Writing, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """The log-probability of each symbol of a docid after those before it; several documents share one."""
        generator, options = self._generator(engine), self.search_options
        cache, hidden = generator.prefill([query])
        explained, (_, several) = [], engine.walk.counts
        for hit in result:
            docid = self._docid(engine, store, hit)
            scores, sharing = path_scores(
                generator, cache, hidden, engine.walk, docid, options.scored_over, options.temperature
            )
            names = [f"{place}: {engine.scheme.symbol(symbol)}" for place, symbol in enumerate(docid, 1)]
            shared = (("shared by several", -float(np.log(sharing))),) if sharing > 1 else ()
            parts: Parts = (*zip(names, scores, strict=True), *shared)
            if int(engine.numbers[store.row(hit.id)]) in several:
                parts += (("other docids", hit.score - sum(weight for _, weight in parts)),)
            explained.append(parts)
        return tuple(explained)

    def searching(self, **options: Any) -> Generative:
        """The same model and documents, searched in another way: `written.searching(method="exact")`."""
        return self.searched_with({"search_options": options})

    # Changing

    def _with_added(self, engine: Writing, documents: Sequence[Document], store: DocumentStore) -> Writing:
        vectors = self._vectors(engine.placer, engine.reading, documents) if engine.placer else None
        return self._enlarged(engine, documents, vectors, store)

    def _enlarged(
        self, engine: Writing, documents: Sequence[Document], vectors: Tensor | None, store: DocumentStore
    ) -> Writing:
        """The engine with more documents, which have these vectors where there is a placer."""
        scheme = copy.deepcopy(engine.scheme)
        each = [None] * len(documents) if vectors is None else vectors
        docids = [scheme.place(document, vector) for document, vector in zip(documents, each, strict=True)]
        first = int(engine.numbers[-1]) + 1 if len(engine.numbers) else 0
        numbers = np.arange(first, first + len(documents))
        trie = engine.trie.with_added(entries_of(docids, scheme.others(vectors), numbers.tolist()))
        both = np.concatenate([engine.numbers, numbers])
        model = self._wide_enough(engine, scheme, vectors)
        larger = replace(engine, model=model, scheme=scheme, trie=trie, numbers=both)
        return self._tuned(larger, documents, docids, store) if self.training.add_steps and documents else larger

    def _wide_enough(self, engine: Writing, scheme: Scheme, vectors: Tensor | None) -> T5:
        """The model with rows for the symbols of new documents, which these are the vectors of.

        Where rows began as vectors, a new one is its document's own vector, changed as the rows of its neighbours were
        on average by the training; else it is the mean of theirs.
        """
        new, placer = range(engine.model.shape.width, scheme.width), engine.placer
        if not new or not isinstance(scheme, Atomic):  # no other scheme has new symbols
            return engine.model
        begun = placer is not None and takes_vectors(placer, self.decoder)
        apart = scheme.apart(new, vectors) if begun and vectors is not None else None
        return laid_out(widened(engine.model, [scheme.untrained[symbol] for symbol in new], apart))

    def _tuned(
        self, engine: Writing, documents: Sequence[Document], docids: Sequence[Docid], store: DocumentStore
    ) -> Writing:
        """The engine after a short training on new documents, half of which goes over old ones again."""
        model = copy.deepcopy(engine.model)  # searches may be using the old one
        old = _some_rows(len(store) - len(documents), REPLAYED * len(documents), self.training.seed)
        replayed = DocumentStore(store.table.take(old))
        views = self._texts_of(engine, DocumentStore.of(documents))
        again = {
            f"{name} again": Behind(view, len(documents)) for name, view in self._texts_of(engine, replayed).items()
        }
        known = self._targets(engine, replayed, [engine.docid(int(engine.numbers[row])) for row in old])
        docids = self._targets(engine, documents, docids)
        options = replace(self.training, steps=self.training.add_steps, rounds=1, keep="last")
        weights = [1 / len(views)] * len(views) + [1 / max(1, len(again))] * len(again)
        rounds = self._rounds(model, {**views, **again}, weights, docid_rows([*docids, *known]), options)
        share = self._share(model, options)
        train(model, _loss, rounds, options, what="learning new documents", device=self.device, share=share)
        return replace(engine, model=laid_out(model))

    def _targets(
        self, engine: Writing, documents: Sequence[Document] | DocumentStore, docids: Sequence[Docid]
    ) -> Sequence[Docid]:
        """What the model is taught to write for documents with these docids."""
        return docids

    def _texts_of(self, engine: Writing, store: DocumentStore) -> dict[str, View]:
        """What there is of documents without judged queries."""
        views: dict[str, View] = {"chunks": self._chunks(engine, store, "chunks", None)} if len(store) else {}
        return views | ({"generated": self._generated(engine, store)} if store.expanded else {})

    def _without(self, engine: Writing, keep: np.ndarray) -> Writing:
        return engine.without(keep)

    # Memory

    def _stored(self, engine: Writing) -> Stored:
        return engine.stored()

    def _computed(self, engine: Writing, now: int, then: int) -> dict[str, Products]:
        return engine.products(now, then)

    def _made_from(self, engine: Writing) -> dict[str, Any]:
        return {"weights": weights_of(reader_of(engine.model)), **engine.trained}

    # Keeping

    def _write(self, engine: Writing, writer: artifact.Writer) -> dict[str, Any]:
        return engine.write(writer)

    def _read(self, snapshot: artifact.Snapshot) -> Writing:
        engine = Writing.read(snapshot, self.docids, device_of(self.device, opening=True))
        width, symbols = engine.model.shape.width, engine.scheme.width
        require(self._spells or width == symbols, f"its decoder writes {width} symbols, and docids have {symbols}")
        return engine


def _some_rows(count: int, most: int, seed: int) -> np.ndarray:
    """At most so many of the first rows, in their order, by chance."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:most])


def _loss(model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    assert isinstance(model, T5)
    return {"likelihood": model.loss(batch["ids"], batch["mask"], batch["docids"], IGNORED)}
