"""The loss of retrieval as attention, and its gradients for batches that are larger than memory.

A batch has questions, the close documents of each, and answers. The close documents of other questions are a question's
random documents. The loss has two parts:

- answer: the questions' answers, written from their close documents;
- adjustment: the relevance of all documents of the batch should follow the decoder's attention to them. Close documents
  share that attention; random documents get none.

Only the adjustment makes questions depend on each other, and only by states that were read apart. So with a limit of
questions at once, these states are computed without gradients first; then each part's gradients with respect to them;
then the states are computed once more, some texts at a time and with the same random numbers, and the gradients go on
from there. What comes out is what the whole batch would have given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from triever.models.reatt import ReAttModel
from triever.training.losses import distillation
from triever.training.piecewise import Gradients

Encode = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ReAttLoss:
    """`ReAttLoss(alpha=8.0, at_once=4)(model, batch)`, with a batch of `reading_batch`."""

    alpha: float = 8.0
    """What the adjustment is multiplied by; 0 leaves it out, as at the beginning of a training."""
    in_batch: bool = True
    """Whether the documents of other questions count as random ones."""
    at_once: int = 0
    """Questions that are read at once, with their documents; 0 is all of them."""

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The parts of the loss by name, means over questions; and how much the first head counts, which is no loss."""
        assert isinstance(model, ReAttModel)
        texts = BatchTexts.of(batch)
        cached = self.at_once and torch.is_grad_enabled()
        losses = self._in_pieces(model, texts) if cached else self._whole(model, texts)
        return {**losses, "_retrieval_head_weight": model.head_weights.max()}

    def _whole(self, model: ReAttModel, texts: BatchTexts) -> dict[str, Tensor]:
        queries = model.query_states(texts.query_ids, texts.query_mask)
        documents = model.document_states(texts.document_ids, texts.document_mask)
        answer, target = _read(model, texts, queries, documents[texts.close])
        losses = {"answer": answer}
        if self.alpha:
            losses["adjustment"] = self._adjustment(model, texts, queries, documents, target)
        return losses

    def _adjustment(
        self, model: ReAttModel, texts: BatchTexts, queries: Tensor, documents: Tensor, target: Tensor
    ) -> Tensor:
        relevance = model.relevance(queries, texts.query_mask, documents, texts.document_mask)
        compared = texts.is_there.expand(len(queries), -1) if self.in_batch else texts.is_close
        return self.alpha * distillation(model.weighed(relevance), texts.spread(target), compared)

    def _in_pieces(self, model: ReAttModel, texts: BatchTexts) -> dict[str, Tensor]:
        """The same values, with gradients that are known already."""
        gradients = Gradients(model)
        size = self.at_once
        queries = ReadTwice(model.query_states, texts.query_ids, texts.query_mask, size)
        documents = ReadTwice(
            model.document_states, texts.document_ids, texts.document_mask, size * texts.close.shape[1]
        )
        answer, targets = torch.zeros((), device=model.device), []
        for rows in torch.arange(len(texts), device=model.device).split(size):
            piece = texts.take(rows)
            close = documents.chosen(piece.close)
            asked = queries.chosen(rows)
            loss, target = _read(model, piece, asked, close)
            share = len(rows) / len(texts)
            of_asked, of_close = gradients.add(loss * share, [asked, close])
            queries.add(rows, of_asked)
            documents.add(piece.close, of_close)
            answer = answer + loss.detach() * share
            targets.append(target)
        losses = {"answer": answer}
        if self.alpha:
            leaves = queries.whole(), documents.whole()
            adjustment = self._adjustment(model, texts, *leaves, torch.cat(targets))
            for side, gradient in zip((queries, documents), gradients.add(adjustment, leaves), strict=True):
                side.gradient += gradient
            losses["adjustment"] = adjustment.detach()
        for side in (queries, documents):
            side.read_again(gradients)
        # The loop adds up the parts: what goes back into the first of them goes back once.
        losses["answer"] = gradients.behind(losses["answer"])
        return losses


def _read(model: ReAttModel, texts: BatchTexts, queries: Tensor, close: Tensor) -> tuple[Tensor, Tensor]:
    """The mean loss of answers written from close documents (questions, K, length, d_model), and attention to these."""
    ids = texts.query_ids, texts.document_ids[texts.close]
    pairs = model.encode_pairs(queries, texts.query_mask, close, texts.document_mask[texts.close], ids)
    read = model.read(pairs)
    return model.answer_loss(read, texts.answers).mean(), model.document_attention(read, close.shape[1])


