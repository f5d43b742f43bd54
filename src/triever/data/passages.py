"""Cutting a document into passages: pieces of a few sentences, each with the title in front of it."""

from __future__ import annotations

import re
from itertools import pairwise

from triever.data.records import Document

_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n\s*\n")


def passages(document: Document, limit: int) -> list[str]:
    """At most `limit` pieces of the text with about equally many sentences each; none if it has a single sentence.

    >>> passages(Document("1", "One. Two. Three.", title="Numbers"), 2)
    ['Numbers One. Two.', 'Numbers Three.']
    """
    sentences = [sentence.strip() for sentence in _SENTENCES.split(document.text) if sentence.strip()]
    count = min(limit, len(sentences))
    if count < 2:
        return []
    cuts = [round(number * len(sentences) / count) for number in range(count + 1)]
    pieces = (" ".join(sentences[low:high]) for low, high in pairwise(cuts))
    return [f"{document.title} {piece}".strip() for piece in pieces]
