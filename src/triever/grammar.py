"""The grammar of messages: the article of a noun, and nouns behind numbers."""

from __future__ import annotations


def an(noun: str) -> str:
    """A noun behind its article, as its first letter has it.

    >>> an("bm25"), an("answerer")
    ('a bm25', 'an answerer')
    """
    return f"{'an' if noun[:1].lower() in [*'aeiou'] else 'a'} {noun}"


def counted(number: int, noun: str, several: str = "") -> str:
    """A number and its noun, `several` of which are the noun with an s unless it is given.

    >>> counted(1, "document"), counted(2000, "document"), counted(0, "query", "queries")
    ('1 document', '2,000 documents', '0 queries')
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"
