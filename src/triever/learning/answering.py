"""What retrievers that answer share: how a question is asked, and how a model learns to read and to find.

A model learns from questions and answers alone. First from the answers that it writes from close documents, which BM25
or another retriever finds; then its attention learns as well to find the documents that the decoder attends to, and
close documents are found anew by the model itself before every further round.
"""

from __future__ import annotations

import copy
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor, nn

from triever import config
from triever.config import option
from triever.data.answers import exact_match, has_answer
from triever.data.datasets import Dataset
from triever.data.records import Answer, Document, Hit, Query, Result, Source
from triever.data.store import DocumentStore
from triever.engines import causal_answers
from triever.engines.answers import AnswererEngine, AnswerReader
from triever.engines.attention import AttentionEngine, Matches, ReadTexts
from triever.engines.readers import NEVER, Reader, Written
from triever.errors import UsageError
from triever.held import Held
from triever.learning.answer_tasks import TASKS, AskedAnswers, Task, asked
from triever.learning.encoders import (
    check_lengths,
    device_name,
    memory_needed,
    tell_of_long_texts,
    to_read_more,
    usual_length,
)
from triever.models.backbones import Backbone, load_backbone
from triever.models.language_model import LanguageModel, new_language_model
from triever.models.precision import computing_fast
from triever.models.reatt import ANSWER_TOKENS, UNSET, ReAttModel, ReAttShape, new_reatt
from triever.models.tokens import Tokens
from triever.printable import an
from triever.retriever import Retriever, load, questions_of, tell_of_few_held_out
from triever.training import fit_fingerprints
from triever.training.loop import LIKELIHOOD, Loss, Trained, train
from triever.training.memory_estimate import check
from triever.training.optimizers import RateShare
from triever.training.reatt_batches import answer_rows, reading_batch
from triever.training.reatt_loss import ReAttLoss
from triever.training.tuning import AS_KEPT, QueryTuning, TuningBatches

E = TypeVar("E", bound=AnswererEngine)
R = TypeVar("R", bound=Reader[Any])
Close = Callable[[Sequence[str], int], list[list[int]]]
"""From questions and a number to the rows of so many close documents for each."""
Attended = Callable[[str, Sequence[tuple[int, np.ndarray]]], Sequence[Matches]]
"""From a question and documents, each by its row and tokens, to the tokens that fit best in each."""
WATCH = LIKELIHOOD
"""The measure on held-out questions: the mean log-probability of a token of their answers."""
ROUNDS = 2**20
"""More rounds than any stage of a training has."""
JUDGED = 512
"""Held-out questions that are answered, at most."""
LESS_MEMORY = "set training.at_once=1 or a little more: it reads so many questions at a time, with the same gradients"
"""The hint for too little memory."""
NOTHING_HELD_OUT = (
    "no question was held out, so this model answers every question and cannot tell what it does not know: raise "
    "training.holdout, or give more questions with answers"
)
NONE_RIGHT = (
    "none of %s held-out questions was answered exactly, so this model says that it does not know: train it longer, "
    "give more questions with answers, or start from a model that can read (start)"
)
FEW_RIGHT = 5
"""Fewer right answers than these say little about which to give."""
HARDLY_RIGHT = (
    "only %s of %s held-out questions were answered exactly, so what this model knows is hardly told: give more "
    "questions with answers, train it longer, or set known_from"
)
NEVER_RIGHT = (
    "the model of %s answered none of its held-out questions exactly, so this one says that it does not know: train "
    "it, or set known_from=0, which gives every answer"
)
UNANSWERED = "learning from %s of %s questions of %s: the others are blank or have no answers"
NO_JUDGES = (
    "training.keep=best and training.patience have no effect, because no question is held out to judge by: raise "
    "training.holdout, or leave them out"
)
FOUND_TOO_SELDOM = 0.2
"""The share of questions with an answer in a close document below which it is said that a reader cannot copy it."""
BEHIND_TOO_OFTEN = 0.05
"""The share of questions with an answer only where no document is read any more, above which it is said."""
BEHIND = "for %s of %s questions the answer stands in a close document, behind the %s tokens that are read of it: %s"
NOT_TO_COPY = (
    "an answer stands in one of the close documents for only %s of %s questions, and this reader copies its "
    "answers: give answers that stand in the documents word for word, or raise training.close"
)
_log = logging.getLogger("triever")


