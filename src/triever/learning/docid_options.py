"""The options that all retrievers have in common that learn to write docids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

from triever import config
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.docids.schemes import Atomic, Scheme
from triever.engines.base import Engine
from triever.engines.docid_search import SearchOptions
from triever.engines.encoded import DenseEngine
from triever.engines.given import GivenEngine
from triever.errors import UsageError
from triever.index.vectors import IndexOptions
from triever.learning.encoders import check_lengths
from triever.models.adapters import AdapterOptions
from triever.models.backbones import SCRATCH
from triever.models.decoders import DecoderOptions
from triever.retriever import Retriever
from triever.training import fit_fingerprints
from triever.training.tuning import DocidTuning
from triever.training.views import ViewOptions

GIVEN = "given"
"""The kind of retriever that has vectors of one's own, which its encoder need not be here for."""
R = TypeVar("R", bound=Engine)


class VectorSystem(Protocol):
    """What is asked of a dense retriever whose vectors docids are made from."""

    backbone: str
    fetch: bool
    query_length: int
    document_length: int
    query_prefix: str
    document_prefix: str
    size: int
    unit: bool
    index: IndexOptions

    @property
    def is_fitted(self) -> bool:
        """Whether it has an engine already."""
        ...

    @property
    def engine(self) -> DenseEngine:
        """What it searches with."""
        ...

    def engine_for(self, dataset: Dataset, store: DocumentStore, work: Path | None) -> DenseEngine:
        """What it searches these documents with, learned now if it is not fitted."""
        ...


@dataclass(eq=False)
class DocidRetriever(Retriever[R]):
    """The options of a retriever with a model that learns to write docids."""

    search_only: ClassVar[tuple[str, ...]] = ("search_options",)

    docids: Scheme = option(
        Atomic(), "atomic, naive, title, semantic, codebook, cluster or given, or a table with its kind"
    )
    backbone: str = option(
        "minilm", "the model that reads: minilm, smollm2, scratch, a folder, an id of the hub; a T5 brings its decoder"
    )
    fetch: bool = option(False, "fetch the backbone from the hub if it is not here")
    vectors: Retriever[Any] | None = option(
        None,
        "a dense retriever, or its folder, whose vectors docids are made from, or the system given with vectors of "
        "your own; none: the backbone as it comes",
    )
    decoder: DecoderOptions = option(DecoderOptions(), "what writes")
    views: ViewOptions = option(ViewOptions(), "what stands for documents in training")
    query_length: int = option(64, "tokens of a query that are read")
    document_length: int = option(512, "tokens of a document that chunks are taken from")
    training: DocidTuning = option(DocidTuning(), "how it is trained")
    search_options: SearchOptions = option(SearchOptions(), "how docids are searched")
    device: str = option("auto", "cpu, cuda, or auto: cuda where there is one")
    adapter: AdapterOptions = option(AdapterOptions(), "new weights inside of what reads, which may stay as it is")

    def __post_init__(self) -> None:
        config.validate(self)
        if self.vectors is not None and self.vectors.kind not in ("dense", GIVEN):
            problem = f"vectors = {self.vectors.kind} makes no vectors of documents"
            raise UsageError(problem, "name a dense retriever, or given with a file of vectors")
        check_lengths(self.read_length, self.document_length)
        if self.decoder.rows == "vectors":
            self._check_rows()
        if self.search_options.think and not self.writes_tokens:
            problem = f"search_options.think = {self.search_options.think} needs a language model that writes titles"
            raise UsageError(problem, "set docids=title, docids.tokenizer=backbone and a causal backbone")

    @property
    def writes_tokens(self) -> bool:
        """Whether docids are written in the tokens of a language model."""
        return False

    def _check_rows(self) -> None:
        """Refuse to begin output rows as vectors where there are none that would do."""
        if not self.docids.names_vectors:
            problem = f"decoder.rows = vectors, but the symbols of these {self.docids.kind} docids have no vectors"
            raise UsageError(
                problem,
                "leave decoder.rows out, or use docids atomic, cluster with branch=0, or codebook with positions",
            )
        if self.given:
            problem = "decoder.rows = vectors, but given vectors are not of the space of the states that are read"
            raise UsageError(problem, "leave decoder.rows out, or name a dense retriever with given.file")
        if self.dense and self.dense.size:
            problem = f"decoder.rows = vectors, but vectors.size = {self.dense.size} projects vectors to another size"
            raise UsageError(problem, "leave decoder.rows out, or name a dense retriever with size = 0")

    @property
    def dense(self) -> VectorSystem | None:
        """The retriever whose vectors docids are made from, where one is named."""
        # `__post_init__` refuses all others
        return cast("VectorSystem | None", self.vectors) if self.given is None else None

    @property
    def given(self) -> Retriever[GivenEngine] | None:
        """The retriever with vectors of one's own that docids are made from, where one is named."""
        return self.vectors if self.vectors is not None and self.vectors.kind == GIVEN else None

    @property
    def read_length(self) -> int:
        """How many tokens of a query are read."""
        return self.query_length

    @property
    def members(self) -> tuple[Retriever[Any], ...]:
        """The retriever whose vectors docids are made from, where one is named."""
        return (self.vectors,) if self.vectors is not None else ()

    def learns_queries(self, dataset: Dataset) -> bool:
        """Whether it learns from judged queries: only where they are among its views."""
        return self.tuning is not None and "labelled" in view_names(self, dataset)

    def learned_queries(self, dataset: Dataset, store: DocumentStore) -> str:
        """A fingerprint of the queries that it learns; where it cannot learn from them, that is said here."""
        if (split := self.training.split) == "train" and split not in dataset.splits:
            problem = f"{dataset.name} has no split 'train', from whose questions this {self.kind} learns"
            known = f" (known: {', '.join(dataset.splits)})" if dataset.splits else ""
            raise UsageError(problem, f"name one by training.split{known}, or learn from texts by views.names=chunks")
        return super().learned_queries(dataset, store)

    @property
    def reads_expansions(self) -> bool:
        """Whether it learns from written questions."""
        return not self.views.names or "generated" in self.views.names or super().reads_expansions

    @property
    def begins_anew(self) -> bool:
        """Whether what reads has learned nothing yet."""
        return self.backbone.startswith(SCRATCH) and self.dense is None

    def lessons(self, dataset: Dataset, store: DocumentStore) -> dict[str, Any]:
        """What is learned from besides documents, as fingerprints: also a file of docids."""
        files = {"docids": fit_fingerprints.of_files(self.docids.files)} if self.docids.files else {}
        return {**super().lessons(dataset, store), **files}

    def searching(self, **options: Any) -> Self:
        """The same model and documents, searched in another way: `written.searching(method="exact")`."""
        return self.searched_with({"search_options": options})


def view_names(options: DocidRetriever[Any], dataset: Dataset, expanded: int = 0) -> Sequence[str]:
    """The views that are asked for, or that a dataset has something for; the beginnings are in chunks too."""
    there = {"labelled": has_queries(options, dataset), "generated": expanded > 0, "chunks": True}
    return options.views.names or [name for name, is_there in there.items() if is_there]


def has_queries(options: DocidRetriever[Any], dataset: Dataset) -> bool:
    """Whether there are judged queries; a split that was asked for by name must be there."""
    named = "labelled" in options.views.names or options.training.split != "train"
    return named or options.training.split in dataset.splits
