"""Documents as vectors of one's own, and what makes vectors of queries: a table of them, or a program of one's own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from triever.artifact import Snapshot, Writer
from triever.data.records import Document, Result
from triever.data.store import DocumentStore
from triever.engines.base import Parts
from triever.engines.hits import results
from triever.errors import UsageError, needed_for
from triever.index.checks import checked
from triever.index.sharded import ShardedVectors
from triever.index.vector_files import of_length_one
from triever.index.vectors import VectorIndex, vector_products
from triever.memory_parts import Product, Products, Stored, python_bytes, scaled
from triever.validation import FLOATS, require, require_array, require_finite, require_list

Encode: TypeAlias = Callable[[list[str]], Any]
"""Makes an array (texts, d) of texts."""

MODEL = "sentence-transformers:"
"""What stands before the name or the folder of a model that the package sentence-transformers loads."""
GIVE = "--set encoder=module:function, or retriever.asked_by(function) in Python"
"""How a saved retriever is told what encodes queries: an artifact holds no programs, and runs none."""


@dataclass(frozen=True)
class TextEncoder:
    """A program of one's own that makes vectors: one for queries, and where new documents are added one for these."""

    name: str
    queries: Encode
    documents: Encode | None = None

    @classmethod
    def of(cls, program: object, documents: object = None, name: str = "") -> TextEncoder:
        """From a function, or from a model that encodes as those of sentence-transformers do."""
        queries = _method(program, "encode_query", "encode") or (program if callable(program) else None)
        if queries is None or isinstance(program, type):
            problem = f"{program!r:.80} encodes nothing"
            raise UsageError(problem, "give a function from a list of texts to an array, or a model with encode")
        if documents is None:
            documents = _method(program, "encode_document", "encode")
        elif not callable(documents):
            raise UsageError(f"documents = {documents!r:.80} is no function", "give one from texts to an array")
        return cls(name or _name_of(program), queries, documents)

    @classmethod
    def named(cls, name: str) -> TextEncoder:
        """From `module:name` of Python, or `sentence-transformers:MODEL`, as a command line says it."""
        if name.startswith(MODEL):
            return cls.of(_sentence_transformer(name.removeprefix(MODEL)), name=name)
        return cls.of(_imported(name), name=name)


def _method(program: object, *names: str) -> Encode | None:
    found = (getattr(program, name, None) for name in names)
    return next((method for method in found if callable(method)), None)


def _name_of(program: object) -> str:
    kind = program if hasattr(program, "__qualname__") else type(program)
    return f"{getattr(kind, '__module__', '')}:{getattr(kind, '__qualname__', kind)}"


def _sentence_transformer(name: str) -> object:
    with needed_for(f"encoder = {MODEL}{name}", "pip install sentence-transformers"):
        package = importlib.import_module("sentence_transformers")
    try:
        return package.SentenceTransformer(name)
    except Exception as error:  # whatever its loading raises
        problem = f"sentence-transformers cannot load {name!r}: {str(error).splitlines()[0][:200]}"
        raise UsageError(problem, "name a folder that it saved, or a model of the hub") from error


def _imported(name: str) -> object:
    module, colon, attribute = name.partition(":")
    if not (colon and module and attribute):
        problem = f"encoder = {name!r} names no program"
        raise UsageError(problem, f"write module:function, or {MODEL}MODEL; for a backbone use the system dense")
    try:
        value: object = _module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        hint = "check the name, and that the module is installed or in the folder where you are"
        raise UsageError(f"encoder = {name!r} cannot be imported: {error}", hint) from error
    return value


