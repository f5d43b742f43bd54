"""Teaching a model to write docids: what stands for documents, and how a training goes over it.

Retrievers that write docids have the same options, `DocidRetriever`, and hold a `DocidTeaching`: it makes the model
and the docids, lays out the views, trains, and trains again when documents are added.
"""

from __future__ import annotations

import copy
import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar, cast

import numpy as np
from torch import Tensor, nn

from triever import artifact, config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.docids.branches import Branches
from triever.docids.code_use import code_warnings
from triever.docids.docid_list import DocidList
from triever.docids.schemes import Atomic, Docid, Pieces, Scheme, Title
from triever.docids.trie import Trie
from triever.engines import docids as docid_engines
from triever.engines.base import Engine
from triever.engines.clusters import ClusterEngine
from triever.engines.docid_search import SearchOptions
from triever.engines.docids import DocidEngine, Docids, Reading, ReadsTexts, entries_of, vectors_of
from triever.engines.encoded import DenseEngine
from triever.engines.given import GivenEngine
from triever.engines.titles import TitleEngine
from triever.errors import UsageError
from triever.index.top import shared
from triever.index.vector_files import UNIT
from triever.index.vectors import IndexOptions
from triever.learning.encoders import check_lengths, check_memory, device_name, new_encoder
from triever.models.adapters import AdapterOptions, check_library, is_new
from triever.models.backbones import SCRATCH, Backbone, load_backbone
from triever.models.causal import ROOM
from triever.models.decoders import DecoderOptions, check_backbone, docid_model, takes_vectors
from triever.models.docid_model import DocidModel, laid_out
from triever.models.encoder import Encoder, EncoderShape
from triever.models.language_model import end_of
from triever.models.precision import device_of
from triever.models.prompts import Prompts
from triever.models.seeds import seeded
from triever.models.token_decoder import token_decoder
from triever.models.tokens import Tokens
from triever.progress import phase
from triever.ranks import reciprocal_rank
from triever.retriever import Retriever
from triever.search.scores import Normalisation
from triever.training import fit_fingerprints
from triever.training.loop import Batches, train
from triever.training.loop import Loss as TrainLoss
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

_log = logging.getLogger("triever")

ADVICE = "try more questions, asked or written (triever write-queries), or a lower training.learning_rate"
"""What to do about a training that did not make the model better."""
GIVEN = "given"
"""The kind of retriever that has vectors of one's own, which its encoder need not be here for."""
REPLAYED = 10
"""Old documents that are gone over again for each new one, at most."""
E = TypeVar("E", DocidEngine, ClusterEngine, TitleEngine)
M = TypeVar("M", bound=DocidModel)
R = TypeVar("R", bound=Engine)
Targets: TypeAlias = Callable[[Sequence[Document] | DocumentStore, Sequence[Docid]], Sequence[Docid]]
"""What a model is taught to write for documents with these docids."""


class Loss(Protocol):
    """What is made smaller: the parts of the loss of a batch, by what goes through the training."""

    def __call__(
        self, module: nn.Module, batch: Mapping[str, Tensor], branches: Branches | None = None, /
    ) -> dict[str, Tensor]:
        """Probabilities are over all symbols, or over those of branches."""
        ...


@dataclass(frozen=True)
class Lesson(Generic[E]):
    """What a training is about: a model, what stands for the documents of a store, and what they are called."""

    engine: E
    views: Mapping[str, View]
    targets: np.ndarray  # (documents, longest)
    dataset: Dataset
    store: DocumentStore
    work: Path | None  # a folder for what is too large for memory


class Course(NamedTuple):
    """What goes through a training, and what each round teaches it."""

    module: nn.Module
    rounds: Callable[[int], Batches]


class Taught(Protocol):
    """What views are made for: a model, and how queries are read for it."""

    @property
    def model(self) -> ReadsTexts:
        """What learns."""
        ...

    @property
    def reading(self) -> Reading:
        """What stands before texts."""
        ...

    @property
    def queries(self) -> tuple[int, str]:
        """How many tokens of a query are read, and what stands before it."""
        ...


class WithEncoder(nn.Module):
    """A model and an encoder that go through a training together, and so through its checkpoints."""

    def __init__(self, model: DocidModel, encoder: Encoder) -> None:
        super().__init__()
        self.model = model
        self.encoder = encoder


