"""The tokens of documents, for engines that read documents again: in memory, and in an artifact."""

from __future__ import annotations

import numpy as np

from triever.artifact import Snapshot, Writer
from triever.memory_parts import Product, Products, Thing, scaled
from triever.models.tokens import Tokens
from triever.validation import require_array, require_starts, require_within


def stored(documents: Tokens) -> list[Thing]:
    """What takes memory."""
    return [documents.flat, documents.starts]


def products(documents: Tokens, size: int, now: int, then: int) -> Products:
    """The same computed for `then` documents in place of `now`, with a tokenizer of so many tokens."""
    return [
        Product(scaled(len(documents.flat), now, then), "tokens", 2 if size <= 2**16 else 4),
        Product(then + 1, "documents", 8, "where it begins, and the end"),
    ]


def write(documents: Tokens, writer: Writer) -> None:
    """Put them into an artifact."""
    writer.array("document_tokens", documents.flat)
    writer.array("document_starts", documents.starts)


def read(snapshot: Snapshot, size: int) -> Tokens:
    """The documents of an artifact as numbers below `size`; a ValueError if they are not."""
    flat = require_array(snapshot.array("document_tokens"), "document_tokens", ("uint16", "int32"), (None,))
    require_within(flat, "document_tokens", 0, size)
    starts = np.asarray(snapshot.array("document_starts"))
    return Tokens(flat, require_starts(starts, "document_starts", snapshot.rows, len(flat)))