def _module(name: str) -> object:
    """A module that Python finds, or one in the folder where the command is run."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        importlib.invalidate_caches()
        return importlib.import_module(name)
    finally:
        sys.path.remove(here)


@dataclass(frozen=True)
class QueryVectors:
    """Vectors of questions by their texts."""

    texts: tuple[str, ...] = ()
    array: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))  # (texts, d)

    def rows(self) -> dict[str, int]:
        """The row of each text."""
        return {text: row for row, text in enumerate(self.texts)}


@dataclass(frozen=True)
class GivenEngine:
    """An index of vectors of one's own, questions whose vectors are known, and what encodes others."""

    index: VectorIndex | ShardedVectors
    known: QueryVectors
    unit: bool
    encoded_by: str = ""  # what encodes queries, in words, whether it is here or not
    encoder: TextEncoder | None = None

    def search(self, store: DocumentStore, queries: Sequence[str], k: int) -> list[Result]:
        """The documents with the nearest vectors."""
        return results(*self.index.search(self.vectors(queries), k), store.ids)

    def vectors(self, queries: Sequence[str]) -> np.ndarray:
        """(queries, d) the vectors of queries: known ones, and others by the encoder."""
        rows = self.known.rows() if len(self.known.texts) else {}
        new = [query for query in dict.fromkeys(queries) if query not in rows]
        made = dict(zip(new, self._encoded(new), strict=True)) if new else {}
        each = [made[query] if query in made else self.known.array[rows[query]] for query in queries]
        return np.stack(each).astype(np.float32) if each else np.empty((0, self.index.width), np.float32)

    def _encoded(self, queries: list[str]) -> np.ndarray:
        if self.encoder is None:
            raise UsageError(*self._unknown(queries[0]))
        return self._checked(self.encoder, self.encoder.queries(queries), len(queries))

    def _unknown(self, query: str) -> tuple[str, str]:
        """Why a question has no vector, and what to do."""
        asked = f"there is no vector of the question {query[:80]!r}"
        if self.encoded_by:
            return f"{asked}: {self.encoded_by} encodes queries, and an artifact does not hold it", f"give it: {GIVE}"
        if self.known.texts:
            count = len(self.known.texts)
            return f"{asked}, but of {count:,} others", f"ask one of these, or give what encodes queries: {GIVE}"
        return asked, f"give what encodes queries: {GIVE}, or for a run vectors: triever run --query-vectors"

    def _checked(self, encoder: TextEncoder, made: Any, count: int) -> np.ndarray:
        """(count, d) vectors that a program has made, if they are as many, as wide and finite."""
        array = np.asarray(made.detach().cpu() if hasattr(made, "detach") else made)
        if array.shape != (count, self.index.width):
            problem = (
                f"{encoder.name} made an array {array.shape} of {count} texts, and not ({count}, {self.index.width})"
            )
            raise UsageError(problem, "use the model that the vectors of the documents were made with")
        try:
            array = checked(array, "float32")
        except UsageError as error:
            raise UsageError(f"{encoder.name} made vectors that cannot be used: {error.problem}", error.hint) from None
        return of_length_one(array) if self.unit else array

    def explain(self, store: DocumentStore, query: str, result: Result) -> tuple[Parts, ...]:
        """The score as one part: nothing is known of how the vectors were made."""
        return tuple((("similarity", hit.score),) for hit in result)

    def with_added(self, documents: Sequence[Document], store: DocumentStore) -> Self:
        """With the vectors of more documents, where there is a program that makes them."""
        if not documents:
            return self
        if self.encoder is None or self.encoder.documents is None:
            problem = f"{documents[0].id!r} has no vector, and nothing here encodes documents"
            hint = "fit again with vectors of all documents, or add it in Python after retriever.asked_by(model)"
            raise UsageError(problem, hint)
        made = self.encoder.documents([document.full_text for document in documents])
        return replace(self, index=self.index.with_added(self._checked(self.encoder, made, len(documents))))

    def without(self, keep: np.ndarray) -> Self:
        """Without some of its rows."""
        return replace(self, index=self.index.without(keep))

    def among(self, keep: np.ndarray) -> Self:
        """With some of its rows, for searches alone."""
        return replace(self, index=self.index.among(keep))

    def asked_by(self, encoder: TextEncoder) -> Self:
        """The same with a program that encodes."""
        return replace(self, encoder=encoder, encoded_by=encoder.name)

    def knowing(self, texts: Sequence[str], array: np.ndarray) -> Self:
        """The same with the vectors (texts, d) of more questions; the last vector of a text counts."""
        if array.shape != (len(texts), self.index.width):
            problem = (
                f"the vectors of questions have the shape {array.shape}, and documents have {self.index.width} numbers"
            )
            raise UsageError(problem, "make both with the same model")
        array = of_length_one(array) if self.unit else array
        both = dict(zip(self.known.texts, self.known.array, strict=True)) | dict(zip(texts, array, strict=True))
        joined = np.stack([*both.values()]).astype(np.float32) if both else np.empty((0, self.index.width), np.float32)
        return replace(self, known=QueryVectors(tuple(both), joined))

    def stored(self) -> Stored:
        """Vectors of documents and of questions."""
        return {**self.index.stored(), "questions": [self.known.array, python_bytes(list(self.known.texts))]}

    def products(self, now: int, then: int) -> dict[str, Products]:
        """The same computed."""
        stored = scaled(self.index.built_from, now, then)
        parts = vector_products(stored, self.index.width, self.index.options)
        questions = [
            Product(len(self.known.texts), "questions", 4 * self.index.width, f"{self.index.width} numbers of 4"),
            Product(1, "texts of them", python_bytes(list(self.known.texts))),
        ]
        return {**parts, "questions": questions}

    def made_from(self) -> dict[str, Any]:
        """What encodes queries: nobody can tell from the vectors."""
        known = {"questions with vectors": len(self.known.texts)} if self.known.texts else {}
        return {"queries are encoded by": self.encoded_by or "nothing that is named", **known}

    def write(self, writer: Writer) -> dict[str, Any]:
        """Put it into an artifact: vectors and texts, and of a program its name alone."""
        self.index.write(writer)
        if self.known.texts:
            writer.array("query_vectors", self.known.array)
        return {"questions": [*self.known.texts], "encoded_by": self.encoded_by}


def read(snapshot: Snapshot, device: str, *, unit: bool) -> GivenEngine:
    """The engine of an artifact, without the program that encodes queries."""
    index = (ShardedVectors.opened if snapshot.shards else VectorIndex.read)(snapshot, device=device)
    require(len(index) == snapshot.rows, f"its index has {len(index)} documents")
    texts = require_list(snapshot.state, "questions")
    require(all(isinstance(text, str) for text in texts), "its questions are no texts")
    require(len(set(texts)) == len(texts), "one of its questions has two vectors")
    array = np.empty((0, index.width), np.float32)
    if texts:
        shape = (len(texts), index.width)
        array = require_finite(
            require_array(snapshot.array("query_vectors"), "query_vectors", FLOATS, shape), "vectors"
        )
    encoded_by = snapshot.state.get("encoded_by", "")
    require(isinstance(encoded_by, str), "what encodes its queries is no text")
    return GivenEngine(index, QueryVectors(tuple(texts), array), unit, str(encoded_by))
