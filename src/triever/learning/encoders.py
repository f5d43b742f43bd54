"""What retrievers with an encoder share: how texts are read, and how the encoder is trained on pairs."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from triever import config
from triever.config import option
from triever.data.cutting import Cut
from triever.data.datasets import Dataset
from triever.data.records import Hit, Query, Result
from triever.data.store import DocumentStore
from triever.engines.encoded import DenseEngine, LateEngine, TextReading
from triever.engines.hits import found_by
from triever.engines.lexical import LexicalEngine, Weighting
from triever.errors import UsageError
from triever.learning.teachers import Teacher
from triever.models.adapters import AdapterOptions, check_library, check_values
from triever.models.backbones import Backbone, load_backbone
from triever.models.encoder import Encoder, EncoderShape
from triever.models.precision import device_of
from triever.models.seeds import seeded
from triever.models.tokens import Tokens
from triever.retriever import Retriever, texts_of
from triever.training.memory_estimate import check, estimate
from triever.training.opinions import LABELLED
from triever.training.pairs import TAUGHT, Negatives, pairs_of
from triever.training.tuning import PairTraining, QueryTuning, Teach, Tuning, summary

E = TypeVar("E", DenseEngine, LateEngine)
_log = logging.getLogger("triever")


@dataclass(eq=False)
class EncoderRetriever(Retriever[E]):
    """A retriever whose documents and queries are read by one encoder, which is trained on pairs of them."""

    backbone: str = option("minilm", "minilm, smollm2, scratch, a folder, or an id of the Hugging Face hub")
    fetch: bool = option(False, "fetch the backbone from the hub if it is not here")
    query_length: int = option(64, "tokens of a query that are read")
    document_length: int = option(256, "tokens of a document that are read")
    query_prefix: str = option("", "what stands before every query, where a backbone was trained with such a thing")
    document_prefix: str = option("", "what stands before every document")
    training: Tuning = option(Tuning(), "how it is trained; training.steps=0 leaves it as it comes")
    negatives: Negatives = option(Negatives(), "where its negatives come from")
    device: str = option("auto", "cpu, cuda, or auto: cuda where there is one")
    teacher: Retriever[Any] | None = option(
        None,
        "a retriever, or its folder, whose order of documents the training follows too; "
        f"{TAUGHT} of its documents are read for each query of a batch",
    )
    adapter: AdapterOptions = option(AdapterOptions(), "new weights inside the backbone, which may stay as it is")

    def __post_init__(self) -> None:
        config.validate(self)
        check_lengths(self.query_length, self.document_length)
        if self.teacher is not None and not self.training.steps:
            raise UsageError("a teacher teaches nothing without a training", "set training.steps, or leave teacher out")

    @property
    def members(self) -> tuple[Retriever[Any], ...]:
        """The teacher, where one is named."""
        return (self.teacher,) if self.teacher is not None else ()

    # What a system has to bring.

    @abstractmethod
    def _shape(self, backbone: Backbone) -> EncoderShape:
        """What stands behind the backbone."""

    @abstractmethod
    def _pair_scores(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """(queries, documents) the scores of all pairs of a training batch."""

    @abstractmethod
    def _rank(
        self, encoder: Encoder, queries: Tokens, documents: Tokens, k: int, work: Path | None = None
    ) -> np.ndarray:
        """(queries, k) the rows of the best documents, by exact search."""

    @abstractmethod
    def _indexed(self, encoder: Encoder, documents: Tokens, trained: Mapping[str, Any], work: Path | None = None) -> E:
        """What searches these documents."""

    @property
    def reading(self) -> TextReading:
        """How much of texts is read, and what stands before them."""
        return TextReading(self.query_length, self.document_length, self.query_prefix, self.document_prefix)

    def with_probabilities(self, queries: Sequence[str | Query], results: Sequence[Result]) -> list[Result]:
        """The results with log-probabilities: a softmax over all documents, at the temperature of the training.

        Where long documents are cut, a document is as likely as its best passage among all passages.
        """
        if not queries:
            return []
        temperatures, totals = self.engine.softmax_over_all(texts_of(queries), self.training.temperature)
        return [
            replace(result, hits=tuple(_likely(hit, hit.score / temperature - total) for hit in result))
            for result, temperature, total in zip(results, temperatures.tolist(), totals.tolist(), strict=True)
        ]

    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> E:
        """Train the encoder, if that is wanted, and make vectors of all documents."""
        encoder = self._encoder(store)
        documents = self.reading.documents(encoder, store, work / "documents" if work else None)
        tell_of_long_texts(documents, encoder.at_most(self.document_length), store.cut)
        trained = self._tune(encoder, documents, dataset, store, work) if self.training.steps else {}
        return self._indexed(encoder, documents, trained, work)

    def _encoder(self, store: DocumentStore) -> Encoder:
        device = device_name(self.device)  # first: to read the texts for a backbone may take long
        check_values(self.adapter)
        check_library(self.adapter)
        backbone = load_backbone(self.backbone, texts=store.sample_texts(), fetch=self.fetch)
        encoder = new_encoder(backbone, self._shape(backbone), self.training.seed, device, self.adapter)
        if self.training.steps and not any(weight.requires_grad for weight in encoder.parameters()):
            problem = "adapter.freeze = true leaves nothing to train where there is neither an adapter nor a projection"
            raise UsageError(problem, "set adapter.kind or size, or training.steps=0")
        return encoder

    def _tune(
        self, encoder: Encoder, documents: Tokens, dataset: Dataset, store: DocumentStore, work: Path | None
    ) -> dict[str, Any]:
        training = PairTraining(
            model=encoder,
            scores=self._pair_scores,
            rank=lambda queries, texts, k: self._rank(encoder, queries, texts, k, work),
            mine=lambda texts, depth: bm25_finder(store)(texts, depth),
            queries=lambda texts: self.reading.queries(encoder, texts),
            documents=documents,
            pairs=pairs_of(dataset, self.training.split, store),
            options=self.training,
            negatives=self.negatives,
            pad=encoder.tokenizer.pad,
            folder=work / "training" if work else None,
            device=self.device,
            teach=self._teach(dataset, store, work),
        )
        self._check_memory(encoder, training)
        trained = summary(training.run())
        return {**trained, **training.teaching.about} if training.teaching else trained

    def _teach(self, dataset: Dataset, store: DocumentStore, work: Path | None) -> Teach | None:
        """What asks the teacher about training queries, where there is one."""
        if self.teacher is None:
            return None
        teacher = Teacher(self.teacher, dataset, store, work / "teacher" if work else None)
        return lambda pairs: teacher.teaching({LABELLED: pairs.texts}, pairs, self.training)

    def _check_memory(self, encoder: Encoder, training: PairTraining) -> None:
        """Refuse a training that cannot fit, by texts as long as they are in a batch."""
        query, document = (usual_length(tokens) for tokens in (training.query_tokens, training.documents))
        queries = min(self.training.batch, len(training.query_tokens))
        taught = TAUGHT if self.teacher is not None and self.training.teacher_weight else 0
        documents = queries * (1 + self.negatives.count + taught) + self.negatives.shared
        rows, scores = queries + documents, self._scored(queries * query, documents * document)
        length = -(-(queries * query + documents * padded_length(training.documents)) // rows)
        check_memory(encoder, self.training, rows, length, str(encoder.device), scores=scores)

    def _scored(self, query_tokens: int, document_tokens: int) -> int:
        """How many scores of tokens with tokens a training batch makes, on the way to those of its texts."""
        return 0


def _likely(hit: Hit, logprob: float) -> Hit:
    return replace(hit, logprob=min(logprob, 0.0))  # above 0 by rounding alone: the sum holds the same score


def tell_of_long_texts(documents: Tokens, limit: int, cut: Cut | None) -> None:
    """Say how many texts are not read to their ends; `cut` is how they were cut, where they are passages."""
    if longer := int((documents.lengths >= limit).sum()):
        message = "%s of %s texts %s longer than the %s tokens that are read of each; %s"
        number = "is" if longer == 1 else "are"
        _log.warning(message, f"{longer:,}", f"{len(documents):,}", number, limit, to_read_more(limit, cut))


def to_read_more(limit: int, cut: Cut | None) -> str:
    """What to do where more than so many tokens of a document, or of a passage that is cut like this, should be read.

    >>> to_read_more(256, Cut("all"))
    'document_length=512 reads more, and cut.words=75 with cut.overlap=18 makes shorter passages'
    """
    more = f"document_length={2 * limit} reads more"
    if cut is None:
        return f"{more}, and cut.which=all searches long documents by their passages"
    # A word is hardly more than a token in prose; where passages are shorter than that already, it is more.
    if not (words := min(limit * 3 // 4, cut.words // 2)):
        return more
    most = words // 4  # what `Cut` allows
    overlap = f" with cut.overlap={most}" if cut.overlap > most else ""
    return f"{more}, and cut.words={words}{overlap} makes shorter passages"


def check_lengths(query: int, document: int) -> None:
    """Refuse to read so few tokens of queries or documents that no word is among them."""
    if query < 3 or document < 3:
        problem = f"a length is too small: query_length = {query}, document_length = {document}"
        raise UsageError(problem, "set both to 3 or more: special tokens count too")


def new_encoder(
    backbone: Backbone, shape: EncoderShape, seed: int, device: str, adapter: AdapterOptions | None = None
) -> Encoder:
    """An encoder in which what does not come with the backbone depends on the seed alone."""
    with seeded(seed):
        return Encoder(backbone, shape, adapter=adapter).to(device).eval()


def usual_length(tokens: Tokens) -> int:
    """How long a text is at most, but for one in a hundred."""
    return int(np.percentile(tokens.lengths, 99)) if len(tokens) else 1


def padded_length(tokens: Tokens) -> int:
    """How many tokens a text takes on average where a batch is read in pieces, each padded to its longest text.

    Of two pieces one is as long as the longest texts, and the other as those in the middle.
    """
    return -(-(usual_length(tokens) + int(np.median(tokens.lengths))) // 2) if len(tokens) else 1


def check_memory(
    encoder: Encoder,
    training: QueryTuning,
    rows: int,
    length: int,
    device: str,
    *,
    scores: int = 0,
    parameters: int | None = None,
) -> None:
    """Refuse a training of so many texts of so many tokens at once that cannot fit, before it starts."""
    weights = parameters or sum(weight.numel() for weight in encoder.parameters())
    frozen = sum(tensor.numel() for tensor in encoder.frozen_tensors())
    trainable = max(0, weights - frozen)
    check(memory_needed(encoder.backbone, training, rows, length, device, weights, trainable, scores), device)


def memory_needed(
    backbone: Backbone,
    training: QueryTuning,
    rows: int,
    length: int,
    device: str,
    parameters: int,
    trainable: int | None = None,
    scores: int = 0,
) -> int:
    """The bytes that a training of so many texts of so many tokens at once takes, by the shape of its backbone."""
    shape = backbone.config
    return estimate(
        parameters,
        batch=rows,
        length=length,
        d_model=backbone.hidden,
        layers=int(shape.get("num_hidden_layers") or shape.get("num_layers") or 12),
        d_ff=int(shape.get("intermediate_size") or shape.get("d_ff") or 0),
        scores=scores,
        trainable=trainable,
        optimizer=training.optimizer,
        precision="bfloat16" if torch.device(device).type == "cuda" else "float32",
    )


def device_name(name: str) -> str:
    """The name of a device that is here, by one that may be auto."""
    return str(device_of(name))


def bm25_finder(store: DocumentStore) -> Callable[[Sequence[str], int], list[list[int]]]:
    """What gives the rows of the first hits of BM25, as it is by default, for each text."""
    return found_by(LexicalEngine.learn("english", Weighting(), store), store)
