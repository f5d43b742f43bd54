"""The ways to search docids, and what they find: a beam, the true best, and what a model writes freely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch

from triever import config
from triever.config import option
from triever.docids.walk import Walk
from triever.errors import UsageError
from triever.models.generator import Cache, Generator, Hidden
from triever.models.precision import fast_dtype, say_without_effect
from triever.search.beam import BeamOptions, beam
from triever.search.exact import exact
from triever.search.free import free
from triever.search.hits import documents
from triever.search.recorder import Recorder
from triever.search.scores import Normalisation
from triever.search.steady_search import can_be_steady

Precision: TypeAlias = Literal["float32", "bfloat16"]
WIDTH = 20
"""Prefixes that a beam keeps where nothing is set."""


@dataclass(frozen=True)
class SearchOptions:
    """How docids are searched: `SearchOptions(width=40)`."""

    method: Literal["beam", "exact", "free", "mapped"] = option(
        "beam",
        "beam; exact, the true best with a certificate; free, a beam that may write docids that do not exist; mapped, "
        "the same, where these stand for the docids that begin with their longest prefix that exists",
    )
    width: int | None = option(
        None,
        "prefixes that a beam keeps at each length, at least as many as hits are asked for; not set: 20, or 100 with "
        "rows of nodes, which take less time",
    )
    normalisation: Literal["auto", "trie", "vocabulary", "documents"] = option(
        "auto",
        "probabilities over the symbols that exist (trie), over all (vocabulary, and always in a free or mapped search)"
        ", or over documents, where nodes have rows; auto: documents if they have, trie for docids of one symbol and "
        "contextual titles, else what the model was trained with",
    )
    temperature: float = option(1.0, "above 1 flattens the model's probabilities, below 1 sharpens them")
    backoff: int = option(0, "how many of the best dropped prefixes a beam takes up again")
    budget: int = option(10_000, "prefixes that an exact search may open for one query")
    record: bool = option(
        True, "on a GPU, record a beam search once for each size of a batch and replay it; off: step by step"
    )
    precision: Precision = option(
        "float32",
        "numbers of a search on a GPU that is recorded or that a language model makes, or on a processor with a unit "
        "for bfloat16 (AMX); with bfloat16 it is faster, and near documents may change places",
    )
    think: int = option(
        0,
        "tokens of a thought that a language model writes before it searches, with titles in its own tokens; 0: none",
    )

    def __post_init__(self) -> None:
        config.validate(self)
        BeamOptions(self.beam_width, self.scored_over, self.temperature, backoff=self.backoff)  # which checks its own
        if self.budget < 1:
            raise UsageError(f"budget = {self.budget} should be above zero", "the default is 10000")
        if self.think < 0:
            raise UsageError(f"think = {self.think} should not be negative", "0 searches without a thought")

    @property
    def beam_width(self) -> int:
        """How many prefixes a beam keeps."""
        return WIDTH if self.width is None else self.width

    @property
    def writes_freely(self) -> bool:
        """Whether the model may write docids that do not exist."""
        return self.method in ("free", "mapped")

    @property
    def scored_over(self) -> Normalisation:
        """What probabilities are over; what is written freely is scored over all symbols."""
        if self.writes_freely:
            return "vocabulary"
        return "trie" if self.normalisation == "auto" else self.normalisation

    def following(self, normalisation: Normalisation) -> SearchOptions:
        """The same, where `auto` is this normalisation."""
        return replace(self, normalisation=normalisation) if self.normalisation == "auto" else self

    def records_on(self, device: torch.device) -> bool:
        """Whether a search on a device is to be recorded, if it can be made in fixed shapes."""
        return self.record and device.type == "cuda"

    def rounds_on(self, device: torch.device) -> bool:
        """Whether a search step by step is to compute in bfloat16, where that is faster on a device."""
        return device.type == "cpu" and self.dtype_on(device) is not None

    def dtype_on(self, device: torch.device) -> torch.dtype | None:
        """The numbers in which a language model is to compute on a device, if others than its weights have."""
        if self.precision == "float32":
            return None
        if fast_dtype(device) == torch.bfloat16:
            return torch.bfloat16
        say_without_effect(device.type)
        return None

    @property
    def steady(self) -> bool:
        """Whether docids can be searched in fixed shapes: by a beam that does not depend on what it finds."""
        return self.method == "beam" and not self.think and can_be_steady(self.beam(1))

    def beam(self, k: int) -> BeamOptions:
        """The same for a beam that should find k."""
        return BeamOptions(max(self.beam_width, k), self.scored_over, self.temperature, backoff=self.backoff)


@dataclass(frozen=True)
class ScoredDocuments:
    """Numbers of documents with their log-probabilities, best first, and what the search has to say."""

    documents: Sequence[tuple[int, float]] = ()
    note: str = ""
    certificate: str = ""


def found_by(
    options: SearchOptions,
    walk: Walk,
    stop: int | None,
    generator: Generator,
    cache: Cache,
    hidden: Hidden,
    k: int,
    recorder: Recorder | None = None,
) -> list[ScoredDocuments]:
    """For each query that was read the best k documents, and all that tie with the last of them.

    A free search has to know which symbol ends docids, where one does. A recorder takes down what the others do.
    """
    if options.method == "exact":
        certified = exact(
            generator,
            cache,
            hidden,
            walk,
            k,
            budget=options.budget,
            normalisation=options.scored_over,
            temperature=options.temperature,
            ties=True,
            recorder=recorder,
        )
        return [ScoredDocuments(answer.documents, certificate=str(answer)) for answer in certified]
    if options.writes_freely:
        written = free(generator, cache, hidden, walk, options.beam(k), stop=stop)
        found = written.mapped(k, ties=True) if options.method == "mapped" else written.documents(k, ties=True)
        return [
            ScoredDocuments(hits, note=f"{invalid} of {total} written docids do not exist")
            for hits, invalid, total in found
        ]
    frontier = beam(generator, cache, hidden, walk, options.beam(k), keep=k, recorder=recorder)
    return [ScoredDocuments(hits) for hits in documents(walk, frontier, k, ties=True)]
