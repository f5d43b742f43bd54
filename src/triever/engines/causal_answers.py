"""Answers that a causal language model writes behind a prompt: documents, the best one last, and then the question."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from triever.artifact import Snapshot, Writer, opening
from triever.data.records import Document
from triever.engines import document_tokens
from triever.engines.readers import AT_ONCE, NOTHING, Reader, Written
from triever.errors import UsageError
from triever.models import causal_files
from triever.models.encoder import one_token
from triever.models.language_model import LanguageModel
from triever.models.precision import computing_fast, device_of
from triever.models.reatt import ANSWER_TOKENS
from triever.models.sampling import left_padded
from triever.models.tokens import Tokens, by_length
from triever.progress import track
from triever.validation import require, require_numbers, require_table

BETWEEN, QUESTION, ANSWER = "\n\n", "\n\nQuestion:", "\nAnswer:"
"""What stands between documents, before a question, and behind it."""
LEAST = 1e-12
"""What all documents together are taken to get at least, so that it can be divided by."""
PART = "reader"
"""What the files of the model are called in an artifact."""


@dataclass(frozen=True)
class Prompt:
    """Documents and a question as one text."""

    tokens: np.ndarray
    spans: tuple[tuple[int, int], ...]  # where each document begins and ends, in the order given; (0, 0): not there

    def shares(self, attention: np.ndarray) -> tuple[float, ...]:
        """How an attention to all tokens is shared among the documents.

        >>> Prompt(np.arange(4), ((2, 3), (0, 2))).shares(np.array([0.125, 0.125, 0.75, 0.0]))
        (0.75, 0.25)
        """
        until = np.concatenate([[0.0], np.cumsum(attention, dtype=np.float64)])
        each = np.array([until[end] - until[start] for start, end in self.spans])
        return tuple((each / max(each.sum(), LEAST)).tolist())


@dataclass(frozen=True)
class PromptTexts:
    """How prompts are made of questions and documents: `PromptTexts(model, 64, 256)`."""

    model: LanguageModel
    query_length: int
    document_length: int

    @property
    def most_of_document(self) -> int:
        """How many tokens of a document are read at most."""
        return self.document_length

    def read_part(self, text: str) -> str:
        """What is read of the text of a document: its beginning, or all of it."""
        return self.model.tokenizer.cut([text], self.document_length)[0]

    def documents(self, documents: Iterable[Document]) -> Tokens:
        """The tokens of documents, nothing before or after them."""
        bare = copy.copy(self.model.tokenizer)
        bare.before, bare.after = [], []
        return Tokens.of((document.full_text for document in documents), bare, self.document_length)

    def questions(self, questions: Iterable[str]) -> Tokens:
        """The ends of prompts: the tokens of questions with the words around them; a long question is cut."""
        tokenizer = self.model.tokenizer
        before, after = self._around
        limit = len(before) + self.query_length
        whole = tokenizer.ids([f"{QUESTION} {text.strip()}{ANSWER}" for text in questions], special=False)
        rows = [ids if len(ids) <= limit + len(after) else [*ids[:limit], *after] for ids in whole]
        return Tokens.from_lists(rows, tokenizer.size)

    def prompt(self, question: np.ndarray, documents: Sequence[np.ndarray], answer: int = ANSWER_TOKENS) -> Prompt:
        """A prompt, with room for so many tokens of an answer behind it; documents come the best one first.

        The worst are left out where there is no room for all, and of the best one as much as there is no room for.
        """
        begin = np.asarray(self.model.tokenizer.before, np.int64)
        kept = self._kept(documents, self.longest - answer - len(begin) - len(question))
        parts, spans, length = [begin], [(0, 0)] * len(documents), len(begin)
        for number, tokens in reversed(kept):
            between = self._between if len(parts) > 1 else self._between[:0]
            start = length + len(between)
            length = start + len(tokens)
            spans[number] = (start, length)
            parts += [between, tokens]
        return Prompt(np.concatenate([*parts, question]).astype(np.int64), tuple(spans))

    def _kept(self, documents: Sequence[np.ndarray], room: int) -> list[tuple[int, np.ndarray]]:
        """The numbers and tokens of the documents that there is room for, the best one first; empty ones are none."""
        kept: list[tuple[int, np.ndarray]] = []
        for number, tokens in enumerate(documents):
            tokens = tokens if kept else tokens[: max(room, 0)]
            needed = len(tokens) + (len(self._between) if kept else 0)
            if needed > room:
                break
            if len(tokens):
                kept.append((number, tokens))
                room -= needed
        return kept

    @cached_property
    def longest(self) -> int:
        """The most tokens of a prompt and its answer."""
        return self.model.backbone.longest or 2**31

    def lacking(self, answer: int) -> str:
        """What is wrong if there is no room for a document beside the longest question and an answer, or nothing."""
        around = sum(map(len, self._around)) + len(self.model.tokenizer.before)
        needed = around + self.query_length + answer
        if needed < self.longest:
            return ""
        return f"{self.model.backbone.name} reads {self.longest} tokens, but a question and an answer may have {needed}"

    @cached_property
    def _around(self) -> list[list[int]]:
        return self.model.tokenizer.ids([QUESTION, ANSWER], special=False)

    @cached_property
    def _between(self) -> np.ndarray:
        return np.asarray(self.model.tokenizer.ids([BETWEEN], special=False)[0], np.int64)


@dataclass(frozen=True)
class CausalReader(Reader[PromptTexts]):
    """A causal language model that answers, and the tokens of the documents that it reads."""

    def answers(
        self,
        questions: Sequence[str],
        rows: Sequence[Sequence[int]],
        scores: Sequence[Sequence[float]],
        word_for_word: bool | None = None,
    ) -> list[Written]:
        """For each question the answer that is written from the documents in its rows; scores change nothing."""
        written = [NOTHING for _ in questions]
        numbers = [number for number in range(len(questions)) if len(rows[number])]
        if not numbers:
            return written
        asked, texts = self.texts.questions(questions), self.texts
        every = self.documents.lengths
        lengths = [min(len(asked[number]) + every[list(rows[number])].sum(), texts.longest) for number in numbers]
        batches = by_length(lengths, tokens=AT_ONCE.get(texts.model.device.type, AT_ONCE["cpu"]))
        for batch in track(batches, "answering", len(numbers), unit="questions", size=len):
            chosen = [numbers[at] for at in batch]
            prompts = [texts.prompt(asked[number], [self.documents[row] for row in rows[number]]) for number in chosen]
            for number, answer in zip(chosen, self._written(prompts, bool(word_for_word)), strict=True):
                written[number] = answer
        return written

    @torch.inference_mode()
    def _written(self, prompts: Sequence[Prompt], word_for_word: bool) -> list[Written]:
        model, device = self.texts.model, self.texts.model.device
        tokens = Tokens.from_lists([prompt.tokens.tolist() for prompt in prompts], model.tokenizer.size)
        ids, mask = (part.to(device) for part in left_padded(*tokens.all_padded(model.tokenizer.pad)))
        places = _places(prompts, ids.shape[1]).to(device) if word_for_word else None
        with computing_fast(device):
            continued = model.continued(ids, mask, ANSWER_TOKENS, places)
        attention, logprobs = continued.attention.cpu().numpy(), continued.logprobs.tolist()
        return [
            Written(written, logprob, prompt.shares(weights[-len(prompt.tokens) :]))
            for prompt, written, logprob, weights in zip(prompts, continued.tokens, logprobs, attention, strict=True)
        ]

    def write_model(self, writer: Writer) -> None:
        """Put the model into an artifact."""
        causal_files.write(self.texts.model.backbone, self.texts.model.module, writer.inside(PART))


def _places(prompts: Sequence[Prompt], length: int) -> torch.Tensor:
    """(prompts, length) where documents stand, with prompts filled up on the left."""
    places = torch.zeros(len(prompts), length, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        before = length - len(prompt.tokens)
        for start, end in prompt.spans:
            places[row, before + start : before + end] = True
    return places


def new_reader(
    model: LanguageModel, query_length: int, document_length: int, documents: Iterable[Document]
) -> CausalReader:
    """A model with the tokens of documents; one that reads too little for a prompt is refused."""
    texts = PromptTexts(model, query_length, document_length)
    if problem := texts.lacking(ANSWER_TOKENS):
        raise UsageError(problem, "lower shape.query_length, or choose a backbone that reads more")
    return CausalReader(texts, texts.documents(documents))


def is_in(snapshot: Snapshot) -> bool:
    """Whether the reader of an artifact is a causal model."""
    return snapshot.inside(PART).has("weights")


def read(snapshot: Snapshot, device: str, query_length: int, document_length: int) -> CausalReader:
    """The causal model of an artifact, with the tokens of its documents."""
    with opening(snapshot.path, PART):
        backbone, module = causal_files.read(snapshot.inside(PART))
        require(backbone.causal and bool(backbone.tokenizer.after), "its reader is no model that writes")
        model = LanguageModel(backbone, module)
        probe = model.continued(*one_token(model.tokenizer), 1)
        require(
            probe.logprobs.isfinite().all() and probe.attention.isfinite().all(), "it gives scores that are not finite"
        )
        texts = PromptTexts(model.to(device_of(device, opening=True)), query_length, document_length)
        require(not texts.lacking(ANSWER_TOKENS), texts.lacking(ANSWER_TOKENS))
    (known_from,) = require_numbers([snapshot.state.get("known_from", 0.0)], "state", 1)
    documents = document_tokens.read(snapshot, model.tokenizer.size)
    return CausalReader(texts, documents, known_from, require_table(snapshot.state, "trained"))
