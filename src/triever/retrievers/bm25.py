"""BM25: the lexical baseline, and the stage on which doc2query expansions act."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from triever import artifact, config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.data.words import how_texts_look, language_of, stemmer
from triever.engines import lexical
from triever.engines.lexical import LexicalEngine, Weighting
from triever.errors import UsageError
from triever.retriever import Retriever

_log = logging.getLogger("triever")
OTHER_LANGUAGE = (
    "the texts %s, and BM25 compares their words by English stems; its option language=%s is for them "
    "(first.language or close_by.language in a system that BM25 is a part of)"
)


@dataclass(eq=False)
class BM25(Retriever[LexicalEngine]):
    """Lexical retrieval: `BM25(language="german").fit(data)`."""

    kind: ClassVar[str] = "bm25"
    gives_probabilities: ClassVar[bool] = False

    language: str = option("english", "stemmer and stop words by language; none for neither")
    k1: float = option(Weighting.k1, "how fast repeated words stop counting")
    b: float = option(Weighting.b, "how much long documents are held back, 0 to 1")
    method: Literal["lucene", "robertson", "atire"] = option("lucene", "the formula: lucene, robertson or atire")
    expand: bool = option(True, "index the expansion texts of documents that have them")

    def __post_init__(self) -> None:
        config.validate(self)
        stemmer(self.language)  # an unknown language is an error now, not after reading the corpus
        if self.k1 < 0:
            raise UsageError(f"k1 = {self.k1} should not be negative", "the usual range is 0.5 to 2")
        if not 0 <= self.b <= 1:
            raise UsageError(f"b = {self.b} should be between 0 and 1", "the usual range is 0.3 to 0.8")

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> LexicalEngine:
        """Count the words of all documents."""
        if self.language == "english":
            _tell_of_language(store)
        return LexicalEngine.learn(self.language, self._weighting, store, work)

    def read(self, snapshot: artifact.Snapshot) -> LexicalEngine:
        """The words of an artifact."""
        return lexical.read(snapshot, self.language, self._weighting)

    @property
    def reads_expansions(self) -> bool:
        """Whether expansions are indexed."""
        return self.expand

    @property
    def _weighting(self) -> Weighting:
        return Weighting(self.method, self.k1, self.b, self.expand)


def _tell_of_language(store: DocumentStore) -> None:
    """Say that words of another language are compared by English stems."""
    language = language_of(store.sample_texts())
    if language != "english":
        _log.warning(OTHER_LANGUAGE, how_texts_look(language), language or "none")
