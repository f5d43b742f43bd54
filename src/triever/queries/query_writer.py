"""The query writer: a causal language model that writes questions which a document answers (doc2query).

The model is only prompted, or it is tuned on the pairs of a dataset first. A cross-encoder may choose among the
questions. The questions of a document depend on the seed and the document alone, not on the documents beside it, except
for rounding in a batch.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from torch import nn

from triever import artifact, config, work_folder
from triever.config import option
from triever.data.datasets import Dataset
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.errors import ArtifactError, UsageError
from triever.learning.encoders import device_name
from triever.models import causal_files
from triever.models.backbones import SCRATCH, Backbone, causal_shape, load_backbone
from triever.models.language_model import end_of, seeded_module
from triever.models.named_weights import named_tensors
from triever.models.precision import fast_dtype
from triever.models.sampling import Sampling, containing, framed
from triever.models.tokens import TextTokenizer, Tokens
from triever.printable import an
from triever.progress import track
from triever.queries.question_sampler import Judge, Questions, QuestionSampler
from triever.queries.writer_tuning import WriterTuning, tune
from triever.retriever import WRITER, load
from triever.retrievers.reranker import Reranked
from triever.training.memory_estimate import FLOAT, check, estimate
from triever.training.pairs import Pairs, pairs_of
from triever.training.tuning import summary
from triever.validation import require_table, require_text
from triever.version import __version__

BATCH = {"cpu": 64}
"""The default number of questions that are written at once, by device."""
OTHER_BATCH = 1024
BATCHES = 4
"""Batches of documents that are handled together: sorted by length, and written as one shard of a file."""
DOCUMENT = "{document}"
ENDS = ("\n", "?")
"""Texts that end a question of a backbone that was not tuned, besides its own end token."""
FIXED = ("backbone", "fetch", "prompt", "training")
"""Options that a saved writer keeps, because it was made with them."""

ASK = "Write one short question that this text answers."
EXAMPLES = (
    (
        "Tides\nThe sea rises and falls twice a day because the moon pulls at the water.",
        "Why does the sea rise and fall twice a day?",
    ),
    (
        "Office rules\nTrips that cost more than 5000 euro are approved by the head of finance.",
        "Who has to approve an expensive business trip?",
    ),
    (
        "str.zfill\nzfill(width)\nPad a numeric string with zeros on the left, to fill a field of the given width.",
        "How do I put leading zeros in front of a number?",
    ),
)
SHORT = f"{DOCUMENT}\nQuestion:"
PLAIN = "".join(f"Text: {text}\nQuestion: {question}\n\n" for text, question in EXAMPLES)
PLAIN += f"Text: {DOCUMENT}\nQuestion:"
TURN, OVER = "<|im_start|>", "<|im_end|>"


def _asked(text: str) -> str:
    return f"{TURN}user\n{text}\n\n{ASK}{OVER}\n{TURN}assistant\nQuestion:"


CHAT = f"{TURN}system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face{OVER}\n"
CHAT += "".join(f"{_asked(text)} {question}{OVER}\n" for text, question in EXAMPLES) + _asked(DOCUMENT)
"""For chat models of this form. The answer is begun for them, so that they write a question and do not chat."""


@dataclass(frozen=True)
class WriterModel:
    """A language model, where it came from, and how it was tuned."""

    backbone: Backbone
    module: nn.Module
    origin: Mapping[str, object] = field(default_factory=dict)
    trained: Mapping[str, object] = field(default_factory=dict)
    digest: str = ""
    """The hash of its weights, if it was tuned or loaded."""


@dataclass(eq=False)
class QueryWriter:
    """Writes the questions of documents: `dict(QueryWriter(per_document=3).write(data.documents()))`."""

    kind: ClassVar[str] = WRITER

    backbone: str = option("smollm2", "a causal language model: smollm2, scratch, a folder, or an id of the hub")
    fetch: bool = option(False, "fetch the backbone from the hub if it is not here")
    per_document: int = option(10, "questions to write for each document; duplicates are dropped")
    temperature: float = option(1.0, "below 1 prefers likely words more, above 1 less")
    top: int = option(10, "each token is drawn from this many of the likeliest")
    seed: int = option(0, "seed of the draws; another seed gives other questions")
    document_length: int = option(192, "tokens of a document that are read")
    query_length: int = option(32, "the most tokens of a question")
    batch: int = option(0, "questions that are written at once; 0 is 64 on a processor and 1024 on a GPU")
    prompt: str = option("", "the prompt, with {document} in it; by default one that asks for a question")
    training: WriterTuning = option(WriterTuning(), "how the model is tuned; training.steps=0 only prompts it")
    filter: str | None = option(
        None, "folder of a saved `reranked` retriever, whose cross-encoder scores the questions"
    )
    keep: float = option(0.5, "the share of a document's questions that a filter keeps, the best ones")
    device: str = option("auto", "cpu, cuda, or auto: cuda where there is one")
    _engine: WriterModel | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        config.validate(self)
        if not 1 <= self.per_document <= 1000:
            raise UsageError(
                f"per_document = {self.per_document} should be from 1 to 1000", "the usual range is 3 to 80"
            )
        if self.temperature <= 0 or self.top < 1:
            problem = f"a value is too small: temperature = {self.temperature}, top = {self.top}"
            raise UsageError(problem, "set temperature above 0, and top to 1 (only the likeliest token) or more")
        if min(self.seed, self.batch) < 0 or self.document_length < 1 or self.query_length < 2:
            lengths = f"document_length = {self.document_length}, query_length = {self.query_length}"
            problem = f"a value is too small: {lengths}, batch = {self.batch}, seed = {self.seed}"
            raise UsageError(problem, "set document_length to 1, query_length to 2, batch and seed to 0, or more")
        if not 0 < self.keep <= 1:
            raise UsageError(
                f"keep = {self.keep} should be above 0 and at most 1", "it is the share of questions to keep"
            )
        if self.prompt and (self.prompt.count(DOCUMENT) != 1 or self.prompt.endswith(DOCUMENT)):
            problem = f"the prompt should hold {DOCUMENT} once, and text after it"
            raise UsageError(problem, f"for example: {SHORT!r}")

    # What a person uses.

    def fit(self, dataset: Dataset, *, work: str | Path | None = None) -> Self:
        """Tune on the queries of a dataset; with `training.steps` of 0, the backbone stays as it is.

        With a work folder, a tuning that was interrupted goes on where it was.
        """
        if not isinstance(dataset, Dataset):
            problem = f"fit takes a Dataset, not {type(dataset).__name__}"
            raise UsageError(problem, "load one with triever.load_dataset(...)")
        if not self.training.steps:
            return self._as_it_comes()
        store = DocumentStore.of(track(dataset.documents(), "reading", unit="documents"))
        # The training compares its own options, because it accepts more steps than before.
        options = {name: value for name, value in config.to_dict(self).items() if name != "training"}
        description = {"kind": self.kind, "options": options, "documents": dataset.fingerprint}
        return self.learn(dataset, store, work_folder.claim(work, description) if work else None)

    def learn(self, dataset: Dataset, store: DocumentStore, work: str | Path | None = None) -> Self:
        """Fit to a dataset whose documents are already in a store, in a work folder that is already claimed."""
        self._judge()  # a filter that cannot be used is refused now, and not after hours of tuning
        if not self.training.steps:
            return self._as_it_comes()
        backbone = self._backbone(store)
        module = seeded_module(backbone, self.training.seed)
        relevant, pairs = _compact(pairs_of(dataset, self.training.split, store))
        texts = (document.full_text for document in _documents(store, relevant))
        frame = self._frame(backbone)
        prompts = Tokens.of(texts, frame, self._longest(backbone, frame))
        self._check_memory(backbone, module, prompts)
        folder = Path(work) if work else None
        tuned = tune(module, pairs, prompts, questions_of(backbone), self.query_length, self.training, folder)
        origin = {"data": dataset.name, "fitted on": store.fingerprint}
        module = module.to("cpu").eval()
        self._engine = WriterModel(backbone, module, origin, summary(tuned), _digest(module))
        return self

    def write(self, documents: Iterable[Document]) -> Iterator[Questions]:
        """Each document's id and its questions, in the order of the documents."""
        stream = iter(documents)
        shard = list(islice(stream, self.shard))
        if not shard:
            raise UsageError("there are no documents to write questions for", "check them with: triever data info")
        sampler = self.sampler()
        while shard:
            yield from sampler.write(shard)[0]
            shard = list(islice(stream, self.shard))

    def save(self, path: str | Path, *, replace: bool = True) -> None:
        """Write an artifact with the model inside, whole or not at all; `load` opens it again."""
        engine = self._ready()
        digest = engine.digest or _digest(engine.module)
        with artifact.writing(path, replace=replace) as writer:
            causal_files.write(engine.backbone, engine.module, writer)
            writer.text("card", self.card)
            state = {"origin": dict(engine.origin), "trained": dict(engine.trained), "documents": 0}
            writer.commit(self.kind, config.to_dict(self), state | {"fingerprint": digest}, f"triever {__version__}")

    @classmethod
    def load(cls, path: str | Path, changes: Mapping[str, object] | None = None) -> QueryWriter:
        """A saved writer, with some options changed: `QueryWriter.load("writer", {"per_document": 40})`."""
        for name in changes or {}:
            if name in FIXED:
                raise UsageError(f"{name} is a part of the saved writer", "leave the option out, or make a new writer")
        with artifact.read(path) as snapshot:
            if snapshot.manifest.kind != cls.kind:
                problem = f"{path} holds a {snapshot.manifest.kind!r}, not a query writer"
                raise ArtifactError(problem, "name a folder that `triever write-queries --save-writer` has written")
            with artifact.opening(path, cls.kind):
                # A path in an artifact says where it came from. It is not opened: a stranger may have written it.
                options = {**snapshot.manifest.options, "filter": None}
                writer = config.build(cls, config.merged(options, changes or {}))
                writer._engine = _read(snapshot)
        return writer

    @property
    def card(self) -> str:
        """A text for whoever receives the folder: what the writer is and what it was made from."""
        engine = self._ready()
        weights = f"{engine.backbone.source} (licence: {engine.backbone.licence})"
        rows = {"kind": self.kind, **config.to_dict(self), **engine.origin, "weights": weights, **engine.trained}
        table = "\n".join(f"| {key} | {json.dumps(value, ensure_ascii=False)} |" for key, value in rows.items())
        return f"# A Triever query writer\n\n| what | value |\n| --- | --- |\n{table}\n\nWeights: {weights}.\n"

    @property
    def made_from(self) -> str:
        """The hash of the weights, which decide the questions like the options; empty before it is tuned or loaded."""
        return self._engine.digest if self._engine else ""

    def sampler(self, device_for_auto: str = "auto") -> QuestionSampler:
        """A sampler with the model as it is now, on its device; `device=auto` may be settled here."""
        engine = self._ready()
        device = torch.device(device_name(device_for_auto if self.device == "auto" else self.device))
        module = engine.module
        # The draws depend on the last bits. On a processor they must not depend on the other documents of a batch, so
        # the model keeps its full precision there.
        if device.type != "cpu":
            module = copy.deepcopy(module).to(device, fast_dtype(device))  # a copy: the model is saved as it is
        frame = self._frame(engine.backbone)
        return QuestionSampler(
            module,
            frame,
            self._longest(engine.backbone, frame),
            self._sampling(engine.backbone),
            count=self.per_document,
            seed=self.seed,
            whole=self._tuned,
            judge=self._judge(),
        )

    def for_worker(self) -> QueryWriter:
        """A copy for another process: its path begins at the root, and its batches are as large as here."""
        other = copy.copy(self)
        other.batch, other.filter = self._at_once, os.path.abspath(self.filter) if self.filter else None
        return other

    @property
    def shard(self) -> int:
        """The number of documents that are handled together; an interruption loses at most these."""
        return max(1, BATCHES * self._at_once // self.per_document)

    @property
    def is_fitted(self) -> bool:
        """Whether it was tuned or loaded, or its backbone is loaded."""
        return self._engine is not None

    # Its parts.

    @property
    def _tuned(self) -> bool:
        """Whether it was tuned, so that a question ends only at the end token."""
        return self.training.steps > 0

    def _sampling(self, backbone: Backbone) -> Sampling:
        ends = frozenset() if self._tuned else containing(backbone.tokenizer, ENDS)
        return Sampling(ends | {end_of(backbone)}, self.query_length, self.temperature, self.top, self._at_once)

    @property
    def _at_once(self) -> int:
        return self.batch or BATCH.get(torch.device(device_name(self.device)).type, OTHER_BATCH)

    def _judge(self) -> Judge | None:
        if not self.filter:
            return None
        retriever = load(self.filter)
        if not isinstance(retriever, Reranked):
            problem = f"filter = {self.filter!r} is {an(retriever.kind)} retriever, which has no cross-encoder"
            raise UsageError(problem, "name a retriever that was made by: triever fit reranked")
        return Judge(retriever, self.keep)

    def _frame(self, backbone: Backbone) -> TextTokenizer:
        converses = backbone.tokenizer.number(TURN) is not None
        long, short = (CHAT, _asked(DOCUMENT)) if converses else (PLAIN, SHORT)
        before, _, after = (self.prompt or (short if self._tuned else long)).partition(DOCUMENT)
        return framed(backbone.tokenizer, before, after)

    def _longest(self, backbone: Backbone, frame: TextTokenizer) -> int:
        """The most tokens of a prompt: only the document is cut, never the text around it."""
        around = len(frame.before) + len(frame.after)
        room = (backbone.longest or 2**31) - around - self.query_length
        if room < 1:
            problem = f"{backbone.name} reads {backbone.longest} tokens, but the prompt and a question alone need more"
            raise UsageError(problem, "shorten the prompt, or lower query_length")
        return around + min(self.document_length, room)

    def _as_it_comes(self) -> Self:
        if self.backbone.partition(":")[0] == SCRATCH:
            raise UsageError("scratch has not learned any words", "set training.steps, or name another backbone")
        backbone = self._backbone(None)
        self._engine = WriterModel(backbone, seeded_module(backbone, self.seed))
        return self

    def _backbone(self, store: DocumentStore | None) -> Backbone:
        texts = None if store is None else store.sample_texts()
        backbone = load_backbone(self.backbone, texts=texts, fetch=self.fetch)
        if self.backbone.partition(":")[0] == SCRATCH:
            backbone = causal_shape(backbone)
        if not backbone.causal:
            problem = f"{self.backbone} is not a causal language model, so it cannot write"
            raise UsageError(problem, "choose a causal model, such as smollm2")
        end_of(backbone)
        return backbone

    def _check_memory(self, backbone: Backbone, module: nn.Module, prompts: Tokens) -> None:
        shape, training = backbone.config, self.training
        device = device_name("auto")  # where the loop trains
        length = int(prompts.lengths.max()) + self.query_length
        needed = estimate(
            sum(weight.numel() for weight in module.parameters()),
            batch=training.batch,
            length=length,
            d_model=backbone.hidden,
            layers=int(shape.get("num_hidden_layers") or shape.get("n_layer") or 12),
            d_ff=int(shape.get("intermediate_size") or 0),
            optimizer=training.optimizer,
            precision="bfloat16" if device == "cuda" else "float32",
        )
        scores = 3 * FLOAT * training.batch * (self.query_length + 1) * backbone.tokenizer.size
        check(needed + scores, device)

    def _ready(self) -> WriterModel:
        if self._engine is None and not self.training.steps:
            self._as_it_comes()
        if self._engine is None:
            raise UsageError("this QueryWriter has not been tuned yet", "call fit, or load a saved one")
        return self._engine


def questions_of(backbone: Backbone) -> TextTokenizer:
    """A tokenizer for questions: they follow a prompt, and end with the end token."""
    tokenizer = copy.copy(backbone.tokenizer)
    tokenizer.before, tokenizer.after = [], [end_of(backbone)]
    return tokenizer


def _compact(pairs: Pairs) -> tuple[np.ndarray, Pairs]:
    """The rows of the documents that are relevant to any query, and the pairs with positions among these rows."""
    rows, positions = np.unique(pairs.relevant, return_inverse=True)
    return rows, replace(pairs, relevant=positions)


def _documents(store: DocumentStore, rows: np.ndarray) -> Iterator[Document]:
    keep = np.zeros(len(store), bool)
    keep[rows] = True
    return iter(store.where(keep))


def _digest(module: nn.Module) -> str:
    """A hash of all weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in named_tensors(module).items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _read(snapshot: artifact.Snapshot) -> WriterModel:
    """The engine of an artifact."""
    backbone, module = causal_files.read(snapshot)
    state = snapshot.state
    origin, trained = (require_table(state, name) for name in ("origin", "trained"))
    return WriterModel(backbone, module, origin, trained, require_text(state, "fingerprint"))
