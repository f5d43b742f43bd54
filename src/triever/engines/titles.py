"""Titles in a vocabulary of their own: what a contextual retriever holds, and how its encoder reads titles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from triever import config
from triever.arrays import starts_of
from triever.artifact import Snapshot, Writer
from triever.config import option
from triever.data.records import Document, Result
from triever.data.store import DocumentStore
from triever.disk_arrays import room
from triever.docids.contextual_vocabulary import IdWalk, Spellings, Vocabulary
from triever.docids.schemes import Docid, Scheme
from triever.engines.base import Parts
from triever.engines.docid_search import ScoredDocuments, SearchOptions, found_by
from triever.engines.docid_tree import DocidTree
from triever.engines.docids import Docids, explained, found_results
from triever.engines.panels import Panel
from triever.errors import UsageError
from triever.memory_parts import Product, Products, Stored, scaled
from triever.models.contextual_generator import ContextualGenerator
from triever.models.cross_decoder import CrossDecoder, Seq2SeqCache, Seq2SeqGenerator
from triever.models.docid_model import words_of
from triever.models.encoder import Encoder, encode_tokens
from triever.models.even_contextual import EvenContextualGenerator
from triever.models.even_decoder import Even
from triever.models.generator import Cache, Generator, Hidden
from triever.models.tokens import TextTokenizer, Tokens, framed, places
from triever.search.beam import beam
from triever.search.hits import best, best_ranks
from triever.search.many import rows_on, search_each
from triever.search.paths import path_scores
from triever.search.recorder import Recorder
from triever.search.steady_search import SteadySearch
from triever.validation import require, require_array

Documents: TypeAlias = Sequence[Document] | DocumentStore
T = TypeVar("T", bound="TitleEngine")
TOGETHER = 20_000
"""Documents whose titles are read in context at once."""
EVERY, HARDLY = 1024, 1e-6
"""Paths of each prefix that an exact search follows, but for those that have a smaller share than the second."""


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


@dataclass(frozen=True)
class TitleReading:
    """How titles are read in context: alone or with their documents, up to so many tokens."""

    context: Literal["document", "title"]
    length: int

    def states(
        self,
        encoder: Encoder,
        documents: Documents,
        docids: Sequence[Docid],
        texts: Iterable[Tokens | None] | None = None,
        work: Path | None = None,
    ) -> np.ndarray:
        """(title tokens of all documents, hidden) the states of their titles in context; many lie in a file.

        `texts` is what is read behind titles, TOGETHER at a time, where that is tokenised already.
        """
        states = room((title_tokens(docids), encoder.backbone.hidden), np.float16, work)
        end = 0
        for number, behind in enumerate(self.texts(encoder, documents, len(docids)) if texts is None else texts):
            titles = docids[number * TOGETHER : (number + 1) * TOGETHER]
            part = title_states(encoder, titles, behind, encoder.at_most(self.length))
            begin, end = end, end + len(part)
            states[begin:end] = part
        return states

    def texts(self, encoder: Encoder, documents: Documents, count: int) -> Iterator[Tokens | None]:
        """What is read behind titles, TOGETHER at a time."""
        stream, length = (document.text for document in documents), encoder.at_most(self.length)
        for rows in slabs(count):
            yield None if self.context == "title" else Tokens.of(islice(stream, len(rows)), encoder.tokenizer, length)


def slabs(count: int) -> list[range]:
    """The rows of documents whose titles are read together."""
    return [range(low, min(count, low + TOGETHER)) for low in range(0, count, TOGETHER)]


@dataclass(frozen=True)
class TitleEngine:
    """A model that writes titles in a vocabulary of its own, and how they are searched."""

    docids: Docids[CrossDecoder]
    options: SearchOptions
    spelling: SpellingOptions
    titles: TitleReading
    spellings: Spellings | None = None  # the ids of tokens, whose rows are those of the model
    k: int = 0  # ids that a token may have

    @cached_property
    def id_walk(self) -> IdWalk:
        """The trie, walked by ids."""
        assert self.spellings is not None
        return IdWalk(self.docids.trie, self.spellings, self.docids.model.device)

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The ids of tokens with their vectors, as the model has them now."""
        known = self.spellings
        return Vocabulary(known.start, known.count, self.docids.model.rows) if known else None

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The documents whose titles the model writes with the highest probabilities."""
        if self._writes_ids:
            plain = self._plain_generator()
            scored_per_query = search_each(plain, queries, lambda cache, hidden: self._by_ids(plain, cache, hidden, k))
        elif self._steady is not None:
            found = self._steady.search(queries, self.options.beam(k), k, ties=True)
            scored_per_query = [self._noted(ScoredDocuments(hits)) for hits in found]
        else:
            generator = self.generator()
            scored_per_query = search_each(
                generator,
                queries,
                lambda cache, hidden: self._found_by(generator, cache, hidden, k),
                rows=rows_on(generator, self.options.beam(k).width),
            )
        return [*found_results(self.docids, store, scored_per_query, k)]

    @cached_property
    def _steady(self) -> SteadySearch | None:
        return self.made_steady() if self.options.records_on(self.docids.model.device) else None

    def made_steady(self) -> SteadySearch | None:
        """A new search in fixed shapes, if it can be made in them."""
        steady = self.docids.made_steady(self.options)
        if self.spellings is None or steady is None:
            return steady
        if self._writes_ids or not isinstance(steady.generator, Even):
            return None
        generator = EvenContextualGenerator(steady.generator, self.spellings, paths=self.spelling.paths)
        return SteadySearch(generator, self.docids.walk)

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """The log-probability of each token of a title, or of the id that spells it, after those before it."""
        if not self._writes_ids:
            return explained(self.docids, self.generator(), self.options, store, query, result)
        generator, recorder = self._plain_generator(), Recorder()
        cache, hidden = generator.prefill([query])
        self._by_ids(generator, cache, hidden, max(1, len(result)), recorder)
        over = self.options.scored_over, self.options.temperature
        parts_of_hits: list[Parts] = []
        for hit, path in zip(result, self._best_paths(recorder, store, result), strict=True):
            names = [f"{position}: {self._spelled(number)}" for position, number in enumerate(path, 1)]
            scores, _ = path_scores(generator, cache, hidden, self.id_walk, path, *over) if path else ([], 0)
            parts_of_hits.append(tuple(zip(names, scores, strict=True)) or (("title", hit.score),))
        return tuple(parts_of_hits)

    def _best_paths(self, recorder: Recorder, store: DocumentStore, result: Result) -> list[Docid]:
        """The ids that spell the title of each hit by its best path; none where the search did not come to it."""
        paths: dict[int, Docid] = {}
        ended = (prefix for level in recorder.levels() for prefix in level.prefixes if prefix.outcome == "ended")
        for prefix in sorted(ended, key=lambda prefix: prefix.logprob):  # the best one comes last
            paths |= dict.fromkeys(self.id_walk.documents(list(prefix.state)), prefix.prefix)
        return [paths.get(int(self.docids.numbers[store.row(hit.id)]), ()) for hit in result]

    def panels(self, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
        """The prefixes that the search looked at: tokens, or ids that spell them."""
        recorder, tree = Recorder(), self.docid_tree()
        if self._writes_ids:
            plain = self._plain_generator()
            self._by_ids(plain, *plain.prefill([query]), k, recorder)
            note = "A token has several spellings, of which each is a symbol here; a title has its best path."
            return replace(tree, written=self._spelled).beam(recorder, self.options, store, result, note=note)
        generator = self.generator()
        self._found_by(generator, *generator.prefill([query]), k, recorder)
        note = "A prefix adds up the likeliest paths that spell it." if self.spellings else ""
        return tree.beam(recorder, self.options, store, result, note=note)

    def docid_tree(self) -> DocidTree:
        """The titles as a tree to look at."""
        return self.docids.tree()

    @property
    def _writes_ids(self) -> bool:
        """Whether a search writes ids of tokens, and takes the best path for the title."""
        return self.spellings is not None and self.spelling.join != "sum"

    def _spelled(self, number: int) -> str:
        """An id as the token that it spells, with a number if the token has several."""
        assert self.spellings is not None
        symbol = int(self.spellings.symbol[number])
        text, which = self.docids.scheme.symbol(symbol), number - int(self.spellings.start[symbol]) + 1
        return f"{text} ({which})" if self.spellings.count[symbol] > 1 else text

    def generator(self) -> Generator:
        """What reads queries and scores tokens, or the ids of a vocabulary."""
        inner = self._plain_generator()
        if self.spellings is None or self.spelling.join != "sum":
            return inner
        if self.options.method == "exact":
            return ContextualGenerator(inner, self.spellings, paths=EVERY, negligible=HARDLY)
        return ContextualGenerator(inner, self.spellings, paths=self.spelling.paths)

    def _plain_generator(self) -> Seq2SeqGenerator:
        """What scores the symbols of the model itself."""
        return self.docids.model.generator(*self.docids.queries)

    def _found_by(
        self, generator: Generator, cache: Cache, hidden: Hidden, k: int, recorder: Recorder | None = None
    ) -> list[ScoredDocuments]:
        docids = self.docids
        stop = docids.scheme.stop
        scored_per_query = found_by(self.options, docids.walk, stop, generator, cache, hidden, k, recorder)
        return [self._noted(scored) for scored in scored_per_query]

    def _noted(self, scored: ScoredDocuments) -> ScoredDocuments:
        """With a word on what the sums over spellings leave out."""
        if self.spellings is None or self.options.method == "exact":
            return scored  # there is nothing to add up, or a certificate counts what is left out
        kind = "a lower bound of" if self.options.scored_over == "vocabulary" else "near"
        note = f"probabilities add up {self.spelling.paths} spellings of each prefix at most: {kind} the sum over all"
        return replace(scored, note="; ".join(filter(None, [scored.note, note])))

    def _by_ids(
        self,
        generator: Seq2SeqGenerator,
        cache: Seq2SeqCache,
        hidden: Tensor,
        k: int,
        recorder: Recorder | None = None,
    ) -> list[ScoredDocuments]:
        """Titles by their best path; a beam may meet one several times, and then one of twice the width is tried."""
        options, walk = self.options.beam(k), self.id_walk
        limit = 2 * k * options.width if self.spelling.join == "regenerate" else options.width
        titles_by_query: dict[int, dict[int, float]] = {}
        left, width = torch.arange(len(hidden), device=hidden.device), options.width
        while len(left):
            remaining = generator.only(cache, left), hidden[left]
            wide = replace(options, width=width)
            frontier = beam(generator, *remaining, walk, wide, keep=width, recorder=recorder)
            titles = [
                best_ranks(walk, states, masses)
                for states, masses in zip(frontier.state.tolist(), frontier.logprob.tolist(), strict=True)
            ]
            titles_by_query |= zip(left.tolist(), titles, strict=True)
            enough = min(k, len(self.docids.numbers))
            few = [len(query_titles) < enough and width < limit for query_titles in titles]
            left, width = left[torch.tensor(few, device=left.device)], min(2 * width, limit)
        return [ScoredDocuments(best(titles_by_query[query], k, ties=True)) for query in range(len(hidden))]

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With more titles, and ids for those of their tokens that no title had."""
        larger = self._with_tokens_of(documents)
        # Titles are what they are: vectors would place nothing.
        return replace(larger, docids=larger.docids.placed(documents, None))

    def _with_tokens_of(self, documents: Sequence[Document]) -> Self:
        known = self.vocabulary
        if known is None or self.docids.placer is None:
            return self
        docids = [self.docids.scheme.place(document) for document in documents]
        symbols = title_symbols(docids)
        if known.count[symbols].all():
            return self
        states = self.titles.states(self.docids.placer, documents, docids)
        larger, _ = known.placed(symbols, states)
        return writing_in(self, larger, self.docids.model.start_row)

    def rewritten(self, docids: Sequence[Docid], states: np.ndarray) -> Sequence[Docid]:
        """Docids as ids of the vocabulary, each token by the id that is nearest to its state."""
        known = self.vocabulary
        assert known is not None
        _, ids = known.placed(title_symbols(docids), states)
        end = int(known.start[self.docids.scheme.stop])
        cuts = np.cumsum([len(docid) - 1 for docid in docids])[:-1]
        return [(*title_ids.tolist(), end) for title_ids in np.split(ids, cuts)] if len(docids) else []

    def without(self, keep: np.ndarray) -> Self:
        """Without some of its rows."""
        return replace(self, docids=self.docids.without(keep))

    def stored(self) -> Stored:
        """What writes titles, and how tokens are spelled."""
        known = self.spellings
        spellings: Stored = {"spellings": [known.start, known.count, known.table, known.symbol]} if known else {}
        return {**self.docids.stored(), **spellings}

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed."""
        parts, known = self.docids.products(now, then), self.spellings
        if known is None:
            return parts
        of_tokens = Product(
            len(known.count), "tokens", 16 + 8 * known.most_ids, f"first id, ids, list of {known.most_ids}"
        )
        ids, size = self._ids_among(known, now, then), self.docids.model.shape.d_model
        rows = [Product(ids + 1, "ids of tokens, and what begins a title", 4 * size, f"{size} numbers of 4")]
        return {**parts, "docid rows": rows, "spellings": [of_tokens, Product(ids, "ids", 8, "token")]}

    def _ids_among(self, known: Spellings, now: int, then: int) -> int:
        """At most so many ids: as many more as there are documents, but no more than all tokens can have."""
        ids, tokens = len(known), len(known.count)
        return min(scaled(ids, now, then), max(ids, self.k * (tokens - 1) + 1))  # an end has one

    def made_from(self) -> dict[str, Any]:
        """The backbone, and how the training went."""
        return self.docids.made_from(ranked=True)  # documents with one title are one title here

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact."""
        if self.spellings:
            writer.array("vocabulary_start", self.spellings.start)
            writer.array("vocabulary_count", self.spellings.count)
        return self.docids.write(writer)


