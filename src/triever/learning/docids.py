"""Teaching a model to write docids: how it is made, and how a training goes over what stands for documents.

Retrievers that write docids have the same options, `DocidRetriever`, and hold a `DocidTeaching`: it makes the model
and the docids, trains, and trains again when documents are added.
"""

from __future__ import annotations

import copy
import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from torch import Tensor, nn

from triever import artifact
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.docids.branches import Branches
from triever.docids.code_use import TIED, code_warnings, ties
from triever.docids.docid_list import DocidList
from triever.docids.schemes import Atomic, Docid, Pieces, Scheme, Title
from triever.docids.trie import Trie
from triever.engines import docids as docid_engines
from triever.engines.base import Engine
from triever.engines.clusters import ClusterEngine
from triever.engines.docids import DocidEngine, Docids, Reading, entries_of, vectors_of
from triever.engines.titles import TitleEngine
from triever.errors import UsageError
from triever.index.top import shared
from triever.index.vector_files import UNIT
from triever.learning.docid_options import DocidRetriever, view_names
from triever.learning.docid_views import seen_by, texts_of, views_of
from triever.learning.encoders import check_memory, device_name, new_encoder
from triever.models.adapters import AdapterOptions, check_library, check_values, is_new
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
from triever.progress import phase
from triever.ranks import reciprocal_rank
from triever.search.scores import Normalisation
from triever.training import fit_fingerprints
from triever.training.loop import Batches, train
from triever.training.loop import Loss as TrainLoss
from triever.training.pairs import Pairs
from triever.training.tuning import WATCH, DocidTuning, quality, summary
from triever.training.views import IGNORED, Behind, View, ViewBatches, check_shares, coverage, docid_rows
from triever.validation import require

_log = logging.getLogger("triever")

ADVICE = "try more questions, asked or written (triever write-queries), or a lower training.learning_rate"
"""What to do about a training that did not make the model better."""
REPLAYED = 10
"""Old documents that are gone over again for each new one, at most."""
E = TypeVar("E", DocidEngine, ClusterEngine, TitleEngine)
M = TypeVar("M", bound=DocidModel)
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


class WithEncoder(nn.Module):
    """A model and an encoder that go through a training together, and so through its checkpoints."""

    def __init__(self, model: DocidModel, encoder: Encoder) -> None:
        super().__init__()
        self.model = model
        self.encoder = encoder


def trie_of(docids: Sequence[Docid], others: Sequence[Sequence[Docid]], work: Path | None) -> Trie:
    """The trie of the docids of all documents; some documents have others besides."""
    if isinstance(docids, DocidList) and not others:
        return Trie.of_blocks(docids.blocks(), work)
    return Trie.of(entries_of(docids, others, range(len(docids))))


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
        check_values(options.adapter)
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
        if think := self.options.search_options.think:
            assert isinstance(self.options.docids, Title)
            self.prompts.check_thought(think, backbone, max(ROOM, self.options.docids.most))

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
        views, held = views_of(self.options, engine.docids, dataset, store, work)
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

        An encoder that goes through the training beside the model learns as the reader does. So does an adapter: what a
        wide one adds grows with its width and the rate. It learns at the full rate if what it lies in stays as it is.
        """
        share = 1.0 if self.options.begins_anew else options.reader_share
        model.encoder.let_learn(backbone=share > 0)
        readers = ("reader.", "model.reader.", "encoder.")
        whole = not model.has_own_symbols  # then all of it but an adapter came with the backbone
        if whole and not model.shape.tied:
            model.output.requires_grad_(share > 0 and not self.options.adapter.freezes)
        alone = self.options.adapter.freezes or not share  # the adapter learns, and nothing around it
        return lambda name: share if (whole or name.startswith(readers)) and not (alone and is_new(name)) else 1.0

    # Adding

    def tuned(
        self, engine: E, documents: Sequence[Document], store: DocumentStore, targets: Targets | None = None
    ) -> E:
        """The engine after a short training on new documents, if `training.add_steps` asks for it."""
        if len(documents) >= TIED and not self.by_vectors:  # for fewer, nobody should go over all docids
            warn_of_ties(engine.docids.trie, engine.docids.scheme)
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
        views = texts_of(self.options, docids, DocumentStore.of(documents))
        again = {
            f"{name} again": Behind(view, len(documents))
            for name, view in texts_of(self.options, docids, replayed).items()
        }
        known = docids.docids_of(docids.numbers[old])
        new = docids.docids_of(docids.numbers[before:])
        taught = [*targets(documents, new), *targets(replayed, known)] if targets else [*new, *known]
        options = replace(self.options.training, steps=self.options.training.add_steps, rounds=1, keep="last")
        weights = [1 / len(views)] * len(views) + [1 / max(1, len(again))] * len(again)
        rounds = self.rounds(model, {**views, **again}, docid_rows(taught), options, weights)
        share, device = self.rate_share(model, options), self.options.device
        loss = self._loss_for(docids)
        train(model, loss, rounds, options, label="learning new documents", device=device, share=share)
        return laid_out(model)


def reciprocal_ranks(engine: Engine, store: DocumentStore, held: Pairs) -> list[float]:
    """How early each held-out query finds its documents, among all of them."""
    relevant = ({store.ids[row] for row in held.of(query).tolist()} for query in range(len(held)))
    results = engine.search(store, held.texts, 10)
    return [reciprocal_rank([hit.id in right for hit in hits]) for hits, right in zip(results, relevant, strict=True)]


def warn_of_codes(trie: Trie, scheme: Scheme, *, ranked: bool) -> None:
    """Warn where docids have symbols that tell little, or are shared; what rows or vectors rank may share codes."""
    for warning in code_warnings(trie, scheme, ranked=ranked):
        _log.warning("%s", warning)


def warn_of_ties(trie: Trie, scheme: Scheme) -> None:
    """Warn where documents share their whole docid, as they may when more were added."""
    if warning := ties(trie, scheme):
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
