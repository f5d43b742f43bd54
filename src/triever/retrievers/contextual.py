"""Contextualized generative retrieval (CGR): titles are written in a vocabulary that knows the documents.

An encoder reads each title together with its document; the states of the title's tokens, clustered token by token,
are what the decoder reads and writes. So a model can tell titles apart by what their documents say, without having
been trained on them. With `vocabulary.k = 0` the vocabulary is the backbone's own and is trained (GENRE).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from triever import artifact, config
from triever.arrays import starts_of
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.docids.contextual import Vocabulary, about, contextual_vocabulary
from triever.docids.schemes import Docid, Scheme, Title
from triever.docids.trie import Trie
from triever.errors import UsageError
from triever.models import docid_model
from triever.models.backbones import Backbone
from triever.models.contextual import ContextualGenerator
from triever.models.docid_model import (
    SHARP,
    DecoderOptions,
    Table,
    as_long_as,
    is_bert,
    length_of,
    reader_of,
    words_of,
)
from triever.models.encoder import Encoder, room
from triever.models.t5 import T5, laid_out
from triever.models.tokens import Tokens
from triever.retrievers import claims
from triever.retrievers.docid_search import Found, SearchOptions
from triever.retrievers.encoding import device, most
from triever.retrievers.generative import Generative, Lesson
from triever.retrievers.titles import (
    InContext,
    Spelled,
    start_row,
    stop_row,
    title_states,
    title_symbols,
    title_tokens,
    writing_in,
)
from triever.retrievers.writing import Writing
from triever.search.beam import beam
from triever.search.hits import best, best_ranks
from triever.training.loop import train
from triever.training.losses import CONTRASTS
from triever.training.tuning import DocidTuning
from triever.training.views import IGNORED, ViewBatches, ViewOptions, docid_rows
from triever.validation import require, require_array

Documents: TypeAlias = Sequence[Document] | DocumentStore
TOGETHER = 20_000
"""Documents whose titles are read in context at once."""
SOME = 1000
"""Documents by whose titles it is seen how long states are."""
EVERY, HARDLY = 1024, 1e-6
"""Paths of each prefix that an exact search follows, but for those that have a smaller share than the second."""
EMB = "emb"
"""The name under which the encoder of the vocabulary goes through a training with the model, and its checkpoints."""


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
            problem = f"vocabulary: k {self.k}, every {self.every}, length {self.length}"
            raise UsageError(problem, "k and every are not negative, and length is at least 8")


@dataclass(frozen=True)
class ContrastTuning(DocidTuning):
    """A first training, of one state against the ids of titles (Contra): `ContrastTuning(steps=1000)`."""

    steps: int = option(0, "optimizer steps; 0 leaves it out")
    rounds: int = option(1, "the steps come in so many rounds")
    loss: Literal["batch+single", "matrix+single", "matrix+multiple"] = option(
        "matrix+multiple", "what is against what: ids of the batch or of the whole matrix, for one id or all of a title"
    )
    anew: bool = option(True, "then make the vocabulary anew, with the encoder so trained")


@dataclass(frozen=True)
class SpellingOptions:
    """How a title that can be spelled by several paths of ids is searched: `SpellingOptions(paths=10)`."""

    paths: int = option(5, "likeliest paths of each prefix that are followed; their probabilities are added")
    join: Literal["sum", "max", "regenerate"] = option(
        "sum", "sum over paths; max, the best path alone; regenerate, max with a wider beam until titles differ"
    )

    def __post_init__(self) -> None:
        config.validate(self)
        if self.paths < 1:
            raise UsageError(f"spelling.paths = {self.paths} should be above zero", "the default is 5")


@dataclass(eq=False)
class Contextual(Generative):
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
            problem = f"docids = {self.docids} of contextual retrieval, which are titles in the pieces of the backbone"
            raise UsageError(problem, "leave it out, or use kind generative")
        if self.search_options.method == "exact" and self.spelling.join != "sum":
            problem = f"an exact search adds up all spellings of a title, and spelling.join = {self.spelling.join}"
            raise UsageError(problem, "use search_options.method=beam, or spelling.join=sum")
        if self.contrast.steps and not self.vocabulary.k:
            problem = f"contrast.steps = {self.contrast.steps}, and vocabulary.k = 0 has no ids to contrast"
            raise UsageError(problem, "leave one of them out")

    # Learning

    def _learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> Writing:
        self._check_early(dataset, store)
        self._tokenised.clear()
        encoder, _ = self._placed(dataset, store, work)
        assert isinstance(self.docids, Title)
        scheme = Title.by(encoder.tokenizer.inner, min(self.docids.most, self._room(encoder)))
        docids = scheme.fit(list(store))
        trie = Trie.of(zip(docids, range(len(docids)), strict=True))
        engine = Spelled(
            self._blank(encoder, scheme.width),
            scheme,
            trie,
            np.arange(len(docids)),
            encoder,
            reading=self._reading,
            k=self.vocabulary.k,
        )
        targets = docid_rows(docids)
        if self.vocabulary.k:
            engine, targets = self._spelled(engine, docids, store, work)
        elif is_bert(encoder.backbone):
            self._sharpen(engine.model, encoder, docids, store)
        if self.contrast.steps:
            engine, targets = self._contrasted(engine, docids, targets, dataset, store, work)
        trained = self._train(engine, targets, dataset, store, work)
        return self._finished(engine, trained, title_tokens(docids))

    def _sharpen(self, model: T5, encoder: Encoder, docids: Sequence[Docid], store: DocumentStore) -> None:
        """Let a word that a state fits have the score that an id would have: words are shorter than states."""
        some = list(islice(store, SOME))
        states = self._states(encoder, some, docids[: len(some)])
        if len(states):
            long = length_of(torch.from_numpy(states)) * length_of(words_of(encoder))
            model.shape = replace(model.shape, scale=SHARP / long)

    def _contrasted(
        self,
        engine: Spelled,
        docids: Sequence[Docid],
        targets: np.ndarray,
        dataset: Dataset,
        store: DocumentStore,
        work: Path | None,
    ) -> tuple[Spelled, np.ndarray]:
        """The model after a training of its first state, and a vocabulary by its encoder, if that is wanted."""
        views, _ = self._views(engine, dataset, store, work)
        train(
            engine.model,
            partial(_contrast, self.contrast.loss),
            self._rounds(engine.model, views, self.views.weights, targets, self.contrast),
            self.contrast,
            what="contrasting",
            folder=work / "contrast" if work else None,
            given={"docids": claims.of_array(targets)},
            device=self.device,
            share=self._share(engine.model, self.contrast),
        )
        if not self.contrast.anew:
            return engine, targets
        encoder = copy.deepcopy(reader_of(engine.model)).requires_grad_(False).eval()
        return self._spelled(replace(engine, placer=encoder), docids, store, work)

    def _decoder_for(self, backbone: Backbone) -> DecoderOptions:
        return self.decoder if is_bert(backbone) else replace(self.decoder, copy=False)

    def _room(self, encoder: Encoder) -> int:
        """How many tokens of a title can be read."""
        special = len(encoder.tokenizer.before) + len(encoder.tokenizer.after)
        return most(encoder, self.vocabulary.length) - special

    def _blank(self, encoder: Encoder, width: int) -> T5:
        """A model that writes in the backbone's own vocabulary, which another may take the place of."""
        options = self._decoder_for(encoder.backbone)
        table: Table = "fixed" if self.vocabulary.k else "tied"
        model = docid_model.docid_model(copy.deepcopy(encoder), width, options, None, self.training.seed, table=table)
        with torch.no_grad():
            words = words_of(encoder)
            # A T5 may have rows for more tokens than its tokenizer knows.
            model.symbols.weight[: width - 1] = words[: width - 1]
            model.symbols.weight[width - 1], model.symbols.weight[width] = stop_row(encoder), start_row(encoder)
        return model.to(device(self.device)).eval()

    def _spelled(
        self, engine: Spelled, docids: Sequence[Docid], store: DocumentStore, work: Path | None
    ) -> tuple[Spelled, np.ndarray]:
        """With ids for the titles' tokens in context, by the engine's encoder, and the titles of documents in them."""
        encoder = engine.placer
        assert encoder is not None
        states = self._states(encoder, store, docids, work)
        known = self._clustered(engine, docids, states, None)
        made = writing_in(engine, known, as_long_as(known.rows, start_row(encoder)))
        return made, docid_rows(self._rewritten(made, docids, states))

    def _clustered(
        self, engine: Spelled, docids: Sequence[Docid], states: np.ndarray, before: Vocabulary | None
    ) -> Vocabulary:
        encoder, stop = engine.placer, engine.scheme.stop
        assert encoder is not None
        assert stop is not None
        made, _ = contextual_vocabulary(
            title_symbols(docids),
            states,
            {stop: stop_row(encoder)},
            width=engine.scheme.width,
            k=self.vocabulary.k,
            seed=self.training.seed,
            device=encoder.device,
            before=before,
        )
        # Words are far shorter than states: beside those, an end as short as a word could never be written.
        end = int(made.start[stop])
        made.rows[end] = as_long_as(torch.cat([made.rows[:end], made.rows[end + 1 :]]), made.rows[end])
        return made

    def _states(
        self, encoder: Encoder, documents: Documents, docids: Sequence[Docid], work: Path | None = None
    ) -> np.ndarray:
        """(title tokens of all documents, hidden) the states of their titles in context; many lie in a file."""
        states = room((title_tokens(docids), encoder.backbone.hidden), work)
        end = 0
        for number, texts in enumerate(self._texts(encoder, documents, len(docids), work)):
            titles = docids[number * TOGETHER : (number + 1) * TOGETHER]
            part = title_states(encoder, titles, texts, most(encoder, self.vocabulary.length))
            begin, end = end, end + len(part)
            states[begin:end] = part
        return states

    def _texts(self, encoder: Encoder, documents: Documents, count: int, work: Path | None) -> Iterator[Tokens | None]:
        """What is read behind titles, TOGETHER at a time; with a folder to work in, tokenised once for a fit."""
        slabs = [range(low, min(count, low + TOGETHER)) for low in range(0, count, TOGETHER)]
        length = most(encoder, self.vocabulary.length)
        if self.vocabulary.context == "title":
            yield from [None] * len(slabs)
            return
        stream = (one.text for one in documents)
        if work is None:
            yield from (Tokens.of(islice(stream, len(rows)), encoder.tokenizer, length) for rows in slabs)
            return
        folder = work / "documents" / "behind titles"
        # Only what this very fit has written is read again: what lies there may be older, or damaged.
        is_new = folder not in self._tokenised
        tokens = Tokens.of(stream, encoder.tokenizer, length, folder) if is_new else Tokens.open(folder)
        self._tokenised.add(folder)
        yield from (tokens.take(rows) for rows in slabs)

    def _rewritten(self, engine: Spelled, docids: Sequence[Docid], states: np.ndarray) -> Sequence[Docid]:
        """Docids as ids of the vocabulary, each token by the id that is nearest to its state."""
        assert engine.vocabulary is not None
        _, ids = engine.vocabulary.placed(title_symbols(docids), states)
        end = int(engine.vocabulary.start[engine.scheme.stop])
        cuts = np.cumsum([len(docid) - 1 for docid in docids])[:-1]
        return [(*some.tolist(), end) for some in np.split(ids, cuts)] if len(docids) else []

    def _targets(self, engine: Writing, documents: Documents, docids: Sequence[Docid]) -> Sequence[Docid]:
        assert isinstance(engine, Spelled)
        if engine.vocabulary is None or engine.placer is None:
            return docids
        return self._rewritten(engine, docids, self._states(engine.placer, documents, docids))

    def _taught(self, lesson: Lesson) -> Callable[[int], ViewBatches]:
        engine, docids, store, work = lesson.engine, lesson.docids, lesson.store, lesson.work
        rounds = self._rounds(engine.model, lesson.views, self.views.weights, docids, self.training)
        every = self.vocabulary.every
        if not every or not self.vocabulary.k:
            return rounds
        assert isinstance(engine, Spelled)
        assert engine.placer is not None
        # With the model, so that it is in its checkpoints: what a vocabulary was made with belongs to it.
        engine.model.add_module(EMB, copy.deepcopy(engine.placer).requires_grad_(False))
        titles = [engine.docid(number) for number in range(len(store))]

        made = {0: docids}  # what documents are called, by the round in which their vocabulary was made

        def remade(number: int) -> ViewBatches:
            begun = number - number % every
            if begun not in made:  # one that goes on in the middle reads the titles again, and nothing is made anew
                made.clear()
                made[begun] = docid_rows(self._remade(engine, store, titles, work, anew=number == begun))
            return replace(rounds(number), docids=made[begun])

        return remade

    @torch.no_grad()
    def _remade(
        self, engine: Spelled, store: DocumentStore, docids: Sequence[Docid], work: Path | None, *, anew: bool
    ) -> Sequence[Docid]:
        """What documents are called; `anew` after the vocabulary is made again with the reader as it is now."""
        encoder = engine.model.get_submodule(EMB)
        assert isinstance(encoder, Encoder)
        known = engine.vocabulary
        assert known is not None
        if anew:
            encoder.load_state_dict(reader_of(engine.model).state_dict())
        states = self._states(encoder, store, docids, work)
        if anew:
            rows = self._clustered(engine, docids, states, known).rows
            known.rows.copy_(rows)  # in the model: they are the same memory
        return self._rewritten(engine, docids, states)

    def _finished(self, engine: Spelled, trained: Mapping[str, Any], occurring: int) -> Spelled:
        encoder = engine.model._modules.pop(EMB, engine.placer)
        assert isinstance(encoder, Encoder)
        laid_out(engine.model)
        if engine.vocabulary is None:
            return replace(engine, placer=None, trained=trained)  # nothing is placed in a vocabulary of tokens
        return replace(engine, placer=encoder.eval(), trained={**trained, **about(engine.vocabulary, occurring)})

    # Searching

    def _generator(self, engine: Writing) -> Any:
        inner = super()._generator(engine)
        assert isinstance(engine, Spelled)
        if engine.vocabulary is None or self.spelling.join != "sum":
            return inner
        if self.search_options.method == "exact":
            return ContextualGenerator(inner, engine.vocabulary, paths=EVERY, negligible=HARDLY)
        return ContextualGenerator(inner, engine.vocabulary, paths=self.spelling.paths)

    def _found_by(self, engine: Writing, generator: Any, cache: Any, hidden: Tensor, k: int) -> list[Found]:
        assert isinstance(engine, Spelled)
        if engine.vocabulary is None or self.spelling.join == "sum":
            found = super()._found_by(engine, generator, cache, hidden, k)
            return found if engine.vocabulary is None else [self._noted(one) for one in found]
        return self._by_ids(engine, generator, cache, hidden, k)

    def _noted(self, found: Found) -> Found:
        """With a word on what the sums over spellings leave out."""
        if self.search_options.method == "exact":
            return found  # whose certificate counts it
        kind = "a lower bound of" if self.search_options.scored_over == "vocabulary" else "near"
        said = f"probabilities add up {self.spelling.paths} spellings of each prefix at most: {kind} the sum over all"
        return replace(found, note="; ".join(filter(None, [found.note, said])))

    def _by_ids(self, engine: Spelled, generator: Any, cache: Any, hidden: Tensor, k: int) -> list[Found]:
        """Titles by their best path; a beam may meet one several times, and then one of twice the width is tried."""
        options, walk = self.search_options.beam(k), engine.id_walk
        most = 2 * k * options.width if self.spelling.join == "regenerate" else options.width
        found: dict[int, dict[int, float]] = {}
        left, width = torch.arange(len(hidden), device=hidden.device), options.width
        while len(left):
            some = generator.only(cache, left), hidden[left]
            frontier = beam(generator, *some, walk, replace(options, width=width), keep=width)
            titles = [
                best_ranks(walk, states, masses)
                for states, masses in zip(frontier.state.tolist(), frontier.logprob.tolist(), strict=True)
            ]
            found |= zip(left.tolist(), titles, strict=True)
            enough = min(k, len(engine.numbers))
            few = [len(one) < enough and width < most for one in titles]
            left, width = left[torch.tensor(few, device=left.device)], min(2 * width, most)
        return [Found(best(found[query], k, ties=True)) for query in range(len(hidden))]

    # Looking closer

    def in_context(self) -> InContext:
        """The ids of titles, and what they were made from, for those who study them."""
        held = self._checked()
        engine, encoder = held.engine, held.engine.placer
        if engine.vocabulary is None:
            problem = "this model writes in its backbone's own vocabulary (vocabulary.k = 0), which has no clusters"
            raise UsageError(problem, "fit one with vocabulary.k above 0, such as 5")
        docids = [engine.docid(number) for number in engine.numbers.tolist()]
        return InContext(
            engine.vocabulary,
            engine.scheme,
            words_of(encoder),
            title_symbols(docids),
            np.repeat(np.arange(len(docids)), [len(docid) - 1 for docid in docids]),
            partial(self._states, encoder, held.store, docids),
        )

    # Changing

    def _with_added(self, engine: Writing, documents: Sequence[Document], store: DocumentStore) -> Writing:
        assert isinstance(engine, Spelled)
        # Titles are what they are: vectors would place nothing.
        return self._enlarged(self._with_tokens_of(engine, documents), documents, None, store)

    def _with_tokens_of(self, engine: Spelled, documents: Sequence[Document]) -> Spelled:
        """With ids for the tokens of new titles that no title had; the others have theirs."""
        if engine.vocabulary is None or engine.placer is None:
            return engine
        docids = [engine.scheme.place(document) for document in documents]
        symbols = title_symbols(docids)
        if engine.vocabulary.count[symbols].all():
            return engine
        larger, _ = engine.vocabulary.placed(symbols, self._states(engine.placer, documents, docids))
        return writing_in(engine, larger, engine.model.symbols.weight[-1])

    # Keeping

    def _write(self, engine: Writing, writer: artifact.Writer) -> dict[str, Any]:
        assert isinstance(engine, Spelled)
        if engine.vocabulary:
            writer.array("vocabulary_start", engine.vocabulary.start)
            writer.array("vocabulary_count", engine.vocabulary.count)
        return super()._write(engine, writer)

    @property
    def _spells(self) -> bool:
        return self.vocabulary.k > 0

    def _read(self, snapshot: artifact.Snapshot) -> Writing:
        engine = super()._read(snapshot)
        spelled = Spelled(**engine.fields(), k=self.vocabulary.k)
        if not snapshot.has("vocabulary_start"):
            return spelled
        start, count = (
            require_array(snapshot.array(f"vocabulary_{name}"), f"vocabulary_{name}", ("int64",), (None,))
            for name in ("start", "count")
        )
        rows = spelled.model.symbols.weight[:-1]
        _require_spellings(start, count, len(rows), spelled)
        return replace(spelled, vocabulary=Vocabulary(rows, np.asarray(start), np.asarray(count)))