def read(
    snapshot: Snapshot,
    docids: Docids[CrossDecoder],
    options: SearchOptions,
    spelling: SpellingOptions,
    titles: TitleReading,
    k: int,
) -> TitleEngine:
    """The engine of an artifact whose docids have been read."""
    engine = TitleEngine(docids, options, spelling, titles, k=k)
    if not snapshot.has("vocabulary_start"):
        return engine
    start, count = (
        require_array(snapshot.array(f"vocabulary_{name}"), f"vocabulary_{name}", ("int64",), (None,))
        for name in ("start", "count")
    )
    _require_spellings(start, count, docids.model.shape.width, docids)
    return replace(engine, spellings=Spellings(np.asarray(start), np.asarray(count)))


def _require_spellings(start: np.ndarray, count: np.ndarray, rows: int, docids: Docids[CrossDecoder]) -> None:
    """A ValueError unless every row is an id of one symbol, and every symbol of a title has an id."""
    require(len(start) == len(count) >= docids.scheme.width, "its vocabulary has other symbols than its titles")
    require(count.min(initial=0) >= 0, "a symbol has fewer ids than none")
    there = np.flatnonzero(count)
    there = there[start[there].argsort(kind="stable")]
    ends = starts_of(count[there])
    require(ends[-1] == rows and np.array_equal(start[there], ends[:-1]), "the ids of symbols are not its rows")
    trie = docids.trie.parts[0]
    used = np.concatenate([trie.token[1:], trie.tail])
    require(count[used].all(), "a symbol of a title has no id")