@dataclass(eq=False)
class DocidRetriever(Retriever[R]):
    """The options of a retriever with a model that learns to write docids."""

    search_only: ClassVar[tuple[str, ...]] = ("search_options",)

    docids: Scheme = option(
        Atomic(), "atomic, naive, title, semantic, codebook, cluster or given, or a table with its kind"
    )
    backbone: str = option(
        "minilm", "the model that reads: minilm, smollm2, scratch, a folder, an id of the hub; a T5 brings its decoder"
    )
    fetch: bool = option(False, "fetch the backbone from the hub if it is not here")
    vectors: Retriever[Any] | None = option(
        None,
        "a dense retriever, or its folder, whose vectors docids are made from, or the system given with vectors of "
        "your own; none: the backbone as it comes",
    )
    decoder: DecoderOptions = option(DecoderOptions(), "what writes")
    views: ViewOptions = option(ViewOptions(), "what stands for documents in training")
    query_length: int = option(64, "tokens of a query that are read")
    document_length: int = option(512, "tokens of a document that chunks are taken from")
    training: DocidTuning = option(DocidTuning(), "how it is trained")
    search_options: SearchOptions = option(SearchOptions(), "how docids are searched")
    device: str = option("auto", "cpu, cuda, or auto: cuda where there is one")
    adapter: AdapterOptions = option(AdapterOptions(), "new weights inside of what reads, which may stay as it is")

    def __post_init__(self) -> None:
        config.validate(self)
        if self.vectors is not None and self.vectors.kind not in ("dense", GIVEN):
            problem = f"vectors = {self.vectors.kind} makes no vectors of documents"
            raise UsageError(problem, "name a dense retriever, or given with a file of vectors")
        check_lengths(self.read_length, self.document_length)
        if self.decoder.rows == "vectors":
            self._check_rows()
        if self.search_options.think and not self.writes_tokens:
            problem = f"search_options.think = {self.search_options.think} needs a language model that writes titles"
            raise UsageError(problem, "set docids=title, docids.tokenizer=backbone and a causal backbone")

    @property
    def writes_tokens(self) -> bool:
        """Whether docids are written in the tokens of a language model."""
        return False

    def _check_rows(self) -> None:
        """Refuse to begin output rows as vectors where there are none that would do."""
        if not self.docids.names_vectors:
            problem = f"decoder.rows = vectors, but the symbols of these {self.docids.kind} docids have no vectors"
            raise UsageError(
                problem,
                "leave decoder.rows out, or use docids atomic, cluster with branch=0, or codebook with positions",
            )
        if self.given:
            problem = "decoder.rows = vectors, but given vectors are not of the space of the states that are read"
            raise UsageError(problem, "leave decoder.rows out, or name a dense retriever with given.file")
        if self.dense and self.dense.size:
            problem = f"decoder.rows = vectors, but vectors.size = {self.dense.size} projects vectors to another size"
            raise UsageError(problem, "leave decoder.rows out, or name a dense retriever with size = 0")

    @property
    def dense(self) -> VectorSystem | None:
        """The retriever whose vectors docids are made from, where one is named."""
        # `__post_init__` refuses all others
        return cast("VectorSystem | None", self.vectors) if self.given is None else None

    @property
    def given(self) -> Retriever[GivenEngine] | None:
        """The retriever with vectors of one's own that docids are made from, where one is named."""
        return self.vectors if self.vectors is not None and self.vectors.kind == GIVEN else None

    @property
    def read_length(self) -> int:
        """How many tokens of a query are read."""
        return self.query_length

    @property
    def members(self) -> tuple[Retriever[Any], ...]:
        """The retriever whose vectors docids are made from, where one is named."""
        return (self.vectors,) if self.vectors is not None else ()

    def learns_queries(self, dataset: Dataset) -> bool:
        """Whether it learns from judged queries: only where they are among its views."""
        return self.tuning is not None and "labelled" in view_names(self, dataset)

    def learned_queries(self, dataset: Dataset, store: DocumentStore) -> str:
        """A fingerprint of the queries that it learns; where it cannot learn from them, that is said here."""
        if (split := self.training.split) == "train" and split not in dataset.splits:
            problem = f"{dataset.name} has no split 'train', from whose questions this {self.kind} learns"
            known = f" (known: {', '.join(dataset.splits)})" if dataset.splits else ""
            raise UsageError(problem, f"name one by training.split{known}, or learn from texts by views.names=chunks")
        return super().learned_queries(dataset, store)

    @property
    def reads_expansions(self) -> bool:
        """Whether it learns from written questions."""
        return not self.views.names or "generated" in self.views.names or super().reads_expansions

    @property
    def begins_anew(self) -> bool:
        """Whether what reads has learned nothing yet."""
        return self.backbone.startswith(SCRATCH) and self.dense is None

    def lessons(self, dataset: Dataset, store: DocumentStore) -> dict[str, Any]:
        """What is learned from besides documents, as fingerprints: also a file of docids."""
        files = {"docids": fit_fingerprints.of_files(self.docids.files)} if self.docids.files else {}
        return {**super().lessons(dataset, store), **files}

    def searching(self, **options: Any) -> Self:
        """The same model and documents, searched in another way: `written.searching(method="exact")`."""
        return self.searched_with({"search_options": options})