def _require_spellings(start: np.ndarray, count: np.ndarray, rows: int, engine: Spelled) -> None:
    """A ValueError unless every row is an id of one symbol, and every symbol of a title has an id."""
    require(len(start) == len(count) >= engine.scheme.width, "its vocabulary has other symbols than its titles")
    require(count.min(initial=0) >= 0, "a symbol has fewer ids than none")
    there = np.flatnonzero(count)
    there = there[start[there].argsort(kind="stable")]
    ends = starts_of(count[there])
    require(ends[-1] == rows and np.array_equal(start[there], ends[:-1]), "the ids of symbols are not its rows")
    trie = engine.trie.parts[0]
    used = np.concatenate([trie.token[1:], trie.tail])
    require(count[used].all(), "a symbol of a title has no id")


def _contrast(kind: str, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """How far the first state that is written from is from the ids of its title, and how near to others."""
    assert isinstance(model, T5)
    begin = torch.full_like(batch["docids"][:, :1], model.shape.start)
    hidden, _ = model.decode(begin, None, model.read(batch["ids"], batch["mask"]))
    return {"contrast": CONTRASTS[kind](model.logits(hidden[:, 0]).float(), _own_ids(batch["docids"]))}


def _own_ids(docids: Tensor) -> Tensor:
    """(rows, longest - 1) the ids of titles without the end, IGNORED behind them."""
    last = (docids != IGNORED).sum(1, keepdim=True) - 1
    return docids.scatter(1, last, IGNORED)[:, : max(1, docids.shape[1] - 1)]