@dataclass(frozen=True)
class AnswerTuning(QueryTuning):
    """How a model learns to answer: `AnswerTuning(steps=3000, batch=16)`."""

    steps: int = option(2500, "optimizer steps; 0 leaves the model as it comes")
    batch: int = option(16, "questions in a batch, each with its close documents")
    learning_rate: float = option(2e-4, "the highest learning rate, reached after the warmup")
    warmup: float = option(0.1, "share of the steps during which the learning rate rises from zero")
    close: int = option(8, "documents of each question that are read for its answer")
    at_once: int = option(0, "questions that are in memory at once, with gradients as of the whole batch; 0: all")
    task: Task = option(
        "answers",
        "what is learned from: queries with answers (answers), judged documents (relevance), or the names and numbers "
        "that are left out of sentences of the documents (masked)",
    )
    sentences: int = option(20_000, "sentences with a gap that are learned from, at most; for training.task=masked")
    answer_length: int = option(ANSWER_TOKENS, "tokens of an answer that are learned, at most")
    keep: Literal["best", "last"] = option("last", "the weights to end with: those of the best evaluation, or the last")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least("close", 1)
        self._at_least("at_once", 0)
        self._at_least("sentences", 1)
        self._at_least("answer_length", 2)
        if self.task not in get_args(Task):
            raise UsageError(f"task = {self.task!r} is not one of the choices", f"use {TASKS}")


@dataclass(frozen=True)
class AnswerBatches(TuningBatches, ABC):
    """A round of batches: questions with their close documents, and one of their answers each."""

    asked: AskedAnswers
    close: np.ndarray  # (questions, K) rows of documents, -1 where there are no more, or where it is not asked
    length: int  # tokens of an answer, at most

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        chance = self.chance(step)
        numbers = _drawn(chance, len(self.asked), self.options.batch)
        answers = [self.asked.queries[number].answers for number in numbers]
        return self.batch(numbers, [texts[chance.integers(len(texts))] for texts in answers])

    @abstractmethod
    def batch(self, numbers: np.ndarray, answers: Sequence[str]) -> dict[str, Tensor]:
        """The questions with these numbers, and answers to them."""


@dataclass(frozen=True)
class ReadingBatches(AnswerBatches):
    """Batches for an encoder and decoder."""

    reader: AnswerReader
    questions: Tokens

    def batch(self, numbers: np.ndarray, answers: Sequence[str]) -> dict[str, Tensor]:
        """The questions with these numbers, and answers to them."""
        tokenizer = self.reader.texts.model.tokenizer
        rows = answer_rows(answers, tokenizer, self.length)
        documents = self.reader.documents
        return reading_batch(self.questions, numbers, documents, self.close[numbers], rows, pad=tokenizer.pad)