@dataclass(frozen=True)
class BatchTexts:
    """The texts of a batch, with each document once, however many questions it is close to; the longest first."""

    query_ids: Tensor  # (questions, length)
    query_mask: Tensor
    document_ids: Tensor  # (documents, length)
    document_mask: Tensor
    close: Tensor  # (questions, K) which of the documents are close to each question
    answers: Tensor  # (questions, length) negative behind the end of each

    def __len__(self) -> int:
        return len(self.query_ids)

    @classmethod
    def of(cls, batch: Mapping[str, Tensor]) -> BatchTexts:
        """The texts of a batch as `reading_batch` makes it."""
        rows, inverse = batch["document_rows"].flatten().unique(return_inverse=True)
        # Any place where a document stands is as good as another: the text is the same.
        place = torch.empty_like(rows).scatter_(0, inverse, torch.arange(len(inverse), device=rows.device))
        mask = batch["document_mask"].flatten(0, 1)[place]
        order = mask.sum(1).argsort(descending=True, stable=True)
        close = order.argsort()[inverse].view_as(batch["document_rows"])
        ids = batch["document_ids"].flatten(0, 1)[place]
        return cls(batch["query_ids"], batch["query_mask"], ids[order], mask[order], close, batch["answers"])

    def take(self, questions: Tensor) -> BatchTexts:
        """Some of the questions, with all documents."""
        of_questions = (part[questions] for part in (self.query_ids, self.query_mask))
        documents = self.document_ids, self.document_mask
        return BatchTexts(*of_questions, *documents, self.close[questions], self.answers[questions])

    @property
    def is_there(self) -> Tensor:
        """(documents,) whether a document has tokens: what stands for a missing one has none."""
        return self.document_mask.any(1)

    @property
    def is_close(self) -> Tensor:
        """(questions, documents) whether each document is close to each question."""
        nothing = torch.zeros(len(self), len(self.document_ids), dtype=torch.bool, device=self.close.device)
        return nothing.scatter(1, self.close, True) & self.is_there

    def spread(self, target: Tensor) -> Tensor:
        """The target of close documents (questions, K) over all documents (questions, documents), zero elsewhere."""
        return target.new_zeros(len(self), len(self.document_ids)).scatter_add(1, self.close, target)


class ReadTwice:
    """The states of texts, computed some at a time and without gradients, and again once their gradients are known."""

    def __init__(self, encode: Encode, ids: Tensor, mask: Tensor, size: int) -> None:
        self.encode = encode
        self.pieces = list(zip(ids.split(size), mask.split(size), strict=True))
        self.random: list[RandomState] = []
        with torch.no_grad():
            self.states = torch.cat([self._first(*piece) for piece in self.pieces])
        self.gradient = torch.zeros_like(self.states)

    def _first(self, ids: Tensor, mask: Tensor) -> Tensor:
        self.random.append(RandomState.now(ids.device))
        states = self._encoded(ids, mask)
        return functional.pad(states, (0, 0, 0, ids.shape[1] - states.shape[1]))

    def _encoded(self, ids: Tensor, mask: Tensor) -> Tensor:
        longest = max(1, int(mask.sum(1).max()))
        return self.encode(ids[:, :longest], mask[:, :longest])

    def whole(self) -> Tensor:
        """All states, as a leaf."""
        return self.states.detach().requires_grad_()

    def chosen(self, rows: Tensor) -> Tensor:
        """The states of some texts, rows of any shape, as a leaf."""
        return self.states[rows].requires_grad_()

    def add(self, rows: Tensor, gradient: Tensor) -> None:
        """Add the gradient of what was chosen; a text may be chosen several times."""
        self.gradient.index_add_(0, rows.flatten(), gradient.reshape(-1, *self.gradient.shape[1:]))

    def read_again(self, gradients: Gradients) -> None:
        """Compute all states once more, and add what their gradients give to the parameters."""
        before = RandomState.now(self.states.device)
        parts = self.gradient.split([len(ids) for ids, _ in self.pieces])
        for (ids, mask), state, gradient in zip(self.pieces, self.random, parts, strict=True):
            state.set()
            states = self._encoded(ids, mask)
            if states.requires_grad:
                gradients.add(states, gradient=gradient[:, : states.shape[1]])
        before.set()


@dataclass(frozen=True)
class RandomState:
    """Where torch's random numbers stand, on the processor and on a GPU."""

    processor: Tensor
    gpu: Tensor | None
    device: torch.device

    @classmethod
    def now(cls, device: torch.device) -> RandomState:
        """Where they stand now."""
        gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return cls(torch.get_rng_state(), gpu, device)

    def set(self) -> None:
        """Go on from here."""
        torch.set_rng_state(self.processor)
        if self.gpu is not None:
            torch.cuda.set_rng_state(self.gpu, self.device)
