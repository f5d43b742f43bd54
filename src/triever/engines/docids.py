"""A model that writes docids, the docids that exist, and what names new documents: searched by writing.

`Docids` is what all engines share that write; `DocidEngine` is the one that does nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from triever import config
from triever.artifact import Snapshot, Writer
from triever.data.records import Document, Hit, Result
from triever.data.store import DocumentStore
from triever.docids.code_use import code_facts
from triever.docids.schemes import Atomic, Docid, Scheme, Title
from triever.docids.trie import Paths, Trie, TrieShape
from triever.docids.walk import Walk
from triever.engines.base import Parts
from triever.engines.docid_search import ScoredDocuments, SearchOptions, found_by
from triever.engines.docid_tree import DocidTree, Symbols
from triever.engines.hits import together
from triever.engines.panels import Panel
from triever.errors import UsageError
from triever.memory_parts import Product, Products, Stored, Thing, scaled, weight_products, weights_in
from triever.models import decoders
from triever.models import encoder as encoders
from triever.models.causal import ROOM, CausalDecoder, CausalGenerator
from triever.models.cross_decoder import CrossDecoder, Seq2SeqGenerator
from triever.models.decoders import DecoderOptions, takes_vectors
from triever.models.docid_model import DocidModel, laid_out
from triever.models.encoder import Encoder, adapter_facts, encode, source_of
from triever.models.even_causal import EvenCausalGenerator
from triever.models.even_decoder import EvenSeq2SeqGenerator, can_be_even
from triever.models.fused_decoder import FusedGenerator, can_fuse
from triever.models.generator import Generator
from triever.models.language_model import end_of
from triever.models.prompts import Prompt, Prompts
from triever.models.rounded import Rounded
from triever.models.token_decoder import TokenDecoder
from triever.models.tokens import TextTokenizer, Tokens
from triever.search.many import rows_on, search_each
from triever.search.paths import path_scores
from triever.search.recorder import Recorder
from triever.search.scores import Normalisation
from triever.search.steady_search import SteadySearch
from triever.validation import require, require_array, require_table

UNLIMITED = 2**31
"""More tokens than any text has."""
SEAM = 2
"""Tokens that there may be more where a question, a thought and the words around them meet."""
NO_THOUGHT = "the language model ended its thought at once"


@dataclass(frozen=True)
class Reading:
    """How the encoder that docids were made with reads texts; new documents and queries are read the same way."""

    query_prefix: str = ""
    document_prefix: str = ""
    document_length: int = 256
    prompt: str = ""  # the template that a query is put into, where titles are written in a backbone's own tokens
    thinking: str = ""  # the template that a thought about a query follows

    def query_tokens(self, model: ReadsTexts, queries: Sequence[str], length: int) -> Tokens:
        """Queries as a model reads them, at most `length` tokens of each; a prompt around them is never cut."""
        tokenizer = model.encoder.tokenizer
        if not self.prompt:
            return Tokens.of((self.query_prefix + query for query in queries), tokenizer, length)
        return Prompt(self.prompt).tokens(tokenizer, tokenizer.cut(queries, length), model.at_most(UNLIMITED))

    def around(self, tokenizer: TextTokenizer) -> tuple[list[int], list[int]]:
        """The tokens before and behind a query that is there as tokens already."""
        if self.prompt:
            return Prompt(self.prompt).around(tokenizer)
        # Without the space at its end, which belongs to the word behind it where it counts at all.
        prefix = tokenizer.ids([self.query_prefix.rstrip()], special=False)[0]
        return [*tokenizer.before, *prefix], tokenizer.after


class ReadsTexts(Protocol):
    """A model whose texts are cut and tokenised as its encoder wants them."""

    @property
    def encoder(self) -> Encoder:
        """What reads."""
        ...

    def at_most(self, wanted: int) -> int:
        """How many tokens of a text can be read, up to as many as are wanted."""
        ...


M = TypeVar("M", bound=DocidModel)


@dataclass(frozen=True)
class Docids(Generic[M]):
    """A model that writes docids, the docids that exist, and what gives docids to new documents."""

    model: M
    scheme: Scheme
    trie: Trie
    numbers: np.ndarray  # (documents,) under which number each row is in the trie, rising
    placer: Encoder | None  # whose vectors the scheme places new documents by
    reading: Reading
    query_length: int  # tokens of a query that are read
    vector_rows: bool  # whether the rows of symbols began as vectors of documents
    trained: Mapping[str, Any] = field(default_factory=dict)
    normalisation: Normalisation = "trie"  # what probabilities are over in a search that leaves it open

    @cached_property
    def walk(self) -> Walk:
        """The trie on the model's device."""
        return Walk(self.trie, self.model.device)

    def made_steady(self, options: SearchOptions) -> SteadySearch | None:
        """A new search in fixed shapes, if the options and the form of the model allow it."""
        if not options.steady:
            return None
        generator = self.generator()
        if isinstance(generator, Seq2SeqGenerator) and can_be_even(self.model):
            dtype = torch.bfloat16 if options.precision == "bfloat16" else None
            kind = FusedGenerator if can_fuse(self.model, self.walk.longest) else EvenSeq2SeqGenerator
            return SteadySearch(kind(generator.model, generator.tokenise, dtype), self.walk)
        if isinstance(generator, CausalGenerator):
            dtype = options.dtype_on(self.model.device)
            return SteadySearch(EvenCausalGenerator(generator.model, generator.tokenise, dtype), self.walk)
        return None

    def docid(self, number: int) -> Docid:
        """The docid of a document by its number."""
        return self.docids_of(np.array([number]))[0]

    def docids_of(self, numbers: np.ndarray) -> list[Docid]:
        """The docids of documents by their numbers."""
        paths, order = self._paths
        return paths.at(order[np.searchsorted(paths.document, numbers, sorter=order)])

    def listed(self) -> list[Thing]:
        """All that docids are looked up in."""
        paths, order = self._paths
        return [paths.flat, paths.start, paths.document, order, *(part.parent for part in self.trie.parts)]

    @cached_property
    def _paths(self) -> tuple[Paths, np.ndarray]:
        """All docids end to end, and in which order their documents rise."""
        paths = self.trie.paths()
        return paths, paths.document.argsort(kind="stable")

    @property
    def queries(self) -> tuple[int, str]:
        """How queries are read: how many tokens of each, and what stands before it."""
        return self.model.at_most(self.query_length), self.reading.query_prefix

    def generator(self, more: int = 0, dtype: torch.dtype | None = None) -> Generator:
        """What reads queries and scores symbols; in a prompt queries may have so many more tokens of a thought.

        The layers of a language model may compute in other numbers than its weights have.
        """
        length, prefix = self.queries
        if not isinstance(self.model, CausalDecoder):
            return self.model.generator(length, prefix)
        if not isinstance(self.model, TokenDecoder):
            return self.model.writing(self.model.tokeniser(length, prefix), dtype)
        pad = self.model.encoder.tokenizer.pad
        return self.model.writing(
            lambda texts: self.reading.query_tokens(self.model, texts, length + more).all_padded(pad), dtype
        )

    def check_thought(self, limit: int) -> None:
        """Refuse a thought that leaves no room for a question and a title in what the language model reads."""
        if limit:
            assert isinstance(self.scheme, Title)  # retrievers refuse to let others think
            prompts = Prompts(Prompt(self.reading.prompt), Prompt(self.reading.thinking))
            prompts.check_thought(limit, self.model.encoder.backbone, max(ROOM, self.scheme.most))

    def thoughts(self, queries: Sequence[str], limit: int) -> list[str]:
        """What the language model writes freely about queries, the likeliest token after the other."""
        assert isinstance(self.model, TokenDecoder)  # retrievers refuse to let others think
        self.check_thought(limit)
        tokenizer, longest = self.model.encoder.tokenizer, self.model.at_most(UNLIMITED)
        queries = tokenizer.cut(queries, self.queries[0])
        prompts = Prompt(self.reading.thinking).ids(tokenizer, queries, max(1, longest - limit))
        written = self.model.continued_freely(prompts, end_of(self.model.encoder.backbone), limit)
        return [" ".join(tokenizer.text(tokens).split()) for tokens in written]

    def with_thoughts(self, queries: Sequence[str], thoughts: Sequence[str]) -> list[str]:
        """Queries, each with what was thought about it behind it; where both have no room, the query is cut."""
        tokenizer = self.model.encoder.tokenizer
        room = self.model.at_most(UNLIMITED) - sum(map(len, self.reading.around(tokenizer)))
        joined = []
        for query, thought in zip(queries, thoughts, strict=True):
            behind = len(tokenizer.ids([f" {thought}"], special=False)[0]) + SEAM if thought else 0
            (short,) = tokenizer.cut([query], max(1, min(self.queries[0], room - behind)))
            joined.append(f"{short} {thought}" if thought else short)
        return joined

    def row_docid(self, store: DocumentStore, document_id: str) -> Docid:
        """The docid of a document by its id."""
        return self.docid(int(self.numbers[store.row(document_id)]))

    def tree(self) -> DocidTree:
        """The docids as a tree to look at."""
        return DocidTree(self.walk, Symbols(self.scheme), lambda numbers: np.searchsorted(self.numbers, numbers))

    # Changing

    def vectors(self, documents: Iterable[Document]) -> Tensor | None:
        """(documents, d) the vectors by which new documents are placed, where that is done by vectors."""
        if self.placer is None and self.scheme.needs_vectors:
            problem = "docids were made from given vectors, and there is nothing that makes such of a new document"
            raise UsageError(problem, "fit again with vectors of all documents")
        return vectors_of(self.placer, self.reading, documents) if self.placer else None

    def placed(self, documents: Sequence[Document], vectors: Tensor | None) -> Docids[M]:
        """With more documents, whose docids are found by these vectors where there is a placer."""
        scheme = copy.deepcopy(self.scheme)
        each = [None] * len(documents) if vectors is None else vectors
        docids = [scheme.place(document, vector) for document, vector in zip(documents, each, strict=True)]
        first = int(self.numbers[-1]) + 1 if len(self.numbers) else 0
        numbers = np.arange(first, first + len(documents))
        trie = self.trie.with_added(entries_of(docids, scheme.others(vectors), numbers.tolist()))
        both = np.concatenate([self.numbers, numbers])
        return replace(self, model=self._wide_enough(scheme, vectors), scheme=scheme, trie=trie, numbers=both)

    def _wide_enough(self, scheme: Scheme, vectors: Tensor | None) -> M:
        """The model with rows for the symbols of new documents, which these are the vectors of.

        Where rows began as vectors, a new one is its document's own vector, changed as the rows of its neighbours were
        on average by the training; else it is the mean of theirs.
        """
        new = range(self.model.shape.width, scheme.width)
        if not new or not isinstance(scheme, Atomic):  # no other scheme has new symbols
            return self.model
        apart = scheme.apart(new, vectors) if self.vector_rows and vectors is not None else None
        return laid_out(self.model.widened([scheme.untrained[symbol] for symbol in new], apart))

    def without(self, keep: np.ndarray) -> Docids[M]:
        """The same without some of its rows."""
        return replace(self, trie=self.trie.without(self.numbers[~keep].tolist()), numbers=self.numbers[keep])

    # Memory

    def stored(self, lookup: Sequence[Thing] | None = None) -> Stored:
        """All that it holds, by what it is for; `lookup` is what docids are looked up in, if not in its own."""
        rows, other_weights = self.model.split_rows()
        return {
            "weights": [*other_weights],
            "docid rows": [*rows],
            **self.trie.stored(),
            "walk": self.walk.stored(),
            "docids": [*(self.listed() if lookup is None else lookup)],
            "numbers": [self.numbers],
            "placer": [*weights_in(self.placer)],
            "placing": self.scheme.stored(),
        }

    def products(self, now: int, then: int) -> dict[str, Products]:
        """How many bytes the same takes for so many documents, by what is known of those that there are now."""
        shape = self.trie_shape(now, then)
        return {
            "weights": weight_products(self.model.split_rows()[1]),
            "docid rows": self.row_products(now, then),
            "trie": shape.products(),
            "walk": shape.walk_products(),
            "docids": shape.path_products(),
            "numbers": [Product(then, "documents", 8)],
            "placer": weight_products(weights_in(self.placer)),
            "placing": self.scheme.products(now, then),
        }

    def trie_shape(self, now: int, then: int) -> TrieShape:
        """How large the trie is then."""
        scheme = self.scheme
        shape = self.trie.shape(scaled(scheme.width, now, then) if isinstance(scheme, Atomic) else scheme.width)
        return shape.among(now, then, fixed=scheme.shared)

    def row_products(self, now: int, then: int) -> Products:
        """Rows that symbols are written with, and rows that they are read as: only atomic docids have more and more."""
        shape = self.model.shape
        row = 4 * shape.d_model, f"{shape.d_model} numbers of 4"
        if self.scheme.single:
            grows = isinstance(self.scheme, Atomic)
            count, kind = (scaled(shape.width, now, then), "documents") if grows else (shape.width, "clusters")
            return [Product(count, kind, *row), Product(1, "beginning", *row)]
        symbols = max(shape.width, shape.start + 1)
        read = [Product(symbols, "symbols that are read", *row)] if self.model.has_own_symbols else []
        return read if shape.tied else [Product(shape.width, "symbols that are written", *row), *read]

    # Keeping

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact; what is returned belongs into its state."""
        decoders.write(self.model, writer)
        self.trie.write(writer)
        writer.array("docid_numbers", self.numbers)
        if self.placer:
            encoders.write(self.placer, writer, "placer")
        state = {"docids": self.scheme.write(writer), "trained": dict(self.trained)}
        reading = {name: value for name, value in asdict(self.reading).items() if value != ""}
        return {**state, "reading": reading, "normalisation": self.normalisation}

    def made_from(self, *, ranked: bool = False) -> dict[str, Any]:
        """The backbone, how the training went, and how docids use their symbols.

        Where documents are `ranked` by something else too, they may share codes.
        """
        codes = code_facts(self.trie, self.scheme, ranked=ranked)
        encoder = self.model.encoder
        prompt = {"prompt": Prompt(self.reading.prompt).name} if self.reading.prompt else {}
        return {"weights": source_of(encoder), **prompt, **adapter_facts(encoder), **self.trained, **codes}


@dataclass(frozen=True)
class DocidEngine:
    """Docids, and how they are searched."""

    docids: Docids[DocidModel]
    options: SearchOptions

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The documents whose docids the model writes with the highest probabilities."""
        docids, generator, options = self.docids, self._generator(), self.search_options
        thoughts = docids.thoughts(queries, options.think) if options.think else [""] * len(queries)
        asked = self._asked(queries, thoughts)
        if self._steady is not None:
            found = self._steady.search(asked, options.beam(k), k, ties=True)
            scored_per_query = [ScoredDocuments(hits) for hits in found]
        else:
            scored_per_query = search_each(
                generator,
                asked,
                lambda cache, hidden: found_by(options, docids.walk, docids.scheme.stop, generator, cache, hidden, k),
                rows=rows_on(generator, options.beam(k).width),
            )
        results = found_results(docids, store, scored_per_query, k)
        said = NO_THOUGHT if options.think else ""
        return [
            replace(result, thought=thought, note=result.note or ("" if thought else said))
            for result, thought in zip(results, thoughts, strict=True)
        ]

    @cached_property
    def _steady(self) -> SteadySearch | None:
        return self.made_steady() if self.options.records_on(self.docids.model.device) else None

    def made_steady(self) -> SteadySearch | None:
        """A new search in fixed shapes, if it can be made in them."""
        return self.docids.made_steady(self.search_options)

    def _generator(self) -> Generator:
        # A thought may have a token more or less as a part of a prompt.
        return self._computing.generator(2 * self.options.think, self.options.dtype_on(self.docids.model.device))

    @property
    def _computing(self) -> Docids[DocidModel]:
        """The docids, with a model that computes in the numbers of the search."""
        model = self.docids.model
        rounds = self.options.rounds_on(model.device) and can_be_even(model)
        return replace(self.docids, model=self._rounded.now()) if rounds else self.docids

    @cached_property
    def _rounded(self) -> Rounded[DocidModel]:
        return Rounded(self.docids.model)

    def _asked(self, queries: Sequence[str], thoughts: Sequence[str]) -> Sequence[str]:
        return self.docids.with_thoughts(queries, thoughts) if self.options.think else queries

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """The log-probability of each symbol of a docid after those before it."""
        (asked,) = self._asked([query], [result.thought])
        return explained(self.docids, self._generator(), self.search_options, store, asked, result)

    def panels(self, store: DocumentStore, query: str, result: Result, k: int) -> tuple[Panel, ...]:
        """The prefixes that the search looked at."""
        docids, generator, options, recorder = self.docids, self._generator(), self.search_options, Recorder()
        asked = [*self._asked([query], [result.thought])]
        found_by(options, docids.walk, docids.scheme.stop, generator, *generator.prefill(asked), k, recorder)
        return docids.tree().beam(recorder, options, store, result)

    def docid_tree(self) -> DocidTree:
        """The docids as a tree to look at."""
        return self.docids.tree()

    @property
    def search_options(self) -> SearchOptions:
        """How docids are searched, where nothing is left open."""
        return self.options.following(self.docids.normalisation)

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With docids for more documents, which the model may have yet to learn."""
        return replace(self, docids=self.docids.placed(documents, self.docids.vectors(documents)))

    def without(self, keep: np.ndarray) -> Self:
        """Without some of its rows."""
        return replace(self, docids=self.docids.without(keep))

    def stored(self) -> Stored:
        """All that it holds."""
        return self.docids.stored()

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed."""
        return self.docids.products(now, then)

    def made_from(self) -> dict[str, Any]:
        """The backbone, and how the training went."""
        return self.docids.made_from()

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact."""
        return self.docids.write(writer)


def found_results(
    docids: Docids[M], store: DocumentStore, found: Sequence[ScoredDocuments], k: int
) -> Iterator[Result]:
    """What a search of docids found for each query: its best documents by their log-probabilities, with their docids.

    Ids and docids of all queries are looked up together: one by one takes longer than a search on a GPU.
    """
    numbers = [np.array([number for number, _ in scored.documents], np.int64) for scored in found]
    ids = together(numbers, lambda every: store.ids.of(np.searchsorted(docids.numbers, every)))
    best = [
        sorted(zip((logprob for _, logprob in scored.documents), names, own.tolist(), strict=True), reverse=True)[:k]
        for scored, names, own in zip(found, ids, numbers, strict=True)
    ]
    # Of many documents that share a docid, and so tie, few are left after the cut: only these look theirs up.
    written = together([np.array([number for *_, number in kept], np.int64) for kept in best], docids.docids_of)
    for scored, kept, own in zip(found, best, written, strict=True):
        hits = (
            Hit(name, logprob, docids.scheme.readable(docid), logprob)
            for (logprob, name, _), docid in zip(kept, own, strict=True)
        )
        yield Result(tuple(hits), scored.note, scored.certificate)


def explained(
    docids: Docids[M], generator: Generator, options: SearchOptions, store: DocumentStore, query: str, result: Result
) -> tuple[Parts, ...]:
    """The log-probability of each symbol of a docid after those before it; several documents share one."""
    cache, hidden = generator.prefill([query])
    parts_of_hits, (_, several) = [], docids.walk.counts
    for hit in result:
        docid = docids.row_docid(store, hit.id)
        scores, sharing = path_scores(
            generator, cache, hidden, docids.walk, docid, options.scored_over, options.temperature
        )
        names = [f"{position}: {docids.scheme.symbol(symbol)}" for position, symbol in enumerate(docid, 1)]
        shared = (("shared by several", -float(np.log(sharing))),) if sharing > 1 else ()
        parts: Parts = (*zip(names, scores, strict=True), *shared)
        rest = hit.score - sum(weight for _, weight in parts)
        if options.method == "mapped":
            parts += (("docids that do not exist", rest),)
        elif int(docids.numbers[store.row(hit.id)]) in several:
            parts += (("other docids", rest),)
        parts_of_hits.append(parts)
    return tuple(parts_of_hits)


def vectors_of(encoder: Encoder, reading: Reading, documents: Iterable[Document]) -> Tensor:
    """(documents, d) the vectors of documents as an encoder reads them."""
    texts = (reading.document_prefix + document.full_text for document in documents)
    tokens = Tokens.of(texts, encoder.tokenizer, encoder.at_most(reading.document_length))
    return torch.from_numpy(encode(encoder, tokens))


def attending(docids: Docids[DocidModel]) -> Docids[CrossDecoder]:
    """The same, whose model has a decoder that attends to a text; a ValueError if it has none."""
    require(isinstance(docids.model, CrossDecoder), "its model has no decoder that attends to a text")
    return cast("Docids[CrossDecoder]", docids)


def read(
    snapshot: Snapshot, scheme: Scheme, decoder: DecoderOptions, device: torch.device, query_length: int
) -> Docids[DocidModel]:
    """What an artifact holds, with docids by a scheme of these options."""
    scheme = copy.deepcopy(scheme)
    scheme.read(snapshot, require_table(snapshot.state, "docids"))
    model = decoders.read(snapshot).to(device)
    placer = encoders.read(snapshot, "placer").to(device) if snapshot.has("placer") else None
    numbers = require_array(snapshot.array("docid_numbers"), "docid_numbers", ("int64",), (snapshot.rows,))
    require((numbers[1:] > numbers[:-1]).all() and (numbers[:1] >= 0).all(), "its documents' numbers do not rise")
    trie = Trie.read(snapshot, scheme.width, numbers)
    require(scheme.stop is None or trie.ends_with(scheme.stop), "a docid does not end with the stop symbol")
    require(scheme.has_symbols(trie.symbols()), "a docid has a symbol that its scheme does not know")
    reading = config.build(Reading, require_table(snapshot.state, "reading"))  # earlier ones read without prefixes
    trained = require_table(snapshot.state, "trained")
    begun = placer is not None and takes_vectors(placer, decoder)
    over = snapshot.state.get("normalisation", "trie")  # which earlier ones were searched with, whatever they learned
    require(over in ("trie", "vocabulary"), "its normalisation is not known")
    rows = np.asarray(numbers)
    return Docids(laid_out(model), scheme, trie, rows, placer, reading, query_length, begun, trained, over)


def entries_of(
    docids: Sequence[Docid], others: Sequence[Sequence[Docid]], numbers: Iterable[int]
) -> Iterator[tuple[Docid, int]]:
    """Every docid with the number of its document; some documents have others besides."""
    for at, (docid, number) in enumerate(zip(docids, numbers, strict=True)):
        yield docid, number
        for other in dict.fromkeys(others[at] if others else ()):
            if other != docid:
                yield other, number
