"""How a causal language model learns to answer: it continues documents and a question by the answer and its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from triever.engines.causal_answers import CausalReader
from triever.learning.answer_tasks import AskedAnswers
from triever.learning.answering import AnswerBatches, AnswerCourse, Close
from triever.models.tokens import Tokens
from triever.training.continuations import AnswerLoss, continuation_batch, spaced
from triever.training.loop import Loss


@dataclass(frozen=True)
class PromptBatches(AnswerBatches):
    """Batches of prompts with answers; a prompt is made when its batch is asked for, since all would take much room."""

    reader: CausalReader
    questions: Tokens

    def batch(self, numbers: np.ndarray, answers: Sequence[str]) -> dict[str, Tensor]:
        """The questions with these numbers, and answers to them."""
        model = self.reader.texts.model
        ends = model.tokenizer.ids([spaced(answer) for answer in answers], self.length - 1, special=False)
        prompts = [self._prompt(number) for number in numbers]
        return continuation_batch(prompts, [[*ids, model.end] for ids in ends], model.tokenizer.pad)

    def _prompt(self, number: int) -> np.ndarray:
        documents = [self.reader.documents[row] for row in self.close[number].tolist() if row >= 0]
        return self.reader.texts.prompt(self.questions[number], documents, self.length).tokens


@dataclass(frozen=True)
class CausalCourse(AnswerCourse[CausalReader]):
    """A training of a causal model: `CausalCourse(reader, learned, judged, options, close).run(AnswerLoss())`."""

    @property
    def judging(self) -> Loss:
        """What held-out questions are judged by, as the loss of their answers."""
        return AnswerLoss()

    @property
    def read_at_once(self) -> tuple[int, int]:
        """Prompts, and how long they are: a question with all of its documents."""
        question, document = self.usual_lengths
        whole = question + self.options.close * document
        return self.asked_at_once, min(whole, self.reader.texts.longest)

    def batches(self, asked: AskedAnswers, close: Close, number: int, which: np.ndarray | None = None) -> PromptBatches:
        """A round of batches about documents that `close` finds, for those questions that the round asks."""
        options, rows = self.options, self.found(asked, close, number, which)
        questions = self.reader.texts.questions(asked.texts)
        given = asked, rows, options.answer_length, self.reader, questions
        return PromptBatches(options, options.batches, number, *given)
