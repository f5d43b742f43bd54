"""Dense retrieval over vectors of one's own, which any model may have made.

Triever cannot load that model, or need not: a file has the vectors of documents, and queries are encoded by a file of
their vectors, by a function, or by a model of sentence-transformers. An artifact holds vectors and says what encodes
its queries; it holds no program, and opening it runs none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from triever import artifact, config
from triever.arguments import brief
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import normalise
from triever.data.store import DocumentStore
from triever.engines import given
from triever.engines.given import GivenEngine, QueryVectors, TextEncoder
from triever.errors import DataError, UsageError
from triever.index.options import IndexOptions
from triever.index.vector_files import VectorFile, index_of
from triever.models.precision import device_of
from triever.retriever import Retriever
from triever.training import fit_fingerprints


@dataclass(eq=False)
class GivenVectors(Retriever[GivenEngine]):
    """Vectors of your own: `GivenVectors("vectors.npy", ids="ids.txt", encoder="my_module:encode").fit(data)`."""

    kind: ClassVar[str] = "given"
    search_only: ClassVar[tuple[str, ...]] = ("encoder",)

    file: str = option(
        "", "vectors of documents: .npy, Parquet or JSON lines with id and vector, a faiss index, a folder of pyserini"
    )
    ids: str = option("", "the id of each row: a text file with one on each line, or a JSON list; none: NAME.ids.txt")
    queries: VectorFile = option(VectorFile(), "vectors of questions, by the ids that questions have in the dataset")
    encoder: str = option("", "what encodes queries: module:function, or sentence-transformers:MODEL")
    unit: bool = option(False, "make all vectors of length one, so that scores are cosines")
    index: IndexOptions = option(IndexOptions(), "how vectors are kept and searched")

    def __post_init__(self) -> None:
        config.validate(self)

    @property
    def vectors(self) -> VectorFile:
        """Where the vectors of documents are."""
        return VectorFile(self.file, self.ids)

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> GivenEngine:
        """Read the vectors of all documents, and of questions where they are given."""
        if not self.file:
            raise UsageError("there are no vectors", "name them: file=vectors.npy")
        device_of(self.index.device)
        encoder = TextEncoder.named(self.encoder) if self.encoder else None
        index = index_of(self.vectors.read().of(store.ids), self.index, unit=self.unit)
        named = encoder.name if encoder else ""
        engine = GivenEngine(index, QueryVectors(), self.unit, named, encoder).knowing((), np.empty((0, index.width)))
        if not self.queries:
            return engine
        return engine.knowing(*query_vectors(self.queries, dataset.questions(), dataset.name))

    def lessons(self, dataset: Dataset, store: DocumentStore) -> dict[str, Any]:
        """What is learned from besides documents, as fingerprints: the files."""
        files = fit_fingerprints.of_files([*self.vectors.paths, *self.queries.paths])
        return {**super().lessons(dataset, store), "given": files}

    def read(self, snapshot: artifact.Snapshot) -> GivenEngine:
        """The vectors of an artifact."""
        return given.read(snapshot, self.index.device, unit=self.unit)

    def configured(self, engine: GivenEngine) -> GivenEngine:
        """The engine with the encoder that is asked for now."""
        return engine.asked_by(TextEncoder.named(self.encoder)) if self.encoder else engine

    def asked_by(self, encode: object, *, documents: Callable[[list[str]], Any] | None = None, name: str = "") -> Self:
        """The same vectors, with a program that encodes queries.

        It is a function from a list of texts to an array (texts, d), or a model like those of sentence-transformers.
        `documents` encodes documents that are added later; a model does that itself. A saved retriever notes the name.
        """
        encoder = TextEncoder.of(encode, documents, name)
        return self._with(lambda engine: engine.asked_by(encoder))

    def asked_with(self, vectors: Mapping[str, Any]) -> Self:
        """The same vectors, with vectors of questions by their texts: `{"who reads this": [0.1, 0.9]}`."""
        if not isinstance(vectors, Mapping):
            problem = f"vectors = {brief(vectors)} should be a mapping"
            raise UsageError(problem, 'give the vector of each text: {"who reads this": [0.1, 0.9]}')
        texts = [normalise(text) for text in vectors]
        try:
            array = np.array([np.asarray(vector, np.float32) for vector in vectors.values()], np.float32)
        except (TypeError, ValueError) as error:
            raise UsageError("the vectors of questions are not lists of as many numbers", "give arrays (d,)") from error
        if not np.isfinite(array).all():
            raise UsageError("a vector of a question has a number that is not finite", "make it again")
        return self._with(lambda engine: engine.knowing(texts, array if texts else np.empty((0, engine.index.width))))

    def _with(self, changed: Callable[[GivenEngine], GivenEngine]) -> Self:
        held = self._checked()
        return replace(self).holding(replace(held, engine=changed(held.engine)))


def query_vectors(file: VectorFile, questions: Mapping[str, str], name: str) -> tuple[list[str], np.ndarray]:
    """The texts of questions, which are given by their ids, and their vectors in a file."""
    vectors = file.read()
    ids, array = vectors.among([*questions])
    if not ids:
        first = f", such as {vectors.ids[0]!r}" if vectors.ids else ""
        problem = f"{vectors.path} has vectors of no question of {name}, only of others{first}"
        raise DataError(problem, "give the ids that questions have in the dataset")
    return [questions[query] for query in ids], array