def trie_of(docids: Sequence[Docid], others: Sequence[Sequence[Docid]], work: Path | None) -> Trie:
    """The trie of the docids of all documents; some documents have others besides."""
    if isinstance(docids, DocidList) and not others:
        return Trie.of_blocks(docids.blocks(), work)
    return Trie.of(entries_of(docids, others, range(len(docids))))


class VectorSystem(Protocol):
    """What is asked of a dense retriever whose vectors docids are made from."""

    backbone: str
    fetch: bool
    query_length: int
    document_length: int
    query_prefix: str
    document_prefix: str
    size: int
    unit: bool
    index: IndexOptions

    @property
    def is_fitted(self) -> bool:
        """Whether it has an engine already."""
        ...

    @property
    def engine(self) -> DenseEngine:
        """What it searches with."""
        ...

    def engine_for(self, dataset: Dataset, store: DocumentStore, work: Path | None) -> DenseEngine:
        """What it searches these documents with, learned now if it is not fitted."""
        ...


def view_names(options: DocidRetriever[Any], dataset: Dataset, expanded: int = 0) -> Sequence[str]:
    """The views that are asked for, or that a dataset has something for; the beginnings are in chunks too."""
    there = {"labelled": has_queries(options, dataset), "generated": expanded > 0, "chunks": True}
    return options.views.names or [name for name, is_there in there.items() if is_there]


def has_queries(options: DocidRetriever[Any], dataset: Dataset) -> bool:
    """Whether there are judged queries; a split that was asked for by name must be there."""
    named = "labelled" in options.views.names or options.training.split != "train"
    return named or options.training.split in dataset.splits


