"""Titles in a vocabulary of their own: what a contextual retriever holds, and how its encoder reads titles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from triever.docids.contextual import IdWalk, Vocabulary
from triever.docids.schemes import Docid, Scheme
from triever.models.docid_model import respelled, words_of
from triever.models.encoder import Encoder, encode_tokens
from triever.models.tokens import TextTokenizer, Tokens, framed, places
from triever.retrievers.writing import Writing
from triever.storage import Product, Products, Stored, scaled


@dataclass(frozen=True)
class Spelled(Writing):
    """A model that writes titles in a vocabulary of its own."""

    vocabulary: Vocabulary | None = None
    k: int = 0  # ids that a token may have

    @cached_property
    def id_walk(self) -> IdWalk:
        """The trie, walked by ids."""
        assert self.vocabulary is not None
        return IdWalk(self.trie, self.vocabulary, self.model.device)

    def stored(self) -> Stored:
        known = self.vocabulary
        spellings: Stored = {"spellings": [known.start, known.count, known.table, known.symbol]} if known else {}
        return {**super().stored(), **spellings}

    def products(self, now: int, then: int) -> dict[str, Products]:
        parts, known = super().products(now, then), self.vocabulary
        if known is None:
            return parts
        of_tokens = Product(len(known.count), "tokens", 16 + 8 * known.most, f"first id, ids, list of {known.most}")
        return {**parts, "spellings": [of_tokens, Product(self._ids_among(known, now, then), "ids", 8, "token")]}

    def row_products(self, now: int, then: int) -> Products:
        if self.vocabulary is None:
            return super().row_products(now, then)
        size, ids = self.model.shape.d_model, self._ids_among(self.vocabulary, now, then)
        return [Product(ids + 1, "ids of tokens, and what begins a title", 4 * size, f"{size} numbers of 4")]

    def _ids_among(self, known: Vocabulary, now: int, then: int) -> int:
        """At most so many ids: as many more as there are documents, but no more than all tokens can have."""
        ids, tokens = len(known), len(known.count)
        return min(scaled(ids, now, then), max(ids, self.k * (tokens - 1) + 1))  # an end has one


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


def writing_in(engine: Spelled, vocabulary: Vocabulary, start: Tensor) -> Spelled:
    """The engine with a vocabulary, whose rows are those of the model: one memory for both."""
    model = respelled(engine.model, vocabulary.rows.to(engine.model.device), start)
    return replace(engine, model=model, vocabulary=replace(vocabulary, rows=model.symbols.weight[:-1]))


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
    return encode_tokens(encoder, tokens, keep=keep, plain=True, what="reading titles")[0]


def _followed(
    tokenizer: TextTokenizer, docids: Sequence[Docid], texts: Tokens | None, length: int
) -> tuple[Tokens, np.ndarray]:
    """Titles, each followed by as much of a text as there is room for, and which of all tokens are those of titles."""
    titles = Tokens.from_lists([docid[:-1] for docid in docids], tokenizer.size)
    first, last = len(tokenizer.before), len(tokenizer.after)
    own, behind = titles.lengths, np.zeros(len(titles), np.int64)
    if texts is not None:
        behind = np.minimum(texts.lengths - first - last, np.maximum(0, length - first - last - own))
    tokens, begin = framed(own + behind, tokenizer.before, tokenizer.after, titles.flat.dtype)
    keep = np.zeros(len(tokens.flat), bool)
    keep[places(begin, own)] = True
    tokens.flat[keep] = titles.flat
    if texts is not None:
        tokens.flat[places(begin + own, behind)] = texts.flat[places(texts.starts[:-1] + first, behind)]
    return tokens, keep