@dataclass(frozen=True)
class InContext:
    """Titles as the encoder of a vocabulary reads them: every token of every title, end to end."""

    vocabulary: Vocabulary
    scheme: Scheme
    plain: Tensor  # (tokens, hidden) the vocabulary of the backbone
    symbols: np.ndarray  # (n,) which token occurs
    documents: np.ndarray  # (n,) in the title of which row of the store
    read: Callable[[], np.ndarray]

    @cached_property
    def states(self) -> np.ndarray:
        """(n, hidden) its state in context; all titles are read for it, so only when it is asked for."""
        return self.read()


def writing_in(engine: T, vocabulary: Vocabulary, start: Tensor) -> T:
    """The engine with a vocabulary, whose rows the model gets."""
    model = engine.docids.model.with_symbols(vocabulary.rows.to(engine.docids.model.device), start)
    spellings = Spellings(vocabulary.start, vocabulary.count)
    return replace(engine, docids=replace(engine.docids, model=model), spellings=spellings)


def stop_row(encoder: Encoder) -> Tensor:
    """What the end of a title is: what stands behind every text."""
    return words_of(encoder)[(encoder.tokenizer.after or [encoder.tokenizer.pad])[0]].clone()


def start_row(encoder: Encoder) -> Tensor:
    """What every title begins from: what stands before every text, or the padding, as T5 has it."""
    return words_of(encoder)[(encoder.tokenizer.before or [encoder.tokenizer.pad])[0]].clone()