@dataclass(frozen=True)
class DocidTeaching(Generic[E]):
    """How a model is made, and taught to write docids, by the options of a retriever that holds this."""

    options: DocidRetriever[Any]
    loss: Loss
    decoder: Callable[[Backbone], DecoderOptions] | None = None
    """What is to write where a backbone reads; by default the retriever's option, whatever the backbone is."""
    attends: bool = False
    """Whether what writes has to attend to the states of what reads."""
    by_vectors: bool = False
    """Whether documents have vectors, whatever their scheme is."""
    prompts: Prompts | None = None
    """What queries are put into where titles are in the backbone's own tokens; None: symbols are no tokens."""

    def check(self, dataset: Dataset, store: DocumentStore) -> None:
        """Refuse what is known to be impossible before any text is read."""
        options = self.options
        check_library(options.adapter)
        if options.given and not (self.by_vectors or options.docids.needs_vectors):
            problem = f"{options.docids.kind} docids are not made from vectors, so that given ones have no effect"
            raise UsageError(problem, "leave vectors out, or use semantic, codebook or cluster docids")
        if options.training.steps:
            names = view_names(options, dataset, store.expanded)
            check_shares(names, options.views.weights or [1.0] * len(names), options.training.batch)
        if backbone := self.known_backbone():
            decoder = self.decoder(backbone) if self.decoder else options.decoder
            check_backbone(backbone, decoder, attends=self.attends)
            self._check_tokens(backbone)

    def _check_tokens(self, backbone: Backbone) -> None:
        """Refuse a backbone that cannot write titles in its own tokens behind a prompt, where it should."""
        if self.prompts is None:
            return
        if not backbone.causal:
            problem = f"docids.tokenizer = backbone needs a causal language model, and {backbone.name} is none"
            raise UsageError(problem, "name one such as smollm2, or use the system contextual")
        end_of(backbone)  # which refuses one that cannot end a title
        needed = sum(map(len, self.prompts.asking.around(backbone.tokenizer)))
        if backbone.longest and needed >= backbone.longest - ROOM:
            problem = f"the prompt has {needed} tokens, and {backbone.name} reads {backbone.longest} with a title"
            raise UsageError(problem, "set a shorter prompt, or choose another backbone")

    def known_backbone(self) -> Backbone | None:
        """What is going to read; scratch, which suits every decoder, is made from texts and not known yet."""
        dense = self.options.dense
        if dense and dense.is_fitted:
            return dense.engine.encoder.backbone
        source = dense or self.options
        is_made = source.backbone.partition(":")[0] == SCRATCH
        return None if is_made else load_backbone(source.backbone, fetch=source.fetch)

    @property
    def reading(self) -> Reading:
        """How the encoder that docids are made with reads texts."""
        dense = self.options.dense
        if self.prompts:
            return Reading(prompt=self.prompts.asking.template, thinking=self.prompts.thinking.template)
        return Reading(dense.query_prefix, dense.document_prefix, dense.document_length) if dense else Reading()

    # Beginning

    def begun(
        self, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> tuple[Docids[DocidModel], np.ndarray, Tensor | None]:
        """What is trained, the docids (documents, longest) that it is taught, and the vectors they were made from."""
        placer, vectors = self.placed(dataset, store, work)
        self._check_tokens(placer.backbone)
        scheme = self._scheme(placer)
        with phase(f"making {scheme.kind} docids"):
            docids = scheme.fit(store.in_order(), vectors, placer.device)
            trie = trie_of(docids, scheme.others(vectors, docids), work)
        warn_of_codes(trie, scheme, ranked=self.by_vectors)
        placed = placer if self._places(scheme) and not self.options.given else None
        by_rows = placed is not None and takes_vectors(placed, self.options.decoder)
        numbers, length = np.arange(len(docids)), self.options.read_length
        model = self._model(scheme, placer)
        over = self._searched_over(scheme)
        made = Docids(model, scheme, trie, numbers, placed, self.reading, length, by_rows, normalisation=over)
        return made, docid_rows(docids), vectors

    def placed(self, dataset: Dataset, store: DocumentStore, work: Path | None) -> tuple[Encoder, Tensor | None]:
        """The encoder whose vectors docids are made from, and where they are needed the vectors."""
        options, wanted = self.options, self._places(self.options.docids)
        if options.dense is not None:
            engine = options.dense.engine_for(dataset, store, work / "vectors" if work else None)
            return engine.encoder, shared(np.asarray(engine.index.vectors(), np.float32)) if wanted else None
        backbone = load_backbone(options.backbone, texts=store.sample_texts(), fetch=options.fetch)
        own = self._given_vectors(dataset, store, work) if wanted and options.given else None
        shape = self._reader_shape(backbone, own)
        as_it_comes = AdapterOptions(freeze=True) if options.adapter.freezes else None  # so that it is not saved whole
        placer = new_encoder(backbone, shape, options.training.seed, device_name(options.device), as_it_comes)
        if own is not None:
            return placer, own
        return placer, vectors_of(placer, self.reading, store) if wanted else None

    def _given_vectors(self, dataset: Dataset, store: DocumentStore, work: Path | None) -> Tensor:
        """(documents, d) vectors of one's own."""
        assert self.options.given is not None
        engine = self.options.given.engine_for(dataset, store, work / "vectors" if work else None)
        return shared(np.asarray(engine.index.vectors(), np.float32))

    def _reader_shape(self, backbone: Backbone, own: Tensor | None) -> EncoderShape:
        """What stands behind what reads; where its vectors are matched with given ones, they are as wide as these."""
        pooling = "last" if backbone.causal else "mean"
        if own is None or not self.by_vectors:
            return EncoderShape(pooling, 0, "none", unit=True)
        lengths = own.norm(dim=1)
        unit = bool(((lengths - 1).abs() < UNIT).all())
        width = own.shape[1]
        if width == backbone.hidden:
            return EncoderShape(pooling, 0, "none", unit)
        if not self.options.training.steps:
            problem = f"given vectors have {width} numbers, and {backbone.name} makes {backbone.hidden}"
            raise UsageError(
                problem, "train it to make such vectors of queries (training.steps), or name their backbone"
            )
        return EncoderShape(pooling, width, "linear", unit)

    def _scheme(self, placer: Encoder) -> Scheme:
        """What gives docids, yet to be fitted; the option stays as it was given."""
        scheme, backbone = copy.deepcopy(self.options.docids), placer.backbone
        if self.prompts is None or not isinstance(scheme, Title):
            return scheme
        return scheme.written_by(Pieces(backbone.tokenizer.inner, end_of(backbone), self.prompts.asking.end))

    def _places(self, scheme: Scheme) -> bool:
        """Whether documents get their docids by a vector, or, new ones at least, the rows of their docids."""
        return self.by_vectors or scheme.needs_vectors or isinstance(scheme, Atomic)

    def _model(self, scheme: Scheme, placer: Encoder) -> DocidModel:
        if self.prompts:
            model = token_decoder(placer, scheme.width)
            self.adapt(model.encoder)
            return model.to(placer.device)
        options, reader = self.options, copy.deepcopy(placer)
        in_space = takes_vectors(placer, options.decoder) and not options.given
        rows = scheme.rows() if in_space else None
        model = docid_model(reader, scheme.width, options.decoder, rows, options.training.seed, single=scheme.single)
        self.adapt(model.encoder)
        return model.to(device_name(options.device)).eval()

    def adapt(self, reader: Encoder) -> None:
        """Put the adapter into what reads, where one is asked for."""
        options = self.options
        if options.adapter != AdapterOptions():
            with seeded(options.training.seed):
                reader.adapt(options.adapter)

    def read(self, snapshot: artifact.Snapshot, *, spells: bool = False) -> Docids[DocidModel]:
        """The model and the docids of an artifact; a ValueError if they do not fit each other.

        A model that `spells` writes other symbols than those of docids.
        """
        options = self.options
        device = device_of(options.device, opening=True)
        docids = docid_engines.read(snapshot, options.docids, options.decoder, device, options.read_length)
        width, symbols = docids.model.shape.width, docids.scheme.width
        require(spells or width == symbols, f"its decoder writes {width} symbols, and docids have {symbols}")
        return docids

    # Training

    def train(
        self,
        engine: E,
        targets: np.ndarray,
        dataset: Dataset,
        store: DocumentStore,
        work: Path | None,
        *,
        course: Callable[[Lesson[E]], Course] | None = None,
        judge: Callable[[E, DocumentStore, Pairs], list[float]] | None = None,
    ) -> dict[str, Any]:
        """Teach the model of an engine these targets (documents, longest), and say how it went.

        `judge` gives the reciprocal ranks of held-out queries where the engine is not searched as it is.
        """
        options = self.options.training
        if not options.steps:
            return {}
        views, held = self.views(engine.docids, dataset, store, work)
        ranks = judge or reciprocal_ranks
        lesson = Lesson(engine, views, targets, dataset, store, work)
        module, rounds = (course or self.course)(lesson)
        trained = train(
            module,
            self._loss_for(engine.docids),
            rounds,
            options,
            evaluate=(lambda _module: quality(ranks(engine, store, held), seen_by(views, held))) if held else None,
            watch=WATCH if held else "",
            folder=work / "training" if work else None,
            given={"docids": fit_fingerprints.of_array(targets)},
            device=self.options.device,
            share=self.rate_share(engine.docids.model, options),
            advice=ADVICE,
        )
        covered = {f"view {name}": about for name, about in coverage(views, len(store)).items()}
        return {**summary(trained), **covered}

    def _searched_over(self, scheme: Scheme) -> Normalisation:
        """What probabilities are over in a search that leaves it open: what they are over in training.

        A docid of one symbol is as probable over all symbols as over the trie, but for documents that were deleted.
        """
        return "trie" if scheme.single else self.options.training.normalisation

    def _loss_for(self, docids: Docids[Any]) -> TrainLoss:
        """The loss, over what `training.normalisation` says."""
        # Docids of one symbol are all symbols that there are.
        if self.options.training.normalisation == "vocabulary" or docids.scheme.single:
            return self.loss
        branches = functools.cache(functools.partial(Branches, docids.trie))  # on the device that a process trains on
        return lambda module, batch: self.loss(module, batch, branches(batch["targets"].device))

    def course(self, lesson: Lesson[E]) -> Course:
        """The model itself, and its views in every round."""
        model = lesson.engine.docids.model
        return Course(model, self.rounds(model, lesson.views, lesson.targets))

    def rounds(
        self,
        model: DocidModel,
        views: Mapping[str, View],
        targets: np.ndarray,
        options: DocidTuning | None = None,
        weights: Sequence[float] = (),
    ) -> Callable[[int], ViewBatches]:
        """What the loop asks for its batches."""
        options = options or self.options.training
        weights = weights or self.options.views.weights or [1.0] * len(views)
        encoder = model.encoder
        longest = max(self.options.read_length, self.options.views.length)
        if self.prompts:
            longest += sum(map(len, self.prompts.asking.around(encoder.tokenizer)))
        parameters = sum(weight.numel() for weight in model.parameters())
        symbols = options.batch * np.count_nonzero(targets != IGNORED) / max(1, len(targets))
        logits = math.ceil(symbols * model.shape.width / model.shape.shards)
        check_memory(encoder, options, options.batch, longest, str(model.device), scores=logits, parameters=parameters)
        steps, pad = options.batches, encoder.tokenizer.pad
        check_shares([*views], weights, options.batch)
        return lambda number: ViewBatches(views, weights, targets, options.batch, steps, options.seed, number, pad)

    def rate_share(self, model: DocidModel, options: DocidTuning) -> Callable[[str], float]:
        """The reader's share of the learning rate; one that is to stay as it is learns nothing.

        An encoder that goes through the training beside the model learns as the reader does. An adapter is new, and
        learns at the full rate.
        """
        share = 1.0 if self.options.begins_anew else options.reader_share
        model.encoder.let_learn(backbone=share > 0)
        readers = ("reader.", "model.reader.", "encoder.")
        whole = not model.has_own_symbols  # then all of it but an adapter came with the backbone
        if whole and not model.shape.tied:
            model.output.requires_grad_(share > 0 and not self.options.adapter.freezes)
        return lambda name: share if (whole or name.startswith(readers)) and not is_new(name) else 1.0

    # What stands for documents

    def views(
        self, docids: Taught, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> tuple[dict[str, View], Pairs | None]:
        """What there is to learn from, by name, and the judged queries that are held out, if there are any."""
        options = self.options
        judged = pairs_there(dataset, options.training.split, store) if has_queries(options, dataset) else None
        train_on, held = held_out(judged, options.training.holdout) if judged else (None, None)
        views: dict[str, View] = {}
        for name in view_names(options, dataset, store.expanded):
            if name == "labelled":
                if train_on is None or not len(train_on):
                    raise UsageError("there are no queries to train on", "leave labelled out of views.names")
                views[name] = Labelled(train_on, self._query_tokens(docids, train_on.texts))
            elif name == "generated":
                views[name] = self._generated(docids, store)
            else:
                views[name] = self._chunks(docids, store, name, work)
        return views, held if held is not None and len(held) else None

    def _query_tokens(self, docids: Taught, queries: Sequence[str]) -> Tokens:
        length, _ = docids.queries
        return docids.reading.query_tokens(docids.model, queries, length)

    def _generated(self, docids: Taught, store: DocumentStore) -> Generated:
        written = written_pairs(store, self.options.views.questions)
        if not len(written):
            problem = "no document has generated queries"
            raise UsageError(problem, "write queries with triever write-queries, and give the file with --expansions")
        return Generated(self._query_tokens(docids, written.texts), written.relevant, written.texts)

    def _chunks(self, docids: Taught, store: DocumentStore, name: str, work: Path | None) -> Chunks:
        options, model = self.options, docids.model
        tokenizer, views = model.encoder.tokenizer, options.views
        before, after = docids.reading.around(tokenizer)
        folder = work / "documents" / name if work else None
        # What is read in pieces may be longer than what can be read at once.
        texts = (document.full_text for document in store)
        length = min(views.length, options.document_length) if name == "first" else options.document_length
        tokens = Tokens.of(texts, tokenizer, length, folder)
        count = 0 if name == "first" else views.count
        fresh = name != "first" and views.fresh
        special = len(tokenizer.before) + len(tokenizer.after)
        longest = model.at_most(views.length + len(before) + len(after) - special)
        return Chunks(tokens, tokenizer, longest, count, fresh, options.training.seed, (before, after))

    def _texts_of(self, docids: Taught, store: DocumentStore) -> dict[str, View]:
        """What there is of documents without judged queries."""
        views: dict[str, View] = {"chunks": self._chunks(docids, store, "chunks", None)} if len(store) else {}
        return views | ({"generated": self._generated(docids, store)} if store.expanded else {})

    # Adding

    def tuned(
        self, engine: E, documents: Sequence[Document], store: DocumentStore, targets: Targets | None = None
    ) -> E:
        """The engine after a short training on new documents, if `training.add_steps` asks for it."""
        if not self.options.training.add_steps or not documents:
            return engine
        model = self._retrained(engine.docids, documents, store, targets)
        return replace(engine, docids=replace(engine.docids, model=model))

    def _retrained(
        self,
        docids: Docids[M],
        documents: Sequence[Document],
        store: DocumentStore,
        targets: Targets | None = None,
    ) -> M:
        """The model after a short training on new documents, half of which goes over old ones again.

        `targets` gives what the model is taught to write for documents with these docids, where it is not the docids.
        """
        model = copy.deepcopy(docids.model)  # searches may be using the old one
        before = len(store) - len(documents)
        old = _sample(before, REPLAYED * len(documents), self.options.training.seed)
        replayed = DocumentStore(store.table.take(old))
        views = self._texts_of(docids, DocumentStore.of(documents))
        again = {
            f"{name} again": Behind(view, len(documents)) for name, view in self._texts_of(docids, replayed).items()
        }
        known = [docids.docid(int(docids.numbers[row])) for row in old]
        new = [docids.docid(int(number)) for number in docids.numbers[before:]]
        taught = [*targets(documents, new), *targets(replayed, known)] if targets else [*new, *known]
        options = replace(self.options.training, steps=self.options.training.add_steps, rounds=1, keep="last")
        weights = [1 / len(views)] * len(views) + [1 / max(1, len(again))] * len(again)
        rounds = self.rounds(model, {**views, **again}, docid_rows(taught), options, weights)
        share, device = self.rate_share(model, options), self.options.device
        loss = self._loss_for(docids)
        train(model, loss, rounds, options, label="learning new documents", device=device, share=share)
        return laid_out(model)


def seen_by(views: Mapping[str, View], held: Pairs) -> np.ndarray:
    """(queries,) whether a judged query of the training is about a document of each held-out query.

    Texts and written queries, which there may be for any document, do not count.
    """
    labelled = views.get("labelled")
    return held.about(labelled.covered() if labelled is not None else np.empty(0, np.int64))


def reciprocal_ranks(engine: Engine, store: DocumentStore, held: Pairs) -> list[float]:
    """How early each held-out query finds its documents, among all of them."""
    relevant = ({store.ids[row] for row in held.of(query).tolist()} for query in range(len(held)))
    results = engine.search(store, held.texts, 10)
    return [reciprocal_rank([hit.id in right for hit in hits]) for hits, right in zip(results, relevant, strict=True)]


def warn_of_codes(trie: Trie, scheme: Scheme, *, ranked: bool) -> None:
    """Warn where docids have symbols that tell little, or are shared; what rows or vectors rank may share codes."""
    for warning in code_warnings(trie, scheme, ranked=ranked):
        _log.warning("%s", warning)


def _sample(count: int, limit: int, seed: int) -> np.ndarray:
    """A sorted random sample of at most `limit` of the first `count` rows."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:limit])


def likelihood(model: nn.Module, batch: Mapping[str, Tensor], branches: Branches | None = None) -> dict[str, Tensor]:
    """Minus the log-probability of docids."""
    return {"likelihood": written_by(model).loss(batch["ids"], batch["mask"], batch["targets"], IGNORED, branches)}


def written_by(module: nn.Module) -> DocidModel:
    """The model that writes, in what goes through a training."""
    model = module.model if isinstance(module, WithEncoder) else module
    assert isinstance(model, DocidModel)  # torch types whatever is trained as a module
    return model
