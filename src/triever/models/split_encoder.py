"""An encoder in two parts: its first layers read queries and documents apart, the others read each pair together.

At the border, the attention of the first joint layer says how well a query and a document fit: what a query's tokens
ask with (queries) and what a document's tokens are found by (keys). A document's keys depend on the document alone, so
they can be computed ahead and indexed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from triever.errors import UsageError
from triever.models.bert_reader import BertLayer, BertReader, BertSizes
from triever.models.layers import EncoderLayer
from triever.models.t5 import T5Shape, TextEncoder

PIECE, PIECES = 32, 4
"""Texts that pay to be read apart from longer ones, and how many such pieces there are."""


class SplitEncoder(nn.Module, ABC):
    """An encoder whose first `apart` layers read queries and documents apart; texts are filled up on the right."""

    WORDS: ClassVar[str]
    """The name of the table of words among its weights."""
    heads: int
    head_size: int
    longest_document: int | None
    """How many tokens of a document can be read, where there is a limit."""

    def __init__(self, apart: int) -> None:
        super().__init__()
        self.apart = apart

    def _check_split(self) -> None:
        if not 0 <= self.apart < len(self.layers):
            problem = f"apart = {self.apart} leaves no layer of {len(self.layers)} that reads pairs together"
            raise UsageError(problem, f"set it from 0 to {len(self.layers) - 1}")

    # What a form of encoder has to bring.

    @property
    @abstractmethod
    def layers(self) -> Sequence[nn.Module]:
        """All layers, in their order."""

    @property
    @abstractmethod
    def words(self) -> nn.Embedding:
        """What tokens are read as."""

    @abstractmethod
    def entered(self, ids: Tensor, *, is_document: bool) -> Tensor:
        """What the first layer gets of the tokens (rows, length) of queries, or of documents."""

    @abstractmethod
    def passed(self, states: Tensor, mask: Tensor, layers: Sequence[nn.Module]) -> Tensor:
        """States (rows, length, d_model) that have gone through some of the layers."""

    @abstractmethod
    def left(self, states: Tensor) -> Tensor:
        """What becomes of the states of the last layer."""

    @abstractmethod
    def queries(self, states: Tensor) -> Tensor:
        """(rows, heads, length, head_size) what the first joint layer asks with, for states that come in."""

    @abstractmethod
    def keys(self, states: Tensor) -> Tensor:
        """(rows, heads, length, head_size) what the first joint layer finds states by."""

    # What is the same for all.

    def query_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Queries, ids and mask (rows, length), as the joint layers get them: (rows, length, d_model)."""
        return self._read_apart(ids, mask, is_document=False)

    def document_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The same for documents."""
        return self._read_apart(ids, mask, is_document=True)

    def _read_apart(self, ids: Tensor, mask: Tensor, *, is_document: bool) -> Tensor:
        # An empty text sees its first place, as attention to nothing at all is no number.
        seen = torch.cat([torch.ones_like(mask[:, :1]), mask[:, 1:]], 1)
        return self._through(self.entered(ids, is_document=is_document), seen, self.layers[: self.apart])

    def pair_states(
        self, query_states: Tensor, query_mask: Tensor, document_states: Tensor, document_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Each row's query and document, read together: states (rows, longest, d_model) and mask (rows, longest).

        The document's tokens follow the query's without a gap, so nothing depends on how either was filled up.
        """
        states, mask = joined(query_states, query_mask, document_states, document_mask)
        return self.left(self._through(states, mask, self.layers[self.apart :])), mask

    def _through(self, states: Tensor, mask: Tensor, layers: Sequence[nn.Module]) -> Tensor:
        """States that have gone through some layers; with many texts, those of like length together.

        So most of what only fills texts up is not computed. States there are zero, or anything.
        """
        rows = len(states)
        if rows < 2 * PIECE or not layers:
            return self.passed(states, mask, layers)
        lengths = mask.sum(1)
        order = lengths.argsort(descending=True, stable=True)
        pieces = order.split(-(-rows // PIECES))
        longest = lengths[torch.stack([piece[0] for piece in pieces])].tolist()
        passed = [
            functional.pad(
                self.passed(states[piece, :most], mask[piece, :most], layers), (0, 0, 0, states.shape[1] - most)
            )
            for piece, most in zip(pieces, longest, strict=True)
        ]
        return torch.cat(passed)[order.argsort()]


def joined(first: Tensor, first_mask: Tensor, second: Tensor, second_mask: Tensor) -> tuple[Tensor, Tensor]:
    """The states of two texts in each row, one behind the other: (rows, longest, d_model) and mask (rows, longest).

    Both come as (rows, length, d_model) with a mask (rows, length), filled up on the right.
    """
    length = first_mask.sum(1, keepdim=True)
    total = length + second_mask.sum(1, keepdim=True)
    column = torch.arange(int(total.max()), device=first.device)
    source = torch.where(column < length, column, first.shape[1] + column - length)
    both = torch.cat([first, second], 1)
    # Behind the end of a row any state does: it is masked.
    source = source.clamp(max=both.shape[1] - 1)[:, :, None].expand(-1, -1, both.shape[2])
    return both.gather(1, source), (column < total).to(first_mask.dtype)


class SplitT5(SplitEncoder):
    """T5's encoder. Places are distances: below within a text, above within a query and the document behind it."""

    WORDS = "text.embedding.weight"

    def __init__(self, shape: T5Shape, apart: int) -> None:
        super().__init__(apart)
        self.text = TextEncoder(shape)
        self.heads, self.head_size, self.longest_document = shape.heads, shape.d_kv, None
        self._check_split()

    @property
    def layers(self) -> Sequence[EncoderLayer]:
        """All layers, in their order."""
        return [layer for layer in self.text.layers if isinstance(layer, EncoderLayer)]

    @property
    def words(self) -> nn.Embedding:
        """What tokens are read as."""
        return self.text.embedding

    def entered(self, ids: Tensor, *, is_document: bool) -> Tensor:
        """The rows of tokens; queries and documents are read alike."""
        return self.text.entered(ids)

    def passed(self, states: Tensor, mask: Tensor, layers: Sequence[nn.Module]) -> Tensor:
        """States that have gone through some of the layers."""
        return self.text.passed(states, mask, layers)

    def left(self, states: Tensor) -> Tensor:
        """States, normed once more."""
        return self.text.left(states)

    def queries(self, states: Tensor) -> Tensor:
        """T5 norms states before its attention."""
        layer = self.layers[self.apart]
        return layer.attention.queries(layer.attention_norm(states))

    def keys(self, states: Tensor) -> Tensor:
        """T5 norms states before its attention."""
        layer = self.layers[self.apart]
        return layer.attention.keys(layer.attention_norm(states))


class SplitBert(SplitEncoder):
    """BERT. Its places are absolute: those of every document begin at `offset`, so its keys know nothing of a query."""

    WORDS = "reader.embeddings.word_embeddings.weight"

    def __init__(self, sizes: BertSizes, apart: int, offset: int) -> None:
        super().__init__(apart)
        if not 0 < offset < sizes.max_position_embeddings:
            problem = f"query_length = {offset} leaves a document no place of {sizes.max_position_embeddings}"
            raise UsageError(problem, f"set query_length from 1 to {sizes.max_position_embeddings - 1}")
        self.reader = BertReader(sizes)
        self.offset = offset
        self.heads = sizes.num_attention_heads
        self.head_size = sizes.hidden_size // self.heads
        self.longest_document = sizes.max_position_embeddings - offset
        self._check_split()

    @property
    def layers(self) -> Sequence[BertLayer]:
        """All layers, in their order."""
        return self.reader.layers

    @property
    def words(self) -> nn.Embedding:
        """What tokens are read as."""
        return self.reader.get_input_embeddings()

    def entered(self, ids: Tensor, *, is_document: bool) -> Tensor:
        """The rows of tokens with their places; a text that is too long is an error."""
        limit = self.longest_document if is_document else self.offset
        if limit is not None and ids.shape[1] > limit:
            noun = "document" if is_document else "query"
            raise UsageError(f"a {noun} has {ids.shape[1]} tokens, but there are {limit} places", "cut it to fit")
        return self.reader.embeddings(ids, self.offset if is_document else 0)

    def passed(self, states: Tensor, mask: Tensor, layers: Sequence[nn.Module]) -> Tensor:
        """States that have gone through some of the layers."""
        return self.reader.passed(states, mask, layers)

    def left(self, states: Tensor) -> Tensor:
        """The states as they are: each layer norms its own."""
        return states

    def queries(self, states: Tensor) -> Tensor:
        """BERT's attention takes states as they come."""
        return self.layers[self.apart].queries(states)

    def keys(self, states: Tensor) -> Tensor:
        """BERT's attention takes states as they come."""
        return self.layers[self.apart].keys(states)