@dataclass(frozen=True)
class AnswerCourse(ABC, Generic[R]):
    """A training of a reader."""

    reader: R
    learned: AskedAnswers
    judged: AskedAnswers
    options: AnswerTuning
    close: Close  # finds documents for the first round, and for judging
    renewed: Close | None = None  # finds documents for every further round
    device: str = "auto"
    stage: int = 0  # which training of a model it is: each draws other questions

    @property
    @abstractmethod
    def judging(self) -> Loss:
        """What held-out questions are judged by, as the loss of their answers."""

    @abstractmethod
    def batches(self, asked: AskedAnswers, close: Close, number: int, which: np.ndarray | None = None) -> AnswerBatches:
        """A round of batches about documents that `close` finds, for those questions that the round asks."""

    @property
    def model(self) -> nn.Module:
        """What is trained."""
        return self.reader.texts.model

    def run(
        self, loss: Loss, folder: Path | None = None, label: str = "training", share: RateShare | None = None
    ) -> Trained:
        """Train the model, in place."""
        self.check_memory()
        some = np.arange(min(len(self.judged), JUDGED))
        judges = self.batches(self.judged, self.close, 0, some) if len(some) else None
        return train(
            self.model,
            loss,
            lambda number: self.batches(self.learned, self._close(number), self.drawn_as(number)),
            self.options,
            evaluate=(lambda _model: self._likelihood(judges)) if judges else None,
            watch=WATCH if judges else "",
            folder=folder,
            label=label,
            device=self.device,
            share=share,
        )

    @property
    @abstractmethod
    def read_at_once(self) -> tuple[int, int]:
        """How many texts are in memory at once, and how many tokens nearly all of them have at most."""

    def check_memory(self) -> None:
        """Refuse a training that cannot fit."""
        texts, device = self.reader.texts, str(self.reader.texts.model.device)
        parameters = sum(weight.numel() for weight in texts.model.parameters())
        needed = memory_needed(texts.model.backbone, self.options, *self.read_at_once, device, parameters)
        check(needed, device, "learning to answer", LESS_MEMORY)

    @property
    def asked_at_once(self) -> int:
        """How many questions are in memory at once."""
        return min(self.options.at_once or self.options.batch, self.options.batch, len(self.learned))

    @property
    def usual_lengths(self) -> tuple[int, int]:
        """How many tokens nearly all questions and documents have at most."""
        some = self.reader.texts.questions(self.learned.texts[:JUDGED])
        return usual_length(some), usual_length(self.reader.documents)

    def _close(self, number: int) -> Close:
        """What finds documents for a round."""
        return self.renewed if number and self.renewed else self.close

    def drawn_as(self, number: int) -> int:
        """The number by which a round draws its questions: no two stages of a training have one in common."""
        return number + self.stage * ROUNDS

    def found(self, asked: AskedAnswers, close: Close, number: int, which: np.ndarray | None = None) -> np.ndarray:
        """(questions, K) the rows that `close` finds, -1 where there are no more, or where a round does not ask."""
        depth = min(self.options.close, len(self.reader.documents))
        which = self._asked_in(number, len(asked)) if which is None else which
        texts, rows = asked.texts, np.full((len(asked), depth), -1, np.int64)
        for at, row in zip(which.tolist(), close([texts[at] for at in which.tolist()], depth), strict=True):
            rows[at, : len(row)] = row[:depth]
        return rows

    def _asked_in(self, number: int, questions: int) -> np.ndarray:
        """The numbers of the questions that a round asks: with many, each round asks but some of them."""
        plan = TuningBatches(self.options, self.options.batches, number)
        drawn = [_drawn(plan.chance(step), questions, self.options.batch) for step in range(len(plan))]
        return np.unique(np.concatenate(drawn)) if drawn else np.zeros(0, np.int64)

    @torch.inference_mode()
    def _likelihood(self, judges: AnswerBatches) -> dict[str, float]:
        """The mean log-probability of a token of held-out answers."""
        model, loss, device = self.model, self.judging, self.reader.texts.model.device
        numbers = np.arange(min(len(self.judged), JUDGED))
        total = 0.0
        for part in np.array_split(numbers, -(-len(numbers) // self.asked_at_once)):
            batch = judges.batch(part, [self.judged.queries[number].answers[0] for number in part])
            there = {name: tensor.to(device) for name, tensor in batch.items()}
            with computing_fast(device):
                total += float(loss(model, there)["answer"]) * len(part)
        return {WATCH: -total / len(numbers)}


@dataclass(frozen=True)
class ReadingCourse(AnswerCourse[AnswerReader]):
    """For an encoder and decoder: `ReadingCourse(reader, learned, judged, options, close).run(ReAttLoss(0.0))`."""

    @property
    def judging(self) -> Loss:
        """What held-out questions are judged by, as the loss of their answers."""
        return ReAttLoss(alpha=0.0)

    @property
    def read_at_once(self) -> tuple[int, int]:
        """Pairs of a question and a document, and how long they are."""
        close = min(self.options.close, len(self.reader.documents))
        return self.asked_at_once * close, sum(self.usual_lengths)

    def batches(
        self, asked: AskedAnswers, close: Close, number: int, which: np.ndarray | None = None
    ) -> ReadingBatches:
        """A round of batches about documents that `close` finds, for those questions that the round asks."""
        options, rows = self.options, self.found(asked, close, number, which)
        questions = self.reader.texts.questions(asked.texts)
        given = asked, rows, options.answer_length, self.reader, questions
        return ReadingBatches(options, options.batches, number, *given)


def _drawn(chance: np.random.Generator, questions: int, batch: int) -> np.ndarray:
    """The numbers of the questions of a batch, out of so many."""
    return chance.choice(questions, min(batch, questions), replace=False)


def known_from(probabilities: Sequence[float], right: Sequence[bool]) -> float:
    """The probability from which answers are given: where right ones are found best among all, by F1.

    Where nothing was asked, all are given, and where nothing was right, none.

    >>> known_from([0.9, 0.8, 0.3, 0.2], [True, True, False, False])
    0.8
    >>> known_from([0.9, 0.1], [False, False]) == NEVER
    True
    """
    order = np.argsort(-np.asarray(probabilities), kind="stable")
    hits = np.cumsum(np.asarray(right, float)[order])
    if not len(hits):
        return 0.0
    if not hits[-1]:
        return NEVER
    claimed = np.asarray(probabilities)[order]
    quality = 2 * hits / (np.arange(1, len(hits) + 1) + hits[-1])
    last = np.append(claimed[1:] < claimed[:-1], True)  # equal probabilities are given or kept back together
    return float(claimed[int(np.where(last, quality, -1).argmax())])


@dataclass(eq=False)
class AnsweringRetriever(Retriever[E]):
    """A retriever that answers questions from what it finds."""

    backbone: str = option(
        "minilm",
        "what reads and answers starts from: minilm, scratch, a model of the T5 family, or for answerer a causal model "
        "such as smollm2, which continues the documents and the question",
    )
    fetch: bool = option(False, "fetch the backbone from the hub if it is not here")
    start: str | Retriever[Any] = option(
        "", "a saved reatt or answerer, whose model is learned further instead of the backbone"
    )
    shape: ReAttShape = option(ReAttShape(), "how the encoder is split, and how its heads are weighed")
    document_length: int = option(256, "tokens of a document that are read")
    read_documents: int = option(10, "documents that an answer is written from")
    word_for_word: bool | None = option(
        None, "whether answers have to stand in a document; not set: where tokens are copied (shape.copy)"
    )
    known_from: float | None = option(
        None, "the probability from which answers are given, 0 gives all; not set: what held-out questions have chosen"
    )
    device: str = option("auto", "cpu, cuda, or auto: cuda where there is one")

    def __post_init__(self) -> None:
        config.validate(self)
        check_lengths(self.shape.query_length, self.document_length)
        self._check_asking()

    def _check_asking(self) -> None:
        """Refuse options of asking that cannot be; they may be set on a fitted retriever too."""
        if self.known_from is not None and not 0 <= self.known_from <= 1:
            raise UsageError(f"known_from = {self.known_from} is no probability", "set it from 0 to 1, or leave it out")
        if self.read_documents < 1:
            raise UsageError(
                f"read_documents = {self.read_documents} should be above zero", "the usual range is 5 to 100"
            )

    # Asking

    def ask(self, question: str | Query, *, where: Mapping[str, object] | None = None) -> Answer:
        """The answer to a question, with what it was written from; `where` filters documents as in a search."""
        return self.ask_many([question], where=where)[0]

    def ask_many(
        self, questions: Sequence[str | Query], *, where: Mapping[str, object] | None = None, matches: bool = True
    ) -> list[Answer]:
        """The same for many questions at once, in their order.

        Without `matches` it is not said which tokens fit, what was read of a document, and whether it holds the answer.
        """
        self._check_asking()
        held, texts = self._checked().among(where), questions_of(questions)
        results = held.rows(texts, self.read_documents)
        rows = [[held.searched.row(hit.id) for hit in result] for result in results]
        written = held.engine.reader.answers(texts, rows, scores_of(results), self.word_for_word)
        first, known = held.engine.first, self.answers_from
        attended = first.attended if matches and isinstance(first, AttentionEngine) else None
        return [
            _answer(held, text, answer, result, found, attended, known, told=matches)
            for text, answer, result, found in zip(texts, written, results, rows, strict=True)
        ]

    @property
    def answers_from(self) -> float:
        """The probability from which answers are given: what was set, or what held-out questions have chosen."""
        return self.engine.reader.known_from if self.known_from is None else self.known_from

    @property
    def shared(self) -> str:
        """What the documents of an answer have a share of: the attention, or the weight."""
        return self.engine.reader.shared

    # Learning

    def fit(self, dataset: Dataset, *, work: str | Path | None = None) -> Self:
        """Learn a dataset: its documents, and how to answer from them, if that is wanted.

        With a folder to work in, a training that was interrupted goes on where it was.
        """
        self._begun()  # first: it says which backbone there is, and the folder notes that
        return super().fit(dataset, work=work)

    def lessons(self, dataset: Dataset, store: DocumentStore) -> dict[str, Any]:
        """What is learned from besides documents, and the model that it starts from, as fingerprints."""
        folder = self.start if isinstance(self.start, str) else ""  # what is open already is one of the members
        begun = {"start": fit_fingerprints.of_folder(folder)} if folder else {}
        # What is decided for those who say nothing has changed: work that the old decision began is not resumed.
        decided = {"apart": UNSET} if self.start == "" and self.shape.apart is None else {}
        return {**super().lessons(dataset, store), **begun, **decided}

    def learned_queries(self, dataset: Dataset, store: DocumentStore) -> str:
        """A fingerprint of the questions and answers that it learns."""
        every = self._asked(dataset, store)
        parts = every.held_out(self.tuning.holdout)
        self._tell_of_questions(every, parts[1])
        learned = [part.queries for part in parts]
        return fit_fingerprints.fingerprint(
            [(query.id, query.text, query.answers) for queries in learned for query in queries]
        )

    def lesson(self, dataset: Dataset, store: DocumentStore) -> tuple[AskedAnswers, AskedAnswers]:
        """What it learns from, and what it is judged by."""
        return self._asked(dataset, store).held_out(self.tuning.holdout)

    def _asked(self, dataset: Dataset, store: DocumentStore) -> AskedAnswers:
        """All questions that it learns from or is judged by."""
        training = self.tuning
        return asked(training.task, dataset, store, training.split, training.seed, training.sentences)

    def _tell_of_questions(self, every: AskedAnswers, judged: AskedAnswers) -> None:
        """Say which questions have no answers, and where too few are held out for what is wanted of them."""
        training = self.tuning
        if every.unanswered:
            among = f"{len(every) + every.unanswered:,}"
            _log.warning(UNANSWERED, f"{len(every):,}", among, training.split)
        if len(judged):
            tell_of_few_held_out(len(judged), len(every), training)
        elif training.keep == "best" or training.patience:
            _log.warning(NO_JUDGES)

    def tell_of_answers(self, reader: Reader[Any], learned: AskedAnswers, close: Close, store: DocumentStore) -> None:
        """Say where a reader that copies hardly ever reads what it should answer; some questions tell."""
        copies = isinstance(reader, AnswerReader) and reader.texts.model.copying is not None
        if not copies or self.tuning.task == "relevance":
            return
        some, found, behind = AskedAnswers(learned.queries[:JUDGED]), 0, 0
        for query, rows in zip(some.queries, close(some.texts, min(self.tuning.close, len(store))), strict=True):
            documents = [(store.slice(row, row + 1)[0], row) for row in rows]
            there = [pair for pair in documents if has_answer(pair[0].full_text, query.answers)]
            is_read = any(has_answer(_read_of(*pair, reader), query.answers) for pair in there)
            found, behind = found + is_read, behind + (bool(there) and not is_read)
        if behind > BEHIND_TOO_OFTEN * len(some):
            most = reader.texts.most_of_document
            _log.warning(BEHIND, f"{behind:,}", f"{len(some):,}", most, to_read_more(most, store.cut))
        if found + behind < FOUND_TOO_SELDOM * len(some):
            _log.warning(NOT_TO_COPY, f"{found + behind:,}", f"{len(some):,}")

    def with_threshold(self, engine: E, judged: AskedAnswers, store: DocumentStore) -> E:
        """The engine, which says that it does not know where held-out questions say that it should."""
        if self.tuning.task == "relevance":  # nothing writes a whole document exactly, least of all what copies
            return engine
        if not len(judged):
            _log.warning(NOTHING_HELD_OUT)
            return engine
        some = AskedAnswers(judged.queries[:JUDGED])
        results = engine.search(store, some.texts, min(self.read_documents, len(store)))
        rows = [[store.row(hit.id) for hit in result] for result in results]
        written = engine.reader.answers(some.texts, rows, scores_of(results), self.word_for_word)
        right = [
            bool(exact_match(engine.reader.text(answer, found, _texts(result, store)), query.answers))
            for answer, found, result, query in zip(written, rows, results, some.queries, strict=True)
        ]
        if not any(right):
            _log.warning(NONE_RIGHT, f"{len(right):,}")
        elif sum(right) < FEW_RIGHT:
            _log.warning(HARDLY_RIGHT, sum(right), f"{len(right):,}")
        threshold = known_from([math.exp(answer.logprob) for answer in written], right)
        known = {AS_KEPT: round(float(np.mean(right)), 4)}
        reader = replace(engine.reader, known_from=threshold, trained={**engine.reader.trained, **known})
        return replace(engine, reader=reader)

    def new_reader(self, store: DocumentStore, seed: int) -> Reader[Any]:
        """A model that has learned nothing yet, or what `start` has learned, and the tokens of documents."""
        device = device_name(self.device)  # first: to read the texts for a backbone may take long
        if begun := self._begun():
            # A copy: what it starts from may be searched, or be started from again.
            model = copy.deepcopy(begun.engine.reader.texts.model)
            return self.going_on(self._reading(model.to(device), store), begun)
        backbone = self._backbone(store)
        reader = self._reading(self.new_model(backbone, seed).to(device), store)
        if self.tuning is None:
            self.tell_of_nothing_learned(backbone)
        return reader

    def going_on(self, reader: Reader[Any], begun: AnsweringRetriever[AnswererEngine]) -> Reader[Any]:
        """A reader with the model of a retriever that it starts from, and with what that knows besides."""
        if self.tuning:
            return reader
        # What was found out about a model holds as long as it stays as it is.
        known = begun.engine.reader.known_from
        if known >= NEVER and self.known_from is None:
            _log.warning(NEVER_RIGHT, self.start_name)
        return replace(reader, known_from=known)

    @abstractmethod
    def tell_of_nothing_learned(self, backbone: Backbone) -> None:
        """Say what a model cannot do that comes from a backbone and is not trained."""

    def _reading(self, model: ReAttModel | LanguageModel, store: DocumentStore) -> Reader[Any]:
        lengths = self.shape.query_length, self.document_length
        if isinstance(model, LanguageModel):
            reader: Reader[Any] = causal_answers.new_reader(model, *lengths, store)
        else:
            texts = ReadTexts(model, *lengths)
            reader = AnswerReader(texts, texts.documents(store))
        tell_of_long_texts(reader.documents, reader.texts.most_of_document, store.cut)
        return reader

    def _backbone(self, store: DocumentStore) -> Backbone:
        return load_backbone(self.backbone, texts=store.sample_texts(), fetch=self.fetch)

    def new_model(self, backbone: Backbone, seed: int) -> ReAttModel | LanguageModel:
        """A model that starts from a backbone: an encoder and decoder, or a causal language model."""
        return new_language_model(backbone, seed) if backbone.causal else new_reatt(backbone, self.shape, seed)

    def _begun(self) -> AnsweringRetriever[AnswererEngine] | None:
        """The retriever whose model is learned further, if one is named; its backbone is this one's too."""
        if self.start == "":
            return None
        begun = load(self.start) if isinstance(self.start, str) else self.start
        if not isinstance(begun, AnsweringRetriever):
            problem = f"start = {self.start_name!r} is {an(begun.kind)} retriever, which does not answer"
            raise UsageError(problem, "name a model that triever fit reatt or triever fit answerer has written")
        model = begun.engine.reader.texts.model
        made = [replace(model.shape, apart=model.encoder.apart)] if isinstance(model, ReAttModel) else []
        self._take_shape([begun.shape, *made])
        self._take_backbone(model.backbone.name)
        return begun

    def _take_shape(self, shapes: Sequence[ReAttShape]) -> None:
        """Note the shape of what it starts from, as that was asked for and as it is, and refuse another."""
        known = [config.to_dict(shape) for shape in (*shapes, ReAttShape())]
        for name, value in config.to_dict(self.shape).items():
            if value not in [each[name] for each in known]:
                problem = f"shape.{name} = {value}, but the model of {self.start_name} was made with another"
                raise UsageError(problem, f"leave shape.{name} out, which comes with start, or leave start out")
        self.shape = shapes[0]

    def _take_backbone(self, name: str) -> None:
        """Note the backbone of what it starts from, and refuse another that was asked for."""
        if self.backbone not in (name, config.options(type(self))["backbone"].default):
            problem = f"backbone = {self.backbone!r}, but the model of {self.start_name} came from {name!r}"
            raise UsageError(problem, "leave backbone out, which comes with start, or leave start out")
        self.backbone = name

    @property
    def start_name(self) -> str:
        """What `start` is called: its folder, or its kind."""
        return self.start if isinstance(self.start, str) else self.start.kind

    @property
    def started_from(self) -> tuple[Retriever[Any], ...]:
        """The retriever whose model is learned further, where one is given that is open already."""
        return (self.start,) if isinstance(self.start, Retriever) else ()


def scores_of(results: Sequence[Result]) -> list[list[float]]:
    """The scores of hits."""
    return [[hit.score for hit in result] for result in results]


def _read_of(document: Document, row: int, reader: Reader[Any]) -> str:
    """What a reader reads of the title and the text of a document."""
    text, texts = document.full_text, reader.texts
    return text if reader.documents.lengths[row] < texts.most_of_document else texts.read_part(text)


def _texts(hits: Sequence[Hit], store: DocumentStore) -> list[str]:
    return [store.document(hit.id).full_text for hit in hits]


def _answer(
    held: Held[Any],
    question: str,
    written: Written,
    hits: Result,
    rows: Sequence[int],
    attended: Attended | None,
    known_from: float,
    *,
    told: bool,
) -> Answer:
    """What was written for a question, and what it was written from: hits, and their rows; all is `told` of them."""
    reader: Reader[Any] = held.engine.reader
    documents = [held.searched.document(hit.id) for hit in hits]
    text = reader.text(written, rows, [document.full_text for document in documents])
    probability = math.exp(written.logprob)
    matches = attended(question, [(row, reader.documents[row]) for row in rows]) if attended else [()] * len(hits)
    shown, holds = [held.document_hit(hit, question) for hit in hits], [None] * len(hits)
    if told:  # which takes milliseconds, as many as a fast model needs to answer
        read = [_read_of(document, row, reader) for document, row in zip(documents, rows, strict=True)]
        missing = [len(document.full_text) - len(part) for document, part in zip(documents, read, strict=True)]
        shown = [_without_end(hit, letters) for hit, letters in zip(shown, missing, strict=True)]
        holds = [bool(text) and has_answer(part, [text]) for part in read]
    sources = map(Source, shown, written.shares, matches, holds)
    by_share = tuple(sorted(sources, key=lambda source: -source.share))
    return Answer(question, None, probability, text, by_share, hits.note).given_from(known_from)


def _without_end(hit: Hit, letters: int) -> Hit:
    """The hit of a document without its last letters."""
    if not letters:
        return hit
    start, end = hit.span or (0, len(hit.text))
    return hit.within(start, max(start, end - letters))