def title_tokens(docids: Sequence[Docid]) -> int:
    """How many tokens all titles have, without their ends."""
    return sum(map(len, docids)) - len(docids)


def title_symbols(docids: Sequence[Docid]) -> np.ndarray:
    """The tokens of all titles, end to end."""
    symbols = (symbol for docid in docids for symbol in docid[:-1])
    return np.fromiter(symbols, np.int64, title_tokens(docids))


def title_states(encoder: Encoder, docids: Sequence[Docid], texts: Tokens | None, length: int) -> np.ndarray:
    """The states of title tokens, each title followed by the text of its document up to a length in all."""
    tokens, keep = _followed(encoder.tokenizer, docids, texts, length)
    return encode_tokens(encoder, tokens, keep=keep, plain=True, label="reading titles")[0]


def _followed(
    tokenizer: TextTokenizer, docids: Sequence[Docid], texts: Tokens | None, length: int
) -> tuple[Tokens, np.ndarray]:
    """Titles, each followed by as much of a text as there is room for, and which of all tokens are those of titles."""
    titles = Tokens.from_lists([docid[:-1] for docid in docids], tokenizer.size)
    first, last = len(tokenizer.before), len(tokenizer.after)
    title_lengths, behind = titles.lengths, np.zeros(len(titles), np.int64)
    if texts is not None:
        behind = np.minimum(texts.lengths - first - last, np.maximum(0, length - first - last - title_lengths))
    tokens, begin = framed(title_lengths + behind, tokenizer.before, tokenizer.after, titles.flat.dtype)
    keep = np.zeros(len(tokens.flat), bool)
    keep[places(begin, title_lengths)] = True
    tokens.flat[keep] = titles.flat
    if texts is not None:
        tokens.flat[places(begin + title_lengths, behind)] = texts.flat[places(texts.starts[:-1] + first, behind)]
    return tokens, keep
