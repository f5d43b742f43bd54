"""Passes of encoders over many texts that are made elsewhere: in other processes, on this machine or on others.

Whoever wants that says so for a while: `with elsewhere(place): retriever.fit(data)`. Knows nothing about the places.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Protocol

import numpy as np
from torch import nn


class Padded(NamedTuple):
    """Texts that are read together."""

    ids: np.ndarray  # (texts, length)
    mask: np.ndarray  # (texts, length) which of them are tokens
    chosen: np.ndarray | None  # (texts, length) bool: of which tokens vectors are wanted; None for vectors of texts


class Place(Protocol):
    """Where encoders make vectors."""

    @property
    def least(self) -> int:
        """Fewer texts than these are read here."""
        ...

    def encoded(
        self, encoder: nn.Module, call: str, batches: Sequence[np.ndarray], padded: Callable[[np.ndarray], Padded]
    ) -> Iterator[np.ndarray]:
        """For each batch of rows in its order, what a method of the encoder makes of its texts."""
        ...


_PLACE: ContextVar[Place | None] = ContextVar("place", default=None)


@contextmanager
def elsewhere(place: Place | None) -> Generator[None]:
    """Have encoders read many texts at this place until the end of the block."""
    token = _PLACE.set(place)
    try:
        yield
    finally:
        _PLACE.reset(token)


def place_for(texts: int) -> Place | None:
    """Where so many texts should be read, if not here."""
    place = _PLACE.get()
    return place if place and texts >= place.least else None
