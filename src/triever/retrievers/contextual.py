"""Contextualized generative retrieval (CGR): titles are written in a vocabulary that knows the documents.

An encoder reads each title together with its document; the states of the title's tokens, clustered token by token,
are what the decoder reads and writes. So a model can tell titles apart by what their documents say, without having
been trained on them. With `vocabulary.k = 0` the vocabulary is the backbone's own and is trained (GENRE).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from triever import artifact, config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.docids.contextual_vocabulary import Vocabulary, about, build_vocabulary
from triever.docids.schemes import Docid, Scheme, Title
from triever.docids.trie import Trie
from triever.engines import titles as title_engines
from triever.engines.docid_search import SearchOptions
from triever.engines.docids import Docids, attending
from triever.engines.titles import (
    InContext,
    SpellingOptions,
    TitleEngine,
    TitleReading,
    slabs,
    start_row,
    stop_row,
    title_symbols,
    title_tokens,
    writing_in,
)
from triever.errors import UsageError
from triever.learning.docid_options import DocidRetriever
from triever.learning.docid_views import views_of
from triever.learning.docids import Course, DocidTeaching, Lesson, WithEncoder, likelihood, warn_of_codes, written_by
from triever.learning.encoders import device_name
from triever.models.backbones import Backbone
from triever.models.cross_decoder import CrossDecoder
from triever.models.decoders import DecoderOptions, Table, cross_decoder, is_bert
from triever.models.docid_model import SHARP, as_long_as, laid_out, length_of, words_of
from triever.models.encoder import Encoder
from triever.models.tokens import Tokens
from triever.training import fit_fingerprints
from triever.training.loop import train
from triever.training.losses import CONTRASTS
from triever.training.tuning import DocidTuning
from triever.training.views import IGNORED, ViewBatches, ViewOptions, docid_rows

SOME = 1000
"""Documents by whose titles it is seen how long states are."""


@dataclass(frozen=True)
class VocabularyOptions:
    """What titles are written with: `VocabularyOptions(k=5, context="title")`."""

    k: int = option(5, "ids of a token at most; 0: the backbone's own vocabulary, which is trained too (GENRE)")
    context: Literal["document", "title"] = option("document", "what a title is read with: its document, or nothing")
    length: int = option(256, "tokens of a title and its document that are read")
    every: int = option(
        0, "make it anew after so many rounds, with the encoder as trained until then (Async); 0: never"
    )

    def __post_init__(self) -> None:
        config.validate(self)
        if self.k < 0 or self.every < 0 or self.length < 8:
            problem = f"a value of vocabulary is too small: k = {self.k}, every = {self.every}, length = {self.length}"
            raise UsageError(problem, "set k and every to 0 or more, and length to 8 or more")


@dataclass(frozen=True)
class ContrastTuning(DocidTuning):
    """A first training, of one state against the ids of titles (Contra): `ContrastTuning(steps=1000)`."""

    steps: int = option(0, "optimizer steps; 0 leaves it out")
    rounds: int = option(1, "the steps come in so many rounds")
    loss: Literal["batch+single", "matrix+single", "matrix+multiple"] = option(
        "matrix+multiple", "what is against what: ids of the batch or of the whole matrix, for one id or all of a title"
    )
    anew: bool = option(True, "then make the vocabulary anew, with the encoder so trained")


@dataclass(eq=False)
class Contextual(DocidRetriever[TitleEngine]):
    """Contextualized generative retrieval: `Contextual(training=DocidTuning(steps=4000)).fit(data)`."""

    kind: ClassVar[str] = "contextual"
    search_only: ClassVar[tuple[str, ...]] = ("search_options", "spelling")

    docids: Scheme = option(Title(), "titles, and nothing else; their pieces are those of the backbone")
    decoder: DecoderOptions = option(
        DecoderOptions(copy=True), "what writes: by default a copy of the reader's layers, unless it is a T5"
    )
    views: ViewOptions = option(ViewOptions(names=("labelled",)), "what stands for documents in training")
    search_options: SearchOptions = option(SearchOptions(width=10), "how titles are searched")
    vocabulary: VocabularyOptions = option(VocabularyOptions(), "what titles are written with")
    spelling: SpellingOptions = option(SpellingOptions(), "how the ways to spell a title are joined")
    contrast: ContrastTuning = option(
        ContrastTuning(reader=1.0), "a contrastive training before that, after which the vocabulary is made anew"
    )
    training: DocidTuning = option(DocidTuning(reader=1.0), "how it is trained")
    _tokenised: set[Path] = field(default_factory=set, init=False, repr=False)  # folders, by the fit under way

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.docids, Title) or self.docids.tokenizer:
            problem = f"docids = {self.docids}, but contextual writes titles in the tokens of its backbone"
            raise UsageError(problem, "leave docids out, or use the system generative")
        if self.search_options.method == "exact" and self.spelling.join != "sum":
            problem = f"spelling.join = {self.spelling.join}, but an exact search adds up all spellings of a title"
            raise UsageError(problem, "use search_options.method=beam, or spelling.join=sum")
        if self.training.normalisation == "trie":
            problem = "training.normalisation = trie, but contextual learns its ids against all others"
            raise UsageError(problem, "leave training.normalisation out, or use generative with title docids")
        if self.contrast.steps and not self.vocabulary.k:
            problem = f"contrast.steps = {self.contrast.steps}, but with vocabulary.k = 0 there are no ids to contrast"
            raise UsageError(problem, "leave contrast.steps out, or raise vocabulary.k")

    # Learning

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> TitleEngine:
        """Make a vocabulary of titles in context, and teach a model to write in it."""
        self._teaching.check(dataset, store)
        self._tokenised.clear()
        encoder, _ = self._teaching.placed(dataset, store, work)
        assert isinstance(self.docids, Title)
        scheme = Title.by(encoder.tokenizer.inner, min(self.docids.most, self._room(encoder)))
        titles = scheme.fit(store.in_order())
        trie, numbers = Trie.of(zip(titles, range(len(titles)), strict=True)), np.arange(len(titles))
        warn_of_codes(trie, scheme, ranked=False)
        model, length = self._blank(encoder, scheme.width), self.read_length
        docids = Docids(model, scheme, trie, numbers, encoder, self._teaching.reading, length, vector_rows=False)
        engine = TitleEngine(docids, self.search_options, self.spelling, self._titles, k=self.vocabulary.k)
        targets = docid_rows(titles)
        if self.vocabulary.k:
            engine, targets = self._spelled(engine, titles, store, work)
        elif is_bert(encoder.backbone):
            self._sharpen(model, encoder, titles, store)
        if self.contrast.steps:
            engine, targets = self._contrasted(engine, titles, targets, dataset, store, work)
        encoder = self._renewed_encoder(engine)
        course = partial(self._renewing_course, encoder) if encoder else None
        trained = self._teaching.train(engine, targets, dataset, store, work, course=course)
        return self._finished(engine, encoder or engine.docids.placer, trained, title_tokens(titles))

    @property
    def _teaching(self) -> DocidTeaching[TitleEngine]:
        return DocidTeaching(self, likelihood, self._decoder_for, attends=True)

    @property
    def _titles(self) -> TitleReading:
        return TitleReading(self.vocabulary.context, self.vocabulary.length)

    def configured(self, engine: TitleEngine) -> TitleEngine:
        """The engine, searched and spelled as the options say."""
        return replace(engine, options=self.search_options, spelling=self.spelling)

    def tuned(self, engine: TitleEngine, documents: Sequence[Document], store: DocumentStore) -> TitleEngine:
        """The engine after a short training on new documents, if `training.add_steps` asks for it."""
        return self._teaching.tuned(engine, documents, store, partial(self._targets, engine))

    def read(self, snapshot: artifact.Snapshot) -> TitleEngine:
        """The titles of an artifact, and the vocabulary that they are written in."""
        k = self.vocabulary.k
        docids = attending(self._teaching.read(snapshot, spells=k > 0))
        return title_engines.read(snapshot, docids, self.search_options, self.spelling, self._titles, k)

    def _sharpen(self, model: CrossDecoder, encoder: Encoder, docids: Sequence[Docid], store: DocumentStore) -> None:
        """Let a word that a state fits have the score that an id would have: words are shorter than states."""
        documents = list(islice(store, SOME))
        states = self._titles.states(encoder, documents, docids[: len(documents)])
        if len(states):
            long = length_of(torch.from_numpy(states)) * length_of(words_of(encoder))
            model.shape = replace(model.shape, scale=SHARP / long)

    def _contrasted(
        self,
        engine: TitleEngine,
        docids: Sequence[Docid],
        targets: np.ndarray,
        dataset: Dataset,
        store: DocumentStore,
        work: Path | None,
    ) -> tuple[TitleEngine, np.ndarray]:
        """The model after a training of its first state, and a vocabulary by its encoder, if that is wanted."""
        model = engine.docids.model
        views, _ = views_of(self, engine.docids, dataset, store, work)
        train(
            model,
            partial(_contrast, self.contrast.loss),
            self._teaching.rounds(model, views, targets, self.contrast),
            self.contrast,
            label="contrasting",
            folder=work / "contrast" if work else None,
            given={"docids": fit_fingerprints.of_array(targets)},
            device=self.device,
            share=self._teaching.rate_share(model, self.contrast),
        )
        if not self.contrast.anew:
            return engine, targets
        encoder = copy.deepcopy(model.encoder).requires_grad_(False).eval()
        renewed = replace(engine, docids=replace(engine.docids, placer=encoder))
        return self._spelled(renewed, docids, store, work)

    def _decoder_for(self, backbone: Backbone) -> DecoderOptions:
        return self.decoder if is_bert(backbone) else replace(self.decoder, copy=False)

    def _room(self, encoder: Encoder) -> int:
        """How many tokens of a title can be read."""
        special = len(encoder.tokenizer.before) + len(encoder.tokenizer.after)
        return encoder.at_most(self.vocabulary.length) - special

    def _blank(self, encoder: Encoder, width: int) -> CrossDecoder:
        """A model that writes in the backbone's own vocabulary, which another may take the place of."""
        options = self._decoder_for(encoder.backbone)
        table: Table = "fixed" if self.vocabulary.k else "tied"
        model = cross_decoder(copy.deepcopy(encoder), width, options, None, self.training.seed, table=table)
        self._teaching.adapt(model.encoder)
        with torch.no_grad():
            words = words_of(encoder)
            # A T5 may have rows for more tokens than its tokenizer knows.
            model.symbols.weight[: width - 1] = words[: width - 1]
            model.symbols.weight[width - 1], model.symbols.weight[width] = stop_row(encoder), start_row(encoder)
        return model.to(device_name(self.device)).eval()

    def _spelled(
        self, engine: TitleEngine, docids: Sequence[Docid], store: DocumentStore, work: Path | None
    ) -> tuple[TitleEngine, np.ndarray]:
        """With ids for the titles' tokens in context, by the engine's encoder, and the titles of documents in them."""
        encoder = engine.docids.placer
        assert encoder is not None
        states = self._states(encoder, store, docids, work)
        known = self._clustered(engine, docids, states, None)
        made = writing_in(engine, known, as_long_as(known.rows, start_row(encoder)))
        return made, docid_rows(made.rewritten(docids, states))

    def _clustered(
        self, engine: TitleEngine, docids: Sequence[Docid], states: np.ndarray, before: Vocabulary | None
    ) -> Vocabulary:
        encoder, stop = engine.docids.placer, engine.docids.scheme.stop
        assert encoder is not None
        assert stop is not None
        made, _ = build_vocabulary(
            title_symbols(docids),
            states,
            {stop: stop_row(encoder)},
            width=engine.docids.scheme.width,
            k=self.vocabulary.k,
            seed=self.training.seed,
            device=encoder.device,
            before=before,
        )
        # Words are far shorter than states: beside those, an end as short as a word could never be written.
        end = int(made.start[stop])
        made.rows[end] = as_long_as(torch.cat([made.rows[:end], made.rows[end + 1 :]]), made.rows[end])
        return made

    def _states(self, encoder: Encoder, store: DocumentStore, docids: Sequence[Docid], work: Path | None) -> np.ndarray:
        """The states of all titles in context; with a folder to work in, texts are tokenised once for a fit."""
        texts = self._behind_titles(encoder, store, work) if work and self.vocabulary.context != "title" else None
        return self._titles.states(encoder, store, docids, texts, work)

    def _behind_titles(self, encoder: Encoder, store: DocumentStore, work: Path) -> Iterator[Tokens]:
        folder = work / "documents" / "behind titles"
        # Only what this very fit has written is read again: what lies there may be older, or damaged.
        is_new = folder not in self._tokenised
        stream, length = (document.text for document in store), encoder.at_most(self.vocabulary.length)
        tokens = Tokens.of(stream, encoder.tokenizer, length, folder) if is_new else Tokens.open(folder)
        self._tokenised.add(folder)
        return (tokens.take(rows) for rows in slabs(len(store)))

    def _targets(
        self, engine: TitleEngine, documents: Sequence[Document] | DocumentStore, docids: Sequence[Docid]
    ) -> Sequence[Docid]:
        if engine.vocabulary is None or engine.docids.placer is None:
            return docids
        return engine.rewritten(docids, engine.titles.states(engine.docids.placer, documents, docids))

    def _renewed_encoder(self, engine: TitleEngine) -> Encoder | None:
        """A copy of the encoder of the vocabulary that goes through the training, where that makes it anew (Async)."""
        if not self.vocabulary.every or not self.vocabulary.k or not self.training.steps:
            return None
        if engine.docids.placer is None:
            return None
        encoder = copy.deepcopy(engine.docids.placer)
        if encoder.adapter.kind == "none":  # it is going to take the weights of the reader
            self._teaching.adapt(encoder)
        return encoder.requires_grad_(False)

    def _renewing_course(self, encoder: Encoder, lesson: Lesson[TitleEngine]) -> Course:
        """The model with the encoder of its vocabulary, so that both are in checkpoints; both change between rounds."""
        engine, store, every = lesson.engine, lesson.store, self.vocabulary.every
        rounds = self._teaching.rounds(engine.docids.model, lesson.views, lesson.targets)
        titles = engine.docids.docids_of(np.arange(len(store)))
        made = {0: lesson.targets}  # what documents are called, by the round in which their vocabulary was made

        def remade(number: int) -> ViewBatches:
            begun = number - number % every
            if begun not in made:  # one that goes on in the middle reads the titles again, and nothing is made anew
                made.clear()
                renew = number == begun
                made[begun] = docid_rows(self._remade(engine, encoder, store, titles, lesson.work, renew=renew))
            return replace(rounds(number), targets=made[begun])

        return Course(WithEncoder(engine.docids.model, encoder), remade)

    @torch.no_grad()
    def _remade(
        self,
        engine: TitleEngine,
        encoder: Encoder,
        store: DocumentStore,
        docids: Sequence[Docid],
        work: Path | None,
        *,
        renew: bool,
    ) -> Sequence[Docid]:
        """What documents are called, where wanted after the vocabulary is made anew with the reader as it is now."""
        model = engine.docids.model
        if renew:
            encoder.load_state_dict(model.encoder.state_dict())
        states = self._states(encoder, store, docids, work)
        if renew:
            model.set_rows(self._clustered(engine, docids, states, engine.vocabulary).rows)
        return engine.rewritten(docids, states)

    def _finished(
        self, engine: TitleEngine, encoder: Encoder | None, trained: Mapping[str, Any], occurring: int
    ) -> TitleEngine:
        laid_out(engine.docids.model)
        if engine.vocabulary is None or encoder is None:  # nothing is placed in a vocabulary of tokens
            return replace(engine, docids=replace(engine.docids, placer=None, trained=trained))
        known = {**trained, **about(engine.vocabulary, occurring)}
        return replace(engine, docids=replace(engine.docids, placer=encoder.eval(), trained=known))

    # Looking closer

    def in_context(self) -> InContext:
        """The ids of titles, and what they were made from, for those who study them."""
        held = self._checked()
        engine, encoder = held.engine, held.engine.docids.placer
        if engine.vocabulary is None or encoder is None:
            problem = "this model writes in its backbone's own vocabulary (vocabulary.k = 0), which has no clusters"
            raise UsageError(problem, "fit a retriever with vocabulary.k above 0, such as 5")
        docids = engine.docids.docids_of(engine.docids.numbers)
        return InContext(
            engine.vocabulary,
            engine.docids.scheme,
            words_of(encoder),
            title_symbols(docids),
            np.repeat(np.arange(len(docids)), [len(docid) - 1 for docid in docids]),
            partial(engine.titles.states, encoder, held.searched, docids),
        )


def _contrast(kind: str, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """How far the first state that is written from is from the ids of its title, and how near to others."""
    writer = written_by(model)
    states = writer.first_states(batch["ids"], batch["mask"])
    return {"contrast": CONTRASTS[kind](writer.logits(states).float(), _own_ids(batch["targets"]))}


def _own_ids(targets: Tensor) -> Tensor:
    """(rows, longest - 1) the ids of titles without the end, IGNORED behind them."""
    last = (targets != IGNORED).sum(1, keepdim=True) - 1
    return targets.scatter(1, last, IGNORED)[:, : max(1, targets.shape[1] - 1)]
