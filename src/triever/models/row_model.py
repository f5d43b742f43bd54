"""What is trained where docids have rows: an encoder that reads questions, and the row of every docid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from triever.models.encoder import Encoder, turned

DROPOUT = 0.1
"""The share of a question's vector that is dropped while matrices are learned."""
KEPT = (0.5, 0.75, 1.0)
"""Shares of what matrices have learned that may be kept; half of it is mostly enough, and other documents gain too."""
SCALE = 30.0
"""What the product of a query and a row is multiplied by before it has learned better."""


class RowModel(nn.Module):
    """Scores documents by the rows of their docids; a document weighs as much as all of its docids together.

    Where the reader stays as it is, matrices are learned that turn its vectors of questions and the rows: `turned`. A
    training may be `among` some of the documents alone.
    """

    def __init__(self, reader: Encoder, rows: Tensor, owners: Tensor, *, turned: bool = False) -> None:
        super().__init__()
        self.reader = reader.requires_grad_(not turned)
        self.rows = nn.Parameter(rows.float())
        self.scale = nn.Parameter(torch.tensor(SCALE))
        self.turns_questions, self.turns_rows = (_no_turn(rows.shape[1]) if turned else None for _ in range(2))
        self.documents = int(owners[-1]) + 1 if len(owners) else 0
        self.register_buffer("owners", owners)
        self.owners: Tensor
        self.passage_mass = 1.0  # how much a passage counts beside a whole text
        self.kept = KEPT[0]  # of what the matrices have learned, whenever it is not training
        self.among: tuple[Tensor, Tensor] | None = None  # the rows that a training compares, and their owners

    @property
    def encoder(self) -> Encoder:
        """What reads."""
        return self.reader

    def at_most(self, wanted: int) -> int:
        """How many tokens of a text can be read, up to as many as are wanted."""
        return self.reader.at_most(wanted)

    def forward(
        self, ids: Tensor | None = None, mask: Tensor | None = None, vectors: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The logs of the weights of documents for texts, or for their vectors (texts, d), as a training wants them.

        They are (texts, documents), all of them or those that the training is `among`; beside them are the vectors
        (texts, d) that were compared.
        """
        if vectors is None:
            assert ids is not None  # one of the two is given
            assert mask is not None  # with the ids
            vectors = self.reader(ids, mask)
        vectors = functional.dropout(vectors, DROPOUT, self.training and self.turns_rows is not None)
        questions = self.questions(vectors)
        if self.among is None:
            return self._weights(questions, self.rows, self.owners, self.documents), questions
        compared, owners = self.among
        return self._weights(questions, self.rows[compared], owners, int(owners[-1]) + 1), questions

    def masses(self) -> Tensor:
        """(docids,) how much each docid counts."""
        return _masses(self.owners, self.passage_mass)

    def train_among(self, documents: Tensor) -> None:
        """Let a training compare questions with these documents alone, rising: the others have no say in it."""
        compared = torch.isin(self.owners, documents.to(self.owners)).nonzero()[:, 0]
        self.among = compared, torch.unique_consecutive(self.owners[compared], return_inverse=True)[1]

    def weights(self, vectors: Tensor) -> Tensor:
        """(texts, documents) the logs of the weights of all documents for the vectors (texts, d) of texts."""
        return self._weights(self.questions(vectors), self.rows, self.owners, self.documents)

    def _weights(self, questions: Tensor, rows: Tensor, owners: Tensor, documents: int) -> Tensor:
        rows = self._turned(rows, self.turns_rows)
        with torch.autocast(questions.device.type, enabled=False):  # half precision would blur near documents
            each = self.scale * (questions @ rows.T)
            if self.passage_mass != 1.0:
                each = each + _masses(owners, self.passage_mass).log()
            return each if len(owners) == documents else log_sums(each, owners, documents)

    def questions(self, vectors: Tensor) -> Tensor:
        """(texts, d) the vectors of questions as they are compared with rows."""
        return self._turned(vectors.float(), self.turns_questions)

    def rows_now(self, *, training: bool | None = None) -> Tensor:
        """(docids, d) the rows as questions are compared with them, now or while it is training."""
        return self._turned(self.rows, self.turns_rows, training)

    def _turned(self, vectors: Tensor, turn: nn.Linear | None, training: bool | None = None) -> Tensor:
        if turn is None:
            return vectors
        with torch.autocast(vectors.device.type, enabled=False):  # as where they are compared
            is_training = self.training if training is None else training
            weight = turn.weight if is_training else self._kept(turn)
            turned = functional.linear(vectors, weight)
            return functional.normalize(turned, dim=-1) if self.reader.shape.unit else turned

    def learned(self) -> dict[str, Any]:
        """What it has learned, without the reader if that stays as it is: what `restore` goes back to."""
        skipped = () if self.turns_rows is None else ("reader.",)
        state = {name: value.clone() for name, value in self.state_dict().items() if not name.startswith(skipped)}
        return {"kept": self.kept, "state": state}

    def restore(self, learned: Mapping[str, Any]) -> None:
        """Go back to what it had learned."""
        self.kept = learned["kept"]
        self.load_state_dict(learned["state"], strict=False)

    def reader_now(self) -> Encoder:
        """What reads questions, with what was learned."""
        turn = self.turns_questions
        return self.reader if turn is None else turned(self.reader, self._kept(turn))

    def placer_now(self, placer: Encoder) -> Encoder:
        """What reads new documents, so that their rows are turned as those of others were."""
        return placer if self.turns_rows is None else turned(placer, self._kept(self.turns_rows))

    def _kept(self, turn: nn.Linear) -> Tensor:
        """(d, d) a matrix on the way from the one that leaves vectors as they are to the one that was learned."""
        return torch.lerp(torch.eye(len(turn.weight), device=turn.weight.device), turn.weight, self.kept)


def _no_turn(size: int) -> nn.Linear:
    """A matrix that leaves vectors as they are."""
    linear = nn.Linear(size, size, bias=False)
    nn.init.eye_(linear.weight)
    return linear


def _masses(owners: Tensor, of_passage: float) -> Tensor:
    """(docids,) 1 for whole texts, which stand before the passages of their documents, and so much for passages."""
    is_passage = owners == torch.cat([owners.new_full((1,), -1), owners[:-1]])
    return torch.where(is_passage, of_passage, 1.0)


def log_sums(values: Tensor, owners: Tensor, count: int) -> Tensor:
    """(n, count) the log-sum-exp of the values (n, m) of each owner (m,); each has at least one."""
    index = owners.expand_as(values)
    top = torch.full((len(values), count), -torch.inf, dtype=values.dtype, device=values.device)
    top = top.scatter_reduce(1, index, values.detach(), "amax")
    sums = torch.zeros_like(top).index_add(1, owners, (values - top[:, owners]).exp())
    return top + sums.log()
