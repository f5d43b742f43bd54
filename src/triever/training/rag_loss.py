"""The loss of RAG: an answer's probability from each document alone, weighted by how probable the document is.

How probable a document is follows from the vector of the question, which may be learned, and from that of the document,
which stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from triever.models.encoder import Encoder
from triever.models.reatt import PairStates, ReAttModel
from triever.training.piecewise import mean_in_pieces


class RagModel(nn.Module):
    """What answers, and what reads questions to find documents."""

    def __init__(self, reader: ReAttModel, asking: Encoder) -> None:
        super().__init__()
        self.reader, self.asking = reader, asking

    def train(self, mode: bool = True) -> RagModel:
        """As for every module; but what reads questions and does not learn reads them as in a search."""
        super().train(mode)
        self.asking.train(mode and any(weight.requires_grad for weight in self.asking.parameters()))
        return self


@dataclass(frozen=True)
class RagLoss:
    """`RagLoss(temperature=0.05, at_once=4)(model, batch)`, whose batch has asked_ids, asked_mask and vectors too."""

    temperature: float
    at_once: int = 0
    """Questions that are read at once, with their documents; 0 is all of them."""

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Minus the log-probability of answers over all of their documents, by the tokens of each, as a mean."""
        assert isinstance(model, RagModel)
        return {"answer": mean_in_pieces(model, batch, self.at_once, partial(self._mean, model))}

    def _mean(self, model: RagModel, batch: Mapping[str, Tensor]) -> Tensor:
        asked = model.asking(batch["asked_ids"], batch["asked_mask"])
        products = torch.einsum("qd,qkd->qk", asked.float(), batch["vectors"].float())
        prior = log_prior(products, batch["document_mask"].any(2), self.temperature)
        each = answer_logprobs_apart(model.reader, batch)
        tokens = (batch["answers"] >= 0).sum(1).clamp(min=1)
        return (-(prior + each).logsumexp(1) / tokens).mean()


def log_prior(products: Tensor, is_there: Tensor, temperature: float) -> Tensor:
    """(questions, documents) the log-probability of each document, by products of vectors; -inf where there is none."""
    return (products / temperature).masked_fill(~is_there, -torch.inf).log_softmax(1)


def answer_logprobs_apart(reader: ReAttModel, batch: Mapping[str, Tensor]) -> Tensor:
    """(questions, documents) the log-probability of each question's answer from each of its documents alone."""
    read = reader.read(pairs_of(reader, batch).apart())
    count = batch["document_ids"].shape[1]
    answers = batch["answers"].repeat_interleave(count, 0)
    return reader.answer_logprobs(read, answers).sum(1).unflatten(0, (-1, count))


def pairs_of(reader: ReAttModel, batch: Mapping[str, Tensor]) -> PairStates:
    """Each question together with each of its documents."""
    ids, mask = batch["document_ids"], batch["document_mask"]
    asked = reader.query_states(batch["query_ids"], batch["query_mask"])
    documents = reader.document_states(ids.flatten(0, 1), mask.flatten(0, 1)).unflatten(0, ids.shape[:2])
    return reader.encode_pairs(asked, batch["query_mask"], documents, mask, (batch["query_ids"], ids))
