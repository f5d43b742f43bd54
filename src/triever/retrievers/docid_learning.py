"""What retrievers share that learn to write docids: what stands for documents, and how a model is taught."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from torch import Tensor, nn

from triever import artifact, config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.docids.schemes import Atomic, Docid, Scheme
from triever.docids.trie import Trie
from triever.engines import docids as docid_engines
from triever.engines.clusters import ClusterEngine
from triever.engines.docid_search import SearchOptions
from triever.engines.docids import DocidEngine, Docids, Reading, entries_of, vectors_of
from triever.engines.titles import TitleEngine
from triever.errors import UsageError
from triever.index.top import shared
from triever.models import docid_model
from triever.models.backbones import SCRATCH, Backbone, load_backbone
from triever.models.docid_model import DecoderOptions, check_backbone, reader_of, takes_vectors
from triever.models.encoder import Encoder, EncoderShape
from triever.models.precision import device_of
from triever.models.t5 import T5, laid_out
from triever.models.tokens import Tokens
from triever.ranks import reciprocal_rank
from triever.retrievers.base import Retriever
from triever.retrievers.dense import Dense
from triever.retrievers.encoding import check_lengths, check_memory, device_name, new_encoder
from triever.training import fit_fingerprints
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
E = TypeVar("E", DocidEngine, ClusterEngine, TitleEngine)


@dataclass(frozen=True)
class Lesson(Generic[E]):
    """What a training is about: a model, what stands for the documents of a store, and what they are called."""

    engine: E
    views: Mapping[str, View]
    docids: np.ndarray
    dataset: Dataset
    store: DocumentStore
    work: Path | None  # a folder for what is too large for memory


@dataclass(eq=False)
class DocidRetriever(Retriever[E]):
    """A retriever with a model that learns to write docids."""

    search_only: ClassVar[tuple[str, ...]] = ("search_options",)

    docids: Scheme = option(Atomic(), "atomic, naive, title, semantic, codebook or cluster, or a table with its kind")
    backbone: str = option("minilm", "what reads: minilm, scratch, a folder, an id of the hub; a T5 brings its decoder")
    fetch: bool = option(False, "fetch the backbone from the hub if it is not here")
    vectors: Retriever[Any] | None = option(
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

    @property
    def members(self) -> tuple[Retriever[Any], ...]:
        """The retriever whose vectors docids are made from, where one is named."""
        return (self.vectors,) if self.vectors is not None else ()

    def learns_queries(self, dataset: Dataset) -> bool:
        """Whether it learns from judged queries: only where they are among its views."""
        return self.tuning is not None and "labelled" in (self.views.names or self._there(dataset))

    @property
    def reads_expansions(self) -> bool:
        """Whether it learns from written questions."""
        return not self.views.names or "generated" in self.views.names or super().reads_expansions

    # What a system has to bring besides.

    @abstractmethod
    def _loss_of_batch(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is made smaller."""

    def searching(self, **options: Any) -> Self:
        """The same model and documents, searched in another way: `written.searching(method="exact")`."""
        return self.searched_with({"search_options": options})

    def _read_docids(self, snapshot: artifact.Snapshot) -> Docids:
        """The model and the docids of an artifact; a ValueError if they do not fit each other."""
        place = device_of(self.device, opening=True)
        docids = docid_engines.read(snapshot, self.docids, self.decoder, place, self._query_length)
        width, symbols = docids.model.shape.width, docids.scheme.width
        require(self._spells or width == symbols, f"its decoder writes {width} symbols, and docids have {symbols}")
        return docids

    # Learning

    def _begun(
        self, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> tuple[Docids, np.ndarray, Tensor | None]:
        """What is trained, the docids (documents, longest) that it is taught, and the vectors they were made from."""
        self._check_early(dataset, store)
        placer, vectors = self._placed(dataset, store, work)
        scheme = copy.deepcopy(self.docids)  # the option stays as it was given
        docids = scheme.fit(list(store), vectors, placer.device)
        trie = Trie.of(entries_of(docids, scheme.others(vectors, docids), range(len(docids))))
        placed = placer if self._places(scheme) else None
        begun = placed is not None and takes_vectors(placed, self.decoder)
        numbers, length = np.arange(len(docids)), self._query_length
        made = Docids(self._model(scheme, placer), scheme, trie, numbers, placed, self._reading, length, begun)
        return made, docid_rows(docids), vectors

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
        if self._dense and self._dense.is_fitted:
            return self._dense.engine.encoder.backbone
        is_made = source.backbone.partition(":")[0] == SCRATCH
        return None if is_made else load_backbone(source.backbone, fetch=source.fetch)

    @property
    def _reading(self) -> Reading:
        dense = self._dense
        return Reading(dense.query_prefix, dense.document_prefix, dense.document_length) if dense else Reading()

    def _placed(self, dataset: Dataset, store: DocumentStore, work: Path | None) -> tuple[Encoder, Tensor | None]:
        """The encoder whose vectors docids are made from, and where they are needed the vectors."""
        wanted = self._places(self.docids)
        if self._dense is not None:
            engine = self._dense.engine_for(dataset, store, work / "vectors" if work else None)
            return engine.encoder, shared(np.asarray(engine.index.vectors(), np.float32)) if wanted else None
        backbone = load_backbone(self.backbone, texts=(one.full_text for one in store), fetch=self.fetch)
        shape = EncoderShape("last" if backbone.causal else "mean", 0, "none", unit=True)
        placer = new_encoder(backbone, shape, self.training.seed, device_name(self.device))
        return placer, vectors_of(placer, self._reading, store) if wanted else None

    def _places(self, scheme: Scheme) -> bool:
        """Whether documents get their docids by a vector, or, new ones at least, the rows of their docids."""
        return scheme.needs_vectors or isinstance(scheme, Atomic)

    def _model(self, scheme: Scheme, placer: Encoder) -> T5:
        reader = copy.deepcopy(placer)
        rows = scheme.rows() if takes_vectors(placer, self.decoder) else None
        model = docid_model.docid_model(
            reader, scheme.width, self.decoder, rows, self.training.seed, single=scheme.single
        )
        return model.to(device_name(self.device)).eval()

    def _train(
        self, engine: E, docids: np.ndarray, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> dict[str, Any]:
        if not self.training.steps:
            return {}
        views, held = self._views(engine.docids, dataset, store, work)
        judged = held is not None and len(held) > 0
        trained = train(
            engine.docids.model,
            self._loss_of_batch,
            self._taught(Lesson(engine, views, docids, dataset, store, work)),
            self.training,
            evaluate=(lambda _model: self._quality(engine, store, held)) if judged else None,
            watch=WATCH if judged else "",
            folder=work / "training" if work else None,
            given={"docids": fit_fingerprints.of_array(docids)},
            device=self.device,
            share=self._share(engine.docids.model, self.training),
        )
        covered = {f"view {name}": about for name, about in coverage(views, len(store)).items()}
        return {**summary(trained), **covered}

    def _taught(self, lesson: Lesson[E]) -> Callable[[int], Batches]:
        """What each round teaches."""
        return self._rounds(lesson.engine.docids.model, lesson.views, self.views.weights, lesson.docids, self.training)

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
        self, docids: Docids, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> tuple[dict[str, View], Pairs | None]:
        """What there is to learn from, by name, and the judged queries that are held out."""
        judged = pairs_there(dataset, self.training.split, store) if self._has_queries(dataset) else None
        train_on, held = held_out(judged, self.training.holdout) if judged else (None, None)
        views: dict[str, View] = {}
        for name in self.views.names or self._there(dataset, store.expanded):
            if name == "labelled":
                if train_on is None or not len(train_on):
                    raise UsageError("there are no queries to train on", "leave labelled out of views.names")
                views[name] = Labelled(train_on, self._query_tokens(docids, train_on.texts))
            elif name == "generated":
                views[name] = self._generated(docids, store)
            else:
                views[name] = self._chunks(docids, store, name, work)
        return views, held

    def _has_queries(self, dataset: Dataset) -> bool:
        """Whether there are judged queries; a split that was asked for by name must be there."""
        named = "labelled" in self.views.names or self.training.split != "train"
        return named or self.training.split in dataset.splits

    def _there(self, dataset: Dataset, expanded: int = 0) -> list[str]:
        """The views that a dataset has something for, but for the beginnings, which chunks hold too."""
        there = {"labelled": self._has_queries(dataset), "generated": expanded > 0, "chunks": True}
        return [name for name, is_there in there.items() if is_there]

    def _query_tokens(self, docids: Docids, queries: Sequence[str]) -> Tokens:
        reader, prefix = reader_of(docids.model), docids.reading.query_prefix
        return Tokens.of((prefix + query for query in queries), reader.tokenizer, reader.at_most(self._query_length))

    def _generated(self, docids: Docids, store: DocumentStore) -> Generated:
        written = written_pairs(store, self.views.questions)
        if not len(written):
            problem = "no document has generated queries"
            raise UsageError(problem, "write some with triever write-queries, and name the file by --expansions")
        return Generated(self._query_tokens(docids, written.texts), written.relevant)

    def _chunks(self, docids: Docids, store: DocumentStore, name: str, work: Path | None) -> Chunks:
        reader = reader_of(docids.model)
        # Without the space at its end, which belongs to the word behind it where it counts at all.
        prefix = reader.tokenizer.ids([docids.reading.query_prefix.rstrip()], special=False)[0]
        folder = work / "documents" if work else None
        # What is read in pieces may be longer than what can be read at once.
        texts = (one.full_text for one in store)
        length = min(self.views.length, self.document_length) if name == "first" else self.document_length
        tokens = Tokens.of(texts, reader.tokenizer, length, folder / name if folder else None)
        views = self.views
        count = 0 if name == "first" else views.count
        fresh = name != "first" and views.fresh
        longest = reader.at_most(views.length + len(prefix))
        return Chunks(tokens, reader.tokenizer, longest, count, fresh, self.training.seed, prefix)

    def _quality(self, engine: E, store: DocumentStore, held: Pairs) -> dict[str, float]:
        """How early the held-out queries find their documents, among all of them."""
        ranks = []
        for query, result in enumerate(engine.search(store, held.texts, 10)):
            right = {store.ids[row] for row in held.of(query).tolist()}
            ranks.append(reciprocal_rank([hit.id in right for hit in result]))
        return quality(ranks)

    def _retrained(self, engine: E, documents: Sequence[Document], store: DocumentStore) -> T5:
        """The model after a short training on new documents, half of which goes over old ones again."""
        docids = engine.docids
        model = copy.deepcopy(docids.model)  # searches may be using the old one
        before = len(store) - len(documents)
        old = _some_rows(before, REPLAYED * len(documents), self.training.seed)
        replayed = DocumentStore(store.table.take(old))
        views = self._texts_of(docids, DocumentStore.of(documents))
        again = {
            f"{name} again": Behind(view, len(documents)) for name, view in self._texts_of(docids, replayed).items()
        }
        known = self._targets(engine, replayed, [docids.docid(int(docids.numbers[row])) for row in old])
        new = [docids.docid(int(number)) for number in docids.numbers[before:]]
        targets = docid_rows([*self._targets(engine, documents, new), *known])
        options = replace(self.training, steps=self.training.add_steps, rounds=1, keep="last")
        weights = [1 / len(views)] * len(views) + [1 / max(1, len(again))] * len(again)
        rounds = self._rounds(model, {**views, **again}, weights, targets, options)
        share = self._share(model, options)
        loss = self._loss_of_batch
        train(model, loss, rounds, options, what="learning new documents", device=self.device, share=share)
        return laid_out(model)

    def _targets(
        self, engine: E, documents: Sequence[Document] | DocumentStore, docids: Sequence[Docid]
    ) -> Sequence[Docid]:
        """What the model is taught to write for documents with these docids."""
        return docids

    def _texts_of(self, docids: Docids, store: DocumentStore) -> dict[str, View]:
        """What there is of documents without judged queries."""
        views: dict[str, View] = {"chunks": self._chunks(docids, store, "chunks", None)} if len(store) else {}
        return views | ({"generated": self._generated(docids, store)} if store.expanded else {})


def _some_rows(count: int, most: int, seed: int) -> np.ndarray:
    """A sorted random sample of at most `most` of the first `count` rows."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:most])


def likelihood(model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Minus the log-probability of docids."""
    assert isinstance(model, T5)
    return {"likelihood": model.loss(batch["ids"], batch["mask"], batch["docids"], IGNORED)}
